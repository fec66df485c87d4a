"""The scenario of a world: its options and fault plan, drawn from its seed.

Everything is drawn before the world starts. This allows the shrinker to drop steps of the plan or
to set an option while everything else stays unchanged.
"""

from __future__ import annotations

from difflib import get_close_matches
from random import Random
from typing import Any, Final

import msgspec

from partage.lab.fault_kinds import FaultKinds
from partage.lab.fault_plan import NamedPlan, PlanStep, draw_plan
from partage.lab.options import DELETE_RETENTION_MS, Options

_DAY_MS: Final = 86_400_000
# of the kinds of crash points and of other faults of transactions that a world has
_CRASH_SHARE: Final = 0.2
_FAULT_SHARE: Final = 0.6
_WRONG_CLOCKS_SHARE: Final = 0.125
# A world as `_draw` draws it fits in the smallest segment that it draws.
_MEMBERS_DRAWN_MAX: Final = 4
_PARTITIONS_DRAWN_MAX: Final = 7
_SEGMENT_BYTES_DRAWN_MIN: Final = 1_500
_MIGRATION_BYTES_MAX: Final = 20_000  # of the batch that replaces a group by one of the other type
# backoff of a client that did not find its coordinator, including jitter
_BACK_OFF_MS: Final = 1_200
# to ask two brokers for the coordinator, to connect to it and to receive a response
_LOOKUP_DELAYS: Final = 8
# Minimum session length of members and brokers, in ZooKeeper delays. A broker that starts accepts
# connections before it has joined the cluster, which takes some 20 round trips.
_SESSION_ROUND_TRIPS: Final = 30


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A seed, the options and plan drawn from it, the steps that are kept and the options that are
    changed.

    ``kept`` has the indexes of the steps that run; None runs all steps.
    """

    seed: int
    options: Options
    plan: tuple[PlanStep, ...]
    kept: tuple[int, ...] | None = None
    changes: dict[str, Any] = {}

    @property
    def steps(self) -> list[PlanStep]:
        """The steps that run."""
        if self.kept is None:
            return list(self.plan)
        return [self.plan[at] for at in self.kept]

    def rerun_command(self) -> str:
        """Return the command line that reproduces this scenario."""
        words = [f"partage lab run --seed-from {self.seed} --seeds 1"]
        if self.kept is not None:
            words.append("--keep " + (",".join(map(str, self.kept)) or "none"))
        words += [f"--set {name}={_text(value)}" for name, value in self.changes.items()]
        return " ".join(words)

    def option_texts(self) -> dict[str, str]:
        """Return all options in the form that ``--set`` accepts.

        A single broker has no cluster faults, so ``cluster_kinds`` is left out.
        """
        texts = {name: _text(value) for name, value in msgspec.structs.asdict(self.options).items()}
        if self.options.brokers == 1:
            del texts["cluster_kinds"]
        return texts


def _text(value: Any) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def build_scenario(
    seed: int,
    kinds: FaultKinds,
    kept: tuple[int, ...] | None = None,
    changes: dict[str, Any] | None = None,
) -> Scenario:
    """Build the scenario of a seed.

    Args:
        seed: The seed.
        kinds: The known faults.
        kept: Indexes of the plan steps to run; None runs all.
        changes: Options to set, by name; None sets none.

    Raises:
        KeyError: There is no such option.
        ValueError: An option cannot have this value, or there is no such step.
    """
    rng = Random(f"options {seed}")
    options = _draw(rng, kinds.common)
    options = _draw_cluster_options(
        Random(f"cluster {seed}"), Random(f"producers {seed}"), options, kinds
    )
    deletions = Random(f"tombstones {seed}").choice((0, 0, 0, 1, 2, 4))
    machine_stalls = Random(f"standstills {seed}").choice((0, 0, 0, 0, 0, 1, 3))
    link_faults = Random(f"links {seed}").choice((0, 2, 6))
    options = msgspec.structs.replace(
        options, deletions=deletions, machine_stalls=machine_stalls, link_faults=link_faults
    )
    options = _draw_transaction_options(Random(f"transactions {seed}"), options, kinds)
    members = Random(f"transactional members {seed}").choice((0, 2, 3))
    if options.transactional_producers:
        options = msgspec.structs.replace(options, transactional_members=members)
    options = msgspec.structs.replace(
        options,
        late_markers=Random(f"late markers {seed}").choice((0, 4, 12)),
        wrong_request_share=Random(f"wrong requests {seed}").choice((0.0, 0.1, 0.3)),
        repeated_request_share=Random(f"repeated requests {seed}").choice((0.0, 0.05, 0.2)),
        compactions=Random(f"compactions {seed}").choice((0, 4, 12)),
        output_is_compacted=Random(f"compacted output {seed}").random() < 0.5,
    )
    options = _draw_consumer_options(Random(f"consumers {seed}"), options, kinds)
    options = _draw_migration_options(Random(f"migrations {seed}"), options, kinds)
    options = msgspec.structs.replace(
        options,
        zookeeper_faults=Random(f"zookeeper faults {seed}").choice((0, 3, 8)),
        append_failures=Random(f"append failures {seed}").choice((0, 2, 5)),
    )
    options = _draw_wall_clock_options(Random(f"wall clock {seed}"), options)
    if changes:
        if "consumer_members" in changes and "classic_members" not in changes:
            options = msgspec.structs.replace(options, classic_members=0)
        if "brokers" in changes and "transactional_producers" not in changes:
            options = msgspec.structs.replace(options, transactional_producers=0)
        options = _apply_changes(options, changes, kinds)
    if options.transactional_producers and "delete_retention_ms" not in (changes or {}):
        retention_ms = Random(f"delete retention {seed}").choice((3_000, DELETE_RETENTION_MS))
        options = msgspec.structs.replace(options, delete_retention_ms=retention_ms)
    if "segment_bytes" not in (changes or {}):
        # only closed segments are compacted
        is_compacted = options.transactional_producers and options.compactions
        size = _SEGMENT_BYTES_DRAWN_MIN if is_compacted else options.segment_bytes
        least = max(size, _segment_bytes_min(options))
        options = msgspec.structs.replace(options, segment_bytes=least)
    options = _with_minimum_timeouts(options, changes or {})
    options = _with_durable_positions(options, changes or {})
    producers, is_cluster = options.transactional_producers, options.brokers > 1
    plans = [
        NamedPlan("plan", options.kinds, options.steps),
        NamedPlan("deletions plan", kinds.topics, options.deletions),
        NamedPlan("standstills plan", kinds.machine, options.machine_stalls),
        NamedPlan("wall clocks plan", kinds.wall_clocks, options.wall_clock_steps),
    ]
    if is_cluster:
        plans.insert(1, NamedPlan("cluster plan", options.cluster_kinds, options.cluster_steps))
        plans.append(NamedPlan("zookeeper plan", kinds.zookeeper, options.zookeeper_faults))
    if is_cluster or options.consumer_members:
        plans.append(NamedPlan("appends plan", kinds.appends, options.append_failures))
    if producers:
        of_producers = options.transaction_kinds, options.transaction_steps
        plans.append(NamedPlan("transactions plan", *of_producers))
        plans.append(NamedPlan("late markers plan", kinds.markers, options.late_markers))
        plans.append(NamedPlan("compactions plan", kinds.compactions, options.compactions))
    if producers and is_cluster:
        plans.append(NamedPlan("links plan", kinds.links, options.link_faults))
    if options.consumer_members:
        plans.append(NamedPlan("consumers plan", options.consumer_kinds, options.consumer_steps))
    if options.classic_members:
        of_members = options.migration_kinds, options.migration_steps
        plans.append(NamedPlan("migrations plan", *of_members))
    plan = draw_plan(seed, plans, options.safety_ms)
    if kept is not None:
        kept = tuple(sorted(set(kept)))
        if unknown := [at for at in kept if not 0 <= at < len(plan)]:
            known = f"the plan of seed {seed} has {len(plan)} steps, numbered from 0"
            raise ValueError(f"{known}: there is no step {unknown[0]}")
    return Scenario(seed=seed, options=options, plan=plan, kept=kept, changes=changes or {})


def _draw(rng: Random, kinds: tuple[str, ...]) -> Options:
    pick = rng.choice
    # Swarm testing: each world has some kinds of faults and lacks others. A fault that is always
    # present may hide a bug.
    share = pick((0.2, 0.5, 1.0))
    drawn = tuple(kind for kind in kinds if rng.random() < share) or kinds[:1]
    session_ms = pick((3_000, 6_000, 10_000))
    rebalance_ms = pick((3_000, 6_000, 10_000))
    safety_ms = pick((15_000, 30_000, 45_000))
    return Options(
        members=pick((1, 2, 2, 3, 3, 4)),
        static_share=pick((0.0, 0.0, 0.3, 1.0)),
        has_second_group=rng.random() < 0.15,
        partitions_t=pick((1, 2, 3, 5)),
        partitions_u=pick((1, 2)),
        assignors=pick(
            ("cooperative-sticky", "cooperative-sticky", "range", "sticky", "roundrobin", "mixed")
        ),
        versions_below_newest_max=pick((0, 0, 2, 9)),
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        heartbeat_interval_ms=pick((min(session_ms, rebalance_ms) // 3, 1_000)),
        max_poll_interval_ms=pick((6_000, 12_000)),
        poll_interval_ms=pick((1_000, 3_000)),
        commits_at_revoke=rng.random() < 0.7,
        initial_rebalance_delay_ms=pick((0, 500, 3_000)),
        new_member_join_timeout_ms=pick((5_000, 300_000)),
        members_max=pick((2, 4, 1_000, 1_000)),
        offsets_retention_ms=pick((10_000, 7 * _DAY_MS, 7 * _DAY_MS)),
        retention_check_ms=pick((5_000, 600_000)),
        segment_bytes=pick((1_500, 6_000, 1 << 20)),
        delay_max_ms=pick((0, 2, 30, 300)),
        frame_split_share=pick((0.0, 0.0, 0.2)),
        disk_delay_ms=pick((0, 2, 30)),
        produce_every_ms=pick((400, 1_500)),
        safety_ms=safety_ms,
        steps=safety_ms // pick((1_000, 2_000, 4_000)),
        kinds=drawn,
    )


def _draw_cluster_options(
    rng: Random, producers_rng: Random, options: Options, kinds: FaultKinds
) -> Options:
    """Draw the options of producers and clusters: one world in five has several brokers, one in
    three a second producer.

    Separate random generators leave the other draws of a seed unchanged.
    """
    return msgspec.structs.replace(
        options,
        producers=producers_rng.choice((1, 1, 2)),
        brokers=rng.choice((1, 1, 1, 1, 1, 1, 1, 1, 2, 3)),
        shards=rng.choice((1, 2, 3)),
        zookeeper_timeout_ms=rng.choice((4_000, 6_000)),
        zookeeper_delay_max_ms=rng.choice((1, 20, 100, 200)),
        cluster_steps=options.safety_ms // rng.choice((2_000, 4_000, 8_000)),
        cluster_kinds=tuple(kind for kind in kinds.cluster if rng.random() < 0.5)
        or kinds.cluster[:1],
        entries_per_merge=rng.choice((3, 10, 64)),
    )


def _draw_transaction_options(rng: Random, options: Options, kinds: FaultKinds) -> Options:
    """Draw the options of transactional producers: one world in four with one broker has some."""
    return msgspec.structs.replace(
        options,
        transactional_producers=rng.choice((0, 0, 0, 0, 0, 0, 1, 2)) if options.brokers == 1 else 0,
        transaction_protocol=rng.choice(("old", "new", "mixed")),
        transaction_timeout_ms=rng.choice((2_000, 5_000, 20_000)),
        transaction_every_ms=rng.choice((1, 200, 1_000)),
        marker_delay_max_ms=rng.choice((0, 20, 400)),
        first_epoch=rng.choice((0, 0, 32_758)),
        transaction_steps=options.safety_ms // rng.choice((400, 800, 1_600)),
        transaction_kinds=tuple(
            kind
            for kind in kinds.transactions
            if rng.random() < (_CRASH_SHARE if kind.startswith("dies_") else _FAULT_SHARE)
        )
        or kinds.transactions[:1],
    )


def _draw_consumer_options(rng: Random, options: Options, kinds: FaultKinds) -> Options:
    """Draw the options of members with the consumer protocol: one world in eight has some."""
    share = rng.choice((0.2, 0.5, 1.0))
    return msgspec.structs.replace(
        options,
        consumer_members=rng.choice((0, 0, 0, 0, 0, 0, 0, rng.choice((1, 2, 3, 4)))),
        consumer_static_share=rng.choice((0.0, 0.0, 0.4, 1.0)),
        consumer_regex_share=rng.choice((0.0, 0.3, 1.0)),
        consumer_session_timeout_ms=rng.choice((3_000, 6_000, 10_000)),
        consumer_rebalance_timeout_ms=rng.choice((2_000, 5_000, 10_000)),
        consumer_heartbeat_interval_ms=rng.choice((300, 1_000)),
        consumer_members_max=rng.choice((3, 1_000, 1_000)),
        assignment_interval_ms=rng.choice((0, 0, 1_000)),
        action_delay_max_ms=rng.choice((0, 20, 800)),
        consumer_steps=options.safety_ms // rng.choice((400, 800, 1_600)),
        consumer_kinds=tuple(kind for kind in kinds.consumers if rng.random() < share)
        or kinds.consumers[:1],
    )


def _draw_migration_options(rng: Random, options: Options, kinds: FaultKinds) -> Options:
    """Draw the options of members of both protocols: one world in three with consumers has some."""
    classic_members = rng.choice((0, 0, rng.choice((1, 2, 3))))
    share = rng.choice((0.3, 0.6, 1.0))
    policies = ("bidirectional", "bidirectional", "upgrade", "downgrade", "disabled")
    return msgspec.structs.replace(
        options,
        classic_members=classic_members if options.consumer_members else 0,
        migration_policy=rng.choice(policies),
        migration_steps=options.safety_ms // rng.choice((800, 1_600, 3_200)),
        migration_kinds=tuple(kind for kind in kinds.migrations if rng.random() < share)
        or kinds.migrations[:1],
    )


def _draw_wall_clock_options(rng: Random, options: Options) -> Options:
    """Draw the options of wall clocks: one world in eight has wrong ones."""
    has_faults = rng.random() < _WRONG_CLOCKS_SHARE
    difference_max_ms = rng.choice((0, 3_000, 3_600_000, _DAY_MS))
    steps = rng.choice((1, 3, 8))
    if not has_faults:
        return options
    return msgspec.structs.replace(
        options, wall_difference_max_ms=difference_max_ms, wall_clock_steps=steps
    )


def _with_durable_positions(options: Options, changes: dict[str, Any]) -> Options:
    """Keep the offsets of transactions for the whole world: their group never has members."""
    if not options.transactional_producers or "offsets_retention_ms" in changes:
        return options
    return msgspec.structs.replace(options, offsets_retention_ms=7 * _DAY_MS)


def _with_minimum_timeouts(options: Options, changes: dict[str, Any]) -> Options:
    """Raise session timeouts to what brokers that share a ZooKeeper need, unless they are set."""
    if options.brokers == 1:
        return options
    # A heartbeat may wait for a write and for the lease, and each takes a ZooKeeper round trip. A
    # member also has one session timeout to find the broker that took over its group.
    asked_ms = _SESSION_ROUND_TRIPS * options.zookeeper_delay_max_ms
    found_ms = 2 * _BACK_OFF_MS + _LOOKUP_DELAYS * options.delay_max_ms
    # Members with the consumer protocol have only seconds instead of Kafka's 45 s. Their commits
    # delay heartbeats on the same connection, and several brokers may know an outdated coordinator.
    consumer_ms = asked_ms + 3 * found_ms
    least = {
        "session_timeout_ms": max(options.session_timeout_ms, asked_ms, found_ms),
        "zookeeper_timeout_ms": max(options.zookeeper_timeout_ms, asked_ms),
        "consumer_session_timeout_ms": max(options.consumer_session_timeout_ms, consumer_ms),
        "consumer_rebalance_timeout_ms": max(options.consumer_rebalance_timeout_ms, consumer_ms),
    }
    unset = {name: value for name, value in least.items() if name not in changes}
    return msgspec.structs.replace(options, **unset)


def _apply_changes(options: Options, changes: dict[str, Any], kinds: FaultKinds) -> Options:
    types = {field.name: field.type for field in msgspec.structs.fields(Options)}
    values = {}
    for name, value in changes.items():
        if name not in types:
            near = get_close_matches(name, types, 1)
            hint = f"; did you mean {near[0]!r}? Options" if near else "; options"
            raise KeyError(f"unknown option {name!r}{hint} are {', '.join(types)}")
        is_list = name.endswith("kinds") and isinstance(value, str)
        try:
            given = value.split(",") if is_list else value
            values[name] = msgspec.convert(given, types[name], strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(f"{name}={value}: {error}") from None
    changed = msgspec.structs.replace(options, **values)
    if "segment_bytes" in values:
        _check_segment_bytes(changed)
    _check_options(changed, kinds)
    return changed


def _segment_bytes_min(options: Options) -> int:
    """Return the segment size that the largest record batch of a group may need.

    A batch may not be larger than a segment. The group record has an entry of about 100 bytes for
    each member, and members that rejoin under other ids are in it several times. A commit or a
    deletion writes about 50 bytes for each partition. A group that changes its type replaces all
    its records in one batch.
    """
    members = max(options.members - _MEMBERS_DRAWN_MAX, 0)
    partitions = max(options.partitions_t + options.partitions_u - _PARTITIONS_DRAWN_MAX, 0)
    migration = _MIGRATION_BYTES_MAX if options.classic_members else 0
    return _SEGMENT_BYTES_DRAWN_MIN + 300 * members + 150 * partitions + migration


def _check_segment_bytes(options: Options) -> None:
    """Raise ValueError if the record batch of a group may not fit in a segment."""
    least = _segment_bytes_min(options)
    if options.segment_bytes < least and least > _SEGMENT_BYTES_DRAWN_MIN:
        raise ValueError(
            f"segment_bytes={options.segment_bytes} is too small for members={options.members}, "
            f"partitions_t={options.partitions_t}, partitions_u={options.partitions_u} and "
            f"classic_members={options.classic_members}: the record of a group would not fit in a "
            f"segment; set segment_bytes={least} or more, or leave it out"
        )


def _check_options(options: Options, kinds: FaultKinds) -> None:
    """Raise ValueError if options contradict each other or name an unknown fault."""
    for given, known in (
        (options.kinds, kinds.common),
        (options.cluster_kinds, kinds.cluster),
        (options.transaction_kinds, kinds.transactions),
        (options.consumer_kinds, kinds.consumers),
        (options.migration_kinds, kinds.migrations),
    ):
        for kind in given:
            if kind not in known:
                raise ValueError(f"unknown fault {kind!r}; faults are {', '.join(known)}")
    if options.classic_members and not options.consumer_members:
        raise ValueError("classic_members needs consumer_members=1 or more: both have one group")
    for name, limit in (
        ("heartbeat_interval_ms", "session_timeout_ms"),
        ("heartbeat_interval_ms", "rebalance_timeout_ms"),
        ("poll_interval_ms", "max_poll_interval_ms"),
    ):
        less, more = getattr(options, name), getattr(options, limit)
        if less >= more:
            raise ValueError(f"{name}={less} must be less than {limit}={more}")

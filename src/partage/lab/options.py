"""What a seed draws: the shape of its world, and the plan of what will go wrong in it.

Everything is drawn before the world begins, so that a failure can be made small: by leaving steps
of the plan out, or setting an option, with everything else as it was.
"""

from __future__ import annotations

from random import Random
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from partage.model.settings import GroupSettings

_Some = Annotated[int, msgspec.Meta(ge=1, le=1_000)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=10_000)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Delay = Annotated[int, msgspec.Meta(ge=0, le=60_000)]
_Every = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
_Timeout = Annotated[int, msgspec.Meta(ge=1_000, le=1_800_000)]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of a world; times in ms, probabilities from 0 to 1."""

    members: _Some
    static_share: _Share
    has_second_group: bool
    partitions_t: _Some
    partitions_u: _Some
    assignors: Literal["cooperative-sticky", "range", "sticky", "roundrobin", "mixed"]
    version_cap: _Count  # how far below the newest version of each API clients may stay
    session_timeout_ms: _Timeout
    rebalance_timeout_ms: _Timeout
    heartbeat_interval_ms: _Every
    max_poll_interval_ms: _Timeout
    poll_interval_ms: _Every
    commits_at_revoke: bool
    initial_rebalance_delay_ms: _Delay
    new_member_join_timeout_ms: _Timeout
    members_max: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    offsets_retention_ms: _Every
    retention_check_ms: _Every
    segment_bytes: Annotated[int, msgspec.Meta(ge=1_000, le=2**31 - 1)]
    delay_max_ms: _Delay
    splits: _Share
    disk_delay_ms: _Delay
    produce_every_ms: _Every
    safety_ms: _Timeout
    steps: _Count
    kinds: tuple[str, ...]
    producers: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1
    brokers: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1  # above 1 they share a ZooKeeper
    shards: Annotated[int, msgspec.Meta(ge=1, le=50)] = 1
    zookeeper_timeout_ms: _Timeout = 6_000
    zookeeper_delay_max_ms: _Delay = 0
    merges_every: _Every = 64  # entries of a log that is shared, by a broker
    cluster_steps: _Count = 0
    cluster_kinds: tuple[str, ...] = ()
    deletions: _Count = 0  # of a topic that nobody reads, and offsets are committed of
    standstills: _Count = 0  # of all there is, at once

    def group_settings(self) -> GroupSettings:
        """What the broker is started with."""
        return GroupSettings(
            session_timeout_min_ms=1_000,
            initial_rebalance_delay_ms=self.initial_rebalance_delay_ms,
            new_member_join_timeout_ms=self.new_member_join_timeout_ms,
            members_max=self.members_max,
            offsets_retention_ms=self.offsets_retention_ms,
            offsets_retention_check_interval_ms=self.retention_check_ms,
        )

    @property
    def patience_ms(self) -> int:
        """How long a healed world may take until everybody works.

        Whoever has lost its answer finds out after its request timeout, a dead member's session
        or the rebalance timeout has to pass, and each may happen after the other. Then there is
        something to be read, and committed, over connections that may turn out to be gone, too.
        """
        return (
            self.session_timeout_ms
            + self.rebalance_timeout_ms
            + 2 * self.heartbeat_interval_ms
            + self.initial_rebalance_delay_ms
            + PARKED_LAPSE_MS
            + 4 * REQUEST_TIMEOUT_MS
            + self.max_poll_interval_ms
            + 3 * self.poll_interval_ms
            + self.takeover_ms
        )

    @property
    def shard_count(self) -> int:
        """A broker that is alone has one shard."""
        return 1 if self.brokers == 1 else self.shards

    @property
    def takeover_ms(self) -> int:
        """How long a group may be without a coordinator after its broker died; 0 where a broker is
        alone. A session may begin to count again just before its broker dies.
        """
        if self.brokers == 1:
            return 0
        asked_ms = _ASKED_OF_ZOOKEEPER * 2 * self.zookeeper_delay_max_ms
        return 2 * self.zookeeper_timeout_ms + TAKEN_WITHIN_MS + asked_ms


_BACK_OFF_MS: Final = 1_200  # of a client that has not found its coordinator, with what it jitters
_FINDING_DELAYS: Final = 8  # to ask two brokers who it is, and to connect to it and be heard
_ZOOKEEPER_DELAYS: Final = 10  # that sessions last at least, members' and brokers'
REQUEST_TIMEOUT_MS: Final = 5_000
PARKED_LAPSE_MS: Final = 2_000
LATE_MS: Final = 8_000  # what is under way when everything heals may take as long
TAKEN_WITHIN_MS: Final = 4_000  # from the end of a session until a successor has loaded
_ASKED_OF_ZOOKEEPER: Final = 10  # questions, one after the other, on the way to that
_DAY_MS: Final = 86_400_000


class Step(msgspec.Struct, frozen=True):
    """One thing that will happen: when, since the world began, what, and a number to draw from."""

    at_ms: int
    kind: str
    draw: int


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A seed, what was drawn from it, and what of that is left out or set otherwise."""

    seed: int
    options: Options
    plan: tuple[Step, ...]
    kept: tuple[int, ...] | None = None
    changes: dict[str, Any] = {}

    @property
    def steps(self) -> list[Step]:
        """The steps that happen."""
        if self.kept is None:
            return list(self.plan)
        return [self.plan[at] for at in self.kept]

    def command(self) -> str:
        """The command that runs it again."""
        words = [f"partage lab run --seed-from {self.seed} --seeds 1"]
        if self.kept is not None:
            words.append("--keep " + (",".join(map(str, self.kept)) or "none"))
        words += [f"--set {name}={_text(value)}" for name, value in self.changes.items()]
        return " ".join(words)

    def texts(self) -> dict[str, str]:
        """All options as ``--set`` takes them; for a broker that is alone no faults of several."""
        texts = {name: _text(value) for name, value in msgspec.structs.asdict(self.options).items()}
        if self.options.brokers == 1:
            del texts["cluster_kinds"]
        return texts


def _text(value: Any) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


class Kinds(NamedTuple):
    """The faults there are: in any world, in one with several brokers, to a topic, to all."""

    common: tuple[str, ...]
    cluster: tuple[str, ...]
    topics: tuple[str, ...]
    machine: tuple[str, ...]

    def all(self) -> tuple[str, ...]:
        """Each of them."""
        return self.common + self.cluster + self.topics + self.machine


def scenario(
    seed: int,
    kinds: Kinds,
    kept: tuple[int, ...] | None = None,
    changes: dict[str, Any] | None = None,
) -> Scenario:
    """What ``seed`` draws, of the faults in ``kinds``.

    Raises:
        KeyError: there is no such option.
        ValueError: it cannot have this value; or there is no such step.
    """
    rng = Random(f"options {seed}")
    options = _draw(rng, kinds.common)
    options = _draw_more(Random(f"cluster {seed}"), Random(f"producers {seed}"), options, kinds)
    deletions = Random(f"tombstones {seed}").choice((0, 0, 0, 1, 2, 4))
    standstills = Random(f"standstills {seed}").choice((0, 0, 0, 0, 0, 1, 3))
    options = msgspec.structs.replace(options, deletions=deletions, standstills=standstills)
    if changes:
        options = _changed(options, changes, kinds)
    options = _patient(options, changes or {})
    plan = _plan(Random(f"plan {seed}"), options.kinds, options.steps, options.safety_ms)
    if options.brokers > 1:
        rng = Random(f"cluster plan {seed}")
        plan += _plan(rng, options.cluster_kinds, options.cluster_steps, options.safety_ms)
    rng = Random(f"deletions plan {seed}")
    plan += _plan(rng, kinds.topics, options.deletions, options.safety_ms)
    rng = Random(f"standstills plan {seed}")
    plan += _plan(rng, kinds.machine, options.standstills, options.safety_ms)
    plan = tuple(sorted(plan, key=lambda step: step.at_ms))
    if kept is not None:
        kept = tuple(sorted(set(kept)))
        if strange := [at for at in kept if not 0 <= at < len(plan)]:
            story = f"seed {seed} plans {len(plan)} steps, from 0 on"
            raise ValueError(f"{story}: none is {strange[0]}")
    return Scenario(seed=seed, options=options, plan=plan, kept=kept, changes=changes or {})


def _draw(rng: Random, kinds: tuple[str, ...]) -> Options:
    pick = rng.choice
    # Each world has some kinds of faults and not others: what hides a bug from one that has all
    # is absent somewhere (swarm testing).
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
        version_cap=pick((0, 0, 2, 9)),
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
        splits=pick((0.0, 0.0, 0.2)),
        disk_delay_ms=pick((0, 2, 30)),
        produce_every_ms=pick((400, 1_500)),
        safety_ms=safety_ms,
        steps=safety_ms // pick((1_000, 2_000, 4_000)),
        kinds=drawn,
    )


def _draw_more(rng: Random, producers_rng: Random, options: Options, kinds: Kinds) -> Options:
    """A fifth of the worlds have several brokers, a third a second producer. From dice of their
    own: what else is drawn of a seed stays as it is.
    """
    return msgspec.structs.replace(
        options,
        producers=producers_rng.choice((1, 1, 2)),
        brokers=rng.choice((1, 1, 1, 1, 1, 1, 1, 1, 2, 3)),
        shards=rng.choice((1, 2, 3)),
        zookeeper_timeout_ms=rng.choice((4_000, 6_000)),
        zookeeper_delay_max_ms=rng.choice((1, 20, 200, 600)),
        cluster_steps=options.safety_ms // rng.choice((2_000, 4_000, 8_000)),
        cluster_kinds=tuple(kind for kind in kinds.cluster if rng.random() < 0.5)
        or kinds.cluster[:1],
        merges_every=rng.choice((3, 10, 64)),
    )


def _patient(options: Options, changes: dict[str, Any]) -> Options:
    """Sessions are as long as brokers that share a ZooKeeper need, unless they are set."""
    if options.brokers == 1:
        return options
    # A heartbeat may have to wait for a write and for the lease, each as long as ZooKeeper takes.
    # And a member has one session to find the broker that has taken its group over.
    asked_ms = _ZOOKEEPER_DELAYS * options.zookeeper_delay_max_ms
    found_ms = 2 * _BACK_OFF_MS + _FINDING_DELAYS * options.delay_max_ms
    least = {
        "session_timeout_ms": max(options.session_timeout_ms, asked_ms, found_ms),
        "zookeeper_timeout_ms": max(options.zookeeper_timeout_ms, asked_ms),
    }
    unset = {name: value for name, value in least.items() if name not in changes}
    return msgspec.structs.replace(options, **unset)


def _plan(rng: Random, kinds: tuple[str, ...], steps: int, until_ms: int) -> tuple[Step, ...]:
    return tuple(
        Step(at_ms=rng.randrange(500, until_ms), kind=rng.choice(kinds), draw=rng.getrandbits(32))
        for _ in range(steps)
    )


def _changed(options: Options, changes: dict[str, Any], kinds: Kinds) -> Options:
    types = {field.name: field.type for field in msgspec.structs.fields(Options)}
    values = {}
    for name, value in changes.items():
        if name not in types:
            raise KeyError(f"there is no option {name!r}; there are {', '.join(types)}")
        is_list = name.endswith("kinds") and isinstance(value, str)
        try:
            given = value.split(",") if is_list else value
            values[name] = msgspec.convert(given, types[name], strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(f"{name}={value}: {error}") from None
    changed = msgspec.structs.replace(options, **values)
    _check(changed, kinds)
    return changed


def _check(options: Options, kinds: Kinds) -> None:
    """What a world takes for granted of several options together."""
    for given, known in ((options.kinds, kinds.common), (options.cluster_kinds, kinds.cluster)):
        for kind in given:
            if kind not in known:
                raise ValueError(f"there is no fault {kind!r}; there are {', '.join(known)}")
    for name, limit in (
        ("heartbeat_interval_ms", "session_timeout_ms"),
        ("heartbeat_interval_ms", "rebalance_timeout_ms"),
        ("poll_interval_ms", "max_poll_interval_ms"),
    ):
        less, more = getattr(options, name), getattr(options, limit)
        if less >= more:
            raise ValueError(f"{name}={less} is to be less than {limit}={more}")

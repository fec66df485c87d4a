"""The options of one world, drawn from its seed."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final, Literal

import msgspec

from partage.lab.names import CONSUMER_GROUP

CommitStyle = Literal["auto", "after_poll", "offsets", "at_revoke", "unawaited"]
#: A disturbance of stable groups; see `partage.testing.shell_worlds.drills`.
DrillName = Literal["grow", "busy_cut", "overlap", "late_start", "api_gap", "short_close"]

_SMALL_BATCH: Final = 5
#: Other requests on the connection of the fetches wait behind them: their timeouts are longer.
_LONG_WAIT_MS: Final = 3_000
_TIMEOUTS: Final = ("request_timeout_ms", "max_poll_interval_ms", "session_timeout_ms")
_DEFAULT_MS: Final = 45_000
_DRILLS: Final[tuple[DrillName, ...]] = (
    "grow",
    "busy_cut",
    "overlap",
    "late_start",
    "api_gap",
    "short_close",
)
_DRILLS_MAX: Final = 2
#: The topic that is created while readers with a pattern run.
NEW_TOPIC: Final = "w"
_SLOW_LEAVE_S: Final = 2.0
#: Shorter than a slow leave.
_PATTERN_AGE_MS: Final = 500
_SHORT_AGE_MS: Final = 1_000
#: The timeout of calls that are repeated, if it is shorter than that of a request.
_SHORT_API_TIMEOUT_MS: Final = 2_000
#: Lists of assignors that the members of one group share.
_STRATEGIES: Final = (
    ("range",),
    ("roundrobin",),
    ("sticky",),
    ("cooperative-sticky",),
    ("cooperative-sticky", "range"),
)


class ReaderPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The actions of one reader process.

    Attributes:
        group: The consumer group.
        topics: The topics of its subscription.
        options: Options of its consumer.
        commits: When it commits.
        work_s: Time between two polls, in seconds.
        poll_timeout_ms: Timeout of each poll.
        takes_arrow: It converts the records to Arrow.
        iterates: It reads with ``async for`` instead of ``poll``.
        pauses: It pauses and resumes partitions.
        keeps_pauses: It pauses most of its partitions, for a longer time.
        has_pattern: It subscribes to a pattern that matches its topics and `NEW_TOPIC`.
        slow_leave_s: The time of its listener when it leaves, in seconds.
        seeks: It seeks back now and then.
        resubscribes: It unsubscribes now and then, and subscribes again.
    """

    group: str
    topics: tuple[str, ...]
    options: dict[str, Any]
    commits: CommitStyle
    work_s: float
    poll_timeout_ms: int
    takes_arrow: bool
    iterates: bool
    pauses: bool
    seeks: bool
    resubscribes: bool
    keeps_pauses: bool = False
    has_pattern: bool = False
    slow_leave_s: float = 0.0


class ShellScenario(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one world.

    Attributes:
        seed: Determines everything random.
        settings: Broker settings by Kafka's names.
        partitions: The number of partitions of each topic.
        readers: The reader processes, by name.
        writers: The number of writer processes.
        batch_records: The largest number of records in a batch.
        write_every_s: Time between two batches of a writer, in seconds.
        faults: The number of faults.
        faults_within_s: The time in which they begin.
        broker_kills: How often the broker is killed and started again, besides the faults.
        restarts: How often a reader closes its consumer and starts again.
        brokers: The number of brokers; several share a ZooKeeper.
        loses_power: The disk of a killed broker loses what was not synced.
        short_pauses: How often a reader is paused for almost the time of its session.
        connection_faults: How often a single connection of a reader fails.
        disk_faults: How often the disk of a broker fails for a time.
        backlog: The number of records that each writer writes before the readers start.
        session_faults: How often the ZooKeeper session of a group's coordinator fails.
        removals: How often an administrator removes a member.
        has_late_commits: Coordinators handle some commits late, while the faults happen.
        grows: A topic gets a partition while the faults happen, and one is created for patterns.
        has_manual_reader: A reader without a subscription assigns partitions to itself.
        has_manual_group: It commits in a group, and changes its assignment.
        drills: The disturbances after all faults.
    """

    seed: int
    settings: dict[str, str]
    partitions: dict[str, int]
    readers: dict[str, ReaderPlan]
    writers: int
    batch_records: int
    write_every_s: float
    faults: int
    faults_within_s: float
    broker_kills: int
    restarts: int
    short_pauses: int
    loses_power: bool
    brokers: int
    connection_faults: int = 0
    disk_faults: int = 0
    backlog: int = 0
    session_faults: int = 0
    removals: int = 0
    has_late_commits: bool = False
    grows: bool = False
    has_manual_reader: bool = False
    has_manual_group: bool = True
    drills: tuple[DrillName, ...] = ()

    @property
    def has_faults(self) -> bool:
        """True if anything fails in this world."""
        return bool(
            self.faults
            or self.broker_kills
            or self.short_pauses
            or self.connection_faults
            or self.disk_faults
            or self.session_faults
            or self.removals
            or self.has_late_commits
        )


def draw_scenario(seed: int, changes: Mapping[str, Any] | None = None) -> ShellScenario:
    """Return the world of a seed.

    Args:
        seed: The seed.
        changes: Fields of the scenario to replace.
    """
    rng = Random(f"shells {seed}")
    partitions = {"t": rng.choice((1, 2, 4, 6)), "u": rng.choice((1, 3))}
    readers: dict[str, ReaderPlan] = {}
    faults, broker_kills = rng.choice((0, 0, 2, 4, 6)), rng.choice((0, 0, 0, 2, 5))
    for group in ("g", "h")[: rng.choice((1, 1, 2))]:
        shared = _group_options(rng)
        if "group_protocol" in shared:
            # The rules know one group with the consumer protocol.
            if any(plan.group == CONSUMER_GROUP for plan in readers.values()):
                shared = {**shared, **_classic_options(rng)}
                del shared["group_protocol"]
            else:
                group = CONSUMER_GROUP
        style: CommitStyle = rng.choice(("auto", "auto", "after_poll", "offsets", "at_revoke"))
        for _ in range(rng.choice((1, 2, 2, 3))):
            name = f"reader-{len(readers) + 1}"
            plan = _draw_reader(rng, name, group, shared, style)
            if not (faults or broker_kills):  # then no record may be read twice
                plan = msgspec.structs.replace(plan, seeks=False)
            readers[name] = plan
    scenario = ShellScenario(
        seed=seed,
        settings={
            "group.initial.rebalance.delay.ms": rng.choice(("0", "0", "500")),
            "group.min.session.timeout.ms": "1000",
            # With the consumer protocol, a member is not told the session timeout. It takes the
            # default.
            "group.consumer.session.timeout.ms": "45000",
            "group.consumer.min.heartbeat.interval.ms": "500",
            "group.consumer.heartbeat.interval.ms": "1000",
            "log.segment.bytes": rng.choice(("4096", "1048576")),
            "log.index.interval.bytes": rng.choice(("256", "4096")),
            "offsets.topic.num.partitions": rng.choice(("1", "4")),
            "connections.max.idle.ms": rng.choice(("600000", "600000", "15000")),
        },
        partitions=partitions,
        readers=readers,
        writers=rng.choice((1, 2)),
        batch_records=rng.choice((1, 5, 40)),
        write_every_s=rng.choice((0.2, 0.5, 1.0)),
        faults=faults,
        faults_within_s=rng.choice((20.0, 40.0)),
        broker_kills=broker_kills,
        restarts=rng.choice((0, 2, 5)),
        short_pauses=rng.choice((0, 2, 4)) if faults else 0,
        loses_power=rng.random() < 0.5,
        brokers=rng.choice((1, 1, 1, 1, 1, 1, 1, 3)),
    )
    scenario = _with_more(scenario, Random(f"more of shells {seed}"))
    scenario = _with_drills(scenario, Random(f"drills of shells {seed}"))
    return msgspec.structs.replace(scenario, **(changes or {}))


def _with_more(scenario: ShellScenario, rng: Random) -> ShellScenario:
    """Draw the options that were added later, from a separate generator: the others stay."""
    may_fail = scenario.has_faults
    styles = {group: rng.random() < 0.3 for group in ("g", "h")}  # commits that are not awaited
    styles[CONSUMER_GROUP] = styles["g"]
    readers = {}
    for name, plan in scenario.readers.items():
        options = dict(plan.options)
        is_long = rng.random() < 0.4
        shortest_ms = min(options.get(name, _DEFAULT_MS) for name in _TIMEOUTS)
        if is_long and shortest_ms > 2 * _LONG_WAIT_MS:
            options["fetch_max_wait_ms"] = _LONG_WAIT_MS
        is_unawaited = plan.commits in ("after_poll", "offsets") and styles[plan.group]
        readers[name] = msgspec.structs.replace(
            plan,
            options=options,
            commits="unawaited" if is_unawaited else plan.commits,
            keeps_pauses=plan.pauses and rng.random() < 0.5,
        )
    return msgspec.structs.replace(
        scenario,
        readers=readers,
        # 500 records would be written before the first fault
        write_every_s=scenario.write_every_s * (3 if scenario.batch_records > _SMALL_BATCH else 1),
        backlog=rng.choice((0, 0, 100)),
        connection_faults=rng.choice((0, 4, 8)) if may_fail else 0,
        disk_faults=rng.choice((0, 1, 3)) if may_fail and scenario.loses_power else 0,
        session_faults=rng.choice((0, 2, 5)) if may_fail else 0,
    )


def _with_drills(scenario: ShellScenario, rng: Random) -> ShellScenario:
    """Draw drills, changes of topics, removals, late commits and patterns; see `_with_more`."""
    may_fail = scenario.has_faults
    drills = tuple(rng.sample(_DRILLS, rng.randint(1, _DRILLS_MAX)))
    grows = rng.random() < 0.3
    patterns = {plan.group for plan in scenario.readers.values() if rng.random() < 0.15}
    is_tight = scenario.brokers > 1 and rng.random() < 0.7
    readers = {}
    for name, plan in scenario.readers.items():
        plan = _with_pattern(plan) if plan.group in patterns else plan
        plan = _with_tight_buffer(plan) if is_tight else plan
        options = dict(plan.options)
        # With the consumer protocol, the coordinator notices new partitions.
        is_watched = options.get("group_protocol") != "consumer"
        if (grows or "grow" in drills) and is_watched:
            age_ms = min(options["metadata_max_age_ms"], _SHORT_AGE_MS)
            options["metadata_max_age_ms"] = age_ms
        if "grow" in drills:  # a JoinGroup waits for a member longer than other requests
            options["request_timeout_ms"] = 3_000
            options["fetch_max_wait_ms"] = min(options["fetch_max_wait_ms"], 500)
        if options["metadata_max_age_ms"] <= _SHORT_AGE_MS:
            # Each call refreshes the metadata, behind a fetch on the same connection.
            options["fetch_max_wait_ms"] = min(options["fetch_max_wait_ms"], 500)
        if "overlap" in drills:
            # A lookup may wait behind a fetch.
            options["default_api_timeout_ms"] = _SHORT_API_TIMEOUT_MS
            options["fetch_max_wait_ms"] = min(options["fetch_max_wait_ms"], 500)
        readers[name] = msgspec.structs.replace(plan, options=options)
    if "busy_cut" in drills:
        readers = _with_eager_group(readers)
    has_late_commits = may_fail and rng.random() < 0.4
    removals = rng.choice((0, 4, 8)) if may_fail and not has_late_commits else 0
    if removals:
        readers = {name: _with_awaited_commits(plan) for name, plan in readers.items()}
    restarts = scenario.restarts
    if has_late_commits:  # several commits of a member wait while its group rebalances
        readers = {name: _with_unawaited_commits(plan) for name, plan in readers.items()}
        restarts = max(restarts, 5)
    return msgspec.structs.replace(
        scenario,
        readers=readers,
        drills=drills,
        grows=grows,
        removals=removals,
        has_late_commits=has_late_commits,
        restarts=restarts,
        has_manual_reader=rng.random() < 0.3,
        has_manual_group=rng.random() < 0.5,
    )


def _with_pattern(plan: ReaderPlan) -> ReaderPlan:
    """Subscribe to a pattern, and leave slowly: several refreshes of the topics take place then."""
    age_ms = _PATTERN_AGE_MS
    return msgspec.structs.replace(
        plan,
        has_pattern=True,
        topics=("t", "u"),
        slow_leave_s=_SLOW_LEAVE_S,
        options={**plan.options, "metadata_max_age_ms": age_ms},
    )


def _with_tight_buffer(plan: ReaderPlan) -> ReaderPlan:
    """Let the fetches of one broker take all room, while a partition is paused and behind."""
    shortest_ms = min(plan.options.get(name, _DEFAULT_MS) for name in _TIMEOUTS)
    options = {
        **plan.options,
        "max_poll_records": 1,
        "buffer_bytes_max": 2_000,
        "max_partition_fetch_bytes": 1_048_576,
        "fetch_max_bytes": 52_428_800,
        "fetch_min_bytes": 1,
        "fetch_max_wait_ms": _LONG_WAIT_MS if shortest_ms > 2 * _LONG_WAIT_MS else 500,
    }
    return msgspec.structs.replace(
        plan, options=options, pauses=True, keeps_pauses=False, iterates=False, seeks=False
    )


def _with_unawaited_commits(plan: ReaderPlan) -> ReaderPlan:
    is_awaited = plan.commits in ("after_poll", "offsets")
    return msgspec.structs.replace(plan, commits="unawaited" if is_awaited else plan.commits)


def _with_awaited_commits(plan: ReaderPlan) -> ReaderPlan:
    """Let a member of a classic group learn of its removal by the commit after a poll."""
    if "session_timeout_ms" not in plan.options:
        return plan
    options = {**plan.options, "enable_auto_commit": False}
    return msgspec.structs.replace(plan, commits="after_poll", options=options)


def _with_eager_group(readers: Mapping[str, ReaderPlan]) -> dict[str, ReaderPlan]:
    """Let the members of a classic group give up all in a rebalance, and poll rarely."""
    strategies = {"partition_assignment_strategy": ["range"], "max_poll_interval_ms": 20_000}
    return {
        name: plan
        if "session_timeout_ms" not in plan.options
        else msgspec.structs.replace(
            plan,
            commits="after_poll" if plan.commits == "auto" else plan.commits,
            options={**plan.options, **strategies, "enable_auto_commit": False},
        )
        for name, plan in readers.items()
    }


def _group_options(rng: Random) -> dict[str, Any]:
    """Draw the options that the members of a group share."""
    options: dict[str, Any] = {"max_poll_interval_ms": rng.choice((6_000, 20_000))}
    protocol = rng.choice(("classic", "classic", "classic", "consumer", "consumer", "auto"))
    if protocol != "classic":  # the broker decides about sessions
        return {**options, "group_protocol": protocol}
    return {**options, **_classic_options(rng)}


def _classic_options(rng: Random) -> dict[str, Any]:
    return {
        "partition_assignment_strategy": list(rng.choice(_STRATEGIES)),
        "session_timeout_ms": rng.choice((4_000, 8_000)),
        "heartbeat_interval_ms": 1_000,
    }


def _draw_reader(
    rng: Random, name: str, group: str, shared: Mapping[str, Any], commits: CommitStyle
) -> ReaderPlan:
    options = {
        **shared,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": commits == "auto",
        "auto_commit_interval_ms": rng.choice((200, 1_000, 5_000)),
        "max_poll_records": rng.choice((1, 7, 500)),
        "max_partition_fetch_bytes": rng.choice((400, 5_000, 1_048_576)),
        "fetch_max_bytes": rng.choice((1_000, 52_428_800)),
        "buffer_bytes_max": rng.choice((500, 2_000, 67_108_864)),
        "fetch_max_wait_ms": rng.choice((100, 500)),
        "fetch_min_bytes": rng.choice((1, 1, 300)),
        "metadata_max_age_ms": rng.choice((2_000, 300_000)),
        "request_timeout_ms": rng.choice((3_000, 30_000)),
        "isolation_level": rng.choice(("read_uncommitted", "read_committed")),
    }
    # A static member that restarts before it gives up a partition gets its assignment without a
    # rebalance (KIP-345). With a cooperative assignor the partition then has no owner.
    is_cooperative = "cooperative-sticky" in shared.get("partition_assignment_strategy", ())
    if rng.random() < 0.25 and not is_cooperative:
        options["group_instance_id"] = name
    return ReaderPlan(
        group=group,
        topics=rng.choice((("t",), ("t", "u"))),
        options=options,
        commits=commits,
        work_s=rng.choice((0.0, 0.05, 0.4)),
        poll_timeout_ms=rng.choice((0, 100, 1_000)),
        takes_arrow=rng.random() < 0.2,
        iterates=rng.random() < 0.2,
        pauses=rng.random() < 0.25,
        seeks=rng.random() < 0.25,
        resubscribes=rng.random() < 0.2,
    )

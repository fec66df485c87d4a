"""The options of one world, drawn from its seed."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final

import msgspec

from partage.lab.names import CONSUMER_GROUP

_CLASSIC: Final[Mapping[str, Any]] = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 1_000}
#: The topic that is compacted in some worlds.
COMPACTED: Final = "u"
#: The instance id that two readers share in some worlds.
SHARED_INSTANCE_ID: Final = "twin"
_STRATEGIES: Final = (
    ("range",),
    ("roundrobin",),
    ("sticky",),
    ("cooperative-sticky",),
    ("cooperative-sticky", "range"),
)


class TopicMemberPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The actions of one reader process.

    Attributes:
        options: Options of its consumer.
        commits_after_polls: It commits after each poll with records.
        work_s: The longest time between two polls, in seconds.
        changes_topics: It subscribes to other topics now and then.
        has_failing_assignor: Its assignor fails now and then, while the faults happen.
        iterates: It reads with ``async for`` in most turns, otherwise with ``poll``.
        pauses: It pauses and resumes partitions.
        has_pattern: It subscribes to a pattern that matches all topics.
        drains: It hands its partitions over before it leaves.
    """

    options: dict[str, Any]
    commits_after_polls: bool
    work_s: float
    changes_topics: bool
    has_failing_assignor: bool
    iterates: bool = False
    pauses: bool = False
    has_pattern: bool = False
    drains: bool = False


class TopicScenario(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one world.

    Attributes:
        seed: Determines everything random.
        settings: Broker settings by Kafka's names.
        brokers: The number of brokers; several share a ZooKeeper.
        partitions: The number of partitions of each topic.
        group: The group of all readers.
        readers: The reader processes, by name.
        steps: How many changes the author of the topics makes.
        step_s: The longest time between two changes, in seconds.
        trims: Records are deleted.
        recreates: Topics are deleted and created again.
        transacts: Some batches belong to transactions.
        compacts: The topic `COMPACTED` is compacted.
        faults: The number of faults.
        within_s: The time in which faults begin, in seconds.
    """

    seed: int
    settings: dict[str, str]
    brokers: int
    partitions: dict[str, int]
    group: str
    readers: dict[str, TopicMemberPlan]
    steps: int
    step_s: float
    trims: bool
    recreates: bool
    transacts: bool
    compacts: bool
    faults: int
    within_s: float

    @property
    def may_repeat(self) -> bool:
        """True if the group may read a record twice: because of faults, or of late commits."""
        return self.faults > 0 or any(
            plan.commits_after_polls
            or plan.has_failing_assignor
            or plan.options.get("group_instance_id") == SHARED_INSTANCE_ID
            for plan in self.readers.values()
        )


def draw_topic_scenario(seed: int, changes: Mapping[str, Any] | None = None) -> TopicScenario:
    """Return the world of a seed.

    Args:
        seed: The seed.
        changes: Fields of the scenario to replace.
    """
    rng = Random(f"topics {seed}")
    protocols = rng.choice((("classic",), ("classic",), ("consumer",), ("classic", "consumer")))
    is_consumer = "consumer" in protocols
    shared: dict[str, Any] = {
        "auto_offset_reset": rng.choice(("earliest", "earliest", "latest", "none")),
        "isolation_level": rng.choice(("read_committed", "read_committed", "read_uncommitted")),
        "max_poll_interval_ms": rng.choice((8_000, 20_000)),
    }
    strategies = list(rng.choice(_STRATEGIES))
    has_failing_assignor = not is_consumer and rng.random() < 0.25
    has_twins = rng.random() < 0.25
    changes_topics = rng.random() < 0.4
    count = rng.choice((1, 2, 3)) if len(protocols) == 1 else 3
    readers = {}
    for number in range(count):
        commits_after_polls = rng.random() < 0.5
        options: dict[str, Any] = {
            **shared,
            "enable_auto_commit": not commits_after_polls,
            "auto_commit_interval_ms": rng.choice((200, 1_000, 5_000)),
            "max_poll_records": rng.choice((1, 7, 500)),
            "max_partition_fetch_bytes": rng.choice((400, 1_048_576)),
            "fetch_max_wait_ms": rng.choice((100, 500)),
            "metadata_max_age_ms": rng.choice((500, 2_000, 300_000)),
            "request_timeout_ms": rng.choice((3_000, 30_000)),
        }
        if rng.choice(protocols) == "classic":
            options |= {**_CLASSIC, "partition_assignment_strategy": strategies}
        else:
            options["group_protocol"] = "consumer"
        if has_twins or rng.random() < 0.2:
            options["group_instance_id"] = (
                SHARED_INSTANCE_ID if has_twins and number < 2 else f"own-{number}"
            )
        readers[f"reader-{number + 1}"] = TopicMemberPlan(
            options=options,
            commits_after_polls=commits_after_polls,
            work_s=rng.choice((0.0, 0.1, 0.5)),
            # as in Kafka, a static member that returns with other topics keeps its assignment
            changes_topics=changes_topics and "group_instance_id" not in options,
            has_failing_assignor=has_failing_assignor and "session_timeout_ms" in options,
        )
    kinds = rng.choice(("trims", "recreates", "transacts", "all", "all"))
    scenario = TopicScenario(
        seed=seed,
        settings={
            "group.initial.rebalance.delay.ms": rng.choice(("0", "500")),
            "group.min.session.timeout.ms": "1000",
            "group.consumer.session.timeout.ms": "45000",
            "group.consumer.min.heartbeat.interval.ms": "500",
            "group.consumer.heartbeat.interval.ms": "1000",
            "group.consumer.migration.policy": "bidirectional",
            "log.segment.bytes": rng.choice(("1000", "1048576")),
            "log.cleaner.backoff.ms": "1000",
            "log.index.interval.bytes": rng.choice(("256", "4096")),
            "offsets.topic.num.partitions": rng.choice(("1", "4")),
        },
        brokers=rng.choice((1, 1, 1, 1, 1, 3)),
        partitions={"t": rng.choice((1, 2, 4)), "u": rng.choice((1, 2))},
        group=CONSUMER_GROUP if is_consumer else "g",
        readers=readers,
        steps=rng.choice((20, 60)),
        step_s=rng.choice((0.3, 1.0)),
        trims=kinds in ("trims", "all"),
        recreates=kinds in ("recreates", "all"),
        transacts=kinds in ("transacts", "all"),
        compacts=rng.random() < 0.4,
        faults=rng.choice((0, 0, 3, 6)),
        within_s=30.0,
    )
    scenario = _with_more(scenario, Random(f"more of topics {seed}"))
    return msgspec.structs.replace(scenario, **(changes or {}))


def _with_more(scenario: TopicScenario, rng: Random) -> TopicScenario:
    """Draw the options that were added later, from a separate generator: the others stay."""
    readers = {}
    for name, plan in scenario.readers.items():
        has_pattern = not plan.changes_topics and rng.random() < 0.2
        readers[name] = msgspec.structs.replace(
            plan,
            iterates=rng.random() < 0.3,
            pauses=rng.random() < 0.3,
            has_pattern=has_pattern,
            drains=rng.random() < 0.3,
            options={**plan.options, "metadata_max_age_ms": 500} if has_pattern else plan.options,
        )
    return msgspec.structs.replace(scenario, readers=readers)

"""CPU time of a leader's assignor, and of the broker's (KIP-848).

One member of a stable cooperative group leaves, and the leader assigns its partitions to other
members. All topics have the same number of partitions. Members subscribe to all topics, or, in ten
classes, to ten different selections. The figure is the CPU time of one call, from members and
topics to the assignment: the best of several rounds.

The assignors of other Python clients get the same group in their own types, by turns, at sizes that
they can finish in reasonable time. Java's assignor gets the same group at every size, in a separate
JVM, cold and warm (`bench.java_assignors`). So does Kafka's ``uniform``; ours includes the check of
its result.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyAssignorUserDataV1,
    StickyPartitionAssignor,
)

from bench.figures import Figure
from bench.java_assignors import NAME as JAVA
from bench.java_assignors import JavaAssignors, JavaTargets, Took, java_assignors, java_targets
from bench.progress import step
from partage.assignors import Assignment, CooperativeSticky, Member, Range, Topic
from partage.assignors.server_side import Uniform
from partage.bridge.target_computation import compute_target
from partage.coordinator.consumer_group.actions import AssignableMember, ComputeTarget
from partage.coordinator.consumer_group.events import TopicImage
from partage.coordinator.consumer_group.partitions import PartitionSet

with warnings.catch_warnings():
    # kafka-python loads its message definitions with a deprecated function.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

TITLE = "Assignors"

_TOPICS = 20
#: Members, partitions, and target seconds with one class of subscriptions and with ten.
_SIZES = (
    (1_000, 10_000, 0.05, 0.1),
    (5_000, 50_000, 0.4, 1.0),
    (10_000, 100_000, 0.8, 2.5),
)
#: Members and partitions of groups whose targets the broker computes, and target seconds.
_SERVER_SIDE_SIZES = ((1_000, 10_000, 0.01), (10_000, 100_000, 0.1))
#: Members, topics and partitions of the groups for peers.
_PEER_SIZES = ((100, 10, 1_000), (1_000, 1, 1_000))

Group = tuple[list[Member], dict[str, Topic]]
Contender = Callable[[Sequence[Member], Mapping[str, Topic]], Callable[[], object]]


def measure(*, is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    """Measure our assignor at large sizes, then compare it with peers."""
    rounds = 3 if is_quick else 7
    with java_assignors() if with_kafka else nullcontext() as java:
        for members, partitions, wanted, wanted_of_ten in _SIZES[: 1 if is_quick else None]:
            for classes, seconds in ((1, wanted), (10, wanted_of_ten)):
                step(f"{members:,} members × {partitions:,} partitions, {classes} subscriptions")
                yield from _at_size(members, partitions, classes, seconds, rounds, java)
    for members, topics, partitions in _PEER_SIZES[: 1 if is_quick else None]:
        step(f"{members:,} members × {partitions:,} partitions, beside other Python clients")
        yield from _with_peers(members, topics, partitions)
    step("range, and uniform in the broker")
    yield from _range(1_000, 10, 10_000, rounds)
    with java_targets() if with_kafka else nullcontext() as targets:
        for members, partitions, wanted in _SERVER_SIDE_SIZES[: 1 if is_quick else None]:
            yield from _server_side(members, partitions, wanted, rounds, targets)


def _server_side(
    members: int, partitions: int, wanted: float, rounds: int, java: JavaTargets | None
) -> Iterator[Figure]:
    """Measure ``uniform`` with its validation: one member of a group leaves."""
    counts = {number.to_bytes(16): partitions // _TOPICS for number in range(_TOPICS)}
    topics = {
        topic_id: TopicImage(topic_id=topic_id, name=f"t{topic_id[-1]}", partition_count=count)
        for topic_id, count in counts.items()
    }
    group = {
        f"m{number}": AssignableMember(
            member_id=f"m{number}", subscribed_topic_ids=frozenset(topics)
        )
        for number in range(members)
    }
    first = _compute_target(group, topics)
    fresh = _best({"": lambda: _compute_target(group, topics)}, rounds)[""]
    left = {
        name: msgspec.structs.replace(member, target=first[name])
        for name, member in group.items()
        if name != "m0"
    }
    after = _best({"": lambda: _compute_target(left, topics)}, rounds)[""]
    yield Figure(
        what=f"uniform in the broker: {members:,} members × {partitions:,} partitions: one leaves",
        unit="s CPU",
        ours=after,
        less_is_better=True,
        wanted=wanted,
        note=f"first assignment of a new group: {fresh:.3f} s",
    )
    if java is not None:
        yield _beside_java(after, java.time("uniform", left.values(), counts, 20 * rounds))


def _compute_target(
    group: Mapping[str, AssignableMember], topics: Mapping[bytes, TopicImage]
) -> Mapping[str, PartitionSet]:
    action = ComputeTarget(
        group_id="g",
        sequence=1,
        group_epoch=2,
        assignor="uniform",
        members=group,
        topics=topics,
        is_homogeneous=True,
    )
    target, error = compute_target(action, Uniform())
    assert target is not None, error
    return target


def _at_size(
    members: int,
    partitions: int,
    classes: int,
    wanted: float,
    rounds: int,
    java: JavaAssignors | None,
) -> Iterator[Figure]:
    new = _group(members, _TOPICS, partitions, classes)
    left = _after_leave(*new)
    fresh = _best({"": _ours(CooperativeSticky(), *new)}, rounds)[""]
    after = _best({"": _ours(CooperativeSticky(), *left)}, rounds)[""]
    subscribed = "one subscription" if classes == 1 else f"{classes} subscriptions"
    what = f"{members:,} members × {partitions:,} partitions, {subscribed}: one leaves"
    yield Figure(
        what=what,
        unit="s CPU",
        ours=after,
        less_is_better=True,
        wanted=wanted,
        note=f"first assignment of a new group: {fresh:.3f} s",
    )
    if java is not None:
        yield _beside_java(after, java.time("cooperative-sticky", *left, 4 * rounds))


def _beside_java(ours: float, its: Took) -> Figure:
    """Return the row below one of ours, with the time of Kafka's assignor for the same group."""
    return Figure(
        what="the same, compared with Java's after its compilation",
        unit="s CPU",
        ours=ours,
        peer_name=JAVA,
        peer=its.warm_s,
        less_is_better=True,
        note=f"its first run in that JVM: {its.cold_s:.2f} s",
    )


def _with_peers(members: int, topics: int, partitions: int) -> Iterator[Figure]:
    group = _after_leave(*_group(members, topics, partitions, 1))
    calls = {
        "ours": _ours(CooperativeSticky(), *group),
        "kafka-python": _kafka_python_cooperative(*group),
        "aiokafka, sticky": _aiokafka_sticky(*group),
    }
    took = _best(calls, 1)
    took["ours"] = min(took["ours"], _best({"ours": calls["ours"]}, 5)["ours"])
    for name in list(calls)[1:]:
        yield Figure(
            what=f"{members:,} members × {partitions:,} partitions: one leaves",
            unit="s CPU",
            ours=took["ours"],
            peer_name=name,
            peer=took[name],
            less_is_better=True,
        )


def _range(members: int, topics: int, partitions: int, rounds: int) -> Iterator[Figure]:
    group = _group(members, topics, partitions, 1)
    calls = {
        "ours": _ours(Range(), *group),
        "kafka-python": _kafka_python_range(*group),
        "aiokafka": _aiokafka_range(*group),
    }
    took = _best(calls, rounds)
    for name in list(calls)[1:]:
        yield Figure(
            what=f"range: {members:,} members × {partitions:,} partitions",
            unit="s CPU",
            ours=took["ours"],
            peer_name=name,
            peer=took[name],
            less_is_better=True,
        )


def _best(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    fastest = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            before = time.process_time()
            call()
            fastest[name] = min(fastest[name], time.process_time() - before)
    return fastest


# Groups.


def _group(members: int, topics: int, partitions: int, classes: int) -> Group:
    names = [f"topic-{number:02}" for number in range(topics)]
    chance = Random(1)
    subscriptions = [tuple(names)]
    if classes > 1:
        subscriptions = [
            tuple(sorted(chance.sample(names, chance.randint(topics // 2, topics))))
            for _ in range(classes)
        ]
    return (
        [
            Member(member_id=f"member-{number:05}", topics=subscriptions[number % classes])
            for number in range(members)
        ],
        {name: Topic(name=name, partition_count=partitions // topics) for name in names},
    )


def _after_leave(members: Sequence[Member], topics: dict[str, Topic]) -> Group:
    """Return the group after it was stable and one member has left."""
    given: Assignment = CooperativeSticky().assign(members, topics)
    left = [
        Member(
            member_id=m.member_id,
            topics=m.topics,
            # Tuples, as a leader decodes them
            owned={name: tuple(partitions) for name, partitions in given[m.member_id].items()},
            generation=1,
        )
        for m in members
    ]
    del left[len(left) // 2]
    return left, topics


# Assignors.


def _ours(
    assignor: CooperativeSticky | Range, members: Sequence[Member], topics: Mapping[str, Topic]
) -> Callable[[], object]:
    return lambda: assignor.assign(members, topics)


class _Cluster:
    """The part of a client's metadata that its assignors use."""

    def __init__(self, topics: Mapping[str, Topic]) -> None:
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        self._partitions = {n: set(range(its.partition_count)) for n, its in topics.items()}

    def topics(self) -> set[str]:
        return set(self._partitions)

    def partitions_for_topic(self, name: str) -> set[int] | None:
        return self._partitions.get(name)


def _kafka_python_cooperative(
    members: Sequence[Member], topics: Mapping[str, Topic]
) -> Callable[[], object]:
    cluster: Any = _Cluster(topics)
    subscription = ConsumerProtocolSubscription
    group = [
        SimpleNamespace(
            member_id=m.member_id,
            metadata=subscription(
                version=2,
                topics=list(m.topics),
                user_data=b"",
                owned_partitions=[
                    subscription.TopicPartition(topic=name, partitions=list(partitions))
                    for name, partitions in m.owned.items()
                ],
                generation_id=m.generation,
            ),
        )
        for m in members
    ]
    return lambda: CooperativeStickyAssignor().assign(cluster, group)


def _aiokafka_sticky(
    members: Sequence[Member], topics: Mapping[str, Topic]
) -> Callable[[], object]:
    cluster: Any = _Cluster(topics)
    group: Any = {
        m.member_id: SimpleNamespace(
            subscription=list(m.topics),
            user_data=StickyAssignorUserDataV1(
                [(name, list(partitions)) for name, partitions in m.owned.items()], m.generation
            ).encode(),
        )
        for m in members
    }
    return lambda: StickyPartitionAssignor.assign(cluster, group)


def _kafka_python_range(
    members: Sequence[Member], topics: Mapping[str, Topic]
) -> Callable[[], object]:
    cluster: Any = _Cluster(topics)
    group = [
        SimpleNamespace(
            member_id=m.member_id,
            group_instance_id=None,
            metadata=SimpleNamespace(topics=list(m.topics)),
        )
        for m in members
    ]
    return lambda: RangePartitionAssignor.assign(cluster, group)


def _aiokafka_range(members: Sequence[Member], topics: Mapping[str, Topic]) -> Callable[[], object]:
    cluster: Any = _Cluster(topics)
    group: Any = {m.member_id: SimpleNamespace(subscription=list(m.topics)) for m in members}
    return lambda: AiokafkaRange.assign(cluster, group)

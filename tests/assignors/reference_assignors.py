"""The assignors of kafka-python and aiokafka, as references."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import aiokafka.coordinator.assignors.sticky.sticky_assignor as aiokafka_sticky
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin

from partage.assignors import Assignment, Member, Topic

with warnings.catch_warnings():
    # kafka-python reads its schemas through a deprecated function of importlib.resources.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.coordinator.assignors.sticky.sticky_assignor as kafka_python_sticky
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

for module in "kafka", "aiokafka":
    # They warn about each topic without partitions, each time.
    logging.getLogger(f"{module}.coordinator.assignors").setLevel(logging.CRITICAL)

STICKY = {"aiokafka": aiokafka_sticky, "kafka-python": kafka_python_sticky}


class Cluster:
    """The part of a client's metadata that assignors read."""

    def __init__(self, topics: Mapping[str, Topic]) -> None:
        self._topics = topics

    def topics(self) -> set[str]:
        return set(self._topics)

    def partitions_for_topic(self, name: str) -> set[int] | None:
        its = self._topics.get(name)
        return set(range(its.partition_count)) if its and its.partition_count else None


def sticky(peer: str, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
    """Return the placement of a reference sticky assignor, before partitions are held back."""
    module = STICKY[peer]
    partition = aiokafka_sticky.TopicPartition
    metadata = {
        m.member_id: module.StickyAssignorMemberMetadataV1(
            subscription=list(m.topics),
            partitions=[partition(name, p) for name, ps in m.owned.items() for p in ps],
            generation=m.generation,
        )
        for m in members
    }
    wanted = {name for member in members for name in member.topics}
    executor = module.StickyAssignmentExecutor(
        Cluster({name: its for name, its in topics.items() if name in wanted}), metadata
    )
    executor.perform_initial_assignment()
    executor.balance()
    return {m.member_id: dict(executor.get_final_assignment(m.member_id)) for m in members}


def cooperative(members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
    """Return the assignment of kafka-python's cooperative-sticky assignor."""
    subscription = ConsumerProtocolSubscription
    group = [
        SimpleNamespace(
            member_id=m.member_id,
            metadata=subscription(
                version=2,
                topics=list(m.topics),
                user_data=b"",
                owned_partitions=[
                    subscription.TopicPartition(topic=name, partitions=list(ps))
                    for name, ps in m.owned.items()
                ],
                generation_id=m.generation,
            ),
        )
        for m in members
    ]
    given = CooperativeStickyAssignor().assign(Cluster(topics), group)
    return {member_id: dict(its.assigned_partitions) for member_id, its in given.items()}


def aiokafka(name: str, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
    """Return the assignment of aiokafka's ``range`` or ``roundrobin``."""
    assignor = {"range": AioRange, "roundrobin": AioRoundRobin}[name]
    given = assignor.assign(
        Cluster(topics),
        {m.member_id: SimpleNamespace(subscription=list(m.topics)) for m in members},
    )
    return {member_id: dict(its.assignment) for member_id, its in given.items()}


def kafka_python(name: str, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
    """Return the assignment of kafka-python's ``range`` or ``roundrobin``."""
    assignor = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}[name]
    group = [
        SimpleNamespace(
            member_id=m.member_id,
            group_instance_id=m.instance_id,
            metadata=SimpleNamespace(topics=list(m.topics)),
        )
        # It loses members unless the static ones come first.
        for m in sorted(members, key=lambda member: member.sort_key)
    ]
    given = assignor.assign(Cluster(topics), group)
    return {member_id: dict(its.assigned_partitions) for member_id, its in given.items()}

"""Conversions of a group between the protocols, as a shard's driver gives them to its log."""

from __future__ import annotations

from typing import NamedTuple

from partage.coordinator.consumer_group.events import (
    ConsumerGroupHeartbeat,
    TopicImage,
    TopicsChanged,
)
from partage.coordinator.events import Commit, OffsetToCommit, Ticket
from partage.coordinator.invariants import durable_state
from partage.coordinator.records import GroupRecord, MemberRecord, Record
from partage.coordinator.shard import Shard
from partage.model.settings import GroupSettings
from partage.runtime.driver import Driver
from partage.store.embedded_protocol import KafkaEmbeddedProtocol
from partage.store.shard_log import encode_records, replay, subscribed_topics
from partage.wire.consumer_protocol import (
    Assignment,
    ConsumerTopicPartitions,
    Subscription,
    encode_assignment,
    encode_subscription,
)

NOW_MS = 1_000
SETTINGS = GroupSettings()


class Conversion(NamedTuple):
    """The records of one loop turn that converts group ``g``, with commits of another group."""

    earlier: list[Record]  # in the log before
    records: list[Record]
    event_ends: list[int]


def states(conversion: Conversion) -> list[object]:
    """Return the durable state of group ``g`` before and after the conversion."""
    earlier, records, _ = conversion
    return [state_of(encode_records(each, NOW_MS)) for each in (earlier, earlier + records)]


def state_of(batches: list[bytes]) -> object:
    """Return the durable state of group ``g`` after a replay."""
    groups = durable_state(replay(batches, SETTINGS))[0]
    return groups.get("g")


def conversions(member_count: int, user_bytes: int) -> tuple[Conversion, Conversion]:
    """Return the upgrade of a group, and its downgrade.

    Args:
        member_count: The members with the classic protocol.
        user_bytes: The size of the user data of each.
    """
    earlier: list[Record] = [_classic_group(member_count, user_bytes)]
    shard = Shard(SETTINGS, subscribed_topics, KafkaEmbeddedProtocol())
    for record in earlier:
        shard.apply(record)
    driver = Driver()
    driver.activate(shard, NOW_MS)
    image = TopicImage(topic_id=b"t" * 16, name="t", partition_count=member_count)
    driver.handle(TopicsChanged(at_ms=NOW_MS, topics={"t": image}, version=1))
    driver.pop_unsent()
    found = []
    for member_epoch in (0, -1):
        _commit(driver)
        driver.handle(
            ConsumerGroupHeartbeat(
                at_ms=NOW_MS,
                reply_to=Ticket(member_epoch),
                group_id="g",
                member_id="consumer",
                generated_member_id="consumer",
                member_epoch=member_epoch,
                client_id="c",
                client_host="/h",
                rebalance_timeout_ms=60_000,
                subscribed_topics=("t",),
                owned={},
            )
        )
        _commit(driver)
        records, mark, event_ends = driver.pop_unsent()
        driver.on_durable(mark)
        found.append(Conversion(earlier, records, event_ends))
        earlier = earlier + records
    upgrade, downgrade = found
    return upgrade, downgrade


def _commit(driver: Driver) -> None:
    wanted = tuple(
        OffsetToCommit(topic="t", partition=n, offset=1, metadata="x" * 50) for n in range(5)
    )
    driver.handle(Commit(at_ms=NOW_MS, reply_to=Ticket(1), group_id="other", offsets=wanted))


def _classic_group(member_count: int, user_bytes: int) -> GroupRecord:
    return GroupRecord(
        group_id="g",
        protocol_type="consumer",
        generation=7,
        protocol="range",
        leader="m0",
        since_ms=NOW_MS,
        members=tuple(
            MemberRecord(
                member_id=f"m{n}",
                instance_id=None,
                client_id="c",
                client_host="/h",
                rebalance_timeout_ms=60_000,
                session_timeout_ms=30_000,
                subscription=encode_subscription(
                    Subscription(topics=["t"], user_data=bytes(user_bytes))
                ),
                assignment=encode_assignment(
                    Assignment(
                        assigned_partitions=[ConsumerTopicPartitions(topic="t", partitions=[n])]
                    )
                ),
            )
            for n in range(member_count)
        ),
    )

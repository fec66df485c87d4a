"""Members with the consumer protocol (KIP-848) that send heartbeats and reconcile at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from bench.load import Address, Caller, call, connect, decoded, encoded, exchange
from bench.members import retry_until_ok
from partage.model.errors import ErrorCode
from partage.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupTopicPartitions,
)
from partage.wire.apis.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from partage.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest

HEARTBEAT_VERSION = 1
_CREATE_TOPICS_VERSION = 5
_RETRIED = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class ConsumerProtocolMember:
    """A member; ``epoch`` and ``partition_count`` are those of its last response."""

    def __init__(
        self, caller: Caller, group_id: str, member_id: str, topics: Sequence[str]
    ) -> None:
        self.caller = caller
        self.member_id = member_id
        self.epoch = 0
        self.partition_count = 0
        self._group_id = group_id
        self._topics = list(topics)
        self._owned: dict[bytes, frozenset[int]] = {}

    def frame(self) -> bytes:
        """Return a heartbeat that reports no change."""
        return encoded(
            CONSUMER_GROUP_HEARTBEAT,
            HEARTBEAT_VERSION,
            ConsumerGroupHeartbeatRequest(
                group_id=self._group_id, member_id=self.member_id, member_epoch=self.epoch
            ),
        )

    async def heartbeat(self, *, is_reporting: bool = False) -> bool:
        """Send a heartbeat; return True if the response has a new assignment.

        Args:
            is_reporting: Report subscription and owned partitions, as the first heartbeat does.
        """
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self.member_id, member_epoch=self.epoch
        )
        if is_reporting or self.epoch == 0:
            request.rebalance_timeout_ms = 60_000
            request.subscribed_topic_names = self._topics
            request.topic_partitions = [
                ConsumerGroupTopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
                for topic_id, numbers in self._owned.items()
            ]
        frame = encoded(CONSUMER_GROUP_HEARTBEAT, HEARTBEAT_VERSION, request)
        while True:
            response = decoded(
                CONSUMER_GROUP_HEARTBEAT, HEARTBEAT_VERSION, await exchange(self.caller, frame)
            )
            if response.error_code not in _RETRIED:
                break
            await asyncio.sleep(0.05)
        if response.error_code:
            raise AssertionError(f"{ErrorCode(response.error_code).name}: {response.error_message}")
        self.epoch = response.member_epoch
        if response.assignment is None:
            return False
        self._owned = {
            bytes(each.topic_id): frozenset(each.partitions)
            for each in response.assignment.topic_partitions
        }
        self.partition_count = sum(map(len, self._owned.values()))
        return True

    async def reconcile(self) -> None:
        """Send a heartbeat, and report a new assignment at once, as Kafka's clients do.

        The response to a report may revoke partitions again. Without another report, the broker
        would remove the member after its rebalance timeout.
        """
        while await self.heartbeat():
            reported = None
            while reported != self._owned:
                reported = self._owned
                await self.heartbeat(is_reporting=True)


async def create_topic(address: Address, topic: str, partitions: int) -> None:
    """Create a topic."""
    (caller,) = await connect(address, 1)
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic,
                num_partitions=partitions,
                replication_factor=1,
                assignments=[],
                configs=[],
            )
        ],
        timeout_ms=60_000,
        validate_only=False,
    )
    response = await call(caller, CREATE_TOPICS, _CREATE_TOPICS_VERSION, request)
    assert not response.topics[0].error_code, response
    caller.close()


async def join_group(
    address: Address,
    callers: Sequence[Caller],
    group_id: str,
    topics: Sequence[str],
    partitions: int,
) -> list[ConsumerProtocolMember]:
    """Let one member join on each connection; return when they own all partitions in one epoch."""
    find = FindCoordinatorRequest(key=group_id)
    await retry_until_ok(lambda: call(callers[0], FIND_COORDINATOR, 2, find))
    members = [
        ConsumerProtocolMember(caller, group_id, f"{group_id}-{number}", topics)
        for number, caller in enumerate(callers)
    ]
    await asyncio.gather(*(member.heartbeat() for member in members))
    await settle(members, partitions)
    return members


def is_balanced(members: Sequence[ConsumerProtocolMember], partitions: int) -> bool:
    """Return True if the members own all partitions evenly, and all have the same epoch."""
    counts = [member.partition_count for member in members]
    return (
        sum(counts) == partitions
        and min(counts) >= partitions // len(members)
        and len({member.epoch for member in members}) == 1
    )


async def settle(members: Sequence[ConsumerProtocolMember], partitions: int) -> float:
    """Send heartbeats until the group is balanced; return that time."""
    while not is_balanced(members, partitions):
        await asyncio.gather(*(member.reconcile() for member in members))
        await asyncio.sleep(0.1)
    return time.perf_counter()

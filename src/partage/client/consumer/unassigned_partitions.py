"""The partitions that no member of a group is assigned, as the coordinator describes the group.

A static leader that returns keeps the last assignment (KIP-814). Topics may have got partitions
while it was away: its metadata then has them already, so that it would never see a change. Kafka's
client leaves them without an owner until the next rebalance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from partage.client.group.coordinator_client import CoordinatorClient
from partage.client.loop_thread import run_in_executor
from partage.client.metadata import TopicMetadata
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.describe_groups import (
    DESCRIBE_GROUPS,
    DescribedGroup,
    DescribeGroupsRequest,
)
from partage.wire.consumer_protocol import decode_assignment
from partage.wire.primitives import MalformedError

_STABLE: Final = "Stable"


async def find_unassigned(
    coordinator: CoordinatorClient, group_id: str, topics: Mapping[str, TopicMetadata]
) -> list[TopicPartition]:
    """Return the partitions of some topics that no member is assigned, in order.

    They are unknown while the group rebalances, and without permission to describe it; then the
    result is empty.

    Raises:
        ClientError: The coordinator did not answer.
    """
    await coordinator.connect()  # a member without partitions has looked up no offsets
    request = DescribeGroupsRequest(groups=[group_id])
    (group,) = (await coordinator.send(DESCRIBE_GROUPS, request)).groups
    if group.error_code or group.group_state != _STABLE:
        return []
    return await run_in_executor(partial(_unassigned, group, topics))


def _unassigned(group: DescribedGroup, topics: Mapping[str, TopicMetadata]) -> list[TopicPartition]:
    """Return the partitions that no member is assigned; it may take long with many of them."""
    assigned: defaultdict[str, set[int]] = defaultdict(set)
    for member in group.members:
        with suppress(MalformedError):
            for topic in decode_assignment(member.member_assignment).assigned_partitions:
                assigned[topic.topic].update(topic.partitions)
    return [
        partition
        for name in sorted(topics)
        for partition in topics[name].topic_partitions
        if partition.partition not in assigned[name]
    ]

"""The shell of a member of the designs with JoinGroup."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from partage.client.cluster import Cluster
from partage.client.errors import ClientError
from partage.model.addresses import Address
from partage.proposals.assignment import assign_partitions
from partage.proposals.join_group.member import DesignMember, DesignMemberState
from partage.proposals.machine import Action, Connect, PartitionCountsChanged
from partage.proposals.single_assignor.member import (
    ComputeShares,
    ShareComputationFailed,
    SharesComputed,
)
from partage.proposals.sockets.codec import Codec
from partage.proposals.sockets.member_shell import PartitionReader, SocketMemberShell
from partage.wire.apis.metadata import METADATA, MetadataRequest

log = logging.getLogger(__name__)

_RETRY_S: Final = 0.5


class TopicMetadataSource:
    """The partition counts of all topics of a cluster, from its brokers.

    Args:
        cluster: The cluster.
        first_broker: The broker that stands for the coordinator: the same for all members.
    """

    def __init__(self, cluster: Cluster, first_broker: Address) -> None:
        self._cluster = cluster
        self._first_broker = first_broker

    async def fetch(self, *, is_from_coordinator: bool = False) -> dict[str, int]:
        """Return the partition count of each topic that is not internal.

        Raises:
            ClientError: The brokers cannot be reached.
        """
        if is_from_coordinator:
            broker = await self._cluster.connect_to(self._first_broker)
            response = await broker.send(METADATA, MetadataRequest(topics=None))
            return {
                topic.name: len(topic.partitions)
                for topic in response.topics
                if topic.name is not None and not topic.is_internal and not topic.error_code
            }
        topics = await self._cluster.all_topics()
        return {name: len(each.partitions) for name, each in topics.items() if not each.is_internal}


class JoinGroupMemberShell(SocketMemberShell):
    """Runs a member.

    Args:
        machine: The member.
        new_codec: Returns the codec of a new connection to the coordinator.
        reader: The reader of the partitions.
        coordinator: The address of the coordinator.
        metadata: The topics of the cluster.
        metadata_refresh_ms: How often the member looks for other partition counts.
        assign_ms: How long the member waits before it assigns, for tests of slow assignors.
    """

    machine: DesignMember

    def __init__(
        self,
        machine: DesignMember,
        new_codec: Callable[[], Codec],
        reader: PartitionReader,
        *,
        coordinator: Address,
        metadata: TopicMetadataSource,
        metadata_refresh_ms: int,
        assign_ms: int = 0,
    ) -> None:
        super().__init__(machine, new_codec, reader)
        self._address = coordinator
        self._metadata = metadata
        self._metadata_refresh_ms = metadata_refresh_ms
        self._assign_ms = assign_ms

    @property
    def is_closed(self) -> bool:
        return self.machine.state is DesignMemberState.STOPPED

    def start(self) -> None:
        super().start()
        self._spawn(self._refresh_metadata())

    async def find_coordinator(self, action: Connect) -> Address:
        return self._address

    async def fetch_metadata(self, *, is_from_coordinator: bool) -> dict[str, int]:
        while True:
            try:
                return await self._metadata.fetch(is_from_coordinator=is_from_coordinator)
            except ClientError as error:
                log.warning("cannot fetch the topics: %s", error)
                await asyncio.sleep(_RETRY_S)

    async def _refresh_metadata(self) -> None:
        while True:
            await asyncio.sleep(self._metadata_refresh_ms / 1000)
            is_from_coordinator = self.machine.fetches_from_coordinator
            topics = await self.fetch_metadata(is_from_coordinator=is_from_coordinator)
            self.handle(PartitionCountsChanged(at_ms=0, topics=topics))

    def perform(self, action: Action) -> None:
        assert isinstance(action, ComputeShares), f"unexpected action {action}"
        self._spawn(self._compute_shares(action))

    async def _compute_shares(self, action: ComputeShares) -> None:
        """Run the assignor in a thread: it may take long."""
        await asyncio.sleep(self._assign_ms / 1000)
        try:
            shares = await asyncio.to_thread(
                assign_partitions, action.assignor, action.members, action.topics
            )
        except Exception:  # a bug in the assignor, which the member reports to its group
            log.exception("the assignor failed")
            self.handle(ShareComputationFailed(at_ms=0, number=action.number))
        else:
            self.handle(SharesComputed(at_ms=0, number=action.number, shares=shares))

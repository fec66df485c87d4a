"""The partitions of a query: all partitions of its topics, or those assigned to it in a group.

All code here runs on one event loop. A member heartbeats and rejoins by itself at any time. It
keeps the partitions that it must revoke until `PartitionSource.complete_revocation`, which the
query calls between two batches only.
"""

from __future__ import annotations

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from partage.bridge.consumer_protocol import PROTOCOL_TYPE, ConsumerProtocol
from partage.client.cluster import Cluster
from partage.client.consumer.group_assignment import GroupAssignment
from partage.client.consumer.group_protocol import settings_of_protocol
from partage.client.errors import BrokerResponseError, ClientError
from partage.client.group.errors import CommitFailedError, GroupError, MemberFailedError
from partage.client.group.offsets import IdentifiedOffsets, OffsetAndMetadata
from partage.member.outcome import ListenerCallback
from partage.member.settings import MemberSettings
from partage.model.topic_partition import TopicPartition
from partage.spark.group_options import GroupOptions
from partage.spark.options import (
    AssignStrategy,
    ConsumerStrategy,
    SubscribePatternStrategy,
    SubscribeStrategy,
)
from partage.spark.stream.planner import OwnershipId

log = logging.getLogger(__name__)

OwnedPartitions = Mapping[TopicPartition, OwnershipId]

_REFRESH_INTERVAL_S: Final = 1.0
_COMMIT_TIMEOUT_S: Final = 5.0
_LEAVE_TIMEOUT_S: Final = 3.0
#: Time without a coordinator after which the source logs a warning.
_WARN_AFTER_S: Final = 5.0


class GroupIdentity(NamedTuple):
    """The member that the query is in its group; "" and -1 without a group."""

    member_id: str
    generation: int


_NO_GROUP: Final = GroupIdentity("", -1)


class PartitionSource(ABC):
    """The partitions that the query owns, and the committed offsets of its group, if any."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    @abstractmethod
    async def start(self) -> None:
        """Start to acquire partitions. Do not wait for the first ones."""

    @abstractmethod
    async def readable(self) -> OwnedPartitions:
        """Return the owned partitions that may be read. Raise an error that must end the query."""

    async def committed_offsets(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Return the committed offsets of the group; partitions without one are missing."""
        return {}

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit offsets for the group. Return True if the group has them; never raise."""
        return True

    @property
    @abstractmethod
    def owned(self) -> OwnedPartitions:
        """The owned partitions, including those that must be revoked."""

    @property
    def pending_revocation(self) -> tuple[TopicPartition, ...]:
        """The partitions that `complete_revocation` releases."""
        return ()

    def complete_revocation(self) -> None:  # noqa: B027
        """Release the partitions that the group has revoked. Call it only between two batches."""

    @property
    def identity(self) -> GroupIdentity:
        """The current member and its generation."""
        return _NO_GROUP

    @property
    def has_joined(self) -> bool:
        """True if the first assignment has arrived, even if it is empty."""
        return True

    async def wait_for_change(self, timeout_s: float) -> None:
        """Wait until the owned partitions may have changed, for at most ``timeout_s`` seconds."""
        self._changed.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    @property
    def is_stable(self) -> bool:
        """True if no assignment or revocation is known to be in progress."""
        return True

    @property
    def has_coordinator(self) -> bool:
        """False while the member has no connection to its coordinator, or its session expired."""
        return True

    async def stop(self, *, leaves: bool) -> None:  # noqa: B027
        """Release all partitions. If ``leaves``, also leave the group."""


class CoordinatorUnavailableError(ClientError):
    """The member had no coordinator for too long."""


class AssignmentDeadline:
    """The deadline of a wait for partitions.

    Args:
        source: The partitions.
        timeout_s: The longest wait.
        outage_max_s: If set, time without a coordinator does not count as waiting, and
            `remaining_s` raises an error after this time without one.
    """

    def __init__(
        self, source: PartitionSource, timeout_s: float, outage_max_s: float | None
    ) -> None:
        self._source = source
        self._timeout_s = timeout_s
        self._outage_max_s = outage_max_s
        self._loop = asyncio.get_running_loop()
        self._deadline_s = self._loop.time() + timeout_s
        self._outage_began_s: float | None = None

    def remaining_s(self) -> float:
        """Return the remaining time in seconds, at most 0 after the deadline.

        Raises:
            CoordinatorUnavailableError: if the coordinator was unavailable for too long.
        """
        now_s = self._loop.time()
        if self._outage_max_s is not None and not self._source.has_coordinator:
            if self._outage_began_s is None:
                self._outage_began_s = now_s
            if now_s - self._outage_began_s >= self._outage_max_s:
                raise CoordinatorUnavailableError(
                    "the coordinator of the query's group was unavailable for "
                    f"{self._outage_max_s:g} s (see kafka.default.api.timeout.ms); check the "
                    "brokers and start the query again, it continues from its checkpoint"
                )
            self._deadline_s = now_s + self._timeout_s
        else:
            self._outage_began_s = None
        return self._deadline_s - now_s


class AllPartitions(PartitionSource):
    """All partitions that the options select, without a group; it polls for new partitions."""

    def __init__(self, look: Callable[[], Awaitable[Iterable[TopicPartition]]]) -> None:
        super().__init__()
        self._list_partitions = look
        self._partitions: OwnedPartitions = {}
        self._refreshed_s: float | None = None

    async def start(self) -> None:
        await self.readable()

    @property
    def owned(self) -> OwnedPartitions:
        return self._partitions

    async def readable(self) -> OwnedPartitions:
        now_s = asyncio.get_running_loop().time()
        if self._refreshed_s is None or now_s - self._refreshed_s >= _REFRESH_INTERVAL_S:
            self._partitions = dict.fromkeys(await self._list_partitions(), 0)
            self._refreshed_s = now_s
        return self._partitions


class GroupPartitions(PartitionSource):
    """The partitions assigned to a group member. The `GroupAssignment` runs the member.

    With ``assign``, the group only stores the committed offsets: the query does not join it and
    owns all its partitions.
    """

    def __init__(self, cluster: Cluster, wanted: ConsumerStrategy, group: GroupOptions) -> None:
        super().__init__()
        assert group.group_id is not None, "GroupPartitions needs a group id"
        self._group_id = group.group_id
        self._strategy = wanted
        self._owned: dict[TopicPartition, OwnershipId] = {}
        self._last_ownership_id = 0
        self._loop = asyncio.get_running_loop()
        self._has_left = False
        self._last_warning = ""
        self._outage_began_s: float | None = None
        self._has_logged_outage = False
        settings = MemberSettings(
            group_id=self._group_id,
            protocol_type=PROTOCOL_TYPE,
            instance_id=group.instance_id,
            session_timeout_ms=group.session_timeout_ms,
            heartbeat_interval_ms=group.heartbeat_interval_ms,
            rebalance_timeout_ms=group.rebalance_timeout_ms,
            # Spark decides when to ask for a batch, so only the liveness of the process counts
            max_poll_interval_ms=None,
            request_timeout_ms=cluster.options.request_timeout_ms,
            retry_backoff_ms=cluster.options.retries.backoff_ms,
            retry_backoff_max_ms=cluster.options.retries.backoff_max_ms,
        )
        settings, preferred = settings_of_protocol(
            group.protocol, settings, rack_id=group.rack, server_assignor=group.remote_assignor
        )
        embedding = ConsumerProtocol(group.assignors, group.rack)
        self._membership = GroupAssignment(cluster, self, settings, embedding, preferred)

    async def start(self) -> None:
        match self._strategy:
            case AssignStrategy(partitions=partitions):
                self.add_partitions(partitions)
            case SubscribeStrategy(topics=topics):
                await self._membership.subscribe(frozenset(topics), None)
            case SubscribePatternStrategy(pattern=pattern):
                await self._membership.subscribe(frozenset(), re.compile(pattern))

    @property
    def owned(self) -> OwnedPartitions:
        return self._owned

    async def readable(self) -> OwnedPartitions:
        self._raise_failure()
        self._log_outage()
        return {p: t for p, t in self._owned.items() if self._membership.may_deliver(p)}

    def _raise_failure(self) -> None:
        """Raise a final error of the member; log any other error.

        `QueryTopics` decides about errors of topics.
        """
        if isinstance(self._strategy, AssignStrategy):
            return
        try:
            self._membership.on_poll()
        except MemberFailedError:
            raise
        except (GroupError, BrokerResponseError) as error:
            log.warning("group membership failed: group=%s error=%s", self._group_id, error)

    def _log_outage(self) -> None:
        """Log the begin and the end of a longer time without a coordinator."""
        now_s = self._loop.time()
        if self.has_coordinator:
            if self._has_logged_outage and self._outage_began_s is not None:
                log.warning(
                    "coordinator was found again: group=%s outage_s=%.0f",
                    self._group_id,
                    now_s - self._outage_began_s,
                )
            self._outage_began_s, self._has_logged_outage = None, False
        elif self._outage_began_s is None:
            self._outage_began_s = now_s
        elif now_s - self._outage_began_s >= _WARN_AFTER_S and not self._has_logged_outage:
            self._has_logged_outage = True
            log.warning(
                "no coordinator was found: group=%s after_s=%g", self._group_id, _WARN_AFTER_S
            )

    async def committed_offsets(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        found = await self._membership.committed_offsets(partitions) if partitions else {}
        return {partition: at.offset for partition, at in found.items()}

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        # Commit as this generation only: after a rejoin, the member may not own these partitions.
        identity = self._membership.identity
        if self._has_left or identity is None or not self.has_coordinator:
            return False
        try:
            async with asyncio.timeout(_COMMIT_TIMEOUT_S):
                at = {p: OffsetAndMetadata(offset) for p, offset in offsets.items()}
                await self._membership.commit(IdentifiedOffsets(at), only_as=identity)
        # usually a rebalance; the next call commits these offsets
        except CommitFailedError as error:
            log.info("commit was rejected: group=%s error=%s", self._group_id, error)
        except (ClientError, TimeoutError) as error:
            self._warn_once(
                f"commit failed and will be retried: group={self._group_id} error={error!r}"
            )
        else:
            self._last_warning = ""
            return True
        return False

    def _warn_once(self, message: str) -> None:
        """Log a warning, unless it equals the previous one."""
        if message != self._last_warning:
            log.warning("%s", message)
            self._last_warning = message

    @property
    def pending_revocation(self) -> tuple[TopicPartition, ...]:
        due = self._membership.due_callback
        if due is None or due.callback is not ListenerCallback.REVOKED:
            return ()
        return tuple(TopicPartition(*partition) for partition in due.partitions)

    def complete_revocation(self) -> None:
        due = self._membership.due_callback
        if due is not None and due.callback is ListenerCallback.REVOKED:
            self._membership.callback_done(due)

    @property
    def identity(self) -> GroupIdentity:
        identity = self._membership.identity
        if identity is None:
            return _NO_GROUP
        return GroupIdentity(identity.member_id, identity.generation)

    @property
    def has_joined(self) -> bool:
        return self._membership.is_reconciled

    @property
    def is_stable(self) -> bool:
        return (
            self._membership.is_reconciled
            and self._membership.due_callback is None
            and all(map(self._membership.may_deliver, self._owned))
        )

    @property
    def has_coordinator(self) -> bool:
        return isinstance(self._strategy, AssignStrategy) or self._membership.has_coordinator

    async def stop(self, *, leaves: bool) -> None:
        self._has_left = True
        if leaves and not isinstance(self._strategy, AssignStrategy):
            await self._membership.leave("the query has ended")
            deadline_s = self._loop.time() + _LEAVE_TIMEOUT_S
            while not self._membership.has_left and self._loop.time() < deadline_s:
                self.complete_revocation()
                await self.wait_for_change(0.1)
        await self._membership.close(0)

    # Interface `AssignmentTarget`, called by the group member.

    def add_partitions(
        self,
        partitions: Iterable[TopicPartition],
        topic_ids: Mapping[TopicPartition, bytes] = MappingProxyType({}),
    ) -> None:
        """Own these partitions, each with a new ownership id."""
        for partition in partitions:
            self._last_ownership_id += 1
            self._owned[partition] = self._last_ownership_id

    def remove_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop owning these partitions."""
        for partition in partitions:
            self._owned.pop(partition, None)

    def assignment(self) -> list[TopicPartition]:
        """Return the owned partitions, sorted."""
        return sorted(self._owned)

    def is_empty(self) -> bool:
        """True if no partition is owned."""
        return not self._owned

    def positions(self) -> Mapping[TopicPartition, int]:
        """Return no positions: the member must not commit by itself."""
        return {}

    def is_topic_replaced(self, partition: TopicPartition, topic_id: bytes) -> bool:
        """Return False: a query notices a replaced topic when it plans the next batch."""
        return False

    def wake(self) -> None:
        """Complete an assignment or a loss; only a revocation waits for the end of a batch."""
        due = self._membership.due_callback
        if due is not None and due.callback is not ListenerCallback.REVOKED:
            self._membership.callback_done(due)
        self._changed.set()

"""A consumer's assignment by a group: the half of a member that runs on the event loop.

The member's state machine runs on the client's event loop (`Driver`); the user's code runs in
another thread. After every event, the deliverable partitions and the due listener callback are
published to `GroupPolls`, the half of the user's thread.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from partage.bridge.consumer_protocol import ConsumerProtocol
from partage.client.cluster import Cluster
from partage.client.consumer.assignment_source import AssignmentSource, AssignmentTarget
from partage.client.consumer.group_polls import DeliverySnapshot, GroupPolls
from partage.client.consumer.metadata_watcher import MetadataWatcher
from partage.client.consumer.protocol_handler import ConsumerProtocolHandler, ProtocolAction
from partage.client.errors import ClientError
from partage.client.group.coordinator_client import CoordinatorClient
from partage.client.group.driver import Driver, now_ms
from partage.client.group.errors import (
    AssignmentFailedError,
    CommitFailedError,
    MaxPollExceededError,
    MemberFailedError,
    fenced_commit_reason,
    not_in_generation_reason,
)
from partage.client.group.offset_committer import OffsetCommitter
from partage.client.group.offsets import NO_MEMBER, Offsets, fetch_committed
from partage.member.events import (
    CommitRejected,
    DrainRequested,
    Event,
    LeaveRequested,
    MetadataChanged,
    SubscriptionChanged,
)
from partage.member.member import CommitIdentity
from partage.member.outcome import (
    Action,
    CallListener,
    ComputeAssignment,
    DecodeAssignment,
    EncodeSubscription,
    LeftGroup,
    ListenerCallback,
    Problem,
    ReportFatalError,
    ReportProblem,
    WatchTopics,
)
from partage.member.ownership import Ownership
from partage.member.settings import MemberSettings
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition

log = logging.getLogger(__name__)

_COMMIT_POLL_S: Final = 0.02
_SNAPSHOT_INTERVAL_S: Final = 1.0


class GroupAssignment(AssignmentSource):
    """The assignment of one group member.

    Methods run on the event loop, except those of polls, which `GroupPolls` implements.
    """

    def __init__(
        self,
        cluster: Cluster,
        target: AssignmentTarget,
        settings: MemberSettings,
        embedding: ConsumerProtocol,
    ) -> None:
        self.attach(target)
        self.settings = settings
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        protocol = embedding.rebalance_protocol
        self._ownership = Ownership(settings, protocol)
        self._driver = Driver(
            self._ownership,
            settings,
            CoordinatorClient(cluster, settings.group_id),
            self._perform,
            self._on_event_handled,
            self._on_lookup_error,
        )
        #: For offset requests, on a separate connection: requests behind a parked JoinGroup wait.
        self._coordinator = CoordinatorClient(cluster, settings.group_id)
        retries = cluster.options.retries
        self._commits = OffsetCommitter(self._coordinator, settings.group_id, retries, self)
        self._polls = GroupPolls(settings, self._loop, self._handle)
        self._owned: frozenset[tuple[str, int]] = frozenset()
        #: For each owned partition, a number that is new each time the partition is assigned.
        self.ownership_epochs: dict[tuple[str, int], int] = {}
        self._last_ownership_epoch = 0
        self._left = asyncio.Event()
        self._left.set()
        self._is_subscribing = False  # True until the pattern was matched for the first time
        self._watcher = MetadataWatcher(cluster, self._topics_changed, self._partitions_changed)
        self._protocol = ConsumerProtocolHandler(
            embedding, cluster, self._coordinator, settings.group_id, self._watcher
        )
        self._next_due: CallListener | None = None
        self._driver.start_task(self._refresh_snapshot())

    # User requests.

    async def subscribe(self, topics: frozenset[str], pattern: re.Pattern[str] | None) -> None:
        """Subscribe to topics, or to those that match a pattern."""
        self._polls.failure = None
        self._polls.is_member = True
        self._polls.is_draining = False
        self._left.clear()
        self._watcher.subscribe(topics, pattern)
        self._is_subscribing = pattern is not None
        if pattern is None:
            self._driver.handle(SubscriptionChanged(at_ms=now_ms(), topics=topics))
        self._watcher.start()

    async def leave(self, reason: str) -> None:
        """Begin to leave the group; `has_left` tells when the member is out."""
        self._watcher.stop()
        self._is_subscribing = False
        self._driver.handle(LeaveRequested(at_ms=now_ms(), reason=reason))

    def drain(self, reason: str) -> None:
        """Begin to hand over and leave.

        It never blocks, so any thread or signal handler may call it.
        """
        self._polls.is_draining, self._is_subscribing = True, False
        self._polls.handle_soon(DrainRequested(at_ms=now_ms(), reason=reason))

    @property
    def topics(self) -> frozenset[str]:
        """The subscribed topics; for a pattern, those that match."""
        return self._ownership.topics

    @property
    def has_left(self) -> bool:
        """True if the member is not in the group."""
        return self._left.is_set()

    @property
    def has_coordinator(self) -> bool:
        """True if the member is connected to its coordinator and its session has not expired."""
        link = self._ownership.membership.link
        return link.coordinator_serial is not None and not link.is_session_expired

    async def close(self, timeout_ms: float) -> None:
        """Stop the member at once, even during a leave."""
        self._watcher.stop()
        self._driver.close()
        self._coordinator.disconnect()

    # Polls. In the user's thread.

    def on_poll(self) -> None:
        """Note that the user polls; raise pending errors."""
        self._polls.on_poll(has_partitions=not self.target.is_empty())

    def on_poll_return(self) -> None:
        """Note that the poll returns; ``max_poll_interval_ms`` counts from now."""
        self._polls.on_poll_return()

    def on_next_record(self) -> None:
        """Note that a record loop delivers its next record, which counts as a poll."""
        self._polls.on_next_record()

    @property
    def due_callback(self) -> CallListener | None:
        """The listener callback to run now, or None. A newer one may replace it at any time."""
        return self._polls.due_callback

    def callback_done(self, call: CallListener) -> None:
        """Note that a listener callback has run, with or without an error."""
        self._polls.callback_done(call)

    def may_deliver(self, partition: TopicPartition) -> bool:
        """True if records of the partition may be delivered, as far as is known locally."""
        return self._polls.may_deliver(partition)

    # Offsets.

    async def committed(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the group's committed offsets."""
        found = await fetch_committed(self._coordinator, self.settings.group_id, partitions)
        return {partition: each.offset for partition, each in found.items()}

    async def committed_offsets(self, partitions: Sequence[TopicPartition]) -> Offsets:
        """Return the group's committed offsets with metadata; retry transient errors."""

        async def attempt() -> Offsets:
            return await fetch_committed(self._coordinator, self.settings.group_id, partitions)

        return await self._cluster.with_retries(attempt)

    @property
    def identity(self) -> CommitIdentity | None:
        """The identity for a commit; None while the coordinator would refuse commits."""
        identity = self._ownership.commit_identity
        if identity is None and not self._polls.is_member:
            return NO_MEMBER  # A consumer with manual assignment, or one that has left the group.
        return identity

    async def commit(self, offsets: Offsets, *, only_as: CommitIdentity | None = None) -> None:
        """Commit offsets, in the order of the calls; see `OffsetCommitter.commit`."""
        await self._commits.commit(offsets, only_as=only_as)

    async def auto_commit(
        self, offsets: Offsets, *, after: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Commit offsets in the background; errors are logged, because a later commit follows."""
        try:
            await self._commits.commit(offsets, after=after)
        except CommitFailedError as error:  # usually a rebalance
            log.info("auto commit failed: group=%s error=%s", self.settings.group_id, error)
        except ClientError as error:
            log.warning("auto commit failed: group=%s error=%s", self.settings.group_id, error)

    async def auto_commit_before_leave(self, offsets: Offsets) -> None:
        """Make the last auto commit before a leave; no later commit can replace it.

        A cooperative member keeps delivering records while it rejoins, but commits are refused
        then. So wait for a rebalance in progress to end, for two heartbeat intervals at most: all
        members learn of a rebalance by their heartbeats.
        """
        member = self._ownership.membership
        deadline_ms = now_ms() + 2 * self.settings.heartbeat_interval_ms

        async def can_be() -> None:
            while offsets and member.is_in_generation and member.commit_identity is None:
                if now_ms() >= deadline_ms:
                    break
                await asyncio.sleep(_COMMIT_POLL_S)

        await self.auto_commit(offsets, after=can_be)

    def on_commit_fenced(self, identity: CommitIdentity, code: ErrorCode) -> str:
        """Handle a commit that the coordinator refused as fenced; return the reason as text."""
        why = fenced_commit_reason(code, self.settings, now_ms() - self._polls.poll_ended_ms)
        generation, member_id = identity.generation, identity.member_id
        self._driver.handle(
            CommitRejected(at_ms=now_ms(), generation=generation, member_id=member_id, error=code)
        )
        return why

    def commit_refusal_reason(self) -> str:
        """Return the reason why no commit is possible now."""
        if self._polls.failure is not None:
            return str(self._polls.failure)
        return not_in_generation_reason(self.settings, self._polls.ms_since_poll)

    # Actions of the member core.

    def _perform(self, action: Action) -> None:
        match action:
            case EncodeSubscription() | ComputeAssignment() | DecodeAssignment() | WatchTopics():
                self._driver.start_task(self._handle_protocol_action(action))
            case CallListener():
                # Published after the new partitions are added, so that the listener can seek.
                self._next_due = action
            case ReportProblem(problem=problem, reason=reason):
                kind = (
                    MaxPollExceededError
                    if problem is Problem.POLL_TIMEOUT
                    else AssignmentFailedError
                )
                self._raise(kind(reason))
            case ReportFatalError(error=error, reason=reason):
                self._polls.failure = MemberFailedError(self.settings.group_id, error, reason)
                self.target.wake()
            case LeftGroup():
                self._on_left()

    def _on_left(self) -> None:
        """Finish a leave, unless the user has subscribed again."""
        if self._ownership.membership.is_membership_wanted or self._is_subscribing:
            return
        self._publish_owned()  # First remove all partitions, before the user may assign some.
        self._watcher.stop()
        self._polls.due = None  # At most a callback without partitions is dropped.
        self._polls.is_member = False
        self._left.set()

    def _on_lookup_error(self, error: ClientError | None) -> None:
        self._polls.lookup_error = error
        self.target.wake()

    def _raise(self, error: Exception) -> None:
        self._polls.errors.append(error)
        self.target.wake()

    async def _handle_protocol_action(self, action: ProtocolAction) -> None:
        event = await self._protocol.handle(action, self._ownership)
        if event is not None:
            self._driver.handle(event)

    def _handle(self, event: Event) -> None:
        self._driver.handle(event)

    # Changes.

    def _topics_changed(self, topics: frozenset[str]) -> None:
        by_itself, self._is_subscribing = not self._is_subscribing, False
        self._driver.handle(
            SubscriptionChanged(at_ms=now_ms(), topics=topics, is_by_pattern=by_itself)
        )

    def _partitions_changed(self, reason: str) -> None:
        self._driver.handle(MetadataChanged(at_ms=now_ms(), reason=reason))

    def _on_event_handled(self) -> None:
        """Publish the deliverable partitions and the owned partitions after each event."""
        link = self._ownership.membership.link
        self._polls.snapshot = DeliverySnapshot(
            self._ownership.deliverable, now_ms(), link.session_deadline_ms
        )
        self._publish_owned()
        self._publish_due()
        self.target.wake()

    def _publish_owned(self) -> None:
        before, self._owned = self._owned, self._ownership.owned
        if lost := before - self._owned:
            for each in lost:
                del self.ownership_epochs[each]
            self.target.remove_partitions([TopicPartition(*each) for each in sorted(lost)])
        if new := self._owned - before:
            self._last_ownership_epoch += 1
            self.ownership_epochs |= dict.fromkeys(new, self._last_ownership_epoch)
            self.target.add_partitions([TopicPartition(*each) for each in sorted(new)])

    def _publish_due(self) -> None:
        if self._next_due is not None:
            self._polls.due, self._next_due = self._next_due, None
        due = self._polls.due
        if (
            due is not None
            and due.callback is ListenerCallback.REVOKED
            and self._ownership.has_lost_partitions
        ):
            # The session ended before the user polled: too late to revoke, the partitions are lost.
            self._polls.due = msgspec.structs.replace(due, callback=ListenerCallback.LOST)

    async def _refresh_snapshot(self) -> None:
        """Refresh the snapshot regularly.

        `may_deliver` uses the age of the snapshot to detect a stalled event loop.
        """
        while True:
            await asyncio.sleep(_SNAPSHOT_INTERVAL_S)
            self._on_event_handled()

"""A consumer's assignment by a group, and its due listener callbacks.

The member core runs on the client's event loop (`Driver`); the user's code runs in another thread.
After every event, an immutable `DeliverySnapshot` is published for the user's thread. Listener
callbacks are published as `due_callback` and run when the user polls.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from partage.bridge.consumer_protocol import ConsumerProtocol
from partage.client.cluster import Cluster
from partage.client.consumer.embedded import Asked, EmbeddedProtocol
from partage.client.consumer.errors import NothingAssigned
from partage.client.consumer.owners import Holdings, Owner
from partage.client.consumer.watching import Watching
from partage.client.errors import ClientError
from partage.client.group.committing import Commits
from partage.client.group.coordinator import Coordinator
from partage.client.group.driver import Driver, now_ms
from partage.client.group.errors import (
    AssignmentFailed,
    CommitFailed,
    MemberFailed,
    TooSlow,
    why_fenced,
    why_not,
)
from partage.client.group.offsets import NOBODY, Offsets, committed
from partage.client.metadata import TopicPartition
from partage.member.events import (
    CallbackCompleted,
    CommitRejected,
    DrainRequested,
    Event,
    LeaveRequested,
    MetadataChanged,
    Polled,
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
from partage.member.ownership import Ownership, RebalanceProtocol
from partage.member.settings import MemberSettings
from partage.model.errors import ErrorCode

log = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 0.02
_LOOKED_EVERY_S: Final = 1.0
_TOLD_EVERY_MS: Final = 500


class Standing(msgspec.Struct, frozen=True):
    """The partitions that may be delivered, as of ``taken_ms``; it is void when it is too old."""

    deliverable: frozenset[tuple[str, int]]
    seen_ms: int
    session_ends_ms: int | None


class GroupOwner(Owner):
    """The assignment of one group member. Methods run on the event loop unless stated otherwise."""

    def __init__(
        self,
        cluster: Cluster,
        holdings: Holdings,
        settings: MemberSettings,
        embedding: ConsumerProtocol,
    ) -> None:
        self.attach(holdings)
        self.settings = settings
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        protocol = RebalanceProtocol(embedding.rebalance_protocol.name.lower())
        self._ownership = Ownership(settings, protocol)
        self._driver = Driver(
            self._ownership,
            settings,
            Coordinator(cluster, settings.group_id),
            self._perform,
            self._settled,
            self._troubled,
        )
        #: For offset requests. It has a separate connection: requests behind a parked JoinGroup
        #: wait.
        self._coordinator = Coordinator(cluster, settings.group_id)
        retries = cluster.options.retries
        self._commits = Commits(self._coordinator, settings.group_id, retries, self)
        self._standing = Standing(frozenset(), 0, None)
        self._held: frozenset[tuple[str, int]] = frozenset()
        #: For each owned partition, a number that is new each time the partition is assigned.
        self.tenures: dict[tuple[str, int], int] = {}
        self._given = 0
        self._errors: deque[Exception] = deque()
        self._failure: MemberFailed | None = None
        self._trouble: ClientError | None = None  # raised once, by the next poll
        self._left = asyncio.Event()
        self._left.set()
        self._poll_ended_ms = self._told_ms = now_ms()
        self._is_polling = False
        self._is_member = False
        self._is_subscribing = False  # True until the pattern was matched for the first time
        self.is_draining = False
        self._watching = Watching(cluster, self._topics_changed, self._partitions_changed)
        self._protocol = EmbeddedProtocol(
            embedding, cluster, self._coordinator, settings.group_id, self._watching
        )
        self._due: CallListener | None = None  # written on the event loop only
        self._next_due: CallListener | None = None
        self._called = -1  # serial of the last completed callback; used by the user's thread only
        self._driver.begin(self._look_at_clock())

    # User requests. On the event loop.

    async def subscribe(self, topics: frozenset[str], pattern: re.Pattern[str] | None) -> None:
        """Subscribe to topics, or to those that match a pattern."""
        self._failure = None
        self._is_member = True
        self.is_draining = False
        self._left.clear()
        self._watching.want(topics, pattern)
        self._is_subscribing = pattern is not None
        if pattern is None:
            self._driver.handle(SubscriptionChanged(at_ms=now_ms(), topics=topics))
        self._watching.start()

    async def leave(self, reason: str) -> None:
        """Begin to leave the group; `has_left` tells when the member is out."""
        self._watching.stop()
        self._is_subscribing = False
        self._driver.handle(LeaveRequested(at_ms=now_ms(), reason=reason))

    def drain(self, reason: str) -> None:
        """Begin to hand over and leave. It never blocks, so any thread or signal handler may call
        it.
        """
        self.is_draining, self._is_subscribing = True, False
        self._soon(DrainRequested(at_ms=now_ms(), reason=reason))

    @property
    def topics(self) -> frozenset[str]:
        """The subscribed topics; for a pattern, those that match."""
        return self._ownership.topics

    @property
    def is_out(self) -> bool:
        """True if the member is not in the group."""
        return self._left.is_set()

    async def close(self, timeout_ms: float) -> None:
        """Stop the member at once, even during a leave."""
        self._watching.stop()
        self._driver.close()
        self._coordinator.disconnect()

    # Polls. In the user's thread.

    def polled(self) -> None:
        """Note that the user polls; raise pending errors."""
        if not self._is_polling:
            self._is_polling = True
            self._tell(is_waiting=True)
        if self._failure is not None:
            raise self._failure
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble
        if self._errors:
            raise self._errors.popleft()
        if not self._is_member and not self.is_draining and self.holdings.is_idle():
            raise NothingAssigned

    def returned(self) -> None:
        """Note that the poll returns; ``max_poll_interval_ms`` counts from now."""
        self._poll_ended_ms = now_ms()
        if self._is_polling:
            self._is_polling = False
            self._tell(is_waiting=False)

    def touched(self) -> None:
        """Note that a record loop delivers its next record, which counts as a poll.

        To limit the load on the event loop, only some of these polls are passed on to the core.
        """
        if self._is_polling:
            self.returned()
            return
        self._poll_ended_ms = now_ms()
        if self._poll_ended_ms - self._told_ms > _TOLD_EVERY_MS:
            self._tell(is_waiting=True)
            self._tell(is_waiting=False)

    def _tell(self, *, is_waiting: bool) -> None:
        self._told_ms = now_ms()
        self._soon(Polled(at_ms=self._told_ms, is_in_poll=is_waiting))

    def _soon(self, event: Event) -> None:
        with suppress(RuntimeError):  # the event loop was closed
            self._loop.call_soon_threadsafe(self._driver.handle, event)

    @property
    def due(self) -> CallListener | None:
        """The listener callback to run now, or None. A newer one may replace it at any time."""
        due = self._due
        return None if due is None or due.serial == self._called else due

    def called(self, call: CallListener) -> None:
        """Note that a listener callback has run, with or without an error."""
        self._called = call.serial
        self._soon(CallbackCompleted(at_ms=now_ms(), serial=call.serial))

    def may_deliver(self, partition: TopicPartition) -> bool:
        """True if records of the partition may be delivered, as far as is known locally."""
        if not self._is_member:
            return True
        standing = self._standing
        if tuple(partition) not in standing.deliverable:
            return False
        at_ms, settings = now_ms(), self.settings
        if at_ms - standing.seen_ms >= settings.session_timeout_ms:
            return False  # The event loop did not run for a session; it must check first.
        if standing.session_ends_ms is not None and at_ms >= standing.session_ends_ms:
            return False
        longest_ms = settings.max_poll_interval_ms
        away_ms = 0 if self._is_polling else at_ms - self._poll_ended_ms
        return longest_ms is None or away_ms < longest_ms

    # Offsets. On the event loop.

    async def committed(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the group's committed offsets."""
        found = await committed(self._coordinator, self.settings.group_id, partitions)
        return {partition: each.offset for partition, each in found.items()}

    async def committed_offsets(self, partitions: Sequence[TopicPartition]) -> Offsets:
        """Return the group's committed offsets with metadata; retry transient errors."""

        async def attempt() -> Offsets:
            return await committed(self._coordinator, self.settings.group_id, partitions)

        return await self._cluster.with_retries(attempt)

    @property
    def identity(self) -> CommitIdentity | None:
        """The identity for a commit; None while the coordinator would refuse commits."""
        identity = self._ownership.commit_identity
        if identity is None and not self._is_member:
            return NOBODY  # A consumer with manual assignment, or one that has left the group.
        return identity

    async def commit(self, offsets: Offsets, *, only_as: CommitIdentity | None = None) -> None:
        """Commit offsets, in the order of the calls; see `OffsetCommitter.commit`."""
        await self._commits.commit(offsets, only_as=only_as)

    async def commit_quietly(
        self, offsets: Offsets, *, after: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """The same by itself: what goes wrong is logged, and later commits make up for it."""
        try:
            await self._commits.commit(offsets, after=after)
        except CommitFailed as error:  # usually a rebalance
            log.info("auto commit failed: group=%s error=%s", self.settings.group_id, error)
        except ClientError as error:
            log.warning("auto commit failed: group=%s error=%s", self.settings.group_id, error)

    async def commit_last(self, offsets: Offsets) -> None:
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
                await asyncio.sleep(_LOOK_EVERY_S)

        await self.commit_quietly(offsets, after=can_be)

    def fenced(self, identity: CommitIdentity, code: ErrorCode) -> str:
        """Handle a commit that the coordinator refused as fenced; return the reason as text."""
        why = why_fenced(code, self.settings, now_ms() - self._poll_ended_ms)
        generation, member_id = identity.generation, identity.member_id
        self._driver.handle(
            CommitRejected(at_ms=now_ms(), generation=generation, member_id=member_id, error=code)
        )
        return why

    def why_not(self) -> str:
        """Return the reason why no commit is possible now."""
        if self._failure is not None:
            return str(self._failure)
        away_ms = 0 if self._is_polling else now_ms() - self._poll_ended_ms
        return why_not(self.settings, away_ms)

    # Actions of the member core.

    def _perform(self, action: Action) -> None:
        match action:
            case EncodeSubscription() | ComputeAssignment() | DecodeAssignment() | WatchTopics():
                self._driver.begin(self._answer(action))
            case CallListener():
                # Published after the new partitions are added, so that the listener can seek in
                # them.
                self._next_due = action
            case ReportProblem(problem=problem, reason=reason):
                kind = TooSlow if problem is Problem.POLL_TIMEOUT else AssignmentFailed
                self._raise(kind(reason))
            case ReportFatalError(error=error, reason=reason):
                self._failure = MemberFailed(self.settings.group_id, error, reason)
                self.holdings.wake()
            case LeftGroup():
                self._out()

    def _out(self) -> None:
        """Finish a leave, unless the user has subscribed again."""
        if self._ownership.membership.is_membership_wanted or self._is_subscribing:
            return
        self._hold()  # First remove all partitions, before the user may assign some.
        self._watching.stop()
        self._due = None  # At most a callback without partitions is dropped.
        self._is_member = False
        self._left.set()

    def _troubled(self, error: ClientError | None) -> None:
        self._trouble = error
        self.holdings.wake()

    def _raise(self, error: Exception) -> None:
        self._errors.append(error)
        self.holdings.wake()

    async def _answer(self, action: Asked) -> None:
        event = await self._protocol.answer(action, self._ownership)
        if event is not None:
            self._driver.handle(event)

    # Changes.

    def _topics_changed(self, topics: frozenset[str]) -> None:
        by_itself, self._is_subscribing = not self._is_subscribing, False
        self._driver.handle(
            SubscriptionChanged(at_ms=now_ms(), topics=topics, is_by_pattern=by_itself)
        )

    def _partitions_changed(self, reason: str) -> None:
        self._driver.handle(MetadataChanged(at_ms=now_ms(), reason=reason))

    def _settled(self) -> None:
        """Publish the deliverable partitions and the owned partitions after each event."""
        link = self._ownership.membership.link
        self._standing = Standing(self._ownership.deliverable, now_ms(), link.session_deadline_ms)
        self._hold()
        self._publish_due()
        self.holdings.wake()

    def _hold(self) -> None:
        before, self._held = self._held, self._ownership.owned
        if lost := before - self._held:
            for each in lost:
                del self.tenures[each]
            self.holdings.disown([TopicPartition(*each) for each in sorted(lost)])
        if new := self._held - before:
            self._given += 1
            self.tenures |= dict.fromkeys(new, self._given)
            self.holdings.own([TopicPartition(*each) for each in sorted(new)])

    def _publish_due(self) -> None:
        if self._next_due is not None:
            self._due, self._next_due = self._next_due, None
        due = self._due
        if (
            due is not None
            and due.callback is ListenerCallback.REVOKED
            and self._ownership.has_lost_partitions
        ):
            # The session ended before the user polled: it is too late to revoke, so the partitions
            # are lost.
            self._due = msgspec.structs.replace(due, call=ListenerCallback.LOST)

    async def _look_at_clock(self) -> None:
        """Refresh the snapshot regularly; `may_deliver` uses its age to detect a stalled event
        loop.
        """
        while True:
            await asyncio.sleep(_LOOKED_EVERY_S)
            self._settled()

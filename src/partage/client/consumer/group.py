"""A consumer's place in a group: which partitions are its own, and what its listener is due.

The member's core runs on the client's loop (`Driver`); the user is somewhere else. What the user's
thread has to know is published after every event as one immutable `Standing`; what it has to do,
call the listener, is `due`, and done when it polls.
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
    """What may be delivered, as of ``seen_ms``; nothing is once that is too long ago."""

    deliverable: frozenset[tuple[str, int]]
    seen_ms: int
    session_ends_ms: int | None


class GroupOwner(Owner):
    """One member of a group. Made, and to be used where nothing else is said, on the loop."""

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
        #: For offsets, over a connection of its own: behind a JoinGroup they would have to wait.
        self._coordinator = Coordinator(cluster, settings.group_id)
        retries = cluster.options.retries
        self._commits = Commits(self._coordinator, settings.group_id, retries, self)
        self._standing = Standing(frozenset(), 0, None)
        self._held: frozenset[tuple[str, int]] = frozenset()
        #: What is held; each time that something is given it counts on.
        self.tenures: dict[tuple[str, int], int] = {}
        self._given = 0
        self._errors: deque[Exception] = deque()
        self._failure: MemberFailed | None = None
        self._trouble: ClientError | None = None  # the last one, to be raised once
        self._left = asyncio.Event()
        self._left.set()
        self._poll_ended_ms = self._told_ms = now_ms()
        self._is_polling = False
        self._is_member = False
        self._is_subscribing = False  # until the pattern was looked at once
        self.is_draining = False
        self._watching = Watching(cluster, self._topics_changed, self._partitions_changed)
        self._protocol = EmbeddedProtocol(
            embedding, cluster, self._coordinator, settings.group_id, self._watching
        )
        self._due: CallListener | None = None  # the loop's alone
        self._next_due: CallListener | None = None
        self._called = -1  # the serial of the last call that was made: the user's thread's alone
        self._driver.begin(self._look_at_clock())

    # What the user wants. On the loop.

    async def subscribe(self, topics: frozenset[str], pattern: re.Pattern[str] | None) -> None:
        """Consume these topics from now on, or those that match."""
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
        """Be in the group no longer; `is_out` says when it is over."""
        self._watching.stop()
        self._is_subscribing = False
        self._driver.handle(LeaveRequested(at_ms=now_ms(), reason=reason))

    def drain(self, reason: str) -> None:
        """Hand over and leave; from any thread, and in a signal's handler: it waits for nobody."""
        self.is_draining, self._is_subscribing = True, False
        self._soon(DrainRequested(at_ms=now_ms(), reason=reason))

    @property
    def topics(self) -> frozenset[str]:
        """What is subscribed to, of a pattern what matches."""
        return self._ownership.topics

    @property
    def is_out(self) -> bool:
        """Whether the member is out of the group."""
        return self._left.is_set()

    async def close(self, timeout_ms: float) -> None:
        """Stop, however far a leave has come."""
        self._watching.stop()
        self._driver.close()
        self._coordinator.disconnect()

    # The user polls. In the user's thread.

    def polled(self) -> None:
        """A sign of life; raises what the user has to know."""
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
        """The poll returns: from here on the user works, for no longer than the interval."""
        self._poll_ended_ms = now_ms()
        if self._is_polling:
            self._is_polling = False
            self._tell(is_waiting=False)

    def touched(self) -> None:
        """A loop hands out its next record, which is a poll too; told now and then."""
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
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._driver.handle, event)

    @property
    def due(self) -> CallListener | None:
        """The call that the listener is due; another one may overtake it at any moment."""
        due = self._due
        return None if due is None or due.serial == self._called else due

    def called(self, call: CallListener) -> None:
        """The listener was called, whatever came of it."""
        self._called = call.serial
        self._soon(CallbackCompleted(at_ms=now_ms(), serial=call.serial))

    def may_deliver(self, partition: TopicPartition) -> bool:
        """Whether the partition is ours, as far as can be known without asking anybody."""
        if not self._is_member:
            return True
        standing = self._standing
        if tuple(partition) not in standing.deliverable:
            return False
        at_ms, settings = now_ms(), self.settings
        if at_ms - standing.seen_ms >= settings.session_timeout_ms:
            return False  # the loop stood still: it has to look first
        if standing.session_ends_ms is not None and at_ms >= standing.session_ends_ms:
            return False
        longest_ms = settings.max_poll_interval_ms
        away_ms = 0 if self._is_polling else at_ms - self._poll_ended_ms
        return longest_ms is None or away_ms < longest_ms

    # Offsets. On the loop.

    async def committed(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Where the group has come to."""
        found = await committed(self._coordinator, self.settings.group_id, partitions)
        return {partition: each.offset for partition, each in found.items()}

    async def committed_offsets(self, partitions: Sequence[TopicPartition]) -> Offsets:
        """The same with the user's metadata; tried again while that may help."""

        async def attempt() -> Offsets:
            return await committed(self._coordinator, self.settings.group_id, partitions)

        return await self._cluster.with_retries(attempt)

    @property
    def identity(self) -> CommitIdentity | None:
        """In whose name a commit would be made now; None while none can be accepted."""
        identity = self._ownership.commit_identity
        if identity is None and not self._is_member:
            return NOBODY  # a consumer that assigns by itself, or has left
        return identity

    async def commit(self, offsets: Offsets, *, only_as: CommitIdentity | None = None) -> None:
        """Commit, in the order of the calls; see `Commits.commit`."""
        await self._commits.commit(offsets, only_as=only_as)

    async def commit_quietly(
        self, offsets: Offsets, *, after: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """The same by itself: what goes wrong is logged, and later commits make up for it."""
        try:
            await self._commits.commit(offsets, after=after)
        except CommitFailed as error:  # a rebalance, mostly
            log.info("auto commit failed: group=%s error=%s", self.settings.group_id, error)
        except ClientError as error:
            log.warning("auto commit failed: group=%s error=%s", self.settings.group_id, error)

    async def commit_last(self, offsets: Offsets) -> None:
        """The same before leaving, when no later commit makes up for it.

        A cooperative member reads on while it joins again, but nothing can be committed then. So
        a rebalance that is under way is waited for, as long as those take to join who hear of it
        by their heartbeats.
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
        """The coordinator refused a commit in this name; why, in words."""
        why = why_fenced(code, self.settings, now_ms() - self._poll_ended_ms)
        generation, member_id = identity.generation, identity.member_id
        self._driver.handle(
            CommitRejected(at_ms=now_ms(), generation=generation, member_id=member_id, error=code)
        )
        return why

    def why_not(self) -> str:
        """Why nothing can be committed now."""
        if self._failure is not None:
            return str(self._failure)
        away_ms = 0 if self._is_polling else now_ms() - self._poll_ended_ms
        return why_not(self.settings, away_ms)

    # What the core asks.

    def _perform(self, action: Action) -> None:
        match action:
            case EncodeSubscription() | ComputeAssignment() | DecodeAssignment() | WatchTopics():
                self._driver.begin(self._answer(action))
            case CallListener():
                self._next_due = action  # once what is assigned is held, so that it can be sought
            case ReportProblem(problem=problem, reason=reason):
                kind = TooSlow if problem is Problem.POLL_TIMEOUT else AssignmentFailed
                self._raise(kind(reason))
            case ReportFatalError(error=error, reason=reason):
                self._failure = MemberFailed(self.settings.group_id, error, reason)
                self.holdings.wake()
            case LeftGroup():
                self._out()

    def _out(self) -> None:
        """The member is out of the group, unless by now it was subscribed again."""
        if self._ownership.membership.is_membership_wanted or self._is_subscribing:
            return
        self._hold()  # nothing, before the user may read what no group gives
        self._watching.stop()
        self._due = None  # at most a call about nothing
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

    # What has changed.

    def _topics_changed(self, topics: frozenset[str]) -> None:
        by_itself, self._is_subscribing = not self._is_subscribing, False
        self._driver.handle(
            SubscriptionChanged(at_ms=now_ms(), topics=topics, is_by_pattern=by_itself)
        )

    def _partitions_changed(self, reason: str) -> None:
        self._driver.handle(MetadataChanged(at_ms=now_ms(), reason=reason))

    def _settled(self) -> None:
        """After each event: publish what may be delivered, and hold what is owned."""
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
            # Nobody has polled meanwhile, and by now it is too late to give anything up.
            self._due = msgspec.structs.replace(due, call=ListenerCallback.LOST)

    async def _look_at_clock(self) -> None:
        """Say now and then that the loop runs: `may_deliver` goes by it."""
        while True:
            await asyncio.sleep(_LOOKED_EVERY_S)
            self._settled()

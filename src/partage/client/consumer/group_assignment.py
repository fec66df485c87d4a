"""A consumer's assignment by a group: the half of a member that runs on the event loop.

The settings decide the protocol: `ConsumerMemberSettings` make a member with the consumer group
protocol (KIP-848), other settings a member with the classic one. With both, the first subscription
asks the cluster. If the coordinator refuses the protocol all the same, a member with the classic
protocol replaces the refused one.

The member's state machine runs on the client's event loop (`Driver`); the user's code runs in
another thread. After every event, the deliverable partitions and the due listener callback are
published to `GroupPolls`, the half of the user's thread.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from partage.bridge.consumer_protocol import ConsumerProtocol
from partage.client.cluster import Cluster
from partage.client.consumer.arguments import TopicSelection
from partage.client.consumer.assignment_source import AssignmentSource, AssignmentTarget
from partage.client.consumer.group_polls import DeliverySnapshot, GroupPolls, ownership_changes
from partage.client.consumer.group_protocol import (
    ask_for_consumer_protocol,
    new_member_id,
    server_pattern_error,
)
from partage.client.consumer.metadata_watcher import MetadataWatcher
from partage.client.consumer.protocol_handler import ConsumerProtocolHandler, ProtocolAction
from partage.client.errors import ClientError
from partage.client.group.coordinator_client import CoordinatorClient
from partage.client.group.driver import Driver, now_ms
from partage.client.group.errors import (
    PROBLEM_ERRORS,
    CommitFailedError,
    MemberFailedError,
    fenced_commit_reason,
    not_in_generation_reason,
)
from partage.client.group.offset_committer import OffsetCommitter
from partage.client.group.offsets import NO_MEMBER, IdentifiedOffsets, Offsets, fetch_committed
from partage.member.consumer_group.events import TopicIdsResolved
from partage.member.consumer_group.outcome import ResolveTopicIds
from partage.member.consumer_group.settings import ConsumerMemberSettings
from partage.member.consumer_group.state_machine import ConsumerGroupMember
from partage.member.consumer_group.states import ConsumerMemberState
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
from partage.member.ownership import Ownership
from partage.member.settings import MemberSettings
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition

log = logging.getLogger(__name__)

_COMMIT_POLL_S: Final = 0.02
_SNAPSHOT_INTERVAL_S: Final = 1.0
#: The part of the rebalance timeout for the commit before a revocation; the listener and the rejoin
#: need the rest.
_COMMIT_TIMEOUT_PART: Final = 0.25


class GroupAssignment(AssignmentSource):
    """The assignment of one group member.

    Methods run on the event loop, except those of polls, which `GroupPolls` implements.

    Args:
        cluster: The cluster.
        target: Gets the partitions.
        settings: The settings of the member; their class decides the protocol.
        embedding: The assignors of a member with the classic protocol.
        preferred: Settings to use instead if the cluster supports the consumer protocol and does
            not refuse the member; None if ``settings`` decides. Both have the same timeouts.
        make_member_id: Returns a new unique member id.
    """

    def __init__(
        self,
        cluster: Cluster,
        target: AssignmentTarget,
        settings: MemberSettings,
        embedding: ConsumerProtocol,
        preferred: ConsumerMemberSettings | None = None,
        make_member_id: Callable[[], str] = new_member_id,
    ) -> None:
        self.attach(target)
        self.settings = settings
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        self._make_member_id = make_member_id
        self._rebalance_protocol = embedding.rebalance_protocol
        self._selection = TopicSelection()
        self._preferred = preferred  # None once the protocol is chosen
        # For a refused member with the preferred protocol; None unless that was chosen
        self._fallback: MemberSettings | None = None
        self._is_refused = False  # The member failed, and `_fallback` is to replace it.
        self._choice: asyncio.Task[None] | None = None
        #: For offset requests, on a separate connection: requests behind a parked JoinGroup wait.
        self._coordinator = CoordinatorClient(cluster, settings.group_id)
        retries = cluster.options.retries
        self._commits = OffsetCommitter(self._coordinator, settings.group_id, retries, self)
        self._polls = GroupPolls(settings, self._loop, self._handle)
        #: The published partitions, each with its topic id; None with the classic protocol.
        self._owned: dict[TopicPartition, bytes | None] = {}
        #: For each owned partition, a number that is new each time the partition is assigned.
        self.ownership_epochs: dict[TopicPartition, int] = {}
        self._last_ownership_epoch = 0
        self._left = asyncio.Event()
        self._left.set()
        # True until the protocol is chosen and the pattern was matched for the first time
        self._is_subscribing = False
        self._topic_errors: deque[ClientError] = deque()  # The next polls raise one each.
        self._watcher = MetadataWatcher(cluster, self._topics_changed, self._partitions_changed)
        self._protocol = ConsumerProtocolHandler(
            embedding, cluster, self._coordinator, settings.group_id, self._watcher
        )
        self._next_due: CallListener | None = None
        self._member: Ownership | ConsumerGroupMember
        self._driver: Driver
        self._start_member(settings)

    def _start_member(self, settings: MemberSettings) -> None:
        """Make the member that the settings are for, and its driver."""
        self.settings = settings
        if isinstance(settings, ConsumerMemberSettings):
            self._member = ConsumerGroupMember(settings, self._make_member_id)
        else:
            self._member = Ownership(settings, self._rebalance_protocol)
        self._driver = Driver(
            self._member,
            settings,
            CoordinatorClient(self._cluster, settings.group_id),
            self._perform,
            self._on_event_handled,
            self._on_lookup_error,
        )
        self._driver.start_task(self._refresh_snapshot())

    def _replace_member(self, settings: MemberSettings) -> None:
        """Replace a member that owns nothing and has no open callback."""
        former = self._member
        self._driver.close()  # The former member gets no more events.
        self._start_member(settings)
        self._member.link.continue_serials(former.link)  # `GroupPolls` compares serials
        # The former member got the poll in progress.
        self._handle(Polled(at_ms=now_ms(), is_in_poll=self._polls.is_polling))

    # User requests.

    async def subscribe(
        self,
        topics: frozenset[str],
        pattern: re.Pattern[str] | None,
        regex: str | None = None,
    ) -> None:
        """Subscribe to topics, or to those that match a pattern.

        Args:
            topics: Names of topics.
            pattern: A pattern that this client matches.
            regex: A regular expression that the broker matches; only for the consumer protocol.
        """
        self._polls.failure = None
        self._polls.errors.clear()
        self._topic_errors.clear()
        self._polls.is_member = True
        self._polls.is_draining = False
        self._left.clear()
        self._cancel_choice()
        self._selection = TopicSelection(topics, pattern, regex)
        if self._preferred is None:
            self._start_subscription()
            return
        self._is_subscribing = True
        self._choice = self._driver.start_task(self._choose_protocol(self._preferred))

    async def _choose_protocol(self, preferred: ConsumerMemberSettings) -> None:
        """Choose the protocol by the first broker that answers, then subscribe."""
        pause_s = self.settings.retry_backoff_max_ms / 1000
        if await ask_for_consumer_protocol(self._cluster, self._on_lookup_error, pause_s):
            self._fallback = self.settings
            self._replace_member(preferred)
        self._preferred = None  # After the member: the user's thread reads both.
        regex = self._selection.regex
        if regex is not None and self._fallback is None:
            self._is_subscribing = False
            self._polls.failure = server_pattern_error(regex)
            self.target.wake()
            return
        self._start_subscription()

    def _cancel_choice(self) -> None:
        if self._choice is not None:
            self._choice.cancel()
            self._choice = None

    def _start_subscription(self) -> None:
        topics, pattern, regex = self._selection
        self._watcher.subscribe(topics, pattern)
        self._is_subscribing = pattern is not None
        if pattern is None:
            self._driver.handle(SubscriptionChanged(at_ms=now_ms(), topics=topics, regex=regex))
        self._watcher.start()
        if topics and isinstance(self._member, ConsumerGroupMember):  # no leader reports them
            self._watcher.on_topic_error = self._raise_in_poll
            self._driver.start_task(self._report_topic_errors(topics))

    async def _report_topic_errors(self, topics: frozenset[str]) -> None:
        try:
            await self._watcher.existing_topics(topics)
        except ClientError as error:
            log.info("metadata request failed: error=%s", error)

    def _raise_in_poll(self, error: ClientError) -> None:
        self._topic_errors.append(error)
        self.target.wake()

    async def leave(self, reason: str) -> None:
        """Begin to leave the group; `has_left` tells when the member is out."""
        self._cancel_choice()
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
    def has_server_patterns(self) -> bool:
        """True if the broker can match the patterns of subscriptions, as far as is known."""
        return self._preferred is not None or isinstance(self._member, ConsumerGroupMember)

    @property
    def topics(self) -> frozenset[str]:
        """The subscribed topics; for a pattern, those that match.

        For a pattern that the broker matches, they are the topics of the owned partitions.
        """
        member = self._member
        if isinstance(member, ConsumerGroupMember) and member.regex is not None:
            return frozenset(topic for topic, _ in member.owned)
        return member.topics

    @property
    def has_left(self) -> bool:
        """True if the member is not in the group."""
        return self._left.is_set()

    @property
    def is_reconciled(self) -> bool:
        """True if no member has to join, or it has, and owns all partitions of its assignment.

        A member with the classic protocol is in the group once it owns them.
        """
        member = self._member
        if isinstance(member, ConsumerGroupMember) and (
            member.unknown_topic_ids() or member.partitions_to_add()
        ):
            return False
        return self.identity is not None

    @property
    def has_coordinator(self) -> bool:
        """True if the member is connected to its coordinator and its session has not expired."""
        return self._member.has_coordinator

    async def close(self, timeout_ms: float) -> None:
        """Stop the member at once, even during a leave."""
        self._watcher.stop()
        self._driver.close()
        self._coordinator.disconnect()

    # Polls. In the user's thread.

    def on_poll(self) -> None:
        """Note that the user polls; raise pending errors."""
        self._polls.on_poll(has_partitions=not self.target.is_empty())
        if self._topic_errors:
            raise self._topic_errors.popleft()

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

    def on_commit_wait(self) -> None:
        """Note that a poll waits for a commit before it delivers records; it counts as a poll."""
        self._polls.on_commit_wait()

    def callback_done(self, call: CallListener) -> None:
        """Note that a listener callback has run, with or without an error."""
        self._polls.callback_done(call)

    def skip_callback(self, call: CallListener) -> None:
        """Complete a due callback that has no listener. Call it on the event loop."""
        if self._polls.due is call:
            self._handle(CallbackCompleted(at_ms=now_ms(), serial=call.serial))
            if self._polls.due is call:  # The member may have issued another callback.
                self._polls.due = None

    def may_deliver(self, partition: TopicPartition) -> bool:
        """True if records of the partition may be delivered, as far as is known locally."""
        return self._polls.may_deliver(partition)

    # Offsets.

    async def committed(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the group's committed offsets, in one attempt."""
        found = await fetch_committed(self._coordinator, self.settings.group_id, partitions)
        return {partition: each.offset for partition, each in found.items()}

    async def committed_offsets(self, partitions: Sequence[TopicPartition]) -> Offsets:
        """Return the group's committed offsets with metadata; retry transient errors."""
        group_id = self.settings.group_id
        return await self._cluster.with_retries(
            partial(fetch_committed, self._coordinator, group_id, partitions)
        )

    @property
    def identity(self) -> CommitIdentity | None:
        """The identity for a commit; None while the coordinator would refuse commits."""
        identity = self._member.commit_identity
        if identity is None and not self._polls.is_member:
            return NO_MEMBER  # A consumer with manual assignment, or one that has left the group.
        return identity

    def is_topic_replaced(self, partition: TopicPartition, topic_id: bytes) -> bool:
        """True if an owned partition belongs to another topic of the same name now."""
        return self.target.is_topic_replaced(partition, topic_id)

    async def commit(
        self, offsets: IdentifiedOffsets, *, only_as: CommitIdentity | None = None
    ) -> None:
        """Commit offsets, in the order of the calls; see `OffsetCommitter.commit`."""
        await self._commits.commit(*offsets, only_as=only_as)

    async def auto_commit(
        self, offsets: IdentifiedOffsets, *, after: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Commit offsets in the background; errors are logged, because a later commit follows."""
        try:
            await self._commits.commit(*offsets, after=after)
        except CommitFailedError as error:  # usually a rebalance
            log.info("auto commit failed: group=%s error=%s", self.settings.group_id, error)
        except ClientError as error:
            log.warning("auto commit failed: group=%s error=%s", self.settings.group_id, error)

    async def auto_commit_before_leave(self, offsets: IdentifiedOffsets) -> None:
        """Make the last auto commit before a leave; no later commit can replace it.

        A cooperative member keeps delivering records while it rejoins, but commits are refused
        then. So wait for a rebalance in progress to end, for two heartbeat intervals at most: all
        members learn of a rebalance by their heartbeats.
        """
        member = self._member
        deadline_ms = now_ms() + 2 * self.settings.heartbeat_interval_ms

        async def can_be() -> None:
            while offsets.offsets and member.is_in_group and member.commit_identity is None:
                if now_ms() >= deadline_ms:
                    break
                await asyncio.sleep(_COMMIT_POLL_S)

        await self.auto_commit(offsets, after=can_be)

    async def auto_commit_before_revocation(self, offsets: IdentifiedOffsets) -> None:
        """Commit offsets before partitions are revoked; errors are logged.

        The revocation waits for this commit. So partitions of deleted topics fail at once, as in
        Kafka's consumer, and the whole commit ends after a quarter of the rebalance timeout.
        """
        if not offsets.offsets:
            return
        group_id = self.settings.group_id
        limit_s = self.settings.rebalance_timeout_ms / 1000 * _COMMIT_TIMEOUT_PART
        try:
            async with asyncio.timeout(limit_s):
                await self._commits.commit(*offsets, retries_unknown_topics=False)
        except CommitFailedError as error:  # usually a rebalance
            log.info("auto commit before revocation failed: group=%s error=%s", group_id, error)
        except ClientError as error:
            log.warning("auto commit before revocation failed: group=%s error=%s", group_id, error)
        except TimeoutError:
            log.warning(
                "auto commit before revocation timed out: group=%s timeout_s=%.1f",
                group_id,
                limit_s,
            )

    def on_commit_fenced(self, identity: CommitIdentity, code: ErrorCode) -> str:
        """Handle a commit that the coordinator refused as fenced; return the reason as text."""
        away_ms = now_ms() - self._polls.poll_ended_ms
        generation, member_id = identity.generation, identity.member_id
        self._driver.handle(
            CommitRejected(at_ms=now_ms(), generation=generation, member_id=member_id, error=code)
        )
        is_in_group = self._member.is_in_group
        return fenced_commit_reason(code, self.settings, away_ms, is_in_group=is_in_group)

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
            case ResolveTopicIds():
                self._driver.start_task(self._resolve_topic_ids(action))
            case CallListener():
                # Published after the new partitions are added, so that the listener can seek.
                self._next_due = action
            case ReportProblem(problem=problem, reason=reason):
                self._polls.errors[problem] = PROBLEM_ERRORS[problem](reason)
                self.target.wake()
            case ReportFatalError(error=error, reason=reason):
                self._on_fatal_error(error, reason)
            case LeftGroup():
                self._on_left()

    def _on_fatal_error(self, error: ErrorCode, reason: str) -> None:
        """Let polls raise the error, or fall back if the coordinator refuses the protocol."""
        regex = self._selection.regex
        if self._fallback is None or error is not ErrorCode.UNSUPPORTED_VERSION:
            self._polls.failure = MemberFailedError(self.settings.group_id, error, reason)
        elif regex is not None:
            self._polls.failure = server_pattern_error(regex)
        else:
            self._is_refused = True
        self.target.wake()

    def _fall_back_if_refused(self) -> None:
        """Replace a refused member, after the listener has been told of its lost partitions."""
        member, fallback = self._member, self._fallback
        if not self._is_refused or fallback is None or isinstance(member, Ownership):
            return
        if member.state is not ConsumerMemberState.FATAL:
            self._is_refused = False  # The user has subscribed again, or leaves.
        elif not member.owned and member.open_callback is None:
            log.info("coordinator refused the consumer protocol: group=%s", fallback.group_id)
            self._is_refused, self._fallback = False, None
            self._replace_member(fallback)
            self._start_subscription()

    def _on_left(self) -> None:
        """Finish a leave, unless the user has subscribed again."""
        if self._member.is_membership_wanted or self._is_subscribing:
            return
        self._publish_owned()  # First remove all partitions, before the user may assign some.
        self._watcher.stop()
        self._polls.due = None  # At most a callback without partitions is dropped.
        self._polls.is_member = False
        self._left.set()

    def _on_lookup_error(self, error: ClientError | None) -> None:
        self._polls.lookup_error = error
        self.target.wake()

    async def _handle_protocol_action(self, action: ProtocolAction) -> None:
        assert isinstance(self._member, Ownership), "only the classic protocol has such actions"
        event = await self._protocol.handle(action, self._member)
        if event is not None:
            self._driver.handle(event)

    async def _resolve_topic_ids(self, action: ResolveTopicIds) -> None:
        """Find the names of assigned topics in current metadata; the member may ask again."""
        names: dict[bytes, str] = {}
        try:
            member = self._member
            if isinstance(member, ConsumerGroupMember) and member.regex is not None:
                found = await self._cluster.all_topics()
            else:
                found = await self._watcher.existing_topics(member.topics)
            names = {topic.topic_id: name for name, topic in found.items()}
        except ClientError as error:
            log.info("metadata request failed: error=%s", error)
        wanted = {each: names[each] for each in action.topic_ids if each in names}
        self._driver.handle(TopicIdsResolved(at_ms=now_ms(), serial=action.serial, names=wanted))

    def _handle(self, event: Event) -> None:
        if isinstance(event, DrainRequested):
            self._cancel_choice()
            self._is_subscribing = False  # A choice that ended after `drain` has set it.
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
        self._polls.snapshot = DeliverySnapshot(
            self._member.deliverable, now_ms(), self._member.session_deadline_ms
        )
        self._publish_problems()
        self._publish_owned()
        self._publish_due()
        self.target.wake()
        self._fall_back_if_refused()

    def _publish_problems(self) -> None:
        member = self._member
        if isinstance(member, ConsumerGroupMember) and not member.is_subscription_refused:
            self._polls.errors.pop(Problem.SUBSCRIPTION_REFUSED, None)

    def _publish_owned(self) -> None:
        """Publish removed and then added partitions."""
        member, before = self._member, self._owned
        self._owned = (
            dict(member.owned_ids)
            if isinstance(member, ConsumerGroupMember)
            else dict.fromkeys(TopicPartition(*each) for each in member.owned)
        )
        lost, new = ownership_changes(before, self._owned)
        if lost:
            for each in lost:
                del self.ownership_epochs[each]
            self.target.remove_partitions(lost)
        if new:
            self._last_ownership_epoch += 1
            self.ownership_epochs |= dict.fromkeys(new, self._last_ownership_epoch)
            ids = {each: topic_id for each in new if (topic_id := self._owned[each]) is not None}
            self.target.add_partitions(new, ids)

    def _publish_due(self) -> None:
        if self._next_due is not None:
            self._polls.due, self._next_due = self._next_due, None
        due = self._polls.due
        member = self._member
        is_lost = member.has_lost_partitions or (
            isinstance(member, ConsumerGroupMember) and member.is_release_lost
        )
        if due is not None and due.callback is ListenerCallback.REVOKED and is_lost:
            # The session ended before the user polled: too late to revoke, the partitions are lost.
            self._polls.due = msgspec.structs.replace(due, callback=ListenerCallback.LOST)

    async def _refresh_snapshot(self) -> None:
        """Refresh the snapshot regularly.

        `may_deliver` uses the age of the snapshot to detect a stalled event loop.
        """
        while True:
            await asyncio.sleep(_SNAPSHOT_INTERVAL_S)
            self._on_event_handled()

"""The product's member as a member of the simulator: with listener, commits and offset fetches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec

from partage.bridge.member_requests import MemberRequest, to_event, to_request
from partage.member import events, outcome
from partage.member.member import CommitIdentity
from partage.member.settings import MemberSettings
from partage.model.topic_partition import TopicPartition
from partage.proposals import machine
from partage.proposals.machine import MemberOutcome
from partage.proposals.topic_pattern import TopicPattern
from partage.wire.apis.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)
from partage.wire.apis.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
)
from partage.wire.types import Message

Partitions = frozenset[TopicPartition]
Outcome = MemberOutcome[Hashable]

#: The timers of commits, requests and leaves; all other timers are the state machine's.
_COMMIT_TIMER: Final = ("shell", "commit")
_REQUEST_TIMER: Final = ("shell", "request")
_LEAVE_TIMER: Final = ("shell", "leave")


class ProductCore(Protocol):
    """A state machine of the product: a member that owns partitions."""

    @property
    def owned(self) -> Partitions:
        """The partitions that the member owns."""

    @property
    def deliverable(self) -> Partitions:
        """The partitions whose records may be delivered now."""

    @property
    def commit_identity(self) -> CommitIdentity | None:
        """The identity for offset commits; None while no commit can succeed."""

    def handle(self, event: events.Event) -> outcome.Outcome:
        """Handle an event and return its outcome."""


class ProductMember(ABC):
    """A consumer around a state machine of the product.

    Args:
        core: The state machine of the member and its partitions.
        settings: The settings of the member.
        topics: The topics to subscribe to.
        commit_interval_ms: How often the member commits its positions.
        pattern: A pattern of topics that this member matches, instead of ``topics``.
    """

    #: True if the member fetches the topics before it subscribes.
    must_know_topics = False

    def __init__(
        self,
        core: ProductCore,
        settings: MemberSettings,
        topics: frozenset[str],
        commit_interval_ms: int,
        pattern: TopicPattern | None = None,
    ) -> None:
        self._core = core
        self._settings = settings
        self._topics = topics  # with a pattern, those that are known to match
        self._pattern = pattern
        self._is_starting = False  # the topics are fetched before the first subscription
        self._commit_interval_ms = commit_interval_ms
        self._serial = 0  # of the coordinator lookup in progress
        self._is_found = False
        # Requests without a response, in order. The product sends offsets over a separate
        # connection, so they do not wait behind a parked request.
        self._waiting: deque[MemberRequest] = deque()
        self._waiting_for_offsets: deque[Message] = deque()
        self._leave_later: outcome.SendLeave | None = None
        self._callback: outcome.CallListener | None = None  # waits for its commit
        self._reading: Partitions = frozenset()
        self._starting: Partitions = frozenset()  # their offsets are being fetched
        self._known: Partitions = frozenset()  # owned since it read them
        self._is_left = False
        self._waits_to_leave = False  # until the rebalance in progress ends

    @property
    def owned(self) -> Partitions:
        """The partitions of the current assignment."""
        return self._core.owned

    @property
    def is_stable(self) -> bool:
        """True if the member reads its partitions, or has left."""
        if self._is_left:
            return True
        return self._is_core_stable and self._callback is None and self._reading == self._core.owned

    @property
    @abstractmethod
    def _is_core_stable(self) -> bool:
        """True if the state machine has its assignment and nothing to do."""

    def handle(self, event: machine.Event) -> Outcome:
        """Handle an event and return its effects."""
        result = Outcome(event.at_ms)
        at_ms = event.at_ms
        match event:
            case machine.Started() if self._pattern is not None or self.must_know_topics:
                self._is_starting = True
                result.act(machine.FetchMetadata())
            case machine.Started():
                self._subscribe(result)
            case machine.MetadataFetched(topics=topics) if self._is_starting:
                self._match_topics(topics)
                self._is_starting = False
                self._subscribe(result)
            case machine.PartitionCountsChanged() if self._is_starting:
                pass
            case machine.Connected():
                self._on_connected(result)
            case machine.Disconnected():
                self._on_disconnected(result)
            case machine.ResponseReceived(message=message):
                self._on_response(result, message)
            case machine.MetadataFetched(topics=topics):
                self._on_metadata(result, topics)
            case machine.PartitionCountsChanged(topics=topics):
                if self._match_topics(topics):
                    changed = self._subscription(at_ms)
                    self._run(result, msgspec.structs.replace(changed, is_by_pattern=True))
                self._on_metadata_refreshed(result, topics)
            case machine.PositionsTaken(positions=positions):
                self._commit(result, positions)
            case machine.LeaveRequested():
                self._is_starting = False
                self._waits_to_leave = True
                result.arm_timer(_LEAVE_TIMER, 2 * self._settings.heartbeat_interval_ms)
            case machine.TimerFired(key=key):
                self._on_timer(result, key)
            case _:
                raise AssertionError(f"unexpected event {event}")
        if self._waits_to_leave and (not self._reading or self._core.commit_identity is not None):
            self._leave(result)
        return result

    # Subscription

    def _subscribe(self, result: Outcome) -> None:
        self._run(result, self._subscription(result.at_ms))
        self._run(result, events.Polled(at_ms=result.at_ms, is_in_poll=True))
        result.arm_timer(_COMMIT_TIMER, self._commit_interval_ms)

    def _subscription(self, at_ms: int) -> events.SubscriptionChanged:
        """Return the event with the current subscription."""
        return events.SubscriptionChanged(at_ms=at_ms, topics=self._topics)

    def _match_topics(self, counts: Mapping[str, int]) -> bool:
        """Match the pattern with the existing topics; return True if other topics match now."""
        if self._pattern is None:
            return False
        matching = frozenset(filter(self._pattern.matches, counts))
        has_changed, self._topics = matching != self._topics, matching
        return has_changed

    def _leave(self, result: Outcome) -> None:
        """Leave the group, and commit if that is possible now.

        A cooperative member reads while it joins, but no commit succeeds then. As the consumer
        does, it waits for the end of the rebalance before it leaves, for two heartbeats at most.
        """
        self._waits_to_leave = False
        result.cancel_timer(_LEAVE_TIMER)
        self._run(result, events.LeaveRequested(at_ms=result.at_ms, reason="closed"))

    # State machine

    def _run(self, result: Outcome, event: events.Event) -> None:
        """Run the state machine, and perform its actions."""
        self._perform_all(result, self._core.handle(event))

    def _perform_all(self, result: Outcome, done: outcome.Outcome) -> None:
        result.timers += done.timers
        self._known &= self._core.owned
        stopped = self._reading - self._core.deliverable
        if stopped:
            self._reading -= stopped
            result.act(machine.StopReading(partitions=stopped))
        for action in done.actions:
            self._perform(result, action)

    def _perform(self, result: Outcome, action: outcome.Action) -> None:
        match action:
            case outcome.FindCoordinator(serial=serial):
                self._serial, self._is_found = serial, False
                self._clear_waiting(result)
                self._starting = frozenset()
                result.act(machine.Connect())
            case outcome.Disconnect():
                self._is_found = False
                self._clear_waiting(result)
                self._starting = frozenset()
                result.act(machine.Disconnect())
                self._complete_callback(result)
            case outcome.CallListener():
                self._call_listener(result, action)
            case outcome.ReportFatalError(reason=reason):
                result.act(machine.ReportError(reason=reason))
            case outcome.LeftGroup():
                self._is_left = True
                result.act(machine.Disconnect())

    # Listener

    def _call_listener(self, result: Outcome, action: outcome.CallListener) -> None:
        """Do what a consumer with auto commit does: commit revoked partitions, fetch offsets."""
        match action.callback:
            case outcome.ListenerCallback.REVOKED:
                self._callback = action
                self._starting -= frozenset(action.partitions)
                # Not those that it owns but has not started to read: their last position is from
                # an earlier assignment.
                read = self._known & frozenset(action.partitions)
                result.act(machine.CommitDue(partitions=read))
                return
            case outcome.ListenerCallback.LOST:
                self._starting = frozenset()
        self._run(result, events.CallbackCompleted(at_ms=result.at_ms, serial=action.serial))
        if action.callback is outcome.ListenerCallback.ASSIGNED:
            self._fetch_offsets(result)

    def _fetch_offsets(self, result: Outcome) -> None:
        """Read all partitions that may be delivered; the offsets of new ones are fetched first."""
        missing = self._core.deliverable - self._reading - self._starting
        resumed = missing & self._known
        if resumed:
            self._reading |= resumed
            missing -= resumed
            result.act(machine.ResumeReading(partitions=resumed))
        if missing and self._is_found:
            self._starting |= missing
            topics = [
                OffsetFetchTopic(name=name, partition_indexes=indexes)
                for name, indexes in _by_topic(missing).items()
            ]
            group = OffsetFetchGroup(group_id=self._settings.group_id, topics=topics)
            self._send(result, OffsetFetchRequest(groups=[group]))

    def _commit(self, result: Outcome, positions: dict[TopicPartition, int]) -> None:
        identity = self._core.commit_identity
        if not positions or identity is None or not self._is_found:
            self._complete_callback(result)
            return
        topics = [
            OffsetCommitTopic(
                name=name,
                partitions=[
                    OffsetCommitPartition(
                        partition_index=index,
                        committed_offset=positions[TopicPartition(name, index)],
                        committed_metadata=None,
                    )
                    for index in indexes
                ],
            )
            for name, indexes in _by_topic(positions).items()
        ]
        self._send(
            result,
            OffsetCommitRequest(
                group_id=self._settings.group_id,
                generation_id_or_member_epoch=identity.generation,
                member_id=identity.member_id,
                topics=topics,
            ),
        )

    def _complete_callback(self, result: Outcome) -> None:
        action, self._callback = self._callback, None
        if action is not None:
            self._run(result, events.CallbackCompleted(at_ms=result.at_ms, serial=action.serial))

    # Connection

    def _send(self, result: Outcome, request: MemberRequest | Message) -> None:
        settings = self._settings
        if isinstance(request, Message):
            self._waiting_for_offsets.append(request)
            result.send(request)
        else:
            self._waiting.append(request)
            _, message = to_request(request, settings.group_id)
            result.send(message)
        if len(self._waiting) + len(self._waiting_for_offsets) == 1:
            self._arm_request_timer(result)

    def _arm_request_timer(self, result: Outcome) -> None:
        """Time the oldest request, unless it may be parked: the member times those itself."""
        result.cancel_timer(_REQUEST_TIMER)
        if self._waiting_for_offsets or any(
            not isinstance(each, outcome.SendJoin | outcome.SendSync) for each in self._waiting
        ):
            timeout_ms = self._settings.request_timeout_ms
            result.arm_timer(_REQUEST_TIMER, timeout_ms)

    def _clear_waiting(self, result: Outcome) -> None:
        self._waiting.clear()
        self._waiting_for_offsets.clear()
        result.cancel_timer(_REQUEST_TIMER)

    def _on_connected(self, result: Outcome) -> None:
        self._is_found = True
        leave, self._leave_later = self._leave_later, None
        if leave is not None:
            self._serial = leave.serial
            self._send(result, leave)
        else:
            self._run(result, events.CoordinatorFound(at_ms=result.at_ms, serial=self._serial))
            self._fetch_offsets(result)

    def _on_disconnected(self, result: Outcome) -> None:
        was_found, self._is_found = self._is_found, False
        self._clear_waiting(result)
        if self._leave_later is not None:  # the member gives up by itself
            self._leave_later = None
            return
        self._starting = frozenset()
        event = events.CoordinatorLost if was_found else events.CoordinatorNotFound
        self._complete_callback(result)
        self._run(result, event(at_ms=result.at_ms, serial=self._serial))

    def _on_response(self, result: Outcome, message: Any) -> None:
        match message:
            case OffsetCommitResponse():
                self._waiting_for_offsets.popleft()
                self._arm_request_timer(result)
                self._complete_callback(result)
            case OffsetFetchResponse():
                self._waiting_for_offsets.popleft()
                self._arm_request_timer(result)
                self._start(result, message)
            case _:
                request = self._waiting.popleft()
                self._arm_request_timer(result)
                self._run(result, to_event(request, message, result.at_ms))
                self._fetch_offsets(result)

    def _start(self, result: Outcome, response: Any) -> None:
        offsets = {
            TopicPartition(topic.name, each.partition_index): each.committed_offset
            for topic in response.groups[0].topics
            for each in topic.partitions
        }
        ready = frozenset(offsets) & self._starting & self._core.deliverable
        self._starting -= frozenset(offsets)
        self._reading |= ready
        self._known |= ready
        if ready:
            result.act(
                machine.StartReading(offsets={each: offsets[each] for each in sorted(ready)})
            )

    # Metadata and timers

    @abstractmethod
    def _on_metadata_refreshed(self, result: Outcome, counts: dict[str, int]) -> None:
        """Take the topics of a periodic refresh."""

    @abstractmethod
    def _on_metadata(self, result: Outcome, counts: dict[str, int]) -> None:
        """Take the topics that the member has fetched."""

    def _on_timer(self, result: Outcome, key: Hashable) -> None:
        if key == _REQUEST_TIMER:
            result.act(machine.Disconnect())
            self._on_disconnected(result)
            return
        if key == _LEAVE_TIMER:
            self._leave(result)
            return
        if key != _COMMIT_TIMER:
            timer: Any = key
            self._run(result, events.TimerFired(at_ms=result.at_ms, key=timer))
            return
        result.arm_timer(_COMMIT_TIMER, self._commit_interval_ms)
        if self._reading and self._callback is None:
            result.act(machine.CommitDue(partitions=self._reading))


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return by_topic

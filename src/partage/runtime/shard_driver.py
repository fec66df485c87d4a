"""Runs one shard of any state machine: append first, then release the replies.

The driver keeps the contract of the outcome of an event. A shell has these duties:

1. Hand in events with their times.
2. Append the `unsent` records to the log, those of one event atomically.
3. Report the result with `on_durable` or `fail`.
4. Send the replies that are `ready`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from itertools import islice
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from partage.model.errors import ErrorCode
from partage.runtime.timers import TimerQueue

RecordT = TypeVar("RecordT")
ReplyT = TypeVar("ReplyT")


class ShardOutcome(Protocol):
    """The effects of one event."""

    records: list[Any]
    timers: list[tuple[Any, int | None]]
    replies: list[tuple[Any, Any]]


class ShardMachine(Protocol):
    """The state machine of a shard."""

    def handle(self, event: Any) -> ShardOutcome:
        """Handle an event."""

    def resume(self, at_ms: int) -> ShardOutcome:
        """Resume after loading."""


ShardT = TypeVar("ShardT", bound=ShardMachine)


class _RequestKinds(dict[type[Any], bool]):
    """For each type of event that occurred, True if it is a request.

    A lookup takes less time than `isinstance` with an abstract class.
    """

    def __init__(self, request_types: tuple[type[Any], ...]) -> None:
        super().__init__()
        self._request_types = request_types

    def __missing__(self, kind: type[Any]) -> bool:
        is_request = self[kind] = issubclass(kind, self._request_types)
        return is_request


class ShardDriver(ABC, Generic[ShardT, RecordT, ReplyT]):
    """A shard with its timers and the replies that wait for its log.

    Without a shard the driver is loading, or, after `resign`, another broker owns the shard.
    Requests get an error that says which.

    A shell checks ``unsent`` and ``ready`` after each call, and empties them with the ``pop_``
    methods.

    A subclass knows the events and replies of one state machine.

    Attributes:
        request_types: the types of events that need a reply; they have ``reply_to``, the ticket.
        timer_type: the type of the event of a timer that fired, with ``at_ms`` and ``key``.
        unrepeated_types: the types of events without a reply that the shard, after loading, does
            not need again.
    """

    request_types: ClassVar[tuple[type[Any], ...]]
    timer_type: ClassVar[type[Any]]
    unrepeated_types: ClassVar[tuple[type[Any], ...]]
    _is_request: ClassVar[_RequestKinds]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._is_request = _RequestKinds(cls.request_types)

    def __init__(self) -> None:
        self.shard: ShardT | None = None
        self._unavailable_error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self.timers: TimerQueue[Any] = TimerQueue()
        self._open_requests: dict[Any, Any] = {}  # requests without a reply yet
        self.ready: list[tuple[Any, ReplyT]] = []
        # with `_applied` at that time
        self._deferred_replies: deque[tuple[int, Any, ReplyT]] = deque()
        self._applied = 0  # records that the shard has produced
        self._sent = 0  # of them, the number given to the log
        self._durable = 0  # of them, the number that is durable
        self.unsent: list[RecordT] = []
        self._event_ends: list[int] = []  # the length of `unsent` after each event
        # events other than requests, received while loading
        self._deferred_events: deque[Any] = deque()
        # events whose records are not durable, like `_deferred_replies`
        self._undurable_events: deque[tuple[int, Any]] = deque()

    @staticmethod
    @abstractmethod
    def error_reply(event: Any, error: ErrorCode) -> ReplyT:
        """Return the reply to a request that reports ``error``."""

    @staticmethod
    @abstractmethod
    def replace_with_error(reply: ReplyT, error: ErrorCode) -> ReplyT:
        """Return the reply of the same type with ``error``."""

    # Loading and failing.

    def activate(self, shard: ShardT, at_ms: int) -> None:
        """Start to serve ``shard``, which has applied its whole log."""
        assert self.shard is None, "the driver has a shard already"
        self.shard = shard
        self._apply_outcome(shard.resume(at_ms))
        while self._deferred_events:
            self.handle(self._deferred_events[0])
            self._deferred_events.popleft()

    def resign(self) -> None:
        """Give up the shard to another broker, until `start_loading` is called.

        New requests, and all that have no reply yet, get NOT_COORDINATOR. Replies in ``ready`` are
        replaced too: they were right when they were decided, but may be wrong now.
        """
        error = ErrorCode.NOT_COORDINATOR
        self.ready = [
            (ticket, self.replace_with_error(reply, error)) for ticket, reply in self.ready
        ]
        self.fail(error)
        self._deferred_events.clear()
        self._unavailable_error = error

    def start_loading(self) -> None:
        """Expect a shard to be loaded: requests get COORDINATOR_LOAD_IN_PROGRESS."""
        self._unavailable_error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def fail(self, error: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> None:
        """Discard the shard after a failed append, and wait for it to be loaded again.

        State since the failed append may be missing from the log. All open requests get ``error``.
        Events that are not requests will not be repeated by a client, so the reloaded shard handles
        them again.
        """
        self.shard = None
        self._deferred_events.extendleft(event for _, event in reversed(self._undurable_events))
        self._undurable_events.clear()
        self.timers = TimerQueue()
        self._deferred_replies.clear()
        self.unsent.clear()
        self._event_ends.clear()
        self._sent = self._durable = self._applied
        answered = {ticket for ticket, _ in self.ready}
        for ticket, event in self._open_requests.items():
            if ticket not in answered:
                self.ready.append((ticket, self.error_reply(event, error)))

    # Events.

    def handle(self, event: Any) -> None:
        """Hand an event to the shard and apply its outcome."""
        shard = self.shard
        if shard is None:
            self._defer(event)
            return
        try:
            outcome = shard.handle(event)
        except BaseException:
            if self._is_request[type(event)]:  # so that `fail` replies to it
                self._open_requests[event.reply_to] = event
            raise
        if self._is_request[type(event)]:
            self._apply_request_outcome(event, outcome)
            return
        self._apply_outcome(outcome)
        if outcome.records and not isinstance(event, self.unrepeated_types):
            self._undurable_events.append((self._applied, event))

    def _apply_request_outcome(self, event: Any, outcome: ShardOutcome) -> None:
        self._apply_outcome(outcome)
        replies, ticket = outcome.replies, event.reply_to
        # A request is not open if its own reply is the only one, and may be sent now.
        if len(replies) != 1 or replies[0][0] is not ticket or self._durable != self._applied:
            self._open_requests[ticket] = event

    def _defer(self, event: Any) -> None:
        """Reject a request, or defer another event until the shard is loaded.

        After `resign`, other events are dropped: the next owner handles them.
        """
        if self._is_request[type(event)]:
            self.ready.append((event.reply_to, self.error_reply(event, self._unavailable_error)))
        elif self._unavailable_error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._deferred_events.append(event)

    def fire_due(
        self, now_ms: int, count_max: int | None = None, until_ms: int | None = None
    ) -> None:
        """Fire due timers.

        Args:
            now_ms: Time of the events.
            count_max: Fire at most this many; None for all.
            until_ms: Fire the timers with deadlines up to this time; None for ``now_ms``.
        """
        for key in islice(self.timers.pop_due(now_ms if until_ms is None else until_ms), count_max):
            self.handle(self.timer_type(at_ms=now_ms, key=key))

    def _apply_outcome(self, outcome: ShardOutcome) -> None:
        if outcome.records:
            self.unsent += outcome.records
            self._event_ends.append(len(self.unsent))
            self._applied += len(outcome.records)
        for key, deadline_ms in outcome.timers:
            self.timers.set(key, deadline_ms)
        if self._durable == self._applied:
            self.ready += outcome.replies
        else:
            self._deferred_replies += [
                (self._applied, ticket, reply) for ticket, reply in outcome.replies
            ]
        self._apply_notices(outcome)

    @abstractmethod
    def _apply_notices(self, outcome: Any) -> None:
        """Keep the effects that only this state machine has."""

    # The log.

    def pop_unsent(self, count_max: int | None = None) -> tuple[list[RecordT], int, list[int]]:
        """Remove and return the records to append next.

        Args:
            count_max: Return the events up to this number of records, but at least one event; None
                for all events.

        Returns:
            The records, the mark to pass to `on_durable`, and the number of records up to the end
            of each event.
        """
        records, event_ends = self.unsent, self._event_ends
        if count_max is None or len(records) <= count_max:
            self.unsent, self._event_ends = [], []
        else:
            events = max(1, bisect_right(event_ends, count_max))
            count = event_ends[events - 1]
            self.unsent = records[count:]
            self._event_ends = [end - count for end in event_ends[events:]]
            records, event_ends = records[:count], event_ends[:events]
        self._sent += len(records)
        return records, self._sent, event_ends

    @property
    def applied_mark(self) -> int:
        """The mark up to which `on_durable` must report before all current state is durable."""
        return self._applied

    @property
    def is_caught_up(self) -> bool:
        """True if the shard is loaded and the effects of unsolicited events (such as TopicsDeleted)
        are durable.
        """
        return self.shard is not None and not (self._deferred_events or self._undurable_events)

    def is_durable(self, mark: int) -> bool:
        """True if all records up to ``mark`` are durable."""
        return self._durable >= mark

    def on_durable(self, mark: int) -> None:
        """Release the replies that waited for the records up to ``mark``, which are durable now."""
        assert self._durable <= mark <= self._sent, "the log confirms records that it was not given"
        self._durable = mark
        while self._deferred_replies and self._deferred_replies[0][0] <= mark:
            _, ticket, reply = self._deferred_replies.popleft()
            self.ready.append((ticket, reply))
        while self._undurable_events and self._undurable_events[0][0] <= mark:
            self._undurable_events.popleft()

    # Replies.

    def pop_ready(self, count_max: int) -> list[tuple[Any, ReplyT]]:
        """Remove and return up to ``count_max`` replies to send, in order."""
        if len(self.ready) <= count_max:
            leaving, self.ready = self.ready, []
        else:
            leaving = self.ready[:count_max]
            del self.ready[:count_max]
        if self._open_requests:
            for ticket, _ in leaving:
                self._open_requests.pop(ticket, None)
        return leaving

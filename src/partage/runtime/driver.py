"""Drives one shard: append, then release.

The driver keeps `Outcome`'s contract. What a shell has to do is small: hand in events and the
time, take what is `unsent` to the log as one batch, say when it is `durable` or that the append
`failed`, and send the replies that are `ready`.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from partage.coordinator.events import Asked, Event, Ticket, TimerFired
from partage.coordinator.outcome import Notice, Outcome
from partage.coordinator.records import Record
from partage.coordinator.replies import Reply
from partage.coordinator.shard import Shard
from partage.coordinator.timers import TimerKey
from partage.coordinator.unavailable import instead_of, unavailable
from partage.model.errors import ErrorCode
from partage.runtime.timers import Timers


class Driver:
    """One shard, its timers, and the replies that wait for its log.

    Without a shard the driver is loading, and says so to whoever asks; or, after `resign`, the
    shard is somebody else's. A shell looks whether there is something in ``unsent``, ``ready`` and
    ``notices``, and takes it with the methods so named.
    """

    def __init__(self) -> None:
        self.shard: Shard | None = None
        self._absence = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self.timers: Timers[TimerKey] = Timers()
        self._open: dict[Ticket, Asked] = {}  # requests that were not answered at once
        self.ready: list[tuple[Ticket, Reply]] = []
        self._held: deque[tuple[int, Ticket, Reply]] = deque()  # with `_applied` at their time
        self._applied = 0  # records the core has given out
        self._sent = 0  # of them, those that the log was given
        self._durable = 0  # of them, those that are durable
        self.unsent: list[Record] = []
        self._postponed: deque[Event] = deque()  # what happened while loading, requests apart
        self._unsettled: deque[tuple[int, Event]] = deque()  # and what is not durable, as `_held`
        self.notices: list[Notice] = []

    # Loading and failing.

    def activate(self, shard: Shard, at_ms: int) -> None:
        """Loading is over: ``shard`` has applied its whole log."""
        assert self.shard is None, "a shard is loaded once"
        self.shard = shard
        self._take(shard.resume(at_ms))
        while self._postponed:
            self.handle(self._postponed[0])
            self._postponed.popleft()

    def resign(self) -> None:
        """The shard is somebody else's, until `expect`: who asks, and who was to be answered and
        has not been, is told to look for the coordinator.

        What was ready may have been true when it was decided, and be so no more.
        """
        error = ErrorCode.NOT_COORDINATOR
        self.ready = [(ticket, instead_of(reply, error)) for ticket, reply in self.ready]
        self.failed(error)
        self._postponed.clear()
        self._absence = error

    def expect(self) -> None:
        """A shard is going to be loaded."""
        self._absence = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def failed(self, error: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> None:
        """An append failed: what was applied since may not be in the log.

        The core is dropped, every open request told ``error``, and the driver waits for a shard
        that is loaded anew. What happened without being asked for will not happen again, so that
        shard is told.
        """
        self.shard = None
        self._postponed.extendleft(event for _, event in reversed(self._unsettled))
        self._unsettled.clear()
        self.timers = Timers()
        self._held.clear()
        self.unsent.clear()
        self._sent = self._durable = self._applied
        answered = {ticket for ticket, _ in self.ready}
        for ticket, event in self._open.items():
            if ticket not in answered:
                self.ready.append((ticket, unavailable(event, error)))

    # Events.

    def handle(self, event: Event) -> None:
        """Hand an event to the core and take what comes of it."""
        shard = self.shard
        if shard is None:
            self._put_off(event)
            return
        try:
            outcome = shard.handle(event)
        except BaseException:
            if isinstance(event, Asked):  # for `failed` to answer
                self._open[event.reply_to] = event
            raise
        self._take(outcome)
        if isinstance(event, Asked):
            if not self._is_answered(event, outcome):
                self._open[event.reply_to] = event
        elif outcome.records and not isinstance(event, TimerFired):
            self._unsettled.append((self._applied, event))

    def _put_off(self, event: Event) -> None:
        """While loading: a request is told so, anything else waits, unless others see to it."""
        if isinstance(event, Asked):
            self.ready.append((event.reply_to, unavailable(event, self._absence)))
        elif self._absence is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._postponed.append(event)

    def _is_answered(self, event: Asked, outcome: Outcome) -> bool:
        """Whether the one reply there is goes to the event itself, and may leave."""
        replies = outcome.replies
        is_own = len(replies) == 1 and replies[0][0] is event.reply_to
        return is_own and self._durable == self._applied

    def fire_due(
        self, now_ms: int, count_max: int | None = None, until_ms: int | None = None
    ) -> None:
        """Fire the timers with deadlines up to ``until_ms``, or now; the first ``count_max``."""
        for key in islice(self.timers.due(now_ms if until_ms is None else until_ms), count_max):
            self.handle(TimerFired(at_ms=now_ms, key=key))

    def _take(self, outcome: Outcome) -> None:
        if outcome.records:
            self.unsent += outcome.records
            self._applied += len(outcome.records)
        for key, deadline_ms in outcome.timers:
            self.timers.set(key, deadline_ms)
        if self._durable == self._applied:
            self.ready += outcome.replies
        else:
            self._held += [(self._applied, ticket, reply) for ticket, reply in outcome.replies]
        if outcome.notices:
            self.notices += outcome.notices

    # The log.

    def take_unsent(self) -> tuple[list[Record], int]:
        """The records to append next, and the mark to give `durable` when they are."""
        records, self.unsent = self.unsent, []
        self._sent += len(records)
        return records, self._sent

    @property
    def mark(self) -> int:
        """The mark of which `durable` will say that all is durable that was applied up to now."""
        return self._applied

    @property
    def is_settled(self) -> bool:
        """Whether it is loaded, and all that came of what nobody asked for, as that topics are
        gone, is durable.
        """
        return self.shard is not None and not (self._postponed or self._unsettled)

    def has_stored(self, mark: int) -> bool:
        """Whether all is durable that was applied up to a mark."""
        return self._durable >= mark

    def durable(self, mark: int) -> None:
        """All records up to ``mark`` are durable: what waited for them may leave."""
        assert self._durable <= mark <= self._sent, "the log confirms what it was not given"
        self._durable = mark
        while self._held and self._held[0][0] <= mark:
            _, ticket, reply = self._held.popleft()
            self.ready.append((ticket, reply))
        while self._unsettled and self._unsettled[0][0] <= mark:
            self._unsettled.popleft()

    # Replies.

    def take_ready(self, count_max: int) -> list[tuple[Ticket, Reply]]:
        """Up to ``count_max`` replies to send now, in order; the rest stays for the next turn."""
        if len(self.ready) <= count_max:
            leaving, self.ready = self.ready, []
        else:
            leaving = self.ready[:count_max]
            del self.ready[:count_max]
        if self._open:
            for ticket, _ in leaving:
                self._open.pop(ticket, None)
        return leaving

    def take_notices(self) -> list[Notice]:
        """What operators may want to know, since the last call."""
        notices, self.notices = self.notices, []
        return notices

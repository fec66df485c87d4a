"""The half of a group member that runs in the user's thread: polls, errors and delivery.

`GroupAssignment`, on the event loop, publishes the state of the member to `GroupPolls`. Each
published field is replaced as a whole, so the user's thread reads it without a lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from partage.client.consumer.errors import NothingAssignedError
from partage.client.errors import ClientError
from partage.client.group.driver import now_ms
from partage.client.group.errors import GroupError
from partage.member.events import CallbackCompleted, Event, Polled
from partage.member.outcome import CallListener, Problem
from partage.member.settings import MemberSettings
from partage.model.topic_partition import TopicPartition

_POLL_EVENT_INTERVAL_MS: Final = 500


class DeliverySnapshot(msgspec.Struct, frozen=True):
    """The partitions that may be delivered, as of ``taken_ms``; it is void when it is too old."""

    deliverable: frozenset[TopicPartition]
    taken_ms: int
    session_ends_ms: int | None


def ownership_changes(
    before: Mapping[TopicPartition, bytes | None], after: Mapping[TopicPartition, bytes | None]
) -> tuple[list[TopicPartition], list[TopicPartition]]:
    """Return the removed and the added partitions; each has its topic id.

    A partition of a topic that was created again is removed and added: its position and its
    records are those of the deleted topic.
    """
    removed = [each for each in before if each not in after or before[each] != after[each]]
    added = [each for each in after if each not in before or before[each] != after[each]]
    return sorted(removed), sorted(added)


class GroupPolls:
    """Polls of the user's thread, and what the event loop publishes for them.

    Args:
        handle: Passes an event to the state machine; called on the event loop only.

    Attributes:
        snapshot: The partitions that may be delivered. Written on the event loop.
        due: The listener callback to run next. Written on the event loop.
        failure: The error that ended the membership; each poll raises it.
        lookup_error: An error of the coordinator lookup; the next poll raises it once.
        errors: The last error of each problem; the next polls raise them, one each.
        is_member: True from a subscription until the member has left.
        is_draining: True from the start of a drain on.
        poll_ended_ms: Time at which the last poll returned.
        is_polling: True while the user is in a poll.
    """

    def __init__(
        self,
        settings: MemberSettings,
        loop: asyncio.AbstractEventLoop,
        handle: Callable[[Event], None],
    ) -> None:
        self._settings = settings
        self._loop = loop
        self._handle = handle
        self.snapshot = DeliverySnapshot(frozenset(), 0, None)
        self.due: CallListener | None = None
        self.failure: Exception | None = None
        self.lookup_error: ClientError | None = None
        self.errors: dict[Problem, GroupError] = {}
        self.is_member = False
        self.is_draining = False
        self.poll_ended_ms = self._poll_event_ms = now_ms()
        self.is_polling = False
        self._completed_serial = -1  # of the last completed callback

    def on_poll(self, *, has_partitions: bool) -> None:
        """Note that the user polls.

        Raises:
            NothingAssignedError: The consumer has neither a subscription nor partitions.
            Exception: A pending error of the member.
        """
        if not self.is_polling:
            self.is_polling = True
            self._send_polled(is_in_poll=True)
        if self.failure is not None:
            raise self.failure
        error, self.lookup_error = self.lookup_error, None
        if error is not None:
            raise error
        for problem in Problem:
            reported = self.errors.pop(problem, None)
            if reported is not None:
                raise reported
        if not self.is_member and not self.is_draining and not has_partitions:
            raise NothingAssignedError

    def on_poll_return(self) -> None:
        """Note that the poll returns; ``max_poll_interval_ms`` counts from now."""
        self.poll_ended_ms = now_ms()
        if self.is_polling:
            self.is_polling = False
            self._send_polled(is_in_poll=False)

    def on_next_record(self) -> None:
        """Note that a record loop delivers its next record, which counts as a poll.

        To limit the load on the event loop, only some of these polls are passed to the state
        machine.
        """
        if self.is_polling:
            self.on_poll_return()
        else:
            self._count_poll()

    def on_commit_wait(self) -> None:
        """Note that a poll waits for a commit before it delivers records; it counts as a poll."""
        if not self.is_polling:
            self._count_poll()

    def _count_poll(self) -> None:
        self.poll_ended_ms = now_ms()
        if self.poll_ended_ms - self._poll_event_ms > _POLL_EVENT_INTERVAL_MS:
            self._send_polled(is_in_poll=True)
            self._send_polled(is_in_poll=False)

    @property
    def ms_since_poll(self) -> int:
        """Time since the last poll returned, in ms; 0 during a poll."""
        return 0 if self.is_polling else now_ms() - self.poll_ended_ms

    @property
    def due_callback(self) -> CallListener | None:
        """The listener callback to run now, or None. A newer one may replace it at any time."""
        due = self.due
        return None if due is None or due.serial == self._completed_serial else due

    def callback_done(self, call: CallListener) -> None:
        """Note that a listener callback has run, with or without an error."""
        self._completed_serial = call.serial
        self.handle_soon(CallbackCompleted(at_ms=now_ms(), serial=call.serial))

    def may_deliver(self, partition: TopicPartition) -> bool:
        """True if records of the partition may be delivered, as far as is known locally."""
        if not self.is_member:
            return True
        snapshot = self.snapshot
        if partition not in snapshot.deliverable:
            return False
        at_ms, settings = now_ms(), self._settings
        if at_ms - snapshot.taken_ms >= settings.session_timeout_ms:
            return False  # The event loop did not run for a session; it must check first.
        if snapshot.session_ends_ms is not None and at_ms >= snapshot.session_ends_ms:
            return False
        longest_ms = settings.max_poll_interval_ms
        away_ms = 0 if self.is_polling else at_ms - self.poll_ended_ms
        return longest_ms is None or away_ms < longest_ms

    def handle_soon(self, event: Event) -> None:
        """Pass an event to the state machine. It never blocks, so any thread may call it."""
        with suppress(RuntimeError):  # the event loop was closed
            self._loop.call_soon_threadsafe(self._handle, event)

    def _send_polled(self, *, is_in_poll: bool) -> None:
        self._poll_event_ms = now_ms()
        self.handle_soon(Polled(at_ms=self._poll_event_ms, is_in_poll=is_in_poll))

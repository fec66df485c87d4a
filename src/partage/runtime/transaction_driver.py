"""Runs one shard of the transaction coordinator."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from partage.model.errors import ErrorCode
from partage.runtime.shard_driver import ShardDriver, ShardOutcome
from partage.transactions import replies
from partage.transactions.events import (
    MarkersWritten,
    TransactionRequest,
    TransactionTimerFired,
)
from partage.transactions.outcome import MarkersToWrite, TransactionOutcome
from partage.transactions.records import TransactionLogRecord
from partage.transactions.replies import TransactionReply
from partage.transactions.shard import TransactionShard


class TransactionDriver(ShardDriver[TransactionShard, TransactionLogRecord, TransactionReply]):
    """The driver of a transaction coordinator's shard.

    A shell also checks ``markers`` after each call: their decisions are durable.

    Args:
        wall_offset_ms: returns the system time minus the time of events, in milliseconds.
    """

    request_types = (TransactionRequest,)
    timer_type = TransactionTimerFired
    # After loading, the markers of each decided transaction are ordered again.
    unrepeated_types = (TransactionTimerFired, MarkersWritten)
    error_reply = staticmethod(replies.error_reply)
    replace_with_error = staticmethod(replies.replace_with_error)

    def __init__(self, wall_offset_ms: Callable[[], int] = lambda: 0) -> None:
        super().__init__()
        self._wall_offset_ms = wall_offset_ms
        self.markers: list[MarkersToWrite] = []
        # with the mark that they wait for
        self._deferred_markers = deque[tuple[int, MarkersToWrite]]()

    def activate(self, shard: TransactionShard, at_ms: int) -> None:
        """Start to serve ``shard``, which has applied its whole log."""
        shard.wall_offset_ms = self._wall_offset_ms()
        super().activate(shard, at_ms)

    def handle(self, event: Any) -> None:
        """Hand an event to the shard and apply its outcome."""
        if self.shard is not None:
            self.shard.wall_offset_ms = self._wall_offset_ms()
        super().handle(event)

    def _apply_notices(self, outcome: ShardOutcome) -> None:
        assert isinstance(outcome, TransactionOutcome)
        self._deferred_markers += [(self.applied_mark, markers) for markers in outcome.markers]
        self._release_markers()

    def on_durable(self, mark: int) -> None:
        """Release the replies and markers that waited for the records up to ``mark``."""
        super().on_durable(mark)
        self._release_markers()

    def _release_markers(self) -> None:
        while self._deferred_markers and self.is_durable(self._deferred_markers[0][0]):
            self.markers.append(self._deferred_markers.popleft()[1])

    def fail(self, error: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> None:
        """Discard the shard. After loading, it orders the markers of all decisions again."""
        super().fail(error)
        self.markers.clear()
        self._deferred_markers.clear()

    def pop_markers(self) -> list[MarkersToWrite]:
        """Remove and return the markers to write."""
        markers, self.markers = self.markers, []
        return markers

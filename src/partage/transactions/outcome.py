"""The outcome of an event, and the contract with the driver."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from partage.model.settings import TransactionSettings
from partage.model.topic_partition import TopicPartition
from partage.statemachine.context import TimerContext
from partage.transactions.records import TransactionLogRecord
from partage.transactions.replies import TransactionReply
from partage.transactions.timers import TransactionTimerKey


class MarkersToWrite(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The markers of one transaction.

    The shell reports each marker once with `MarkersWritten`. It must drop reports for a shard that
    was discarded since: two transactions of a client from before KIP-890 have the same epoch.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    is_commit: bool
    version: int
    partitions: tuple[TopicPartition, ...]


class TransactionOutcome:
    """The effects of one event. The driver carries them out in this order:

    1. ``records`` are already applied to the shard. Append them to its log, in order.
    2. ``timers`` are armed, or cancelled if the deadline is None, in order.
    3. ``replies`` are sent, and ``markers`` are written, only when every record applied so far is
       durable. This includes replies to reads. A marker before its durable decision could
       contradict the decision after a crash.

    If an append fails, the driver discards the shard, answers all open requests with an error, and
    loads the shard from its log again.
    """

    __slots__ = ("markers", "records", "replies", "timers")

    def __init__(self) -> None:
        self.records: list[TransactionLogRecord] = []
        self.timers: list[tuple[TransactionTimerKey, int | None]] = []
        self.replies: list[tuple[object, TransactionReply]] = []
        self.markers: list[MarkersToWrite] = []


class TransactionContext(TimerContext[TransactionTimerKey], TransactionOutcome):
    """The outcome of an event under way, with the settings and the time of the event.

    Attributes:
        at_ms: the time of the event, for timers.
        wall_ms: the system time, for durable state. It may jump.
        settings: the transaction settings.
    """

    __slots__ = ("_apply", "at_ms", "settings", "wall_ms")

    def __init__(
        self,
        at_ms: int,
        wall_ms: int,
        settings: TransactionSettings,
        apply: Callable[[TransactionLogRecord], None],
    ) -> None:
        super().__init__()
        self.at_ms = at_ms
        self.wall_ms = wall_ms
        self.settings = settings
        self._apply = apply

    def write(self, record: TransactionLogRecord) -> None:
        """Apply a record and add it to the records to append."""
        self._apply(record)
        self.records.append(record)

    def reply(self, ticket: object, reply: TransactionReply) -> None:
        """Reply to a ticket once all records written so far are durable."""
        self.replies.append((ticket, reply))

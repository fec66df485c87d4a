"""History of a world as an outside observer could record it: wire, disk and deliveries.

Checkers use only the history, and `trace` prints it. Messages are decoded from the frames that
crossed the simulated network. Records are those that were written.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from partage.lab.offset_log import LogChange
from partage.model.topic_partition import TopicPartition
from partage.wire.types import Message

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # address of a memoryview of record batches


class HistoryEntry(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Base class of history entries; the event occurred at ``at_ms``."""

    at_ms: int


class RequestReceived(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A broker read a request whose bytes had arrived at ``arrived_ms``.

    ``broker_ms`` is ``at_ms`` on the clock of the broker's process, which gives the time to events.
    """

    arrived_ms: int
    broker_ms: int
    broker: int = 1
    is_loaded: bool  # the broker has loaded the group from its store
    serial: int
    connection: int
    client: str
    api_key: int
    version: int
    message: Message


class ResponseSent(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A response left the broker. It may not arrive."""

    request: RequestReceived
    message: Message


class RecordsAppended(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """Records were handed to the coordinator's log; ``pairs`` are their encoded keys and values.

    The records of transactions are the changes that `partage.lab.offset_log` decodes. ``broker_ms``
    is the time of the event on the clock of the broker's process, from which the times in records
    come.
    """

    broker_ms: int
    broker: int = 1
    shard: int = 0
    records: tuple[LogChange, ...]
    pairs: tuple[tuple[bytes, bytes | None], ...]


class RecordsDurable(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """The first ``count`` of a broker's unconfirmed records are durable."""

    broker: int = 1
    shard: int = 0
    count: int


class LogWriteFailed(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A write to the coordinator's log failed. Unconfirmed records stay in doubt until the next
    load.
    """

    broker: int = 1
    shard: int = 0


class ShardResigned(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A broker dropped a shard's groups: another broker owns the shard, or may own it."""

    broker: int
    shard: int


class ShardAcquired(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A broker acquired a shard in this epoch and starts to load it."""

    broker: int
    shard: int
    epoch: int


class BrokerDied(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A broker process ended."""

    broker: int = 1
    cause: str


class ShardLoaded(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A broker loaded a shard; ``state`` is the last value of each key in its store.

    ``epoch`` increases with each takeover. Another broker may own the shard by now.
    """

    broker: int = 1
    shard: int = 0
    epoch: int = 0
    state: dict[bytes, bytes | None]


class ZooKeeperAnswered(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """The leader of ZooKeeper answered a broker, which sent the request at ``sent_ms``.

    A session that the leader heard of at that time ends at ``session_until_ms`` or later.
    """

    broker: int
    sent_ms: int
    session_until_ms: int


class ZooKeeperSessionExpired(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """ZooKeeper's leader ended the session of a running broker. Another one may take its shards."""

    broker: int


class RegistrationRemoved(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """An operator removed the registration of a broker, whose session lives.

    Another broker may take its shards at once, before it learns of the removal.
    """

    broker: int


class RegistrationMissed(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A broker received a list of the registered brokers in which it is missing.

    It gives up its shards before ``gives_up_by_ms``.
    """

    broker: int
    gives_up_by_ms: int


class TopicDeleted(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A topic was deleted and created again immediately."""

    topic: str


class TopicDeletionApplied(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A broker notified its shards that a topic was deleted."""

    broker: int
    topic: str


class PartitionReread(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """All records of a partition at the end of a world: offsets and values, in order.

    ``first`` is the log start offset, ``end`` the end offset.
    """

    partition: TopicPartition
    first: int
    end: int
    records: tuple[tuple[int, bytes], ...]


class SegmentContent(NamedTuple):
    """The batches in a segment file of a log."""

    base_offset: int
    content: bytes


class LogCompacted(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A log was compacted, or opened again after a compaction was interrupted.

    ``before`` and ``after`` are all segments, as they were written. ``tail`` are the batches that
    were appended before, and may not be written. ``is_complete`` is False if the log noted no new
    progress of compaction. The other fields are those at the begin, ``began_ms`` on the wall clock
    of the broker: ``active_segment`` is the base offset of the segment with the high watermark.
    """

    broker: int = 1
    partition: TopicPartition
    before: tuple[SegmentContent, ...]
    after: tuple[SegmentContent, ...]
    tail: bytes = b""
    high_watermark: int
    active_segment: int
    delete_retention_ms: int
    min_compaction_lag_ms: int = 0
    began_ms: int
    is_complete: bool = True


class StallEnded(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A broker resumed after a pause that began at ``began_ms``. All processes paused if ``broker``
    is None.
    """

    broker: int | None = None
    began_ms: int


class WallClockStepped(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """The wall clock of a broker's machine stepped.

    ``difference_ms`` is this clock minus the virtual time from now on.
    """

    broker: int
    difference_ms: int


class OwnershipChanged(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A consumer process owns these partitions from now on, as far as it knows."""

    process: str
    group_id: str
    member_id: str
    generation: int
    partitions: tuple[TopicPartition, ...]


class MemberOwnershipChanged(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A member with the consumer protocol owns these partitions from now on, as far as it knows.

    Partitions have the id of their topic.
    """

    process: str
    group_id: str
    member_id: str
    epoch: int
    partitions: tuple[tuple[bytes, int], ...]


class MemberAssignmentReceived(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A response with this assignment arrived at a member with the consumer protocol."""

    process: str
    partitions: tuple[tuple[bytes, int], ...]


class MemberHeartbeatSent(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A member with the consumer protocol sent a heartbeat.

    ``reports_change`` is False if the heartbeat only shows that the member lives. ``owned`` are the
    partitions that it reports, None for none. ``topics`` and ``regex`` are the subscription of the
    user, whether or not the heartbeat has it.
    """

    process: str
    reports_change: bool
    serial: int = 0
    epoch: int = 1
    owned: tuple[tuple[bytes, int], ...] | None = None
    topics: tuple[str, ...] = ()
    regex: str | None = None


class MemberHeartbeatAnswered(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """The response to a heartbeat arrived at a member with the consumer protocol.

    ``topics`` and ``regex`` are the subscription of the user now.
    """

    process: str
    member_id: str
    serial: int
    error_code: int = 0
    topics: tuple[str, ...] = ()
    regex: str | None = None


class MemberMayDeliver(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """From now on a member with the consumer protocol allows records of these partitions.

    Its user may deliver them at any time, and does so rarely. ``is_paused`` is True while the
    process does not run.
    """

    process: str
    member_id: str
    partitions: tuple[tuple[bytes, int], ...]
    is_paused: bool = False


class MemberDisconnected(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A member with the consumer protocol lost the connection to its coordinator, or closed it."""

    process: str


class MemberLeaveRequested(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """The user of a member with the consumer protocol leaves, by a heartbeat with this epoch."""

    process: str
    epoch: int


class MemberLeft(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A member with the consumer protocol told its user that it has left the group.

    ``has_coordinator`` is True if it was connected to its coordinator.
    """

    process: str
    has_coordinator: bool


class MemberDelivered(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A member with the consumer protocol gave its user a record of each of these partitions.

    Partitions have the id of their topic.
    """

    process: str
    member_id: str
    epoch: int
    partitions: tuple[tuple[bytes, int], ...]


class ConsumerTopicsChanged(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """The topics of members with the consumer protocol: name, id and partition count of each.

    ``is_known`` is False while a broker that runs does not know them all.
    """

    topics: tuple[tuple[str, bytes, int], ...]
    is_known: bool = True


class CallbackDue(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A callback of a consumer's listener is due: assigned, revoked or lost."""

    process: str
    call: str
    partitions: tuple[TopicPartition, ...]


class RecordsDelivered(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A consumer process delivered records to its user: offsets and values, in order."""

    process: str
    group_id: str
    partition: TopicPartition
    records: tuple[tuple[int, bytes], ...]


class RecordProduced(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A producer received the acknowledgement that a record is at this offset."""

    partition: TopicPartition
    offset: int
    value: bytes


class BatchAppended(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A batch of the topic of transactional producers was handed to its log.

    ``marker`` is None for records, True for a commit marker and False for an abort marker.
    ``coordinator_epoch`` is that of a marker. ``base_sequence`` is -1 if the batch has none.
    """

    partition: TopicPartition
    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    is_transactional: bool
    marker: bool | None
    coordinator_epoch: int | None = None
    base_sequence: int = -1
    values: tuple[bytes, ...]


class TransactionalIdExpired(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """The removal of an unused transactional id was handed to the log.

    ``changed_ms`` is the time of its last record, None if a load has restored none. ``wall_ms`` is
    the wall clock of the coordinator.
    """

    wall_ms: int
    transactional_id: str
    changed_ms: int | None


class LogOpened(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A log of that topic was opened; batches from ``end_offset`` on were lost."""

    partition: TopicPartition
    end_offset: int


class OffsetsMarkerDurable(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A marker is durable in the log of a group shard that the broker owns in ``shard_epoch``."""

    broker: int
    shard: int
    shard_epoch: int
    producer_id: int
    producer_epoch: int = 0
    coordinator_epoch: int


class TransactionEnding(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A transactional producer is about to send its first EndTxn of a transaction.

    ``values`` are the acknowledged records. ``consumed`` is the range of offsets that the
    transaction consumed from its input for the group ``group_id``, None without offsets.
    """

    process: str
    tag: bytes
    is_commit: bool
    values: tuple[tuple[TopicPartition, bytes], ...]
    consumed: tuple[TopicPartition, int, int] | None
    group_id: str


class TransactionEnded(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A transactional producer received the result of an EndTxn, or knows that it sent none."""

    process: str
    tag: bytes
    is_commit: bool


class TransactionShardLoaded(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A broker loaded a shard of the transaction coordinator. On a single broker there is one."""

    broker: int = 1


class TransactionShardDropped(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A broker dropped a shard of the transaction coordinator, as after a failed write."""

    broker: int = 1


class DecisionAppended(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """The coordinator hands the decision about a transaction to its log."""

    transactional_id: str
    producer_id: int
    epoch: int


class DecisionDurable(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """The decision about a transaction is durable; ``epoch`` is that of its markers."""

    transactional_id: str
    producer_id: int
    epoch: int
    is_commit: bool


class CompletionAppended(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """The coordinator hands the end of a transaction to its log; all markers are written.

    ``epoch`` is that of the markers, ``producer_id`` that of the transaction. ``serial`` tells the
    attempts apart: one of a former coordinator fails.
    """

    serial: int
    transactional_id: str
    producer_id: int
    epoch: int


class CompletionDurable(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """The end of a transaction is durable; ``serial`` is that of its `CompletionAppended`."""

    serial: int


class OutputReread(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """All batches of a partition of that topic at the end of a world, in order."""

    partition: TopicPartition
    batches: tuple[BatchAppended, ...]


class MemberExpired(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """The coordinator reported to operators that it removed a member for missing a deadline."""

    broker: int = 1
    group_id: str
    member_id: str
    reason: str


class Incident(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """A fault, or another event that only the trace shows."""

    what: str
    detail: str = ""


class FaultsHealed(HistoryEntry, frozen=True, gc=False, kw_only=True):
    """All faults were healed, and no further fault is injected."""


class MarkerPause(NamedTuple):
    """A planned pause of a broker before it sends a marker to another one.

    ``at_ms`` and ``for_ms`` are times after its beginning; ``at_ms`` is that of ``call``.
    """

    for_ms: int
    at_ms: int
    call: Callable[[], None]


class SimMarker(NamedTuple):
    """A marker for one partition; ``coordinator_epoch`` is None on a single broker."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    is_commit: bool
    version: int  # of the transaction


class CrashPoint(NamedTuple):
    """A planned broker crash, before or after a record that ``matches`` is stored.

    ``kind`` is the name of the fault.
    """

    kind: str
    is_after_storing: bool
    matches: Callable[[Any], bool]


class RuleViolationError(AssertionError):
    """A broken rule; ``rule`` is the name of the checker."""

    def __init__(self, rule: str, description: str) -> None:
        super().__init__(f"{rule}: {description}")
        self.rule = rule
        self.description = description


class History:
    """All entries of a world, in order. Subscribers receive each entry of their kind."""

    def __init__(self) -> None:
        self.entries: list[HistoryEntry] = []
        #: The first rule that a listener found broken, or the first exception that a broker logged.
        #: It counts even if it ends a task of the broker that no code awaits.
        self.failure: Exception | None = None
        self._listeners: dict[type[HistoryEntry], list[Callable[[Any], None]]] = defaultdict(list)

    def subscribe(self, kind: type[HistoryEntry], listener: Callable[[Any], None]) -> None:
        """Call ``listener`` with each later entry of exactly this class."""
        self._listeners[kind].append(listener)

    def append(self, entry: HistoryEntry) -> None:
        """Append an entry and notify its subscribers.

        Raises:
            RuleViolationError: A subscriber found a broken rule.
        """
        self.entries.append(entry)
        try:
            for listener in self._listeners[type(entry)]:
                listener(entry)
        except RuleViolationError as violation:
            self.failure = self.failure or violation
            raise

    def digest(self) -> str:
        """Return a fingerprint of the history. The same seed gives the same fingerprint."""
        digest = hashlib.blake2b(digest_size=16)
        for entry in self.entries:
            digest.update(_ADDRESS.sub("", repr(entry)).encode())
        return digest.hexdigest()

"""Rules about whole transactions: their records and offsets take effect all, or none.

- ``decision``: A marker follows a durable decision of the coordinator, and a commit marker an
  EndTxn that commits. A commit marker ends no record that was written after the decision. In one
  epoch of a producer that speaks KIP-890, all markers are equal. An EndTxn succeeds only if the
  last durable decision is the one that it asked for.
- ``lost-write``: If a commit was acknowledged, all acknowledged records of the transaction are
  committed.
- ``G1a``: If a transaction was aborted, or its commit was never sent, none of its records is
  committed.
- ``torn-transaction``: In doubt, all its records are committed, or none. Its offsets are stored
  exactly if its records are committed.
- ``duplicate``: No record is committed twice.
- ``int-nonmonotonic-send``: The records of a transaction are in order in each partition.
- ``exactly-once``: Each input record of a loop up to the committed offset has one committed result.

``lost-write``, ``duplicate`` and ``int-nonmonotonic-send`` are names of Jepsen's workload for
Kafka, and ``torn-transaction`` is one of its reports.

All except the first are checked at the end, in the logs as they are on the disk.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from partage.coordinator.records import OffsetRecord
from partage.lab.checkers.ledger import Ledger
from partage.lab.checkers.output_ledger import number_of, source_of, tag_of
from partage.lab.history import (
    BatchAppended,
    DecisionDurable,
    History,
    LogOpened,
    OutputReread,
    RequestReceived,
    ResponseSent,
    RuleViolationError,
    TransactionEnding,
)
from partage.lab.names import INPUT_TOPIC, LOOP_GROUP, OUTPUT_PARTITIONS, TRANSACTIONAL_GROUP
from partage.lab.offset_log import LogChange
from partage.model.settings import GroupSettings
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.end_txn import EndTxnRequest, EndTxnResponse
from partage.wire.apis.offset_fetch import OffsetFetchResponse

_NEW_EPOCH_VERSION = 5
_GROUPS = (TRANSACTIONAL_GROUP, LOOP_GROUP)
#: A partition, as a group reads it.
_GroupPartition = tuple[str, TopicPartition]


class AtomicityChecker:
    """Tracks the decisions of producers, and judges their transactions at the end."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._outputs = ledger.outputs
        # epochs of markers that an EndTxn allows to commit, by producer id
        self._commits: set[tuple[int, int]] = set()
        self._new_epochs: set[tuple[int, int]] = set()
        self._markers: dict[tuple[int, int], bool] = {}
        self._durable: set[tuple[int, int, bool]] = set()  # decisions
        self._last_decisions: dict[tuple[int, int], bool] = {}
        # the number of the last entry: of a commit decision, and of records in open transactions,
        # with their offsets
        self._entries = 0
        self._last_commits: dict[tuple[int, int], int] = {}
        self._open_records: dict[tuple[TopicPartition, int], list[tuple[int, int]]] = {}
        self._stored_tags: set[bytes] = set()  # of transactions whose offsets were stored
        self._offsets: dict[_GroupPartition, int] = {}  # stored, or shown later
        self._committed: dict[TopicPartition, list[tuple[int, bytes]]] = {}
        history.subscribe(RequestReceived, self._on_request)
        history.subscribe(ResponseSent, self._on_response)
        history.subscribe(BatchAppended, self._on_batch)
        history.subscribe(LogOpened, self._on_opened)
        history.subscribe(DecisionDurable, self._on_decision)
        history.subscribe(OutputReread, self._on_reread)
        ledger.on_durable(self._store)

    def _on_request(self, entry: RequestReceived) -> None:
        message = entry.message
        if isinstance(message, EndTxnRequest):
            is_new = entry.version >= _NEW_EPOCH_VERSION
            decided = message.producer_id, message.producer_epoch + is_new
            if message.committed:
                self._commits.add(decided)

    def _on_decision(self, entry: DecisionDurable) -> None:
        self._durable.add((entry.producer_id, entry.epoch, entry.is_commit))
        self._last_decisions[entry.producer_id, entry.epoch] = entry.is_commit
        self._entries += 1
        if entry.is_commit:
            self._last_commits[entry.producer_id, entry.epoch] = self._entries

    def _on_batch(self, entry: BatchAppended) -> None:
        self._entries += 1
        written = entry.partition, entry.producer_id
        if entry.marker is None:
            if entry.is_transactional:
                records = self._open_records.setdefault(written, [])
                records.append((self._entries, entry.base_offset))
            return
        decided = entry.producer_id, entry.producer_epoch
        if (*decided, entry.marker) not in self._durable:
            raise RuleViolationError("decision", f"no durable decision has the marker {entry}")
        if entry.marker and decided not in self._commits:
            raise RuleViolationError("decision", f"no EndTxn allows the commit marker {entry}")
        records = self._open_records.pop(written, [])
        if entry.marker and records and records[-1][0] > self._last_commits[decided]:
            raise RuleViolationError(
                "decision", f"{entry} ends records that were written after the decision"
            )
        is_new = decided in self._new_epochs
        if is_new and self._markers.setdefault(decided, entry.marker) is not entry.marker:
            raise RuleViolationError("decision", f"{entry} contradicts an earlier marker")

    def _on_opened(self, entry: LogOpened) -> None:
        """Forget records that were lost."""
        for (partition, _), records in self._open_records.items():
            while partition == entry.partition and records and records[-1][1] >= entry.end_offset:
                records.pop()

    def _store(self, record: LogChange) -> None:
        if (
            isinstance(record, OffsetRecord)
            and record.group_id in _GROUPS
            and record.topic == INPUT_TOPIC
        ):
            self._stored_tags.add(record.metadata.encode())
            place = TopicPartition(record.topic, record.partition)
            self._offsets[record.group_id, place] = record.offset

    def _on_response(self, entry: ResponseSent) -> None:
        message = entry.message
        if isinstance(message, EndTxnResponse) and not message.error_code:
            self._judge_end(entry.request)
        if isinstance(message, OffsetFetchResponse):
            for group in message.groups:
                if group.group_id in _GROUPS and not group.error_code:
                    self._note_offsets(group)

    def _judge_end(self, request: RequestReceived) -> None:
        asked: Any = request.message
        is_new = request.version >= _NEW_EPOCH_VERSION
        identity = asked.producer_id, asked.producer_epoch + is_new
        if is_new:  # after a refused request, an older client may get this epoch
            self._new_epochs.add(identity)
        decided = self._last_decisions.get(identity)
        if decided not in (None, asked.committed):
            raise RuleViolationError(
                "decision", f"{asked} succeeded, but the other decision was stored before"
            )

    def _note_offsets(self, group: Any) -> None:
        for topic in group.topics:
            for p in topic.partitions:
                if not p.error_code:
                    place = TopicPartition(topic.name, p.partition_index)
                    self._offsets[group.group_id, place] = max(p.committed_offset, 0)

    # At the end

    def _on_reread(self, entry: OutputReread) -> None:
        log = self._outputs.logs[entry.partition]
        removable = {b.entry.base_offset for b in log.batches if log.may_be_removed(b)}
        known, found = (
            [_facts(batch) for batch in batches if batch.base_offset not in removable]
            for batches in ([batch.entry for batch in log.batches], entry.batches)
        )
        if known != found:
            different = [pair for pair in zip(known, found, strict=False) if pair[0] != pair[1]]
            raise RuleViolationError(
                "lost-write",
                f"{entry.partition} has {len(found)} batches instead of {len(known)}, or other "
                f"ones: {different[:1]}",
            )
        self._committed[entry.partition] = [
            record
            for batch in self._outputs.logs[entry.partition].batches
            if batch.is_committed
            for record in batch.records()
        ]
        if len(self._committed) == OUTPUT_PARTITIONS:
            self._judge()

    def _judge(self) -> None:
        by_tag: dict[bytes, list[tuple[TopicPartition, bytes]]] = defaultdict(list)
        for partition, records in self._committed.items():
            for _, value in records:
                by_tag[tag_of(value)].append((partition, value))
        for tag, written in by_tag.items():
            _check_order(tag, written)
            if not tag.startswith(b"plain"):
                self._judge_committed(tag, written)
        for tag, ending in self._outputs.endings.items():
            if tag not in by_tag:
                self._judge_uncommitted(tag, ending)
        self._judge_results()

    def _judge_committed(self, tag: bytes, written: list[tuple[TopicPartition, bytes]]) -> None:
        ending, ended = self._outputs.endings.get(tag), self._outputs.ended.get(tag)
        if ending is None or not ending.is_commit or (ended is not None and not ended.is_commit):
            raise RuleViolationError("G1a", f"{written} are committed, but {tag!r} was aborted")
        missing = set(ending.values) - set(written)
        if missing:
            rule = "torn-transaction" if ended is None else "lost-write"
            raise RuleViolationError(rule, f"{missing} are not committed, others of {tag!r} are")
        if ending.consumed is not None and tag not in self._stored_tags:
            raise RuleViolationError(
                "torn-transaction", f"the records of {tag!r} are committed, but its offsets are not"
            )

    def _judge_uncommitted(self, tag: bytes, ending: TransactionEnding) -> None:
        ended = self._outputs.ended.get(tag)
        if ended is not None and ended.is_commit:
            raise RuleViolationError(
                "lost-write", f"the commit of {tag!r} was acknowledged, but it is not committed"
            )
        if tag in self._stored_tags:
            raise RuleViolationError(
                "torn-transaction", f"the offsets of {tag!r} are committed, but its records are not"
            )

    def _judge_results(self) -> None:
        """Check that each input record up to the committed offset of a group has one result."""
        results: dict[_GroupPartition, Counter[int]] = defaultdict(Counter)
        for records in self._committed.values():
            for _, value in records:
                source, ending = source_of(value), self._outputs.endings.get(tag_of(value))
                if source is not None and ending is not None and ending.consumed is not None:
                    results[ending.group_id, ending.consumed[0]][source] += 1
        for place, counts in results.items():
            end = self._offsets.get(place, 0)
            wrong = [at for at in range(max(end, *counts) + 1) if counts[at] != (at < end)]
            # Two transactional ids may read one partition; each result is written by one of them.
            if wrong:
                raise RuleViolationError(
                    "exactly-once",
                    f"{place} is committed up to {end}, but offset {wrong[0]} has "
                    f"{counts[wrong[0]]} committed results",
                )


def _facts(batch: BatchAppended) -> tuple[object, ...]:
    return (
        batch.base_offset,
        batch.last_offset,
        batch.producer_id,
        batch.producer_epoch,
        batch.marker,
        batch.values,
    )


def _check_order(tag: bytes, written: list[tuple[TopicPartition, bytes]]) -> None:
    numbers: dict[TopicPartition, list[int]] = defaultdict(list)
    for partition, value in written:
        numbers[partition].append(number_of(value))
    for partition, found in numbers.items():
        if len(set(found)) < len(found):
            raise RuleViolationError("duplicate", f"{tag!r} wrote {found} to {partition}")
        if found != sorted(found):
            raise RuleViolationError(
                "int-nonmonotonic-send", f"{tag!r} wrote {found} to {partition}"
            )

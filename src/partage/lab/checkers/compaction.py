"""Rule ``compaction``: a compaction keeps exactly what Kafka keeps.

The rule compares the segments before and after each compaction. It decodes the batches itself and
follows the log order; it knows neither the producer state nor the indexes of the product.

- Segments from the active one on, from the last stable offset on, or with a record that is younger
  than ``min.compaction.lag.ms`` do not change.
- Before them, the last record of each key stays at its offset. Records of aborted transactions are
  removed and supersede none. Older records and records without a key are removed.
- A tombstone stays for ``delete.retention.ms`` after the first compaction that saw it.
- A batch without records stays only if it is the last one of its producer: it has the sequence that
  the next batch must continue (KIP-98).
- A marker stays while the log has batches of its transaction, and for ``delete.retention.ms`` after
  the first compaction that saw none (KIP-534). If a producer has no batch with its last epoch, the
  marker stays that fences the earlier epochs.
- A compaction that was interrupted took place completely, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from partage.lab.checkers.ledger import Ledger
from partage.lab.history import History, LogCompacted, RuleViolationError, SegmentContent
from partage.lab.offset_log import (
    marker_age_ms,
    marker_coordinator_epoch,
    marker_type,
)
from partage.model.settings import GroupSettings
from partage.model.topic_partition import TopicPartition
from partage.wire.primitives import MalformedError
from partage.wire.records.batch import BatchHeader, checksum, whole_batches
from partage.wire.records.columns import RecordTuple
from partage.wire.records.decoder import decode_records

_COMMIT: Final = 1
_HORIZON_FLAG: Final = 0x40  # the base timestamp is the delete horizon (KIP-534)
_HORIZON_MAX_MS: Final = 1 << 62
#: Not every compaction notes its time, so tombstones may stay longer by this part of the retention.
_LATE_SHARE: Final = 16

_Place = tuple[int, TopicPartition]


class _Batch:
    """A stored batch. ``is_aborted`` is None while its transaction is open."""

    __slots__ = ("content", "header", "is_aborted", "records")

    def __init__(self, content: bytes, header: BatchHeader) -> None:
        self.content = content
        self.header = header
        self.is_aborted: bool | None = None if header.is_transactional else False
        self.records: Sequence[RecordTuple] = ()
        if not header.is_control:
            self.records = decode_records(content, 0)


class _Segment(NamedTuple):
    """A segment, its end offset and its batches."""

    base_offset: int
    end_offset: int
    content: bytes
    batches: list[_Batch]


class _Run(NamedTuple):
    """A compaction of the offsets before ``end_offset``."""

    at_ms: int
    end_offset: int


class _Log:
    """The history of a log's compactions."""

    def __init__(self) -> None:
        self.runs: list[_Run] = []
        #: The delete horizon of each marker whose transaction has no batches left, by offset.
        self.horizons_ms: dict[int, int] = {}


class CompactionChecker:
    """Checks each compaction of each log."""

    def __init__(
        self,
        history: History,
        ledger: Ledger | None = None,
        settings: GroupSettings | None = None,
    ) -> None:
        self._logs: dict[_Place, _Log] = {}
        history.subscribe(LogCompacted, self._on_compacted)

    def _on_compacted(self, entry: LogCompacted) -> None:
        log = self._logs.setdefault((entry.broker, entry.partition), _Log())
        comparison = _Comparison(entry, log)
        try:
            comparison.judge()
        except MalformedError as error:
            raise comparison.violation(f"a batch cannot be decoded: {error}") from error


class _Comparison:
    """The comparison of a log before and after one compaction."""

    def __init__(self, entry: LogCompacted, log: _Log) -> None:
        self._entry = entry
        self._log = log
        # a run after the present, because the wall clock was set back since: at the present
        log.runs = [run._replace(at_ms=min(run.at_ms, entry.began_ms)) for run in log.runs]
        self._segments = list(_decode_segments(entry.before))
        self._batches = [batch for segment in self._segments for batch in segment.batches]
        end_offset = self._batches[-1].header.next_offset if self._batches else 0
        self._tail = [
            batch for batch in _decode_batches(entry.tail) if batch.header.base_offset >= end_offset
        ]
        self._open = _decide_transactions(
            batch for batch in self._batches if batch.header.base_offset < entry.high_watermark
        )
        self._cleaned = self._cleanable_segments()
        self._cleaned_to = self._cleaned[-1].end_offset if self._cleaned else 0

    def violation(self, problem: str) -> RuleViolationError:
        """Return the error for a problem."""
        entry = self._entry
        place = f"{entry.partition.topic}-{entry.partition.partition} of broker {entry.broker}"
        return RuleViolationError("compaction", f"{place}: {problem}")

    def judge(self) -> None:
        """Raise if the log is not what the compaction must leave."""
        entry = self._entry
        after = list(entry.after)
        if not entry.is_complete:
            self._compare_unchanged(self._segments, after)
            return
        kept = [one for one in after if one.base_offset >= self._cleaned_to]
        unchanged = [one for one in self._segments if one.base_offset >= self._cleaned_to]
        self._compare_unchanged(unchanged, kept)
        stored = list(_decode_segments(after[: len(after) - len(kept)]))
        self._check_order(stored)
        found = {b.header.base_offset: b for segment in stored for b in segment.batches}
        known = {b.header.base_offset for segment in self._cleaned for b in segment.batches}
        for offset in found.keys() - known:
            raise self.violation(f"a batch at {offset} was created")
        self._check_batches(found)
        self._log.runs.append(_Run(entry.began_ms, self._cleaned_to))

    def _cleanable_segments(self) -> list[_Segment]:
        """Return the segments that the compaction must clean."""
        entry = self._entry
        stable_offset = min([entry.high_watermark, *self._open.values()])
        limit = min(stable_offset, entry.active_segment)
        young_ms = entry.began_ms - entry.min_compaction_lag_ms
        old_end = self._log.runs[-1].end_offset if self._log.runs else 0
        cleanable: list[_Segment] = []
        for segment in self._segments:
            newest_ms = max((b.header.max_timestamp_ms for b in segment.batches), default=-1)
            is_young = entry.min_compaction_lag_ms > 0 and newest_ms > young_ms
            if segment.end_offset > limit or (is_young and segment.end_offset > old_end):
                break
            cleanable.append(segment)
        return cleanable

    def _compare_unchanged(
        self, before: Sequence[_Segment], after: Sequence[SegmentContent]
    ) -> None:
        """Raise if segments changed, apart from a lost part that was not durable."""
        durable = self._entry.high_watermark
        for segment in before:
            content = b"".join(b.content for b in segment.batches if b.header.base_offset < durable)
            found = [one.content for one in after if one.base_offset == segment.base_offset]
            if content and not (found and found[0].startswith(content)):
                reason = "is active, unstable or young"
                if not self._entry.is_complete:
                    reason = "belongs to a compaction that was given up"
                raise self.violation(f"the segment {segment.base_offset} {reason}, but it changed")

    def _check_order(self, segments: Sequence[_Segment]) -> None:
        due = 0
        for number, segment in enumerate(segments):
            if segment.base_offset < due:
                raise self.violation(f"the segment {segment.base_offset} overlaps the one before")
            due = segment.base_offset
            following = segments[number + 1 :]
            end = following[0].base_offset if following else self._cleaned_to
            for batch in segment.batches:
                if not due <= batch.header.base_offset < batch.header.next_offset <= end:
                    raise self.violation(
                        f"the batch at {batch.header.base_offset} is not in the order of offsets"
                    )
                due = batch.header.next_offset

    # Batches

    def _check_batches(self, found: dict[int, _Batch]) -> None:
        latest = self._latest_offsets()
        last_batches, last_epochs = self._producers()
        with_data: set[int] = set()
        for segment in self._cleaned:
            for batch in segment.batches:
                header = batch.header
                stored = found.get(header.base_offset)
                if header.is_control:
                    has_data = header.producer_id in with_data
                    with_data.discard(header.producer_id)
                    fences = last_epochs.get(header.producer_id) == header.producer_epoch
                    self._check_marker(batch, stored, is_needed=has_data or fences)
                    continue
                if header.is_transactional:
                    with_data.add(header.producer_id)
                is_last = last_batches.get(header.producer_id) == header.base_offset
                self._check_data(batch, stored, latest, is_last=is_last)

    def _latest_offsets(self) -> dict[bytes, int]:
        """Return the last offset of each key among the records that count."""
        return {
            key: offset
            for segment in self._cleaned
            for batch in segment.batches
            if not batch.is_aborted
            for offset, _, key, _, _ in batch.records
            if key is not None
        }

    def _producers(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return each producer's last batch, and the epochs that only markers have."""
        last_batches: dict[int, int] = {}
        epochs: dict[int, int] = {}
        for batch in (*self._batches, *self._tail):
            header = batch.header
            producer_id = header.producer_id
            if producer_id < 0:
                continue
            if epochs.get(producer_id) != header.producer_epoch:
                last_batches.pop(producer_id, None)
            epochs[producer_id] = header.producer_epoch
            if not header.is_control:
                last_batches[producer_id] = header.base_offset
        return last_batches, {p: e for p, e in epochs.items() if p not in last_batches}

    def _check_data(
        self, batch: _Batch, stored: _Batch | None, latest: dict[bytes, int], *, is_last: bool
    ) -> None:
        header = batch.header
        found = {} if stored is None else {record[0]: record for record in stored.records}
        for record in batch.records:
            self._check_record(record, found.pop(record[0], None), latest, batch)
        if found:
            raise self.violation(f"records at {sorted(found)} were created")
        if stored is None:
            if is_last:
                raise self.violation(
                    f"the batch at {header.base_offset} is missing, but it is the last one of "
                    f"producer {header.producer_id}"
                )
            return
        if not stored.records and not is_last:
            raise self.violation(f"the batch at {header.base_offset} is empty, but not removed")
        if len(stored.records) == len(batch.records):
            is_equal = stored.content == batch.content
        else:
            is_equal = _fields(stored.header) == _fields(header)
        if not is_equal or not _is_valid(stored):
            raise self.violation(f"the batch at {header.base_offset} is not that before")

    def _check_record(
        self,
        record: RecordTuple,
        found: RecordTuple | None,
        latest: dict[bytes, int],
        batch: _Batch,
    ) -> None:
        offset, _, key, value, _ = record
        if batch.is_aborted:
            must_stay, reason = False, "its transaction was aborted"
        elif key is None:
            must_stay, reason = False, "it has no key"
        elif latest[key] > offset:
            must_stay, reason = False, f"{latest[key]} has the same key"
        elif value is not None:
            must_stay, reason = True, "it is the last one of its key"
        else:
            seen_ms = self._seen_ms(offset)
            age_ms = self._entry.began_ms - seen_ms[0] if seen_ms else 0
            must_stay = age_ms < self._entry.delete_retention_ms
            reason = f"it is a tombstone that was first seen {age_ms} ms before"
            if not must_stay and not self._is_late_tombstone(seen_ms):
                return
        if must_stay and found != record:
            state = "is missing" if found is None else "changed"
            raise self.violation(f"the record at {offset} {state}: {reason}")
        if not must_stay and found is not None:
            raise self.violation(f"the record at {offset} was not removed: {reason}")

    def _seen_ms(self, offset: int) -> list[int]:
        """Return the times of the compactions that have seen an offset."""
        return [run.at_ms for run in self._log.runs if run.end_offset > offset]

    def _is_late_tombstone(self, seen_ms: list[int]) -> bool:
        retention_ms = self._entry.delete_retention_ms
        ripe_ms = [at for at in seen_ms if at <= self._entry.began_ms - retention_ms]
        return bool(ripe_ms) and ripe_ms[-1] - ripe_ms[0] >= retention_ms // _LATE_SHARE

    def _check_marker(self, batch: _Batch, stored: _Batch | None, *, is_needed: bool) -> None:
        entry, offset = self._entry, batch.header.base_offset
        horizons_ms = self._log.horizons_ms
        if is_needed:
            if stored is None or stored.content != batch.content:
                state = "is missing" if stored is None else "changed"
                raise self.violation(f"the marker at {offset} {state}, but it is needed")
            return
        if horizons_ms.get(offset, entry.began_ms + 1) <= entry.began_ms:
            if stored is not None:
                raise self.violation(f"the marker at {offset} was not removed in time")
            return
        horizon_ms = min(entry.began_ms + entry.delete_retention_ms, _HORIZON_MAX_MS)
        horizon_ms = horizons_ms.setdefault(offset, horizon_ms)
        if stored is None:
            raise self.violation(
                f"the marker at {offset} is missing {horizon_ms - entry.began_ms} ms too early"
            )
        has_horizon = stored.header.attributes & _HORIZON_FLAG
        if not has_horizon or stored.header.base_timestamp_ms != horizon_ms:
            raise self.violation(f"the marker at {offset} has another delete horizon")
        if _marker_fields(stored) != _marker_fields(batch) or not _is_valid(stored):
            raise self.violation(f"the marker at {offset} is not that before")


def _decode_segments(segments: Sequence[SegmentContent]) -> Iterator[_Segment]:
    """Yield the segments; one that is not the last ends where the next one begins."""
    for number, (base_offset, content) in enumerate(segments):
        batches = list(_decode_batches(content))
        following = segments[number + 1 :]
        last_end = batches[-1].header.next_offset if batches else base_offset
        end_offset = following[0].base_offset if following else last_end
        yield _Segment(base_offset, end_offset, content, batches)


def _decode_batches(content: bytes) -> Iterator[_Batch]:
    for at, header in whole_batches(content):
        yield _Batch(content[at : at + header.size], header)


def _decide_transactions(batches: Iterator[_Batch]) -> dict[int, int]:
    """Decide the batches of transactions that have ended.

    Returns:
        The first offset of each open transaction, by producer.
    """
    undecided: dict[int, list[_Batch]] = {}
    for batch in batches:
        header = batch.header
        if header.is_control:
            is_aborted = marker_type(batch.content) != _COMMIT
            for each in undecided.pop(header.producer_id, ()):
                each.is_aborted = is_aborted
        elif header.is_transactional:
            undecided.setdefault(header.producer_id, []).append(batch)
    return {
        producer_id: open_batches[0].header.base_offset
        for producer_id, open_batches in undecided.items()
    }


def _fields(header: BatchHeader) -> tuple[object, ...]:
    """Return the fields of a batch that do not depend on its records."""
    return (
        header.last_offset_delta,
        header.leader_epoch,
        header.magic,
        header.is_log_append_time,
        header.is_transactional,
        header.is_control,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )


def _marker_fields(batch: _Batch) -> tuple[object, ...]:
    return (
        *_fields(batch.header),
        batch.header.max_timestamp_ms,
        batch.header.base_timestamp_ms + marker_age_ms(batch.content),
        marker_type(batch.content),
        marker_coordinator_epoch(batch.content),
    )


def _is_valid(batch: _Batch) -> bool:
    header, times_ms = batch.header, [record[1] for record in batch.records]
    is_newest_right = not times_ms or max(times_ms) == header.max_timestamp_ms
    return (
        header.crc == checksum(batch.content, 0, header.size)
        and is_newest_right
        and (header.is_control or header.record_count == len(batch.records))
    )

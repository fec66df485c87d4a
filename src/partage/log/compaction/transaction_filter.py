"""The part of compaction that knows transactions (KIP-98, KIP-534).

Data of aborted transactions is dropped. A marker is kept until a compaction finds no more data of
its transaction, and for ``delete.retention.ms`` after that. Meanwhile its batch has a delete
horizon: the time from which it may be dropped.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final

from partage.log.segments.aborted_index import AbortedTransaction
from partage.log.segments.batch_reader import StoredBatch
from partage.wire.primitives import MalformedError, decode_varint, encode_varint
from partage.wire.records.batch import (
    CRC_FROM,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    BatchHeader,
    checksum,
)
from partage.wire.records.transaction_marker import decode_marker

_DELETE_HORIZON: Final = 0x40  # attribute: the base timestamp is the delete horizon
_HORIZON_MAX_MS: Final = 1 << 62  # a larger delete.retention.ms would not fit
_CRC_AT: Final = CRC_FROM - 4


class TransactionFilter:
    """The transactions in the batches of a log. Pass it every batch, from the log's start on.

    Args:
        aborted: The aborted transactions that overlap the batches.
        producer_epochs: Epochs of producers of which only a marker is known. It must stay.
        now_ms: Current time, ms since the epoch.
        retention_ms: ``delete.retention.ms``.
    """

    def __init__(
        self,
        aborted: Sequence[AbortedTransaction],
        producer_epochs: Mapping[int, int],
        now_ms: int,
        retention_ms: int,
    ) -> None:
        self._producer_epochs = producer_epochs
        self._now_ms = now_ms
        self._retention_ms = retention_ms
        self._by_producer: dict[int, list[AbortedTransaction]] = {}
        for one in sorted(aborted, key=lambda one: one.first_offset):
            self._by_producer.setdefault(one.producer_id, []).append(one)
        self._by_marker = {one.last_offset: one for one in aborted}
        self._with_data: set[int] = set()  # producers whose current transaction has data left

    def is_aborted(self, header: BatchHeader) -> bool:
        """True if a batch belongs to an aborted transaction."""
        if not header.is_transactional or header.is_control:
            return False
        found = self._by_producer.get(header.producer_id, ())
        at = bisect_right(found, header.base_offset, key=lambda one: one.first_offset) - 1
        return at >= 0 and header.base_offset < found[at].last_offset

    def aborted_by(self, marker_offset: int) -> AbortedTransaction | None:
        """Return the transaction that a marker aborts, if it had data."""
        return self._by_marker.get(marker_offset)

    def note_data(self, header: BatchHeader) -> None:
        """Note a batch of records, which keeps the marker of its transaction."""
        if header.is_transactional:
            self._with_data.add(header.producer_id)

    def rewrite_marker(self, batch: StoredBatch) -> bytes:
        """Return a control batch as it stays in the log; empty bytes to drop it."""
        header = batch.header
        try:
            marker = decode_marker(header, batch.content)
        except MalformedError:
            marker = None
        if marker is None:
            return batch.content
        if header.producer_id in self._with_data:
            self._with_data.remove(header.producer_id)
            return batch.content
        if self._producer_epochs.get(header.producer_id) == header.producer_epoch:
            return batch.content
        if not header.attributes & _DELETE_HORIZON:
            horizon_ms = min(self._now_ms + self._retention_ms, _HORIZON_MAX_MS)
            return _with_delete_horizon(batch, horizon_ms)
        return b"" if header.base_timestamp_ms <= self._now_ms else batch.content


def _with_delete_horizon(batch: StoredBatch, horizon_ms: int) -> bytes:
    """Return the control batch with a delete horizon. The time of its record does not change."""
    header, content = batch.header, batch.content
    _, at = decode_varint(content, HEADER_SIZE)  # length of the record
    attributes_at, at = at, at + 1
    age_ms, rest_at = decode_varint(content, at)
    time_ms = header.base_timestamp_ms + age_ms
    age = encode_varint(time_ms - horizon_ms)
    body = content[attributes_at:at] + age + content[rest_at:]
    records = encode_varint(len(body)) + body
    changed = header._replace(
        length=HEADER_SIZE - LENGTH_OVERHEAD + len(records),
        attributes=header.attributes | _DELETE_HORIZON,
        base_timestamp_ms=horizon_ms,
    )
    result = bytearray(HEADER.pack(*changed) + records)
    crc = checksum(result, 0, len(result))
    result[_CRC_AT:CRC_FROM] = crc.to_bytes(4, "big")
    return bytes(result)

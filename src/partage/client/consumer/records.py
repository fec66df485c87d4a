"""What a poll hands out: batches of records, decoded when they are first looked at.

A batch is a stretch of what one answer brought of one partition. The whole answer is decoded in
one native call, in the thread that looks, and kept for the stretches that follow.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from partage.client.errors import CorruptRecordsError
from partage.client.metadata import TopicPartition
from partage.wire.primitives import Malformed
from partage.wire.records.columns import OFFSET_MAX, HeaderTuples
from partage.wire.records.decode import decode_columns, decode_records
from partage.wire.types import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

    from partage.client.arrow import ArrowBatchBuilder

#: The columns there are, named as Spark's Kafka connector names them.
COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record. ``timestamp`` is ms since the epoch, -1 where there is none.

    ``timestamp_type`` is 0 for the producer's time and 1 for the broker's.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: HeaderTuples


class Stored:
    """The record batches of one partition in one answer, sound, and what they decode to.

    ``end`` is the offset after them. ``aborted`` is None unless only what is committed is read.
    ``timestamp_types`` has the last offset of each batch and whose time its records carry; one
    entry for all if they do not differ.
    """

    __slots__ = (
        "_arrow",
        "_records",
        "_starts",
        "aborted",
        "blob",
        "end",
        "partition",
        "timestamp_types",
    )

    def __init__(
        self,
        partition: TopicPartition,
        blob: Buffer,
        end: int,
        aborted: Sequence[tuple[int, int]] | None,
        timestamp_types: Sequence[tuple[int, int]],
    ) -> None:
        self.partition = partition
        self.blob = blob
        self.end = end
        self.aborted = aborted
        self.timestamp_types = timestamp_types
        self._records: list[Record] | None = None
        self._starts = 0
        self._arrow: dict[tuple[str, ...], tuple[int, pa.RecordBatch, memoryview]] = {}

    def records(self, from_offset: int, to_offset: int) -> list[Record]:
        """The records of a stretch. Raises `CorruptRecordsError`."""
        held = self._records
        if held is None or from_offset < self._starts:
            held = self._decode_records(from_offset)
            self._records, self._starts = held, from_offset
        first = bisect_left(held, from_offset, key=_offset)
        last = len(held)
        if held and held[-1].offset >= to_offset:
            last = bisect_left(held, to_offset, first, key=_offset)
        return held if last - first == len(held) else held[first:last]

    def arrow(self, from_offset: int, to_offset: int, names: Sequence[str]) -> pa.RecordBatch:
        """The same as columns. Raises `CorruptRecordsError`; KeyError for a column there is not."""
        key = tuple(names)
        held = self._arrow.pop(key, None)
        if held is None or from_offset < held[0]:
            held = from_offset, *self._decode_arrow(from_offset, key)
        if to_offset < self.end:  # else nothing follows, and the memory may serve the next batch
            self._arrow[key] = held
        _, batch, offsets = held
        first = bisect_left(offsets, from_offset)
        last = bisect_left(offsets, to_offset, first)
        return batch if last - first == batch.num_rows else batch.slice(first, last - first)

    def _decode_records(self, from_offset: int) -> list[Record]:
        try:
            found = decode_records(
                self.blob, from_offset, verify_crc=False, read_committed_aborted=self.aborted
            )
        except Malformed as error:
            raise CorruptRecordsError(self.partition, from_offset, str(error)) from error
        topic, partition = self.partition
        if len(self.timestamp_types) == 1:
            kind = self.timestamp_types[0][1]
            return [
                Record(topic, partition, offset, timestamp, kind, key, value, headers)
                for offset, timestamp, key, value, headers in found
            ]
        ends = [end for end, _ in self.timestamp_types]
        kinds = [kind for _, kind in self.timestamp_types]
        return [
            Record(topic, partition, row[0], row[1], kinds[bisect_left(ends, row[0])], *row[2:])
            for row in found
        ]

    def _decode_arrow(
        self, from_offset: int, names: tuple[str, ...]
    ) -> tuple[pa.RecordBatch, memoryview]:
        rows = _arrow_rows(self.partition, names)
        try:
            columns = decode_columns(
                self.blob,
                from_offset=from_offset,
                to_offset=OFFSET_MAX,
                with_headers=rows.needs_headers,
                verify_crc=False,
                read_committed_aborted=self.aborted,
            )
        except Malformed as error:
            raise CorruptRecordsError(self.partition, from_offset, str(error)) from error
        if columns.next_offset < self.end:
            why = "a record that does not fit its batch, or more data than an Arrow column can hold"
            raise CorruptRecordsError(self.partition, columns.next_offset, why)
        return rows.batch(columns), memoryview(columns.offset).cast("q")


@lru_cache(maxsize=64)
def _arrow_rows(partition: TopicPartition, names: tuple[str, ...]) -> ArrowBatchBuilder:
    """Kept from answer to answer: the topic's column need not be made again each time."""
    from partage.client.arrow import ArrowBatchBuilder, kafka_schema

    return ArrowBatchBuilder(*partition, kafka_schema(names))


def _offset(record: Record) -> int:
    return record.offset


class Batch:
    """Records of one partition, with ``from_offset <= offset < next_offset``.

    Iterating gives `Record` objects, `to_arrow` a ``pyarrow.RecordBatch``. There may be none, where
    all between the two offsets were compacted away or belong to an aborted transaction. Damage
    inside a record batch whose checksum is right is found when its records are first looked at,
    and raised as `CorruptRecordsError`.
    """

    __slots__ = ("_stored", "from_offset", "next_offset", "topic_partition")

    def __init__(self, stored: Stored, from_offset: int, next_offset: int) -> None:
        self._stored = stored
        self.topic_partition = stored.partition
        self.from_offset = from_offset
        self.next_offset = next_offset

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self.topic_partition.partition

    def records(self) -> list[Record]:
        """The records, in order."""
        return self._stored.records(self.from_offset, self.next_offset)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records())

    def __len__(self) -> int:
        return len(self.records())

    def __bool__(self) -> bool:
        return True  # without decoding

    def __repr__(self) -> str:
        return (
            f"<Batch {self.topic_partition} from {self.from_offset} to before {self.next_offset}>"
        )

    def to_arrow(self, columns: Sequence[str] = COLUMNS) -> pa.RecordBatch:
        """The records as columns; only those named are made."""
        return self._stored.arrow(self.from_offset, self.next_offset, columns)


class Records:
    """What one poll handed out: `batches`, in each the records in order.

    True if there is any batch. Iterating gives all records, batch by batch. It is an Arrow stream
    (``__arrow_c_stream__``), which polars, DuckDB and others take as it is.
    """

    __slots__ = ("batches",)

    def __init__(self, batches: Sequence[Batch] = ()) -> None:
        self.batches = tuple(batches)

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that there is something of, in order."""
        return sorted({batch.topic_partition for batch in self.batches})

    def of(self, topic: str, partition: int) -> list[Record]:
        """The records of one partition."""
        wanted = (topic, partition)
        return [r for batch in self.batches if batch.topic_partition == wanted for r in batch]

    def __iter__(self) -> Iterator[Record]:
        for batch in self.batches:
            yield from batch.records()

    def __len__(self) -> int:
        return sum(map(len, self.batches))

    def __bool__(self) -> bool:
        return bool(self.batches)

    def __repr__(self) -> str:
        return f"<Records of {len(self.batches)} batches>"

    def to_arrow(self, columns: Sequence[str] = COLUMNS) -> pa.Table:
        """All records as one table, a chunk for each batch; nothing is copied."""
        return table([batch.to_arrow(columns) for batch in self.batches], columns)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)


def table(batches: Sequence[pa.RecordBatch], columns: Sequence[str] = COLUMNS) -> pa.Table:
    """Record batches as one table, which may have none."""
    import pyarrow as pa

    from partage.client.arrow import kafka_schema

    return pa.Table.from_batches(batches, schema=kafka_schema(columns))

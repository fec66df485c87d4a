"""Records as users receive them: batches that are decoded on first access.

A batch is a range of one partition's data in one Fetch response. One native call decodes all of
that data, in the thread that accesses it. The result is cached for the other ranges.
"""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from partage.client.errors import CorruptRecordsError
from partage.model.arguments import (
    InvalidArgumentError,
    check_int,
    check_text,
    check_texts,
    invalid_argument,
)
from partage.model.topic_partition import TopicPartition
from partage.wire.primitives import MalformedError
from partage.wire.records.columns import OFFSET_MAX, HeaderTuples
from partage.wire.records.decoder import decode_columns, decode_records
from partage.wire.types import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

    from partage.client.arrow import ArrowBatchBuilder

#: All columns, with the names of Spark's Kafka connector.
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
    """One record.

    Attributes:
        timestamp: Milliseconds since the epoch, -1 if there is none.
        timestamp_type: 0 for CreateTime (set by the producer), 1 for LogAppendTime (by the broker).
        key: The bytes, None without a key; with a ``key_deserializer`` its result.
        value: The bytes, None without a value; with a ``value_deserializer`` its result.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: HeaderTuples


class FetchedBatches:
    """The valid record batches of one partition in one Fetch response, and their decoded forms.

    Attributes:
        end: The offset after the last record.
        aborted: Producer id and first offset of aborted transactions; None with read_uncommitted.
        timestamp_types: The last offset and timestamp type of each batch; one entry if all have the
            same type.
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
        """Return the records of an offset range; raise `CorruptRecordsError` for invalid ones."""
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
        """Return an offset range as columns.

        Raises:
            CorruptRecordsError: The records are invalid.
            KeyError: A column does not exist.
        """
        key = tuple(names)
        held = self._arrow.pop(key, None)
        if held is None or from_offset < held[0]:
            held = from_offset, *self._decode_arrow(from_offset, key)
        # Otherwise no range follows, and the next batch may reuse the memory.
        if to_offset < self.end:
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
        except MalformedError as error:
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
        except MalformedError as error:
            raise CorruptRecordsError(self.partition, from_offset, str(error)) from error
        if columns.next_offset < self.end:
            why = "a record that does not fit its batch, or more data than an Arrow column can hold"
            raise CorruptRecordsError(self.partition, columns.next_offset, why)
        return rows.batch(columns), memoryview(columns.offset).cast("q")


@lru_cache(maxsize=64)
def _arrow_rows(partition: TopicPartition, names: tuple[str, ...]) -> ArrowBatchBuilder:
    """Return a converter; cached, because the topic column can be reused."""
    arrow = import_arrow()
    builder: ArrowBatchBuilder = arrow.ArrowBatchBuilder(*partition, arrow.kafka_schema(names))
    return builder


def _offset(record: Record) -> int:
    return record.offset


class Batch:
    """Records of one partition with ``from_offset <= offset < next_offset``.

    Iterate for `Record` objects, or call `to_arrow` for a ``pyarrow.RecordBatch``. It is empty if
    all records were compacted away or belong to aborted transactions. A batch with a valid checksum
    can still hold invalid records; they raise `CorruptRecordsError` on first access. With
    deserializers the `Record` objects have their results; Arrow columns always have the bytes.
    """

    __slots__ = ("_deserialized", "_stored", "from_offset", "next_offset", "topic_partition")

    def __init__(
        self,
        stored: FetchedBatches,
        from_offset: int,
        next_offset: int,
        deserialized: list[Record] | None = None,
    ) -> None:
        self._stored = stored
        self._deserialized = deserialized
        self.topic_partition = stored.partition
        self.from_offset = from_offset
        self.next_offset = next_offset

    @property
    def topic(self) -> str:
        """The topic name."""
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        """The partition number."""
        return self.topic_partition.partition

    def records(self) -> list[Record]:
        """Return the records, in offset order."""
        if self._deserialized is not None:
            return self._deserialized
        return self._stored.records(self.from_offset, self.next_offset)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records())

    def __len__(self) -> int:
        return len(self.records())

    def __bool__(self) -> bool:
        return True  # Not empty as a range; this must not decode.

    def __repr__(self) -> str:
        return (
            f"<Batch {self.topic_partition} from {self.from_offset} to before {self.next_offset}>"
        )

    def to_arrow(self, columns: Sequence[str] = COLUMNS) -> pa.RecordBatch:
        """Return the records as columns; only the named columns are built."""
        return self._stored.arrow(self.from_offset, self.next_offset, check_columns(columns))


class Records:
    """The result of one poll: `batches`, each with its records in offset order.

    It is true if it has any batch. Iteration yields all records, batch by batch. It supports the
    Arrow stream protocol (``__arrow_c_stream__``), which polars, DuckDB and others read directly.
    """

    __slots__ = ("batches",)

    def __init__(self, batches: Sequence[Batch] = ()) -> None:
        self.batches = tuple(batches)

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions with batches, sorted."""
        return sorted({batch.topic_partition for batch in self.batches})

    def of(self, topic: str, partition: int) -> list[Record]:
        """Return the records of one partition.

        Args:
            topic: The name of the topic.
            partition: The number of the partition.
        """
        wanted = (check_text("topic", topic), check_int("partition", partition))
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
        """Return all records as one table, with a chunk for each batch and without a copy."""
        names = check_columns(columns)
        return arrow_table([batch.to_arrow(names) for batch in self.batches], names)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)


def check_columns(columns: Iterable[str]) -> tuple[str, ...]:
    """Return the names of Arrow columns.

    Raises:
        InvalidArgumentError: A column does not exist; the message names the nearest one.
    """
    names = check_texts("columns", columns, "value", may_be_empty=True)
    for name in names:
        if name not in COLUMNS:
            near = difflib.get_close_matches(name, COLUMNS, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise InvalidArgumentError(
                f"there is no column {name!r}: {hint}The columns are {', '.join(COLUMNS)}"
            )
    if len(set(names)) < len(names):
        raise invalid_argument("columns", names, "each column once")
    return tuple(names)


def arrow_table(batches: Sequence[pa.RecordBatch], columns: Sequence[str] = COLUMNS) -> pa.Table:
    """Return record batches as one table, which may be empty."""
    return import_arrow().to_table(batches, columns)


def import_arrow() -> ModuleType:
    """Return the module that needs PyArrow.

    Raises:
        ModuleNotFoundError: PyArrow is not installed; the message names the extra.
    """
    return import_module("partage.client.arrow")

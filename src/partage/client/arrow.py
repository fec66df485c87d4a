"""Records as Arrow, with the columns of Spark's Kafka connector.

The decoder's buffers become Arrow arrays without a copy. Only the columns of topic name and
partition number, equal in all rows of a partition, are created here, once for many batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ModuleNotFoundError as error:
    if error.name != "pyarrow":
        raise
    raise ModuleNotFoundError(
        "Arrow needs the package pyarrow: pip install 'partage[arrow]'", name="pyarrow"
    ) from None

from partage.wire.records.columns import BinaryBuffers, Bytes, HeaderColumns, RecordColumns

_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])

#: The available columns, in the connector's order. ``headers`` is null for a record without
#: headers.
KAFKA_COLUMN_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", _HEADER)),
}


def kafka_schema(names: Iterable[str]) -> pa.Schema:
    """Return a schema of the named columns, in that order. Raises KeyError for an unknown name."""
    return pa.schema([(name, KAFKA_COLUMN_TYPES[name]) for name in names])


def to_table(batches: Sequence[pa.RecordBatch], columns: Iterable[str]) -> pa.Table:
    """Return record batches with the named columns as one table, which may be empty."""
    return pa.Table.from_batches(batches, schema=kafka_schema(columns))


def to_reader(batches: Iterable[pa.RecordBatch], columns: Iterable[str]) -> pa.RecordBatchReader:
    """Return a reader of record batches with the named columns."""
    return pa.RecordBatchReader.from_batches(kafka_schema(columns), batches)


class ArrowBatchBuilder:
    """Builder of record batches of one partition.

    Args:
        topic: The topic name of all rows.
        partition: The partition number of all rows.
        schema: Some of the columns of `kafka_schema`, in any order, with these types.

    Attributes:
        needs_headers: True if the decoder has to decode headers.
    """

    def __init__(self, topic: str, partition: int, schema: pa.Schema) -> None:
        self._schema = schema
        self._row = pa.struct(list(schema))
        self._no_key = _Repeated(partial(pa.nulls, type=KAFKA_COLUMN_TYPES["key"]))
        self._no_headers = _Repeated(_no_headers)
        self._topic = _Repeated(partial(pa.repeat, pa.scalar(topic, pa.string())))
        self._partition = _Repeated(partial(pa.repeat, pa.scalar(partition, pa.int32())))
        make = self._makers()
        self._make = [make[name] for name in schema.names]
        self.needs_headers = "headers" in schema.names

    def batch(self, columns: RecordColumns) -> pa.RecordBatch:
        """Return a batch with one row for each record, without a copy of keys and values."""
        arrays = [make(columns) for make in self._make]
        if not arrays:
            return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        # Arrow does not compare the types of a struct with those of the schema again.
        rows = pa.Array.from_buffers(self._row, columns.count, [None], 0, children=arrays)
        return pa.RecordBatch.from_struct_array(rows)

    def _makers(self) -> dict[str, Callable[[RecordColumns], pa.Array]]:
        return {
            "key": lambda c: (
                self._no_key.times(c.count)
                if c.key.null_count == c.count
                else _binary(c.key, c.count, pa.binary())
            ),
            "value": lambda c: _binary(c.value, c.count, pa.binary()),
            "topic": lambda c: self._topic.times(c.count),
            "partition": lambda c: self._partition.times(c.count),
            "offset": lambda c: _fixed(c.offset, c.count, pa.int64()),
            "timestamp": lambda c: _fixed(c.timestamp_us, c.count, KAFKA_COLUMN_TYPES["timestamp"]),
            "timestampType": lambda c: _fixed(c.timestamp_type, c.count, pa.int32()),
            "headers": lambda c: (
                self._no_headers.times(c.count)
                if c.headers is not None and not c.headers.count
                else _headers(c.headers, c.count)
            ),
        }


class _Repeated:
    """A column of one repeated value. Shorter columns are slices of the longest one so far."""

    def __init__(self, make: Callable[[int], pa.Array]) -> None:
        self._make = make
        self._longest = self._last = make(0)

    def times(self, count: int) -> pa.Array:
        # Local copies: another thread may replace the attributes meanwhile
        last, longest = self._last, self._longest
        if count == len(last):
            return last
        if count > len(longest):
            longest = self._longest = self._make(count)
        last = self._last = longest.slice(0, count)
        return last


def _fixed(held: Bytes, count: int, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(held)], null_count=0)


def _binary(column: BinaryBuffers, count: int, kind: pa.DataType) -> pa.Array:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, count, buffers, null_count=column.null_count)


def _no_headers(count: int) -> pa.Array:
    # Not pa.nulls: the buffers of its empty child are as long as its own ones, and an Arrow stream
    # sends them completely.
    buffers = [pa.py_buffer(bytes((count + 7) // 8)), pa.py_buffer(bytes(4 * (count + 1)))]
    empty = pa.array([], _HEADER)
    return pa.Array.from_buffers(
        KAFKA_COLUMN_TYPES["headers"], count, buffers, count, children=[empty]
    )


def _headers(column: HeaderColumns | None, count: int) -> pa.Array:
    assert column is not None, "the records were decoded without their headers"
    fields = [
        _binary(column.key, column.count, pa.string()),
        _binary(column.value, column.count, pa.binary()),
    ]
    pairs = pa.Array.from_buffers(_HEADER, column.count, [None], children=fields)
    offsets = pa.py_buffer(column.offsets)
    kind = KAFKA_COLUMN_TYPES["headers"]
    lists = pa.Array.from_buffers(kind, count, [None, offsets], children=[pairs])
    # The connector returns null, not an empty list. The result bits are a validity bitmap.
    present = pc.greater(pc.list_value_length(lists), 0).buffers()[1]
    return pa.Array.from_buffers(kind, count, [present, offsets], children=[pairs])

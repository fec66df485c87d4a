"""Conversion of decoded columns to pyarrow, with validation."""

from __future__ import annotations

import pyarrow as pa

from partage.wire.records.columns import BinaryBuffers, HeaderColumns, RecordColumns, RecordTuple

HEADER_TYPE = pa.struct([("key", pa.string()), ("value", pa.binary())])


def binary(column: BinaryBuffers, rows: int, kind: pa.DataType) -> pa.Array:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, rows, buffers, null_count=column.null_count)


def headers(column: HeaderColumns, rows: int) -> pa.Array:
    fields = [
        binary(column.key, column.count, pa.string()),
        binary(column.value, column.count, pa.binary()),
    ]
    inner = pa.Array.from_buffers(HEADER_TYPE, column.count, [None], children=fields)
    offsets = pa.py_buffer(column.offsets)
    return pa.Array.from_buffers(pa.list_(HEADER_TYPE), rows, [None, offsets], children=[inner])


def table(columns: RecordColumns) -> pa.Table:
    """Return the columns as a table, after Arrow's full validation."""
    rows = columns.count
    fixed = {
        "offset": (pa.int64(), columns.offset),
        "timestamp": (pa.timestamp("us"), columns.timestamp_us),
        "timestamp_type": (pa.int32(), columns.timestamp_type),
    }
    arrays = {
        "key": binary(columns.key, rows, pa.binary()),
        "value": binary(columns.value, rows, pa.binary()),
    }
    for name, (kind, held) in fixed.items():
        arrays[name] = pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(held)])
    if columns.headers is not None:
        arrays["headers"] = headers(columns.headers, rows)
    made = pa.table(arrays)
    made.validate(full=True)
    return made


def tuples(columns: RecordColumns) -> list[RecordTuple]:
    """Return the rows in the form of `decode_records`; timestamps must be whole milliseconds."""
    made = table(columns)
    stamps = made["timestamp"].cast(pa.int64()).to_pylist()
    assert all(stamp % 1000 == 0 for stamp in stamps)
    listed = made["headers"].to_pylist() if "headers" in made.column_names else [[]] * len(stamps)
    return [
        (offset, stamp // 1000, key, value, tuple((h["key"], h["value"]) for h in held))
        for offset, stamp, key, value, held in zip(
            made["offset"].to_pylist(),
            stamps,
            made["key"].to_pylist(),
            made["value"].to_pylist(),
            listed,
            strict=True,
        )
    ]

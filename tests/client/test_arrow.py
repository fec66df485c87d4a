"""Columns as Arrow, with the names and types of Spark's connector."""

import subprocess
import sys
from random import Random

import pyarrow as pa
import pytest

from partage.client.arrow import KAFKA_COLUMN_TYPES, ArrowBatchBuilder, kafka_schema
from partage.wire.records.columns import OFFSET_MAX
from partage.wire.records.decoder import decode_columns
from partage.wire.records.encoder import SimpleRecord, encode_batch

NOW_MS = 1_700_000_000_000


def columns(records, *, with_headers=True, **options):
    return decode_columns(
        encode_batch(records, **options),
        from_offset=0,
        to_offset=OFFSET_MAX,
        with_headers=with_headers,
        verify_crc=True,
    )


def batch(records, names=tuple(KAFKA_COLUMN_TYPES), **options):
    made = ArrowBatchBuilder("t", 3, kafka_schema(names)).batch(columns(records, **options))
    made.validate(full=True)
    return made


def test_rows_match_spark_connector():
    records = [
        SimpleRecord(b"k", b"v", (("a", b"1"), ("b", None)), NOW_MS),
        SimpleRecord(None, None, (), NOW_MS + 1),
    ]
    rows = batch(records, base_offset=7).to_pylist()
    time = pa.scalar(NOW_MS * 1000, KAFKA_COLUMN_TYPES["timestamp"]).as_py()
    assert rows[0] == {
        "key": b"k",
        "value": b"v",
        "topic": "t",
        "partition": 3,
        "offset": 7,
        "timestamp": time,
        "timestampType": 0,
        "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
    }
    assert [rows[1][name] for name in ("key", "value", "offset", "headers")] == [
        None,
        None,
        8,
        None,
    ]


def test_log_append_time_has_its_timestamp_type():
    (row,) = batch([SimpleRecord(b"k", b"v")], append_time_ms=NOW_MS).to_pylist()
    assert row["timestampType"] == 1
    assert row["timestamp"].timestamp() * 1000 == NOW_MS


def test_columns_are_selected_and_ordered():
    made = batch([SimpleRecord(b"k", b"v")], ["value", "offset"], with_headers=False)
    assert made.schema == kafka_schema(["value", "offset"])
    assert made.to_pylist() == [{"value": b"v", "offset": 0}]


def test_unknown_column_raises_key_error():
    with pytest.raises(KeyError):
        kafka_schema(["values"])


def test_only_headers_column_needs_headers():
    assert ArrowBatchBuilder("t", 0, kafka_schema(KAFKA_COLUMN_TYPES)).needs_headers
    assert not ArrowBatchBuilder("t", 0, kafka_schema(["key", "value"])).needs_headers


@pytest.mark.parametrize("chance", [0, 0.01, 0.5, 1])
def test_headers_are_null_or_list(chance):
    rng = Random(chance)
    has = [rng.random() < chance for _ in range(1000)]
    records = [SimpleRecord(None, b"v", (("h", b"x"),) if one else ()) for one in has]
    made = batch(records, ["headers"])
    assert [row is not None for row in made["headers"].to_pylist()] == has
    assert made["headers"].null_count == has.count(False)
    assert made.schema.field("headers").type.value_field.name == "element"


def test_repeated_columns_are_slices_of_one_array():
    rows = ArrowBatchBuilder("t", 0, kafka_schema(["topic", "partition"]))
    many, few = (rows.batch(columns([SimpleRecord(None, b"")] * count)) for count in (100, 10))
    assert few["topic"].buffers()[2].address == many["topic"].buffers()[2].address
    assert few["topic"].to_pylist() == ["t"] * 10
    assert few["partition"].to_pylist() == [0] * 10


@pytest.mark.parametrize("with_headers", [False, True])
def test_arrow_stream_size_is_close_to_data_size(with_headers):
    """An Arrow stream contains the whole buffer of an empty child array, so buffers must be
    trimmed.
    """
    headers = (("h", b"y" * 50),)
    records = [
        SimpleRecord(None, b"x" * 100, headers if n < 500 and with_headers else ())
        for n in range(1000)
    ]
    made = batch(records)
    sent = 0
    for part in (made, made.slice(500, 100)):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, made.schema) as stream:
            stream.write_batch(part)
        sent = sink.getvalue().size
        if part is made:
            assert sent < 1000 * 160 + 500 * with_headers * 80 + 5000
    assert sent < 100 * 160 + 5000


def test_missing_pyarrow_names_extra():
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from partage.client.consumer.records import Records\n"
        "Records([]).to_arrow()"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stderr.endswith("Arrow needs the package pyarrow: pip install 'partage[arrow]'\n")

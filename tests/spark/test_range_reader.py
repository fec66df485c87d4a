"""The executor's part of a read: ranges to Arrow batches, with a broker and without Spark."""

import logging

import pyarrow as pa
import pytest

from partage.client import RecordsUnavailableError, TopicPartition
from partage.spark.client_cache import get_client
from partage.spark.offset_resolver import OffsetRange
from partage.spark.options import parse_options
from partage.spark.ranges import read_range


def read(kafka, topic, first, last, **given):
    options = parse_options({"kafka.bootstrap.servers": kafka.servers, "subscribe": topic, **given})
    of = OffsetRange(TopicPartition(topic, 0), first, last)
    return list(read_range(of, options))


def test_batches_are_bounded_and_ordered(kafka):
    topic = kafka.topic()
    kafka.produce(topic, [{"value": b"%d" % n} for n in range(45_000)])
    batches = read(kafka, topic, 100, 44_900)
    assert max(batch.num_rows for batch in batches) <= 20_000
    assert pa.Table.from_batches(batches)["offset"].to_pylist() == list(range(100, 44_900))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_returns_equal_rows(kafka, codec):
    topic = kafka.topic()
    records = [{"key": b"%d" % (n % 7), "value": b"value %d" % n} for n in range(5000)]
    kafka.produce(topic, records, **{"compression.type": codec})
    rows = pa.Table.from_batches(read(kafka, topic, 0, 5000, columns="key,value")).to_pylist()
    assert rows == records


def test_fetch_size_does_not_change_rows(kafka):
    topic = kafka.topic()
    kafka.produce(topic, [{"value": b"x" * 5000}] * 400, **{"batch.size": 20_000})
    small = {"kafka.max.partition.fetch.bytes": "30000"}
    many = read(kafka, topic, 0, 400, **small)
    assert len(many) > 10
    assert pa.Table.from_batches(many).equals(pa.Table.from_batches(read(kafka, topic, 0, 400)))


def test_compacted_offsets_are_not_data_loss(kafka):
    topic = kafka.topic(
        **{
            "cleanup.policy": "compact",
            "segment.bytes": "1048576",
            "min.cleanable.dirty.ratio": "0.01",
        }
    )
    kafka.produce(topic, [{"key": b"%d" % (n % 10), "value": b"x" * 1000} for n in range(3000)])
    for _ in range(1000):  # until the broker's cleaner has compacted the log
        offsets = pa.Table.from_batches(read(kafka, topic, 0, 3000))["offset"].to_pylist()
        if len(offsets) < 3000:
            break
    assert len(offsets) < 3000
    assert offsets == sorted(offsets)
    assert offsets[-10:] == list(range(2990, 3000))
    assert read(kafka, topic, 0, offsets[0]) == []


def test_records_deleted_after_planning_fail_or_are_skipped(kafka, caplog):
    topic = kafka.topic()
    kafka.produce(topic, [{"value": b""}] * 10)
    kafka.cut(topic, 6)
    with pytest.raises(RecordsUnavailableError, match=f"offset 2 of {topic}-0 was deleted"):
        read(kafka, topic, 2, 8)
    with caplog.at_level(logging.WARNING):
        (batch,) = read(kafka, topic, 2, 8, failOnDataLoss="false")
    assert batch["offset"].to_pylist() == [6, 7]
    assert "continued at offset 6" in caplog.text


def test_client_is_cached_by_settings(kafka):
    options = parse_options({"kafka.bootstrap.servers": kafka.servers, "subscribe": "t"})
    first = get_client(options.kafka, is_known_to_answer=True)
    assert get_client(options.kafka, is_known_to_answer=True) is first
    other = get_client(options.kafka, is_known_to_answer=False)
    assert other.cluster is not first.cluster
    assert other.loop is first.loop

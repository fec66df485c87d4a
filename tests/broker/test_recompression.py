"""The topic config ``compression.type``: stored codec, order of batches, and the event loop."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Consumer, Producer

from partage.broker.topics import partition as partition_module
from partage.log.recompression import recompress_batches
from partage.model.errors import ErrorCode
from partage.wire.apis.incremental_alter_configs import SET
from partage.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from partage.wire.apis.produce import PRODUCE
from partage.wire.records.batch import Compression, whole_batches
from partage.wire.records.encoder import SimpleRecord, encode_batch

from .config_requests import BROKER, alter, config
from .raw_client import RawClient
from .requests import (
    batch,
    content,
    create,
    delete,
    fetch,
    metadata,
    produce,
    produce_request,
    produce_result,
    values,
)

CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


def stored_codecs(raw: RawClient, topic: str) -> list[int]:
    (result,) = fetch(raw, topic)
    return [header.compression for _, header in whole_batches(content(result))]


@pytest.mark.parametrize("name", CODECS)
def test_every_codec_is_stored_with_codec_of_topic(raw, name):
    create(raw, "t", compression_type=name)
    for source in Compression:
        assert produce(raw, "t", batch(b"a" * 200, b"b", compression=source)).error_code == 0
    assert stored_codecs(raw, "t") == [CODECS[name]] * len(Compression)
    assert values(*fetch(raw, "t")) == [b"a" * 200, b"b"] * len(Compression)


def test_altered_codec_applies_to_later_batches(raw):
    create(raw, "t")
    for name in ("producer", "zstd", "uncompressed"):
        assert alter(raw, (SET, "compression.type", name)) == 0
        produce(raw, "t", batch(b"a" * 200, compression=Compression.GZIP))
    expected = [Compression.GZIP, Compression.ZSTD, Compression.NONE]
    assert stored_codecs(raw, "t") == expected


def test_codec_of_broker_is_default_of_topics(raw):
    create(raw, "t")
    assert alter(raw, (SET, "compression.type", "lz4"), name="1", kind=BROKER) == 0
    assert config(raw, "compression.type").value == "lz4"
    produce(raw, "t", batch(b"a" * 200))
    assert stored_codecs(raw, "t") == [Compression.LZ4]


def test_limits_apply_before_and_after_recompression(raw):
    """As in Kafka, a batch that is too large only when it is decompressed is refused."""
    create(raw, "t", compression_type="uncompressed", max_message_bytes="1000")
    zipped = batch(bytes(5000), compression=Compression.ZSTD)
    assert produce(raw, "t", zipped).error_code == ErrorCode.MESSAGE_TOO_LARGE
    create(raw, "u", compression_type="zstd", max_message_bytes="1000")
    assert produce(raw, "u", batch(bytes(5000))).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_keyless_records_are_listed(raw):
    create(raw, "t", compression_type="zstd", cleanup_policy="compact")
    refused = produce(raw, "t", batch(b"a"))
    assert refused.error_code == 0
    refused = produce(raw, "t", encode_batch([SimpleRecord(None, b"v")]))
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in refused.record_errors] == [0]


@pytest.fixture
def paused(monkeypatch):
    """Pause recompressions until the event is set."""
    may_go_on = threading.Event()

    def recompress(*arguments):
        assert may_go_on.wait(20)
        return recompress_batches(*arguments)

    monkeypatch.setattr(partition_module, "recompress_batches", recompress)
    yield may_go_on
    may_go_on.set()


def test_recompression_does_not_block_other_requests(broker, raw, paused):
    create(raw, "t", compression_type="gzip")
    create(raw, "other")
    raw.send(PRODUCE, produce_request("t", batch(b"a")))
    with RawClient(broker.bootstrap_servers) as other:
        assert produce(other, "other", batch(b"b")).error_code == 0
        assert metadata(other, "t").topics[0].error_code == 0
    assert raw.is_silent()
    paused.set()
    assert produce_result(raw.receive()).base_offset == 0


def test_validation_of_compressed_records_does_not_block_other_requests(broker, raw, paused):
    """A few kilobytes can decompress to 128 MiB."""
    create(raw, "compacted", cleanup_policy="compact")
    create(raw, "limited", message_timestamp_after_max_ms="1000")
    zipped = encode_batch([SimpleRecord(b"k", b"v", (), 2**50)], compression=Compression.ZSTD)
    raw.send(PRODUCE, produce_request("compacted", batch(b"a", compression=Compression.ZSTD)))
    with RawClient(broker.bootstrap_servers) as other, RawClient(broker.bootstrap_servers) as late:
        late.send(PRODUCE, produce_request("limited", zipped))
        assert metadata(other, "compacted").topics[0].error_code == 0
        assert raw.is_silent()
        assert late.is_silent()
        paused.set()
        assert produce_result(raw.receive()).base_offset == 0
        refused = produce_result(late.receive())
    assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in refused.record_errors] == [0]


def test_compressed_batch_of_compacted_topic_needs_keys(raw):
    create(raw, "t", cleanup_policy="compact")
    records = [SimpleRecord(b"k", b"v"), SimpleRecord(None, b"v")]
    refused = produce(raw, "t", encode_batch(records, compression=Compression.GZIP))
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in refused.record_errors] == [1]
    assert produce(raw, "t", batch(b"a", compression=Compression.GZIP)).base_offset == 0


def test_later_batches_of_producer_wait_for_recompression(broker, raw, paused):
    """A batch that has the codec already must not pass one that is being recompressed."""
    create(raw, "t", compression_type="gzip")
    producer = raw.request(
        INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    ).producer_id
    options = {"producer_id": producer, "producer_epoch": 0}
    first = batch(b"a", base_sequence=0, **options)
    second = batch(b"b", base_sequence=1, compression=Compression.GZIP, **options)
    third = batch(b"c", base_sequence=2, **options)
    for each in (first, second, third, first):
        raw.send(PRODUCE, produce_request("t", each))
    paused.set()
    results = [produce_result(raw.receive()) for _ in range(4)]
    assert [(r.error_code, r.base_offset) for r in results] == [(0, 0), (0, 1), (0, 2), (0, 0)]
    assert values(*fetch(raw, "t")) == [b"a", b"b", b"c"]


def test_refusal_that_starts_next_request_keeps_order(raw):
    """The large batch delays the others of its connection; its refusal starts them."""
    create(raw, "t", compression_type="gzip")
    for value in (bytes(5 << 20), b"b", b"c"):
        raw.send(PRODUCE, produce_request("t", batch(value)))
    results = [produce_result(raw.receive()) for _ in range(3)]
    assert [(r.error_code, r.base_offset) for r in results] == [
        (ErrorCode.MESSAGE_TOO_LARGE, -1),
        (0, 0),
        (0, 1),
    ]
    assert values(*fetch(raw, "t")) == [b"b", b"c"]


def test_topic_deleted_during_recompression_refuses_batches(broker, raw, paused):
    create(raw, "t", compression_type="gzip")
    raw.send(PRODUCE, produce_request("t", batch(b"a")))
    with RawClient(broker.bootstrap_servers) as other:
        delete(other, "t")
    paused.set()
    result = produce_result(raw.receive())
    assert (result.error_code, result.base_offset) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        -1,
    )


def test_failed_recompression_refuses_batch_only(raw, monkeypatch, caplog):
    def fail(*arguments):
        raise MemoryError

    create(raw, "t", compression_type="gzip")
    monkeypatch.setattr(partition_module, "recompress_batches", fail)
    assert produce(raw, "t", batch(b"a")).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    monkeypatch.undo()
    assert produce(raw, "t", batch(b"b")).base_offset == 0
    caplog.clear()


def test_confluent_client_reads_recompressed_records(broker, raw):
    create(raw, "t", compression_type="zstd")
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    producer = Producer({**servers, "enable.idempotence": True, "compression.type": "gzip"})
    sent = [b"%d" % n * 100 for n in range(500)]
    for value in sent:
        producer.produce("t", value)
        producer.poll(0)
    assert producer.flush(20) == 0
    assert set(stored_codecs(raw, "t")) == {Compression.ZSTD}
    consumer = Consumer({**servers, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    received = []
    while len(received) < len(sent):
        message = consumer.poll(20)
        assert message is not None
        received.append(message.value())
    consumer.close()
    assert received == sent

"""Produce: accepted batches, refused batches, and the content of the log."""

from __future__ import annotations

import struct
import time

import pytest
from confluent_kafka import KafkaError, Producer

from partage.log.validator import RECORD_ERRORS_MAX
from partage.model.errors import ErrorCode
from partage.wire.apis.fetch import FETCH
from partage.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from partage.wire.apis.produce import PRODUCE, ProducePartition, ProduceRequest, ProduceTopic
from partage.wire.records.batch import CRC_FROM, Compression
from partage.wire.records.encoder import SimpleRecord, encode_batch

from .raw_client import RawClient
from .requests import (
    NOW_MS,
    batch,
    content,
    create,
    fetch,
    list_offset,
    offset_range,
    produce,
    produce_request,
    produce_result,
    values,
)

VERSIONS = range(PRODUCE.version_min, PRODUCE.version_max + 1)


@pytest.fixture
def topic(raw):
    create(raw, "t", 2)
    return "t"


@pytest.fixture
def producer(raw):
    return raw.request(
        INIT_PRODUCER_ID,
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0),
    ).producer_id


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", VERSIONS)
def test_produce_every_version_returns_offset(raw, topic, version, acks):
    assert produce(raw, topic, batch(b"a", b"b"), version=version, acks=acks).base_offset == 0
    result = produce(raw, topic, batch(b"c"), version=version, acks=acks)
    assert (result.error_code, result.base_offset, result.log_append_time_ms) == (0, 2, -1)
    assert result.log_start_offset == (0 if version >= 5 else -1)
    assert values(*fetch(raw, topic)) == [b"a", b"b", b"c"]


def test_produce_without_acks_has_no_response(raw, topic):
    raw.send(PRODUCE, produce_request(topic, batch(b"a"), acks=0), is_answered=False)
    raw.send(PRODUCE, produce_request(topic, batch(b"b"), acks=0), is_answered=False)
    assert produce(raw, topic, batch(b"c"), acks=1).base_offset == 2
    assert values(*fetch(raw, topic)) == [b"a", b"b", b"c"]


def test_produce_several_batches_for_one_partition(raw, topic):
    assert produce(raw, topic, batch(b"a", b"b"), batch(b"c")).base_offset == 0
    assert offset_range(raw, topic) == (0, 3)


def test_produce_several_partitions_separate_results(raw, topic):
    request = produce_request(topic, batch(b"a"))
    request.topic_data[0].partition_data += [
        ProducePartition(index=1, records=[batch(b"b")]),
        ProducePartition(index=2, records=[batch(b"c")]),
    ]
    request.topic_data.append(
        ProduceTopic(name="u", partition_data=[ProducePartition(index=0, records=[batch(b"d")])])
    )
    response = raw.request(PRODUCE, request)
    t, u = response.responses
    assert (t.name, u.name) == ("t", "u")
    assert [p.error_code for p in t.partition_responses] == [0, 0, 3]
    assert [p.base_offset for p in t.partition_responses] == [0, 0, -1]
    assert [p.error_code for p in u.partition_responses] == [3]


def test_produce_without_topics(raw):
    request = ProduceRequest(acks=-1, timeout_ms=1, topic_data=[])
    assert raw.request(PRODUCE, request).responses == []


@pytest.mark.parametrize("codec", Compression)
def test_produce_batch_is_stored_unchanged(raw, topic, codec):
    """The broker sets offset, length and leader epoch; from the checksum on nothing changes."""
    sent = batch(b"a" * 1000, b"b" * 1000, compression=codec)
    produce(raw, topic, batch(b"first"))
    produce(raw, topic, sent)
    (result,) = fetch(raw, topic, [1])
    got = content(result)
    assert got[CRC_FROM - 4 :] == sent[CRC_FROM - 4 :]
    assert struct.unpack_from(">qii", got) == (1, len(sent) - 12, 0)
    assert values(result) == [b"a" * 1000, b"b" * 1000]


def test_produce_keeps_headers_nulls_and_timestamps(raw, topic):
    made = [
        SimpleRecord(None, None, [("h", b"1"), ("h", None), ("", b"")], NOW_MS + 5),
        SimpleRecord(b"", b"", (), NOW_MS - 5),
    ]
    produce(raw, topic, encode_batch(made))
    (result,) = fetch(raw, topic)
    assert content(result)[61:] == encode_batch(made)[61:]


def test_produce_log_append_time(raw):
    create(raw, "stamped", message_timestamp_type="LogAppendTime")
    result = produce(raw, "stamped", batch(b"a"))
    assert result.log_append_time_ms > NOW_MS
    (fetched,) = fetch(raw, "stamped")
    assert values(fetched) == [b"a"]
    assert list_offset(raw, "stamped", NOW_MS + 1000).timestamp_ms == result.log_append_time_ms


def refused(raw, *batches, topic="t", **options):
    """Return the error of a Produce request that must change nothing."""
    before = offset_range(raw, topic)
    result = produce(raw, topic, *batches, **options)
    assert result.base_offset == -1
    assert result.error_message
    assert offset_range(raw, topic) == before
    return ErrorCode(result.error_code)


def changed(made: bytes, at: int, new: bytes) -> bytes:
    return made[:at] + new + made[at + len(new) :]


def test_produce_unknown_topic_or_partition(raw, topic):
    assert produce(raw, "nothing", batch(b"a")).error_code == 3
    assert produce(raw, topic, batch(b"a"), partition=2).error_code == 3
    assert produce(raw, topic, batch(b"a"), partition=-1).error_code == 3


def test_produce_to_internal_topic_is_refused(raw):
    assert (
        refused(raw, batch(b"a"), topic="__consumer_offsets") is ErrorCode.INVALID_TOPIC_EXCEPTION
    )


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_produce_invalid_acks_are_refused(raw, topic, acks):
    assert refused(raw, batch(b"a"), acks=acks) is ErrorCode.INVALID_REQUIRED_ACKS


def test_produce_batch_above_limit_is_refused(raw):
    create(raw, "small", max_message_bytes="200")
    produce(raw, "small", batch(b"x" * 60))
    too_large = ErrorCode.MESSAGE_TOO_LARGE
    assert refused(raw, batch(b"x" * 100), topic="small") is too_large
    assert refused(raw, batch(b"x"), batch(b"x" * 100), topic="small") is too_large


def test_produce_batch_above_segment_size_is_refused(raw):
    create(raw, "tight", segment_bytes="300")
    two = [batch(b"x" * 100), batch(b"y" * 100)]
    assert refused(raw, *two, topic="tight") is ErrorCode.RECORD_LIST_TOO_LARGE
    assert produce(raw, "tight", two[0]).error_code == 0


@pytest.mark.parametrize("at", [17, 21, 40, 61, 70])
def test_produce_wrong_checksum_is_refused(raw, topic, at):
    made = batch(b"a", b"b", b"c")
    damaged = changed(made, at, bytes([made[at] ^ 0x40]))
    assert refused(raw, damaged) is ErrorCode.CORRUPT_MESSAGE


def test_produce_truncated_batch_is_refused(raw, topic):
    assert refused(raw, batch(b"abc")[:-1]) is ErrorCode.CORRUPT_MESSAGE
    assert refused(raw, batch(b"abc")[:40]) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_produce_old_formats_are_refused(raw, topic, magic):
    assert refused(raw, changed(batch(b"a"), 16, bytes([magic]))) is ErrorCode.INVALID_RECORD


def test_produce_no_records_is_refused(raw, topic):
    assert refused(raw, b"") is ErrorCode.INVALID_RECORD
    request = produce_request(topic)
    request.topic_data[0].partition_data[0].records = None
    assert produce_result(raw.request(PRODUCE, request)).error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("version", VERSIONS)
def test_produce_zstd_needs_version_seven(raw, topic, version):
    """As in Apache Kafka 4.4, every version of Fetch returns the batch."""
    mixed = batch(b"a") + batch(b"b", compression=Compression.ZSTD)
    expected = 0 if version >= 7 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(raw, topic, mixed, version=version).error_code == expected
    assert produce(raw, topic, batch(b"c", compression=Compression.ZSTD)).error_code == 0
    for fetch_version in (FETCH.version_min, 9, 10):
        assert values(*fetch(raw, topic, version=fetch_version))[-1] == b"c"


def test_produce_control_batch_is_refused(raw, topic):
    control = encode_batch(
        [SimpleRecord(b"\0\0\0\1", b"")],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        is_control=True,
    )
    assert refused(raw, control) is ErrorCode.INVALID_RECORD


def test_produce_transactional_is_refused(raw, topic):
    """The transactional id has no producer, and the batch alone has no transactional id."""
    open_batch = batch(
        b"a", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    assert refused(raw, open_batch) is not ErrorCode.NONE
    assert refused(raw, open_batch, transactional_id="tx") is not ErrorCode.NONE


def test_produce_compacted_topic_requires_keys(raw):
    create(raw, "table", cleanup_policy="compact")
    without = encode_batch([SimpleRecord(None, b"v", timestamp_ms=NOW_MS)])
    assert refused(raw, without, topic="table") is ErrorCode.INVALID_RECORD
    assert produce(raw, "table", batch(b"k")).error_code == 0


def keyed(*keys: bytes | None, compression: int = Compression.NONE) -> bytes:
    records = [SimpleRecord(key, b"v", timestamp_ms=NOW_MS) for key in keys]
    return encode_batch(records, compression=compression)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_produce_keyless_records_are_listed(raw, version, codec):
    """KIP-467: from version 8 on."""
    create(raw, "compacted", cleanup_policy="compact")
    refused = produce(
        raw, "compacted", keyed(b"a", None, b"c", None, compression=codec), version=version
    )
    assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    listed = [1, 3] if version >= 8 else []
    assert [error.batch_index for error in refused.record_errors] == listed
    assert all(error.batch_index_error_message for error in refused.record_errors)
    assert bool(refused.error_message) == (version >= 8)


def test_produce_many_invalid_records_are_listed_for_one_partition(raw):
    """A small compressed request must not cause a response of many megabytes."""
    create(raw, "compacted", 2, cleanup_policy="compact")
    content = keyed(*[None] * (RECORD_ERRORS_MAX // 2 + 1), compression=Compression.ZSTD)
    parts = [ProducePartition(index=index, records=[content]) for index in (0, 1)]
    request = ProduceRequest(
        acks=-1, timeout_ms=5000, topic_data=[ProduceTopic(name="compacted", partition_data=parts)]
    )
    (results,) = [topic.partition_responses for topic in raw.request(PRODUCE, request).responses]
    assert [result.error_code for result in results] == [ErrorCode.INVALID_RECORD] * 2
    listed = sorted(len(result.record_errors) for result in results)
    assert listed == [0, RECORD_ERRORS_MAX // 2 + 1]


def test_confluent_producer_blames_keyless_records_only(broker, raw):
    create(raw, "compacted", cleanup_policy="compact")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 60_000})
    # Without the metadata, flush could send each record in a separate batch.
    producer.list_topics("compacted", timeout=10)
    outcomes: dict[bytes, int] = {}

    def on_delivery(error, message):
        outcomes[message.value()] = error.code() if error else 0

    for key, value in ((b"k", b"0"), (None, b"1"), (b"l", b"2"), (None, b"3")):
        producer.produce("compacted", value, key, on_delivery=on_delivery)
    assert producer.flush(10) == 0
    blamed, others = KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD
    assert outcomes == {b"0": others, b"1": blamed, b"2": others, b"3": blamed}


def test_produce_timestamp_out_of_range_is_refused(raw):
    create(raw, "now", message_timestamp_after_max_ms="1000")
    later = encode_batch([SimpleRecord(b"k", b"v", timestamp_ms=1 << 45)])
    assert refused(raw, later, topic="now") is ErrorCode.INVALID_TIMESTAMP


def test_produce_timestamp_check_after_suspend(broker, raw, topic):
    # the monotonic clock did not run while the machine was suspended
    broker.broker._clock._offset_ns -= 2 * 3600 * 10**9
    now = encode_batch([SimpleRecord(b"k", b"v", timestamp_ms=time.time_ns() // 1_000_000)])
    assert produce(raw, topic, now).error_code == 0


def test_produce_one_bad_batch_rejects_all(raw, topic):
    good = batch(b"good")
    assert refused(raw, good, changed(good, 70, b"?")) is ErrorCode.CORRUPT_MESSAGE


def test_produce_failure_without_acks_closes_connection(broker, raw, topic):
    """It is the only way to report an error without responses."""
    with RawClient(broker.bootstrap_servers) as other:
        other.send(PRODUCE, produce_request("nothing", batch(b"a"), acks=0), is_answered=False)
        assert other.is_closed()
    with RawClient(broker.bootstrap_servers) as other:
        damaged = changed(batch(b"a"), 70, b"?")
        other.send(PRODUCE, produce_request(topic, damaged, acks=0), is_answered=False)
        assert other.is_closed()
    assert offset_range(raw, topic) == (0, 0)


def numbered(producer_id: int, sequence: int, *contents: bytes, epoch: int = 0) -> bytes:
    return batch(*contents, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def test_duplicate_batch_returns_first_offset(raw, topic, producer):
    first = numbered(producer, 0, b"a", b"b")
    second = numbered(producer, 2, b"c")
    assert produce(raw, topic, first).base_offset == 0
    assert produce(raw, topic, second).base_offset == 2
    for made, offset in ((first, 0), (second, 2), (first, 0)):
        result = produce(raw, topic, made)
        assert (result.error_code, result.base_offset) == (0, offset)
    assert values(*fetch(raw, topic)) == [b"a", b"b", b"c"]


def test_duplicate_batch_waits_for_original(raw, topic, producer):
    """The first may not be durable yet; its repetition must not be acknowledged earlier."""
    made = numbered(producer, 0, b"a")
    for _ in range(3):
        raw.send(PRODUCE, produce_request(topic, made))
    assert [produce_result(raw.receive()).base_offset for _ in range(3)] == [0, 0, 0]
    assert offset_range(raw, topic) == (0, 1)


def test_last_five_batches_are_deduplicated(raw, topic, producer):
    batches = [numbered(producer, n, b"%d" % n) for n in range(6)]
    for made in batches:
        produce(raw, topic, made)
    assert [produce(raw, topic, made).base_offset for made in batches[1:]] == [1, 2, 3, 4, 5]
    assert refused(raw, batches[0]) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequence_gap_is_refused(raw, topic, producer):
    produce(raw, topic, numbered(producer, 0, b"a"))
    gap = numbered(producer, 2, b"c")
    assert refused(raw, gap) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(raw, topic, numbered(producer, 1, b"b")).base_offset == 1
    assert produce(raw, topic, gap).base_offset == 2


def test_producer_epoch_old_fenced_new_starts_at_zero(raw, topic, producer):
    produce(raw, topic, numbered(producer, 0, b"a", epoch=1))
    assert refused(raw, numbered(producer, 1, b"b")) is ErrorCode.INVALID_PRODUCER_EPOCH
    newer = numbered(producer, 1, b"b", epoch=2)
    assert refused(raw, newer) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(raw, topic, numbered(producer, 0, b"b", epoch=2)).base_offset == 1


def test_sequences_are_per_partition_and_producer(raw, topic, producer):
    for partition in (0, 1):
        assert (
            produce(raw, topic, numbered(producer, 0, b"a"), partition=partition).base_offset == 0
        )
    assert produce(raw, topic, numbered(producer + 1, 0, b"a")).base_offset == 1


def test_unknown_producer_may_start_at_any_sequence(raw, topic):
    """Its earlier records may have been removed (KIP-360)."""
    assert produce(raw, topic, numbered(77, 500, b"a")).error_code == 0


@pytest.mark.parametrize("fields", [{"producer_epoch": -1}, {"base_sequence": -1}])
def test_producer_without_epoch_or_sequence_is_refused(raw, topic, fields):
    made = batch(b"a", **({"producer_id": 5, "producer_epoch": 0, "base_sequence": 0} | fields))
    assert refused(raw, made) is ErrorCode.INVALID_RECORD


def test_sequence_wraps_to_zero(raw, topic, producer):
    produce(raw, topic, numbered(producer, 2**31 - 2, b"a", b"b"))
    assert produce(raw, topic, numbered(producer, 0, b"c")).base_offset == 2

"""A batch that is damaged on disk: clients raise an error with the offset, and can skip it."""

from __future__ import annotations

import asyncio

import confluent_kafka
import pytest

import partage.sync
from partage.client import Cluster, CorruptRecordsError, TopicPartition, fetch_range
from partage.model.errors import ErrorCode
from partage.wire.records.batch import parse_header

from .requests import batch, content, create, fetch, produce, values

T0 = TopicPartition("t", 0)
SEGMENT = "t-0/00000000000000000000.log"
LENGTH, MAGIC, CHECKSUM = 8, 16, 17


def flip_bit(broker, path, position):
    byte = broker._disk.read(path, position, 1)[0]
    broker._disk.write(path, position, [bytes([byte ^ 0x40])])


@pytest.fixture
def damage(broker, raw, caplog):
    """Store three batches, at offsets 0, 1 to 2, and 3; damage a byte of the second."""
    create(raw, "t")
    produce(raw, "t", batch(b"a"))
    produce(raw, "t", batch(b"b", b"c"))
    produce(raw, "t", batch(b"d"))
    position = parse_header(content(fetch(raw, "t")[0])).size

    def damage_second_batch(at):
        flip_bit(broker, SEGMENT, position + at)
        return position

    return damage_second_batch


@pytest.fixture
def damaged(damage):
    """The position of the second batch, which has a wrong checksum."""
    return damage(CHECKSUM)


def test_fetch_of_damaged_batch_returns_corrupt_message(raw, damaged, caplog):
    for offset in (1, 2):
        (result,) = fetch(raw, "t", [offset])
        assert result.error_code == ErrorCode.CORRUPT_MESSAGE
        assert (content(result), result.high_watermark) == (b"", 4)
    assert values(fetch(raw, "t", [3])[0]) == [b"d"]
    assert [r.getMessage() for r in caplog.records if "damaged" in r.getMessage()] == [
        f"file {SEGMENT} is damaged at byte {damaged}: "
        "the batch of offsets 1 to 2 does not match its checksum"
    ]


def test_fetch_of_damaged_header_returns_corrupt_message(raw, damage, caplog):
    """The search for the offset fails, before any read of a slice."""
    damage(MAGIC)
    for _ in range(2):
        (result,) = fetch(raw, "t", [2])
        assert (result.error_code, content(result)) == (ErrorCode.CORRUPT_MESSAGE, b"")
    assert len([r for r in caplog.records if "is damaged at byte" in r.getMessage()]) == 1


def test_fetch_of_damaged_length_returns_corrupt_message(raw, damage):
    """Clients would wait for the rest of a batch that seems to be cut off."""
    damage(LENGTH)
    (result,) = fetch(raw, "t", [1])
    assert (result.error_code, content(result)) == (ErrorCode.CORRUPT_MESSAGE, b"")


def test_damaged_partition_leaves_room_for_others(broker, raw):
    """As in Kafka, only records that are sent count."""
    create(raw, "t", partitions=3)
    made = batch(b"x" * 100)
    for partition in range(3):
        produce(raw, "t", made, partition=partition)
    for partition in (0, 1):
        flip_bit(broker, f"t-{partition}/00000000000000000000.log", CHECKSUM)
    *failed, last = fetch(raw, "t", [0, 0, 0], max_bytes=len(made))
    assert [result.error_code for result in failed] == [ErrorCode.CORRUPT_MESSAGE] * 2
    assert values(last) == [b"x" * 100]


def test_many_damaged_partitions_end_the_lookups(broker, raw):
    """Each lookup finds one more; the request is answered after a few."""
    create(raw, "t", partitions=20)
    made = batch(b"x" * 100)
    for partition in range(20):
        produce(raw, "t", made, partition=partition)
    for partition in range(19):
        flip_bit(broker, f"t-{partition}/00000000000000000000.log", CHECKSUM)
    results = fetch(raw, "t", [0] * 20, max_bytes=1)
    errors = [result.error_code for result in results]
    assert 1 <= errors.count(ErrorCode.CORRUPT_MESSAGE) <= 10
    assert set(errors) == {0, ErrorCode.CORRUPT_MESSAGE}
    assert not any(content(result) for result in results)
    results = fetch(raw, "t", [0] * 20)
    assert [result.error_code for result in results] == [ErrorCode.CORRUPT_MESSAGE] * 19 + [0]
    assert values(results[-1]) == [b"x" * 100]


@pytest.mark.parametrize("at", [MAGIC, CHECKSUM])
def test_damaged_segment_does_not_fail_records_before_it(broker, raw, at):
    """A fetch that reads several segments returns what it can read."""
    made = batch(b"x" * 100)
    create(raw, "t", segment_bytes=str(len(made)))
    for _ in range(3):
        produce(raw, "t", made)
    flip_bit(broker, "t-0/00000000000000000001.log", at)
    (result,) = fetch(raw, "t")
    assert (result.error_code, values(result)) == (0, [b"x" * 100])
    (result,) = fetch(raw, "t", [1])
    assert (result.error_code, content(result)) == (ErrorCode.CORRUPT_MESSAGE, b"")
    assert values(fetch(raw, "t", [2])[0]) == [b"x" * 100]


def test_consumer_raises_at_damaged_batch_and_seek_skips_it(broker, damaged):
    with partage.sync.Consumer(broker.bootstrap_servers) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        assert [record.value for record in consumer.poll(30_000)] == [b"a"]
        with pytest.raises(CorruptRecordsError) as raised:
            consumer.poll(30_000)
        assert str(raised.value) == (
            "the records of t-0 are corrupt at offset 1: the broker found a damaged batch in its "
            "log (CORRUPT_MESSAGE), and logged its place. To skip the corrupt batch, continue at a "
            "later offset, for example with seek()"
        )
        consumer.seek(T0, raised.value.offset + 1)
        with pytest.raises(CorruptRecordsError, match="at offset 2"):
            consumer.poll(30_000)
        consumer.seek(T0, 3)
        assert next(iter(consumer)).value == b"d"


def test_range_read_raises_at_damaged_batch(broker, damaged):
    """The executors of Spark read ranges; they must not wait for a retry to succeed."""

    async def read():
        async with Cluster(broker.bootstrap_servers) as cluster:
            async for _ in fetch_range(cluster, T0, 1, 4):
                pass

    with pytest.raises(CorruptRecordsError, match=r"t-0 are corrupt at offset 1: the broker found"):
        asyncio.run(read())


def test_librdkafka_reports_damaged_batch(broker, damaged):
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
    consumer = confluent_kafka.Consumer(config)
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 1)])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert message.error().code() == confluent_kafka.KafkaError.INVALID_MSG
    assert (message.topic(), message.partition(), message.offset()) == ("t", 0, 1)

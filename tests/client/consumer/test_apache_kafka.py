"""The consumer with Apache Kafka."""

import pytest
from confluent_kafka import Producer

from interop.peers.kafka import ApacheKafka
from partage.client import ClientError, TopicPartition, UnknownTopicError
from partage.client.consumer import OffsetOutOfRangeError

from ..confluent_admin import create_topic, delete_records, delete_topic, produce

pytestmark = pytest.mark.interop

PATIENT = 30_000


@pytest.fixture(scope="module")
def servers():
    with ApacheKafka() as kafka:
        yield kafka.bootstrap


def fill(servers, topic, count, partition=0, first=0, **config):
    records = [
        {"value": b"%d" % n, "partition": partition, "timestamp": 1000 + n}
        for n in range(first, first + count)
    ]
    produce(servers, topic, records, **config)


def polled(consumer, count):
    found = []
    while len(found) < count:
        records = consumer.poll(PATIENT)
        assert records, f"{len(found)} of {count}"
        found += [int(record.value) for record in records]
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_poll_reads_every_codec(servers, consumer_of, codec, request):
    topic = request.node.callspec.id
    create_topic(servers, topic, 2)
    fill(servers, topic, 2000, **{"compression.type": codec})
    fill(servers, topic, 1000, 1, **{"compression.type": codec})
    consumer = consumer_of(servers)
    assert consumer.partitions_of(topic) == [(topic, 0), (topic, 1)]
    consumer.assign([(topic, 0)])
    assert polled(consumer, 2000) == list(range(2000))
    consumer.assign([(topic, 0), (topic, 1)])
    consumer.seek((topic, 0), 1500)
    assert len(consumer.to_arrow()) == 1500
    assert set(consumer.lag().values()) == {0}
    loop = iter(consumer)
    consumer.seek_to_time(2900, (topic, 0))
    assert int(next(loop).value) == 1900


def test_read_committed_skips_aborted_records(servers, consumer_of, request):
    topic = request.node.callspec.id + "-committed"
    create_topic(servers, topic)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic})
    producer.init_transactions(60)
    for outcome in ("abort", "commit", "open"):
        producer.begin_transaction()
        for n in range(50):
            producer.produce(topic, b"%s %d" % (outcome.encode(), n), partition=0)
        producer.flush()
        if outcome == "abort":
            producer.abort_transaction()
        elif outcome == "commit":
            producer.commit_transaction()
    consumer = consumer_of(servers, isolation_level="read_committed")
    consumer.assign([(topic, 0)])
    values = consumer.to_arrow(columns=["value"])["value"].to_pylist()
    assert values == [b"commit %d" % n for n in range(50)]
    assert consumer.position((topic, 0)) == 102  # after both control records
    producer.abort_transaction()
    everything = consumer_of(servers)
    everything.assign([(topic, 0)])
    assert len(everything.to_arrow()) == 150


def test_poll_offset_out_of_range_follows_reset(servers, consumer_of, request):
    topic = request.node.callspec.id + "-gone"
    create_topic(servers, topic)
    fill(servers, topic, 20)
    delete_records(servers, topic, 5)
    consumer = consumer_of(servers)
    consumer.assign([(topic, 0)])
    consumer.seek((topic, 0), 2)
    assert polled(consumer, 15) == list(range(5, 20))
    strict = consumer_of(servers, auto_offset_reset="none")
    strict.assign([(topic, 0)])
    strict.seek((topic, 0), 2)
    with pytest.raises(OffsetOutOfRangeError, match="offset 2 of"):
        strict.poll(PATIENT)


def test_poll_recreated_topic_restarts(servers, consumer_of, request):
    topic = request.node.callspec.id + "-anew"
    partition = TopicPartition(topic, 0)
    create_topic(servers, topic)
    fill(servers, topic, 10)
    consumer = consumer_of(servers, unknown_topic_wait_ms=100)
    consumer.assign([partition])
    assert polled(consumer, 10) == list(range(10))
    delete_topic(servers, topic)
    with pytest.raises(UnknownTopicError, match=topic):
        polled(consumer, 1)
    create_topic(servers, topic)
    fill(servers, topic, 30, first=100)
    found = []
    while len(found) < 30:
        try:
            found += [int(record.value) for record in consumer.poll(PATIENT)]
        except UnknownTopicError:
            continue
    assert found == list(range(100, 130))


def test_position_in_deleted_topic_is_not_committed(servers, consumer_of, request):
    topic = request.node.callspec.id + "-replaced"
    partition = TopicPartition(topic, 0)
    create_topic(servers, topic)
    fill(servers, topic, 10)
    consumer = consumer_of(servers, group_id=topic, default_api_timeout_ms=1_000)
    consumer.assign([partition])
    assert polled(consumer, 10) == list(range(10))
    consumer.pause(partition)  # so that it does not notice
    delete_topic(servers, topic)
    create_topic(servers, topic)
    with pytest.raises(ClientError, match="UNKNOWN_TOPIC_ID"):
        consumer.commit()
    assert consumer.committed([partition]) == {partition: None}
    fill(servers, topic, 30, first=100)
    consumer.resume(partition)
    assert polled(consumer, 30) == list(range(100, 130))
    consumer.commit()
    assert consumer.committed([partition])[partition].offset == 30

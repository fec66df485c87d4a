"""The client with Apache Kafka: versions, topic ids, transactions, deleted records."""

import asyncio

import pytest
from confluent_kafka import Producer

from interop.peers.kafka import ApacheKafka
from partage.client import (
    LATEST,
    Cluster,
    FetchOptions,
    RecordsUnavailableError,
    TopicPartition,
    UnknownTopicError,
    decode_fetched,
    fetch_range,
    list_offsets,
)

from .confluent_admin import create_topic, delete_records, produce

pytestmark = pytest.mark.interop

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture(scope="module")
def servers():
    with ApacheKafka() as kafka:
        create_topic(kafka.bootstrap, "t", 2)
        yield kafka.bootstrap


def read(servers, partition, first, options=None):
    """Return the values from an offset to the end."""

    async def main():
        async with Cluster(servers) as cluster:
            end = (await list_offsets(cluster, {partition: LATEST}))[partition].offset
            found = []
            async for answer in fetch_range(cluster, partition, first, end, options):
                for columns in decode_fetched(answer):
                    edges = memoryview(columns.value.offsets).cast("i")
                    held = bytes(columns.value.data)
                    found += [held[edges[n] : edges[n + 1]] for n in range(columns.count)]
            return found

    return asyncio.run(main())


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_every_codec_are_read(servers, codec):
    create_topic(servers, codec)
    records = [{"value": b"value %d" % n} for n in range(3000)]
    produce(servers, codec, records, **{"compression.type": codec})
    values = [record["value"] for record in records]
    assert read(servers, TopicPartition(codec, 0), 0) == values
    small = FetchOptions(partition_bytes_max=1000)
    assert read(servers, TopicPartition(codec, 0), 100, small) == values[100:]


def test_read_committed_skips_aborted_transactions(servers):
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "x"})
    producer.init_transactions(60)
    for outcome in ("aborted", "committed"):
        producer.begin_transaction()
        for n in range(50):
            producer.produce("t", b"%s %d" % (outcome.encode(), n), partition=0)
        producer.flush()
        if outcome == "aborted":
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    everything = read(servers, T0, 0)
    assert [value.split()[0] for value in everything] == [b"aborted"] * 50 + [b"committed"] * 50
    assert read(servers, T0, 0, FetchOptions(read_committed=True)) == everything[50:]


def test_deleted_and_future_offsets_raise(servers):
    produce(servers, "t", [{"value": b"x", "partition": 1}] * 10)
    delete_records(servers, "t", 4, partition=1)
    with pytest.raises(
        RecordsUnavailableError, match=r"offset 1 of t-1 was deleted, .* offsets 4 to 9"
    ):
        read(servers, T1, 1)
    assert len(read(servers, T1, 1, FetchOptions(may_skip_unavailable=True))) == 6
    with pytest.raises(UnknownTopicError, match=r"no topic 'tt'; did you mean 't'\?"):
        read(servers, TopicPartition("tt", 0), 0)

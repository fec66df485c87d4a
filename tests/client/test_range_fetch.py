"""Reading ranges of a partition, with correct and faulty brokers."""

import asyncio
import logging
from contextlib import aclosing

import pytest

from partage.client import (
    BatchTooLargeError,
    BrokerResponseError,
    ClientOptions,
    Cluster,
    CorruptRecordsError,
    FetchOptions,
    NoProgressError,
    RecordsUnavailableError,
    RetryPolicy,
    TopicPartition,
    UnknownTopicError,
    decode_fetched,
    fetch_range,
)
from partage.wire.records.encoder import SimpleRecord, encode_batch

from .confluent_admin import delete_records, delete_topic, produce
from .scripted_broker import CLOSE, ScriptedBroker, fetched

T0 = TopicPartition("t", 0)
QUICK = ClientOptions(retries=RetryPolicy(backoff_ms=1, backoff_max_ms=1))


async def offsets(cluster, first, last, options=None):
    """Return the offsets of the records of a range, a list for each column set."""
    found = []
    async for answer in fetch_range(cluster, T0, first, last, options):
        found += [
            memoryview(columns.offset).cast("q").tolist() for columns in decode_fetched(answer)
        ]
    return found


def flat(lists):
    return [offset for one in lists for offset in one]


class TestFromABroker:
    def read(self, broker, first, last, options=None):
        async def main():
            async with Cluster(broker.bootstrap_servers) as cluster:
                return await offsets(cluster, first, last, options)

        return asyncio.run(main())

    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
    def test_any_range_is_read(self, partage_broker, codec):
        records = [{"value": b"v" * (n % 500)} for n in range(1000)]
        config = {"batch.num.messages": 100, "compression.type": codec}
        produce(partage_broker.bootstrap_servers, "t", records, **config)
        small = FetchOptions(partition_bytes_max=300)
        for options in (None, small):
            assert flat(self.read(partage_broker, 0, 1000, options)) == list(range(1000))
            assert flat(self.read(partage_broker, 150, 751, options)) == list(range(150, 751))
            assert flat(self.read(partage_broker, 999, 1000, options)) == [999]
        assert len(self.read(partage_broker, 0, 1000, small)) > 1
        assert self.read(partage_broker, 5, 5) == []

    def test_batch_above_limit_is_returned_whole(self, partage_broker):
        produce(partage_broker.bootstrap_servers, "t", [{"value": b"x" * 500_000}] * 2)
        assert flat(self.read(partage_broker, 0, 2, FetchOptions(partition_bytes_max=100))) == [
            0,
            1,
        ]

    def test_deleted_offsets_raise_or_are_skipped(self, partage_broker, caplog):
        servers = partage_broker.bootstrap_servers
        produce(servers, "t", [{"value": b"x"}] * 10)
        delete_records(servers, "t", 4)
        with pytest.raises(
            RecordsUnavailableError, match=r"offset 1 of t-0 was deleted, .* holds offsets 4 to 9"
        ):
            self.read(partage_broker, 1, 10)
        with caplog.at_level(logging.WARNING, "partage"):
            assert flat(
                self.read(partage_broker, 1, 7, FetchOptions(may_skip_unavailable=True))
            ) == [4, 5, 6]
        assert "continued at offset 4" in caplog.text
        assert self.read(partage_broker, 1, 3, FetchOptions(may_skip_unavailable=True)) == []

    def test_offset_beyond_end_raises(self, partage_broker):
        produce(partage_broker.bootstrap_servers, "t", [{"value": b"x"}] * 3)
        with pytest.raises(
            RecordsUnavailableError, match=r"offset 7 of t-0 does not exist: .* offsets 0 to 2"
        ):
            self.read(partage_broker, 7, 9)
        assert self.read(partage_broker, 7, 9, FetchOptions(may_skip_unavailable=True)) == []

    def test_range_beyond_end_waits_until_timeout(self, partage_broker):
        produce(partage_broker.bootstrap_servers, "t", [{"value": b"x"}] * 3)
        options = FetchOptions(progress_timeout_ms=50, max_wait_ms=10)
        with pytest.raises(
            NoProgressError, match="no record of t-0 was received for 50 ms at offset 3"
        ):
            self.read(partage_broker, 0, 4, options)

    def test_topic_deleted_during_read_raises(self, partage_broker):
        servers = partage_broker.bootstrap_servers
        produce(servers, "t", [{"value": b"x"}] * 3)

        async def main():
            async with Cluster(servers, QUICK) as cluster:
                await cluster.topics(["t"])
                await asyncio.to_thread(delete_topic, servers, "t")
                await offsets(cluster, 0, 3)

        with pytest.raises(UnknownTopicError):
            asyncio.run(main())

    def test_read_survives_broker_restart(self, partage_broker_process):
        broker = partage_broker_process
        large = [{"value": b"x" * 1000}] * 100
        produce(broker.bootstrap_servers, "t", large, **{"batch.num.messages": 10})

        async def main():
            found = []
            async with Cluster(broker.bootstrap_servers) as cluster:
                options = FetchOptions(partition_bytes_max=20_000)
                async for answer in fetch_range(cluster, T0, 0, 100, options):
                    if not found:
                        broker.kill()
                        await asyncio.to_thread(broker.start)
                    for columns in decode_fetched(answer):
                        found += memoryview(columns.offset).cast("q").tolist()
            return found

        assert asyncio.run(main()) == list(range(100))


def batch(first, count, **options):
    return encode_batch(
        [SimpleRecord(None, b"v%d" % n) for n in range(count)], base_offset=first, **options
    )


def run(script, first=0, last=100, options=None, client=QUICK):
    """Return the offsets read from a scripted broker, and the broker."""

    async def main():
        async with ScriptedBroker(script) as broker, Cluster([broker.address], client) as cluster:
            return await offsets(cluster, first, last, options), broker

    return asyncio.run(main())


async def answers(script):
    async with ScriptedBroker(script) as broker, Cluster([broker.address], QUICK) as cluster:
        async for answer in fetch_range(cluster, T0, 0, 100):
            yield answer


def serving(*answers):
    """Return a script that answers Fetch requests with these in turn: records or other values."""
    left = list(answers)

    def script(asked):
        if asked.api.name != "Fetch":
            return None
        answer = left.pop(0)
        if isinstance(answer, bytes):
            return fetched(asked, answer)
        return fetched(asked, error=answer) if isinstance(answer, int) else answer

    return script


def positions(broker):
    return [
        asked.message.topics[0].partitions[0].fetch_offset
        for asked in broker.asked
        if asked.api.name == "Fetch"
    ]


class TestAnswers:
    def test_partial_batch_is_requested_again(self):
        first, second = batch(0, 10), batch(10, 10)
        cut = first + second[: len(second) // 2]
        found, broker = run(serving(cut, second), last=20)
        assert found == [list(range(10)), list(range(10, 20))]
        assert positions(broker) == [0, 10]

    def test_compaction_gaps_are_no_error(self):
        """Batches keep their offset range when records are removed; whole batches may be removed
        too.
        """
        kept = encode_batch(
            [SimpleRecord(None, b"x", offset_delta=3)], base_offset=10, last_offset_delta=9
        )
        empty = encode_batch([], base_offset=40, last_offset_delta=59)
        found, broker = run(serving(kept, empty), last=100)
        assert found == [[13]]
        assert positions(broker) == [0, 20]

    def test_range_may_end_in_a_compaction_gap(self):
        """The response continues with a batch after the range."""
        assert run(serving(batch(40, 10)), last=20)[0] == []
        assert run(serving(batch(0, 10) + batch(40, 10)), last=20)[0] == [list(range(10))]
        assert run(serving(batch(0, 10) + batch(40, 10)), last=20, first=10)[0] == []

    def test_range_may_begin_and_end_inside_batches(self):
        found, _broker = run(serving(batch(0, 10) + batch(10, 10)), first=4, last=13)
        assert found == [list(range(4, 13))]

    def test_aborted_transactions_are_passed_to_decoder(self):
        """The broker lists them in the response; the decoder's tests cover the rest."""
        from partage.wire.apis.fetch import FetchAbortedTransaction

        lost = batch(0, 5, producer_id=9, producer_epoch=0, is_transactional=True)

        def script(asked):
            if asked.api.name != "Fetch":
                return None
            answer = fetched(asked, lost + batch(5, 2))
            assert asked.message.isolation_level == 1
            answer.responses[0].partitions[0].aborted_transactions = [
                FetchAbortedTransaction(producer_id=9, first_offset=0)
            ]
            return answer

        assert run(script, last=7, options=FetchOptions(read_committed=True))[0] == [[5, 6]]

    def test_fetch_size_grows_for_large_batch(self):
        whole = batch(0, 100)

        def script(asked):
            if asked.api.name != "Fetch":
                return None
            return fetched(
                asked, whole[: asked.message.topics[0].partitions[0].partition_max_bytes]
            )

        found, broker = run(script, options=FetchOptions(partition_bytes_max=200))
        assert flat(found) == list(range(100))
        assert positions(broker) == [0, 0]

    def test_batch_above_response_limit_raises(self):
        client = ClientOptions(retries=QUICK.retries, response_bytes_max=70_000)
        large = encode_batch([SimpleRecord(None, b"x" * 100_000)])
        with pytest.raises(
            BatchTooLargeError, match=r"t-0 at offset 0 has 1000\d\d bytes; the maximum is 4464"
        ):
            run(serving(large[:1000]), client=client)

    def test_topic_without_id_is_requested_by_name(self):
        async def main():
            async with ScriptedBroker(serving(batch(0, 1))) as broker:
                plain = broker._topic

                def without_id(name):
                    topic = plain(name)
                    topic.topic_id = bytes(16)
                    return topic

                broker._topic = without_id
                async with Cluster([broker.address], QUICK) as cluster:
                    await offsets(cluster, 0, 1)
                return broker.asked[-1]

        asked = asyncio.run(main())
        assert (asked.version, asked.message.topics[0].topic) == (12, "t")


class TestErrors:
    @pytest.mark.parametrize("error", [5, 6, 56, 74, 75, 78, 100])
    def test_moved_leader_is_looked_up(self, error):
        found, broker = run(serving(error, error, batch(0, 100)))
        assert flat(found) == list(range(100))
        assert broker.names().count("Metadata") == 3

    def test_broken_connection_is_reopened(self):
        cut = [b"\x00\x00\x01\x00half", CLOSE]

        found, broker = run(serving([CLOSE], cut, batch(0, 100)))
        assert flat(found) == list(range(100))
        assert broker.connections == 3

    def test_request_has_leader_epoch(self):
        _, broker = run(serving(batch(0, 100)))
        assert broker.asked[-1].message.topics[0].partitions[0].current_leader_epoch == 4

    def test_persistent_error_ends_read(self):
        with pytest.raises(BrokerResponseError, match="fetching t-0: NOT_LEADER_OR_FOLLOWER"):
            run(serving(*[6] * 999), options=FetchOptions(progress_timeout_ms=20))

    def test_fatal_error_ends_read_at_once(self):
        with pytest.raises(BrokerResponseError, match="fetching t-0: TOPIC_AUTHORIZATION_FAILED"):
            run(serving(29))

    def test_offset_out_of_range_is_verified(self):
        """A new leader may not know its end offset for a moment."""
        found, _ = run(serving(1, 1, batch(0, 100)))
        assert flat(found) == list(range(100))

    def test_no_records_raises_no_progress(self):
        with pytest.raises(NoProgressError, match="at offset 0, reading up to offset 99"):
            run(serving(*[b""] * 999), options=FetchOptions(progress_timeout_ms=20))

    def test_wrong_checksum_raises_corrupt_records(self):
        whole = bytearray(batch(0, 100))
        whole[-1] ^= 1
        with pytest.raises(CorruptRecordsError, match=r"t-0 are corrupt at offset 0: .*crc"):
            run(serving(bytes(whole)))

    def test_records_before_corruption_are_returned(self):
        damaged = bytearray(batch(10, 90))
        damaged[-1] ^= 1
        found = []

        async def main():
            async with aclosing(answers(serving(batch(0, 10) + damaged))) as fetched_answers:
                async for answer in fetched_answers:
                    found.extend(columns.count for columns in decode_fetched(answer))

        with pytest.raises(CorruptRecordsError, match="corrupt at offset 10"):
            asyncio.run(main())
        assert found == [10]

    def test_invalid_batch_raises_corrupt_records(self):
        for good, offset in (([], 0), ([batch(0, 10)], 10)):
            with pytest.raises(
                CorruptRecordsError, match="a batch with an invalid magic"
            ) as raised:
                run(serving(*good, b"\x01" * 200))
            assert (raised.value.partition, raised.value.offset) == (T0, offset)
            assert f"{T0} are corrupt at offset {offset}: " in str(raised.value)


def test_large_uncompressed_batches_are_split():
    records = encode_batch([SimpleRecord(None, b"x" * 1000)] * 100, compression=4)

    async def main():
        return [answer async for answer in answers(serving(records))]

    (answer,) = asyncio.run(main())
    counts = [columns.count for columns in decode_fetched(answer, size_max=10_000)]
    assert sum(counts) == 100
    assert len(counts) >= 10

"""Both consumers with our broker, without a group."""

import asyncio

import pyarrow as pa
import pytest

import partage
from partage.client import (
    BrokersUnreachableError,
    ClientError,
    TopicPartition,
    UnknownPartitionError,
    UnknownTopicError,
)
from partage.client.consumer import (
    COLUMNS,
    ApiTimeoutError,
    ConsumerClosedError,
    NoOffsetForPartitionError,
    NotAssignedError,
    NothingAssignedError,
    OffsetOutOfRangeError,
    ReadTimeoutError,
)
from partage.client.consumer.engine import Engine
from partage.errors import InvalidArgumentError
from polled_conditions import eventually

from ..confluent_admin import create_partitions, create_topic, delete_records, delete_topic, produce

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PATIENT = 10_000


@pytest.fixture
def servers(partage_broker):
    create_topic(partage_broker.bootstrap_servers, "t", 2)
    return partage_broker.bootstrap_servers


def fill(servers, count, partition=0, topic="t", first=0, **config):
    records = [
        {"value": b"%d" % n, "key": b"k", "partition": partition, "timestamp": 1000 + n}
        for n in range(first, first + count)
    ]
    produce(servers, topic, records, **config)


def polled(consumer, count):
    """Return the values of N records, from as many polls as necessary."""
    found = []
    while len(found) < count:
        records = consumer.poll(PATIENT)
        assert records, f"{len(found)} of {count}"
        found += [int(record.value) for record in records]
    return found


def looped(consumer, count):
    """Return the values of N records from a record loop."""
    loop = iter(consumer)
    return [int(next(loop).value) for _ in range(count)]


class TestPolling:
    def test_poll_returns_records_in_order(self, servers, consumer_of):
        fill(servers, 1200)
        consumer = consumer_of(servers)
        consumer.assign([("t", 0)])
        records = consumer.poll(PATIENT)
        assert len(records) == 500  # max_poll_records
        assert records.partitions == [T0]
        assert records.of("t", 1) == []
        assert consumer.position(T0) == 500
        more = consumer.poll(PATIENT, max_records=10_000)
        assert [int(r.value) for r in [*records, *more]] == list(range(1200))
        assert not consumer.poll(0)

    def test_record_has_all_fields(self, servers, consumer_of):
        headers = [("h", b"1"), ("h", None)]
        produce(servers, "t", [{"value": None, "partition": 1, "headers": headers}])
        fill(servers, 1, partition=1, first=7)
        consumer = consumer_of(servers)
        consumer.assign([T1])
        plain = [*consumer.poll(PATIENT)]
        while len(plain) < 2:
            plain += consumer.poll(PATIENT)
        assert (plain[0].value, plain[0].key) == (None, None)
        assert plain[0].headers == (("h", b"1"), ("h", None))
        record = plain[1]
        assert (record.topic, record.partition, record.offset) == ("t", 1, 1)
        assert (record.timestamp, record.timestamp_type) == (1007, 0)
        assert (record.key, record.value, record.headers) == (b"k", b"7", ())

    def test_record_log_append_time_is_reported(self, servers, consumer_of):
        create_topic(servers, "stamped", **{"message.timestamp.type": "LogAppendTime"})
        fill(servers, 1, topic="stamped")
        consumer = consumer_of(servers)
        consumer.assign([("stamped", 0)])
        (record,) = consumer.poll(PATIENT)
        assert record.timestamp_type == 1
        assert record.timestamp > 1_000_000

    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
    def test_every_codec_decodes_to_records_and_columns(self, servers, consumer_of, codec):
        fill(servers, 2000, **{"compression.type": codec, "batch.num.messages": 300})
        consumer = consumer_of(servers)
        consumer.assign([T0])
        assert polled(consumer, 2000) == list(range(2000))
        consumer.seek(T0, 350)
        table = consumer.to_arrow(columns=["offset", "value"])
        assert table["offset"].to_pylist() == list(range(350, 2000))
        assert table["value"].to_pylist() == [b"%d" % n for n in range(350, 2000)]

    def test_new_records_wake_waiting_poll(self, servers, consumer_of):
        consumer = consumer_of(servers)
        consumer.assign([T0])
        assert consumer.position(T0) == 0
        assert not consumer.poll(1)
        fill(servers, 3)
        assert polled(consumer, 3) == [0, 1, 2]

    def test_poll_many_small_responses(self, servers, consumer_of):
        fill(servers, 500, **{"batch.num.messages": 10})
        fill(servers, 500, partition=1, **{"batch.num.messages": 10})
        consumer = consumer_of(servers, max_partition_fetch_bytes=100, buffer_bytes_max=1000)
        consumer.assign([T0, T1])
        assert sorted(polled(consumer, 1000)) == sorted([*range(500)] * 2)

    def test_fetching_continues_while_user_loop_is_blocked(self, servers):
        async def main():
            async with partage.Consumer(servers, auto_offset_reset="earliest") as consumer:
                consumer.assign([T0])
                while True:
                    version = consumer._engine.version
                    if taken := consumer._engine.collect(None):
                        return taken
                    consumer._engine.next_change(version).result(10)  # blocks the event loop

        fill(servers, 3)
        assert asyncio.run(main())


class TestLooping:
    def test_position_follows_last_iterated_record(self, servers, consumer_of):
        fill(servers, 1000)
        consumer = consumer_of(servers)
        consumer.assign([T0])
        assert looped(consumer, 700) == list(range(700))
        assert consumer.position(T0) == consumer.positions()[T0] == 700
        assert looped(consumer, 2) == [700, 701]
        assert [int(r.value) for r in consumer.poll(PATIENT, max_records=2)] == [702, 703]
        assert consumer.position(T0) == 704

    def test_range_of_a_loop_is_lent_before_the_fetcher_checks(
        self, servers, consumer_of, monkeypatch
    ):
        """Else a due reset could drop the range before its first record."""
        lent, engines = [], []

        def wake(engine):
            engines.append(engine)
            state = engine._positions._states.get(T0)
            if state is not None and state.position > 0:
                lent.append(state.permit.delivered_offset)
            original(engine)

        original = Engine._wake_fetcher
        monkeypatch.setattr(Engine, "_wake_fetcher", wake)
        fill(servers, 3)
        consumer = consumer_of(servers, max_partition_fetch_bytes=1)
        consumer.assign([T0])
        eventually(lambda: engines[0]._positions.awaits_delivery)  # the buffer is full
        assert looped(consumer, 1) == [0]
        assert lent[0] == 0

    def test_seek_between_records_takes_effect(self, servers, consumer_of):
        fill(servers, 100)
        consumer = consumer_of(servers)
        consumer.assign([T0])
        assert looped(consumer, 3) == [0, 1, 2]
        consumer.seek(T0, 50)
        assert looped(consumer, 2) == [50, 51]

    def test_pause_between_records_takes_effect(self, servers, consumer_of):
        fill(servers, 100)
        fill(servers, 100, partition=1, first=100)
        consumer = consumer_of(servers)
        consumer.assign([T0, T1])
        (first,) = looped(consumer, 1)
        mine, other = (T0, T1) if first == 0 else (T1, T0)
        consumer.pause(mine)
        assert consumer.paused() == {mine}
        assert looped(consumer, 100) == [n + (other == T1) * 100 for n in range(100)]
        assert consumer.position(mine) == 1
        consumer.resume(mine)
        assert looped(consumer, 1) == [first + 1]

    def test_unassign_between_records_stops_delivery(self, servers, consumer_of):
        fill(servers, 100)
        consumer = consumer_of(servers)
        consumer.assign([T0])
        assert looped(consumer, 3) == [0, 1, 2]
        consumer.unassign()
        with pytest.raises(NothingAssignedError, match="assign"):
            looped(consumer, 1)

    def test_busy_partition_does_not_starve_another(self, servers, consumer_of):
        """A partition that always has records does not delay the other one."""
        fill(servers, 20_000, **{"batch.num.messages": 100})
        fill(servers, 10, partition=1, first=-10)
        consumer = consumer_of(servers, max_partition_fetch_bytes=10_000)
        consumer.assign([T0, T1])
        assert any(n < 0 for n in looped(consumer, 3000))


class TestPositions:
    def test_seek_methods_set_position(self, servers, consumer_of):
        fill(servers, 100)
        consumer = consumer_of(servers)
        consumer.assign([T0])
        polled(consumer, 100)
        consumer.seek_to_beginning(T0)
        assert consumer.position(T0) == 0
        consumer.seek_to_end()
        assert consumer.position(T0) == 100
        consumer.seek_to_time(1042)
        assert consumer.position(T0) == 42
        assert looped(consumer, 1) == [42]
        consumer.seek_to_time(99_999)
        assert consumer.position(T0) == 100
        consumer.seek(T0, 7)
        assert looped(consumer, 1) == [7]

    def test_offset_queries_return_offsets(self, servers, consumer_of):
        fill(servers, 100)
        delete_records(servers, "t", 10)
        consumer = consumer_of(servers)
        assert consumer.partitions_of("t") == [T0, T1]
        assert consumer.beginning_offsets([T0, T1]) == {T0: 10, T1: 0}
        assert consumer.end_offsets([("t", 0), T1]) == {T0: 100, T1: 0}
        found = consumer.offsets_for_times({("t", 0): 1050, T1: 0})
        assert found == {T0: (50, 1050), T1: None}
        consumer.assign([T0, T1])
        assert consumer.lag() == {T0: 90, T1: 0}
        looped(consumer, 30)
        assert consumer.lag() == {T0: 60, T1: 0}

    def test_assign_keeps_positions_and_rejects_others(self, servers, consumer_of):
        fill(servers, 10)
        consumer = consumer_of(servers)
        consumer.assign([T0])
        looped(consumer, 5)
        consumer.assign([T0, T1])
        assert consumer.assignment() == {T0, T1}
        assert consumer.position(T0) == 5  # the assigned one continues
        consumer.assign([T1])
        for refused in (
            lambda: consumer.position(T0),
            lambda: consumer.seek(T0, 1),
            lambda: consumer.pause(T0),
            lambda: consumer.seek_to_end(T0),
        ):
            with pytest.raises(NotAssignedError, match="t-0 is not assigned to this consumer"):
                refused()

    @pytest.mark.parametrize(
        ("reset", "first"),
        [("earliest", 5), ("latest", 20), ("by_duration:PT1H", 20), ("by_duration:P40000D", 5)],
    )
    def test_auto_offset_reset_sets_start_position(self, servers, consumer_of, reset, first):
        fill(servers, 20)
        delete_records(servers, "t", 5)
        consumer = consumer_of(servers, auto_offset_reset=reset)
        consumer.assign([T0])
        assert consumer.position(T0) == first

    def test_offset_out_of_range_resets_position(self, servers, consumer_of):
        fill(servers, 20)
        delete_records(servers, "t", 5)
        consumer = consumer_of(servers)
        consumer.assign([T0])
        for gone in (2, 1000):
            consumer.seek(T0, gone)
            assert polled(consumer, 15) == list(range(5, 20))

    def test_reset_none_raises_on_every_poll(self, servers, consumer_of):
        fill(servers, 20)
        consumer = consumer_of(servers, auto_offset_reset="none")
        consumer.assign([T0])
        for ask in (lambda: consumer.poll(PATIENT), lambda: consumer.position(T0)):
            with pytest.raises(NoOffsetForPartitionError, match="no offset is committed for t-0"):
                ask()
        consumer.seek(T0, 1000)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError, match="offset 1000 of t-0 is out of range"):
                consumer.poll(PATIENT)
        consumer.seek(T0, 19)
        assert polled(consumer, 1) == [19]


class TestArrow:
    def test_poll_result_to_arrow(self, servers, consumer_of):
        produce(servers, "t", [{"value": b"v", "partition": 0, "headers": [("a", b"b")]}])
        consumer = consumer_of(servers)
        consumer.assign([T0])
        records = consumer.poll(PATIENT)
        table = records.to_arrow()
        assert tuple(table.schema.names) == COLUMNS
        (row,) = table.to_pylist()
        assert (row["topic"], row["partition"], row["offset"], row["value"]) == ("t", 0, 0, b"v")
        assert row["headers"] == [{"key": "a", "value": b"b"}]
        assert pa.table(records).equals(table)  # as Arrow consumers read it
        (batch,) = records.batches
        assert batch.to_arrow(["value"]).to_pydict() == {"value": [b"v"]}
        with pytest.raises(InvalidArgumentError, match="did you mean 'value'"):
            batch.to_arrow(["valve"])

    def test_ranges_of_one_response_to_arrow(self, servers, consumer_of):
        fill(servers, 100, **{"compression.type": "lz4"})
        consumer = consumer_of(servers)
        consumer.assign([T0])
        found = []
        while len(found) < 100:
            table = consumer.poll(PATIENT, max_records=7).to_arrow(["offset"])
            assert len(table) <= 7
            found += table["offset"].to_pylist()
        assert found == list(range(100))

    def test_to_arrow_reads_to_end_offsets(self, servers, consumer_of):
        fill(servers, 1500)
        fill(servers, 1000, partition=1)
        consumer = consumer_of(servers)
        consumer.assign([T0, T1])
        consumer.seek(T0, 100)
        table = consumer.to_arrow(columns=["offset"])
        assert len(table) == 2400
        assert len(consumer.to_arrow()) == 0
        assert consumer.lag() == {T0: 0, T1: 0}

    def test_to_arrow_timeout_keeps_positions(self, servers, consumer_of):
        fill(servers, 100)
        consumer = consumer_of(servers)
        consumer.assign([T0, T1])
        fill(servers, 10, partition=1)
        consumer.position(T0)
        consumer.pause(T1)
        with pytest.raises(ReadTimeoutError, match="the end of t-1 was not reached within 300 ms"):
            consumer.to_arrow(timeout_ms=300)
        assert consumer.position(T0) == consumer.position(T1) == 0


class TestTrouble:
    def test_topic_created_later_is_read(self, servers, consumer_of):
        consumer = consumer_of(servers)
        consumer.assign([("late", 0)])
        assert not consumer.poll(50)
        fill(servers, 3, topic="late")
        assert polled(consumer, 3) == [0, 1, 2]

    def test_unknown_topic_raises(self, servers, consumer_of):
        fill(servers, 3)
        consumer = consumer_of(servers, unknown_topic_wait_ms=100)
        consumer.assign([("tt", 0), T0])
        assert polled(consumer, 3) == [0, 1, 2]  # the other topic is not delayed
        for _ in range(2):
            with pytest.raises(UnknownTopicError, match="no topic 'tt'; did you mean 't'"):
                consumer.poll(PATIENT)

    def test_partition_that_is_created_and_assigned_later_is_read_soon(self, servers, consumer_of):
        """The metadata of the topic is known, and valid for five minutes."""
        fill(servers, 3)
        consumer = consumer_of(servers)
        consumer.assign([T0])
        assert polled(consumer, 3) == [0, 1, 2]
        create_partitions(servers, "t", 3)
        fill(servers, 3, partition=2, first=10)
        consumer.assign([T0, ("t", 2)])
        assert polled(consumer, 3) == [10, 11, 12]

    def test_unknown_partition_raises(self, servers, consumer_of):
        fill(servers, 3)
        consumer = consumer_of(servers, unknown_topic_wait_ms=100)
        consumer.assign([("t", 2), T0])
        assert polled(consumer, 3) == [0, 1, 2]
        with pytest.raises(UnknownPartitionError, match="no partition t-2: topic 't' has 2"):
            consumer.poll(PATIENT)

    def test_position_in_deleted_topic_raises(self, servers, consumer_of):
        """A failed lookup refreshes the metadata, which is valid for minutes otherwise."""
        fill(servers, 3)
        consumer = consumer_of(servers, unknown_topic_wait_ms=100, fetch_max_wait_ms=10)
        consumer.assign([T0])
        assert polled(consumer, 3) == [0, 1, 2]
        consumer.pause(T0)
        eventually(lambda: not consumer._engine._positions._in_flight_bytes)
        delete_topic(servers, "t")
        consumer.seek_to_beginning(T0)
        with pytest.raises(UnknownTopicError, match="no topic 't'"):
            consumer.position(T0)

    def test_recreated_topic_is_read_from_start(self, servers, consumer_of):
        fill(servers, 10)
        consumer = consumer_of(servers)
        consumer.assign([T0])
        assert polled(consumer, 10) == list(range(10))
        delete_topic(servers, "t")
        create_topic(servers, "t", 1)
        fill(servers, 30, first=100)
        assert polled(consumer, 30) == list(range(100, 130))

    @pytest.mark.parametrize("error", ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"])
    def test_coordinator_that_moves_is_no_error(self, partage_broker, servers, consumer_of, error):
        fill(servers, 10)
        consumer = consumer_of(servers, group_id="g", default_api_timeout_ms=1)
        partage_broker.faults.fail("OffsetFetch", error, times=3)
        consumer.assign([T0])
        assert polled(consumer, 10) == list(range(10))

    def test_committed_ends_within_its_timeout(self, partage_broker, servers, consumer_of):
        consumer = consumer_of(servers, group_id="g", default_api_timeout_ms=1_000)
        too_long = pytest.raises(ApiTimeoutError, match="the lookup of committed offsets took")
        with partage_broker.faults.hold("OffsetFetch", required=False), too_long:
            consumer.committed([T0])

    def test_to_arrow_ends_within_its_timeout(self, partage_broker, servers, consumer_of):
        fill(servers, 10)
        consumer = consumer_of(servers, fetch_max_wait_ms=10)
        consumer.assign([T0])
        consumer.position(T0)
        late = pytest.raises(ReadTimeoutError, match="the end of t-0 was not reached within 100 ms")
        with partage_broker.faults.hold("ListOffsets", required=False), late:
            consumer.to_arrow(timeout_ms=100)
        assert len(consumer.to_arrow()) == 10

    def test_position_in_deleted_topic_is_not_committed(self, servers, consumer_of):
        """Another member would begin there in the new topic, and skip its first records."""
        fill(servers, 10)
        consumer = consumer_of(servers, group_id="g", default_api_timeout_ms=300)
        consumer.assign([T0])
        assert polled(consumer, 10) == list(range(10))
        consumer.pause(T0)  # so that it does not notice
        delete_topic(servers, "t")
        create_topic(servers, "t", 1)
        with pytest.raises(ClientError, match="UNKNOWN_TOPIC_ID"):
            consumer.commit()
        assert consumer.committed([T0]) == {T0: None}
        fill(servers, 30, first=100)
        consumer.resume(T0)
        assert polled(consumer, 30) == list(range(100, 130))
        consumer.commit()
        assert consumer.committed([T0])[T0].offset == 30

    def test_broker_restart_continues_reading(self, partage_broker_process, consumer_of):
        broker = partage_broker_process
        fill(broker.bootstrap_servers, 10)
        consumer = consumer_of(broker.bootstrap_servers)
        consumer.assign([T0])
        assert polled(consumer, 10) == list(range(10))
        broker.kill()
        assert not consumer.poll(200)
        broker.start()
        fill(broker.bootstrap_servers, 10, first=10)
        assert polled(consumer, 10) == list(range(10, 20))

    def test_unreachable_brokers_raise(self, consumer_of):
        consumer = consumer_of("127.0.0.1:1")
        consumer.assign([T0])
        with pytest.raises(BrokersUnreachableError, match="Is one running there"):
            consumer.poll(PATIENT)

    def test_poll_without_assignment_raises(self, servers, consumer_of):
        with pytest.raises(NothingAssignedError, match="assign"):
            consumer_of(servers).poll(PATIENT)

    def test_closed_consumer_raises(self, servers, consumer_of):
        consumer = consumer_of(servers)
        consumer.assign([T0])
        consumer.close()
        consumer.close()
        for refused in (
            lambda: consumer.poll(PATIENT),
            lambda: consumer.seek(T0, 1),
            lambda: consumer.assign([T0]),
            lambda: consumer.end_offsets([T0]),
        ):
            with pytest.raises(ConsumerClosedError, match="create a new one"):
                refused()

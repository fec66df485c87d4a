"""Deserializers of keys and values: kafka-python's signatures, and the position after an error."""

from __future__ import annotations

import json

import pytest

from partage import TopicPartition
from partage.errors import DeserializationError, InvalidOptionError
from partage.sync import Consumer

from ..confluent_admin import create_topic, produce

T0 = TopicPartition("t", 0)
PATIENT = 10_000


@pytest.fixture
def servers(partage_broker):
    create_topic(partage_broker.bootstrap_servers, "t", 2)
    return partage_broker.bootstrap_servers


def fill(servers, *values, partition=0):
    records = [{"key": b"k", "value": value, "partition": partition} for value in values]
    produce(servers, "t", records)


def reading(consumer_of, servers, **options):
    consumer = consumer_of(servers, **options)
    consumer.assign([T0])
    return consumer


def polled(consumer, count):
    found = []
    while len(found) < count:
        found += consumer.poll(PATIENT)
    return found


def poll_into(found, consumer):
    while True:
        found += [record.value for record in consumer.poll(PATIENT)]


class Interrupt(BaseException):
    """An exception that interrupts user code, as `KeyboardInterrupt` does."""


class Upper:
    """A deserializer with kafka-python's interface."""

    def __init__(self):
        self.calls = []

    def deserialize(self, topic, headers, data):
        self.calls.append((topic, headers, data))
        return data.decode().upper()


def test_functions_get_bytes_and_make_key_and_value(servers, consumer_of):
    fill(servers, b'{"n": 1}', b'{"n": 2}')
    consumer = reading(
        consumer_of, servers, key_deserializer=bytes.decode, value_deserializer=json.loads
    )
    assert [(r.key, r.value) for r in polled(consumer, 2)] == [("k", {"n": 1}), ("k", {"n": 2})]


def test_object_gets_topic_headers_and_bytes(servers, consumer_of):
    produce(servers, "t", [{"value": b"v", "partition": 0, "headers": [("h", b"1")]}])
    upper = Upper()
    consumer = reading(consumer_of, servers, value_deserializer=upper)
    (record,) = polled(consumer, 1)
    assert (record.value, record.key) == ("V", None)
    assert upper.calls == [("t", (("h", b"1"),), b"v")]


def test_function_is_called_for_none(servers, consumer_of):
    """A deleted key has no value; kafka-python calls its deserializer for None too."""
    fill(servers, None, b"v")
    consumer = reading(consumer_of, servers, value_deserializer=lambda value: (value,))
    assert [record.value for record in polled(consumer, 2)] == [(None,), (b"v",)]


def test_loop_yields_deserialized_records(servers, consumer_of):
    fill(servers, b"1", b"2")
    consumer = reading(consumer_of, servers, value_deserializer=int)
    loop = iter(consumer)
    assert [next(loop).value, next(loop).value] == [1, 2]


def test_batches_are_deserialized_and_arrow_has_bytes(servers, consumer_of):
    fill(servers, b"1", b"2")
    consumer = reading(consumer_of, servers, value_deserializer=int)
    (batch,) = consumer.poll(PATIENT).batches
    assert [record.value for record in batch] == [1, 2]
    assert len(batch) == 2
    assert batch.to_arrow(["value"]).to_pydict() == {"value": [b"1", b"2"]}


@pytest.mark.parametrize("part", ["key", "value"])
def test_error_names_record_and_cause(servers, consumer_of, part):
    fill(servers, b"v")
    consumer = reading(consumer_of, servers, **{f"{part}_deserializer": int})
    with pytest.raises(DeserializationError) as caught:
        consumer.poll(PATIENT)
    error = caught.value
    assert str(error).startswith(f"the {part} of t-0 at offset 0 was not deserialized: ValueError:")
    assert "seek(('t', 0), 1)" in str(error)
    assert (error.partition, error.offset, error.part) == (T0, 0, part)
    assert (error.record.key, error.record.value) == (b"k", b"v")
    assert isinstance(error.__cause__, ValueError)


def test_poll_returns_records_before_the_wrong_one(servers, consumer_of):
    fill(servers, b"0", b"1", b"x", b"3")
    consumer = reading(consumer_of, servers, value_deserializer=int)
    assert [record.value for record in polled(consumer, 2)] == [0, 1]
    assert consumer.position(T0) == 2
    for _ in range(2):  # each poll is a retry
        with pytest.raises(DeserializationError, match="t-0 at offset 2"):
            consumer.poll(PATIENT)
        assert consumer.position(T0) == 2
    consumer.seek(T0, 3)
    assert [record.value for record in polled(consumer, 1)] == [3]


def test_retry_succeeds_after_temporary_error(servers, consumer_of):
    fill(servers, b"0", b"1", b"2")
    failing = {1}

    def deserialize(value):
        if int(value) in failing:
            raise ConnectionError("the registry is down")
        return int(value)

    consumer = reading(consumer_of, servers, value_deserializer=deserialize)
    assert [record.value for record in polled(consumer, 1)] == [0]
    with pytest.raises(DeserializationError, match="ConnectionError: the registry is down"):
        consumer.poll(PATIENT)
    failing.clear()
    assert [record.value for record in polled(consumer, 2)] == [1, 2]


def test_loop_error_keeps_position_and_may_be_skipped(servers, consumer_of):
    fill(servers, b"0", b"x", b"2")
    consumer = reading(consumer_of, servers, value_deserializer=int)
    loop = iter(consumer)
    assert next(loop).value == 0
    for _ in range(2):
        with pytest.raises(DeserializationError) as caught:
            next(loop)
        assert consumer.position(T0) == 1
    consumer.seek(caught.value.partition, caught.value.offset + 1)
    assert next(loop).value == 2


def test_wrong_record_does_not_stop_other_partitions(servers, consumer_of):
    fill(servers, b"x")
    fill(servers, *(b"%d" % n for n in range(20)), partition=1)
    consumer = consumer_of(servers, value_deserializer=int, max_poll_records=5)
    consumer.assign([T0, ("t", 1)])
    found, errors = [], 0
    while len(found) < 20:
        try:
            found += [record.value for record in consumer.poll(PATIENT)]
        except DeserializationError:
            errors += 1
    assert found == list(range(20))
    assert consumer.position(T0) == 0
    assert errors > 0


def test_error_after_transaction_marker_loses_no_record(servers, consumer_of):
    """Several ranges of one partition are put back in the right order."""
    for value in (b"0", b"1", b"x", b"3"):
        fill(servers, value)
    consumer = reading(consumer_of, servers, value_deserializer=int, max_partition_fetch_bytes=60)
    assert [record.value for record in polled(consumer, 2)] == [0, 1]
    with pytest.raises(DeserializationError, match="offset 2"):
        consumer.poll(PATIENT)
    consumer.seek(T0, 3)
    assert [record.value for record in polled(consumer, 1)] == [3]


def test_interrupted_poll_loses_no_record(servers, consumer_of):
    """A poll that returns nothing puts back everything, so that a last commit skips no record."""
    fill(servers, b"0", b"1", b"2")
    fill(servers, b"3", b"4", b"5", partition=1)
    pending = ["4"]

    def deserialize(value):
        if value.decode() in pending:
            pending.remove(value.decode())
            raise Interrupt
        return int(value)

    consumer = consumer_of(servers, group_id="g", value_deserializer=deserialize)
    consumer.subscribe(["t"])
    found = []
    with pytest.raises(Interrupt):
        poll_into(found, consumer)
    assert consumer.position(("t", 1)) == 0
    found += [record.value for record in polled(consumer, 6 - len(found))]
    assert sorted(found) == list(range(6))


def test_group_does_not_commit_the_wrong_record(servers, consumer_of):
    fill(servers, b"0", b"x")
    consumer = consumer_of(servers, group_id="g", value_deserializer=int)
    consumer.subscribe(["t"])
    assert [record.value for record in polled(consumer, 1)] == [0]
    with pytest.raises(DeserializationError):
        consumer.poll(PATIENT)
    consumer.commit()
    assert consumer.committed([T0])[T0].offset == 1


async def asynchronous(value):
    return value


@pytest.mark.parametrize("wrong", [asynchronous, "utf-8", 5, Upper])
def test_invalid_deserializer_raises(wrong):
    with pytest.raises(InvalidOptionError, match="value_deserializer="):
        Consumer("127.0.0.1:1", value_deserializer=wrong)

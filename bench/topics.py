"""MB per second produced and fetched, with the same sync setting as Kafka.

Records of 1 KB in batches of 64 KB, four partitions. Raw connections send prepared batches, one in
each request, with five requests in flight on each connection. They fetch 1 MB at a time without
decoding it. The client is confluent-kafka with acks=all, including its threads and its Python part.
Fetches read records that were just written, from the page cache.

Each round of each broker writes and reads a separate topic; the median round counts.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.brokers import KAFKA, OURS, starts
from bench.figures import Figure, figures_of_rounds
from bench.load import Address, call, connect, decoded, encoded
from bench.machine import LOAD_CORE, warm_page_cache
from bench.worker_process import WorkerProcess
from partage.wire.apis.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from partage.wire.apis.delete_topics import DELETE_TOPICS, DeleteTopicsRequest
from partage.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from partage.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from partage.wire.apis.produce import PRODUCE, ProducePartition, ProduceRequest, ProduceTopic
from partage.wire.records.encoder import SimpleRecord, encode_batch

TITLE = "Topics"

_PARTITIONS = 4
_RECORD_BYTES = 1024
_BATCH_BYTES = 64 * 1024
_PIPELINED = 5
_FETCH_BYTES = 1 << 20
_PRODUCE_VERSION, _FETCH_VERSION = 9, 12

_RECORDS = _BATCH_BYTES // (_RECORD_BYTES + 16)
#: The error code in a ProduceResponse.
_ERROR = struct.Struct(">h")


def measure(*, is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    """Measure without sync, then with sync."""
    size = (32 if is_quick else 512) << 20
    synced_size = (8 if is_quick else 128) << 20
    rounds = 1 if is_quick else 5
    yield from _compared("os", size, rounds, with_kafka)
    yield from _compared("disk", synced_size, rounds, with_kafka)


def _compared(sync: str, size: int, rounds: int, with_kafka: bool) -> Iterator[Figure]:
    seen: dict[str, dict[str, list[float]]] = {}
    with ExitStack() as stack:
        load = stack.enter_context(WorkerProcess(LOAD_CORE))
        started = starts(with_kafka, sync=sync, with_kfake=True)
        brokers = [stack.enter_context(broker) for broker in started]
        for turn in range(rounds + 1):
            for broker in brokers:
                rates = load.run(round_trip, broker.address, size, f"bench-{sync}-{turn}", sync)
                if turn:  # the first round is the warm-up
                    of = seen.setdefault(broker.name, {})
                    for what, rate in rates.items():
                        of.setdefault(what, []).append(rate)
    setting = {"os": "not synced", "disk": "each synced before it is acknowledged"}[sync]
    for what in seen[OURS]:
        yield from figures_of_rounds(
            f"{what}, {setting}",
            "MB/s",
            {name: rates[what] for name, rates in seen.items()},
            ratios_wanted={KAFKA: 1.0},
            note=f"{size >> 20} MB in each round, median of {rounds} after one warm-up round",
        )


async def round_trip(address: Address, size: int, topic: str, sync: str) -> dict[str, float]:
    """Return the MB per second of each way to produce and to fetch."""
    rates = {}
    loop = asyncio.get_running_loop()
    for connections in (1, _PARTITIONS):
        name = f"{topic}-{connections}"
        await create_topic(address, name, _PARTITIONS)
        warm_page_cache(size)
        kind = "connection" if connections == 1 else "connections"
        rates[f"produce, {connections} raw {kind}"] = await produce(
            address, name, size, connections
        )
        if sync == "os":
            rates[f"fetch, {connections} raw {kind}"] = await fetch(
                address, name, size, connections
            )
        await delete_topic(address, name)
    name = f"{topic}-client"
    await create_topic(address, name, _PARTITIONS)
    warm_page_cache(size)
    bootstrap = f"{address[0]}:{address[1]}"
    rates["produce, confluent-kafka"] = await loop.run_in_executor(
        None, client_produce, bootstrap, name, size
    )
    if sync == "os":
        rates["fetch, confluent-kafka"] = await loop.run_in_executor(
            None, client_fetch, bootstrap, name, size
        )
    await delete_topic(address, name)
    return rates


# Topics.


async def create_topic(address: Address, name: str, partitions: int) -> None:
    """Create a topic, and wait until its partitions have a leader."""
    (caller,) = await connect(address, 1)
    wanted = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    await call(caller, CREATE_TOPICS, 5, CreateTopicsRequest(topics=[wanted]))
    caller.close()
    await end_offsets(address, name, partitions)


async def end_offsets(address: Address, name: str, partitions: int) -> list[int]:
    """Return the end offset of each partition, after all have a leader."""
    (caller,) = await connect(address, 1)
    asked = [ListOffsetsPartition(partition_index=n, timestamp_ms=-1) for n in range(partitions)]
    about = ListOffsetsRequest(topics=[ListOffsetsTopic(name=name, partitions=asked)])
    while True:
        (topic,) = (await call(caller, LIST_OFFSETS, 6, about)).topics
        if not any(p.error_code for p in topic.partitions):
            break
        await asyncio.sleep(0.02)
    caller.close()
    return [p.offset for p in topic.partitions]


async def delete_topic(address: Address, name: str) -> None:
    """Delete a topic; the broker may delete its files later."""
    (caller,) = await connect(address, 1)
    await call(caller, DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=[name], timeout_ms=60_000))
    caller.close()


# Raw connections.


def batch() -> bytes:
    """Return the batch to produce; its timestamp is now, because older records might be deleted."""
    value = struct.pack(">256I", *((n * 2_654_435_761) & 0xFFFF_FFFF for n in range(256)))
    return encode_batch([SimpleRecord(None, value, timestamp_ms=int(time.time() * 1e3))] * _RECORDS)


async def produce(address: Address, topic: str, size: int, connections: int) -> float:
    """Fill the partitions; return the MB per second."""
    payload = batch()
    callers = await connect(address, connections)
    frames = [
        encoded(
            PRODUCE,
            _PRODUCE_VERSION,
            ProduceRequest(
                acks=-1,
                timeout_ms=60_000,
                topic_data=[
                    ProduceTopic(
                        name=topic,
                        partition_data=[ProducePartition(index=partition, records=[payload])],
                    )
                ],
            ),
        )
        for partition in range(_PARTITIONS)
    ]
    unsent = size // len(payload)
    due = unsent
    finished = asyncio.get_running_loop().create_future()
    turn = 0

    def send(caller: Any) -> None:
        nonlocal unsent, turn
        if unsent:
            unsent -= 1
            turn += 1
            caller.send(frames[turn % _PARTITIONS])

    def on_response(caller: Any, frame: bytes) -> None:
        nonlocal due
        due -= 1
        # The error is after correlation id, tags, one topic with its name, one partition index.
        (error,) = _ERROR.unpack_from(frame, 4 + 1 + 1 + 1 + len(topic) + 1 + 4)
        if error and not finished.done():
            finished.set_exception(AssertionError(f"Produce was answered {error}"))
        if not due and not finished.done():
            finished.set_result(None)
        send(caller)

    begin = time.perf_counter()
    for caller in callers:
        caller.on_response = on_response
        for _ in range(_PIPELINED):
            send(caller)
    await finished
    took = time.perf_counter() - begin
    for caller in callers:
        caller.close()
    return size / took / 1e6


class Reader(asyncio.BufferedProtocol):
    """A connection that fetches partitions from their start and counts the bytes."""

    def __init__(self, topic: str, partitions: list[int], size: int, batch_bytes: int) -> None:
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._topic = topic
        self._partitions = partitions
        self._wanted = size
        self._batch_bytes = batch_bytes
        self._offsets = dict.fromkeys(partitions, 0)
        self._turn = 0
        self._buffer = memoryview(bytearray(2 * _FETCH_BYTES))
        self._filled = 0
        self._transport: asyncio.Transport

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.finished.done():
            self.finished.set_exception(exc or ConnectionResetError("closed while fetching"))

    def send_fetch(self) -> None:
        partition = self._partitions[self._turn % len(self._partitions)]
        wanted = FetchPartition(
            partition=partition,
            fetch_offset=self._offsets[partition],
            partition_max_bytes=_FETCH_BYTES,
        )
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            topics=[FetchTopic(topic=self._topic, partitions=[wanted])],
        )
        self._transport.write(encoded(FETCH, _FETCH_VERSION, request))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._filled < 4 or self._filled < 4 + int.from_bytes(self._buffer[:4], "big"):
            return
        # The part without records is smaller than a batch.
        batches = self._filled // self._batch_bytes
        if not batches:
            response = decoded(FETCH, _FETCH_VERSION, bytes(self._buffer[4 : self._filled]))
            _ended(self.finished, AssertionError(f"no batch in {response}"))
            return
        partition = self._partitions[self._turn % len(self._partitions)]
        self._offsets[partition] += batches * _RECORDS
        self._wanted -= batches * self._batch_bytes
        self._filled = 0
        self._turn += 1
        if self._wanted > 0:
            self.send_fetch()
        else:
            _ended(self.finished)
            self._transport.close()


def _ended(future: asyncio.Future[None], error: Exception | None = None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


async def fetch(address: Address, topic: str, size: int, connections: int) -> float:
    """Read all records; return the MB per second."""
    loop = asyncio.get_running_loop()
    batch_bytes = len(batch())
    size = size // batch_bytes // _PARTITIONS * _PARTITIONS * batch_bytes
    shares = [list(range(_PARTITIONS))[n::connections] for n in range(connections)]
    readers = []
    for partitions in shares:
        share = size // connections

        def reader(partitions: list[int] = partitions, share: int = share) -> Reader:
            return Reader(topic, partitions, share, batch_bytes)

        readers.append((await loop.create_connection(reader, *address))[1])
    begin = time.perf_counter()
    for each in readers:
        each.send_fetch()
    await asyncio.gather(*(each.finished for each in readers))
    return size / (time.perf_counter() - begin) / 1e6


# confluent-kafka.


def client_produce(bootstrap: str, topic: str, size: int) -> float:
    """Produce records one by one, as an application does; return the MB per second."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": _BATCH_BYTES,
            "queue.buffering.max.kbytes": 64 * 1024,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    value = bytes(range(256)) * (_RECORD_BYTES // 256)
    failures: list[str] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(str(error))

    begin = time.perf_counter()
    for number in range(size // _RECORD_BYTES):
        while True:
            try:
                producer.produce(
                    topic, value, partition=number % _PARTITIONS, on_delivery=delivered
                )
                break
            except BufferError:
                producer.poll(0.05)
        if not number & 1023:
            producer.poll(0)
    producer.flush()
    assert not failures, failures[0]
    return size / (time.perf_counter() - begin) / 1e6


def client_fetch(bootstrap: str, topic: str, size: int) -> float:
    """Consume all records in lists; return the MB per second.

    By default librdkafka waits for a second after its queue was full, so a faster broker would look
    slower.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(_PARTITIONS)])
    left = size // _RECORD_BYTES
    begin = time.perf_counter()
    while left:
        records = consumer.consume(min(left, 10_000), timeout=30)
        assert records, f"{left} records did not come in 30 s"
        left -= len(records)
    took = time.perf_counter() - begin
    consumer.close()
    return size / took / 1e6

"""A broker in memory whose transaction coordinator the test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

from partage.broker.apis.fetch import FetchHandler
from partage.broker.apis.offsets import list_offsets
from partage.broker.apis.produce import ProduceHandler
from partage.broker.broker import Broker
from partage.broker.net.inbound_request import InboundRequest
from partage.broker.topics.log_manager import LogManager
from partage.broker.topics.log_reader import LogReader
from partage.broker.topics.partition import Partition
from partage.log.memory_disk import MemoryDisk
from partage.log.partition import PartitionLog
from partage.log.results import AppendResult, Refusal
from partage.model.errors import ErrorCode
from partage.model.settings import BrokerSettings, TransactionSettings
from partage.model.topic_partition import TopicPartition
from partage.wire.api import AnyApi
from partage.wire.apis.fetch import FETCH, FetchPartitionResult
from partage.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsPartitionResult,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from partage.wire.apis.produce import (
    PRODUCE,
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceTopic,
)
from partage.wire.records.batch import Compression
from partage.wire.records.encoder import SimpleRecord, encode_batch

from .requests import fetch_request

NOW_MS = 1_700_000_000_000
ADDING_VERSION = 12
NONE = ErrorCode.NONE


class Admission(NamedTuple):
    """A question to the coordinator."""

    transactional_id: str
    producer: tuple[int, int]
    partitions: Sequence[TopicPartition]
    adds: bool
    done: Callable[[Mapping[TopicPartition, ErrorCode]], None]

    def answer(self, error: ErrorCode) -> None:
        self.done(dict.fromkeys(self.partitions, error))


class ScriptedParticipation:
    """A coordinator whose answers the test gives."""

    def __init__(self) -> None:
        self.asked: list[Admission] = []

    def admit(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        done: Callable[[Mapping[TopicPartition, ErrorCode]], None],
    ) -> None:
        producer = producer_id, producer_epoch
        self.asked.append(Admission(transactional_id, producer, list(partitions), adds, done))


class Connection:
    client_host = "localhost"
    on_lost = None
    response_bytes_max = 1 << 20

    def on_response_ready(self) -> None:
        pass

    def close_for_error(self, why: str) -> None:
        raise AssertionError(why)

    def close(self) -> None:
        pass


class Inbound(InboundRequest):
    """A request that keeps its response."""

    def __init__(self, api: AnyApi, request: Any, version: int) -> None:
        super().__init__(Connection(), api, version, 1, "test", request, NOW_MS)
        self.response: Any = None
        self.answered = asyncio.Event()

    def respond(self, message: Any) -> None:
        self.response = message
        self.answered.set()

    @property
    def results(self) -> list[ProducePartitionResult]:
        return [p for topic in self.response.responses for p in topic.partition_responses]


class World:
    """A broker in memory with topic ``t`` and a scripted coordinator."""

    def __init__(self, log_manager: LogManager, disk: MemoryDisk) -> None:
        self.log_manager = log_manager
        self.reads = LogReader(disk)
        self.coordinator = ScriptedParticipation()

    @property
    def partition(self) -> Partition:
        partition = self.log_manager.partition("t", 0)
        assert partition is not None
        return partition

    @property
    def log(self) -> PartitionLog:
        return self.partition.log

    def send(
        self, *payloads: bytes, version: int = ADDING_VERSION, transactional_id: str | None = "tx"
    ) -> Inbound:
        """Handle a Produce request with one payload for each partition from 0 on."""
        partitions = [
            ProducePartition(index=at, records=[payload]) for at, payload in enumerate(payloads)
        ]
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=5000,
            topic_data=[ProduceTopic(name="t", partition_data=partitions)],
        )
        inbound = Inbound(PRODUCE, request, version)
        ProduceHandler(inbound, self.log_manager, self.coordinator).run()
        return inbound

    async def write(self, payload: bytes) -> int:
        """Append a batch that needs no admission, or is admitted at once; return its offset."""
        sent = self.send(payload)
        for asked in self.coordinator.asked:
            asked.answer(NONE)
        self.coordinator.asked.clear()
        ((error, offset),) = await outcome(sent)
        assert error is NONE, error
        return offset

    async def end(self, producer: tuple[int, int] = (1, 0), *, is_commit: bool = True) -> None:
        """Append a marker and wait until it is durable."""
        durable = asyncio.get_running_loop().create_future()
        appended = self.partition.append_marker(
            *producer,
            0,
            is_commit=is_commit,
            transaction_version=0,
            at_ms=NOW_MS,
            done=durable.set_result,
        )
        assert isinstance(appended, AppendResult), appended
        assert await durable is NONE

    def fetch(
        self, offset: int = 0, *, isolation_level: int = 1, version: int = 12, **options: Any
    ) -> Inbound:
        """Handle a Fetch request for partition 0."""
        request = fetch_request("t", (offset,), isolation_level=isolation_level, **options)
        inbound = Inbound(FETCH, request, version)
        FetchHandler(inbound, self.log_manager, self.reads).run()
        return inbound

    async def list_offset(
        self, timestamp_ms: int, *, isolation_level: int = 1
    ) -> ListOffsetsPartitionResult:
        """Handle a ListOffsets request for partition 0."""
        partition = ListOffsetsPartition(partition_index=0, timestamp_ms=timestamp_ms)
        request = ListOffsetsRequest(
            isolation_level=isolation_level,
            topics=[ListOffsetsTopic(name="t", partitions=[partition])],
        )
        inbound = Inbound(LIST_OFFSETS, request, 7)
        await list_offsets(inbound, self.log_manager, self.reads)
        result: ListOffsetsPartitionResult = inbound.response.topics[0].partitions[0]
        return result


def run(
    story: Callable[[World], Coroutine[object, object, None]],
    transactions: TransactionSettings | None = None,
    **configs: str,
) -> None:
    async def running() -> None:
        settings = BrokerSettings(
            offsets_partitions=1, transactions=transactions or TransactionSettings()
        )
        disk = MemoryDisk()
        broker = await Broker.start(disk, settings, host="127.0.0.1", port=0)
        names = {name.replace("_", "."): value for name, value in configs.items()}
        assert not isinstance(await broker.log_manager.create("t", 2, names), Refusal)
        await story(World(broker.log_manager, disk))
        await broker.stop()

    asyncio.run(running())


def batch(
    sequence: int = 0,
    *,
    producer: tuple[int, int] = (1, 0),
    is_transactional: bool = True,
    compression: int = Compression.NONE,
) -> bytes:
    return encode_batch(
        [SimpleRecord(None, b"%d" % sequence, timestamp_ms=NOW_MS)],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        is_transactional=is_transactional,
        compression=compression,
    )


async def fetched(inbound: Inbound) -> FetchPartitionResult:
    """Return the partition of a Fetch response, once it arrives."""
    await inbound.answered.wait()
    result: FetchPartitionResult = inbound.response.responses[0].partitions[0]
    return result


PLAIN = encode_batch([SimpleRecord(None, b"plain", timestamp_ms=NOW_MS)])


async def outcome(inbound: Inbound) -> list[tuple[ErrorCode, int]]:
    """Return error and offset of each partition, once the request is answered."""
    await inbound.answered.wait()
    return [(ErrorCode(one.error_code), one.base_offset) for one in inbound.results]


async def code(inbound: Inbound) -> ErrorCode:
    return (await outcome(inbound))[0][0]

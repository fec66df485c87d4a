"""The author of the topics of a world: writes, deletes records, and creates topics again.

It makes one change at a time, and repeats a request until it succeeds. So the contents of the
topics are known exactly.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple

from partage.client.connection import Connection
from partage.client.errors import ClientError
from partage.client.options import ClientOptions
from partage.model.addresses import Address
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.testing.topic_worlds.scenario import COMPACTED, TopicScenario
from partage.testing.topic_worlds.topic_contents import RecordState, StoredRecord, TopicContents
from partage.testing.world.world import PartageWorld
from partage.wire.api import AnyApi
from partage.wire.apis.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from partage.wire.apis.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from partage.wire.apis.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from partage.wire.apis.delete_topics import (
    DELETE_TOPICS,
    DeleteTopicsRequest,
    DeleteTopicsTopic,
)
from partage.wire.apis.end_txn import END_TXN, EndTxnRequest
from partage.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from partage.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from partage.wire.apis.produce import PRODUCE, ProducePartition, ProduceRequest, ProduceTopic
from partage.wire.records.encoder import SimpleRecord, encode_batch
from partage.wire.types import Message

_PORT: Final = 9092
_TIMEOUT_MS: Final = 3_000
_RETRY_S: Final = 0.1
_ATTEMPTS_MAX: Final = 1_500
_TRANSACTIONAL_ID: Final = "author"
_TRANSACTION_TIMEOUT_MS: Final = 600_000
_TRANSACTION_KEY: Final = 1
_RECORDS_MAX: Final = 8
#: The last versions with topic names, and of the protocol before KIP-890.
_VERSIONS_MAX: Final = {PRODUCE.key: 11, ADD_PARTITIONS_TO_TXN.key: 3, END_TXN.key: 4}
#: The most batches that a new topic gets at once.
_BATCHES_MAX: Final = 12
_TRIM_SHARE: Final = 0.15
_RECREATE_SHARE: Final = 0.08
_TRANSACTION_SHARE: Final = 0.5
_COMMIT_SHARE: Final = 0.6
_KEYS: Final = (b"a", b"b", b"c", b"d")
_COMPACTION: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}


class _Producer(NamedTuple):
    producer_id: int
    epoch: int


class Author:
    """Changes the topics of a world.

    Args:
        world: The world.
        scenario: Its options.
        contents: Told about all changes.
    """

    def __init__(
        self, world: PartageWorld, scenario: TopicScenario, contents: TopicContents
    ) -> None:
        self._world = world
        self._scenario = scenario
        self._contents = contents
        self._rng = Random(f"author {scenario.seed}")
        self._number = 0
        self._plain: _Producer | None = None
        self._transactional: _Producer | None = None
        self._sequences: dict[tuple[_Producer, TopicPartition, int], int] = {}

    async def run(self) -> None:
        """Make all changes of the world."""
        for _ in range(self._scenario.steps):
            await self._step()
            await asyncio.sleep(self._rng.uniform(0, self._scenario.step_s))

    async def _step(self) -> None:
        scenario, rng = self._scenario, self._rng
        partition = rng.choice(self._contents.partitions())
        if scenario.trims and rng.random() < _TRIM_SHARE:
            await self.trim(partition)
        elif scenario.recreates and rng.random() < _RECREATE_SHARE:
            await self.recreate(partition.topic)
        elif scenario.transacts and rng.random() < _TRANSACTION_SHARE:
            await self.transact(is_commit=rng.random() < _COMMIT_SHARE)
        else:
            await self.write(partition)

    async def create(self, topic: str, count: int) -> None:
        """Create a topic."""
        self._contents.create(topic, count)
        configs = _COMPACTION if self._is_compacted(topic) else {}
        created = CreatableTopic(
            name=topic,
            num_partitions=count,
            replication_factor=1,
            assignments=[],
            configs=[
                CreatableTopicConfig(name=name, value=value) for name, value in configs.items()
            ],
        )
        request = CreateTopicsRequest(topics=[created], timeout_ms=_TIMEOUT_MS)

        def is_done(response: Any) -> bool:
            code = response.topics[0].error_code
            return code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

        await self._repeat(CREATE_TOPICS, request, self._any_broker, is_done)

    def _is_compacted(self, topic: str) -> bool:
        return self._scenario.compacts and topic == COMPACTED

    async def recreate(self, topic: str) -> None:
        """Delete a topic, and create it again after a while."""
        self._world.note(f"deletes {topic}")
        count = self._scenario.partitions[topic]
        request = DeleteTopicsRequest(
            topics=[DeleteTopicsTopic(name=topic)], timeout_ms=_TIMEOUT_MS
        )

        def is_done(response: Any) -> bool:
            code = response.responses[0].error_code
            return code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

        await self._repeat(DELETE_TOPICS, request, self._any_broker, is_done)
        await asyncio.sleep(self._rng.choice((0, 0, 0.1, 1, 4)))
        await self.create(topic, count)
        self._world.note(f"created {topic} again")
        # Positions in the former topic are positions in this one, too.
        for _ in range(self._rng.choice((0, _BATCHES_MAX))):
            await self.write(TopicPartition(topic, self._rng.randrange(count)))

    async def trim(self, partition: TopicPartition) -> None:
        """Delete the oldest records of a partition, maybe all."""
        contents = self._contents.current(partition)
        end = contents.end_offset
        if end <= contents.deleted or self._is_compacted(partition.topic):
            return  # Kafka deletes no records of a topic that is only compacted
        offset = self._rng.choice((end, self._rng.randint(contents.deleted + 1, end)))
        self._world.note(f"deletes the records of {partition} below {offset}")
        contents.trimmed = max(contents.trimmed, offset)
        wanted = DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=partition.topic, partitions=[wanted])],
            timeout_ms=_TIMEOUT_MS,
        )

        def is_done(response: Any) -> bool:
            return not response.topics[0].partitions[0].error_code

        await self._repeat(DELETE_RECORDS, request, lambda: self._leader(partition), is_done)
        contents.deleted = offset

    async def write(self, partition: TopicPartition) -> None:
        """Write a batch without a transaction."""
        if self._plain is None:
            self._plain = await self._init_producer(None)
        await self._produce(self._plain, partition, RecordState.COMMITTED)

    async def transact(self, *, is_commit: bool) -> None:
        """Write a transaction to some partitions, and commit or abort it."""
        rng, contents = self._rng, self._contents
        if self._transactional is None:
            self._transactional = await self._init_producer(_TRANSACTIONAL_ID)
        producer = self._transactional
        partitions = rng.sample(contents.partitions(), rng.randint(1, len(contents.partitions())))
        stored: list[StoredRecord] = []
        for partition in partitions:
            await self._add_partition(producer, partition)
            stored += await self._produce(producer, partition, RecordState.OPEN)
            await asyncio.sleep(rng.choice((0, 0, 0.2, 1)))
        # readers may see the decision before its response
        for record in stored:
            record.state = RecordState.COMMITTED if is_commit else RecordState.ABORTED
        request = EndTxnRequest(
            transactional_id=_TRANSACTIONAL_ID,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=is_commit,
        )
        await self._repeat(
            END_TXN,
            request,
            self._transaction_coordinator,
            lambda response: not response.error_code,
        )
        self._world.note(f"{'commits' if is_commit else 'aborts'} {[str(p) for p in partitions]}")

    async def _init_producer(self, transactional_id: str | None) -> _Producer:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS
        )
        where = self._any_broker if transactional_id is None else self._transaction_coordinator
        response = await self._repeat(
            INIT_PRODUCER_ID, request, where, lambda response: not response.error_code
        )
        return _Producer(response.producer_id, response.producer_epoch)

    async def _add_partition(self, producer: _Producer, partition: TopicPartition) -> None:
        topic = AddPartitionsToTxnTopic(name=partition.topic, partitions=[partition.partition])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=_TRANSACTIONAL_ID,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[topic],
        )

        def is_done(response: Any) -> bool:
            topics = response.results_by_topic_v3_and_below
            return not topics[0].results_by_partition[0].partition_error_code

        await self._repeat(ADD_PARTITIONS_TO_TXN, request, self._transaction_coordinator, is_done)

    async def _produce(
        self, producer: _Producer, partition: TopicPartition, state: RecordState
    ) -> list[StoredRecord]:
        contents, is_open = self._contents, state is RecordState.OPEN
        key = producer, partition, contents.newest(partition.topic)
        first = self._sequences.get(key, 0)
        stored = []
        for _ in range(self._rng.randint(1, _RECORDS_MAX)):
            self._number += 1
            record_key = self._rng.choice(_KEYS) if self._is_compacted(partition.topic) else None
            stored.append(StoredRecord(record_key, contents.value(partition, self._number), state))
        now_ms = int(time.time() * 1000)
        batch = encode_batch(
            [SimpleRecord(each.key, each.value, timestamp_ms=now_ms) for each in stored],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=first,
            is_transactional=is_open,
        )
        data = ProducePartition(index=partition.partition, records=[batch])
        request = ProduceRequest(
            transactional_id=_TRANSACTIONAL_ID if is_open else None,
            acks=-1,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[ProduceTopic(name=partition.topic, partition_data=[data])],
        )

        def is_done(response: Any) -> bool:
            return not response.responses[0].partition_responses[0].error_code

        response = await self._repeat(PRODUCE, request, lambda: self._leader(partition), is_done)
        self._sequences[key] = first + len(stored)
        offset = response.responses[0].partition_responses[0].base_offset
        contents.current(partition).records |= dict(enumerate(stored, start=offset))
        return stored

    # Requests

    def _any_broker(self) -> str:
        return self._rng.choice(self._world.brokers)

    def _leader(self, partition: TopicPartition) -> str:
        return self._world.leader(*partition)

    async def _transaction_coordinator(self) -> str:
        def is_done(response: Any) -> bool:
            return not response.coordinators[0].error_code

        request = FindCoordinatorRequest(
            key_type=_TRANSACTION_KEY, coordinator_keys=[_TRANSACTIONAL_ID]
        )
        found = await self._repeat(FIND_COORDINATOR, request, self._any_broker, is_done)
        host: str = found.coordinators[0].host
        return host

    async def _repeat(
        self,
        api: AnyApi,
        request: Message,
        where: Callable[[], Any],
        is_done: Callable[[Any], bool],
    ) -> Any:
        """Send a request until it succeeds."""
        options = ClientOptions(
            client_id="author", request_timeout_ms=_TIMEOUT_MS, connect_timeout_ms=_TIMEOUT_MS
        )
        response: Any = None
        for attempt in itertools.count():
            if attempt == _ATTEMPTS_MAX:
                text = f"{api.name} does not succeed: {request} {response}"
                self._world.break_rule("author", text)
            try:
                host = where()
                if not isinstance(host, str):
                    host = await host
                connection = await Connection.open(Address(host, _PORT), options)
            except (ClientError, LookupError, RuntimeError):
                await asyncio.sleep(_RETRY_S)
                continue
            try:
                response = await connection.send(
                    api, request, version_max=_VERSIONS_MAX.get(api.key)
                )
                if is_done(response):
                    return response
            except ClientError:
                pass
            finally:
                connection.close()
            await asyncio.sleep(_RETRY_S)
        raise AssertionError("the loop has no end")

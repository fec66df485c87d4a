"""A writer process: an idempotent producer that repeats each batch until it is acknowledged."""

from __future__ import annotations

import asyncio
import time
from random import Random
from typing import Final, Protocol

from partage.client.connection import Connection
from partage.client.errors import ClientError
from partage.client.options import ClientOptions
from partage.model.addresses import Address
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.produce import PRODUCE, ProducePartition, ProduceRequest, ProduceTopic
from partage.wire.records.encoder import SimpleRecord, encode_batch

_TIMEOUT_MS: Final = 2_000
_RETRY_S: Final = 0.2
#: How many records it writes before it waits for the end of the faults.
_RECORDS_MAX: Final = 500


class WriteObserver(Protocol):
    """Learns which records are written."""

    def on_written(self, partition: TopicPartition, offset: int, values: list[bytes]) -> None:
        """Note acknowledged records from an offset on."""
        ...


class Writer:
    """Writes batches to partitions in turn. Its state survives kills, as on a disk.

    Args:
        leaders: The addresses of the partitions' brokers.
        rules: Told about acknowledged records.
        partitions: The partitions that only this writer writes.
        producer_id: Its producer id.
        rng: Draws the number of records in a batch.
        records_max: The largest number of records in a batch.
        every_s: Time between two batches, in seconds.
    """

    def __init__(
        self,
        leaders: dict[TopicPartition, Address],
        rules: WriteObserver,
        partitions: list[TopicPartition],
        producer_id: int,
        rng: Random,
        records_max: int,
        every_s: float,
    ) -> None:
        self._leaders = leaders
        self._rules = rules
        self._partitions = partitions
        self._producer_id = producer_id
        self._rng = rng
        self._records_max = records_max
        self._every_s = every_s
        self._turn = 0
        self._sequences: dict[TopicPartition, int] = {}
        self._values: list[bytes] = []  # of the batch in flight
        self.is_stopped = False
        #: The number of records after which it waits.
        self.limit = _RECORDS_MAX
        #: The number of records that it writes without pauses.
        self.hurries_to = 0

    @property
    def has_backlog(self) -> bool:
        """True if it has written all that it writes without pauses."""
        return self.record_count >= self.hurries_to

    @property
    def record_count(self) -> int:
        """The number of records that it has written."""
        return sum(self._sequences.values())

    def add(self, partition: TopicPartition, leader: Address) -> None:
        """Write another partition, too; it is the next one.

        Args:
            partition: The partition.
            leader: The address of its broker.
        """
        self._leaders[partition] = leader
        self._turn %= len(self._partitions)
        is_in_flight = bool(self._values)  # this batch keeps its partition
        self._partitions.insert(self._turn + is_in_flight, partition)

    async def main(self) -> None:
        """Write until ``is_stopped`` is True and no batch is in flight."""
        options = ClientOptions(client_id="writer", request_timeout_ms=_TIMEOUT_MS)
        while not self.is_stopped or self._values:
            address = self._leaders[self._partition]
            try:
                connection = await Connection.open(address, options)
            except ClientError:
                await asyncio.sleep(_RETRY_S)
                continue
            try:
                while not self.is_stopped or self._values:
                    if self._leaders[self._partition] != address:
                        break
                    if self._values or self.record_count < self.limit:
                        await self._write(connection)
                    await asyncio.sleep(self._every_s if self.has_backlog else 0)
            except ClientError:
                await asyncio.sleep(_RETRY_S)
            finally:
                connection.close()

    @property
    def _partition(self) -> TopicPartition:
        return self._partitions[self._turn % len(self._partitions)]

    async def _write(self, connection: Connection) -> None:
        partition = self._partition
        first = self._sequences.get(partition, 0)
        if not self._values:
            count = self._rng.randint(1, self._records_max)
            self._values = [
                b"%s-%d:%d" % (partition.topic.encode(), partition.partition, first + number)
                for number in range(count)
            ]
        now_ms = int(time.time() * 1000)  # older records would be removed by the retention
        batch = encode_batch(
            [SimpleRecord(None, value, timestamp_ms=now_ms) for value in self._values],
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=first,
        )
        data = ProducePartition(index=partition.partition, records=[batch])
        topic = ProduceTopic(name=partition.topic, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[topic])
        response = await connection.send(PRODUCE, request, version_max=12)
        result = response.responses[0].partition_responses[0]
        if result.error_code:
            await asyncio.sleep(_RETRY_S)
            return
        self._rules.on_written(partition, result.base_offset, self._values)
        self._sequences[partition] = first + len(self._values)
        self._values = []
        self._turn += 1

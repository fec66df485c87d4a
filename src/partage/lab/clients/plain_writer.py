"""A client that writes one record without a transaction to the topic of transactional producers."""

from __future__ import annotations

from random import Random

from partage.lab.clients.client_process import ClientProcess
from partage.lab.context import WorldContext
from partage.lab.names import OUTPUT_PARTITIONS, OUTPUT_TOPIC
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.produce import PRODUCE, ProducePartition, ProduceRequest, ProduceTopic
from partage.wire.records.encoder import encode_batch


class PlainWriter(ClientProcess):
    """A process that sends one Produce request, without retries."""

    def __init__(self, world: WorldContext, rng: Random) -> None:
        super().__init__(world, "plain writer", {PRODUCE.key: 9})
        index = rng.randrange(OUTPUT_PARTITIONS)
        self.broker_id = world.leader_of(TopicPartition(OUTPUT_TOPIC, index))
        value = f"plain.{rng.getrandbits(48)}/{index}/0/".encode()
        batch = encode_batch([world.output_record(value)])
        data = ProducePartition(index=index, records=[batch])
        self._message = ProduceRequest(
            acks=-1,
            timeout_ms=5_000,
            topic_data=[ProduceTopic(name=OUTPUT_TOPIC, partition_data=[data])],
        )
        self.spawn(self._run())

    async def _run(self) -> None:
        await self.request(PRODUCE, self._message)
        self.kill(silently=False)

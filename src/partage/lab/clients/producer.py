"""Idempotent producers with one record in flight and unlimited retries.

Each record of a producer has a unique value in its partition, so it must be stored at exactly one
offset, whatever messages are lost: the broker detects duplicates. A second producer is slower. Now
and then it sends an acknowledged record again much later, as a producer would that missed the
response.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from partage.lab import history
from partage.lab.clients.client_connection import ClientConnection
from partage.lab.context import WorldContext
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.produce import PRODUCE, ProducePartition, ProduceRequest, ProduceTopic
from partage.wire.records.encoder import SimpleRecord, encode_batch

_FIRST_ID: Final = 7
_SLOWDOWN: Final = 3  # of the second producer
_RESEND_SHARE: Final = 0.3
_RESEND_DELAYS_MS: Final = (3_000, 12_000)
_TIMEOUT_MS: Final = 2_000


class Producer:
    """A producer that writes to all partitions in turn; the first one has ``number`` 0."""

    def __init__(self, world: WorldContext, number: int) -> None:
        self._world = world
        self._id = _FIRST_ID + number
        self._name = "producer" if not number else f"producer {number + 1}"
        self._prefix = "" if not number else f"{number + 1}:"
        self._rng = Random(f"{world.scenario.seed} {self._name}")
        self._resend_share = _RESEND_SHARE if number else 0.0
        self._every_ms = world.options.produce_every_ms * (_SLOWDOWN if number else 1)
        self._next: dict[TopicPartition, int] = {}
        self._turn = 0
        self._connection: ClientConnection | None = None
        self._is_stopped = False
        world.clock.call_later(self._every_ms, self._produce)

    def stop(self) -> None:
        """Stop after the record in flight is acknowledged."""
        self._is_stopped = True

    def _partition(self) -> TopicPartition:
        counts = self._world.partition_counts
        places = [
            TopicPartition(topic, index)
            for topic, count in counts.items()
            for index in range(count)
        ]
        return places[self._turn % len(places)]

    def _produce(self) -> None:
        if self._is_stopped:
            return
        world, connection = self._world, self._connection
        if connection is None or connection.is_closed:
            self._connection = ClientConnection(world.network, self._name, 1, 0, lambda: None)
            self._connection.open(lambda is_open: None)
        elif connection.is_open:
            self._send(connection)
            return
        world.clock.call_later(200, self._produce)

    def _send(self, connection: ClientConnection) -> None:
        world = self._world
        partition = self._partition()
        number = self._next.get(partition, 0)
        value = f"{self._prefix}{number}".encode()
        batch = encode_batch(
            [SimpleRecord(None, value, timestamp_ms=world.now_ms)],
            producer_id=self._id,
            producer_epoch=0,
            base_sequence=number,
        )
        topic, index = partition
        data = [
            ProduceTopic(
                name=topic, partition_data=[ProducePartition(index=index, records=[batch])]
            )
        ]
        is_done = False

        def on_response(response: Any) -> None:
            nonlocal is_done
            is_done = True
            result = response.responses[0].partition_responses[0]
            wait_ms = 500
            if not result.error_code:
                world.append_history(
                    history.RecordProduced(
                        at_ms=world.now_ms,
                        partition=partition,
                        offset=result.base_offset,
                        value=value,
                    )
                )
                wait_ms = self._every_ms
                if self._resend_share and self._rng.random() < self._resend_share:
                    wait_ms = self._rng.choice(_RESEND_DELAYS_MS)
                else:
                    self._next[partition] = number + 1
                    self._turn += 1
            world.clock.call_later(wait_ms, self._produce)

        def give_up() -> None:
            nonlocal is_done
            if not is_done:
                is_done = True
                connection.close()
                self._produce()

        message = ProduceRequest(acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=data)
        connection.send(PRODUCE, message, on_response, 10 * _TIMEOUT_MS)
        world.clock.call_later(_TIMEOUT_MS, give_up)

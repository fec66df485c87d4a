"""Idempotent producers with one record in flight and unlimited retries.

Each record of a producer has a unique value in its partition, so it must be stored at exactly one
offset, whatever messages are lost: the broker detects duplicates. A second producer is slower. Now
and then it sends an acknowledged record again much later, as a producer would that missed the
response.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

from partage.lab import history
from partage.lab.clients.client_connection import ClientConnection
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.produce import PRODUCE, ProducePartition, ProduceRequest, ProduceTopic
from partage.wire.records.encoder import SimpleRecord, encode_batch

if TYPE_CHECKING:
    from partage.lab.world import World

_FIRST_ID: Final = 7
_SLOWER: Final = 3
_RESEND_SHARE: Final = 0.3
_LATER_MS: Final = (3_000, 12_000)
_PATIENCE_MS: Final = 2_000


class Producer:
    """A producer that writes to all partitions in turn; the first one has ``number`` 0."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._id = _FIRST_ID + number
        self._name = "producer" if not number else f"producer {number + 1}"
        self._prefix = "" if not number else f"{number + 1}:"
        self._rng = Random(f"{world.scenario.seed} {self._name}")
        self._resend_share = _RESEND_SHARE if number else 0.0
        self._every_ms = world.options.produce_every_ms * (_SLOWER if number else 1)
        self._next: dict[TopicPartition, int] = {}
        self._turn = 0
        self._link: ClientConnection | None = None
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
        world, link = self._world, self._link
        if link is None or link.is_closed:
            self._link = ClientConnection(world.network, self._name, 1, 0, lambda: None)
            self._link.open(lambda is_open: None)
        elif link.is_open:
            self._send(link)
            return
        world.clock.call_later(200, self._produce)

    def _send(self, link: ClientConnection) -> None:
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
        is_answered = False

        def heard(answer: Any) -> None:
            nonlocal is_answered
            is_answered = True
            result = answer.responses[0].partition_responses[0]
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
                    wait_ms = self._rng.choice(_LATER_MS)
                else:
                    self._next[partition] = number + 1
                    self._turn += 1
            world.clock.call_later(wait_ms, self._produce)

        def give_up() -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                link.close()
                self._produce()

        message = ProduceRequest(acks=-1, timeout_ms=_PATIENCE_MS, topic_data=data)
        link.send(PRODUCE, message, heard, 10 * _PATIENCE_MS)
        world.clock.call_later(_PATIENCE_MS, give_up)

"""Readers of the topic of transactional producers, with either isolation level.

A reader with read_committed skips the records of aborted transactions as Kafka's clients do: with
the list in the response, and the markers. Now and then it reads again from an earlier offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from partage.lab.clients.client_process import ClientProcess
from partage.lab.context import WorldContext
from partage.lab.names import OUTPUT_PARTITIONS, OUTPUT_TOPIC
from partage.lab.offset_log import marker_type
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from partage.wire.records.batch import whole_batches
from partage.wire.records.decoder import decode_records

_POLL_INTERVAL_MS: Final = 400
_AGAIN_SHARE: Final = 0.15


class IsolatedReader(ClientProcess):
    """A process that reads all partitions of the topic again and again."""

    def __init__(self, world: WorldContext, *, is_committed: bool) -> None:
        name = "committed reader" if is_committed else "uncommitted reader"
        super().__init__(world, name, {FETCH.key: 11})
        self.is_committed = is_committed
        self.positions = {
            TopicPartition(OUTPUT_TOPIC, index): 0 for index in range(OUTPUT_PARTITIONS)
        }
        self.spawn(self._run())

    async def _run(self) -> None:
        while True:
            begins = dict(self.positions)
            if self.rng.random() < _AGAIN_SHARE:
                begins = {each: self.rng.randrange(at + 1) for each, at in begins.items()}
            for leader in range(1, self.world.output_leader_count + 1):
                of_leader = {
                    each: at for each, at in begins.items() if self.world.leader_of(each) == leader
                }
                await self._fetch(of_leader, leader)
            await self.sleep(_POLL_INTERVAL_MS)

    async def _fetch(self, begins: dict[TopicPartition, int], leader: int) -> None:
        bytes_max = self.rng.choice((100, 400, 4_000))
        topic = FetchTopic(
            topic=OUTPUT_TOPIC,
            partitions=[
                FetchPartition(
                    partition=each.partition, fetch_offset=at, partition_max_bytes=bytes_max
                )
                for each, at in begins.items()
            ],
        )
        response = await self.request(
            FETCH,
            FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                isolation_level=1 if self.is_committed else 0,
                topics=[topic],
            ),
            broker_id=None if leader == self.broker_id else leader,
        )
        for found in response.responses if response is not None else ():
            for result in found.partitions:
                partition = TopicPartition(found.topic, result.partition_index)
                if not result.error_code and result.records:
                    self._use(partition, begins[partition], result)

    def _use(self, partition: TopicPartition, begin: int, result: Any) -> None:
        content = bytes(result.records[0])
        aborted = result.aborted_transactions or () if self.is_committed else ()
        _, next_offset = visible_records(content, begin, aborted)
        self.positions[partition] = max(self.positions[partition], next_offset)


def visible_records(
    content: bytes, begin: int, aborted: Sequence[Any]
) -> tuple[list[tuple[int, bytes]], int]:
    """Return the records of a Fetch that a reader uses, and the offset of its next Fetch.

    Args:
        content: Batches; the last one may be cut off.
        begin: The offset of the Fetch.
        aborted: The aborted transactions in the response.
    """
    waiting = sorted(aborted, key=lambda one: one.first_offset)
    skipped: set[int] = set()  # producers whose open transaction was aborted
    found: list[tuple[int, bytes]] = []
    next_offset = begin
    view = memoryview(content)
    for at, header in whole_batches(view):
        batch = view[at : at + header.size]
        last_offset = header.base_offset + header.last_offset_delta
        while waiting and waiting[0].first_offset <= last_offset:
            skipped.add(waiting.pop(0).producer_id)
        next_offset = max(next_offset, last_offset + 1)
        if header.is_control:
            if marker_type(batch) == 0:
                skipped.discard(header.producer_id)
            continue
        if header.is_transactional and header.producer_id in skipped:
            continue
        found += [
            (record[0], record[3] or b"")
            for record in decode_records(bytes(batch), header.base_offset)
            if record[0] >= begin
        ]
    return found, next_offset

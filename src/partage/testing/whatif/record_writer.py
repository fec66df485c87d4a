"""Writes copies of live records to the topics of a simulated world."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from typing import Final

from partage.broker.broker import Broker
from partage.lab.whatif.live_group import LivePartition
from partage.lab.whatif.trial import SampleRecord
from partage.log.results import Refusal
from partage.model.topic_partition import TopicPartition
from partage.wire.records.encoder import SimpleRecord, encode_batch

#: Records that are written per second, in all partitions together.
RATE_MAX: Final = 500.0
_INTERVAL_S: Final = 0.5
_BATCH_RECORDS_MAX: Final = 500


class RecordWriter:
    """Writes to the partitions of a world at the rates of a live group.

    Args:
        broker: the broker of the world.
        partitions: the live partitions, with their rates.
        samples: live records. A partition without one gets those of its topic, and a topic without
            one gets records without key and value.
    """

    def __init__(
        self, broker: Broker, partitions: Sequence[LivePartition], samples: Sequence[SampleRecord]
    ) -> None:
        self._broker = broker
        total = sum(each.rate for each in partitions)
        scale = min(1.0, RATE_MAX / total) if total else 0.0
        self._rates = {TopicPartition(p.topic, p.index): p.rate * scale for p in partitions}
        self._records: dict[TopicPartition, Iterator[SampleRecord]] = {}
        for place in self._rates:
            of_topic = [each for each in samples if each.topic == place.topic]
            found = [each for each in of_topic if each.partition == place.partition] or of_topic
            empty = SampleRecord(topic=place.topic, partition=place.partition)
            self._records[place] = itertools.cycle(found or [empty])

    async def run(self) -> None:
        """Write until it is cancelled."""
        due = dict.fromkeys(self._rates, 0.0)
        while True:
            await asyncio.sleep(_INTERVAL_S)
            for place, rate in self._rates.items():
                due[place] += rate * _INTERVAL_S
                count = int(due[place])
                due[place] -= count
                self.write(place, count)

    def write(self, place: TopicPartition, count: int) -> None:
        """Write records to a partition."""
        partition = self._broker.log_manager.partition(*place)
        assert partition is not None, f"{place} was created"
        at_ms = self._broker.log_manager.wall_ms()
        while count > 0:
            size = min(count, _BATCH_RECORDS_MAX)
            count -= size
            batch = encode_batch(
                [
                    SimpleRecord(each.key, each.value, each.headers, at_ms)
                    for each in itertools.islice(self._records[place], size)
                ]
            )
            partition.append_from_client(batch, _check_appended, lambda error: None, at_ms=at_ms)


def _check_appended(outcome: object) -> None:
    assert not isinstance(outcome, Refusal), outcome

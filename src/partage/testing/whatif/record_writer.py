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

#: Records and bytes that are written per second, in all partitions together.
_RATE_MAX: Final = 500.0
_BYTES_RATE_MAX: Final = 500_000.0
_INTERVAL_MIN_S: Final = 0.5
#: Batches that are written per second, in all partitions together.
_BATCHES_MAX: Final = 60
_BATCH_RECORDS_MAX: Final = 500
_BATCH_BYTES_MAX: Final = 500_000


def mean_bytes(samples: Sequence[SampleRecord]) -> float:
    """Return the mean size of records, at least 1."""
    total = sum(len(each.key or b"") + len(each.value or b"") for each in samples)
    return max(1.0, total / len(samples)) if samples else 1.0


def written_rate(partitions: Sequence[LivePartition], samples: Sequence[SampleRecord]) -> float:
    """Return the records per second that a trial writes, which may be less than the live rate."""
    live = sum(each.rate for each in partitions)
    return min(live, _RATE_MAX, _BYTES_RATE_MAX / mean_bytes(samples))


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
        scale = written_rate(partitions, samples) / total if total else 0.0
        self._rates = {TopicPartition(p.topic, p.index): p.rate * scale for p in partitions}
        self._batch_max = int(_BATCH_BYTES_MAX / mean_bytes(samples))
        self._batch_max = max(1, min(_BATCH_RECORDS_MAX, self._batch_max))
        self._records: dict[TopicPartition, Iterator[SampleRecord]] = {}
        for place in self._rates:
            of_topic = [each for each in samples if each.topic == place.topic]
            found = [each for each in of_topic if each.partition == place.partition] or of_topic
            empty = SampleRecord(topic=place.topic, partition=place.partition)
            self._records[place] = itertools.cycle(found or [empty])

    async def run(self) -> None:
        """Write until it is cancelled."""
        due = dict.fromkeys(self._rates, 0.0)
        interval_s = max(_INTERVAL_MIN_S, len(self._rates) / _BATCHES_MAX)
        while True:
            await asyncio.sleep(interval_s)
            for place, rate in self._rates.items():
                due[place] += rate * interval_s
                count = int(due[place])
                due[place] -= count
                self.write(place, count)

    def write(self, place: TopicPartition, count: int) -> None:
        """Write records to a partition."""
        partition = self._broker.log_manager.partition(*place)
        assert partition is not None, f"{place} was created"
        at_ms = self._broker.log_manager.wall_ms()
        while count > 0:
            size = min(count, self._batch_max)
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

"""The offsets from which `partage web` begins to read ``__group_events``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from partage.console.web import group_events
from partage.console.web.group_events import GroupEventsReader
from partage.store.group_events import TOPIC


class ConsumerOfLateEvent:
    """A consumer of an empty partition that gets an event after the first request about it."""

    def __init__(self) -> None:
        self.end = 0
        self.assigned: list[TopicPartition] = []

    def offsets_for_times(
        self, lookups: list[TopicPartition], timeout: float
    ) -> list[TopicPartition]:
        offset = 0 if self.end else -1
        self.end = 1
        return [TopicPartition(each.topic, each.partition, offset) for each in lookups]

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:
        end, self.end = self.end, 1
        return 0, end

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.assigned = partitions

    def consume(self, count: int, timeout: float) -> list[Any]:
        return []


def test_event_written_during_look_up_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_events, "_PATIENCE_S", 0.0)
    consumer = ConsumerOfLateEvent()
    topic = SimpleNamespace(partitions={0: SimpleNamespace(leader=1)})
    cluster: Any = SimpleNamespace(
        metadata=lambda: SimpleNamespace(topics={TOPIC: topic}),
        consumer=lambda defaults, required: consumer,
        timeout_s=1.0,
    )
    GroupEventsReader(cluster).read()
    assert [each.offset for each in consumer.assigned] == [0]

"""Reader of assigned partitions without a group, through librdkafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO, Final

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as RdTopicPartition

from partage.console.common.cluster_client import ClusterClient, error_text
from partage.console.common.errors import CommandError
from partage.console.common.signals import StopRequest
from partage.console.records.consume_loop import POLL_TIMEOUT_S, ConsumeLoop
from partage.console.records.record_formatter import RecordFormatter
from partage.console.records.start_positions import ReadRange
from partage.model.topic_partition import TopicPartition

_NO_GROUP: Final = "partage-consume"
"""librdkafka requires a group id, even if no group is joined and no offset is committed."""

_PASSING: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
    }
)


class AssignedReader(ConsumeLoop):
    """Reads each partition from a start offset.

    The end of a partition is its end offset at the start, so that producers cannot keep the reader
    running.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        spans: Mapping[TopicPartition, ReadRange],
        show: RecordFormatter,
        out: BinaryIO,
        *,
        isolation_level: str,
        fetch_wait_ms: int | None,
        outage_ms: int,
    ) -> None:
        super().__init__(cluster, out, outage_ms)
        self._show = show
        self._ends = {partition: span.end for partition, span in spans.items()}
        self._at_end = {partition for partition, span in spans.items() if span.start >= span.end}
        self._consumer: Consumer = cluster.consumer(
            {
                "group.id": _NO_GROUP,
                "enable.auto.commit": False,
                "isolation.level": isolation_level,
                **({} if fetch_wait_ms is None else {"fetch.wait.max.ms": fetch_wait_ms}),
            },
            {"enable.partition.eof": True, "enable.auto.offset.store": False},
        )
        self._consumer.assign(
            [RdTopicPartition(*partition, span.start) for partition, span in spans.items()]
        )

    def poll(self, records_max: int) -> int:
        first = self._consumer.poll(POLL_TIMEOUT_S)
        if first is None:
            return 0
        more = records_max - 1
        return self._take([first, *(self._consumer.consume(more, 0) if more else [])])

    def _take(self, messages: list[Message]) -> int:
        shown: list[bytes] = []
        try:
            for message in messages:
                partition = TopicPartition(message.topic() or "", message.partition() or 0)
                error = message.error()
                if error is None:
                    shown.append(self._show(message))
                    if (message.offset() or 0) + 1 >= self._ends[partition]:
                        self._at_end.add(partition)
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._at_end.add(partition)
                elif not error.retriable() and error.code() not in _PASSING:
                    raise CommandError(_failure(partition, error))
        finally:
            self.write(b"".join(shown))
        self.records += len(shown)
        self.bytes += sum(
            len(each.value() or b"") + len(each.key() or b"")
            for each in messages
            if each.error() is None
        )
        return len(shown)

    def is_at_end(self) -> bool:
        return self._ends.keys() <= self._at_end

    def check_connection(self, stop: StopRequest) -> None:
        down = KafkaError._ALL_BROKERS_DOWN
        if any(each.code() == down for each in self.cluster.recent_errors):
            self.wait_for_cluster(lambda s: self._consumer.list_topics(timeout=s), stop)

    def close(self) -> None:
        self._consumer.close()


def _failure(partition: TopicPartition, error: KafkaError) -> str:
    text = f"cannot read {partition}: {error_text(error)}"
    if error.code() != KafkaError.INVALID_MSG:
        return text
    return (
        f"{text}: the broker found a damaged batch and logged its place; "
        f"to read the records after it, use --partition {partition.partition} --offset N"
    )

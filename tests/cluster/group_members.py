"""Members of a group that read and commit while brokers fail."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from partage import sync
from partage.client.consumer import RebalanceListener
from polled_conditions import PATIENCE_S, eventually

from .brokers import ClusterBroker, bootstrap

#: librdkafka options: short delays before it reconnects to a broker.
FAST_RECONNECT = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "log_level": 0}


class ConsumerPair:
    """Two members of one group, librdkafka's and ours, that poll and commit all the time."""

    def __init__(self, servers: str, group: str, topic: str) -> None:
        self.theirs_assigned: list[int] = []
        self.ours_assigned: list[int] = []
        self.committed = [0, 0]
        self.read: set[tuple[int, int]] = set()
        self.read_again: set[tuple[int, int]] = set()
        self._reading = threading.Lock()
        self.faults: list[BaseException] = []
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(run, servers, group, topic))
            for run in (self._theirs, self._ours)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, run: Any, *args: str) -> None:
        try:
            run(*args)
        except BaseException as error:
            self.faults.append(error)

    def _theirs(self, servers: str, group: str, topic: str) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "partition.assignment.strategy": "cooperative-sticky",
                "heartbeat.interval.ms": 200,
                # A stopped broker keeps its connections open: only a timeout detects it.
                "socket.timeout.ms": 3000,
                **FAST_RECONNECT,
            }
        )

        def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            self.theirs_assigned.append(len(partitions))
            consumer.incremental_assign(partitions)

        consumer.subscribe([topic], on_assign=assigned)
        while not self._stopping.is_set():
            messages = [m for m in consumer.consume(100, 0.05) if m.error() is None]
            self._note({(m.partition(), m.offset()) for m in messages})
            if messages:
                try:
                    consumer.commit(asynchronous=False)
                except KafkaException:
                    continue
                self.committed[0] += 1
        consumer.close()

    def _ours(self, servers: str, group: str, topic: str) -> None:
        ours = self.ours_assigned

        class Noting(RebalanceListener):
            def on_partitions_assigned(self, partitions: Any) -> None:
                ours.append(len(partitions))

        options: dict[str, Any] = {
            "group_id": group,
            "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": 200,
            "request_timeout_ms": 3000,
            "enable_auto_commit": False,
        }
        with sync.Consumer(servers, **options) as consumer:
            consumer.subscribe([topic], Noting())
            while not self._stopping.is_set():
                records = list(consumer.poll(timeout_ms=50))
                self._note({(r.partition, r.offset) for r in records})
                if records:
                    consumer.commit()
                    self.committed[1] += 1

    def _note(self, places: set[tuple[int, int]]) -> None:
        with self._reading:
            self.read_again |= self.read & places
            self.read |= places

    def wait(self, what: Any) -> None:
        eventually(lambda: bool(self.faults) or what(), lambda: str(vars(self)))
        assert not self.faults, self.faults

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)


class SuppliedConsumerPair(ConsumerPair):
    """Two members, with records written to each partition in turn while a test waits."""

    def __init__(
        self, running: Mapping[int, ClusterBroker], group: str, topic: str, partitions: int
    ) -> None:
        servers = bootstrap(running)
        self._topic, self._partitions = topic, partitions
        # Without idempotence, a retried record could be stored twice.
        self._producer = Producer(
            {"bootstrap.servers": servers, "enable.idempotence": True, **FAST_RECONNECT}
        )
        self.sent = 0
        super().__init__(servers, group, topic)

    @property
    def assigned(self) -> tuple[list[int], list[int]]:
        """Number of partitions of each member, for each of its assignments."""
        return list(self.theirs_assigned), list(self.ours_assigned)

    def wait_shared(self) -> None:
        """Wait until each has half of the partitions and has committed."""
        half = self._partitions // 2
        self.wait(lambda: all(sum(each) >= half for each in self.assigned))
        self.wait_commits(2)

    def wait_commits(self, commits: int = 5) -> None:
        """Wait for this number of further commits by each member."""
        wanted = [n + commits for n in self.committed]

        def committed() -> bool:
            self._producer.produce(self._topic, b"x", partition=self.sent % self._partitions)
            self._producer.poll(0)
            self.sent += 1
            return all(now >= n for now, n in zip(self.committed, wanted, strict=True))

        self.wait(committed)

    def check_all_was_read_once(self) -> None:
        assert self._producer.flush(PATIENCE_S) == 0
        self.wait(lambda: len(self.read) == self.sent)
        assert self.read_again == set()

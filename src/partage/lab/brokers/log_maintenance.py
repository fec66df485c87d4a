"""Log maintenance of a broker: reopening, adding and compacting partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from partage.lab.brokers.shell import BrokerShell
from partage.lab.environment.disk import PowerLossError
from partage.lab.history import RuleViolationError
from partage.lab.names import OUTPUT_TOPIC
from partage.log.errors import DamagedLogError
from partage.model.topic_partition import TopicPartition
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC

#: Delay before a log is opened again after a failure.
RELOAD_AFTER_MS: Final = 500


class LogMaintenance:
    """Opens partitions, reopens them after failures, and compacts the coordinator's log."""

    def __init__(self, broker: BrokerShell) -> None:
        self._broker = broker
        self._reopening: set[TopicPartition] = set()

    def schedule_reopen(self, topic: str, index: int) -> None:
        """Schedule the reopening of a partition whose write failed."""
        partition = TopicPartition(topic, index)
        if partition not in self._reopening:
            self._reopening.add(partition)
            again = self._reopen(topic, index)
            self._broker.writer.submit(
                [], lambda error: self._broker.call_later(RELOAD_AFTER_MS, again)
            )

    def _reopen(self, topic: str, index: int) -> Callable[[], None]:
        def again() -> None:
            assert self._broker.storage is not None
            try:
                self._broker.storage.open(topic, index, self._broker.world.now_ms)
            except PowerLossError:
                self._broker.lose_power()
            except (OSError, DamagedLogError) as error:
                self._broker.world.record_incident(f"opening {topic}-{index} failed", f"{error}")
                self._broker.call_later(RELOAD_AFTER_MS, again)
            else:
                self._reopening.discard(TopicPartition(topic, index))

        return again

    def add_partition(self, topic: str, index: int) -> bool:
        """Open a new partition. Return False if the disk or the process prevents it."""
        if self._broker.storage is None or self._broker.is_paused:
            return False
        try:
            self._broker.storage.open(topic, index, self._broker.world.now_ms)
        except PowerLossError:
            self._broker.lose_power()
            return False
        except OSError:
            return False
        return True

    def compact(self, topic: str = OFFSETS_TOPIC, index: int = 0) -> bool:
        """Compact a log. Return False if there is nothing to compact."""
        if self._broker.storage is None or self._broker.is_paused:
            return False
        partition = self._broker.storage.partitions.get(TopicPartition(topic, index))
        if partition is None:  # the state of groups is in ZooKeeper
            return False
        try:
            return self._broker.storage.compact(self._broker.world.now_ms, topic, index)
        except PowerLossError:
            self._broker.lose_power()
            return True
        except (OSError, DamagedLogError) as error:
            if isinstance(error, DamagedLogError) and not self._broker.world.was_damaged:
                problem = f"damage was reported, but none was injected: {error}"
                raise RuleViolationError("recovery", problem) from error
            self._broker.world.record_incident("compaction failed", f"{error}")
            partition.failure = OSError(f"{error}")
            partition.log.abandon_compaction()
            if topic == OUTPUT_TOPIC:
                self.schedule_reopen(topic, index)
            return True

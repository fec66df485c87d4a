"""Shard state on the broker's disk: one partition of ``__consumer_offsets`` or of
``__transaction_state``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from partage.lab.brokers.log_maintenance import RELOAD_AFTER_MS
from partage.lab.brokers.shell import BrokerShell
from partage.lab.brokers.storage import Storage
from partage.lab.environment.disk import PowerLossError
from partage.log.errors import DamagedLogError
from partage.log.producer_state import ProducerStateManager
from partage.log.recovery.segment_scan import find_batch_fault
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC
from partage.wire.types import Buffer

_EVERYTHING: Final = 1 << 40


class LocalStore:
    """The state store of a single broker."""

    epoch: Final = 0

    def __init__(self, broker: BrokerShell, topic: str = OFFSETS_TOPIC) -> None:
        self._broker = broker
        self._topic = topic

    @property
    def _storage(self) -> Storage:
        storage = self._broker.storage
        assert storage is not None, "the process has no disk"
        return storage

    @property
    def producer_state(self) -> ProducerStateManager:
        """The producers of transactional records."""
        return self._storage.partitions[TopicPartition(self._topic, 0)].log.producer_state

    def load(self, loaded: Callable[[Sequence[Buffer]], None]) -> None:
        """Read the partition. Damage ends the process and is repaired."""
        world = self._broker.world
        try:
            content = self._read()
        except PowerLossError:
            self._broker.lose_power()
        except DamagedLogError as error:
            self._broker.die("cannot load its groups")
            world.repair_damage(error)
        except OSError as error:
            world.record_incident("a load failed", f"{error}")
            self._broker.call_later(RELOAD_AFTER_MS, lambda: self.load(loaded))
        else:
            world.clear_damage()
            loaded(content)

    def _read(self) -> list[bytes]:
        storage = self._storage
        partition = storage.partitions[TopicPartition(self._topic, 0)]
        if partition.failure is not None:
            partition = storage.open(self._topic, 0, self._broker.world.now_ms)
        log = partition.log
        if log.high_watermark == log.log_start_offset:
            return []
        content = storage.read(partition, log.log_start_offset, _EVERYTHING)
        if any(find_batch_fault(part) for part in content):
            raise DamagedLogError(partition.name, 0, "the data read differs from the data written")
        return content

    def append(self, batches: Sequence[bytes], done: Callable[[ErrorCode], None]) -> bool:
        """Append the batches to the partition's log."""
        partition = self._storage.partitions[TopicPartition(self._topic, 0)]
        for position, batch in enumerate(batches, start=1):
            outcome = partition.append(
                batch,
                done if position == len(batches) else lambda error: None,
                at_ms=self._broker.world.now_ms,
                from_client=False,
            )
            if isinstance(outcome, Refusal):
                return False
        return True

    def may_answer(self) -> bool:
        """Return True: there is no other broker."""
        return True

    def reopen(self, opened: Callable[[], None]) -> None:
        """Wait for pending writes. `load` then opens the partition again."""
        self._broker.writer.submit([], lambda error: opened())

"""Shard state in ZooKeeper, for a broker in a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from partage.lab.brokers.cluster_membership import ClusterMembership
from partage.lab.brokers.log_maintenance import RELOAD_AFTER_MS
from partage.lab.brokers.shell import BrokerShell
from partage.lab.coverage import WRITE_FENCED
from partage.log.producer_state import ProducerStateManager
from partage.model.errors import ErrorCode
from partage.runtime.shard_producers import ShardProducers
from partage.store.shared_log import SharedLog
from partage.store.write_batcher import ShardFencedError
from partage.store.zookeeper import StoreError
from partage.wire.primitives import MalformedError
from partage.wire.types import Buffer


class StoredShard(Protocol):
    """The host of a shard, as its store sees it."""

    def start_loading(self) -> None:
        """Prepare to load the shard."""

    def schedule_load(self) -> None:
        """Load the shard soon."""

    def resign(self) -> None:
        """Drop the shard, which another broker may own."""

    def flush(self) -> None:
        """Send the replies that waited for the lease."""


class SharedStore:
    """The state store of one shard; ``log`` belongs to the current epoch, if this broker owns the
    shard.
    """

    host: StoredShard
    membership: ClusterMembership

    def __init__(self, broker: BrokerShell) -> None:
        self.log: SharedLog | None = None
        self._broker = broker
        self._producers = ShardProducers()

    def attach(self, membership: ClusterMembership, host: StoredShard) -> None:
        """Set the membership and the host that use this store."""
        self.membership, self.host = membership, host

    # Interface of the membership: see `ShardOwner`

    def on_acquired(self, log: SharedLog) -> None:
        """Load the shard, which this broker now owns."""
        self.log = log
        self.host.start_loading()
        self.host.schedule_load()

    def on_resigned(self) -> None:
        """Drop the shard, which another broker may own."""
        self.log = None
        self.host.resign()

    def on_lease_renewed(self) -> None:
        """Send the replies that waited for the lease."""
        self.host.flush()

    # Interface of the host: see `StateStore`

    @property
    def epoch(self) -> int:
        """The epoch in which this broker owns the shard; 0 if it does not."""
        return 0 if self.log is None else self.log.epoch

    @property
    def producer_state(self) -> ProducerStateManager:
        """The producers of transactional records."""
        return self._producers.state

    def load(self, loaded: Callable[[Sequence[Buffer]], None]) -> None:
        """Read the log, retrying until it succeeds."""
        if self.log is not None:
            self.membership.spawn(self._load(self.log, loaded))

    async def _load(self, log: SharedLog, loaded: Callable[[Sequence[Buffer]], None]) -> None:
        try:
            content = await log.load()
        except (
            StoreError,
            MalformedError,
        ):  # a broker that acquired the shard may have merged the log meanwhile
            self._broker.call_later(RELOAD_AFTER_MS, lambda: self.load(loaded))
        else:
            if log is self.log:
                self._producers.load(content)
                loaded(content)

    def append(self, batches: Sequence[bytes], done: Callable[[ErrorCode], None]) -> bool:
        """Append the batches. They are durable when the last one is."""
        log = self.log
        if log is None:
            return False

        def written(fault: StoreError | None) -> None:
            if fault is None:
                done(ErrorCode.NONE)
            elif isinstance(fault, ShardFencedError):
                self._broker.world.count_fault(WRITE_FENCED)
                self.membership.on_deposed(log)
            else:
                done(ErrorCode.KAFKA_STORAGE_ERROR)

        self._producers.apply(batches)
        for batch in batches[:-1]:
            self.membership.append(log, batch, lambda fault: None)
        self.membership.append(log, batches[-1], written)
        return True

    def reopen(self, opened: Callable[[], None]) -> None:
        """Acquire the shard in a new epoch. ZooKeeper rejects pending writes of the old epoch."""

        lost = self.log
        if lost is None:
            return

        def on_retaken(log: SharedLog | None) -> None:
            if self.log is not lost:
                return
            if log is None:
                self._broker.call_later(RELOAD_AFTER_MS, lambda: self.reopen(opened))
                return
            self.log = log
            opened()

        self.membership.retake(lost, on_retaken)

    def may_answer(self) -> bool:
        """Return True if no other broker can own the shard by now."""
        return self.membership.may_answer()

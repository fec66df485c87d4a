"""The shards that this broker owns: acquiring, releasing and losing them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from partage.broker.clock import Clock
from partage.broker.cluster.session_writer import SessionWriter
from partage.broker.cluster.shared_store import SharedStore
from partage.broker.coordination.base_shard_host import BaseShardHost
from partage.store.cluster_registry import ClusterRegistry
from partage.store.lease import Lease
from partage.store.shared_log import SharedLog
from partage.store.transaction_log import encode_transactions
from partage.store.write_batcher import WriteCallback
from partage.store.zk_schema import ZkPaths
from partage.store.zookeeper import Session, StoreError, retry_read

log = logging.getLogger(__name__)


class OwnedShards:
    """Shards owned in the current session; see `start_session` and `resign_all`.

    Args:
        paths: the ZooKeeper paths of the cluster.
        broker_id: the id of this broker.
        shard_count: the number of shards of groups in the cluster.
        transaction_shard_count: the number of shards of transactional ids, which follow them.
        clock: the clock of the lease.
        changed: called if the registry must be read again.
    """

    def __init__(
        self,
        paths: ZkPaths,
        broker_id: int,
        shard_count: int,
        transaction_shard_count: int,
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        last = shard_count + transaction_shard_count
        self.stores = [
            *(SharedStore(self, shard) for shard in range(shard_count)),
            *(SharedStore(self, shard, encode_transactions) for shard in range(shard_count, last)),
        ]
        self._paths = paths
        self._broker_id = broker_id
        self._clock = clock
        self._changed = changed
        self._hosts: Sequence[BaseShardHost[Any]] = ()
        self._logs: dict[int, SharedLog] = {}
        self._ownership_lock = asyncio.Lock()

    def start_session(
        self, session: Session, registry: ClusterRegistry, lease: Lease, writing: SessionWriter
    ) -> None:
        """Own shards in this session from now on."""
        self._session = session
        self._registry = registry
        self._lease = lease
        self._writer = writing

    def set_hosts(self, hosts: Sequence[BaseShardHost[Any]]) -> None:
        """Set the hosts of all shards; no shard is owned yet."""
        self._hosts = hosts
        for host in hosts:
            host.resign()

    def __len__(self) -> int:
        return len(self._logs)

    def owns(self, shard: int) -> bool:
        """True if this broker owns a shard."""
        return shard in self._logs

    def on_lease_renewed(self) -> None:
        """Flush all hosts: replies that waited for the lease may now be sent."""
        for shard in self._logs:
            self._hosts[shard].flush()

    async def reconcile(self) -> None:
        """Acquire and release shards as the registry says.

        Raises:
            SessionEndedError: the session has ended.
        """
        async with self._ownership_lock:
            for shard in list(self._logs):
                if self._registry.owner(shard) != self._broker_id:
                    self._resign(shard)
            take, give = self._registry.plan_changes()
            owned = self._registry.owned()
            take += [s for s in owned if s not in self._logs and s not in give]
            if give:
                for shard in give:
                    self._resign(shard)
                await self._registry.release(give)
                log.info("released shards for other brokers: count=%d", len(give))
            if take:
                await self._acquire(take)

    async def _acquire(self, shards: Sequence[int]) -> None:
        tenures = await self._registry.acquire(shards)
        # Read after the takeover: any topic with commits from before the takeover is in this list.
        names = await retry_read(self._session, lambda: self._session.children(self._paths.topics))
        topics = frozenset(names)
        for tenure in tenures:
            shard = tenure.shard
            self._set_log(shard, self._log_of(shard, tenure.version, tenure.epoch))
            self._hosts[shard].load(topics)
        if tenures:
            log.info(
                "took over shards: count=%d shards=%s", len(tenures), [t.shard for t in tenures]
            )

    def _log_of(self, shard: int, version: int, epoch: int) -> SharedLog:
        return SharedLog(self._session, self._paths, shard, version, epoch)

    def _set_log(self, shard: int, taken: SharedLog) -> None:
        self._logs[shard] = taken
        self.stores[shard].log = taken

    def resign_all(self) -> None:
        """Give up all shards: another broker may own them now."""
        for shard in list(self._logs):
            self._resign(shard)

    def _resign(self, shard: int) -> None:
        self._logs.pop(shard, None)
        self.stores[shard].log = None
        self._hosts[shard].resign()

    # Implementation of `partage.broker.cluster.shared_store.ShardLogAccess`.

    def append(self, to: SharedLog, batch: bytes, written: WriteCallback) -> None:
        """Append a batch, together with others of the same few milliseconds."""
        self._writer.append(to, batch, written)

    def may_answer(self) -> bool:
        """True if no other broker can have taken over the shards of this broker."""
        return self._lease.is_valid(self._clock.boot_ms())

    async def reacquire(self, shard: int) -> SharedLog:
        """Acquire an owned shard again, with a new epoch.

        Raises:
            OSError: the broker no longer owns the shard, or ZooKeeper refused.
        """
        async with self._ownership_lock:
            # The registry may know about the loss earlier: it is updated while the live brokers are
            # read.
            if shard not in self._logs or self._registry.owner(shard) != self._broker_id:
                self._changed()
                raise OSError(f"this broker no longer owns shard {shard}")
            try:
                tenures = await self._registry.acquire([shard])
            except StoreError as error:
                raise OSError(str(error)) from None
            if not tenures:
                self._changed()
                raise OSError(f"another broker has taken over shard {shard}")
            self._set_log(shard, self._log_of(shard, tenures[0].version, tenures[0].epoch))
            return self._logs[shard]

    def on_deposed(self, lost: SharedLog) -> None:
        """Give up the shard of this log: another broker owns it now."""
        if self._logs.get(lost.shard) is lost:
            log.warning("another broker has taken over shard %d", lost.shard)
            self._resign(lost.shard)
            self._changed()

"""The shards that this broker has: taking them, giving them back, and losing them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from partage.broker.cluster.leasing import boot_ms
from partage.broker.cluster.shared_store import SharedStore
from partage.broker.cluster.writing import Writing
from partage.broker.shard_host import ShardHost
from partage.store.cluster_registry import ClusterRegistry
from partage.store.lease import Lease
from partage.store.shared_log import SharedLog
from partage.store.write_batcher import WriteCallback
from partage.store.zk_schema import ZkPaths
from partage.store.zookeeper import Session, StoreError, retry_read

log = logging.getLogger(__name__)


class Holding:
    """What is held goes with the session that it was taken in: see `begin`, and `resign_all`.

    ``changed`` is called where the roster has to be looked at again.
    """

    def __init__(
        self, tree: ZkPaths, broker_id: int, shard_count: int, changed: Callable[[], None]
    ) -> None:
        self.stores = [SharedStore(self, shard) for shard in range(shard_count)]
        self._tree = tree
        self._broker_id = broker_id
        self._changed = changed
        self._hosts: Sequence[ShardHost] = ()
        self._held: dict[int, SharedLog] = {}
        self._deciding = asyncio.Lock()

    def begin(
        self, session: Session, roster: ClusterRegistry, lease: Lease, writing: Writing
    ) -> None:
        """Hold shards in this session from now on."""
        self._session = session
        self._roster = roster
        self._lease = lease
        self._writing = writing

    def serve(self, hosts: Sequence[ShardHost]) -> None:
        """Have these answer for the shards, each for its own; none is held yet."""
        self._hosts = hosts
        for host in hosts:
            host.resign()

    def __len__(self) -> int:
        return len(self._held)

    def holds(self, shard: int) -> bool:
        """Whether this broker has a shard."""
        return shard in self._held

    def settle(self) -> None:
        """What waited for the lease may leave."""
        for shard in self._held:
            self._hosts[shard].settle()

    # Taking and giving back.

    async def see_to(self) -> None:
        """Do as the roster says. Raises `SessionEndedError`."""
        async with self._deciding:
            for shard in list(self._held):
                if self._roster.owner(shard) != self._broker_id:
                    self._resign(shard)
            take, give = self._roster.plan_changes()
            owned = self._roster.owned()
            take += [s for s in owned if s not in self._held and s not in give]
            if give:
                for shard in give:
                    self._resign(shard)
                await self._roster.release(give)
                log.info("%d shards are for others to take", len(give))
            if take:
                await self._take(take)

    async def _take(self, shards: Sequence[int]) -> None:
        tenures = await self._roster.acquire(shards)
        # Read after the take-over: what was committed before it is of topics that are among these.
        names = await retry_read(self._session, lambda: self._session.children(self._tree.topics))
        topics = frozenset(names)
        for tenure in tenures:
            shard = tenure.shard
            self._hold(shard, self._log_of(shard, tenure.version, tenure.epoch))
            self._hosts[shard].load(topics)
        if tenures:
            log.info("took %d shards over: %s", len(tenures), [t.shard for t in tenures])

    def _log_of(self, shard: int, version: int, epoch: int) -> SharedLog:
        return SharedLog(self._session, self._tree, shard, version, epoch)

    def _hold(self, shard: int, taken: SharedLog) -> None:
        self._held[shard] = taken
        self.stores[shard].log = taken

    def resign_all(self) -> None:
        """Somebody else may have the shards: forget them."""
        for shard in list(self._held):
            self._resign(shard)

    def _resign(self, shard: int) -> None:
        self._held.pop(shard, None)
        self.stores[shard].log = None
        self._hosts[shard].resign()

    # What the stores need: see `partage.broker.cluster.shared_store.Place`.

    def append(self, to: SharedLog, batch: bytes, written: WriteCallback) -> None:
        """Have a batch appended, together with what else comes in these milliseconds."""
        self._writing.append(to, batch, written)

    def may_answer(self) -> bool:
        """Whether nobody can have taken over what this broker has."""
        return self._lease.is_valid(boot_ms())

    async def retake(self, shard: int) -> SharedLog:
        """Take a shard of this broker's over anew. Raises `OSError`."""
        async with self._deciding:
            # The second is known a little earlier, while it is read who is up.
            if shard not in self._held or self._roster.owner(shard) != self._broker_id:
                self._changed()
                raise OSError(f"shard {shard} is not this broker's any more")
            try:
                tenures = await self._roster.acquire([shard])
            except StoreError as error:
                raise OSError(str(error)) from None
            if not tenures:
                self._changed()
                raise OSError(f"another broker has taken shard {shard} over")
            self._hold(shard, self._log_of(shard, tenures[0].version, tenures[0].epoch))
            return self._held[shard]

    def deposed(self, lost: SharedLog) -> None:
        """Another broker has the shard of this log."""
        if self._held.get(lost.shard) is lost:
            log.warning("another broker has taken shard %d over", lost.shard)
            self._resign(lost.shard)
            self._changed()

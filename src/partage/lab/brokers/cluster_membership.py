"""A broker as a member of a ZooKeeper cluster, on the virtual clock.

It corresponds to `partage.broker.cluster` on asyncio. It opens one session after the other, each
with a lease that it renews. It acquires, releases and loses shards according to the cluster
registry. Log entries are written in batches, and merged when there are many.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, Protocol

from partage.lab.environment.coroutines import SimFuture, SimLock, SimTask, WhenAwake
from partage.lab.environment.zookeeper import SimZkSession, ZooKeeper
from partage.store.bootstrap import find_or_create_cluster
from partage.store.cluster_registry import ClusterRegistry
from partage.store.lease import Lease
from partage.store.shared_log import SharedLog
from partage.store.write_batcher import WriteBatcher, WriteCallback
from partage.store.zk_schema import BrokerDoc, ZkPaths
from partage.store.zookeeper import InDoubtError, RefusedError, SessionEndedError, StoreError

ZK_PATHS: Final = ZkPaths("/partage")
#: The values of `partage.broker.cluster`.
_RENEWALS: Final = 8
_REFRESH_INTERVAL_MS: Final = 2_000
_TICK_MS: Final = 5


class ShardOwner(Protocol):
    """Receives the ownership changes of one shard."""

    def on_acquired(self, log: SharedLog) -> None:
        """Load the shard, which this broker now owns."""

    def on_resigned(self) -> None:
        """Drop the shard, which another broker may own."""

    def on_lease_renewed(self) -> None:
        """Send the replies that waited for the lease."""


class ClusterMembership:
    """The cluster membership of one broker process; ``owners`` has one entry for each shard.

    The last ``transaction_shard_count`` shards are those of transactional ids.

    After the process died, ``when_awake`` must drop all calls. A log is merged when it asks for it,
    which is rare in a world, and after every ``entries_per_merge``-th entry.
    """

    def __init__(
        self,
        servers: ZooKeeper,
        broker_id: int,
        owners: Sequence[ShardOwner],
        timeout_ms: int,
        when_awake: WhenAwake,
        entries_per_merge: int | None = None,
        transaction_shard_count: int = 0,
    ) -> None:
        self.owned_logs: dict[int, SharedLog] = {}
        self._servers = servers
        self._clock = servers.clock
        self._broker_id = broker_id
        self._owners = owners
        self._timeout_ms = timeout_ms
        self._when_awake = when_awake
        self._entries_per_merge = entries_per_merge
        self._shard_counts = len(owners) - transaction_shard_count, transaction_shard_count
        self._appended = 0
        self._ownership_lock = SimLock()
        self._changed: SimFuture[None] = SimFuture()
        self._tasks: list[SimTask] = []
        self._open_session()
        self.spawn(self._run())

    def _open_session(self) -> None:
        """Open a session and reset all state that belongs to the previous one."""
        self.session = session = self._servers.open_session(
            zookeeper_client_name(self._broker_id), self._timeout_ms, self._when_awake
        )
        self._lease = Lease(session.timeout_ms, self._clock.now_ms)
        session.on_suspended, session.on_over = self._lease.invalidate, self._on_session_ended
        self._registry = ClusterRegistry(session, ZK_PATHS, self._broker_id, *self._shard_counts)
        self._batcher = WriteBatcher(session)
        self._is_flushing = False

    def end(self) -> None:
        """Stop because the process died. ZooKeeper notices when the session expires."""
        self.session.abandon()
        self._cancel()

    def shut_down(self) -> None:
        """Close the session, so that other brokers need not wait for its timeout."""
        for shard in list(self.owned_logs):
            self._resign(shard)
        self._cancel()
        self.session.close()

    def _cancel(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()

    def spawn(self, work: Coroutine[SimFuture[Any], None, None]) -> None:
        """Run a coroutine until it ends or the session ends."""
        self._tasks = [task for task in self._tasks if not task.is_done]
        self._tasks.append(SimTask(work, self._when_awake, _ignore_session_end))

    # Sessions

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(SessionEndedError):
                await self._run_session(self.session)
            self._on_session_ended()
            self._open_session()

    async def _run_session(self, session: SimZkSession) -> None:
        self.spawn(self._renew_lease(self._lease, session))
        await find_or_create_cluster(session, ZK_PATHS, "the cluster", *self._shard_counts)
        await self._register()
        while True:
            changed: SimFuture[None] = SimFuture()
            self._changed = changed
            try:
                await self._registry.refresh(self._wake)
                if self._broker_id not in self._registry.brokers:
                    await self._register()
                await self._reconcile_shards()
            except InDoubtError:
                await session.wait_connected()
                continue
            self._clock.call_later(_REFRESH_INTERVAL_MS, partial(changed.set_result, None))
            await changed

    def _wake(self) -> None:
        self._changed.set_result(None)

    async def _register(self) -> None:
        me = BrokerDoc(
            host="lab",
            port=self._broker_id,
            incarnation=f"{self._broker_id}.{self.session.session_id}",
            directory=f"directory of {self._broker_id}",
        )
        await self._registry.register(me)

    async def _renew_lease(self, lease: Lease, session: SimZkSession) -> None:
        """Renew the lease (see `partage.broker.cluster`)."""
        while True:
            sent_ms = self._clock.now_ms
            try:
                await session.ping_leader()
            except InDoubtError:
                await session.wait_connected()
                continue
            was_valid = lease.is_valid(self._clock.now_ms)
            lease.renew(sent_ms, self._clock.now_ms)
            if not was_valid and lease.is_valid(self._clock.now_ms):
                for shard in self.owned_logs:
                    self._owners[shard].on_lease_renewed()
            took_ms = self._clock.now_ms - sent_ms
            await self._sleep(max(0, session.timeout_ms // _RENEWALS - took_ms))

    def _sleep(self, for_ms: int) -> SimFuture[None]:
        moment: SimFuture[None] = SimFuture()
        self._clock.call_later(for_ms, lambda: moment.set_result(None))
        return moment

    def _on_session_ended(self) -> None:
        """Drop all shards, which other brokers may own by now."""
        self._lease.invalidate()
        for shard in list(self.owned_logs):
            self._resign(shard)
        self._wake()

    # Shards (as in `partage.broker.cluster`)

    async def _reconcile_shards(self) -> None:
        async with self._ownership_lock:
            for shard in list(self.owned_logs):
                if self._registry.owner(shard) != self._broker_id:
                    self._resign(shard)
            take, give = self._registry.plan_changes()
            take += [
                s for s in self._registry.owned() if s not in self.owned_logs and s not in give
            ]
            for shard in give:
                self._resign(shard)
            if give:
                await self._registry.release(give)
            for ownership in await self._registry.acquire(take):
                log = SharedLog(
                    self.session, ZK_PATHS, ownership.shard, ownership.version, ownership.epoch
                )
                self.owned_logs[ownership.shard] = log
                self._owners[ownership.shard].on_acquired(log)

    def _resign(self, shard: int) -> None:
        self.owned_logs.pop(shard, None)  # shards that it owned without a log are released too
        self._owners[shard].on_resigned()

    def owner(self, shard: int) -> int | None:
        """Return the broker that owns a shard, as far as this broker knows."""
        owner = self._registry.owner(shard)
        return None if owner == self._broker_id and shard not in self.owned_logs else owner

    def may_answer(self) -> bool:
        """Return True if no other broker can have acquired this broker's shards."""
        return self._lease.is_valid(self._clock.now_ms)

    def retake(self, lost: SharedLog, on_retaken: Callable[[SharedLog | None], None]) -> None:
        """Acquire the shard of a failed log again, in a new epoch.

        Args:
            lost: The log that failed.
            on_retaken: Called with the new log, or with None if another broker owns the shard. Not
                called if this broker lost the shard meanwhile.
        """
        self.spawn(self._retake(lost, on_retaken))

    async def _retake(
        self, lost: SharedLog, on_retaken: Callable[[SharedLog | None], None]
    ) -> None:
        async with self._ownership_lock:
            shard = lost.shard
            if self.owned_logs.get(shard) is not lost:
                return
            is_owner = self._registry.owner(shard) == self._broker_id
            ownerships = await self._registry.acquire([shard]) if is_owner else []
            if self.owned_logs.get(shard) is not lost:
                return
            for ownership in ownerships:
                log = SharedLog(self.session, ZK_PATHS, shard, ownership.version, ownership.epoch)
                self.owned_logs[shard] = log
                on_retaken(log)
                return
        self._wake()
        on_retaken(None)

    def on_deposed(self, lost: SharedLog) -> None:
        """Drop the shard of a log that another broker has taken over."""
        if self.owned_logs.get(lost.shard) is lost:
            self._resign(lost.shard)
            self._wake()

    # Writes (as in `partage.broker.cluster`)

    def append(self, to: SharedLog, batch: bytes, on_written: WriteCallback) -> None:
        """Append a batch, together with other batches of the next few milliseconds."""

        def appended(fault: StoreError | None) -> None:
            if fault is None and self._is_merge_due(to):
                self.merge(to)
            on_written(fault)

        self._batcher.enqueue(to, batch, appended)
        if not self._is_flushing:
            self._is_flushing = True
            self.spawn(self._flush(self._batcher))

    def _is_merge_due(self, log: SharedLog) -> bool:
        self._appended += 1
        every = self._entries_per_merge
        return log.needs_merge or (every is not None and self._appended % every == 0)

    async def _flush(self, batcher: WriteBatcher) -> None:
        await self._sleep(_TICK_MS)
        await batcher.flush()
        if batcher is self._batcher:
            self._is_flushing = False

    def merge(self, log: SharedLog) -> None:
        """Merge the entries of a log into parts."""
        self.spawn(self._merge(log))

    async def _merge(self, log: SharedLog) -> None:
        with contextlib.suppress(RefusedError, InDoubtError):  # retried after the next entry
            await log.merge(self._run_offloaded)

    async def _run_offloaded(self, work: Callable[[], list[bytes]]) -> list[bytes]:
        """Run work as if in a thread: other calls continue meanwhile."""
        await self._sleep(_TICK_MS)
        return work()


def zookeeper_client_name(broker_id: int) -> str:
    """Return the name of a broker process as a ZooKeeper client."""
    return f"broker {broker_id}"


def _ignore_session_end(error: Exception) -> None:
    """Ignore the end of the session, after which `ClusterMembership` opens another."""
    if not isinstance(error, SessionEndedError):
        raise error

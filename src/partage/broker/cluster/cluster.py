"""This broker's place in a cluster: its session, who else is up, and what all have agreed on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from partage.broker.cluster.address import StateAddress
from partage.broker.cluster.following import Following
from partage.broker.cluster.holding import Holding
from partage.broker.cluster.identity import identify, proof_of
from partage.broker.cluster.kazoo_session import KazooSession, Unreachable
from partage.broker.cluster.leasing import boot_ms, keep
from partage.broker.cluster.outage import Outage
from partage.broker.cluster.tls import BadTls, context_of
from partage.broker.cluster.writing import Writing
from partage.broker.coordinator import Coordinator
from partage.broker.data_directory import write_meta
from partage.broker.hosted import Hosted
from partage.broker.node import Node
from partage.log.disk import Disk
from partage.model.settings import BrokerSettings
from partage.store.bootstrap import find_cluster, reserve_producer_ids
from partage.store.cluster_registry import (
    BrokerIdInUseError,
    ClusterRegistry,
    RegistrationConflictError,
    clock_skew_ms,
)
from partage.store.lease import Lease
from partage.store.shared_topics import SharedTopics
from partage.store.zk_schema import BrokerDoc, ClusterDoc, ForeignDataError, ZkPaths
from partage.store.zookeeper import InDoubtError, SessionEndedError, StoreError, retry_read

log = logging.getLogger(__name__)

_CONNECTED_WITHIN_S: Final = 10.0
_TRIED_AGAIN_AFTER_S: Final = 1.0
_LOOKED_EVERY_S: Final = 2.0  # for what no watch has told
_LOOKED_WITHIN_S: Final = 5.0
_PRODUCER_IDS: Final = 1 << 32
_SKEW_MAX_MS: Final = 2_000
_APPLIED_WITHIN_S: Final = 5.0
_APPLIED_AFTER_S: Final = 0.01


class Cluster:
    """The place of one broker; made by `find`, taken by `enter`, given up by `leave`.

    ``on_fatal`` is called where it cannot go on, as when another broker has taken its id,
    ``registered`` as soon as it has the id.
    """

    def __init__(
        self,
        address: StateAddress,
        settings: BrokerSettings,
        session: KazooSession,
        found: ClusterDoc,
        directory: str,
        on_fatal: Callable[[BaseException], None],
        registered: Callable[[], None] | None = None,
    ) -> None:
        self.cluster_id = found.cluster_id
        self.shard_count = found.shards
        self._address = address
        self._settings = settings
        self._directory = directory
        self._on_fatal = on_fatal
        self._registered = registered
        self._tree = ZkPaths(address.path)
        self._following: Following | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._keeping: asyncio.Task[None] | None = None
        self._life: asyncio.Task[None] | None = None
        self._outage = Outage(asyncio.get_running_loop().call_later, boot_ms)
        self._changed = asyncio.Event()
        self._topics_changed = asyncio.Event()
        node_id, changed = settings.node_id, self._changed.set
        self._holding = Holding(self._tree, node_id, found.shards, changed)
        self.stores = self._holding.stores
        self._begin(session)

    def _begin(self, session: KazooSession) -> None:
        """What is known goes with the session that it was read in."""
        self._session = session
        self._lease = Lease(session.timeout_ms, session.begun_ms)
        writing = Writing(session, self._spawn, self._on_fatal)
        self._roster = ClusterRegistry(
            session, self._tree, self._settings.node_id, self.shard_count
        )
        self._topics = SharedTopics(session, self._tree, self._settings.node_id)
        self._holding.begin(session, self._roster, self._lease, writing)
        session.on_suspended = self._suspended
        session.on_connected = self._connected_again
        session.on_over = self._over
        if self._keeping is not None:
            self._keeping.cancel()
        # From the beginning on: a lease counts from questions that were answered some time ago.
        self._keeping = self._spawn(keep(self._lease, session, self._holding.settle))

    @classmethod
    async def find(
        cls,
        address: StateAddress,
        disk: Disk,
        settings: BrokerSettings,
        on_fatal: Callable[[BaseException], None],
    ) -> Cluster:
        """Connect, and see that it is the right cluster; a new one is founded.

        Raises `Unreachable`, `BadTls`, `ForeignDataError` and `DamagedFileError`.
        """
        session = await _begin_session(address, settings)
        try:
            identity = await identify(
                session, ZkPaths(address.path), disk, settings.node_id, settings.offsets_partitions
            )
        except BaseException:
            await session.end()
            raise
        directory = f"{identity.directory_id}@{proof_of(disk)}"
        keep_meta = partial(write_meta, disk, identity.meta)
        registered = keep_meta if identity.is_new else None
        return cls(address, settings, session, identity.cluster, directory, on_fatal, registered)

    async def reserve_producer_ids(self) -> int:
        """The first of a block of ids that no other broker hands out."""
        return await reserve_producer_ids(self._session, self._tree, _PRODUCER_IDS)

    # Life.

    async def enter(self, node: Node, hosted: Hosted, coordinator: Coordinator) -> None:
        """Be up from now on, and take a share of the shards.

        Raises `Taken`, `ForeignDataError` and `OSError`.
        """
        self.node = node
        self._following = Following(hosted, self._settings.node_id, coordinator)
        self._holding.serve(coordinator.hosts)
        await self._arrive(is_first=True)
        self._life = asyncio.get_running_loop().create_task(self._live())

    async def _arrive(self, *, is_first: bool) -> None:
        self._me = BrokerDoc(
            host=self.node.host,
            port=self.node.port,
            rack=self.node.rack,
            incarnation=uuid.uuid4().hex,
            directory=self._directory,
            is_ready=False,
        )
        before_ms = time.time_ns() // 1_000_000  # of all tries: an earlier one may have registered
        while True:
            try:
                await self._register()
                if is_first and self._registered is not None:
                    self._registered()
                await self._compare_clocks(before_ms)
                await self._get_ready(is_first=is_first)
                await self._roster.refresh(self._changed.set)
            except InDoubtError:
                await self._session.wait_connected()
            else:
                return

    async def _register(self) -> None:
        """Be up; a broker that was killed is waited for until its session is over."""
        deadline_ms = boot_ms() + self._session.timeout_ms + 2_000
        is_told = False
        while True:
            try:
                await retry_read(self._session, self._roster.refresh_brokers)
                self._roster.check_address_unused(self._me)
                await self._roster.register(self._me)
            except RegistrationConflictError as taken:
                if boot_ms() > deadline_ms:
                    raise
                if not is_told:
                    is_told = True
                    log.info("waiting, for it may be dead: %s", taken)
                await asyncio.sleep(0.1)
            else:
                return

    async def _get_ready(self, *, is_first: bool = False) -> None:
        """Others count on it that who registers follows the topics before it takes anything."""
        await self._follow(is_first=is_first)
        await self._roster.mark_ready()

    async def _compare_clocks(self, before_ms: int) -> None:
        created_ms = await self._roster.created_ms()
        if created_ms is None:
            return
        ahead_ms = clock_skew_ms(created_ms, before_ms, time.time_ns() // 1_000_000)
        if abs(ahead_ms) > _SKEW_MAX_MS:
            log.warning(
                "this machine's clock is %.1f s %s ZooKeeper's: retention and timestamps of "
                "records will differ between brokers; set the clocks by NTP",
                abs(ahead_ms) / 1000,
                "ahead of" if ahead_ms > 0 else "behind",
            )

    async def _live(self) -> None:
        """One session after the other, for as long as the broker runs."""
        try:
            while True:
                with contextlib.suppress(SessionEndedError):
                    await self._stay()
                self._over()
                await self._return()
        except (RegistrationConflictError, ForeignDataError) as error:
            self._give_up(error)
        except Exception as error:
            log.exception("the broker's place in the cluster failed")
            self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        self._over()
        self._on_fatal(error)

    async def _stay(self) -> None:
        """See to the shards, until the session is over; the topics are followed beside that: what
        takes long there must not keep groups from having a coordinator.
        """
        following = self._spawn(self._keep_following())
        try:
            while True:
                self._changed.clear()
                try:
                    await self._roster.refresh(self._changed.set)
                    await self._see_to_registration()
                    await self._holding.see_to()
                except InDoubtError:
                    await self._session.wait_connected()
                    continue
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), _LOOKED_EVERY_S)
        finally:
            following.cancel()

    async def _keep_following(self) -> None:
        with contextlib.suppress(SessionEndedError):
            while True:
                self._topics_changed.clear()
                try:
                    await self._follow()
                except InDoubtError:
                    await self._session.wait_connected()
                    continue
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._topics_changed.wait(), _LOOKED_EVERY_S)

    async def _see_to_registration(self) -> None:
        """Somebody may have removed it, or have a copy of the data directory."""
        found = self._roster.brokers.get(self._settings.node_id)
        if found is not None and found.incarnation != self._me.incarnation:
            raise BrokerIdInUseError(self._settings.node_id, found)
        if found is None:
            await self._register()
        else:
            self._roster.check_address_unused(self._me)
        if found is None or not found.is_ready:
            await self._get_ready()

    async def _return(self) -> None:
        """Begin another session after one that is over."""
        while True:
            await self._session.end()
            try:
                session = await _begin_session(self._address, self._settings)
            except Unreachable as error:
                log.error("%s", error)
                continue
            except BadTls as error:  # the files are read anew for each session
                log.error("%s", error)
                await asyncio.sleep(_TRIED_AGAIN_AFTER_S)
                continue
            self._begin(session)
            try:
                found = await find_cluster(session, self._tree)
                if found is None or found.cluster_id != self.cluster_id:
                    raise ForeignDataError(
                        f"{self._tree.root} in ZooKeeper is another cluster's now"
                    )
                await self._arrive(is_first=False)
            except SessionEndedError:
                continue
            log.info("broker %d is up again, in a new session", self.node.node_id)
            return

    async def leave(self) -> None:
        """Be down at once: others need not wait until the session would be over."""
        if self._life is not None:
            self._life.cancel()
        self._outage.forget()
        for task in list(self._tasks):
            task.cancel()
        self._holding.resign_all()
        await self._session.end()
        if self._following is not None:
            await self._following.settled()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Without any of these tasks groups would be silent for ever: better no broker."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the broker's place in the cluster failed", exc_info=error)
            self._give_up(error)

    # The session, and the right to answer.

    def _suspended(self) -> None:
        """Nothing is answered until a server has been reached again, in this very session."""
        self._lease.invalidate()
        self._outage.begins()

    def _connected_again(self) -> None:
        self._outage.ends()
        self._changed.set()

    def _over(self) -> None:
        """Somebody else may have the shards: forget them."""
        self._lease.invalidate()
        self._outage.forget()
        if count := len(self._holding):
            log.error("the ZooKeeper session is over: %d shards are given up", count)
        self._holding.resign_all()
        self._changed.set()

    # Topics.

    def shared_topics(self) -> SharedTopics:
        """The topics as of the session that is under way."""
        return self._topics

    def up(self) -> list[int]:
        """The brokers that are up."""
        return sorted({*self._roster.brokers, self.node.node_id})

    def is_up(self, broker_id: int) -> bool:
        """Whether a broker is up."""
        return broker_id == self.node.node_id or broker_id in self._roster.brokers

    async def look(self) -> None:
        """Read anew who is up, if ZooKeeper answers soon."""
        with contextlib.suppress(StoreError, ForeignDataError, TimeoutError):
            async with asyncio.timeout(_LOOKED_WITHIN_S):
                await self._session.ping_leader()  # a server may be behind its leader
                await self._roster.refresh_brokers()

    def holds(self, shard: int) -> bool:
        """Whether this broker has a shard."""
        return self._holding.holds(shard)

    @property
    def roster(self) -> ClusterRegistry:
        """Who is up, and who has what, as of the session that is under way."""
        return self._roster

    async def _follow(self, *, is_first: bool = False) -> None:
        assert self._following is not None
        changed = self._topics_changed.set
        await self._following.follow(self._topics, changed, is_first=is_first)

    async def followed(self) -> None:
        """Return once this broker and those that are up do as the topics say, or after a while."""
        await self._follow()
        version = self._topics.version
        # Not as the watch has told: who came before the change, and is not seen here yet, may do as
        # the topics said before. Who comes after it follows it before it takes anything.
        await retry_read(self._session, self._roster.refresh_brokers)
        deadline_ms = boot_ms() + int(_APPLIED_WITHIN_S * 1000)
        while boot_ms() < deadline_ms:
            try:
                if await self._topics.is_applied_by(list(self._roster.brokers), version):
                    return
            except InDoubtError:
                await self._session.wait_connected()
            await asyncio.sleep(_APPLIED_AFTER_S)


async def _begin_session(address: StateAddress, settings: BrokerSettings) -> KazooSession:
    return await KazooSession.begin(
        address.servers,
        settings.zookeeper_session_timeout_ms,
        _CONNECTED_WITHIN_S,
        context_of(settings),
    )

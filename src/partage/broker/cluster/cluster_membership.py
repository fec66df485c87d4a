"""A broker as a member of a cluster: ZooKeeper session, registration, shards and shared topics."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final

from partage.broker.clock import Clock
from partage.broker.cluster.broker_node import BrokerNode
from partage.broker.cluster.cluster_session import (
    BeginSession,
    ClusterSession,
    ZooKeeperTlsError,
    ZooKeeperUnreachableError,
)
from partage.broker.cluster.directory_identity import lock_proof, verify_identity
from partage.broker.cluster.lease_renewal import renew_lease
from partage.broker.cluster.outage_logger import OutageLogger
from partage.broker.cluster.owned_shards import OwnedShards
from partage.broker.cluster.session_writer import SessionWriter
from partage.broker.cluster.state_address import StateAddress
from partage.broker.cluster.topic_reconciler import TopicReconciler
from partage.broker.coordination.base_shard_host import BaseShardHost
from partage.broker.coordination.group_coordinator import GroupCoordinator
from partage.broker.ids import IdSource
from partage.broker.topics.data_directory import write_meta_properties
from partage.broker.topics.log_manager import LogManager
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
from partage.store.shared_configs import SharedConfigs
from partage.store.shared_topics import SharedTopics
from partage.store.zk_schema import BrokerDoc, ClusterDoc, ConfigsDoc, ForeignDataError, ZkPaths
from partage.store.zookeeper import InDoubtError, SessionEndedError, StoreError, retry_read

log = logging.getLogger(__name__)

_RETRY_DELAY_S: Final = 1.0
_REFRESH_INTERVAL_S: Final = 2.0  # in case no watch has fired
_REFRESH_TIMEOUT_S: Final = 5.0
_PRODUCER_ID_BLOCK: Final = 1 << 32
_CLOCK_SKEW_MAX_MS: Final = 2_000
_APPLY_TIMEOUT_S: Final = 5.0
_APPLY_POLL_S: Final = 0.01


class ClusterMembership:
    """The membership of one broker: `connect` creates it, `start` registers the broker, `leave`
    ends it.

    Args:
        address: the ZooKeeper servers and the path of the cluster.
        settings: the broker settings.
        clock: the clocks of the broker.
        ids: draws the ids of registrations.
        begin_session: begins a session when the previous one has ended.
        session: the first ZooKeeper session.
        found: the cluster's record in ZooKeeper.
        directory: id of the data directory, and proof of the lock on it.
        on_fatal: called if the broker cannot continue, for example because another broker uses its
            id.
        registered: called once, after the first registration.
    """

    def __init__(
        self,
        address: StateAddress,
        settings: BrokerSettings,
        clock: Clock,
        ids: IdSource,
        begin_session: BeginSession,
        session: ClusterSession,
        found: ClusterDoc,
        directory: str,
        on_fatal: Callable[[BaseException], None],
        registered: Callable[[], None] | None = None,
    ) -> None:
        self.cluster_id = found.cluster_id
        self.shard_count = found.shards
        self.transaction_shard_count = found.transaction_shards
        self._address = address
        self._settings = settings
        self._clock = clock
        self._ids = ids
        self._begin_session = begin_session
        self._directory = directory
        self._on_fatal = on_fatal
        self._on_registered = registered
        self._paths = ZkPaths(address.path)
        self._reconciler: TopicReconciler | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}  # oldest first
        self._lease_task: asyncio.Task[None] | None = None
        self._run_task: asyncio.Task[None] | None = None
        self._outage = OutageLogger(asyncio.get_running_loop().call_later, clock.boot_ms)
        self._changed = asyncio.Event()
        self._topics_changed = asyncio.Event()
        self._configs_changed = asyncio.Event()
        #: Called with the altered configs of brokers and groups whenever they were read.
        self.on_configs_read: Callable[[ConfigsDoc], None] = lambda doc: None
        #: Called with the racks of the live brokers, by id, whenever they were read.
        self.on_racks_read: Callable[[Mapping[int, str | None]], None] = lambda racks: None
        node_id, changed = settings.node_id, self._changed.set
        self._owned_shards = OwnedShards(
            self._paths, node_id, found.shards, found.transaction_shards, clock, changed
        )
        self.stores = self._owned_shards.stores[: found.shards]
        self.transaction_stores = self._owned_shards.stores[found.shards :]
        self._use_session(session)

    def _use_session(self, session: ClusterSession) -> None:
        """Use a new session. All that was read in an earlier session is discarded."""
        self._session = session
        self._lease = Lease(session.timeout_ms, session.started_ms)
        writing = SessionWriter(session, self._spawn, self._on_fatal)
        self._registry = ClusterRegistry(
            session,
            self._paths,
            self._settings.node_id,
            self.shard_count,
            self.transaction_shard_count,
        )
        self._topics = SharedTopics(session, self._paths, self._settings.node_id)
        self._configs = SharedConfigs(session, self._paths)
        self._owned_shards.start_session(session, self._registry, self._lease, writing)
        session.on_suspended = self._on_suspended
        session.on_connected = self._on_reconnected
        session.on_ended = self._on_session_ended
        if self._lease_task is not None:
            self._lease_task.cancel()
        # From the start of the session: a lease is valid only after several answered probes.
        self._lease_task = self._spawn(
            renew_lease(self._lease, session, self._clock, self._owned_shards.on_lease_renewed)
        )

    @classmethod
    async def connect(
        cls,
        address: StateAddress,
        disk: Disk,
        settings: BrokerSettings,
        clock: Clock,
        ids: IdSource,
        begin_session: BeginSession,
        on_fatal: Callable[[BaseException], None],
    ) -> ClusterMembership:
        """Connect, and verify that it is the right cluster. A cluster that does not exist is
        created.

        Raises:
            ZooKeeperUnreachableError: no server answers.
            ZooKeeperTlsError: the TLS settings are invalid.
            ForeignDataError: ZooKeeper and the data directory do not belong together.
            DamagedFileError: the data directory does not say to which broker it belongs.
        """
        session = await begin_session(address, settings)
        try:
            identity = await verify_identity(
                session,
                ZkPaths(address.path),
                disk,
                ids,
                settings.node_id,
                settings.offsets_partitions,
                settings.transactions.partitions,
            )
        except BaseException:
            await session.end()
            raise
        directory = f"{identity.directory_id}@{lock_proof(disk, ids)}"
        keep_meta = partial(write_meta_properties, disk, identity.meta)
        registered = keep_meta if identity.is_new else None
        return cls(
            address,
            settings,
            clock,
            ids,
            begin_session,
            session,
            identity.cluster,
            directory,
            on_fatal,
            registered,
        )

    async def reserve_producer_ids(self) -> int:
        """Return the first id of a block that no other broker uses."""
        return await reserve_producer_ids(self._session, self._paths, _PRODUCER_ID_BLOCK)

    async def start(
        self,
        node: BrokerNode,
        log_manager: LogManager,
        coordinator: GroupCoordinator,
        transaction_hosts: Sequence[BaseShardHost[Any]] = (),
    ) -> None:
        """Register the broker, apply the topic changes, and take over shards.

        Args:
            node: this broker.
            log_manager: the topics of this broker.
            coordinator: the group coordinator.
            transaction_hosts: the hosts of the shards of transactional ids.

        Raises:
            RegistrationConflictError: another live broker uses the broker id or the address.
            ForeignDataError: the disk has topics that the cluster does not know.
            OSError: the disk fails.
        """
        self.node = node
        self._reconciler = TopicReconciler(log_manager, self._settings.node_id, coordinator)
        self._owned_shards.set_hosts([*coordinator.hosts, *transaction_hosts])
        await self._join_session(is_first=True)
        self._run_task = asyncio.get_running_loop().create_task(self._run())

    async def _join_session(self, *, is_first: bool) -> None:
        self._registration = BrokerDoc(
            host=self.node.host,
            port=self.node.port,
            rack=self.node.rack,
            incarnation=self._ids.fresh_nonce(),
            directory=self._directory,
            is_ready=False,
        )
        # before the first try: a try with an unknown outcome may have registered
        before_ms = self._clock.wall_ms()
        while True:
            try:
                await self._register()
                if is_first and self._on_registered is not None:
                    self._on_registered()
                await self._check_clock_skew(before_ms)
                await self._become_ready(is_first=is_first)
                await self._refresh_registry()
            except InDoubtError:
                await self._session.wait_connected()
            else:
                return

    async def _refresh_registry(self) -> None:
        await self._registry.refresh(self._changed.set)
        self.on_racks_read({each: doc.rack for each, doc in self._registry.brokers.items()})

    async def _register(self) -> None:
        """Register; wait for the session of a killed predecessor to expire."""
        deadline_ms = self._clock.boot_ms() + self._session.timeout_ms + 2_000
        is_told = False
        while True:
            try:
                await retry_read(self._session, self._registry.refresh_brokers)
                self._registry.check_address_unused(self._registration)
                await self._registry.register(self._registration)
            except RegistrationConflictError as taken:
                if self._clock.boot_ms() > deadline_ms:
                    raise
                if not is_told:
                    is_told = True
                    log.info(
                        "registration is blocked, waiting for the old session to expire: %s", taken
                    )
                await asyncio.sleep(0.1)
            else:
                return

    async def _become_ready(self, *, is_first: bool = False) -> None:
        """Apply all changes of configs and topics, then mark the broker as ready.

        Invariant for the other brokers: a broker applies all topic changes before it takes shards.
        """
        await retry_read(self._session, self.refresh_configs)
        await self._reconcile_topics(is_first=is_first)
        await self._registry.mark_ready()

    async def _check_clock_skew(self, before_ms: int) -> None:
        created_ms = await self._registry.created_ms()
        if created_ms is None:
            return
        ahead_ms = clock_skew_ms(created_ms, before_ms, self._clock.wall_ms())
        if abs(ahead_ms) > _CLOCK_SKEW_MAX_MS:
            log.warning(
                "this machine's clock is %.1f s %s ZooKeeper's clock: retention and timestamps of "
                "records will differ between brokers; synchronize the clocks (NTP)",
                abs(ahead_ms) / 1000,
                "ahead of" if ahead_ms > 0 else "behind",
            )

    async def _run(self) -> None:
        """Run one session after the other until the broker ends."""
        try:
            while True:
                with contextlib.suppress(SessionEndedError):
                    await self._run_session()
                self._on_session_ended()
                await self._start_new_session()
        except (RegistrationConflictError, ForeignDataError) as error:
            self._fail(error)
        except Exception as error:
            log.exception("a cluster task failed")
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Give up all shards, and take none again while the broker ends."""
        if self._run_task is not None:
            self._run_task.cancel()
        self._on_session_ended()
        self._on_fatal(error)

    async def _run_session(self) -> None:
        """Reconcile the shards until the session ends.

        Topics and configs are followed in separate tasks: slow topic changes must not leave groups
        without a coordinator.
        """
        following = [
            self._spawn(self._follow(self._topics_changed, self._reconcile_topics)),
            self._spawn(self._follow(self._configs_changed, self.refresh_configs)),
        ]
        try:
            while True:
                self._changed.clear()
                try:
                    await self._refresh_registry()
                    # Before it registers again: other brokers take its shards meanwhile.
                    await self._owned_shards.reconcile()
                    await self._check_registration()
                except InDoubtError:
                    await self._session.wait_connected()
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_REFRESH_INTERVAL_S):
                        await self._changed.wait()
        finally:
            for task in following:
                task.cancel()

    async def _follow(self, changed: asyncio.Event, apply: Callable[[], Awaitable[None]]) -> None:
        """Apply changes until the session ends."""
        with contextlib.suppress(SessionEndedError):
            while True:
                changed.clear()
                try:
                    await apply()
                except InDoubtError:
                    await self._session.wait_connected()
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_REFRESH_INTERVAL_S):
                        await changed.wait()

    async def _check_registration(self) -> None:
        """Check that the registration exists and is ours.

        An operator may have removed it, or a broker with a copy of the data directory may have
        replaced it.
        """
        found = self._registry.brokers.get(self._settings.node_id)
        if found is not None and found.incarnation != self._registration.incarnation:
            raise BrokerIdInUseError(self._settings.node_id, found)
        if found is None:
            await self._register()
        else:
            self._registry.check_address_unused(self._registration)
        if found is None or not found.is_ready:
            await self._become_ready()

    async def _start_new_session(self) -> None:
        """Start a new session after the previous one ended, and register again."""
        while True:
            await self._session.end()
            try:
                session = await self._begin_session(self._address, self._settings)
            except ZooKeeperUnreachableError as error:
                log.error("%s", error)
                continue
            except ZooKeeperTlsError as error:  # the files are read again for each session
                log.error("%s", error)
                await asyncio.sleep(_RETRY_DELAY_S)
                continue
            self._use_session(session)
            try:
                found = await find_cluster(session, self._paths)
                if found is None or found.cluster_id != self.cluster_id:
                    raise ForeignDataError(
                        f"{self._paths.root} in ZooKeeper now belongs to another cluster"
                    )
                await self._join_session(is_first=False)
            except SessionEndedError:
                continue
            log.info(
                "broker registered again in a new ZooKeeper session: broker_id=%d",
                self.node.node_id,
            )
            return

    async def leave(self) -> None:
        """Unregister at once, so that other brokers need not wait for the session to expire."""
        if self._run_task is not None:
            self._run_task.cancel()
        self._outage.reset()
        for task in list(self._tasks):
            task.cancel()
        self._owned_shards.resign_all()
        await self._session.end()
        if self._reconciler is not None:
            await self._reconciler.wait_idle()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """Fail the broker if one of its tasks failed: without that task its groups would hang
        forever.
        """
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a cluster task failed", exc_info=error)
            self._fail(error)

    def _on_suspended(self) -> None:
        """Stop all responses until a server of the same session is reachable again."""
        self._lease.invalidate()
        self._outage.on_disconnected()

    def _on_reconnected(self) -> None:
        self._outage.on_reconnected()
        self._changed.set()

    def _on_session_ended(self) -> None:
        """Give up all shards: another broker may own them now."""
        self._lease.invalidate()
        self._outage.reset()
        if count := len(self._owned_shards):
            log.error("ZooKeeper session ended; gave up shards: count=%d", count)
        self._owned_shards.resign_all()
        self._changed.set()

    def shared_topics(self) -> SharedTopics:
        """Return the topics as read in the current session."""
        return self._topics

    def shared_configs(self) -> SharedConfigs:
        """Return the altered configs of brokers and groups, in the current session."""
        return self._configs

    async def refresh_configs(self) -> None:
        """Read the altered configs, and apply them to this broker."""
        self.on_configs_read(await self._configs.read(self._configs_changed.set))

    def live_broker_ids(self) -> list[int]:
        """Return the ids of the live brokers, including this one."""
        return sorted({*self._registry.brokers, self.node.node_id})

    def is_up(self, broker_id: int) -> bool:
        """True if a broker is live."""
        return broker_id == self.node.node_id or broker_id in self._registry.brokers

    async def refresh_brokers(self) -> None:
        """Read the live brokers again, if ZooKeeper answers in time."""
        with contextlib.suppress(StoreError, ForeignDataError, TimeoutError):
            async with asyncio.timeout(_REFRESH_TIMEOUT_S):
                await self._session.ping_leader()  # the connected server may be behind its leader
                await self._registry.refresh_brokers()

    async def topic_exists(self, name: str) -> bool:
        """True if the cluster has a topic, or if ZooKeeper does not answer in time."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_REFRESH_TIMEOUT_S):
                await self._session.ping_leader()  # the connected server may be behind its leader
                return await self._session.read(self._paths.topic(name)) is not None
        return True

    def owns(self, shard: int) -> bool:
        """True if this broker owns a shard."""
        return self._owned_shards.owns(shard)

    @property
    def registry(self) -> ClusterRegistry:
        """Live brokers and shard owners, as read in the current session."""
        return self._registry

    async def _reconcile_topics(self, *, is_first: bool = False) -> None:
        assert self._reconciler is not None
        changed = self._topics_changed.set
        await self._reconciler.reconcile(self._topics, changed, is_first=is_first)

    async def apply_changes(self) -> None:
        """Read all changes of topics up to now, and apply them on this broker."""
        await self._reconcile_topics()

    async def wait_applied(self) -> None:
        """Return once all live brokers have applied the current topics, or after a timeout."""
        await self._reconcile_topics()
        version = self._topics.version
        # Do not rely on the watch: a broker that registered before the change and is not yet known
        # here may still use the old topics. A broker that registers after it applies it before it
        # takes shards.
        await retry_read(self._session, self._registry.refresh_brokers)
        deadline_ms = self._clock.boot_ms() + int(_APPLY_TIMEOUT_S * 1000)
        while self._clock.boot_ms() < deadline_ms:
            try:
                if await self._topics.is_applied_by(list(self._registry.brokers), version):
                    return
            except InDoubtError:
                await self._session.wait_connected()
            await asyncio.sleep(_APPLY_POLL_S)

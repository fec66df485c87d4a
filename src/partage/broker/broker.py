"""The embedded broker: composition, start and shutdown order of its components."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from partage.bridge.api_adapter import BrokerContext
from partage.broker.apis import cluster, metadata, offsets, producers, topics
from partage.broker.apis.admin import admin_handlers
from partage.broker.apis.alter_configs import ConfigAlterer
from partage.broker.apis.describe_configs import ConfigDescriber
from partage.broker.apis.fetch import FetchHandler
from partage.broker.apis.groups import group_handlers
from partage.broker.apis.produce import ProduceHandler
from partage.broker.apis.transaction_descriptions import describe_transactions
from partage.broker.apis.write_txn_markers import write_txn_markers
from partage.broker.clock import Clock
from partage.broker.cluster.broker_node import BrokerNode
from partage.broker.cluster.cluster_session import BeginSession
from partage.broker.cluster.cluster_view import ClusterView, SingleBrokerView
from partage.broker.cluster.facade import (
    connect_to_cluster,
    create_cluster_view,
    create_config_store,
    create_topic_admin,
    start_in_cluster,
    with_cluster_limits,
)
from partage.broker.cluster.state_address import StateAddress
from partage.broker.configs.config_store import LocalConfigStore
from partage.broker.configs.dynamic_configs import DynamicConfigs
from partage.broker.coordination.assignor_registry import AssignorRegistry
from partage.broker.coordination.consumer_group_services import ConsumerGroupServices
from partage.broker.coordination.group_actions import GroupActions
from partage.broker.coordination.group_coordinator import GroupCoordinator, log_group_event
from partage.broker.coordination.group_events_writer import GroupEventsWriter
from partage.broker.coordination.lag_sampler import LagSampler, RemoteEndOffsets
from partage.broker.coordination.shard_host import ShardHost
from partage.broker.coordination.state_store import LocalStore, StateStore
from partage.broker.coordination.topic_images import TopicImages
from partage.broker.ids import RANDOM_IDS, IdSource
from partage.broker.net.inbound_request import Handler, InboundRequest
from partage.broker.net.server import Server
from partage.broker.topics.data_directory import load_cluster_id
from partage.broker.topics.log_maintenance import LogMaintenance
from partage.broker.topics.log_manager import LogManager
from partage.broker.topics.log_reader import LogReader
from partage.broker.topics.log_writer import LogWriter
from partage.broker.topics.producer_ids import ProducerIdManager
from partage.broker.topics.real_disk import RealDisk
from partage.broker.topics.topic_admin import LocalTopicAdmin, TopicAdmin
from partage.broker.transactions.local_markers import LocalMarkers
from partage.broker.transactions.local_transaction_coordinator import LocalTransactionCoordinator
from partage.broker.transactions.marker_writer import MarkerWriter
from partage.broker.transactions.offset_commits import txn_offset_commit_handler
from partage.broker.transactions.transaction_coordinator import TransactionCoordinator
from partage.broker.transactions.transaction_shard_host import TransactionShardHost
from partage.log.disk import Disk
from partage.log.memory_disk import MemoryDisk
from partage.model.addresses import Address
from partage.model.settings import BrokerSettings
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC
from partage.wire.apis.alter_configs import ALTER_CONFIGS
from partage.wire.apis.api_versions import API_VERSIONS
from partage.wire.apis.create_partitions import CREATE_PARTITIONS
from partage.wire.apis.create_topics import CREATE_TOPICS
from partage.wire.apis.delete_records import DELETE_RECORDS
from partage.wire.apis.delete_topics import DELETE_TOPICS
from partage.wire.apis.describe_cluster import DESCRIBE_CLUSTER
from partage.wire.apis.describe_configs import DESCRIBE_CONFIGS
from partage.wire.apis.describe_transactions import DESCRIBE_TRANSACTIONS
from partage.wire.apis.fetch import FETCH
from partage.wire.apis.find_coordinator import FIND_COORDINATOR
from partage.wire.apis.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from partage.wire.apis.init_producer_id import INIT_PRODUCER_ID
from partage.wire.apis.list_offsets import LIST_OFFSETS
from partage.wire.apis.metadata import METADATA
from partage.wire.apis.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from partage.wire.apis.produce import PRODUCE
from partage.wire.apis.txn_offset_commit import TXN_OFFSET_COMMIT
from partage.wire.apis.write_txn_markers import WRITE_TXN_MARKERS

if TYPE_CHECKING:
    from partage.broker.cluster.cluster_membership import ClusterMembership

log = logging.getLogger(__name__)

_LOADER_THREADS: Final = 4

AsyncHandler = Callable[[InboundRequest], Coroutine[Any, Any, None]]


class Broker:
    """A running broker; created by `start`, ended by `stop`.

    Attributes:
        address: host and port on which it listens.
        log_manager: the topics and partitions of this broker.
        server: the listener and its connections.
        coordinator: the group coordinator.
        transactions: the transaction coordinator.
        topic_admin: changes the topics, in a cluster those of all brokers.
        group_events: the writer of ``__group_events``, None if it is disabled.
        cluster: the membership in a cluster, None for a single broker.
        dynamic_configs: the configs of brokers and groups that clients have altered.
    """

    #: Parts of which a simulated world has subclasses.
    shard_host_class: ClassVar[type[ShardHost]] = ShardHost
    group_actions_class: ClassVar[type[GroupActions]] = GroupActions
    log_writer_class: ClassVar[type[LogWriter]] = LogWriter
    marker_writer_class: ClassVar[type[MarkerWriter]] = MarkerWriter
    transaction_host_class: ClassVar[type[TransactionShardHost]] = TransactionShardHost

    def __init__(
        self,
        disk: Disk,
        settings: BrokerSettings,
        state: StateAddress | None = None,
        begin_session: BeginSession | None = None,
        clock: Clock | None = None,
        ids: IdSource = RANDOM_IDS,
    ) -> None:
        if state is not None:
            settings = with_cluster_limits(settings)
        self.address = Address("", 0)
        self.cluster: ClusterMembership | None = None
        self._state_address = state
        self._begin_session = begin_session
        self._disk = disk
        self._settings = settings
        self._clock = clock or Clock()
        self._ids = ids
        self._fatal: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._writer = self.log_writer_class(
            disk,
            sync=settings.is_fsync_enabled and not isinstance(disk, MemoryDisk),
            inline=not isinstance(disk, RealDisk),
        )
        self.log_manager = LogManager(
            disk,
            self._writer,
            self._clock,
            settings,
            self._on_fatal,
            has_offsets_topic=state is None,
            ids=ids,
        )
        self._maintenance = LogMaintenance(self.log_manager, disk, self._clock)
        self.server = Server(settings.limits, self._clock)
        self._report_group_configs: Callable[[], None] = lambda: None  # until there are shards
        self._assignors = AssignorRegistry(settings.groups.consumer.assignors)
        self.dynamic_configs = DynamicConfigs(
            settings,
            self._use_settings,
            lambda: self._report_group_configs(),
            self._assignors.names,
        )
        self.group_events: GroupEventsWriter | None = None
        self.transactions: TransactionCoordinator
        self.topic_admin: TopicAdmin
        self._tasks: set[asyncio.Task[None]] = set()
        # A separate pool: in the loop's default pool, fetches from disk and new topics would wait
        # until the last of many shards is loaded.
        self._loaders = ThreadPoolExecutor(_LOADER_THREADS, "partage-load")

    @classmethod
    async def start(
        cls,
        disk: Disk,
        settings: BrokerSettings,
        *,
        host: str,
        port: int,
        advertised: Address | None = None,
        state: StateAddress | None = None,
        begin_session: BeginSession | None = None,
        clock: Clock | None = None,
        ids: IdSource = RANDOM_IDS,
    ) -> Broker:
        """Open the data, then listen.

        Args:
            disk: the data directory, or a disk in memory.
            settings: the broker settings.
            host: the address to listen on.
            port: the port to listen on; 0 selects a free one.
            advertised: host and port that clients are told; by default the address of the listener.
            state: the shared state of a cluster. By default the broker is a single broker.
            begin_session: begins sessions with the shared state; by default with kazoo.
            clock: the clocks of the broker, by default those of the system.
            ids: draws ids, by default from the system's random numbers.

        Raises:
            ClusterJoinError: the broker cannot join the cluster; the message says why, and what to
                do.
            DamagedFileError, DamagedLogError: acknowledged bytes are missing or changed.
            ListenError: the address is in use, or not an address of this machine.
            OSError: the disk fails.
        """
        broker = cls(disk, settings, state, begin_session, clock, ids)
        try:
            await broker._open()
            await broker._listen(host, port, advertised)
        except BaseException:
            if broker.cluster is not None:
                await broker.cluster.leave()
            broker.log_manager.cancel_loading()
            broker._loaders.shutdown(wait=False, cancel_futures=True)
            await broker._writer.close()
            raise
        return broker

    async def _open(self) -> None:
        if self._state_address is None:
            await self._open_local()
        else:
            await self._open_in_cluster(self._state_address)

    async def _open_in_cluster(self, state: StateAddress) -> None:
        # Imported here, because a single broker starts faster without them.
        from partage.broker.transactions.admission_client import AdmissionClient
        from partage.broker.transactions.cluster_markers import ClusterMarkers
        from partage.broker.transactions.cluster_transaction_coordinator import (
            ClusterTransactionCoordinator,
        )

        cluster = await connect_to_cluster(
            state,
            self._disk,
            self._settings,
            self._clock,
            self._ids,
            self._on_fatal,
            self._begin_session,
        )
        self.cluster = cluster
        self._cluster_id = cluster.cluster_id
        cluster.on_configs_read = self.dynamic_configs.on_read
        self.dynamic_configs.set_store(create_config_store(cluster))
        await self.log_manager.open()
        changes, place = create_topic_admin(cluster, self.log_manager)
        self.topic_admin = changes
        if self._settings.group_events:
            self.group_events = GroupEventsWriter(self.log_manager, place, self._settings.node_id)
        self._group_services = self._create_group_services()
        cluster.on_racks_read = self._group_services.images.update_racks
        self.coordinator = GroupCoordinator(
            [self._create_host(f"shard {n}", store) for n, store in enumerate(cluster.stores)]
        )
        self._producer_ids = ProducerIdManager.without_block()
        cluster_view = create_cluster_view(cluster)
        self._local_markers = LocalMarkers(self.log_manager, self._clock, self.coordinator.hosts)
        markers = ClusterMarkers(
            self._local_markers, self.log_manager, cluster_view, cluster.topic_exists
        )
        self.transactions = ClusterTransactionCoordinator(
            cluster.transaction_stores,
            self._settings.transactions,
            self._clock,
            self._producer_ids,
            self.marker_writer_class(markers),
            AdmissionClient(cluster_view),
            self._loaders,
            self.transaction_host_class,
        )
        self._follow_changes()

    async def _open_local(self) -> None:
        self._cluster_id = await asyncio.to_thread(load_cluster_id, self._disk, self._ids)
        self._producer_ids = await asyncio.to_thread(ProducerIdManager, self._disk)
        config_store = LocalConfigStore(self._disk, self.dynamic_configs.on_read)
        self.dynamic_configs.set_store(config_store)
        await config_store.load()
        await self.log_manager.open()
        offsets_topic = self.log_manager.topic(OFFSETS_TOPIC)
        assert offsets_topic is not None
        if self._settings.group_events:
            self.group_events = GroupEventsWriter(self.log_manager)
        self._group_services = self._create_group_services()
        topics = frozenset(topic.name for topic in self.log_manager.topics())
        hosts = [self._create_local_host(n, topics) for n in range(offsets_topic.partition_count)]
        self.coordinator = GroupCoordinator(hosts)
        self._follow_changes()
        self.topic_admin = LocalTopicAdmin(self.log_manager, self.coordinator)
        self._local_markers = LocalMarkers(self.log_manager, self._clock, self.coordinator.hosts)
        transactions = LocalTransactionCoordinator(
            self.log_manager,
            self._disk,
            self._settings.transactions,
            self._clock,
            self._producer_ids,
            self.marker_writer_class(self._local_markers),
            self._loaders,
            self.transaction_host_class,
        )
        self.transactions = transactions
        transactions.open()

    def _create_local_host(self, index: int, topics: frozenset[str]) -> ShardHost:
        store = LocalStore(self.log_manager, self._disk, index)
        host = self._create_host(f"{OFFSETS_TOPIC}-{index}", store)
        if store.is_empty:
            host.start_empty()
        else:
            host.load(topics)
        return host

    def _create_host(self, name: str, store: StateStore) -> ShardHost:
        consumer = msgspec.structs.replace(
            self._settings.groups.consumer, assignors=self._assignors.names
        )
        return self.shard_host_class(
            name,
            store,
            msgspec.structs.replace(self._settings.groups, consumer=consumer),
            self._clock,
            log_group_event,
            self._loaders,
            self.group_events,
            self._group_services,
            self.server.resources.turns,
        )

    def _create_group_services(self) -> ConsumerGroupServices:
        """Create the services of groups with the consumer protocol; the topics must be open."""
        images = TopicImages(self.log_manager, self._settings.rack)
        actions = self.group_actions_class(self._assignors, images, self._clock)
        configs = self.dynamic_configs
        return ConsumerGroupServices(
            images, configs.group_configs, configs.assignment_interval_ms, actions
        )

    def _follow_changes(self) -> None:
        """Report later changes of topics and group configs to the shards."""
        self._group_services.images.on_changed = self.coordinator.refresh_topics
        self._report_group_configs = self.coordinator.refresh_group_configs

    async def _listen(self, host: str, port: int, advertised: Address | None) -> None:
        # Some responses contain the address, so no request is served before it is known.
        self.address = await self.server.listen(host, port)
        self.node = BrokerNode(
            node_id=self._settings.node_id,
            host=(advertised or self.address).host,
            port=(advertised or self.address).port,
            cluster_id=self._cluster_id,
            rack=self._settings.rack,
        )
        elsewhere: RemoteEndOffsets | None = None
        if self.cluster is None:
            cluster_view: ClusterView = SingleBrokerView(self.node)
        else:
            from partage.broker.cluster.peer_end_offsets import PeerEndOffsets

            cluster_view = create_cluster_view(self.cluster)
            await start_in_cluster(
                self.cluster,
                self.node,
                self.log_manager,
                self.coordinator,
                self.transactions,
                self._producer_ids,
            )
            elsewhere = PeerEndOffsets(self.log_manager, cluster_view)
            if self.group_events is not None:
                self.group_events.prepare()
        self.server.serve(self._handlers(cluster_view))
        self._maintenance.start()
        interval_ms = self._settings.group_lag_interval_ms if self.group_events else 0
        self._lag_sampler = LagSampler(
            self.coordinator.hosts, self.log_manager, self._clock, interval_ms, elsewhere
        )
        self._lag_sampler.start()

    def _use_settings(self, settings: BrokerSettings) -> None:
        """Use the settings that clients have altered while the broker runs."""
        self.log_manager.use_settings(settings)
        self._maintenance.on_settings_changed()
        self.server.limit_connections(settings.limits)

    async def wait_loaded(self) -> None:
        """Return once all groups and transactional ids are loaded.

        Requests for those that are loaded are served before that.
        """
        await self.coordinator.wait_loaded()
        await self.transactions.wait_loaded()

    async def wait_failed(self) -> BaseException:
        """Return the reason if the broker cannot continue, otherwise never. The caller must stop it
        then.
        """
        return await asyncio.shield(self._fatal)

    def _on_fatal(self, error: BaseException) -> None:
        if not self._fatal.done():
            self._fatal.set_result(error)

    async def stop(self) -> None:
        """Shut down cleanly: acknowledged data is on disk, and the next start needs no recovery
        scan.
        """
        # first, so that other brokers take over its groups during the shutdown
        if self.cluster is not None:
            await self.cluster.leave()
        await self.server.close()
        await self._maintenance.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._lag_sampler.close()
        self.transactions.close()
        self.coordinator.close()
        self._group_services.close()
        if self.group_events is not None:
            await self.group_events.close()
        self._loaders.shutdown(wait=False, cancel_futures=True)
        await self.log_manager.stop_recompression()
        await self._writer.close()
        if not self._fatal.done():
            await self.log_manager.close()

    def _handlers(self, cluster_view: ClusterView) -> dict[int, Handler]:
        log_manager, changes = self.log_manager, self.topic_admin
        reads = LogReader(self._disk)
        broker_context = BrokerContext(
            shard_count=self.coordinator.shard_count,
            has_partition=log_manager.has_partition,
            topic_name=log_manager.topic_name,
            topic_id=log_manager.topic_id,
        )
        describer = ConfigDescriber(log_manager, self.dynamic_configs, self.node, self.address)
        alterer = ConfigAlterer(changes, self.dynamic_configs, self.node.node_id)
        handlers: dict[int, Handler] = {
            PRODUCE.key: lambda inbound: ProduceHandler(
                inbound, log_manager, self.transactions
            ).run(),
            FETCH.key: lambda inbound: FetchHandler(inbound, log_manager, reads).run(),
            LIST_OFFSETS.key: self._as_task(lambda i: offsets.list_offsets(i, log_manager, reads)),
            METADATA.key: self._as_task(
                lambda i: metadata.metadata(i, log_manager, cluster_view, changes)
            ),
            FIND_COORDINATOR.key: self._as_task(
                lambda i: cluster.find_coordinator(i, cluster_view, self.transactions)
            ),
            API_VERSIONS.key: lambda inbound: cluster.api_versions(
                inbound,
                self.server.resources.apis.values(),
                cluster.FEATURES,
            ),
            CREATE_TOPICS.key: self._as_task(
                lambda i: topics.create_topics(
                    i, log_manager, cluster_view, changes, self.dynamic_configs
                )
            ),
            DELETE_TOPICS.key: self._as_task(
                lambda i: topics.delete_topics(i, log_manager, changes)
            ),
            CREATE_PARTITIONS.key: self._as_task(
                lambda i: topics.create_partitions(i, log_manager, cluster_view, changes)
            ),
            DELETE_RECORDS.key: lambda inbound: offsets.delete_records(inbound, log_manager),
            INIT_PRODUCER_ID.key: lambda inbound: producers.init_producer_id(
                inbound, self._producer_ids, self.transactions
            ),
            OFFSET_FOR_LEADER_EPOCH.key: lambda inbound: offsets.offset_for_leader_epoch(
                inbound, log_manager
            ),
            DESCRIBE_CONFIGS.key: self._as_task(describer.handle),
            ALTER_CONFIGS.key: self._as_task(alterer.replace),
            INCREMENTAL_ALTER_CONFIGS.key: self._as_task(alterer.alter_incrementally),
            DESCRIBE_CLUSTER.key: lambda inbound: cluster.describe_cluster(inbound, cluster_view),
        }
        handlers |= admin_handlers(
            log_manager,
            cluster_view,
            self._disk,
            self.dynamic_configs,
            self.transactions,
            self._as_task,
        )
        handlers |= group_handlers(
            self.coordinator,
            cluster_view,
            broker_context,
            self._settings.groups.rebalance_protocols,
            self._ids,
        )
        handlers |= self._transaction_handlers(broker_context)
        return handlers

    def _transaction_handlers(self, broker_context: BrokerContext) -> dict[int, Handler]:
        transactions = self.transactions
        return {
            **producers.transaction_handlers(
                transactions, self.log_manager, self.coordinator.shard_count
            ),
            TXN_OFFSET_COMMIT.key: txn_offset_commit_handler(
                self.coordinator, transactions, broker_context
            ),
            WRITE_TXN_MARKERS.key: lambda i: write_txn_markers(i, self._local_markers),
            DESCRIBE_TRANSACTIONS.key: self._as_task(
                lambda i: describe_transactions(i, transactions)
            ),
        }

    def _as_task(self, handler: AsyncHandler) -> Handler:
        """Return a handler that runs a coroutine as a task, for requests that must wait."""

        def handle(inbound: InboundRequest) -> None:
            task = asyncio.get_running_loop().create_task(self._run(handler, inbound))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return handle

    @staticmethod
    async def _run(handler: AsyncHandler, inbound: InboundRequest) -> None:
        try:
            await handler(inbound)
        except Exception:  # a bug in the handler: only this client loses its connection
            log.exception("request handler failed: api=%r", inbound.api)
            inbound.connection.close()

"""A production broker in a `partage.lab` world, with the controls that the world's faults need."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, Final, cast

import msgspec

from partage.broker.broker import Broker
from partage.broker.clock import Clock
from partage.broker.cluster.facade import ClusterJoinError
from partage.broker.cluster.lease_renewal import boot_ms
from partage.broker.cluster.state_address import StateAddress
from partage.broker.coordination.group_actions import GroupActions, ResultCallback
from partage.broker.coordination.state_store import StateStore, StoredCallback
from partage.broker.net.inbound_request import Handler, InboundRequest
from partage.coordinator import invariants
from partage.coordinator.consumer_group.actions import Action, ComputeTarget
from partage.coordinator.consumer_group.events import RegexesResolved, TargetComputed
from partage.coordinator.events import Event
from partage.coordinator.records import TransactionMarker
from partage.coordinator.shard import Shard
from partage.lab import history
from partage.lab.brokers.cluster_membership import zookeeper_client_name
from partage.lab.brokers.peer_requests import peer_name
from partage.lab.brokers.server_connection import _request_group_id
from partage.lab.brokers.shell import BrokerShell
from partage.lab.consumer_topics import TOPIC_NAMES
from partage.lab.context import WorldContext
from partage.lab.coverage import ELSEWHERE, LOADING, group_coverage_keys
from partage.lab.environment.network import SimConnection
from partage.lab.names import OUTPUT_PARTITIONS, OUTPUT_TOPIC, UNREAD_TOPIC
from partage.lab.offset_log import LogChange, OffsetLogModel, Pair
from partage.lab.options import ACTION_TIMEOUT_MS
from partage.log.errors import DamagedFileError, DamagedLogError
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.model.settings import BrokerSettings
from partage.model.topic_partition import TopicPartition
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC
from partage.store.transaction_log import TOPIC as TRANSACTIONS_TOPIC
from partage.testing.production_worlds.broker_transport import BrokerTransport
from partage.testing.production_worlds.clock_loop import ClockLoop, ProcessDiedError
from partage.testing.production_worlds.recorded_logs import RecordedLogWriter, record_logs
from partage.testing.production_worlds.stored_partitions import StoredPartitions
from partage.testing.production_worlds.transaction_shards import (
    FaultyMarkerWriter,
    ProductionTransactionHost,
    delay_admissions,
)
from partage.testing.recorded_shard_host import (
    RecordedShardHost,
    RecordedStore,
    broker_number,
)
from partage.testing.simulated_session import SimulatedSession
from partage.testing.world.observed_response import (
    ObservedResponse,
    observe_response,
    original_connection,
)
from partage.wire.types import Buffer

_PORT: Final = 9092
_STATE: Final = StateAddress(servers="zookeeper:2181", path="/partage")
#: A broker that cannot join its cluster is started again after this time, as by a supervisor.
_JOIN_AGAIN_MS: Final = 1_000
#: Offsets of it are committed for partitions below this number.
_UNREAD_PARTITIONS: Final = 2
_COMPACTED: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
_MIN_LAG_MS: Final = 1_000  # before the records of a compacted topic are compacted
_STATE_TOPICS: Final = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)


class ProductionBroker(BrokerShell):
    """Successive processes of a production broker, with one disk."""

    def __init__(self, world: WorldContext, broker_id: int) -> None:
        super().__init__(world, broker_id)
        self.writer = cast(Any, SimpleNamespace(is_closed=True))
        self.compactions = self._compactions
        self.maintenance = self
        self._loop: ClockLoop | None = None
        self._broker: Broker | None = None
        self._connections: list[BrokerTransport] = []
        self._has_begun = False  # a process that has not ended
        self._session: SimulatedSession | None = None

    # Process

    def start(self) -> None:
        """Start the process."""
        self._incarnation += 1
        self.is_paused = False
        self._deferred_calls.clear()
        self._has_begun = True
        self._topic_lock = asyncio.Lock()
        self._loop = ClockLoop(self, lambda: self.world.broker_rng.choice((0, 0, 1, 5)))
        self._loop.connect = self._connect
        self.spawn(self._start())

    async def _start(self) -> None:
        world = self.world
        try:
            broker = await _broker_class(self).start(
                cast(Any, self.disk),
                self._settings(),
                host=_host(self.broker_id),
                port=_PORT,
                state=None if world.zookeeper is None else _STATE,
                begin_session=self._begin_session,
            )
            await self._create_topics(broker)
        except ClusterJoinError as error:
            world.record_incident("a broker failed to join", f"{error}")
            self._end_process()
            world.clock.call_later(_JOIN_AGAIN_MS, self.start)
            return
        except (DamagedLogError, DamagedFileError, OSError) as error:
            world.record_incident("a broker failed to start", f"{error}")
            self._end_process()
            world.on_start_failed(self.start, cast(Any, error))
            return
        self._broker = broker
        self.storage = cast(Any, StoredPartitions(broker, self.disk))
        broker.server.intercept(self._record_requests)
        delay_admissions(self, broker.transactions)
        self.is_up = True
        world.clear_damage()
        fault = await broker.wait_failed()
        await broker.stop()
        self.die(f"{fault}")

    async def _begin_session(
        self, address: StateAddress, settings: BrokerSettings
    ) -> SimulatedSession:
        """Begin a session with the ZooKeeper of the world."""
        servers, bind = self.world.zookeeper, self.process_binder()
        assert servers is not None, "a single broker has no sessions"
        assert self._loop is not None, "the process runs"
        loop, started_ms = self._loop, boot_ms()

        def call_in_process(call: Callable[[], None]) -> None:
            bind(lambda: self.when_awake(bind(lambda: loop.enter(call))))()

        self._session = SimulatedSession(
            servers,
            zookeeper_client_name(self.broker_id),
            settings.zookeeper_session_timeout_ms,
            started_ms,
            loop,
            call_in_process,
        )
        return self._session

    async def _connect(self, host: str, protocol: asyncio.BaseProtocol) -> BrokerTransport:
        """Connect to another broker."""
        assert self._loop is not None, "the process runs"
        loop, bind = self._loop, self.process_binder()
        transport = BrokerTransport(loop, self, None, is_client=True)
        opened: asyncio.Future[None] = loop.create_future()

        def on_opened(connection: SimConnection | None) -> None:
            if opened.done():
                if connection is not None:
                    connection.reset_from_client()
                return
            transport.connection = connection
            opened.set_result(None)

        def call_opened(connection: SimConnection | None) -> None:
            bind(lambda: self.when_awake(bind(lambda: on_opened(connection))))()

        self.world.network.connect(
            peer_name(self.broker_id), broker_number(host), transport, call_opened
        )
        await opened
        if transport.connection is None:
            raise ConnectionRefusedError(f"{host} is down")
        self._connections.append(transport)
        transport.attach(protocol)
        return transport

    def _settings(self) -> BrokerSettings:
        options = self.world.options
        return msgspec.structs.replace(
            BrokerSettings(),
            node_id=self.broker_id,
            auto_create_topics=False,
            offsets_partitions=options.shard_count,
            zookeeper_session_timeout_ms=options.zookeeper_timeout_ms,
            cleaner_backoff_ms=2**53,  # only faults compact
            group_events=False,
            topic_defaults=self._sizes(),
            groups=self.world.settings,
            transactions=self.world.transaction_settings,
        )

    def _sizes(self) -> dict[str, str]:
        options = self.world.options
        return {
            "segment.bytes": str(options.segment_bytes),
            "delete.retention.ms": str(options.delete_retention_ms),
        }

    async def _create_topics(self, broker: Broker) -> None:
        options, log_manager = self.world.options, broker.log_manager
        if self.broker_id > 1:
            return  # the first broker creates them for the cluster
        counts = {**self.world.partition_counts, UNREAD_TOPIC: _UNREAD_PARTITIONS}
        configs: dict[str, dict[str, str]] = {}
        if options.transactional_producers:
            counts[OUTPUT_TOPIC] = OUTPUT_PARTITIONS
            if options.output_is_compacted:
                configs[OUTPUT_TOPIC] = {**_COMPACTED, "min.compaction.lag.ms": f"{_MIN_LAG_MS}"}
            if not await broker.transactions.create_topic():
                raise OSError("the topic of the transaction coordinator was not created")
        for topic, count in counts.items():
            if log_manager.topic(topic) is None:
                leaders = [
                    self.world.leader_of(TopicPartition(topic, index)) for index in range(count)
                ]
                created = await broker.topic_admin.create(
                    topic, count, configs.get(topic, {}), leaders if broker.cluster else ()
                )
                is_new = not isinstance(created, Refusal)
                if not is_new and created.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise OSError(created.message)
        for topic in _STATE_TOPICS:
            if log_manager.topic(topic) is not None:
                await log_manager.alter_configs(topic, self._shrink, validate_only=False)
        if options.consumer_members:
            await self._update_consumer_topics(broker)

    def _shrink(self, configs: dict[str, str]) -> None:
        """Set the configs of a coordinator's log, so that there is something to compact."""
        configs.update(self._sizes())
        configs.update(_COMPACTED)

    async def _update_consumer_topics(self, broker: Broker) -> None:
        """Create, grow and delete topics until they are those of the world."""
        images, log_manager = self.world.consumer_topics.images, broker.log_manager
        for name in TOPIC_NAMES:
            image, known = images.get(name), log_manager.topic(name)
            if known is not None and (image is None or image.topic_id != known.topic.topic_id):
                await broker.topic_admin.delete(name)
                known = None
            if image is None:
                continue
            if known is None:
                await log_manager.create(name, image.partition_count, {}, topic_id=image.topic_id)
            elif known.partition_count < image.partition_count:
                await log_manager.add_partitions(name, image.partition_count)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the process."""
        assert self._loop is not None, "the process runs"
        self._loop.create_task(work).add_done_callback(_raise_error)

    def die(self, cause: str) -> None:
        """Kill the process. Data that was written stays in the page cache."""
        if not self._has_begun:
            return
        now_ms = self.world.now_ms
        self.world.append_history(
            history.BrokerDied(at_ms=now_ms, broker=self.broker_id, cause=cause)
        )
        self._end_process()
        self.world.schedule_restart(self.start)

    def _end_process(self) -> None:
        self._incarnation += 1
        self._has_begun = self.is_up = False
        self.storage = self._broker = None
        self.on_process_ended()

    def on_process_ended(self) -> None:
        """Close the connections of the process, and end its coroutines."""
        for connection in self._connections:
            connection.on_process_died()
        self._connections.clear()
        if self._session is not None:
            self._session.abandon()
            self._session = None
        loop, self._loop = self._loop, None
        if loop is not None:
            self.world.clock.call_later(0, loop.abandon)  # not while it runs

    def shut_down(self, within_ms: int) -> bool:
        """Shut the process down cleanly; it ends ``within_ms`` later.

        Returns:
            False if the broker is alone or paused, so that it cannot shut down.
        """
        if self._broker is None or self._broker.cluster is None or self.is_paused:
            return False
        self.spawn(self._broker.stop())
        self.call_later(within_ms, lambda: self.die("clean shutdown"))
        return True

    # Shards

    @property
    def hosts(self) -> list[ProductionShardHost]:
        """The hosts of the group shards; none while the process does not run."""
        return [] if self._broker is None else cast(Any, self._broker.coordinator.hosts)

    @property
    def shard(self) -> Shard | None:
        """The shard of a single broker, if it is loaded."""
        return self.hosts[0].shard if self.hosts else None

    def core_of(self, group_id: str) -> Shard | None:
        """Return the loaded shard of a group, or None."""
        return self.hosts[self.world.shard_of(group_id)].shard if self.hosts else None

    @property
    def transaction_hosts(self) -> list[ProductionTransactionHost]:
        """The hosts of the shards of transactional ids."""
        return [] if self._broker is None else cast(Any, self._broker.transactions.hosts)

    def is_remote(self, partition: TopicPartition) -> bool:
        """True if another broker has a partition."""
        if self._broker is None or self._broker.cluster is None:
            return False
        cluster = self._broker.cluster
        if partition.topic == OFFSETS_TOPIC:
            owner = cluster._registry.owner(partition.partition)
        else:
            owner = self.world.leader_of(partition)
        return owner not in (None, self.broker_id)

    def pass_crash_point(self, records: Sequence[object], *, is_stored: bool) -> None:
        """Let the process die if the planned crash point matches these records.

        Raises:
            ProcessDiedError: It died.
        """
        if self.hit_crash_point(records, is_stored=is_stored):
            raise ProcessDiedError

    def enter(self, call: Callable[[], object]) -> None:
        """Run code of the broker's process."""
        if self._loop is not None:
            self._loop.enter(call)

    def on_batch_written(self, directory: str, content: bytes) -> None:
        """Record batches that are handed to a log."""
        topic, _, index = directory.rpartition("-")
        if topic == OUTPUT_TOPIC and self.world.log_observer is not None:
            self.world.log_observer.on_appended(TopicPartition(topic, int(index)), content)

    def host_of(self, group_id: str) -> ProductionShardHost:
        """Return the host of a group's shard."""
        return self.hosts[self.world.shard_of(group_id)]

    @property
    def may_answer(self) -> bool:
        """True if no other broker can own the shards by now."""
        if self._broker is None:
            return False
        cluster = self._broker.cluster
        return cluster is None or cluster._owned_shards.may_answer()

    def merge(self, group_id: str) -> bool:
        """Merge the ZooKeeper log of a group's shard. Return False if this is not the owner."""
        cluster = None if self._broker is None else self._broker.cluster
        log = None if cluster is None else cluster.stores[self.world.shard_of(group_id)].log
        if log is None or self.is_paused:
            return False
        self.merge_shard(self.world.shard_of(group_id))
        return True

    def merge_shard(self, shard: int) -> None:
        """Merge the ZooKeeper log of a shard that this broker owns."""
        cluster = None if self._broker is None else self._broker.cluster
        log = None if cluster is None else cluster.stores[shard].log
        if cluster is not None and log is not None:
            self.spawn(cluster._owned_shards._writer._merge(log))

    def compact(self, topic: str = "", index: int = 0) -> bool:
        """Compact the logs that need it. Return False if the process cannot."""
        if self._broker is None or self.is_paused or self.shard is None:
            return False
        self.spawn(self._broker._maintenance.clean_once())
        return True

    compact_all = compact

    # Topics

    def schedule_reopen(self, topic: str, index: int) -> None:
        """Open a partition again that a fault took offline."""
        assert self._broker is not None, "the process runs"
        partition = self._broker.log_manager.partition(topic, index)
        assert partition is not None, "the partition exists"
        error, partition.failure = partition.failure, None
        assert error is not None, "a fault took it offline"
        failed: OSError = error
        self.enter(lambda: partition.fail(failed))

    def add_partition(self, topic: str, index: int) -> bool:
        """Add a partition. The world learns of it when it exists."""
        if self._broker is not None and not self.is_paused:
            self.spawn(self._add_partition(self._broker, topic, index))
        return False

    async def _add_partition(self, broker: Broker, topic: str, index: int) -> None:
        try:
            leaders = [1] if broker.cluster else ()
            grown = await broker.topic_admin.add_partitions(topic, index + 1, leaders)
        except OSError as error:
            self.world.record_incident("a partition was not added", f"{error}")
            return
        if not isinstance(grown, Refusal):
            self.world.partition_counts[topic] = index + 1

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and create it again."""
        if self._broker is not None:
            self.spawn(self._recreate_topic(self._broker, topic))

    async def _recreate_topic(self, broker: Broker, topic: str) -> None:
        try:
            deleted = await broker.topic_admin.delete(topic)
            if not isinstance(deleted, Refusal):
                self.world.append_history(
                    history.TopicDeletionApplied(
                        at_ms=self.world.now_ms, broker=self.broker_id, topic=topic
                    )
                )
            await self._create_topics(broker)
        except OSError as error:
            self.world.record_incident("a topic was not deleted", f"{error}")

    def refresh_topics(self) -> None:
        """Change the topics of consumer groups after a moment."""
        if self.is_up:
            delay_ms = self.world.action_rng.choice((0, 5, 400))
            self.call_later(delay_ms, lambda: self.spawn(self._refresh_topics()))

    async def _refresh_topics(self) -> None:
        async with self._topic_lock:
            try:
                if self._broker is not None:
                    await self._update_consumer_topics(self._broker)
            except OSError as error:
                self.world.record_incident("topics were not changed", f"{error}")

    # Connections and requests

    def accept(self, connection: SimConnection) -> BrokerTransport | None:
        """Accept a connection; None if the process is down."""
        loop = self._loop
        if not self.is_up or loop is None or loop.protocol_factory is None:
            return None
        transport = BrokerTransport(loop, self, connection)
        self._connections.append(transport)
        transport.attach(loop.protocol_factory())
        return transport

    def _record_requests(self, handler: Handler) -> Handler:
        def handle(inbound: InboundRequest) -> None:
            connection: Any = original_connection(inbound)
            transport: BrokerTransport = connection._transport
            group_id = _request_group_id(inbound.message)
            entry = self.world.record_request(
                transport.connection,
                transport.arrived_ms,
                inbound.api.key,
                inbound.version,
                inbound.message,
                broker_id=self.broker_id,
                is_loaded=self.core_of(group_id) is not None,
                at_ms=inbound.at_ms,
            )

            def answered(response: ObservedResponse) -> None:
                if not response.is_empty and not self.disk.has_lost_power:
                    self.world.record_response(entry, response.message)

            observe_response(inbound, answered)
            handler(inbound)

        return handle


class ProductionShardHost(RecordedShardHost):
    """A recorded host that counts coverage, and checks the invariants after each event.

    Attributes:
        owner: The broker.
    """

    owner: ClassVar[ProductionBroker]

    @classmethod
    def broker_id(cls) -> int:
        """Return the number of the broker."""
        return cls.owner.broker_id

    @classmethod
    def record_store(
        cls, store: StateStore, broker_id: int, shard: int, clock: Clock
    ) -> RecordedStore:
        """Return a store that records, and that dies at planned points."""
        return CrashingStore(store, cls.entries, broker_id, shard, clock, cls.owner)

    @property
    def driver(self) -> Any:
        """The driver of the shard."""
        return self._driver

    @property
    def is_caught_up(self) -> bool:
        """True if all state so far is durable."""
        return self._driver.is_durable(self._driver.applied_mark)

    def open_tickets(self) -> set[Any]:
        """Return the tickets of the requests without a reply."""
        return set(cast(Any, self._driver)._open_requests)

    def reload(self) -> None:
        """Drop the shard, as after a failure of its log, and load it again."""
        self.owner.enter(lambda: self._fail(OSError("injected")))

    def delete_topic_offsets(self, names: frozenset[str]) -> None:
        """Record that topics are deleted now, and delete their offsets."""
        self._record_deletion(names)
        super().delete_topic_offsets(names)

    def _activate(self, shard: Shard, deleted_topics: frozenset[str]) -> None:
        self._record_deletion(deleted_topics)
        super()._activate(shard, deleted_topics)

    def _record_deletion(self, names: frozenset[str]) -> None:
        for name in sorted(names):
            self.entries.append(history.TopicDeleted(at_ms=self._clock.now_ms(), topic=name))

    def handle(self, event: Event) -> None:
        """Count and handle an event."""
        self._count(event)
        super().handle(event)

    def answer(self, event: Any) -> None:
        """Count and handle the event of a request."""
        self._count(event)
        super().answer(event)

    def _count(self, event: Event) -> None:
        absence = ELSEWHERE if self._is_resigned else LOADING
        for key in group_coverage_keys(self._driver.shard, absence, event):
            self.owner.world.group_coverage[key] += 1

    def _flush_outputs(self) -> None:
        super()._flush_outputs()
        shard = self._driver.shard
        if shard is not None and self.owner.world.has_invariant_checks:
            invariants.check(shard, self._driver.timers.armed)


class CrashingStore(RecordedStore):
    """A recorded store whose broker dies at the planned crash points.

    In worlds with transactions, it decodes the log with them, and records durable markers.
    """

    def __init__(self, *arguments: Any) -> None:
        *others, self._owner = arguments
        super().__init__(*others)
        self._model: OffsetLogModel | None = None
        self._count = 0  # of appends

    def _changes(self, batches: Sequence[Buffer]) -> list[tuple[Pair, LogChange | None]]:
        if self._model is None:
            return super()._changes(batches)
        return list(self._model.apply(batches))

    def _state(self, content: Sequence[Buffer]) -> dict[bytes, bytes | None]:
        if not self._owner.world.options.transactional_producers:
            return super()._state(content)
        self._model = OffsetLogModel()
        return dict(pair for pair, _ in self._model.apply(content))

    def append(
        self, records: list[Any], at_ms: int, stored: StoredCallback, event_ends: Sequence[int]
    ) -> None:
        """Append records, unless the process dies before or after."""
        owner = self._owner
        owner.pass_crash_point(records, is_stored=False)
        self._count += 1
        if self.epoch is not None and self._count % owner.world.options.entries_per_merge == 0:
            owner.merge_shard(self._place["shard"])
        incarnation, shard_epoch = self._incarnation, self.epoch or 0

        def told(error: ErrorCode) -> None:
            if incarnation == self._incarnation and not error:
                self._record_markers(records, shard_epoch)
                self._owner.pass_crash_point(records, is_stored=True)
            stored(error)

        super().append(records, at_ms, told, event_ends)

    def _record_markers(self, records: list[Any], shard_epoch: int) -> None:
        for record in records:
            if isinstance(record, TransactionMarker):
                self._recorder.append(
                    history.OffsetsMarkerDurable(
                        at_ms=self._clock.now_ms(),
                        **self._place,
                        shard_epoch=shard_epoch,
                        producer_id=record.producer_id,
                        producer_epoch=record.producer_epoch,
                        coordinator_epoch=record.coordinator_epoch,
                    )
                )


class _FaultyGroupActions(GroupActions):
    """Actions that take time, fail, or hang until their time limit."""

    owner: ClassVar[ProductionBroker]

    def run(self, action: Action, done: ResultCallback) -> None:
        """Perform an action."""
        world = self.owner.world
        kind = "assignors" if isinstance(action, ComputeTarget) else "regexes"
        fails = world.now_ms < world.failing_until_ms.get(kind, 0)
        if world.now_ms < world.hanging_until_ms.get(kind, 0):
            fails, delay_ms = True, ACTION_TIMEOUT_MS
        else:
            delay_ms = world.action_rng.randrange(world.options.action_delay_max_ms + 1)
        if fails:
            self._loop.call_later(delay_ms / 1000, self._fail, action, done)
        elif delay_ms:
            self._loop.call_later(delay_ms / 1000, super().run, action, done)
        else:
            super().run(action, done)

    def _fail(self, action: Action, done: ResultCallback) -> None:
        if isinstance(action, ComputeTarget):
            done(
                TargetComputed(
                    at_ms=self._clock.now_ms(),
                    group_id=action.group_id,
                    sequence=action.sequence,
                    group_epoch=action.group_epoch,
                    target=None,
                    error="injected",
                )
            )
        else:
            done(
                RegexesResolved(
                    at_ms=self._clock.now_ms(),
                    group_id=action.group_id,
                    sequence=action.sequence,
                    topics=None,
                    version=self._images.version,
                )
            )


class _WorldEntries:
    """Appends entries to the history of a world."""

    def __init__(self, world: WorldContext) -> None:
        self._world = world

    def append(self, entry: history.HistoryEntry) -> None:
        """Append an entry."""
        self._world.append_history(entry)


def _broker_class(broker: ProductionBroker) -> type[Broker]:
    class Host(ProductionShardHost):
        entries = _WorldEntries(broker.world)
        owner = broker

    class Writer(RecordedLogWriter):
        owner = broker

    class TransactionHost(ProductionTransactionHost):
        owner = broker

    class Markers(FaultyMarkerWriter):
        owner = broker

    class Actions(_FaultyGroupActions):
        owner = broker

    class RecordedBroker(Broker):
        shard_host_class = Host
        group_actions_class = Actions
        log_writer_class = Writer
        transaction_host_class = TransactionHost
        marker_writer_class = Markers

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            record_logs(broker, self)

    return RecordedBroker


def _host(broker_id: int) -> str:
    return f"broker-{broker_id}"


def _raise_error(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, ProcessDiedError):
        raise error

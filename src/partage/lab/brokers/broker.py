"""A production broker in a world, with the controls that the world's faults need."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

import msgspec

from partage.broker.broker import Broker
from partage.broker.cluster.facade import ClusterJoinError
from partage.broker.cluster.state_address import StateAddress
from partage.coordinator.shard import Shard
from partage.lab import history
from partage.lab.brokers.broker_transport import BrokerTransport
from partage.lab.brokers.clock_loop import ClockLoop
from partage.lab.brokers.environment import WorldClock, WorldIds
from partage.lab.brokers.group_shards import GroupShardHost
from partage.lab.brokers.recorded_broker import recorded_broker_class
from partage.lab.brokers.shell import BrokerShell, ProcessDiedError
from partage.lab.brokers.stored_partitions import StoredPartitions
from partage.lab.brokers.transaction_shards import (
    RecordedTransactionHost,
)
from partage.lab.brokers.zookeeper_session import SimulatedSession
from partage.lab.consumer_topics import TOPIC_NAMES
from partage.lab.context import WorldContext
from partage.lab.environment.network import SimConnection
from partage.lab.names import OUTPUT_TOPIC, broker_name
from partage.log.errors import DamagedFileError, DamagedLogError
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.model.settings import BrokerSettings
from partage.model.topic_partition import TopicPartition
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC
from partage.store.transaction_log import TOPIC as TRANSACTIONS_TOPIC
from partage.store.zk_schema import ZkPaths

_PORT: Final = 9092
_STATE: Final = StateAddress(servers="zookeeper:2181", path="/partage")
_PATHS: Final = ZkPaths(_STATE.path)
#: The most requests to ZooKeeper before a broker that lost its registration gives up its shards.
_GIVE_UP_ROUND_TRIPS: Final = 4
#: A broker that cannot join its cluster is started again after this time, as by a supervisor.
_JOIN_AGAIN_MS: Final = 1_000
_GROWTH_CHECK_S: Final = 0.01
_COMPACTED: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
_MIN_LAG_MS: Final = 1_000  # before the records of a compacted topic are compacted
_STATE_TOPICS: Final = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)


class SimulatedBroker(BrokerShell):
    """Successive processes of a production broker, with one disk.

    The first broker has the topics, except that transactional producers' topic is spread.
    """

    def __init__(self, world: WorldContext, broker_id: int) -> None:
        super().__init__(world, broker_id)
        #: The partitions on its disk; None while the process does not run.
        self.storage: StoredPartitions | None = None
        self._loop: ClockLoop | None = None
        self._broker: Broker | None = None
        self._connections: list[BrokerTransport] = []
        self._has_begun = False  # a process that has not ended
        self._session: SimulatedSession | None = None

    # Process

    def start(self) -> None:
        """Start the process."""
        if not self._incarnation and self.world.options.has_wall_clock_faults:
            self.record_wall_clock()
        self._incarnation += 1
        self._has_begun = True
        self._loop = ClockLoop(self, lambda: self.world.broker_rng.choice((0, 0, 1, 5)))
        self._loop.connect = self._connect
        self.spawn(self._start())

    async def _start(self) -> None:
        world = self.world
        try:
            broker = await recorded_broker_class(self).start(
                cast(Any, self.disk),
                self._settings(),
                host=f"broker-{self.broker_id}",
                port=_PORT,
                state=None if world.zookeeper is None else _STATE,
                begin_session=self._begin_session,
                clock=WorldClock(world, lambda: self.wall_difference_ms),
                ids=WorldIds(world),
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
        self.storage = StoredPartitions(broker, self.disk)
        self.is_up = True
        world.clear_damage()
        fault = await broker.wait_failed()
        await self._stop(broker)
        self.die(f"{fault}")

    async def _begin_session(
        self, address: StateAddress, settings: BrokerSettings
    ) -> SimulatedSession:
        """Begin a session with the ZooKeeper of the world."""
        servers, bind = self.world.zookeeper, self.process_binder()
        assert servers is not None, "a single broker has no sessions"
        assert self._loop is not None, "the process runs"
        loop, started_ms = self._loop, self.world.now_ms

        def call_in_process(call: Callable[[], None]) -> None:
            bind(lambda: self.when_awake(bind(lambda: loop.enter(call))))()

        timeout_ms = settings.zookeeper_session_timeout_ms
        session = self._session = SimulatedSession(
            servers, broker_name(self.broker_id), timeout_ms, started_ms, loop, call_in_process
        )

        def answered(sent_ms: int) -> None:
            self.world.append_history(
                history.ZooKeeperAnswered(
                    at_ms=self.world.now_ms,
                    broker=self.broker_id,
                    sent_ms=sent_ms,
                    session_until_ms=sent_ms + session.timeout_ms,
                )
            )

        def read_children(path: str, names: list[str]) -> None:
            if path == _PATHS.brokers and f"{self.broker_id}" not in names:
                rest_ms = _GIVE_UP_ROUND_TRIPS * 2 * self.world.options.zookeeper_delay_max_ms
                self.world.append_history(
                    history.RegistrationMissed(
                        at_ms=self.world.now_ms,
                        broker=self.broker_id,
                        gives_up_by_ms=self.world.now_ms + rest_ms,
                    )
                )

        session.on_leader_answered = answered
        session.on_children_read = read_children
        answered(started_ms)
        return session

    @property
    def registration_path(self) -> str:
        """The path of its registration in ZooKeeper."""
        return _PATHS.broker(self.broker_id)

    @property
    def session_id(self) -> int | None:
        """The id of the ZooKeeper session that the process began last; None without one."""
        return None if self._session is None else self._session.session_id

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

        incarnation = self._incarnation

        def call_opened(connection: SimConnection | None) -> None:
            if incarnation == self._incarnation:
                self.when_awake(bind(lambda: on_opened(connection)))
            elif connection is not None:  # as the system of a process that has died
                connection.reset_from_client()

        self.world.network.connect(
            broker_name(self.broker_id), int(host.rpartition("-")[2]), transport, call_opened
        )
        await opened
        if transport.connection is None:
            raise ConnectionRefusedError(f"{host} is down")
        if transport.is_closing():
            raise ConnectionResetError(f"{host} has closed the connection")
        self._connections.append(transport)
        transport.attach(protocol)
        return transport

    async def _stop(self, broker: Broker) -> None:
        try:
            await broker.stop()
        except OSError as error:
            self.world.record_incident("a broker could not end cleanly", f"{error}")

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
        sizes = {
            "segment.bytes": str(options.segment_bytes),
            "delete.retention.ms": str(options.delete_retention_ms),
        }
        if options.has_wall_clock_faults:
            # Producers have the right time. A leader whose clock is behind would refuse it.
            sizes["message.timestamp.after.max.ms"] = str(2**63 - 1)
        return sizes

    async def _create_topics(self, broker: Broker) -> None:
        options, log_manager = self.world.options, broker.log_manager
        if self.broker_id > 1:
            return  # the first broker creates them for the cluster
        configs: dict[str, dict[str, str]] = {}
        if options.transactional_producers:
            if options.output_is_compacted:
                configs[OUTPUT_TOPIC] = {**_COMPACTED, "min.compaction.lag.ms": f"{_MIN_LAG_MS}"}
            if not await broker.transactions.create_topic():
                raise OSError("the topic of the transaction coordinator was not created")
        for topic, count in self.world.stored_topics.items():
            if log_manager.topic(topic) is None:
                leaders = [
                    self.world.leader_of(TopicPartition(topic, index)) for index in range(count)
                ]
                # polled: a process that dies cannot report that it ends
                while self.world.forced_topic_id is not None:  # noqa: ASYNC110
                    await asyncio.sleep(_GROWTH_CHECK_S)
                created = await broker.topic_admin.create(
                    topic, count, configs.get(topic, {}), leaders if broker.cluster else ()
                )
                if (
                    isinstance(created, Refusal)
                    and created.code is not ErrorCode.TOPIC_ALREADY_EXISTS
                ):
                    raise OSError(created.message)
        for topic in _STATE_TOPICS:
            if log_manager.topic(topic) is not None:
                await log_manager.alter_configs(topic, self._shrink, validate_only=False)

    def _shrink(self, configs: dict[str, str]) -> None:
        """Set the configs of a coordinator's log, so that there is something to compact."""
        configs.update(self._sizes())
        configs.update(_COMPACTED)

    async def _update_consumer_topics(self, broker: Broker) -> None:
        images, log_manager = self.world.consumer_topics.images, broker.log_manager
        for name in dict.fromkeys([*TOPIC_NAMES, *images]):
            image, known = images.get(name), log_manager.topic(name)
            if known is not None and (image is None or image.topic_id != known.topic.topic_id):
                await broker.topic_admin.delete(name)
                known = None
            if image is None:
                continue
            if known is None:
                self.world.forced_topic_id = image.topic_id
                try:
                    await broker.topic_admin.create(name, image.partition_count, {}, ())
                finally:
                    self.world.forced_topic_id = None
            elif known.partition_count < image.partition_count:
                await broker.topic_admin.add_partitions(name, image.partition_count, ())

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

    def end(self) -> None:
        """End the process with its world."""
        if self._loop is not None:
            loop = self._loop
            self._end_process()
            loop.abandon()

    def _end_process(self) -> None:
        """Close the connections of the process, and end its coroutines."""
        self._incarnation += 1
        self._has_begun = self.is_up = False
        self.end_pause()
        self.storage = self._broker = None
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
        self.spawn(self._stop(self._broker))
        self.call_later(within_ms, lambda: self.die("clean shutdown"))
        return True

    # Shards

    @property
    def hosts(self) -> list[GroupShardHost]:
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
    def transaction_hosts(self) -> list[RecordedTransactionHost]:
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

    def enter(self, call: Callable[[], object]) -> None:
        """Run code of the broker's process."""
        if self._loop is not None:
            self._loop.enter(call)

    def on_batch_written(self, directory: str, content: bytes) -> None:
        """Record batches that are handed to a log."""
        topic, _, index = directory.rpartition("-")
        if topic == OUTPUT_TOPIC and self.world.log_observer is not None:
            self.world.log_observer.on_appended(TopicPartition(topic, int(index)), content)

    def host_of(self, group_id: str) -> GroupShardHost:
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

    def compact(self) -> bool:
        """Compact all logs that need it. Return False if the process cannot."""
        if self._broker is None or self.is_paused or self.shard is None:
            return False
        self.spawn(self._broker._maintenance.clean_once())
        return True

    # Topics

    def fail_partition(self, place: TopicPartition) -> bool:
        """Take a partition offline as after a failed write; the broker opens it again.

        Returns:
            False if the process cannot.
        """
        partition = None if self._broker is None else self._broker.log_manager.partition(*place)
        if partition is None or self.is_paused:
            return False
        self.enter(lambda: partition.fail(OSError("injected")))
        return True

    def add_partition(self, topic: str, count: int, added: Callable[[], None]) -> None:
        """Add a partition to a topic, which has ``count`` then. ``added`` is called if it works."""
        if self._broker is not None and not self.is_paused:
            self.spawn(self._add_partition(self._broker, topic, count, added))

    async def _add_partition(
        self, broker: Broker, topic: str, count: int, added: Callable[[], None]
    ) -> None:
        leaders = [1] if broker.cluster else ()
        growth = asyncio.ensure_future(broker.topic_admin.add_partitions(topic, count, leaders))
        # in a cluster, the call also waits for the other brokers
        while not growth.done() and not broker.log_manager.has_partition(topic, count - 1):
            await asyncio.wait([growth], timeout=_GROWTH_CHECK_S)
        if broker.log_manager.has_partition(topic, count - 1):
            added()
        try:
            await growth
        except OSError as error:
            self.world.record_incident("a partition was not added", f"{error}")

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

    @property
    def has_consumer_topics(self) -> bool:
        """True if the broker has all topics of the consumer groups, with all partitions."""
        if self._broker is None:
            return False
        log_manager, images = self._broker.log_manager, self.world.consumer_topics.images
        return all(
            log_manager.topic_id(name) == (images[name].topic_id if name in images else None)
            and (
                name not in images
                or log_manager.has_partition(name, images[name].partition_count - 1)
            )
            for name in TOPIC_NAMES
        )

    def report_topics(self) -> None:
        """Report the topics to the shards, as after a change of one."""
        assert self._broker is not None, "the process runs"
        self._broker._group_services.images._version += 1
        self.enter(self._broker.coordinator.refresh_topics)

    def update_topics(self) -> Callable[[], bool]:
        """Create, grow and delete topics until they are those of the consumer groups.

        Returns:
            A function that returns True while the work goes on.
        """
        assert self._broker is not None, "the process runs"
        assert self._loop is not None, "the process runs"
        task = self._loop.create_task(self._update_topics(self._broker))
        incarnation = self._incarnation
        return lambda: incarnation == self._incarnation and not task.done()

    async def _update_topics(self, broker: Broker) -> None:
        try:
            await self._update_consumer_topics(broker)
        except OSError as error:
            self.world.record_incident("topics were not changed", f"{error}")

    # Connections and requests

    def accept(self, connection: SimConnection) -> BrokerTransport | None:
        """Accept a connection; None if the process is down."""
        loop = self._loop
        factory = None if loop is None else loop.protocol_factory
        if loop is None or factory is None:
            return None
        transport = BrokerTransport(loop, self, connection)
        self._connections.append(transport)
        bind = self.process_binder()
        self.when_awake(bind(lambda: transport.attach(factory())))
        return transport


def _raise_error(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, ProcessDiedError):
        raise error

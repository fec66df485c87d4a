"""A broker of the first design: it serves consumers while it is elected through ZooKeeper."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from partage.broker.clock import Clock
from partage.broker.cluster.cluster_session import ZooKeeperUnreachableError
from partage.broker.cluster.kazoo_session import KazooSession
from partage.broker.cluster.lease_renewal import renew_lease
from partage.broker.cluster.state_address import StateAddress
from partage.model.addresses import Address
from partage.proposals.broker_side.coordinator import PushCoordinator
from partage.proposals.broker_side.elector import (
    CreateNode,
    Elector,
    ElectorState,
    NodeCreated,
    NodeDeleted,
    NodeExists,
    SessionExpired,
    SessionStarted,
    StartCoordinator,
    StopCoordinator,
    WatchNode,
)
from partage.proposals.broker_side.events import (
    BrokersChanged,
    CommitTimer,
    Outcome,
    RebalancingSwitched,
    Resigned,
)
from partage.proposals.broker_side.messages import BrokerAddress
from partage.proposals.broker_side.records import Record
from partage.proposals.broker_side.settings import PushCoordinatorSettings
from partage.proposals.machine import ClusterTopicsChanged, Elected, Event, TimerFired
from partage.proposals.sockets.broker_side.codecs import BrokerCodec
from partage.proposals.sockets.broker_side.topic_watch import TopicWatch
from partage.proposals.sockets.broker_side.zookeeper_nodes import ZooKeeperNodes
from partage.proposals.sockets.coordinator_server import CoordinatorServer
from partage.store.lease import Lease
from partage.store.zookeeper import SessionEndedError

log = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S: Final = 10.0
_RETRY_DELAY_S: Final = 0.5
_PREDECESSOR_EXTRA_S: Final = 2.0

#: Returns the partition count of each topic, as the brokers of the records have them.
TopicSource = Callable[[], Awaitable[dict[str, int]]]


class PushBrokerIdInUseError(Exception):
    """Raised if a live broker has registered the id of this one."""


class PushBrokerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a `PushBroker`.

    Attributes:
        state: The ZooKeeper servers, and the path above the nodes.
        settings: The coordinator's settings, with the id of the broker.
        host: The address to listen on.
        port: The port to listen on; 0 picks a free one.
        advertised: The host and port that consumers connect to; None for those it listens on.
        zookeeper_session_timeout_ms: The session timeout in ZooKeeper.
        topic_source: Where the topics come from; None if other programs write them to ZooKeeper.
        topic_refresh_ms: How often ``topic_source`` is asked.
    """

    state: StateAddress
    settings: PushCoordinatorSettings
    host: str
    port: int
    advertised: Address | None = None
    zookeeper_session_timeout_ms: int = 6_000
    topic_source: TopicSource | None = None
    topic_refresh_ms: int = 1_000


class PushBroker:
    """A broker; `start` creates it.

    One task follows a ZooKeeper session until it ends, then begins the next one.
    """

    def __init__(self, options: PushBrokerOptions) -> None:
        self.options = options
        self.machine = PushCoordinator(options.settings)
        self._broker_id = options.settings.broker_id
        self._clock = Clock()
        self._elector = Elector(self._broker_id)
        self._loop = asyncio.get_running_loop()
        self._failed: asyncio.Future[Exception] = self._loop.create_future()
        self._session: KazooSession | None = None
        self._nodes: ZooKeeperNodes | None = None
        self._lease: Lease | None = None
        self._runner: asyncio.Task[None] | None = None
        self._has_logged_source_error = False
        self.address = Address(options.host, options.port)
        self.server = CoordinatorServer(
            self.machine,
            BrokerCodec,
            self,
            self._fail,
            may_act=self._may_act,
            on_outcome=_log_outcome,
        )

    @classmethod
    async def start(
        cls, options: PushBrokerOptions, *, connect_timeout_s: float = _CONNECT_TIMEOUT_S
    ) -> PushBroker:
        """Connect to ZooKeeper, listen, and take part in the election.

        Args:
            options: The options.
            connect_timeout_s: How long to wait for ZooKeeper.

        Raises:
            ZooKeeperUnreachableError: No server of ZooKeeper answers.
            BrokerIdInUseError: Another live broker has this id.
            OSError: The address is in use, or not one of this machine.
        """
        broker = cls(options)
        session = await broker._begin_session(connect_timeout_s)
        try:
            broker.address = await broker.server.listen(options.host, options.port)
            nodes = broker._use_session(session)
            await broker._register(nodes)
        except BaseException:
            await broker.server.close()
            await session.end()
            raise
        broker._runner = broker._loop.create_task(broker._run(session, nodes))
        return broker

    async def wait_failed(self) -> Exception:
        """Return the error that stops the broker, when there is one."""
        return await asyncio.shield(self._failed)

    @property
    def is_coordinator(self) -> bool:
        """True if consumers can register here."""
        return self.machine.is_elected

    async def stop(self) -> None:
        """Commit the offsets that consumers have reported, resign, and close all connections."""
        if self.machine.is_elected and self._may_act() and not self._failed.done():
            self.server.handle(TimerFired(at_ms=self.server.now_ms(), key=CommitTimer()))
            with suppress(TimeoutError):
                await asyncio.wait_for(self.server.flush(), _CONNECT_TIMEOUT_S)
        if self._runner is not None:
            self._runner.cancel()
            with suppress(asyncio.CancelledError):
                await self._runner
        self.server.discard_effects()
        await self.server.close()
        if self._session is not None:
            await self._session.end()

    def _fail(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_result(error)

    # Implementation of `RecordStore` and of the server's callbacks

    async def append(self, records: Sequence[Record]) -> None:
        """Write records in the current session. After its end, wait to be cancelled."""
        assert self._nodes is not None
        try:
            await self._nodes.store(records)
        except SessionEndedError:
            await asyncio.Event().wait()

    def _may_act(self) -> bool:
        """True unless another broker may be the coordinator by now."""
        return not self.machine.is_elected or (
            self._lease is not None and self._lease.is_valid(self._clock.boot_ms())
        )

    def _handle(self, event: Event) -> None:
        self.server.handle(msgspec.structs.replace(event, at_ms=self.server.now_ms()))

    # Sessions

    async def _begin_session(self, connect_timeout_s: float) -> KazooSession:
        options = self.options
        return await KazooSession.begin(
            options.state.servers, options.zookeeper_session_timeout_ms, connect_timeout_s
        )

    def _use_session(self, session: KazooSession) -> ZooKeeperNodes:
        self._session = session
        self._lease = Lease(session.timeout_ms, session.started_ms)
        self._nodes = ZooKeeperNodes(session, self.options.state.path)
        return self._nodes

    async def _register(self, nodes: ZooKeeperNodes) -> None:
        """Register the broker. The session of a killed predecessor has to expire first."""
        host, port = self.options.advertised or self.address
        address = BrokerAddress(id=self._broker_id, host=host, port=port)
        assert self._session is not None
        patience_s = self._session.timeout_ms / 1000 + _PREDECESSOR_EXTRA_S
        deadline_s = self._loop.time() + patience_s
        while not await nodes.register_broker(address):
            if self._loop.time() > deadline_s:
                raise PushBrokerIdInUseError(
                    f"broker id {self._broker_id} belongs to another live broker; use another --id"
                )
            await asyncio.sleep(_RETRY_DELAY_S / 5)

    async def _run(self, session: KazooSession, nodes: ZooKeeperNodes) -> None:
        """Follow sessions until the broker stops or fails."""
        try:
            while True:
                await self._follow_session(session, nodes)
                log.warning("the ZooKeeper session has ended; beginning another one")
                session, nodes = await self._next_session()
        except Exception as error:
            log.exception("the broker failed")
            self._fail(error)

    async def _next_session(self) -> tuple[KazooSession, ZooKeeperNodes]:
        while True:
            try:
                session = await self._begin_session(_CONNECT_TIMEOUT_S)
            except ZooKeeperUnreachableError as error:
                log.warning("%s", error)
                continue
            nodes = self._use_session(session)
            try:
                await self._register(nodes)
            except SessionEndedError:
                await session.end()
            else:
                return session, nodes

    async def _follow_session(self, session: KazooSession, nodes: ZooKeeperNodes) -> None:
        """Take part in the election until the session ends; then resign."""
        assert self._lease is not None
        ended: asyncio.Future[None] = self._loop.create_future()

        def on_ended() -> None:
            if not ended.done():
                ended.set_result(None)

        session.on_ended = on_ended
        session.on_suspended = self._lease.invalidate
        work: list[Coroutine[Any, Any, None]] = [
            renew_lease(self._lease, session, self._clock, self.server.resume),
            self._follow_election(nodes),
            self._follow_brokers(nodes),
        ]
        if self.options.topic_source is not None:
            work.append(self._publish_topics(nodes, self.options.topic_source))
        tasks = [self._loop.create_task(each) for each in work]
        try:
            await asyncio.wait([ended, *tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            for action in self._elector.handle(SessionExpired(at_ms=0)):
                assert isinstance(action, StopCoordinator)
                self._resign()
            await session.end()
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, SessionEndedError):
                raise result

    # Election

    async def _follow_election(self, nodes: ZooKeeperNodes) -> None:
        """Perform the elector's actions one after the other."""
        actions = deque(self._elector.handle(SessionStarted(at_ms=0)))
        following: list[asyncio.Task[None]] = []  # while this broker is the coordinator
        try:
            while actions:
                match action := actions.popleft():
                    case CreateNode(path=path, data=data):
                        is_ours = await nodes.create_ephemeral(path, data.encode())
                        event = NodeCreated(at_ms=0) if is_ours else NodeExists(at_ms=0)
                        actions += self._elector.handle(event)
                    case StartCoordinator():
                        following = [
                            self._loop.create_task(each)
                            for each in await self._start_coordinator(nodes)
                        ]
                        for task in following:
                            task.add_done_callback(self._on_unfollowed)
                    case WatchNode(path=path):
                        await self._wait_deleted(nodes, path)
                        actions += self._elector.handle(NodeDeleted(at_ms=0))
                    case StopCoordinator():
                        for task in following:
                            task.cancel()
                        self._resign()
                    case _:
                        raise AssertionError(f"unexpected action {action}")
        finally:
            for task in following:
                task.cancel()

    async def _wait_deleted(self, nodes: ZooKeeperNodes, path: str) -> None:
        """Return when the node does not exist, or is no longer that of this coordinator."""
        changed = asyncio.Event()
        while True:
            changed.clear()
            node = await nodes.read(path, changed.set)
            if node is None:
                return
            is_ours = node.session == nodes.session.session_id
            if not is_ours and self._elector.state is ElectorState.COORDINATOR:
                return
            await changed.wait()

    async def _start_coordinator(
        self, nodes: ZooKeeperNodes
    ) -> tuple[Coroutine[Any, Any, None], ...]:
        """Load the records, watch topics and frozen groups, and begin the work (section 5).

        Returns:
            What follows the changes.
        """
        for record in await nodes.load():
            self.machine.apply(record)
        watch = TopicWatch(nodes)
        topics = await watch.read()
        have_switched = asyncio.Event()
        frozen = await nodes.frozen_groups(have_switched.set)
        self._switch(frozen, is_enabled=False)
        self._handle(Elected(at_ms=0, topics=topics))
        log.info("broker %d is the coordinator", self._broker_id)
        return self._follow_topics(watch), self._follow_switches(nodes, have_switched, frozen)

    def _resign(self) -> None:
        log.info("broker %d is no longer the coordinator", self._broker_id)
        self.server.discard_effects()
        self._handle(Resigned(at_ms=0))

    async def _follow_topics(self, watch: TopicWatch) -> None:
        with suppress(SessionEndedError):
            while True:
                await watch.wait_changed()
                self._handle(ClusterTopicsChanged(at_ms=0, topics=await watch.read()))

    async def _follow_switches(
        self, nodes: ZooKeeperNodes, changed: asyncio.Event, frozen: frozenset[str]
    ) -> None:
        """Switch the rebalancing of groups on and off as operators do (KAFKA-364)."""
        notify = changed.set
        with suppress(SessionEndedError):
            while True:
                await changed.wait()
                changed.clear()
                before, frozen = frozen, await nodes.frozen_groups(notify)
                self._switch(before - frozen, is_enabled=True)
                self._switch(frozen - before, is_enabled=False)

    def _switch(self, group_ids: frozenset[str], *, is_enabled: bool) -> None:
        for group_id in sorted(group_ids):
            log.info("group was %s: group=%s", "thawed" if is_enabled else "frozen", group_id)
            self._handle(RebalancingSwitched(at_ms=0, group_id=group_id, is_enabled=is_enabled))

    def _on_unfollowed(self, task: asyncio.Task[None]) -> None:
        """Fail if ZooKeeper can no longer be followed: groups would miss all changes."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            log.error("cannot follow the topics and switches in ZooKeeper", exc_info=error)
            self._fail(error)

    # Brokers and topics

    async def _follow_brokers(self, nodes: ZooKeeperNodes) -> None:
        """Keep the brokers and the coordinator up to date, which any broker tells consumers."""
        changed = asyncio.Event()
        notify = changed.set
        while True:
            changed.clear()
            brokers = await nodes.brokers(notify)
            coordinator_id = await nodes.coordinator_id(notify)
            self._handle(BrokersChanged(at_ms=0, brokers=brokers, coordinator_id=coordinator_id))
            await changed.wait()

    async def _publish_topics(self, nodes: ZooKeeperNodes, source: TopicSource) -> None:
        """Copy the topics of the brokers of records to ZooKeeper, as Kafka 0.7's brokers do."""
        while True:
            try:
                topics = await source()
            except OSError as error:
                if not self._has_logged_source_error:
                    log.warning("cannot read the topics: %s", error)
                self._has_logged_source_error = True
            else:
                self._has_logged_source_error = False
                await nodes.add_topics(topics)
            await asyncio.sleep(self.options.topic_refresh_ms / 1000)


def _log_outcome(outcome: Any) -> None:
    if not isinstance(outcome, Outcome):
        return
    for group_id, reason in outcome.failed_rebalances.items():
        log.error(
            "ConsumerRebalanceFailedException: the rebalance of group %r failed: %s; it is "
            "repeated when its consumers or topics change",
            group_id,
            reason,
        )
    for consumer_id, topic, partition in outcome.refused_offsets:
        log.warning(
            "refused an offset of %s %s: consumer %r does not own it",
            topic,
            partition,
            consumer_id,
        )

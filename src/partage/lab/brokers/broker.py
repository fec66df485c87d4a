"""The broker of a world: its shards, connections and cluster membership.

It corresponds to `partage.broker` on asyncio: the bridge turns frames into events, and a shard host
handles them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from partage.bridge import API_ADAPTERS
from partage.bridge.api_adapter import BrokerContext
from partage.coordinator.events import GroupRequest, ListGroups, TopicsDeleted
from partage.coordinator.shard import Shard
from partage.lab import history
from partage.lab.brokers.cluster_membership import ClusterMembership
from partage.lab.brokers.local_store import LocalStore
from partage.lab.brokers.log_maintenance import LogMaintenance
from partage.lab.brokers.marker_writer import SimLocalMarkers, SimMarkerWriter
from partage.lab.brokers.peer_requests import PeerRequests
from partage.lab.brokers.request_handlers import (
    handle_fetch,
    handle_find_coordinator,
    handle_produce,
)
from partage.lab.brokers.server_connection import ServedRequest, ServerConnection
from partage.lab.brokers.shard_host import SimShardHost, StateStore
from partage.lab.brokers.shared_store import SharedStore
from partage.lab.brokers.shell import BrokerShell
from partage.lab.brokers.transaction_handlers import TransactionHandlers
from partage.lab.brokers.transaction_host import SimTransactionHost
from partage.lab.context import WorldContext
from partage.lab.environment.network import SimConnection
from partage.lab.environment.zookeeper import ZooKeeper
from partage.model.topic_partition import TopicPartition
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC
from partage.store.shard_log import shard_of
from partage.store.transaction_log import TOPIC as TRANSACTIONS_TOPIC
from partage.wire.apis.fetch import FETCH
from partage.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorResponse
from partage.wire.apis.produce import PRODUCE


class Broker(BrokerShell):
    """A broker: successive processes with one disk.

    The first broker has the topics, except that transactional producers' topic is spread.
    """

    def __init__(self, world: WorldContext, broker_id: int) -> None:
        super().__init__(world, broker_id)
        self.hosts = [SimShardHost(self, LocalStore(self))]
        self.connections: list[ServerConnection] = []
        self.maintenance = LogMaintenance(self)
        #: The shards of the transaction coordinator; none in worlds without transactions.
        self.transaction_hosts: list[SimTransactionHost] = []
        self._peers = PeerRequests(self)
        self._transaction_handlers: TransactionHandlers | None = None
        self._membership: ClusterMembership | None = None
        self._stores: list[SharedStore] = []
        self._surroundings = BrokerContext(
            shard_count=world.options.shard_count, has_partition=world.has_partition
        )

    # Process

    def start(self) -> None:
        """Start the process. Opening its disk can fail, which schedules another start."""
        self.maintenance = LogMaintenance(self)
        if not self.open_storage():
            return
        if self.world.zookeeper is None:
            self.hosts = [SimShardHost(self, LocalStore(self))]
            self.hosts[0].schedule_load()
            if self.world.options.transaction_shard_count:
                self._start_transactions([LocalStore(self, TRANSACTIONS_TOPIC)])
                self.transaction_hosts[0].schedule_load()
        else:
            self._join_cluster(self.world.zookeeper)

    def _start_transactions(self, stores: Sequence[StateStore]) -> None:
        """Create the shards of the transaction coordinator, and the handlers of its requests."""
        local_markers = SimLocalMarkers(self, self, self.maintenance.schedule_reopen)
        self._peers = PeerRequests(self)
        markers = SimMarkerWriter(self, self, local_markers, self._peers)
        self.transaction_hosts = [SimTransactionHost(self, store, markers) for store in stores]
        self._transaction_handlers = TransactionHandlers(
            self,
            self.transaction_hosts,
            self,
            self._peers,
            local_markers,
            self.maintenance,
            self._surroundings,
        )

    def _join_cluster(self, servers: ZooKeeper) -> None:
        """Join the ZooKeeper cluster, which stores the state of the groups."""
        options = self.world.options

        def when_awake(call: Callable[[], None]) -> None:
            self.when_awake(bind(call))

        bind = self.process_binder()
        shard_count = options.shard_count
        shards = range(shard_count + options.transaction_shard_count)
        self._stores = stores = [SharedStore(self) for _ in shards]
        self.hosts = [
            SimShardHost(self, store, shard) for shard, store in enumerate(stores[:shard_count])
        ]
        if options.transaction_shard_count:
            self._start_transactions(stores[shard_count:])
        hosts: list[SimShardHost | SimTransactionHost] = [*self.hosts, *self.transaction_hosts]
        for host in hosts:
            host.resign()
        self._membership = ClusterMembership(
            servers,
            self.broker_id,
            stores,
            options.zookeeper_timeout_ms,
            when_awake,
            entries_per_merge=options.entries_per_merge,
            transaction_shard_count=options.transaction_shard_count,
        )
        for store, host in zip(stores, hosts, strict=True):
            store.attach(self._membership, host)
        if self.broker_id == 1:
            self.world.clear_damage()

    def on_process_ended(self) -> None:
        """Close the hosts and connections of the process, and end its cluster membership."""
        for host in self.hosts:
            host.is_closed = True
        for transaction_host in self.transaction_hosts:
            transaction_host.is_closed = True
        self._peers.close()
        for connection in self.connections:
            connection.on_process_died()
        self.connections.clear()
        if self._membership is not None:
            self._membership.end()
            self._membership = None

    def shut_down(self, within_ms: int) -> bool:
        """Shut the process down cleanly: it leaves the cluster first and ends ``within_ms`` later.

        Returns:
            False if the broker is alone or paused, so that it cannot shut down.
        """
        if self._membership is None or self.is_paused:
            return False
        self._membership.shut_down()
        self.call_later(within_ms, lambda: self.die("clean shutdown"))
        return True

    # Shards

    @property
    def shard(self) -> Shard | None:
        """The shard of a single broker, if it is loaded."""
        return self.hosts[0].shard if self.is_up else None

    def host_of(self, group_id: str) -> SimShardHost:
        """Return the host of a group's shard."""
        return self.hosts[self.world.shard_of(group_id)]

    def core_of(self, group_id: str) -> Shard | None:
        """Return the loaded shard of a group, or None."""
        return self.host_of(group_id).shard if self.is_up else None

    @property
    def may_answer(self) -> bool:
        """True if no other broker can own the shards by now."""
        return self._membership is None or self._membership.may_answer()

    def coordinator(self, group_id: str) -> int | None:
        """Return the coordinator's broker id, as far as this broker knows."""
        if self._membership is None:
            return self.broker_id
        return self._membership.owner(self.world.shard_of(group_id))

    def transaction_coordinator(self, transactional_id: str) -> int | None:
        """Return the coordinator's broker id of a transactional id, as far as it is known."""
        options = self.world.options
        if self._membership is None:
            return self.broker_id
        shard = shard_of(transactional_id, options.transaction_shard_count)
        return self._membership.owner(options.shard_count + shard)

    def leader(self, partition: TopicPartition) -> int | None:
        """Return the leader of a partition, as far as this broker knows."""
        if self._membership is None or partition.topic != OFFSETS_TOPIC:
            return self.world.leader_of(partition)
        return self._membership.owner(partition.partition)

    def group_host(self, shard: int) -> SimShardHost:
        """Return the host of a group shard."""
        return self.hosts[shard]

    def merge(self, group_id: str) -> bool:
        """Merge the ZooKeeper log of a group's shard. Return False if not the owner."""
        log = None if self._membership is None else self._stores[self.world.shard_of(group_id)].log
        if self._membership is None or log is None or self.is_paused:
            return False
        self._membership.merge(log)
        return True

    def compact(self) -> bool:
        """Compact the coordinator's log. Return False if there is nothing to compact."""
        return self.shard is not None and self.maintenance.compact()

    def compact_all(self) -> bool:
        """Compact all logs that need it. Return False if there are none."""
        places = list(self.storage.partitions) if self.storage is not None else []
        count = 0
        for topic, index in places:
            if topic != OFFSETS_TOPIC or self.shard is not None:
                count += self.maintenance.compact(topic, index)
        return count > 0

    def delete_topic(self, topic: str) -> None:
        """Notify the shards of this broker that a topic was deleted."""
        if not self.is_up:
            return

        def notify() -> None:
            now_ms = self.world.now_ms
            self.world.append_history(
                history.TopicDeletionApplied(at_ms=now_ms, broker=self.broker_id, topic=topic)
            )
            for host in self.hosts:
                host.handle(TopicsDeleted(at_ms=now_ms, topics=frozenset({topic})))
                host.flush()

        self.call_later(0, notify)

    def refresh_topics(self) -> None:
        """Report the newest topics of consumer groups to the shards after a moment."""

        def refresh() -> None:
            for host in self.hosts:
                host.refresh_topics()

        if self.is_up:
            self.call_later(self.world.action_rng.choice((0, 5, 400)), refresh)

    # Connections and requests

    def accept(self, connection: SimConnection) -> ServerConnection | None:
        """Accept a connection; None if the process is down."""
        if not self.is_up:
            return None
        end = ServerConnection(self, connection, self)
        self.connections.append(end)
        return end

    def has_loaded(self, group_id: str) -> bool:
        """Return True if the shard of a group is loaded."""
        return self.core_of(group_id) is not None

    def handle_request(self, inbound: ServedRequest) -> None:
        """Handle a request. The response may be sent later."""
        key = inbound.api.key
        handlers = self._transaction_handlers
        if handlers is not None and handlers.handle(inbound):
            return
        if key in API_ADAPTERS:
            fresh_id = f"{self.world.broker_rng.getrandbits(64):016x}"
            asked = inbound.start(API_ADAPTERS[key], self._surroundings, fresh_id)
            for position, event in enumerate(asked):
                if isinstance(event, ListGroups):
                    self.hosts[position].handle(event)
                else:
                    assert isinstance(event, GroupRequest)
                    self.host_of(event.group_id).handle(event)
            if not asked:
                inbound.connection.respond(inbound, inbound.encode_response())
            for host in self.hosts:
                host.flush()
        elif key == FIND_COORDINATOR.key:
            inbound.respond(self._find_coordinator(inbound.message))
        elif key == FETCH.key:
            assert self.storage is not None
            inbound.respond(handle_fetch(self.storage, inbound.message))
        elif key == PRODUCE.key:
            handle_produce(self, self.maintenance, inbound)
        else:
            inbound.connection.close()

    def _find_coordinator(self, request: Any) -> FindCoordinatorResponse:
        return handle_find_coordinator(self.coordinator, self.transaction_coordinator, request)

    def on_connection_closed(self, connection: ServerConnection) -> None:
        """Forget a closed connection."""
        if connection in self.connections:
            self.connections.remove(connection)

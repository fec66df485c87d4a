"""The broker of a world: a shell on the virtual clock around production components.

It corresponds to `partage.broker` on asyncio: the bridge turns frames into events, and a shard host
handles them. The process can crash or pause at any moment, and its disk can lose power.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from partage.bridge import API_ADAPTERS
from partage.bridge.api_adapter import BrokerContext
from partage.coordinator.events import ListGroups, TopicsDeleted
from partage.coordinator.records import Record
from partage.coordinator.shard import Shard
from partage.lab import history
from partage.lab.brokers.cluster_membership import ClusterMembership
from partage.lab.brokers.local_store import LocalStore
from partage.lab.brokers.log_maintenance import LogMaintenance
from partage.lab.brokers.request_handlers import (
    handle_fetch,
    handle_find_coordinator,
    handle_produce,
)
from partage.lab.brokers.server_connection import ServedRequest, ServerConnection
from partage.lab.brokers.shard_host import SimShardHost
from partage.lab.brokers.shared_store import SharedStore
from partage.lab.brokers.storage import DiskWriter, Storage
from partage.lab.environment.disk import CrashDisk, PowerLossError
from partage.lab.environment.network import SimConnection
from partage.lab.environment.zookeeper import ZooKeeper
from partage.log.errors import DamagedLogError
from partage.wire.apis.fetch import FETCH
from partage.wire.apis.find_coordinator import FIND_COORDINATOR
from partage.wire.apis.produce import PRODUCE

if TYPE_CHECKING:
    from partage.lab.world import World


class Broker:
    """A broker: successive processes with one disk. The first broker has the topics."""

    def __init__(self, world: World, broker_id: int) -> None:
        self.world = world
        self.broker_id = broker_id
        self.disk = CrashDisk()
        self.disk.on_fault = world.count_fault
        self.disk_slow: tuple[int, int] = (0, 0)  # end of the slow period, and the longest delay
        self.is_up = False
        self.is_paused = False
        self._paused_ms = 0  # time of the pause
        self.storage: Storage | None = None
        self.hosts = [SimShardHost(self, LocalStore(self))]
        self._membership: ClusterMembership | None = None
        self._stores: list[SharedStore] = []
        self.connections: list[ServerConnection] = []
        self._incarnation = 0  # number of processes so far
        self.maintenance = LogMaintenance(self)
        # calls deferred while the process is paused
        self._deferred_calls: list[tuple[bool, Callable[[], None]]] = []
        self._surroundings = BrokerContext(
            shard_count=world.options.shard_count, has_partition=world.has_partition
        )

    # Process

    def start(self) -> None:
        """Start the process. Opening its disk can fail, which schedules another start."""
        world = self.world
        self._incarnation += 1
        self.is_paused = False
        self._deferred_calls.clear()
        self.maintenance = LogMaintenance(self)
        self.writer = DiskWriter(self.disk, world.clock, self._disk_delay_ms, self.lose_power)
        try:
            self.storage = Storage(
                self.disk,
                self.writer,
                world.stored_topics if self.broker_id == 1 else {},
                world.options.segment_bytes,
                world.now_ms,
            )
        except PowerLossError:
            world.record_incident("power failed during recovery")
            self.lose_power()
            return
        except (DamagedLogError, OSError) as error:
            world.record_incident("a broker failed to start", f"{error}")
            self.storage = None
            self.writer.is_closed = True
            world.on_start_failed(self, error)
            return
        self.is_up = True
        if world.zookeeper is None:
            self.hosts = [SimShardHost(self, LocalStore(self))]
            self.hosts[0].schedule_load()
        else:
            self._join_cluster(world.zookeeper)

    def _join_cluster(self, servers: ZooKeeper) -> None:
        """Join the ZooKeeper cluster, which stores the state of the groups."""
        life, timeout_ms = self._incarnation, self.world.options.zookeeper_timeout_ms

        def when_awake(call: Callable[[], None]) -> None:
            self.when_awake(lambda: call() if life == self._incarnation else None)

        shards = range(self.world.options.shard_count)
        self._stores = stores = [SharedStore(self) for _ in shards]
        self.hosts = [SimShardHost(self, store, shard) for shard, store in enumerate(stores)]
        for host in self.hosts:
            host.resign()
        merges_every = self.world.options.merges_every
        self._membership = ClusterMembership(
            servers, self.broker_id, stores, timeout_ms, when_awake, merges_every=merges_every
        )
        for store, host in zip(stores, self.hosts, strict=True):
            store.attach(self._membership, host)
        if self.broker_id == 1:
            self.world.clear_damage()

    def die(self, how: str) -> None:
        """Kill the process. Data that was written stays in the page cache."""
        world = self.world
        if self.storage is not None:
            world.append_history(
                history.BrokerDied(at_ms=world.now_ms, broker=self.broker_id, cause=how)
            )
        self._incarnation += 1
        self.is_up = False
        self.storage = None
        self.writer.is_closed = True
        for host in self.hosts:
            host.is_closed = True
        for connection in self.connections:
            connection.on_process_died()
        self.connections.clear()
        if self._membership is not None:
            self._membership.end()
            self._membership = None
        world.schedule_restart(self)

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

    def hit_crash_point(self, records: Sequence[Record], *, is_stored: bool) -> bool:
        """Kill the process if the planned crash point matches these records.

        Args:
            records: The records that are about to be stored, or are stored.
            is_stored: True after storing.

        Returns:
            True if the process was killed.
        """
        trap = self.world.crash_point
        if (
            trap is None
            or trap.is_after_storing != is_stored
            or not any(map(trap.matches, records))
        ):
            return False
        self.world.crash_point = None
        self.world.count_fault(trap.kind)
        self.die(trap.kind.replace("_", " "))
        return True

    def lose_power(self) -> None:
        """Cut the power: the process dies, and any part of the unsynced data survives."""
        self.disk.crash(self.world.disk_rng)
        self.die("power failure")

    def pause(self, for_ms: int) -> None:
        """Pause the process for a time."""
        if self.is_up and not self.is_paused:
            self.is_paused, self._paused_ms = True, self.world.now_ms
            life = self._incarnation
            self.world.clock.call_later(for_ms, lambda: self._resume(life))

    def _resume(self, life: int) -> None:
        if life != self._incarnation or not self.is_paused:
            return
        self.is_paused = False
        world, since_ms = self.world, self._paused_ms
        stood = history.StallEnded(at_ms=world.now_ms, broker=self.broker_id, began_ms=since_ms)
        world.append_history(stood)
        awaiting, self._deferred_calls = self._deferred_calls, []
        if len(self.world.brokers) > 1 and self.world.broker_rng.random() < 0.5:
            # timers before events that arrived meanwhile
            awaiting.sort(key=itemgetter(0), reverse=True)
        for _, call in awaiting:
            call()

    def resume(self) -> None:
        """End the pause now."""
        self._resume(self._incarnation)

    def when_awake(self, call: Callable[[], None], *, is_timer: bool = False) -> None:
        """Call now, or after the pause if the process is paused."""
        if self.is_paused:
            self._deferred_calls.append((is_timer, call))
        else:
            call()

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call after a delay, if this process still lives then."""
        life = self._incarnation

        def due() -> None:
            if life == self._incarnation:
                self.when_awake(
                    lambda: call() if life == self._incarnation else None, is_timer=True
                )

        self.world.clock.call_later(delay_ms, due)

    def _disk_delay_ms(self) -> int:
        until_ms, slow_ms = self.disk_slow
        longest = slow_ms if self.world.now_ms < until_ms else self.world.options.disk_delay_ms
        return self.world.disk_rng.randrange(longest + 1)

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

    def merge(self, group_id: str) -> bool:
        """Merge the ZooKeeper log of a group's shard. Return False if not the owner."""
        log = None if self._membership is None else self._stores[self.world.shard_of(group_id)].log
        if self._membership is None or log is None or self.is_paused:
            return False
        self._membership.merge(log)
        return True

    def delete_topic(self, topic: str) -> None:
        """Notify the shards of this broker that a topic was deleted."""
        if not self.is_up:
            return

        def tell() -> None:
            now_ms = self.world.now_ms
            self.world.append_history(
                history.TopicDeletionApplied(at_ms=now_ms, broker=self.broker_id, topic=topic)
            )
            for host in self.hosts:
                host.handle(TopicsDeleted(at_ms=now_ms, topics=frozenset({topic})))
                host.flush()

        self.call_later(0, tell)

    # Requests

    def accept(self, connection: SimConnection) -> ServerConnection | None:
        """Accept a connection; None if the process is down."""
        if not self.is_up:
            return None
        end = ServerConnection(self, connection)
        self.connections.append(end)
        return end

    def handle_request(self, inbound: ServedRequest) -> None:
        """Handle a request. The response may be sent later."""
        key = inbound.api.key
        if key in API_ADAPTERS:
            fresh_id = f"{self.world.broker_rng.getrandbits(64):016x}"
            asked = inbound.start(API_ADAPTERS[key], self._surroundings, fresh_id)
            for position, event in enumerate(asked):
                if isinstance(event, ListGroups):
                    self.hosts[position].handle(event)
                else:
                    self.host_of(event.group_id).handle(event)
            if not asked:
                inbound.connection.respond(inbound, inbound.encode_response())
            for host in self.hosts:
                host.flush()
        elif key == FIND_COORDINATOR.key:
            inbound.respond(handle_find_coordinator(self, inbound.message))
        elif key == FETCH.key:
            inbound.respond(handle_fetch(self, inbound.message))
        elif key == PRODUCE.key:
            handle_produce(self, inbound)
        else:
            inbound.connection.close()

    def on_connection_closed(self, end: ServerConnection) -> None:
        """Forget a closed connection."""
        if end in self.connections:
            self.connections.remove(end)

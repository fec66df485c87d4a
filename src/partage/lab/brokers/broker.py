"""The broker of a world: a shell on the virtual clock around the broker's own parts.

It is what `partage.broker` is on asyncio: frames to events by the bridge, events to the shard's
`host`. It can die at any moment, stand still, and lose its disk's power.
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
from partage.lab.brokers.hosting import Host
from partage.lab.brokers.local_store import LocalStore
from partage.lab.brokers.place import Place
from partage.lab.brokers.serving import Inbound, ServerEnd
from partage.lab.brokers.shared_store import SharedStore
from partage.lab.brokers.storage import Storage, Writer
from partage.lab.brokers.topics import fetch, find_coordinator, produce
from partage.lab.brokers.upkeep import Upkeep
from partage.lab.nature.disk import Crash, CrashDisk
from partage.lab.nature.network import Connection
from partage.lab.nature.zookeeper import ZooKeeper
from partage.log.errors import DamagedLogError
from partage.wire.apis.fetch import FETCH
from partage.wire.apis.find_coordinator import FIND_COORDINATOR
from partage.wire.apis.produce import PRODUCE

if TYPE_CHECKING:
    from partage.lab.world import World


class Broker:
    """One broker process after the other, on one disk; the first one has the topics."""

    def __init__(self, world: World, broker_id: int) -> None:
        self.world = world
        self.broker_id = broker_id
        self.disk = CrashDisk()
        self.disk.struck = world.struck
        self.disk_slow: tuple[int, int] = (0, 0)  # until when, and how slow
        self.is_up = False
        self.is_paused = False
        self._paused_ms = 0  # when
        self.storage: Storage | None = None
        self.hosts = [Host(self, LocalStore(self))]
        self._place: Place | None = None
        self._stores: list[SharedStore] = []
        self.connections: list[ServerEnd] = []
        self._life = 0  # counts processes
        self.upkeep = Upkeep(self)
        self._awaiting: list[tuple[bool, Callable[[], None]]] = []  # while it stands still
        self._surroundings = BrokerContext(
            shard_count=world.options.shard_count, has_partition=world.has_partition
        )

    # The process.

    def start(self) -> None:
        """Start the process; it opens what is on its disk, or fails to."""
        world = self.world
        self._life += 1
        self.is_paused = False
        self._awaiting.clear()
        self.upkeep = Upkeep(self)
        self.writer = Writer(self.disk, world.clock, self._disk_delay_ms, self.lose_power)
        try:
            self.storage = Storage(
                self.disk,
                self.writer,
                world.stored_topics if self.broker_id == 1 else {},
                world.options.segment_bytes,
                world.now_ms,
            )
        except Crash:
            world.happened("power fails during recovery")
            self.lose_power()
            return
        except (DamagedLogError, OSError) as error:
            world.happened("the broker refuses to start", f"{error}")
            self.storage = None
            self.writer.is_over = True
            world.start_refused(self, error)
            return
        self.is_up = True
        if world.zookeeper is None:
            self.hosts = [Host(self, LocalStore(self))]
            self.hosts[0].load_later()
        else:
            self._join(world.zookeeper)

    def _join(self, servers: ZooKeeper) -> None:
        """Take a place among the others; the disk has nothing of groups, and is found right."""
        life, timeout_ms = self._life, self.world.options.zookeeper_timeout_ms

        def when_awake(call: Callable[[], None]) -> None:
            self.when_awake(lambda: call() if life == self._life else None)

        shards = range(self.world.options.shard_count)
        self._stores = stores = [SharedStore(self) for _ in shards]
        self.hosts = [Host(self, store, shard) for shard, store in enumerate(stores)]
        for host in self.hosts:
            host.resign()
        merges_every = self.world.options.merges_every
        self._place = Place(
            servers, self.broker_id, stores, timeout_ms, when_awake, merges_every=merges_every
        )
        for store, host in zip(stores, self.hosts, strict=True):
            store.serve(self._place, host)
        if self.broker_id == 1:
            self.world.passed_over()

    def die(self, how: str) -> None:
        """The process is gone; what it wrote is not."""
        world = self.world
        if self.storage is not None:
            world.note(history.Died(at_ms=world.now_ms, broker=self.broker_id, how=how))
        self._life += 1
        self.is_up = False
        self.storage = None
        self.writer.is_over = True
        for host in self.hosts:
            host.is_over = True
        for connection in self.connections:
            connection.abandon()
        self.connections.clear()
        if self._place is not None:
            self._place.end()
            self._place = None
        world.restart_later(self)

    def stop(self, within_ms: int) -> bool:
        """Have the process end cleanly: first it leaves the others, then it is gone. Whether it
        could be told to.
        """
        if self._place is None or self.is_paused:
            return False
        self._place.leave()
        self.later(within_ms, lambda: self.die("it is stopped"))
        return True

    def dies_of(self, records: Sequence[Record], *, is_stored: bool) -> bool:
        """Whether it has: of records that it is about to store, or has stored, as was planned."""
        trap = self.world.trap
        if trap is None or trap.is_stored != is_stored or not any(map(trap.springs, records)):
            return False
        self.world.trap = None
        self.world.struck(trap.kind)
        self.die(trap.kind.replace("_", " "))
        return True

    def lose_power(self) -> None:
        """The whole machine is gone, and of what was not synced any part."""
        self.disk.crash(self.world.disk_rng)
        self.die("the power fails")

    def pause(self, for_ms: int) -> None:
        """The process stands still."""
        if self.is_up and not self.is_paused:
            self.is_paused, self._paused_ms = True, self.world.now_ms
            life = self._life
            self.world.clock.later(for_ms, lambda: self._resume(life))

    def _resume(self, life: int) -> None:
        if life != self._life or not self.is_paused:
            return
        self.is_paused = False
        world, since_ms = self.world, self._paused_ms
        stood = history.StoodStill(at_ms=world.now_ms, broker=self.broker_id, since_ms=since_ms)
        world.note(stood)
        awaiting, self._awaiting = self._awaiting, []
        if len(self.world.brokers) > 1 and self.world.broker_rng.random() < 0.5:
            awaiting.sort(key=itemgetter(0), reverse=True)  # timers before what has come meanwhile
        for _, call in awaiting:
            call()

    def resume(self) -> None:
        """Go on now."""
        self._resume(self._life)

    def when_awake(self, call: Callable[[], None], *, is_timer: bool = False) -> None:
        """Do something once the process goes on; at once, mostly."""
        if self.is_paused:
            self._awaiting.append((is_timer, call))
        else:
            call()

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Do something after a while, if this process still lives then."""
        life = self._life

        def due() -> None:
            if life == self._life:
                self.when_awake(lambda: call() if life == self._life else None, is_timer=True)

        self.world.clock.later(delay_ms, due)

    def _disk_delay_ms(self) -> int:
        until_ms, slow_ms = self.disk_slow
        longest = slow_ms if self.world.now_ms < until_ms else self.world.options.disk_delay_ms
        return self.world.disk_rng.randrange(longest + 1)

    # The shard.

    @property
    def shard(self) -> Shard | None:
        """The core of a broker that is alone, if it is loaded."""
        return self.hosts[0].shard if self.is_up else None

    def host_of(self, group_id: str) -> Host:
        """The host of a group's shard."""
        return self.hosts[self.world.shard_of(group_id)]

    def core_of(self, group_id: str) -> Shard | None:
        """The core that has a group, if it is loaded here."""
        return self.host_of(group_id).shard if self.is_up else None

    @property
    def may_answer(self) -> bool:
        """Whether nobody else can have the groups by now."""
        return self._place is None or self._place.may_answer()

    def coordinator(self, group_id: str) -> int | None:
        """The id of the broker that has a group, as far as this one knows."""
        if self._place is None:
            return self.broker_id
        return self._place.owner(self.world.shard_of(group_id))

    def merge(self, group_id: str) -> bool:
        """Merge the log that a group's shard has in ZooKeeper; whether this broker may."""
        log = None if self._place is None else self._stores[self.world.shard_of(group_id)].log
        if self._place is None or log is None or self.is_paused:
            return False
        self._place.merge(log)
        return True

    def forget(self, topic: str) -> None:
        """A topic is gone; the shards hear of it, as from `partage.broker`'s hosts."""
        if not self.is_up:
            return

        def tell() -> None:
            now_ms = self.world.now_ms
            self.world.note(
                history.TopicForgotten(at_ms=now_ms, broker=self.broker_id, topic=topic)
            )
            for host in self.hosts:
                host.handle(TopicsDeleted(at_ms=now_ms, topics=frozenset({topic})))
                host.settle()

        self.later(0, tell)

    # Requests.

    def accepts(self, connection: Connection) -> ServerEnd | None:
        """Take a connection."""
        if not self.is_up:
            return None
        end = ServerEnd(self, connection)
        self.connections.append(end)
        return end

    def serve(self, inbound: Inbound) -> None:
        """Answer a request, at once or later."""
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
                host.settle()
        elif key == FIND_COORDINATOR.key:
            inbound.answer(find_coordinator(self, inbound.message))
        elif key == FETCH.key:
            inbound.answer(fetch(self, inbound.message))
        elif key == PRODUCE.key:
            produce(self, inbound)
        else:
            inbound.connection.close()

    def closed(self, end: ServerEnd) -> None:
        """A connection is gone."""
        if end in self.connections:
            self.connections.remove(end)

"""The broker of a world: a shell on the virtual clock around the broker's own parts.

It is what `partage.broker` is on asyncio: frames to events by the bridge, events to the shard's
`host`. It can die at any moment, stand still, and lose its disk's power.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from partage.bridge import EXCHANGES
from partage.bridge.exchange import Surroundings
from partage.coordinator.shard import Shard
from partage.lab import history
from partage.lab.disk import Crash, CrashDisk
from partage.lab.hosting import Host
from partage.lab.local_store import LocalStore
from partage.lab.network import Connection
from partage.lab.serving import Inbound, ServerEnd
from partage.lab.storage import Storage, Writer
from partage.lab.topics import fetch, find_coordinator, produce
from partage.lab.upkeep import Upkeep
from partage.log.damage import DamagedLog
from partage.wire.apis.fetch import FETCH
from partage.wire.apis.find_coordinator import FIND_COORDINATOR
from partage.wire.apis.produce import PRODUCE

if TYPE_CHECKING:
    from partage.lab.world import World


class Broker:
    """One broker process after the other, on one disk."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.disk = CrashDisk()
        self.disk_slow: tuple[int, int] = (0, 0)  # until when, and how slow
        self.is_up = False
        self.is_paused = False
        self.storage: Storage | None = None
        self.host = Host(self, LocalStore(self))
        self.connections: list[ServerEnd] = []
        self._life = 0  # counts processes
        self.upkeep = Upkeep(self)
        self._awaiting: list[Callable[[], None]] = []  # while the process stands still
        self._surroundings = Surroundings(shard_count=1, has_partition=world.has_partition)

    # The process.

    def start(self) -> None:
        """Start the process; it opens what is on its disk, or fails to."""
        world = self.world
        self._life += 1
        self.is_paused = False
        self._awaiting.clear()
        self.upkeep = Upkeep(self)
        self.host = Host(self, LocalStore(self))
        self.writer = Writer(self.disk, world.clock, self._disk_delay_ms, self.lose_power)
        try:
            self.storage = Storage(
                self.disk,
                self.writer,
                world.stored_topics,
                world.options.segment_bytes,
                world.now_ms,
            )
        except Crash:
            world.happened("power fails during recovery")
            self.lose_power()
            return
        except (DamagedLog, OSError) as error:
            world.happened("the broker refuses to start", f"{error}")
            self.storage = None
            self.writer.is_over = True
            world.start_refused(error)
            return
        self.is_up = True
        self.host.load_later(is_restart=True)

    def die(self, how: str) -> None:
        """The process is gone; what it wrote is not."""
        world = self.world
        if self.storage is not None:
            world.note(history.Died(at_ms=world.now_ms, how=how))
        self._life += 1
        self.is_up = False
        self.storage = None
        self.host.is_over = self.writer.is_over = True
        for connection in self.connections:
            connection.abandon()
        self.connections.clear()
        world.restart_later()

    def lose_power(self) -> None:
        """The whole machine is gone, and of what was not synced any part."""
        self.disk.crash(self.world.disk_rng)
        self.die("the power fails")

    def pause(self, for_ms: int) -> None:
        """The process stands still."""
        if self.is_up and not self.is_paused:
            self.is_paused = True
            life = self._life
            self.world.clock.later(for_ms, lambda: self._resume(life))

    def _resume(self, life: int) -> None:
        if life != self._life or not self.is_paused:
            return
        self.is_paused = False
        awaiting, self._awaiting = self._awaiting, []
        for call in awaiting:
            call()

    def resume(self) -> None:
        """Go on now."""
        self._resume(self._life)

    def when_awake(self, call: Callable[[], None]) -> None:
        """Do something once the process goes on; at once, mostly."""
        if self.is_paused:
            self._awaiting.append(call)
        else:
            call()

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Do something after a while, if this process still lives then."""
        life = self._life

        def due() -> None:
            if life == self._life:
                self.when_awake(lambda: call() if life == self._life else None)

        self.world.clock.later(delay_ms, due)

    def _disk_delay_ms(self) -> int:
        until_ms, slow_ms = self.disk_slow
        longest = slow_ms if self.world.now_ms < until_ms else self.world.options.disk_delay_ms
        return self.world.disk_rng.randrange(longest + 1)

    # The shard.

    @property
    def shard(self) -> Shard | None:
        """The core, if it is loaded."""
        return self.host.shard if self.is_up else None

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
        if key in EXCHANGES:
            fresh_id = f"{self.world.broker_rng.getrandbits(64):016x}"
            asked = inbound.begin(EXCHANGES[key], self._surroundings, fresh_id)
            for event in asked:
                self.host.handle(event)
            if not asked:
                inbound.connection.respond(inbound, inbound.response())
            self.host.settle()
        elif key == FIND_COORDINATOR.key:
            inbound.answer(find_coordinator(inbound.message))
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

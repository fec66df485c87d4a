"""The broker of a world: a shell on the virtual clock around the broker's own parts.

It is what `partage.broker` is on asyncio: frames to events by the bridge, events to the shard by
the driver, records to the log by the store, replies once they are durable. It can die at any
moment, stand still, and lose its disk's power.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from partage.bridge import EXCHANGES
from partage.bridge.exchange import Surroundings, deliver
from partage.coordinator import invariants
from partage.coordinator.events import Event
from partage.coordinator.outcome import Happening
from partage.coordinator.records import Record
from partage.coordinator.shard import Shard
from partage.lab import history
from partage.lab.disk import Crash, CrashDisk
from partage.lab.network import Connection
from partage.lab.serving import Inbound, ServerEnd
from partage.lab.storage import Storage, Writer
from partage.lab.topics import fetch, find_coordinator, produce
from partage.lab.upkeep import RELOAD_AFTER_MS, Upkeep
from partage.log.damage import DamagedLog
from partage.log.outcomes import Refusal
from partage.log.scanning import first_fault
from partage.model.errors import ErrorCode
from partage.runtime.driver import Driver
from partage.runtime.resting import Rest
from partage.store.formats import decode_record
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC
from partage.store.shard_log import encode_records, replay
from partage.wire.apis.fetch import FETCH
from partage.wire.apis.find_coordinator import FIND_COORDINATOR
from partage.wire.apis.produce import PRODUCE
from partage.wire.records.decode import decode_pairs

if TYPE_CHECKING:
    from partage.lab.world import World

_EVERYTHING: Final = 1 << 40


class Broker:
    """One broker process after the other, on one disk."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.disk = CrashDisk()
        self.disk_slow: tuple[int, int] = (0, 0)  # until when, and how slow
        self.is_up = False
        self.is_paused = False
        self.storage: Storage | None = None
        self.driver = Driver()
        self.connections: list[ServerEnd] = []
        self.loads = 0
        self._life = 0  # counts processes
        self._log_life = 0  # counts failures of the shard's log
        self.upkeep = Upkeep(self)
        self._awaiting: list[Callable[[], None]] = []  # while the process stands still
        self._is_flushing = False
        self._rest = Rest()
        self._wake_ms: int | None = None
        self._wake_serial = 0
        self._surroundings = Surroundings(shard_count=1, has_partition=world.has_partition)

    # The process.

    def start(self) -> None:
        """Start the process; it opens what is on its disk, or fails to."""
        world = self.world
        self._life += 1
        self.is_paused = False
        self._awaiting.clear()
        self._is_flushing = False
        self.upkeep = Upkeep(self)
        self._wake_ms = None
        self._wake_serial += 1
        self._rest = Rest()
        self.driver = Driver()
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
        self._load_later(is_restart=True)

    def die(self, how: str) -> None:
        """The process is gone; what it wrote is not."""
        world = self.world
        if self.storage is not None:
            world.note(history.Died(at_ms=world.now_ms, how=how))
        self._life += 1
        self.is_up = False
        self.storage = None
        self.writer.is_over = True
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

    def _load_later(self, *, is_restart: bool) -> None:
        delay_ms = self.world.broker_rng.choice((0, 5, 300))
        self.later(delay_ms, lambda: self._load(is_restart))

    def _load(self, is_restart: bool) -> None:
        world, storage = self.world, self.storage
        assert storage is not None
        partition = storage.partitions[OFFSETS_TOPIC, 0]
        try:
            if partition.failure is not None:
                partition = storage.open(OFFSETS_TOPIC, 0, world.now_ms)
            log = partition.log
            content: list[bytes] = []
            if log.high_watermark > log.log_start_offset:
                content = storage.read(partition, log.log_start_offset, _EVERYTHING)
            if any(first_fault(part) for part in content):
                raise DamagedLog(partition.name, 0, "what is read is not what was written")
        except Crash:
            self.lose_power()
            return
        except DamagedLog as error:
            self.die("it cannot load its groups")
            world.damaged(error)
            return
        except OSError as error:
            world.happened("loading fails", f"{error}")
            self.later(RELOAD_AFTER_MS, lambda: self._load(is_restart))
            return
        world.damage = None
        shard = replay(content, world.settings)
        state = {key: value for key, value in decode_pairs(content) if key is not None}
        world.note(history.Loaded(at_ms=world.now_ms, state=state, is_restart=is_restart))
        self.loads += 1
        self.driver.activate(shard, world.now_ms)
        self.settle()

    @property
    def shard(self) -> Shard | None:
        """The core, if it is loaded."""
        return self.driver.shard if self.is_up else None

    def handle(self, event: Event) -> None:
        """Hand an event to the core."""
        self.driver.handle(event)
        self.settle()

    def settle(self) -> None:
        """Send what may be sent, store what is to be stored, see to the next timer."""
        driver = self.driver
        if driver.shard is not None:
            invariants.check(driver.shard, driver.timers.armed)
        while driver.ready:
            for ticket, reply in driver.take_ready(128):
                call = deliver(ticket, reply)
                if call is not None:
                    inbound = cast(Inbound, call)
                    inbound.connection.respond(inbound, inbound.response())
        if driver.unsent and not self._is_flushing:
            self._is_flushing = True
            log_life = self._log_life
            self.later(0, lambda: self._flush(log_life))
        for notice in driver.take_notices():
            if notice.happening is Happening.EXPIRED:
                self.world.note(
                    history.Expired(
                        at_ms=self.world.now_ms,
                        group_id=notice.group_id,
                        member_id=notice.member_id or "",
                        reason=notice.reason,
                    )
                )
        wake_ms = driver.timers.wake_at_ms()
        if wake_ms is not None and (self._wake_ms is None or wake_ms < self._wake_ms):
            self._wake_at(wake_ms)

    def _flush(self, log_life: int) -> None:
        """Append what this moment has brought, as the broker does at the end of a turn."""
        if log_life != self._log_life:
            return
        self._is_flushing = False
        records, mark = self.driver.take_unsent()
        if records:
            self._append(records, mark)

    def _append(self, records: list[Record], mark: int) -> None:
        world, storage = self.world, self.storage
        assert storage is not None
        batches = encode_records(records, world.now_ms)
        pairs = tuple((key or b"", value) for key, value in decode_pairs(batches))
        written = tuple(
            record for key, value in pairs if (record := decode_record(key, value)) is not None
        )
        world.note(history.Written(at_ms=world.now_ms, records=written, pairs=pairs))
        life, log_life, count = self._life, self._log_life, len(pairs)

        def done(error: ErrorCode) -> None:
            if (life, log_life) != (self._life, self._log_life):
                return
            if error:
                self._fail()
                return
            world.note(history.Durable(at_ms=world.now_ms, count=count))
            self.driver.durable(mark)
            self.settle()

        partition = storage.partitions[OFFSETS_TOPIC, 0]
        for position, batch in enumerate(batches, start=1):
            outcome = partition.append(
                batch,
                (lambda error: self.when_awake(lambda: done(error)))
                if position == len(batches)
                else lambda error: None,
                at_ms=world.now_ms,
                from_client=False,
            )
            if isinstance(outcome, Refusal):
                self._fail()
                return

    def _fail(self) -> None:
        """The log failed: drop the core, and load it again once the disk is done."""
        world = self.world
        world.note(history.LogFailed(at_ms=world.now_ms))
        self._log_life += 1
        self._is_flushing = False
        self._wake_ms = None
        self._wake_serial += 1
        self.driver.failed()
        self.settle()
        self.writer.submit([], lambda error: self._load_later(is_restart=False))

    # Timers.

    def _wake_at(self, wake_ms: int) -> None:
        self._wake_ms = wake_ms
        self._wake_serial += 1
        serial, now_ms = self._wake_serial, self.world.now_ms
        due_ms = self._rest.due_ms(wake_ms, now_ms)

        def fire() -> None:
            if serial == self._wake_serial:
                self._fire()

        self.later(due_ms - now_ms, fire)

    def _fire(self) -> None:
        self._wake_ms = None
        now_ms = self.world.now_ms
        if self._rest.begins(now_ms):
            self.settle()
            return
        self.driver.fire_due(now_ms, 256)
        self.settle()

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
                self.driver.handle(event)
            if not asked:
                inbound.connection.respond(inbound, inbound.response())
            self.settle()
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

    def open_tickets(self) -> int:
        """Replies that the driver still owes."""
        return len(cast(Any, self.driver)._open)

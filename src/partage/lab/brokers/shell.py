"""The process of a broker in a world: it can crash or pause at any moment, and its disk can lose
power.

`partage.lab.brokers.broker` runs a production broker in it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from operator import itemgetter

from partage.lab import history
from partage.lab.brokers.compaction_recorder import CompactionRecorder
from partage.lab.context import WorldContext
from partage.lab.environment.disk import CrashDisk
from partage.lab.options import WALL_DIFFERENCE_MAX_MS
from partage.model.topic_partition import TopicPartition

#: The name of the fault of a planned `partage.lab.history.MarkerPause`.
MARKER_PAUSE = "transaction_coordinator_pauses_before_a_marker"


class ProcessDiedError(BaseException):
    """Ends the code of a process that dies in the middle of it."""


class BrokerShell(ABC):
    """Successive processes of one broker, with one disk."""

    def __init__(self, world: WorldContext, broker_id: int) -> None:
        self.world = world
        self.broker_id = broker_id
        #: The wall clock of the machine minus the virtual time.
        self.wall_difference_ms = world.draw_wall_difference_ms()
        self.disk = CrashDisk()
        self.disk.on_fault = world.count_fault
        self.compactions = CompactionRecorder(self.disk, broker_id, world.append_history)
        self.disk_slow: tuple[int, int] = (0, 0)  # end of the slow period, and the longest delay
        self.is_up = False
        self.is_paused = False
        self._paused_ms = 0  # time of the pause
        self._incarnation = 0  # number of processes so far
        # calls deferred while the process is paused; True for timers
        self._deferred_calls: list[tuple[bool, Callable[[], None]]] = []

    # Process

    @abstractmethod
    def start(self) -> None:
        """Start the process. Opening its disk can fail, which schedules another start."""

    @abstractmethod
    def die(self, cause: str) -> None:
        """Kill the process. Data that was written stays in the page cache."""

    @abstractmethod
    def enter(self, call: Callable[[], object]) -> None:
        """Run code of the broker's process."""

    @abstractmethod
    def is_remote(self, partition: TopicPartition) -> bool:
        """True if another broker has a partition."""

    @abstractmethod
    def merge_shard(self, shard: int) -> None:
        """Merge the ZooKeeper log of a shard that this broker owns."""

    @abstractmethod
    def on_batch_written(self, directory: str, content: bytes) -> None:
        """Record batches that are handed to a log."""

    def pass_crash_point(self, records: Sequence[object], *, is_stored: bool) -> None:
        """Let the process die if the planned crash point matches these records.

        Raises:
            ProcessDiedError: It died.
        """
        if self.hit_crash_point(records, is_stored=is_stored):
            raise ProcessDiedError

    def hit_crash_point(self, records: Sequence[object], *, is_stored: bool) -> bool:
        """Kill the process if the planned crash point matches these records.

        Args:
            records: The records that are about to be stored, or are stored.
            is_stored: True after storing.

        Returns:
            True if the process was killed.
        """
        point = self.world.crash_point
        if (
            point is None
            or point.is_after_storing != is_stored
            or not any(map(point.matches, records))
        ):
            return False
        self.world.crash_point = None
        self.world.count_fault(point.kind)
        self.die(point.kind.replace("_", " "))
        return True

    def hit_marker_pause(self) -> bool:
        """Pause the process if a pause before a marker is planned; return True if it pauses now."""
        pause = self.world.marker_pause
        if pause is None or self.is_paused or self.world.is_healed:
            return False
        self.world.marker_pause = None
        self.world.count_fault(MARKER_PAUSE)
        self.pause(pause.for_ms)
        self.world.clock.call_later(pause.at_ms, pause.call)
        return True

    def lose_power(self) -> None:
        """Cut the power: the process dies, and any part of the unsynced data survives."""
        self.disk.crash(self.world.disk_rng)
        self.die("power failure")

    def disk_delay_ms(self) -> int:
        """Draw the time that a write takes."""
        until_ms, slow_ms = self.disk_slow
        longest = slow_ms if self.world.now_ms < until_ms else self.world.options.disk_delay_ms
        return self.world.disk_rng.randrange(longest + 1)

    @property
    def wall_ms(self) -> int:
        """The wall clock of the machine."""
        return self.world.now_ms + self.wall_difference_ms

    def step_wall_clock(self, by_ms: int) -> None:
        """Step the wall clock of the machine; `WALL_DIFFERENCE_MAX_MS` limits the difference."""
        stepped_ms = self.wall_difference_ms + by_ms
        self.wall_difference_ms = max(
            -WALL_DIFFERENCE_MAX_MS, min(stepped_ms, WALL_DIFFERENCE_MAX_MS)
        )
        self.record_wall_clock()

    def record_wall_clock(self) -> None:
        """Append the difference of the wall clock to the history."""
        self.world.append_history(
            history.WallClockStepped(
                at_ms=self.world.now_ms,
                broker=self.broker_id,
                difference_ms=self.wall_difference_ms,
            )
        )

    # Pauses and timers

    def end_pause(self) -> None:
        """Forget the pause of a process that has ended."""
        self.is_paused = False
        self._deferred_calls.clear()

    def pause(self, for_ms: int) -> None:
        """Pause the process for a time."""
        if self.is_up and not self.is_paused:
            self.is_paused, self._paused_ms = True, self.world.now_ms
            incarnation = self._incarnation
            self.world.clock.call_later(for_ms, lambda: self._resume(incarnation))

    def resume(self) -> None:
        """End the pause now."""
        self._resume(self._incarnation)

    def _resume(self, incarnation: int) -> None:
        if incarnation != self._incarnation or not self.is_paused:
            return
        self.is_paused = False
        world = self.world
        world.append_history(
            history.StallEnded(at_ms=world.now_ms, broker=self.broker_id, began_ms=self._paused_ms)
        )
        deferred, self._deferred_calls = self._deferred_calls, []
        if world.options.brokers > 1 and world.broker_rng.random() < 0.5:
            # timers before events that arrived meanwhile
            deferred.sort(key=itemgetter(0), reverse=True)
        for is_timer, call in deferred:
            self.when_awake(call, is_timer=is_timer)  # one of the calls may pause the process again

    def when_awake(self, call: Callable[[], None], *, is_timer: bool = False) -> None:
        """Call now, or after the pause if the process is paused."""
        if self.is_paused:
            self._deferred_calls.append((is_timer, call))
        else:
            call()

    def process_binder(self) -> Callable[[Callable[[], None]], Callable[[], None]]:
        """Return a decorator for functions that do nothing after the current process has ended."""
        incarnation = self._incarnation

        def bind(call: Callable[[], None]) -> Callable[[], None]:
            return lambda: call() if incarnation == self._incarnation else None

        return bind

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call after a delay, if this process still lives then."""
        bind = self.process_binder()
        wake = bind(lambda: self.when_awake(bind(call), is_timer=True))
        self.world.clock.call_later(delay_ms, wake)

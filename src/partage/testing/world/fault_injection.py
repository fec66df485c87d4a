"""The faults of a world: kills, pauses, cuts, slow networks, and ends of ZooKeeper sessions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import Final, Literal, get_args

from partage.testing.world.brokers import WorldBrokers
from partage.testing.world.event_loop import WorldLoop
from partage.testing.world.fault import Fault, draw_fault
from partage.testing.world.network import WorldNetwork
from partage.testing.world.process import WorldProcess
from partage.testing.world.process_clocks import ProcessClocks
from partage.testing.world.story import Story
from partage.testing.world.zookeeper import ZOOKEEPER, WorldZooKeeper

#: The faults of one connection. Its next request or the next response is lost, and all later bytes,
#: without a reset.
ConnectionFault = Literal["reset", "stall", "lose_request", "lose_response"]
CONNECTION_FAULTS: Final[tuple[ConnectionFault, ...]] = get_args(ConnectionFault)


class FaultInjection(ABC):
    """The part of `PartageWorld` that causes faults.

    Args:
        loop: the loop of the world.
        rng: draws the faults.

    Attributes:
        plan: the faults that `draw_faults` has drawn.
        omitted: faults of the plan that do not happen, by index; for the search of the smallest
            plan.
    """

    _story: Story
    _network: WorldNetwork
    _zookeeper: WorldZooKeeper | None
    _brokers: WorldBrokers

    def __init__(self, loop: WorldLoop, rng: Random) -> None:
        self.plan: list[Fault] = []
        self.omitted: frozenset[int] = frozenset()
        self._loop = loop
        self._fault_rng = rng
        self._starts: dict[str, Callable[[], WorldProcess]] = {}
        self._processes: dict[str, WorldProcess] = {}
        self._process_clocks = ProcessClocks()

    @property
    def broker(self) -> str:
        """The name of the first broker, for `kill`, `pause`, `cut` and `restart`."""
        return self.brokers[0]

    @property
    def brokers(self) -> tuple[str, ...]:
        """The names of all brokers."""
        return self._brokers.names

    @property
    def zookeeper(self) -> str:
        """The name of ZooKeeper, for `cut`.

        Raises:
            RuntimeError: the world has one broker, which needs no ZooKeeper.
        """
        self._servers()
        return ZOOKEEPER

    def _servers(self) -> WorldZooKeeper:
        if self._zookeeper is None:
            raise RuntimeError(
                "a single broker has no ZooKeeper; use @pytest.mark.partage_world(brokers=3)"
            )
        return self._zookeeper

    def is_running(self, name: str) -> bool:
        """Return True if a process is running, paused or not."""
        return name in self._processes and self._processes[name].is_running

    @abstractmethod
    def _start_broker(self, name: str) -> None:
        """Start the process of a broker."""

    @abstractmethod
    def _on_process_end(self, name: str) -> None:
        """Forget what a process knew."""

    def kill(self, name: str) -> None:
        """Kill a process, as SIGKILL does. Its directory, or the broker's disk, stays."""
        process = self._known(name)
        if process.is_running:
            self._story.note(name, "killed", "killed")
            process.kill()
            self._network.reset_connections_of(process)
            self._on_process_end(name)
            self._brokers.lose_power(name)

    def restart(self, name: str) -> None:
        """Start a process again that was killed or has ended."""
        self._known(name)
        if name in self.brokers:
            if not self.is_running(name):
                self._start_broker(name)
        else:
            self._starts[name]()

    def pause(self, name: str, for_s: float) -> None:
        """Stop a process for a time, as SIGSTOP and SIGCONT do.

        Args:
            name: the process.
            for_s: the time in virtual seconds.

        Raises:
            ValueError: there is no such process.
        """
        process = self._known(name)
        if process.is_running and not process.is_paused:
            self._story.note(name, f"paused for {for_s:.1f} s", "paused")
            process.pause()

            def resume() -> None:
                if process.is_paused and not process.is_killed:
                    self._story.note(name, "continued", "continued")
                process.resume()

            self._loop.call_later(for_s, resume)

    def set_wall_clock(self, name: str, ahead_s: float) -> None:
        """Let the wall clock of a process be wrong from now on, also after restarts.

        `time.time` and the clock of a broker then return another time. `time.monotonic` and timers
        do not change, as on a real machine. A broker that starts with a clock that is far ahead
        may expire committed offsets, which breaks the rule ``commit_lost``.

        Args:
            name: the process.
            ahead_s: how far it is ahead of the world's time, in seconds; less than 0 is behind.

        Raises:
            ValueError: there is no such process.
        """
        self._known(name)
        self._story.note(name, f"its wall clock is {ahead_s:+.1f} s off", "fault")
        self._process_clocks.set(name, ahead_s)

    def cut(self, one: str, other: str, for_s: float | None = None) -> None:
        """Hold all bytes between two processes, for a time or until `heal`.

        Args:
            one: a process, or `zookeeper`.
            other: the other process.
            for_s: the time in virtual seconds; by default until `heal`.

        Raises:
            ValueError: there is no such process.
        """
        for name in (one, other):
            if self._zookeeper is None or name != ZOOKEEPER:
                self._known(name)
        self._story.note("world", f"cut {one} from {other}", "fault")
        self._network.cut(one, other)
        if for_s is not None:
            self._loop.call_later(for_s, lambda: self.heal(one, other))

    def fail_connection(
        self, name: str, kind: ConnectionFault, rng: Random, for_s: float = 0.0
    ) -> None:
        """Let one of the connections fail that a process has opened; without any, do nothing.

        Args:
            name: the process.
            kind: the fault.
            rng: draws the connection.
            for_s: the time for which bytes are held (``stall``), in virtual seconds.
        """
        self._known(name)
        found = self._network.connections_of(name)
        if not found:
            return
        connection = rng.choice(found)
        self._story.note("world", f"{kind} of a connection of {name}", "fault")
        match kind:
            case "reset":
                self._network.reset(connection)
            case "stall":
                self._network.stall(connection, for_s)
            case _:
                self._network.kill_silently(connection, at_response=kind == "lose_response")

    def reset_connections(self, name: str) -> None:
        """Reset all connections that a process has opened."""
        self._known(name)
        for connection in self._network.connections_of(name):
            self._network.reset(connection)

    def fail_disk(self, broker: str, operation: str, code: int, for_s: float) -> None:
        """Let the operations of a kind fail on a running broker's disk, until it is killed.

        Args:
            broker: the broker; the world must have been created with ``loses_power=True``.
            operation: ``write``, ``sync`` or ``read``.
            code: the error number.
            for_s: the time in virtual seconds.
        """
        if not self._known(broker).is_running:
            return
        self._story.note("world", f"the disk of {broker} fails: {operation}", "fault")
        self._brokers.fail_disk(broker, operation, code)
        self._loop.call_later(for_s, self._brokers.repair_disks)

    def heal(self, one: str | None = None, other: str | None = None) -> None:
        """End a cut, or all faults.

        Without arguments, all cuts and slow networks end, paused processes continue, and a killed
        brokers restart.

        Args:
            one: a process of the cut.
            other: the other process of the cut.
        """
        if one is not None and other is not None and self._network.is_cut(one, other):
            self._story.note("world", f"the cut between {one} and {other} is healed", "healed")
        self._network.heal(one, other)
        if self._zookeeper is not None:
            self._zookeeper.release_held()
        if one is None:
            self._network.slow_down(None)
            self._network.end_connection_faults()
            self._brokers.repair_disks()
            for process in self._processes.values():
                process.resume()
            for name in self.brokers:
                self._restart_if_down(name)
            self._story.note("world", "all faults are healed", "healed")

    def expire_session(self, broker: str) -> None:
        """Let ZooKeeper expire the session of a broker now; the broker learns it soon.

        A broker that is paused or cut off from ZooKeeper could not learn it before its lease ends.
        ZooKeeper would not expire its session before either, so nothing happens.

        Args:
            broker: the name of the broker.

        Raises:
            RuntimeError: the world has one broker, which needs no ZooKeeper.
            ValueError: there is no such process.
        """
        process, servers = self._known(broker), self._servers()
        if not process.is_paused and not self._network.is_cut(broker, ZOOKEEPER):
            servers.expire_sessions(broker)

    def draw_faults(self, count: int, *, within_s: float, targets: list[str] | None = None) -> None:
        """Draw faults from the seed, and let them happen in the next ``within_s``.

        Killed processes are restarted after the drawn duration.

        Args:
            count: the number of faults.
            within_s: the time in which they begin, in virtual seconds.
            targets: the processes; by default all that run now, and the brokers.

        Raises:
            ValueError: a target is not the name of a process that was started.
        """
        names = sorted(targets or self._processes)
        for name in names:
            self._known(name)
        peers = names if self._zookeeper is None else [*names, ZOOKEEPER]
        rng = self._fault_rng
        for _ in range(count):
            target = rng.choice(names)
            is_broker = target in self.brokers
            if is_broker:
                other = rng.choice(peers)
            elif self._zookeeper is None:
                other = self.broker
            else:
                other = rng.choice(self.brokers)
            has_session = is_broker and self._zookeeper is not None
            fault = draw_fault(
                rng, self._loop.elapsed_s, within_s, target, other, has_session=has_session
            )
            self.plan.append(fault)
            if len(self.plan) - 1 not in self.omitted:
                delay_s = fault.at_s - self._loop.elapsed_s
                self._loop.call_later(delay_s, self._strike, fault)

    def _strike(self, fault: Fault) -> None:
        name = fault.target
        match fault.kind:
            case "kill":
                if self.is_running(name):
                    self.kill(name)
                    self._loop.call_later(fault.for_s, lambda: self._restart_if_down(name))
            case "pause":
                self.pause(name, fault.for_s)
            case "cut":
                if name != fault.other:
                    self.cut(name, fault.other, fault.for_s)
            case "expire":
                self.expire_session(name)
            case "slow":
                self.slow_network(fault.for_s)

    def slow_network(self, for_s: float) -> None:
        """Delay all bytes by up to half a second.

        Args:
            for_s: the time in virtual seconds.
        """
        self._story.note("world", f"slow network for {for_s:.1f} s", "fault")
        self._network.slow_down(0.5)
        self._loop.call_later(for_s, self._end_slow_network)

    def _end_slow_network(self) -> None:
        self._story.note("world", "the network is normal again", "healed")
        self._network.slow_down(None)

    def _restart_if_down(self, name: str) -> None:
        if not self.is_running(name):
            self.restart(name)

    def _known(self, name: str) -> WorldProcess:
        if name not in self._processes:
            known = ", ".join(sorted(self._processes))
            raise ValueError(f"there is no process {name!r}; the processes are {known}")
        return self._processes[name]

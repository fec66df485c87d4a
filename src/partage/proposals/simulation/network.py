"""The simulated network: messages of a connection arrive in order, after a delay, or never."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from partage.lab.environment.clock import Clock
from partage.proposals.machine import ConnectionId
from partage.wire.types import Message


class Link:
    """A connection between a member and the coordinator.

    A shell sets ``to_member`` and ``to_coordinator``, which get a message, or None when the
    connection is lost.
    """

    def __init__(self, network: DesignNetwork, number: ConnectionId, member: str) -> None:
        self.number = number
        self.member = member
        self.is_open = True
        self.to_member: Callable[[Message | None], None]
        self.to_coordinator: Callable[[Message | None], None]
        self._network = network
        self._up_ms = 0  # when the last message to the coordinator arrives
        self._down_ms = 0

    def send_up(self, message: Message | None) -> None:
        """Send a message to the coordinator, or close the connection from the member."""
        if self.is_open:
            self._up_ms = self._network.arrival_ms(self.member, self._up_ms)
            self._deliver(self._up_ms, lambda: self.to_coordinator(message), message is None)

    def send_down(self, message: Message | None) -> None:
        """Send a message to the member, or close the connection from the coordinator."""
        if self.is_open:
            self._down_ms = self._network.arrival_ms(self.member, self._down_ms)
            self._deliver(self._down_ms, lambda: self.to_member(message), message is None)

    def _deliver(self, at_ms: int, call: Callable[[], None], is_end: bool) -> None:
        clock = self._network.clock

        def arrive() -> None:
            if self.is_open:
                if is_end:
                    self.is_open = False
                call()

        clock.call_later(max(0, at_ms - clock.now_ms), arrive)

    def break_off(self) -> None:
        """Lose the messages under way. Both sides notice it after a delay."""
        if self.is_open:
            self.is_open = False
            for notify in (self.to_member, self.to_coordinator):
                at_ms = self._network.arrival_ms(self.member, 0)
                delay_ms = at_ms - self._network.clock.now_ms
                self._network.clock.call_later(delay_ms, partial(notify, None))

    def drop_silently(self) -> None:
        """Stop delivering without notice, as after the failure of a machine."""
        self.is_open = False


class DesignNetwork:
    """The delays and cuts of all connections."""

    def __init__(self, clock: Clock, rng: Random, delay_max_ms: int) -> None:
        self.clock = clock
        self.delay_max_ms = delay_max_ms
        self._rng = rng
        self._count = 0
        self._cut_until_ms: dict[str, int] = {}
        self._slow: dict[str, tuple[int, int]] = {}  # member -> end and delay of its messages

    def open(self, member: str) -> Link:
        """Return a new connection of a member."""
        self._count += 1
        return Link(self, ConnectionId(self._count), member)

    def delay_ms(self) -> int:
        """Return a random delay."""
        count = self.delay_max_ms
        if count <= 1:
            return 1
        # The draws of `Random.randint`, without its checks: each message needs one.
        bits = count.bit_length()
        while (drawn := self._rng.getrandbits(bits)) >= count:
            pass
        return 1 + drawn

    def cut(self, member: str, for_ms: int) -> None:
        """Delay all messages of a member for a time."""
        self._cut_until_ms[member] = self.clock.now_ms + for_ms

    def slow_down(self, member: str, delay_ms: int, for_ms: int) -> None:
        """Add a delay to each message of a member, in both directions, for a time."""
        self._slow[member] = self.clock.now_ms + for_ms, delay_ms

    def is_cut(self, member: str) -> bool:
        """Return True if messages of the member wait for the end of a cut."""
        return self._cut_until_ms.get(member, 0) > self.clock.now_ms

    def heal(self) -> None:
        """End all cuts and delays. Messages that wait already keep their arrival times."""
        self._cut_until_ms.clear()
        self._slow.clear()

    def arrival_ms(self, member: str, after_ms: int) -> int:
        """Return when a message of a member arrives, not before ``after_ms``."""
        sent_ms = max(self.clock.now_ms, self._cut_until_ms.get(member, 0))
        end_ms, slow_ms = self._slow.get(member, (0, 0))
        extra_ms = slow_ms if self.clock.now_ms < end_ms else 0
        return max(after_ms, sent_ms + self.delay_ms() + extra_ms)

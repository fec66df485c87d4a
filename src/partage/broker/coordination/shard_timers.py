"""Timers of a shard on the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from partage.broker.clock import Clock
from partage.broker.coordination.state_store import StateStore
from partage.broker.net.turn_limiter import TurnLimiter
from partage.runtime.shard_driver import ShardDriver
from partage.runtime.timer_scheduler import TimerScheduler

log = logging.getLogger(__name__)

_TIMERS_PER_TURN: Final = 256


class ShardTimers:
    """The shell of a `TimerScheduler`; calls ``settle`` after each change.

    Requests that wait in ``turns`` are input that has arrived: they are handled before a timer
    fires.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        store: StateStore,
        driver: ShardDriver[Any, Any, Any],
        failed: Callable[[Exception], None],
        settle: Callable[[], None],
        turns: TurnLimiter | None = None,
    ) -> None:
        self._name = name
        self._clock = clock
        self._store = store
        self._driver = driver
        self._failed = failed
        self._flush = settle
        self._turns = turns
        self._loop = asyncio.get_running_loop()
        self._scheduler = TimerScheduler(self)

    def schedule(self) -> None:
        """Schedule the driver's next deadline."""
        timers = self._driver.timers
        timers.is_wake_changed = False
        self._scheduler.schedule(timers.wake_at_ms())

    def cancel(self) -> None:
        """Cancel the scheduled deadline."""
        self._scheduler.cancel()

    # Implementation of `partage.runtime.timer_scheduler.TimerShell`.

    def now_ms(self) -> int:
        """Return the time in milliseconds since the epoch."""
        return self._clock.now_ms()

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call a function after a delay."""
        self._loop.call_later(delay_ms / 1000, call)

    def call_after_input(self, call: Callable[[], None]) -> None:
        """Call a function after pending input: the next turn reads it, the one after that has
        handled it.
        """
        if self._turns is None:
            self._loop.call_soon(self._loop.call_soon, call)
        else:
            self._loop.call_soon(self._loop.call_soon, self._turns.call_after_waiting, call)

    def may_fire(self) -> bool:
        """False while another broker may own the shard."""
        return self._store.may_answer()

    def fire_timers(self, now_ms: int, until_ms: int) -> None:
        """Fire due timers, at most as many as fit into one turn of the loop."""
        try:
            self._driver.fire_due(now_ms, _TIMERS_PER_TURN, until_ms)
        except Exception as error:  # a bug; the shard is reloaded
            log.exception("timer handler of %s failed", self._name)
            self._failed(error)
        self._flush()
        self.schedule()

    def on_stall(self, stood_ms: int) -> None:
        """Log a stall: timers were suspended while requests could not be received or answered."""
        log.info("%s was stalled or without a valid lease for %d ms", self._name, stood_ms)
        self._flush()
        self.schedule()

"""The environment of the brokers of a world: its clock, ids from its seed, and what they log."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import Final

from partage.broker.clock import Clock
from partage.broker.ids import IdSource
from partage.lab.context import WorldContext
from partage.lab.environment.disk import PowerLossError
from partage.lab.history import RuleViolationError
from partage.log.errors import DamagedLogError


class WorldClock(Clock):
    """The clocks of a broker's process: the virtual time, and the wall clock of its machine.

    Like that of a real process, `now_ms` reads the wall clock once at the start. Later steps of the
    wall clock change only `wall_ms`.

    Args:
        world: The world.
        wall_difference_ms: Returns the wall clock of the machine minus the virtual time.
    """

    def __init__(self, world: WorldContext, wall_difference_ms: Callable[[], int]) -> None:
        super().__init__()
        self._world = world
        self._wall_difference_ms = wall_difference_ms
        #: The time of events minus the virtual time.
        self.difference_ms = wall_difference_ms()

    def now_ms(self) -> int:
        """Return the virtual time, plus the difference of the wall clock at the start."""
        return self._world.now_ms + self.difference_ms

    def wall_ms(self) -> int:
        """Return the time of the machine's wall clock."""
        return self._world.now_ms + self._wall_difference_ms()

    def boot_ms(self) -> int:
        """Return the virtual time."""
        return self._world.now_ms


class HistoryClock(Clock):
    """The virtual time, for the entries of the history. All clocks of it agree."""

    def __init__(self, world: WorldContext) -> None:
        super().__init__()
        self._world = world

    def now_ms(self) -> int:
        """Return the virtual time."""
        return self._world.now_ms

    wall_ms = boot_ms = now_ms


class WorldIds(IdSource):
    """Ids from the seed of a world."""

    def __init__(self, world: WorldContext) -> None:
        self._world = world

    def random_bytes(self, size: int) -> bytes:
        """Return bytes that the world has drawn."""
        return self._world.id_rng.randbytes(size)

    def fresh_uuid(self) -> uuid.UUID:
        """Return a drawn UUID, or the id that the world wants for a topic."""
        return uuid.UUID(bytes=self._world.forced_topic_id or self.random_bytes(16))


class _Current:
    """The world whose broker runs at this moment; None outside of brokers."""

    world: WorldContext | None = None


def run_in_world(world: WorldContext, call: Callable[[], object]) -> None:
    """Run code of a broker in a world.

    The log handler is there only meanwhile. With any handler, Python no longer prints the errors of
    an application that configures no logging. `addHandler` would need more time than many calls.
    """
    before, _Current.world = _Current.world, world
    if before is None:
        _LOG.handlers.append(_FAILURES)
    try:
        call()
    finally:
        _Current.world = before
        if before is None:
            _LOG.handlers.remove(_FAILURES)


class _FailureHandler(logging.Handler):
    """Raises the exceptions that the broker of a world logs: they are bugs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)

    def emit(self, record: logging.LogRecord) -> None:
        """Raise the exception of a record, or a violation if it reports damage without a cause.

        The world keeps the exception, because it may end only a task that no code awaits.
        """
        if _Current.world is None:
            return
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            if isinstance(error, Exception) and not isinstance(error, PowerLossError):
                found = _Current.world.history
                found.failure = found.failure or error
            raise error
        for value in record.args if isinstance(record.args, tuple) else ():
            if isinstance(value, DamagedLogError):
                _on_damage(_Current.world, record, value)


def _on_damage(world: WorldContext, record: logging.LogRecord, error: DamagedLogError) -> None:
    if not world.was_damaged:
        raise RuleViolationError("recovery", f"damage was reported, but none was injected: {error}")
    if str(record.msg).startswith("loading of"):  # as an operator would repair it
        world.repair_damage(error)


_LOG: Final = logging.getLogger("partage")
_FAILURES: Final = _FailureHandler()

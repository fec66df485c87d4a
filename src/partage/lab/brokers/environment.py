"""The environment of the brokers of a world: its clock, ids from its seed, and what they log.

The modules of `partage.broker` that read clocks or draw ids get stand-ins. These return what the
world says whose broker runs at this moment, and otherwise what the originals return.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable
from typing import Any, Final

from partage.broker import clock, ids
from partage.broker.cluster import (
    cluster_membership,
    cluster_topic_admin,
    directory_identity,
    lease_renewal,
)
from partage.lab.context import WorldContext
from partage.lab.history import RuleViolationError
from partage.log.errors import DamagedLogError


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


class _Time:
    """The functions of the module `time` that brokers use."""

    @staticmethod
    def time_ns() -> int:
        world = _Current.world
        return time.time_ns() if world is None else world.now_ms * 1_000_000

    @staticmethod
    def monotonic_ns() -> int:
        world = _Current.world
        return time.monotonic_ns() if world is None else world.now_ms * 1_000_000

    @staticmethod
    def clock_gettime_ns(clock_id: int) -> int:
        world = _Current.world
        return time.clock_gettime_ns(clock_id) if world is None else world.now_ms * 1_000_000

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class _Uuid:
    """The functions of the module `uuid` that brokers use."""

    @staticmethod
    def uuid4() -> uuid.UUID:
        world = _Current.world
        if world is None:
            return uuid.uuid4()
        return uuid.UUID(bytes=world.forced_topic_id or world.id_rng.randbytes(16))


class _Os:
    """The functions of the module `os` that draw ids."""

    @staticmethod
    def urandom(size: int) -> bytes:
        world = _Current.world
        return os.urandom(size) if world is None else world.id_rng.randbytes(size)


def _install() -> None:
    """Give the stand-ins to the modules."""
    stand_ins: list[tuple[Any, str, object]] = [
        (clock, "time", _Time()),
        (cluster_membership, "time", _Time()),
        (lease_renewal, "time", _Time()),
        (ids, "uuid", _Uuid()),
        (cluster_membership, "uuid", _Uuid()),
        (cluster_topic_admin, "uuid", _Uuid()),
        (directory_identity, "uuid", _Uuid()),
        (ids, "os", _Os()),
    ]
    for module, name, stand_in in stand_ins:
        setattr(module, name, stand_in)


class _FailureHandler(logging.Handler):
    """Raises the exceptions that the broker of a world logs: they are bugs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)

    def emit(self, record: logging.LogRecord) -> None:
        """Raise the exception of a record, or a violation if it reports damage without a cause."""
        if _Current.world is None:
            return
        if record.exc_info and record.exc_info[1] is not None:
            raise record.exc_info[1]
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
_install()

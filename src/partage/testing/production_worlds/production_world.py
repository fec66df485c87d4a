"""A world of `partage.lab` with production brokers, and how it runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from types import SimpleNamespace
from typing import Any, Final, cast
from unittest.mock import patch

from partage.broker import clock, ids
from partage.broker.cluster import (
    cluster_membership,
    cluster_topic_admin,
    directory_identity,
    lease_renewal,
)
from partage.lab.brokers.broker import Broker
from partage.lab.world import World
from partage.testing.production_worlds.production_broker import ProductionBroker

_START_MS: Final = 300_000
_START_STEP_MS: Final = 10


class ProductionWorld(World):
    """A world whose brokers are production brokers."""

    def make_broker(self, broker_id: int) -> Broker:
        """Return a production broker."""
        return cast(Any, ProductionBroker(self, broker_id))

    def start_brokers(self) -> None:
        """Start all brokers, and wait until they accept connections."""
        super().start_brokers()
        for _ in range(0, _START_MS, _START_STEP_MS):
            if all(broker.is_up for broker in self.brokers):
                return
            self.clock.run(_START_STEP_MS)
        raise AssertionError("a broker does not start")


@contextmanager
def production_environment(world: World) -> Iterator[None]:
    """Let production brokers read the clock of a world, and draw ids from its seed."""
    rng = Random(f"ids {world.scenario.seed}")

    def now_ns() -> int:
        return world.now_ms * 1_000_000

    class Uuid:
        @property
        def bytes(self) -> bytes:
            return rng.randbytes(16)

        @property
        def hex(self) -> str:
            return rng.randbytes(16).hex()

    uuid = SimpleNamespace(uuid4=Uuid)
    fake_time = SimpleNamespace(
        time_ns=now_ns,
        monotonic_ns=now_ns,
        monotonic=time.monotonic,
        clock_gettime_ns=lambda clock: now_ns(),
        CLOCK_MONOTONIC=time.CLOCK_MONOTONIC,
    )
    with ExitStack() as stack:
        for module in (clock, cluster_membership, lease_renewal):
            stack.enter_context(patch.object(module, "time", fake_time))
        for module in (ids, cluster_membership, cluster_topic_admin, directory_identity):
            stack.enter_context(patch.object(module, "uuid", uuid))
        stack.enter_context(patch.object(ids, "os", SimpleNamespace(urandom=rng.randbytes)))
        handler = _FailureHandler()
        logger = logging.getLogger("partage")
        logger.addHandler(handler)
        stack.callback(logger.removeHandler, handler)
        yield


class _FailureHandler(logging.Handler):
    """Raises the exceptions that a broker logs: they are bugs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)

    def emit(self, record: logging.LogRecord) -> None:
        """Raise the exception of a record."""
        if record.exc_info and record.exc_info[1] is not None:
            raise record.exc_info[1]

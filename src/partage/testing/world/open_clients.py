"""Clients of aiokafka that a world has left open after faults or a failure.

Their finalizers warn whenever they are collected, such as in a later test.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, Final

from partage.testing.world.event_loop import WorldLoop

_CLASSES: Final = (
    ("aiokafka.conn", "AIOKafkaConnection"),
    ("aiokafka.consumer.consumer", "AIOKafkaConsumer"),
    ("aiokafka.producer.producer", "AIOKafkaProducer"),
)


def accept_open_clients(loop: WorldLoop) -> None:
    """Let the clients of a world be collected without warnings; those of other loops still warn."""
    loop.leaves_clients_open = True
    for module, name in _CLASSES:
        client = getattr(sys.modules.get(module), name, None)
        if hasattr(client, "__del__"):
            _wrap_finalizer(client)


@lru_cache
def _wrap_finalizer(client: type[Any]) -> None:
    client.__del__ = _unless_accepted(client.__del__)


def _unless_accepted(finalizer: Callable[[Any], None]) -> Callable[[Any], None]:
    @wraps(finalizer)
    def finalize(client: Any) -> None:
        if not getattr(getattr(client, "_loop", None), "leaves_clients_open", False):
            finalizer(client)

    return finalize

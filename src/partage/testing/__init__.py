"""Brokers for tests, simulated worlds, and the pytest plugin.

Everything here is imported on first use: pytest imports this package in every test run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from partage.testing.broker import ThreadedBroker
    from partage.testing.faults import Faults
    from partage.testing.process import BrokerProcess
    from partage.testing.request_interceptor import HeldResponse, UnusedFaultError
    from partage.testing.world.world import PartageWorld

__all__ = [
    "BrokerProcess",
    "Faults",
    "HeldResponse",
    "PartageWorld",
    "ThreadedBroker",
    "UnusedFaultError",
]

_LAZY_EXPORTS = {
    "BrokerProcess": "partage.testing.process",
    "Faults": "partage.testing.faults",
    "HeldResponse": "partage.testing.request_interceptor",
    "PartageWorld": "partage.testing.world.world",
    "ThreadedBroker": "partage.testing.broker",
    "UnusedFaultError": "partage.testing.request_interceptor",
}


def __getattr__(name: str) -> object:  # PEP 562
    if name in _LAZY_EXPORTS:
        found: object = getattr(import_module(_LAZY_EXPORTS[name]), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

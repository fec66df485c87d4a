"""Consumer groups for Python and Spark over Kafka's protocol."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from partage.client.consumer import Consumer

__version__ = "0.1.0"

__all__ = ["Consumer", "__version__"]


def __getattr__(name: str) -> object:
    # Imported when it is used, so that `import partage` stays light (PEP 562).
    if name == "Consumer":
        consumer: object = import_module("partage.client.consumer").Consumer
        return consumer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

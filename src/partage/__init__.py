"""Consumer groups for Python and Spark over Kafka's protocol."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from partage.client.consumer import Consumer
    from partage.client.membership import Membership

__version__ = "0.1.0"

__all__ = ["Consumer", "Membership", "__version__"]

_LAZY_EXPORTS = {
    "Consumer": "partage.client.consumer",
    "Membership": "partage.client.membership",
}


def __getattr__(name: str) -> object:
    # Imported on first use, so that `import partage` stays light (PEP 562).
    if name in _LAZY_EXPORTS:
        found: object = getattr(import_module(_LAZY_EXPORTS[name]), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

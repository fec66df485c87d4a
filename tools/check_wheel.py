"""Check an installed wheel: it has the compiled modules, and the public modules import.

python tools/check_wheel.py [--decoder-only]
"""

from __future__ import annotations

import importlib
import sys

MODULES = (
    "partage",
    "partage.sync",
    "partage.errors",
    "partage.assignors",
    "partage.recipes",
    "partage.recipes.search",
    "partage.recipes.sync",
    "partage.testing",
)


def main() -> None:
    """Exit with a message if the wheel is incomplete."""
    if "--decoder-only" not in sys.argv:
        for module in MODULES:
            importlib.import_module(module)
    try:
        for compiled in ("_native", "_checksum"):
            importlib.import_module(f"partage.wire.records.{compiled}")
    except ImportError as error:
        sys.exit(f"the wheel lacks a compiled module: {error}")
    print("the wheel is complete")


if __name__ == "__main__":
    main()

"""Check an installed wheel: the compiled decoder is used, and the public modules import.

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
        importlib.import_module("partage.wire.records._native")
    except ImportError as error:
        sys.exit(f"the wheel has no compiled decoder: {error}")
    print("the wheel is complete")


if __name__ == "__main__":
    main()

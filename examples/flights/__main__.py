"""``python -m examples.flights``."""

from __future__ import annotations

from examples.flights.app import main

if __name__ == "__main__":
    main()

"""Lines on stderr that show which step of a benchmark is running."""

from __future__ import annotations

import sys
import time


def step(text: str) -> None:
    """Print the step that begins now, after the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

"""Long work of a request, in several turns of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice


def run_in_turns(steps: Iterator[None], steps_per_turn: int) -> None:
    """Run a generator to its end, so that other requests are handled meanwhile.

    The first turn runs at once: work of a few steps is done when this function returns.

    Args:
        steps: The work; it yields after each step.
        steps_per_turn: The number of steps in one turn of the loop.
    """
    if sum(1 for _ in islice(steps, steps_per_turn)) == steps_per_turn:
        asyncio.get_running_loop().call_soon(run_in_turns, steps, steps_per_turn)

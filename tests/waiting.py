"""Waiting for what another process or thread does, in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 60.0
#: Between two looks. Nothing can wake the test: what it waits for is seen by looking only.
_LOOK_S = 0.01


def eventually(what: Callable[[], object], story: Callable[[], str] = str) -> None:
    """Look until it is so; fail with ``story()`` if it is not after a minute."""
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, story()
        time.sleep(_LOOK_S)

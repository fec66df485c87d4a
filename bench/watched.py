"""``partage`` with somebody who watches its event loop: how long does one callback hold it?

A thread looks every few milliseconds which callback the loop is in. One that is still there has
held the loop since it was first seen; the longest are told at the end, one JSON line on stderr
each, with where they were. Clients that wait behind many others are another matter: see
`bench.probing`.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
import traceback
from types import FrameType

from partage.console import main

_EVERY_S = 0.002
_WORTH_TELLING_S = 0.010
_TOLD_MAX = 20


def outermost(frame: FrameType | None) -> FrameType | None:
    """The frame that the loop itself called; None while it waits or has not begun."""
    inner = None
    while frame is not None:
        if frame.f_code.co_name == "run" and frame.f_code.co_filename.endswith("runners.py"):
            return inner
        inner, frame = frame, frame.f_back
    return None


def watch(main_id: int, holds: list[tuple[float, str]], stopping: threading.Event) -> None:
    """Gather the longest holds."""
    current: FrameType | None = None
    since = last = 0.0
    where = ""
    while not stopping.wait(_EVERY_S):
        frame = sys._current_frames().get(main_id)
        callback = outermost(frame)
        now = time.perf_counter()
        if callback is current and callback is not None:
            last, where = now, "".join(traceback.format_stack(frame, limit=4))
        else:
            if current is not None and last - since > _WORTH_TELLING_S:
                holds.append((last - since, where))
            current, since, last = callback, now, now


class Collections:
    """How long the garbage collector takes; a hook of `gc.callbacks`."""

    def __init__(self, holds: list[tuple[float, str]]) -> None:
        self._holds = holds
        self._began = 0.0

    def __call__(self, phase: str, told: dict[str, int]) -> None:
        now = time.perf_counter()
        if phase == "start":
            self._began = now
        elif now - self._began > _WORTH_TELLING_S:
            self._holds.append(
                (now - self._began, f"garbage collection, generation {told['generation']}")
            )


def run() -> None:
    """Run the command, watched; the watcher has its say whatever the end is."""
    holds: list[tuple[float, str]] = []
    stopping = threading.Event()
    watcher = threading.Thread(target=watch, args=(threading.get_ident(), holds, stopping))
    watcher.daemon = True
    gc.callbacks.append(Collections(holds))
    watcher.start()
    try:
        main()
    finally:
        stopping.set()
        watcher.join()
        for held_s, where in sorted(holds, reverse=True)[:_TOLD_MAX]:
            print(json.dumps({"held_s": held_s, "where": where}), file=sys.stderr)


if __name__ == "__main__":
    run()

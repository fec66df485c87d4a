"""``partage`` with a monitor of its event loop, which finds the longest callbacks.

A thread samples every few milliseconds which callback the event loop runs. A callback that is still
running at the next sample has blocked the loop since it was first seen. At the end, the longest
callbacks are written to stderr, one JSON line each, with their stacks and begins. The wait of a
client behind many other clients is a different measurement: see `bench.prober`.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
import traceback
from types import FrameType
from typing import NamedTuple

from partage.console import main

_EVERY_S = 0.002
_REPORTED_MIN_S = 0.010
_REPORTED_MAX = 1_000


class Callback(NamedTuple):
    """A long callback: its duration, its stack, its begin by `time.perf_counter`, and the CPU time
    of its thread.
    """

    duration_s: float
    where: str
    began_s: float
    cpu_s: float


def outermost(frame: FrameType | None) -> FrameType | None:
    """Return the frame that the event loop called; None while the loop waits or has not begun."""
    inner = None
    while frame is not None:
        if frame.f_code.co_name == "run" and frame.f_code.co_filename.endswith("runners.py"):
            return inner
        inner, frame = frame, frame.f_back
    return None


def watch(main_id: int, callbacks: list[Callback], stopping: threading.Event) -> None:
    """Collect the longest callbacks."""
    cpu_clock = time.pthread_getcpuclockid(main_id)
    current: FrameType | None = None
    since = last = cpu_since = cpu_last = 0.0
    where = ""
    while not stopping.wait(_EVERY_S):
        frame = sys._current_frames().get(main_id)
        callback = outermost(frame)
        now, cpu = time.perf_counter(), time.clock_gettime(cpu_clock)
        if callback is current and callback is not None:
            last, cpu_last, where = now, cpu, "".join(traceback.format_stack(frame, limit=4))
        else:
            if current is not None and last - since > _REPORTED_MIN_S:
                callbacks.append(Callback(last - since, where, since, cpu_last - cpu_since))
            current, since, last = callback, now, now
            cpu_since = cpu_last = cpu


class CollectorMonitor:
    """A hook of `gc.callbacks` that measures the garbage collector."""

    def __init__(self, callbacks: list[Callback]) -> None:
        self._callbacks = callbacks
        self._began = self._cpu_began = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        now, cpu = time.perf_counter(), time.thread_time()
        if phase == "start":
            self._began, self._cpu_began = now, cpu
        elif now - self._began > _REPORTED_MIN_S:
            where = f"garbage collection, generation {info['generation']}"
            took_s, cpu_s = now - self._began, cpu - self._cpu_began
            self._callbacks.append(Callback(took_s, where, self._began, cpu_s))


def run() -> None:
    """Run the command under the monitor; report the callbacks however it ends."""
    callbacks: list[Callback] = []
    stopping = threading.Event()
    watcher = threading.Thread(target=watch, args=(threading.get_ident(), callbacks, stopping))
    watcher.daemon = True
    gc.callbacks.append(CollectorMonitor(callbacks))
    watcher.start()
    try:
        main()
    finally:
        stopping.set()
        watcher.join()
        for callback in sorted(callbacks, reverse=True)[:_REPORTED_MAX]:
            print(json.dumps(callback._asdict()), file=sys.stderr)


if __name__ == "__main__":
    run()

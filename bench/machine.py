"""Description of the machine under the figures, and its load."""

from __future__ import annotations

import os
import platform
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil

#: The cores of the broker and of the load generator, different if the machine has two.
BROKER_CORE, LOAD_CORE = (*sorted(os.sched_getaffinity(0)), *sorted(os.sched_getaffinity(0)))[:2]

#: A directory in memory, for benchmarks that do not measure the disk.
MEMORY = next(path for path in (Path("/dev/shm"), Path(tempfile.gettempdir())) if path.is_dir())
SCRATCH = Path(os.environ.get("PARTAGE_BENCH_DIR", tempfile.gettempdir()))


class SyncTime(NamedTuple):
    """The time that the disk needs to make 4 KB durable, in ms."""

    median_ms: float
    p99_ms: float

    def __str__(self) -> str:
        return f"fdatasync of 4 KB: median {self.median_ms:.2f} ms, p99 {self.p99_ms:.1f} ms"


def fdatasync_time(count: int = 200) -> SyncTime:
    """Measure the disk: append 4 KB to a file and sync it, ``count`` times."""
    times = []
    with tempfile.TemporaryFile(dir=SCRATCH) as file:
        for position in range(count):
            os.pwrite(file.fileno(), bytes(4096), position * 4096)
            before = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - before) * 1e3)
    return SyncTime(statistics.median(times), statistics.quantiles(times, n=100)[98])


def warm_page_cache(size: int) -> None:
    """Fill that many bytes of the page cache, and free them.

    A virtual machine may get memory from its host only when it writes to a page, and return it when
    it is free. Writing to such a page takes ten times as long. So without this, the broker that
    writes to pages that another one has just freed would look faster.
    """
    block = bytes(1 << 20)
    with tempfile.TemporaryFile(dir=SCRATCH) as file:
        for _ in range(0, size, len(block)):
            file.write(block)


def interpreter_time(rounds: int = 5) -> float:
    """Return the seconds that a loop of 2,000,000 steps takes in Python: the best of some rounds.

    It shows how much of a difference between two machines is that of their speed.
    """
    times_s = []
    for _ in range(rounds):
        begun, total = time.perf_counter(), 0
        for number in range(2_000_000):
            total += number & 7
        times_s.append(time.perf_counter() - begun)
    return min(times_s)


def describe() -> str:
    """Return the machine in one line."""
    memory_gb = psutil.virtual_memory().total / 2**30
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return (
        f"{_cpu_model()}, {len(os.sched_getaffinity(0))} cores, {memory_gb:.0f} GB, "
        f"Linux {platform.release()}, Python {platform.python_version()}, "
        f"{descriptors:,} file descriptors"
    )


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


class MachineLoad:
    """The load of the whole machine since this object was created."""

    def __init__(self) -> None:
        self._before = psutil.cpu_times()

    def __str__(self) -> str:
        now, before = psutil.cpu_times(), self._before
        spent = {name: getattr(now, name) - getattr(before, name) for name in now._fields}
        total = sum(spent[n] for n in ("user", "nice", "system", "idle", "iowait", "steal"))
        used = 1 - (spent["idle"] + spent["iowait"]) / total if total else 0.0
        load = os.getloadavg()[0]
        return (
            f"load average {load:.1f}, cores busy {used:.0%}, stolen {spent['steal'] / total:.0%}"
        )

"""Estimates of the memory and time that cells need, and the memory and load of this machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from partage.proposals.comparison.cell import Workload

# Measured with all designs on one core; the largest of them counts.
_CPU_S_PER_MEMBER: Final = 0.024
_CPU_S_PER_SQUARED_MEMBER: Final = 1e-6
_CPU_S_PER_PARTITION: Final = 4e-4
_CPU_S_PER_SUBSCRIPTION: Final = 2.5e-5
_PROCESS_BYTES: Final = 60_000_000
_MEMBER_BYTES: Final = 50_000
_PARTITION_BYTES: Final = 4_000
#: For each topic of each member.
_SUBSCRIPTION_BYTES: Final = 700
#: A simulated group holds its metadata in members, in the coordinator and in messages.
_METADATA_COPIES: Final = 8
#: The phases of the cells that were measured, with "form".
_PHASES: Final = 10


def estimate_cpu_s(cell: Workload) -> float:
    """Return about how many seconds of CPU time a cell takes."""
    members = cell.members + cell.joining
    share = (1 + len(cell.phases)) / _PHASES
    return share * (
        _CPU_S_PER_MEMBER * members
        + _CPU_S_PER_SQUARED_MEMBER * members**2
        + _CPU_S_PER_PARTITION * cell.partition_count
        + _CPU_S_PER_SUBSCRIPTION * _subscriptions(cell)
    )


def estimate_memory_bytes(cell: Workload) -> int:
    """Return about how many bytes of memory the process of a cell takes."""
    members = cell.members + cell.joining
    metadata_bytes = int(members * cell.metadata_kb * 1000)
    return (
        _PROCESS_BYTES
        + _MEMBER_BYTES * members
        + _PARTITION_BYTES * cell.partition_count
        + _SUBSCRIPTION_BYTES * _subscriptions(cell)
        + _METADATA_COPIES * metadata_bytes
    )


def _subscriptions(cell: Workload) -> int:
    """Return the topics of all members together."""
    return (cell.members + cell.joining) * (cell.subscribed_topics or cell.topics)


def estimate_duration_s(cells: Sequence[Workload], jobs: int) -> float:
    """Return about how many seconds some cells take.

    Args:
        cells: The cells.
        jobs: The number of processes that have a CPU each.
    """
    seconds = [estimate_cpu_s(cell) for cell in cells]
    return max(sum(seconds) / jobs, max(seconds, default=0))


def check_memory(cells: Sequence[Workload], jobs: int, available_bytes: int) -> None:
    """Check that the memory suffices for the largest cells at the same time.

    Raises:
        ValueError: It does not; the message says what to change.
    """
    largest = sorted(cells, key=estimate_memory_bytes, reverse=True)[:jobs]
    sizes = [estimate_memory_bytes(cell) for cell in largest]
    if sum(sizes) <= available_bytes:
        return
    cell, available = largest[0], f"{available_bytes / 1e9:,.1f} GB of memory are available"
    if sizes[0] > available_bytes:
        raise ValueError(
            f"a cell with {cell.members:,} members, {cell.partition_count:,} partitions in "
            f"{cell.topics:,} topics and {cell.metadata_kb:g} KB of metadata needs about "
            f"{sizes[0] / 1e9:,.1f} GB, but {available}: use fewer members, partitions or topics, "
            "or less metadata"
        )
    fitting = max(n for n in range(1, len(sizes)) if sum(sizes[:n]) <= available_bytes)
    raise ValueError(
        f"{len(sizes)} cells at a time need about {sum(sizes) / 1e9:,.1f} GB, but {available}: "
        f"use --jobs {fitting}, or smaller cells"
    )


def describe_machine() -> str:
    """Return the processor, its number of CPUs, the version of Python, and the current load."""
    load = f"load average {os.getloadavg()[0]:.1f}"
    return ", ".join(
        (_processor_name(), f"{os.cpu_count()} CPUs", f"Python {platform.python_version()}", load)
    )


def _processor_name() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def available_memory_bytes() -> int | None:
    """Return the memory that this process may still use; None if it is unknown."""
    limits = [_system_memory_bytes(), _container_memory_bytes(Path("/sys/fs/cgroup"))]
    return min((each for each in limits if each is not None), default=None)


def _system_memory_bytes() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", ()):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _container_memory_bytes(group: Path) -> int | None:
    """Return what is left of the memory limit of a container (control groups, version 2)."""
    try:
        limit, used = ((group / f"memory.{each}").read_text() for each in ("max", "current"))
        return max(0, int(limit) - int(used))
    except (OSError, ValueError):  # no control group, or no limit ("max")
        return None

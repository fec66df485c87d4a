"""Runs the cells of a grid in several processes, and keeps the finished ones in a file."""

from __future__ import annotations

import gc
import time
from collections.abc import Generator, Iterable
from concurrent.futures import as_completed
from pathlib import Path

import msgspec

from partage.lab.worker_pool import ProcessPool
from partage.proposals.comparison.cell import CellResult, Workload, run_cell
from partage.proposals.comparison.machine_limits import estimate_cpu_s


def run_cells(cells: Iterable[Workload], jobs: int) -> Generator[CellResult]:
    """Run cells in worker processes; yield each result when it is finished.

    The CPU time of a coordinator is that of its process.

    Raises:
        concurrent.futures.process.BrokenProcessPool: A worker process was killed.
    """
    waiting = longest_first(cells)
    with ProcessPool(max(1, min(jobs, len(waiting))), _prepare_worker) as pool:
        futures = [pool.submit(run_measured, cell) for cell in waiting]
        for future in as_completed(futures):
            yield future.result()


def _prepare_worker() -> None:
    """Collect garbage less often: a world creates many objects that live until its end."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def longest_first(cells: Iterable[Workload]) -> list[Workload]:
    """Return the cells in an order that keeps all processors busy until the end."""
    return sorted(cells, key=lambda cell: -estimate_cpu_s(cell))


def run_measured(cell: Workload) -> CellResult:
    """Run a cell. The CPU time of its coordinator is that of this process."""
    return run_cell(cell, time.process_time_ns)


def load_results(path: Path) -> dict[Workload, CellResult]:
    """Return the results in a file, by cell. A line that is not complete is skipped.

    Raises:
        ValueError: The file has another format.
    """
    if not path.exists():
        return {}
    results = {}
    for line in path.read_bytes().splitlines(keepends=True):
        if not line.endswith(b"\n"):
            continue  # the run was interrupted while it wrote this line
        try:
            result = msgspec.json.decode(line, type=CellResult)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise ValueError(
                f"{path} is not a file of results: {error}. Remove it, or use another directory"
            ) from None
        results[result.workload] = result
    return results


def append_result(path: Path, result: CellResult) -> None:
    """Append a result to a file. An incomplete last line is removed: a run was killed there."""
    with path.open("a+b") as file:
        end = file.tell()
        file.seek(max(0, end - 1))
        if file.read() not in (b"", b"\n"):
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
        file.write(msgspec.json.encode(result) + b"\n")

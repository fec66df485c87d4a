"""Runs the cells of a grid in several processes, and keeps the finished ones in a file."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import as_completed
from pathlib import Path

import msgspec

from partage.lab.worker_pool import ProcessPool
from partage.proposals.comparison.cell import CellResult, Workload, run_cell


def run_cells(cells: Iterable[Workload], jobs: int) -> Iterator[CellResult]:
    """Run cells in worker processes; yield each result when it is finished.

    The CPU time of a coordinator is that of its process.
    """
    waiting = sorted(cells, key=lambda cell: -cell.members)  # the longest first
    with ProcessPool(max(1, min(jobs, len(waiting))), gc.freeze) as pool:
        futures = [pool.submit(_run_measured, cell) for cell in waiting]
        for future in as_completed(futures):
            yield future.result()


def _run_measured(cell: Workload) -> CellResult:
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
            raise ValueError(f"{path} is not a file of results: {error}") from None
        results[result.workload] = result
    return results


def append_result(path: Path, result: CellResult) -> None:
    """Append a result to a file."""
    with path.open("ab") as file:
        file.write(msgspec.json.encode(result) + b"\n")

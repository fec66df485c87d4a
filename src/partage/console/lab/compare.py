"""``partage lab compare``: run one workload through the designs of consumer groups."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from partage.console.common.dispatch import command_app, install_hint
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.options import JsonOption
from partage.console.common.output import (
    ProgressBar,
    count,
    ignore_closed_output,
    json_help,
    note,
    print_json,
)
from partage.console.common.signals import SigtermAsInterrupt
from partage.proposals.comparison.cell import CellResult, Workload
from partage.proposals.comparison.cells import append_result, load_results, run_cells
from partage.proposals.comparison.claim import Claim
from partage.proposals.comparison.claims import CLAIMS
from partage.proposals.comparison.cost_model import (
    COST_GRID,
    CostModels,
    check_cost_grid,
    fit_cost_models,
)
from partage.proposals.comparison.cost_report import format_cost_models
from partage.proposals.comparison.grid import DEFAULT_GRID, expand_grid, parse_parameter
from partage.proposals.comparison.machine_limits import (
    available_memory_bytes,
    check_memory,
    estimate_duration_s,
)
from partage.proposals.comparison.output import missing_packages, write_report
from partage.proposals.comparison.report import format_report
from partage.proposals.comparison.socket_cell import (
    SOCKET_GRID,
    SOCKET_SECTION,
    expand_socket_grid,
    run_socket_cells,
)

app = command_app()

_RESULTS: Final = "cells.jsonl"
_SOCKET_RESULTS: Final = "socket-cells.jsonl"
#: Shorter runs get no estimate.
_ESTIMATE_MIN_S: Final = 20


class ComparisonReport(msgspec.Struct, frozen=True, kw_only=True):
    """Output of ``partage lab compare --json``.

    ``claims`` is empty without --claims, and ``cost_models`` is null without --cost-model.
    """

    cells: list[CellResult]
    claims: list[Claim]
    cost_models: CostModels | None


@app.command(epilog=json_help(ComparisonReport))
def compare(
    design: Annotated[
        list[str] | None,
        typer.Option("--design", metavar="NAME", help="A design or variant; repeatable."),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option("--grid", metavar="NAME=VALUES", help="Values of a parameter; repeatable."),
    ] = None,
    claims: Annotated[
        bool, typer.Option("--claims", help="Measure the claims of the documents too.")
    ] = False,
    cost_model: Annotated[
        bool,
        typer.Option("--cost-model", help="Fit and extrapolate a cost model of each design too."),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="DIR",
            help="Write report.html, report.md, cells.parquet and cells.jsonl here.",
        ),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option("--jobs", min=1, help="Number of processes.", show_default="number of CPUs"),
    ] = os.cpu_count() or 1,
    sockets: Annotated[
        bool,
        typer.Option(
            "--sockets",
            help="Run the cells over real sockets and in real time, one after the other.",
        ),
    ] = False,
    spark: Annotated[bool, typer.Option("--spark", help="Run the cells on Spark.")] = False,
    master: Annotated[
        str | None,
        typer.Option(
            "--master", metavar="URL", help="Spark master.", show_default="local, with --jobs cores"
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare the designs of consumer groups: one workload for all, in the simulator.

    A grid has each design with each combination of values. With --output, an interrupted run
    continues where it stopped. --cost-model needs a grid with several values of members, partitions
    and metadata_kb; without --grid it has such a grid.

    \b
    Examples:
      partage lab compare --grid members=10
      partage lab compare --sockets --design single-assignor --grid members=20
      partage lab compare --grid members=10,100 --grid metadata_kb=1,100 --output comparison
      partage lab compare --spark --master spark://host:7077 --output comparison
    """
    if master is not None and not spark:
        raise usage_error("--master applies to Spark: add --spark")
    if sockets and (spark or cost_model):
        raise usage_error("--sockets cannot be combined with --spark or --cost-model")
    master = master or f"local[{jobs}]"
    is_remote = spark and not master.startswith("local")
    try:
        default = SOCKET_GRID if sockets else COST_GRID if cost_model else DEFAULT_GRID
        expand = expand_socket_grid if sockets else expand_grid
        cells = expand(design or (), _parse_grid(grid) if grid else default)
        if cost_model:
            check_cost_grid(cells)
        memory_bytes = available_memory_bytes()
        if memory_bytes is not None and not is_remote:
            check_memory(cells, jobs, memory_bytes)
    except ValueError as error:
        raise usage_error(str(error)) from None
    if output is not None:
        _check_packages()
    results = _run(cells, output, jobs, master if spark else None, sockets=sockets)
    models = _fit_cost_models(results) if cost_model else None
    sections = [] if models is None else [format_cost_models(models)]
    if sockets:
        sections.append(SOCKET_SECTION)
    measured = _measure_claims() if claims else []
    with ignore_closed_output():
        if json:
            print_json(ComparisonReport(cells=results, claims=measured, cost_models=models))
        elif output is None:
            print(format_report(results, measured, sections=sections), end="")
    if output is not None:
        with _file_errors(output):
            for path in write_report(output, results, measured, sections):
                note(f"wrote {path}")


def _parse_grid(texts: Sequence[str]) -> dict[str, tuple[float, ...]]:
    grid: dict[str, tuple[float, ...]] = {}
    for text in texts:
        name, values = parse_parameter(text)
        if name in grid:
            raise ValueError(f"{name} is given twice: list its values once, such as {name}=10,100")
        grid[name] = tuple(dict.fromkeys(values))
    return grid


def _check_packages() -> None:
    missing = missing_packages()
    if missing:
        raise CommandError(f"--output needs {', '.join(missing)}: {install_hint(*missing)}")


@contextmanager
def _file_errors(output: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot use {output}: {error}") from None


def _run(
    cells: Sequence[Workload],
    output: Path | None,
    jobs: int,
    master: str | None,
    *,
    sockets: bool,
) -> list[CellResult]:
    """Run the cells that have no result yet; return all results in the order of the grid."""
    results: dict[Workload, CellResult] = {}
    file_name = _SOCKET_RESULTS if sockets else _RESULTS
    if output is not None:
        with _file_errors(output):
            output.mkdir(parents=True, exist_ok=True)
            results = load_results(output / file_name)
    missing = [cell for cell in cells if cell not in results]
    seconds = 0.0 if sockets else estimate_duration_s(missing, jobs)
    if seconds >= _ESTIMATE_MIN_S:
        text = f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
        processes = count(jobs, "process", "processes")
        note(f"{count(len(missing), 'cell')}: about {text} with {processes}")
    done = 0
    try:
        with ExitStack() as stack:
            stack.enter_context(SigtermAsInterrupt())
            found = (
                run_socket_cells(missing)
                if sockets
                else stack.enter_context(_results_of(missing, jobs, master))
            )
            stack.enter_context(closing(found))
            progress = stack.enter_context(ProgressBar("comparing designs", len(missing)))
            for done, result in enumerate(found, 1):
                results[result.workload] = result
                if output is not None:
                    with _file_errors(output):
                        append_result(output / file_name, result)
                cell = result.workload
                progress.update(f"{cell.design}, {cell.members} members", done, len(missing))
    except KeyboardInterrupt:
        hint = "" if output is None else ". Run the command again to continue"
        raise CommandError(f"stopped after {done} of {len(missing)} cells{hint}", 130) from None
    except BrokenProcessPool:
        raise CommandError(
            "a worker process was killed (out of memory?): run again with --jobs 1, or with "
            "smaller cells"
        ) from None
    return [results[cell] for cell in cells]


@contextmanager
def _results_of(
    cells: Sequence[Workload], jobs: int, master: str | None
) -> Iterator[Generator[CellResult]]:
    """Yield the results of cells as they are finished: on Spark, or in processes without a
    ``master``.
    """
    if master is None or not cells:
        yield run_cells(cells, jobs)
        return
    from partage.pipelines.queries import spark_errors
    from partage.pipelines.session import SparkUnavailableError, spark_session
    from partage.proposals.comparison.spark_cells import run_cells_on_spark
    from partage.spark import failure_reason

    try:
        with spark_session("partage lab compare", master, {}) as session:
            try:
                yield run_cells_on_spark(session, cells)
            except spark_errors() as error:
                raise CommandError(f"Spark failed: {failure_reason(error)}") from None
    except SparkUnavailableError as error:
        raise CommandError(str(error)) from None


def _fit_cost_models(results: Sequence[CellResult]) -> CostModels:
    try:
        return fit_cost_models(results)
    except ValueError as error:  # some cells did not become stable
        raise CommandError(str(error)) from None


def _measure_claims() -> list[Claim]:
    measured = []
    with ProgressBar("measuring claims", len(CLAIMS)) as progress:
        for done, measure in enumerate(CLAIMS, 1):
            measured.append(measure(time.process_time_ns))
            progress.update(measured[-1].title, done, len(CLAIMS))
    return measured

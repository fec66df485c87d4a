"""``partage lab compare``: run one workload through the designs of consumer groups."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.options import JsonOption
from partage.console.common.output import (
    ProgressBar,
    ignore_closed_output,
    json_help,
    note,
    print_json,
)
from partage.proposals.comparison.cell import CellResult, Workload
from partage.proposals.comparison.cells import append_result, load_results, run_cells
from partage.proposals.comparison.claims import CLAIMS, Claim
from partage.proposals.comparison.grid import DEFAULT_GRID, expand_grid, parse_parameter
from partage.proposals.comparison.report import format_report

app = command_app()

_RESULTS: Final = "cells.jsonl"
_REPORT: Final = "report.md"


class ComparisonReport(msgspec.Struct, frozen=True, kw_only=True):
    """Output of ``partage lab compare --json``. ``claims`` is empty without --claims."""

    cells: list[CellResult]
    claims: list[Claim]


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
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="DIR", help="Write report.md and cells.jsonl here."),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option("--jobs", min=1, help="Number of processes.", show_default="number of CPUs"),
    ] = os.cpu_count() or 1,
    json: JsonOption = False,
) -> None:
    """Compare the designs of consumer groups: one workload for all, in the simulator.

    A grid has each design with each combination of values. With --output, an interrupted run
    continues where it stopped.

    \b
    Examples:
      partage lab compare --grid members=10
      partage lab compare --grid members=10,100 --grid metadata_kb=1,100 --output comparison
    """
    try:
        parameters = dict(map(parse_parameter, grid)) if grid else DEFAULT_GRID
        cells = expand_grid(design or (), parameters)
    except ValueError as error:
        raise usage_error(str(error)) from None
    results = _run(cells, output, jobs)
    measured = _measure_claims() if claims else []
    with ignore_closed_output():
        if json:
            print_json(ComparisonReport(cells=results, claims=measured))
        elif output is None:
            print(format_report(results, measured), end="")
    if output is not None:
        (output / _REPORT).write_text(format_report(results, measured))
        note(f"wrote {output / _REPORT}")


def _run(cells: list[Workload], output: Path | None, jobs: int) -> list[CellResult]:
    """Run the cells that have no result yet; return all results in the order of the grid."""
    results: dict[Workload, CellResult] = {}
    if output is not None:
        try:
            output.mkdir(parents=True, exist_ok=True)
            results = load_results(output / _RESULTS)
        except (OSError, ValueError) as error:
            raise CommandError(f"cannot use {output}: {error}") from None
    missing = [cell for cell in cells if cell not in results]
    with ProgressBar("comparing designs", len(missing)) as progress:
        for done, result in enumerate(run_cells(missing, jobs), 1):
            results[result.workload] = result
            if output is not None:
                append_result(output / _RESULTS, result)
            cell = result.workload
            progress.update(f"{cell.design}, {cell.members} members", done, len(missing))
    return [results[cell] for cell in cells]


def _measure_claims() -> list[Claim]:
    measured = []
    with ProgressBar("measuring claims", len(CLAIMS)) as progress:
        for done, measure in enumerate(CLAIMS, 1):
            measured.append(measure(time.process_time_ns))
            progress.update(measured[-1].title, done, len(CLAIMS))
    return measured

"""``partage lab compare``: run one workload through the designs of consumer groups."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError, install_hint, usage_error
from partage.console.common.options import CPU_COUNT, JobsOption, JsonOption
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
from partage.proposals.comparison.claims import CLAIMS, measure_claims
from partage.proposals.comparison.cost_model import (
    COST_GRID,
    COST_PHASES,
    UNSEEN_MEMBERS,
    CostModels,
    check_cost_grid,
    fit_cost_models,
)
from partage.proposals.comparison.grid import (
    DEFAULT_GRID,
    REPORT_GRID,
    SOCKET_PHASES,
    VARIANT_GRID,
    expand_grid,
    parse_parameter,
)
from partage.proposals.comparison.machine_limits import (
    available_memory_bytes,
    check_memory,
    describe_machine,
    estimate_duration_s,
)
from partage.proposals.comparison.output import missing_packages, write_report
from partage.proposals.comparison.report import Comparison, format_report
from partage.proposals.comparison.socket_cell import (
    SOCKET_GRID,
    estimate_socket_s,
    expand_socket_grid,
    run_socket_cells,
)
from partage.proposals.designs.catalog import DESIGNS, VARIANTS
from partage.proposals.designs.finding_worlds import FindingWorld, find_worlds

app = command_app()

_RESULTS: Final = "cells.jsonl"
_SOCKET_RESULTS: Final = "socket-cells.jsonl"
#: Shorter runs get no estimate.
_ESTIMATE_MIN_S: Final = 20


class _Plan(NamedTuple):
    """The cells of a comparison.

    Attributes:
        cells: The cells in the simulator that the report shows.
        fitted: Those from which the cost models are fitted.
        unseen: Those with larger groups, which validate the models.
        over_sockets: The cells over sockets.
    """

    cells: list[Workload]
    fitted: list[Workload]
    unseen: list[Workload]
    over_sockets: list[Workload]

    @property
    def simulated(self) -> list[Workload]:
        """All cells in the simulator, each once."""
        return list(dict.fromkeys((*self.cells, *self.unseen, *self.fitted)))


@app.command(epilog=json_help(Comparison))
def compare(
    design: Annotated[
        list[str] | None,
        typer.Option("--design", metavar="NAME", help="A design or variant; repeatable."),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option("--grid", metavar="NAME=VALUES", help="Values of a parameter; repeatable."),
    ] = None,
    phase: Annotated[
        list[str] | None,
        typer.Option("--phase", metavar="NAME", help="A phase after “form”, or none; repeatable."),
    ] = None,
    claims: Annotated[
        bool, typer.Option("--claims", help="Measure the claims of the documents too.")
    ] = False,
    findings: Annotated[
        bool,
        typer.Option(
            "--findings", help="Search the smallest world of each guarantee that a design breaks."
        ),
    ] = False,
    cost_model: Annotated[
        bool,
        typer.Option("--cost-model", help="Fit and extrapolate a cost model of each design too."),
    ] = False,
    unseen_members: Annotated[
        int,
        typer.Option(
            "--unseen-members",
            metavar="COUNT",
            help="Size of the larger groups that validate the cost model; 0 for none.",
        ),
    ] = UNSEEN_MEMBERS,
    everything: Annotated[
        bool,
        typer.Option(
            "--everything",
            help="Add variants, three seeds, cells over sockets, claims, findings, cost models.",
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="DIR",
            help="Write report.html, report.md, cells.parquet and cells.jsonl here.",
        ),
    ] = None,
    jobs: JobsOption = CPU_COUNT,
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
    and metadata_kb; without --grid, and with --everything, it has separate cells.

    \b
    Examples:
      partage lab compare --grid members=10
      partage lab compare --sockets --design single-assignor --grid members=20
      partage lab compare --grid members=10,100 --grid metadata_kb=1,100 --output comparison
      partage lab compare --spark --master spark://host:7077 --output comparison
    """
    if master is not None and not spark:
        raise usage_error("--master applies to Spark: add --spark")
    if sockets and (spark or cost_model or everything):
        raise usage_error("--sockets cannot be combined with --spark, --cost-model or --everything")
    master = master or f"local[{jobs}]"
    is_remote = spark and not master.startswith("local")
    try:
        given = _parse_grid(grid or ())
        phases = None if phase is None else tuple(each for each in phase if each != "none")
        if sockets:
            plan = _Plan([], [], [], _socket_cells(design or (), given or SOCKET_GRID, phases))
        elif everything:
            plan = _plan_everything(design or (), given, phases, unseen_members)
        else:
            plan = _plan(design or (), given, phases, unseen_members if cost_model else None)
        memory_bytes = available_memory_bytes()
        if memory_bytes is not None and not is_remote:
            check_memory([*plan.simulated, *plan.over_sockets], jobs, memory_bytes)
    except ValueError as error:
        raise usage_error(str(error)) from None
    if output is not None:
        _check_packages()
    _print_estimate(plan, output, jobs)
    simulated = _run(plan.simulated, output, jobs, master if spark else None)
    over_sockets = _run_over_sockets(plan.over_sockets, output)
    names = [*DESIGNS, *VARIANTS] if everything and not design else _designs_of(plan)
    shown = list(dict.fromkeys((*plan.cells, *plan.unseen)))
    comparison = Comparison(
        cells=[simulated[cell] for cell in shown],
        further_cells=[simulated[cell] for cell in plan.simulated if cell not in shown],
        socket_cells=[over_sockets[cell] for cell in plan.over_sockets],
        claims=_measure_claims(jobs) if claims or everything else [],
        findings=_find_worlds(names, jobs) if findings or everything else [],
        cost_models=_fit_cost_models(plan, simulated) if plan.fitted else None,
        machine=describe_machine(),
    )
    with ignore_closed_output():
        if json:
            print_json(comparison)
        elif output is None:
            print(format_report(comparison), end="")
    if output is not None:
        with _file_errors(output):
            for path in write_report(output, comparison):
                note(f"wrote {path}")


def _plan(
    designs: Sequence[str],
    grid: Mapping[str, Sequence[float]],
    phases: tuple[str, ...] | None,
    unseen_members: int | None,
) -> _Plan:
    """Return the cells of one grid.

    Args:
        designs: The designs; all if there are none.
        grid: The grid of the user; empty for the default.
        phases: The phases of the user; None for the default.
        unseen_members: The size of larger groups; None without a cost model.

    Raises:
        ValueError: A cell is impossible, or the grid is too small for a cost model.
    """
    default = DEFAULT_GRID if unseen_members is None else COST_GRID
    if phases is None and unseen_members is not None and not grid:
        phases = COST_PHASES
    cells = expand_grid(designs, grid or default, **_fixed(phases))
    if unseen_members is None:
        return _Plan(cells, [], [], [])
    check_cost_grid(cells)
    return _Plan(cells, cells, _unseen_cells(cells, unseen_members), [])


def _plan_everything(
    designs: Sequence[str],
    grid: Mapping[str, Sequence[float]],
    phases: tuple[str, ...] | None,
    unseen_members: int,
) -> _Plan:
    """Return the cells of a complete report; see `_plan`."""
    cells = expand_grid(designs, grid or REPORT_GRID, **_fixed(phases))
    if not designs:
        cells += expand_grid(VARIANTS, VARIANT_GRID, **_fixed(phases))
    fitted = expand_grid(designs, COST_GRID, phases=COST_PHASES)
    return _Plan(
        cells,
        fitted,
        _unseen_cells(fitted, unseen_members),
        _socket_cells(designs, SOCKET_GRID, phases),
    )


def _fixed(phases: tuple[str, ...] | None) -> dict[str, tuple[str, ...]]:
    return {} if phases is None else {"phases": phases}


def _unseen_cells(fitted: Sequence[Workload], members: int) -> list[Workload]:
    """Return a cell of larger groups for each design, with the largest metadata of the fit.

    Raises:
        ValueError: The groups are not larger than those of the fit.
    """
    if not members:
        return []
    largest = max(each.members for each in fitted)
    if members <= largest:
        raise ValueError(
            f"--unseen-members={members} must be above the {largest:,} members of the grid, or 0"
        )
    grid = {"members": (members,), "metadata_kb": (max(each.metadata_kb for each in fitted),)}
    designs = dict.fromkeys(each.design for each in fitted)
    return expand_grid(designs, grid, phases=COST_PHASES)


def _socket_cells(
    designs: Sequence[str],
    grid: Mapping[str, Sequence[float]],
    phases: tuple[str, ...] | None,
) -> list[Workload]:
    return expand_socket_grid(designs, grid, SOCKET_PHASES if phases is None else phases)


def _designs_of(plan: _Plan) -> list[str]:
    return list(dict.fromkeys(each.design for each in (*plan.simulated, *plan.over_sockets)))


def _print_estimate(plan: _Plan, output: Path | None, jobs: int) -> None:
    """Print about how long the cells take that have no result yet."""
    finished, over_sockets = _load(output, _RESULTS), _load(output, _SOCKET_RESULTS)
    simulated = [cell for cell in plan.simulated if cell not in finished]
    real = [cell for cell in plan.over_sockets if cell not in over_sockets]
    cpus = min(jobs, CPU_COUNT)
    seconds = estimate_duration_s(simulated, cpus) + sum(map(estimate_socket_s, real))
    if seconds >= _ESTIMATE_MIN_S:
        cells = count(len(simulated) + len(real), "cell")
        note(f"{cells}: about {_duration(seconds)} on {count(cpus, 'idle CPU')}")


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


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
    cells: Sequence[Workload], output: Path | None, jobs: int, master: str | None
) -> dict[Workload, CellResult]:
    """Run the cells in the simulator that have no result yet, and return all results."""
    results = _load(output, _RESULTS)
    missing = [cell for cell in cells if cell not in results]
    with ExitStack() as stack:
        found = stack.enter_context(_results_of(missing, jobs, master))
        _collect(found, results, missing, output, _RESULTS)
    return results


def _run_over_sockets(cells: Sequence[Workload], output: Path | None) -> dict[Workload, CellResult]:
    """Run the cells over sockets that have no result yet, and return all results."""
    if not cells:
        return {}
    results = _load(output, _SOCKET_RESULTS)
    missing = [cell for cell in cells if cell not in results]
    # The loss of the coordinator is a phase; members would warn of it on the terminal.
    logging.getLogger("partage.proposals.sockets").setLevel(logging.ERROR)
    _collect(run_socket_cells(missing), results, missing, output, _SOCKET_RESULTS)
    return results


def _load(output: Path | None, file_name: str) -> dict[Workload, CellResult]:
    if output is None:
        return {}
    with _file_errors(output):
        output.mkdir(parents=True, exist_ok=True)
        return load_results(output / file_name)


def _collect(
    found: Generator[CellResult],
    results: dict[Workload, CellResult],
    missing: Sequence[Workload],
    output: Path | None,
    file_name: str,
) -> None:
    """Add the results to ``results`` and to their file as they are found."""
    done = 0
    try:
        with (
            SigtermAsInterrupt(),
            closing(found),
            ProgressBar("comparing designs", len(missing)) as progress,
        ):
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
        raise _killed_worker() from None


def _killed_worker() -> CommandError:
    return CommandError(
        "a worker process was killed (out of memory?): run again with --jobs 1, or with "
        "smaller cells"
    )


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


def _fit_cost_models(plan: _Plan, results: Mapping[Workload, CellResult]) -> CostModels:
    try:
        return fit_cost_models(
            (results[cell] for cell in plan.fitted), (results[cell] for cell in plan.unseen)
        )
    except ValueError as error:  # some cells did not become stable
        raise CommandError(str(error)) from None


def _measure_claims(jobs: int) -> list[Claim]:
    measured: dict[int, Claim] = {}
    try:
        with SigtermAsInterrupt(), ProgressBar("measuring claims", len(CLAIMS)) as progress:
            for number, claim in measure_claims(jobs):
                measured[number] = claim
                progress.update(claim.title, len(measured), len(CLAIMS))
    except BrokenProcessPool:
        raise _killed_worker() from None
    except KeyboardInterrupt:
        raise CommandError("stopped while measuring claims", 130) from None
    return [measured[number] for number in sorted(measured)]


def _find_worlds(names: Sequence[str], jobs: int) -> list[FindingWorld]:
    try:
        with SigtermAsInterrupt():
            return list(find_worlds(names, jobs))
    except BrokenProcessPool:
        raise _killed_worker() from None
    except KeyboardInterrupt:
        raise CommandError("stopped while searching worlds of findings", 130) from None

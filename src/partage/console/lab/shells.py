"""``partage lab shells``: run simulated worlds of the production shells."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError
from partage.console.common.options import CPU_COUNT, JobsOption, JsonOption
from partage.console.common.output import (
    ProgressBar,
    count,
    ignore_closed_output,
    json_help,
    print_json,
)
from partage.console.common.signals import SigtermAsInterrupt
from partage.testing.world_kind import WorldKind

if TYPE_CHECKING:
    from partage.testing.shell_worlds.result import ShellResult

app = command_app()

_STORY_LINES = 40


class FailedShellWorld(msgspec.Struct, frozen=True, kw_only=True):
    """A world that broke a rule; ``command`` repeats it."""

    seed: int
    rule: str
    description: str
    command: str
    faults: list[str]
    story: list[str]


class ShellReport(msgspec.Struct, kw_only=True):
    """Output of ``partage lab shells --json``."""

    worlds: int = 0
    records: int = 0
    reads: int = 0
    faults: int = 0
    failures: list[FailedShellWorld] = []

    def add(self, result: ShellResult, kind: WorldKind) -> None:
        """Add the result of one world."""
        self.worlds += 1
        self.records += result.records
        self.reads += result.reads
        self.faults += len(result.faults)
        if result.rule is not None:
            self.failures.append(
                FailedShellWorld(
                    seed=result.seed,
                    rule=result.rule,
                    description=result.description,
                    command=_command(result.seed, kind),
                    faults=result.faults,
                    story=result.story,
                )
            )


def _command(seed: int, kind: WorldKind) -> str:
    """Return the command that runs a world again."""
    option = "" if kind is WorldKind.CONSUMERS else f" --kind {kind}"
    return f"partage lab shells{option} --seed-from {seed} --seeds 1"


@app.command(epilog=json_help(ShellReport))
def shells(
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", min=1, help="Number of worlds.")
    ] = 100,
    seed_from: Annotated[
        int, typer.Option("--seed-from", metavar="SEED", min=0, help="First seed.")
    ] = 0,
    kind: Annotated[
        WorldKind,
        typer.Option(
            "--kind",
            help="consumers: strict rules about requests, delays and callbacks; topics: records "
            "are deleted, topics are created again, and transactions end; recipes: elections, "
            "pools, single writers, processors and memberships (needs aiokafka).",
        ),
    ] = WorldKind.CONSUMERS,
    jobs: JobsOption = CPU_COUNT,
    json: JsonOption = False,
) -> None:
    """Run the production broker and consumers in simulated worlds, and check what they read.

    The worlds of lab run have production brokers and simulated clients. Here the consumers are
    those of production, too. The exit code is 1 if a rule was broken. A seed gives the same world
    on any machine.

    \b
    Examples:
      partage lab shells --seeds 300
      partage lab shells --seed-from 4711 --seeds 1
      partage lab shells --kind topics --seeds 100
    """
    from partage.testing.world_swarm import run_shell_seeds

    wanted = range(seed_from, seed_from + seeds)
    report, stopped = _collect(run_shell_seeds(wanted, min(jobs, seeds), kind), seeds, kind)
    with ignore_closed_output():
        if json:
            print_json(report)
        else:
            _print_report(report)
    if stopped is not None:
        raise stopped
    if report.failures:
        raise typer.Exit(1)


def _collect(
    results: Generator[ShellResult], seeds: int, kind: WorldKind
) -> tuple[ShellReport, CommandError | None]:
    """Sum up results with a progress bar. Also return the error that ended the run early."""
    report = ShellReport(failures=[])
    try:
        with (
            SigtermAsInterrupt(),
            ProgressBar("worlds", seeds) as drawn,
            closing(results),
        ):
            for result in results:
                report.add(result, kind)
                broken = f", {len(report.failures)} broke a rule" if report.failures else ""
                drawn.update(f"{report.worlds:,} of {seeds:,}{broken}", report.worlds)
    except BrokenProcessPool:
        return report, CommandError("a worker process was killed; use fewer --jobs")
    except KeyboardInterrupt:
        return report, CommandError(f"stopped after {report.worlds:,} of {seeds:,} worlds", 130)
    report.failures.sort(key=lambda each: each.seed)
    return report, None


def _print_report(report: ShellReport) -> None:
    print(
        f"{count(report.worlds, 'world')}, {count(report.records, 'record')} written, "
        f"{report.reads:,} read, {count(report.faults, 'fault')}; "
        f"{len(report.failures):,} broke a rule"
    )
    for failure in report.failures:
        print(f"\nseed {failure.seed} breaks {failure.rule}: {failure.description}")
        print(f"  run again: {failure.command}")
    for failure in report.failures[:1]:
        print("\n".join(["", *failure.faults, *failure.story[-_STORY_LINES:]]))

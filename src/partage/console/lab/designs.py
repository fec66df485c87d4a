"""``partage lab designs``: simulated worlds of the designs of consumer groups."""

from __future__ import annotations

import contextlib
from collections import Counter
from concurrent.futures.process import BrokenProcessPool
from typing import Annotated, Final

import msgspec
import typer

from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.options import CPU_COUNT, JobsOption, JsonOption
from partage.console.common.output import ProgressBar, ignore_closed_output, json_help, print_json
from partage.console.common.signals import SigtermAsInterrupt
from partage.console.common.table import print_table
from partage.proposals.designs.catalog import DESIGNS, VARIANTS, find_design
from partage.proposals.designs.worlds import DesignVerdict, run_world, run_worlds, shrink_world

app = command_app()

_SHOWN_MAX: Final = 5


class DesignsReport(msgspec.Struct, frozen=True, kw_only=True):
    """Output of ``partage lab designs --json``: worlds and steps by design and kind, and failures.

    ``smallest`` is the first failure with the fewest steps that break the same rule.
    """

    worlds: dict[str, int]
    steps: dict[str, int]
    failures: list[DesignVerdict]
    smallest: DesignVerdict | None


@app.command(epilog=json_help(DesignsReport))
def designs(
    design: Annotated[
        list[str] | None,
        typer.Option("--design", metavar="NAME", help="A design or variant; repeatable."),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", min=1, help="Worlds of each design.")
    ] = 100,
    seed_from: Annotated[
        int, typer.Option("--seed-from", metavar="SEED", min=0, help="First seed.")
    ] = 0,
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep",
            metavar="STEPS",
            help="Run only these steps: numbers separated by commas, or none.",
        ),
    ] = None,
    findings: Annotated[
        bool,
        typer.Option(
            "--findings", help="Also report the rules that a design breaks by construction."
        ),
    ] = False,
    jobs: JobsOption = CPU_COUNT,
    json: JsonOption = False,
) -> None:
    """Run simulated worlds of the designs of consumer groups, and check them against the rules.

    A seed gives the same world on any machine. The exit code is 1 if a rule was broken. Rules that
    a design breaks by construction count only with --findings. The first failure is reduced to the
    fewest steps.

    \b
    Examples:
      partage lab designs --seeds 50
      partage lab designs --design broker-side --seed-from 4711 --seeds 1
      partage lab designs --design broker-side --seed-from 4711 --seeds 1 --keep 0,3
    """
    names = design or [*DESIGNS, *VARIANTS]
    try:
        for name in names:
            find_design(name)
        if keep is None:
            verdicts = _run(names, range(seed_from, seed_from + seeds), jobs, findings)
        elif seeds != 1 or len(names) != 1:
            raise usage_error("--keep applies to one world: add --design NAME --seeds 1")
        else:
            kept = _parse_steps(keep)
            verdicts = [run_world(names[0], seed_from, kept, reports_findings=findings)]
    except ValueError as error:
        raise usage_error(str(error)) from None
    verdicts.sort(key=lambda each: (each.seed, names.index(each.design)))
    failures = [each for each in verdicts if each.rule is not None]
    report = DesignsReport(
        worlds=dict(Counter(each.design for each in verdicts)),
        steps=dict(Counter(step.kind for each in verdicts for step in each.steps)),
        failures=failures,
        smallest=(
            shrink_world(failures[0].design, failures[0].seed, reports_findings=findings)
            if failures and not keep
            else None
        ),
    )
    with ignore_closed_output():
        if json:
            print_json(report)
        else:
            _print(report)
    if failures:
        raise typer.Exit(1)


def _parse_steps(text: str) -> tuple[int, ...]:
    if text == "none":
        return ()
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise usage_error(
            f"--keep takes numbers separated by commas, or none, not {text!r}"
        ) from None


def _run(names: list[str], seeds: range, jobs: int, reports_findings: bool) -> list[DesignVerdict]:
    total = len(names) * len(seeds)
    verdicts: list[DesignVerdict] = []
    found = run_worlds(names, seeds, jobs, reports_findings=reports_findings)
    try:
        with (
            SigtermAsInterrupt(),
            ProgressBar("worlds", total) as progress,
            contextlib.closing(found),
        ):
            for verdict in found:
                verdicts.append(verdict)
                progress.update(f"{len(verdicts):,} of {total:,}", len(verdicts))
    except BrokenProcessPool:
        raise CommandError("a worker process was killed (out of memory?): add --jobs 1") from None
    except KeyboardInterrupt:
        done = f"stopped after {len(verdicts):,} of {total:,} worlds"
        raise CommandError(done, 130) from None
    return verdicts


def _print(report: DesignsReport) -> None:
    broken = Counter(each.design for each in report.failures)
    print_table(
        ["DESIGN", "WORLDS", "BROKE A RULE"],
        [(name, f"{count:,}", str(broken[name])) for name, count in report.worlds.items()],
        right=["WORLDS", "BROKE A RULE"],
    )
    print()
    print_table(["STEP", "COUNT"], [(kind, f"{n:,}") for kind, n in report.steps.items()])
    for verdict in report.failures[:_SHOWN_MAX]:
        print(f"\nseed {verdict.seed} of {verdict.design} breaks {verdict.rule}: ", end="")
        print(verdict.description)
        print(f"  run again: {verdict.command}")
    if report.smallest is not None:
        print(f"\nthe fewest steps of seed {report.smallest.seed} that break the same rule:")
        for step in report.smallest.steps:
            print(f"  {step}")
        print(f"  {report.smallest.description}")
        print(f"  run again: {report.smallest.command}")

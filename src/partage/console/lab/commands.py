"""``partage lab``: run simulated worlds of brokers and consumer groups."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import typer

from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.options import CPU_COUNT, JobsOption, JsonOption
from partage.console.common.output import (
    ProgressBar,
    ignore_closed_output,
    json_help,
    note,
    print_json,
)
from partage.console.common.signals import SigtermAsInterrupt
from partage.console.common.table import print_table
from partage.console.lab.sweep import SweepReport, parse_combinations, print_sweep, run_sweep
from partage.console.lab.trace import TraceReport, trace_report
from partage.lab.coverage import GROUP_STATES, POSSIBLE_STATES, uncovered_events
from partage.lab.runner import Verdict, draw_scenario, run_scenario
from partage.lab.scenario import Scenario
from partage.lab.shrinker import NothingToShrinkError, shrink
from partage.lab.swarm import Summary, WorkerKilledError, run_seed, run_seeds
from partage.lab.trace import format_history
from partage.lab.world import World
from partage.model.groups import format_partitions

app = command_app()

_SHOWN_MAX = 5
_END_LINES = 25

KeepOption = Annotated[
    str | None,
    typer.Option(
        "--keep",
        metavar="STEPS",
        help="Run only these steps of the plan: numbers separated by commas, or none.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="OPTION=VALUE", help="Set an option of the world."),
]
VerboseOption = Annotated[
    bool,
    typer.Option("--verbose", help="Include routine events, such as heartbeats."),
]


class UncoveredEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event and the possible group states in which it did not occur."""

    event: str
    states: list[str]


class RunReport(Summary, kw_only=True):
    """Output of ``partage lab run --json``. The coverage gaps are null for a single world."""

    uncovered_events: list[UncoveredEvent] | None = None
    uncovered_faults: list[str] | None = None


@app.command(epilog=f"{json_help(RunReport)}\n\n{json_help(SweepReport, 'with --grid prints')}")
def run(
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", min=1, help="Number of worlds.")
    ] = 100,
    seed_from: Annotated[
        int, typer.Option("--seed-from", metavar="SEED", min=0, help="First seed.")
    ] = 0,
    jobs: JobsOption = CPU_COUNT,
    keep: KeepOption = None,
    changes: SetOption = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="OPTION=VALUES",
            help="Run the seeds with each of these values of an option; repeatable.",
        ),
    ] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Run the worlds on Spark.")] = False,
    json: JsonOption = False,
) -> None:
    """Run simulated worlds, each drawn from a seed, and check them against the rules.

    The exit code is 1 if a rule was broken. A seed gives the same world on any machine. Ctrl-C
    ends the run, prints the results so far and exits with code 130.

    With --grid, the seeds run with each combination of values, and the result has one row for each
    combination. --set then applies to all of them.

    \b
    Examples:
      partage lab run --seeds 300
      partage lab run --seeds 50 --grid members=2,4 --grid assignors=range,cooperative-sticky
      partage lab run --seed-from 4711 --seeds 1
      partage lab run --seed-from 4711 --seeds 1 --keep 3,8 --set members=2
    """
    wanted = range(seed_from, seed_from + seeds)
    if grid:
        if keep is not None:
            raise usage_error("--keep applies to one world: use it without --grid")
        _run_grid(grid, dict(map(_parse_change, changes or ())), wanted, jobs, spark, json)
        return
    if (keep is not None or changes) and seeds != 1:
        raise usage_error("--keep and --set apply to one world: add --seeds 1 --seed-from SEED")
    scenario = _parse_scenario(seed_from, keep, changes)
    if seeds == 1:
        found = (run_seed(seed, scenario.kept, scenario.changes) for seed in wanted)
    elif spark:
        found = _run_on_spark(wanted)
    else:
        found = run_seeds(wanted, min(jobs, seeds))
    summary, stopped = _summarize(found, seeds)
    with ignore_closed_output():
        if json:
            print_json(_report(summary))
        elif summary.worlds:
            _print_summary(summary)
            for verdict in [] if stopped else summary.failures[:1]:
                _print_failure(scenario if seeds == 1 else draw_scenario(verdict.seed))
    if stopped is not None:
        raise stopped
    if summary.failures:
        raise typer.Exit(1)


def _run_grid(
    grid: list[str], fixed: dict[str, Any], seeds: range, jobs: int, spark: bool, json: bool
) -> None:
    """Run the seeds with each combination of option values."""
    combinations = parse_combinations(grid, seeds, fixed)

    def run(changes: Mapping[str, str]) -> Generator[Verdict]:
        if spark:
            return _run_on_spark(seeds, dict(changes))
        return run_seeds(seeds, min(jobs, len(seeds)), dict(changes))

    report, stopped = run_sweep(combinations, fixed, len(seeds), run, _worker_killed_error)
    print_sweep(report, json, _failure_text)
    if stopped is not None:
        raise stopped
    if any(each.failures for each in report.combinations):
        raise typer.Exit(1)


@app.command(epilog=json_help(TraceReport))
def trace(
    seed: Annotated[int, typer.Argument(metavar="SEED", min=0, help="Seed of the world.")],
    keep: KeepOption = None,
    changes: SetOption = None,
    verbose: VerboseOption = False,
    json: JsonOption = False,
) -> None:
    """Print the history of a world, one line for each event, with the time in seconds.

    \b
    Examples:
      partage lab trace 7
      partage lab trace 7 --keep none
      partage lab trace 7 --json
    """
    scenario = _parse_scenario(seed, keep, changes)
    world, verdict = _run_with_progress(scenario)
    with ignore_closed_output():
        if json:
            print_json(trace_report(scenario, world, verdict, verbose=verbose))
            return
        _print_options(scenario)
        for line in format_history(world.history.entries, verbose=verbose):
            print(line)
        print(_verdict_text(verdict))


@app.command(name="shrink", epilog=json_help(TraceReport))
def shrink_seed(
    seed: Annotated[int, typer.Argument(metavar="SEED", min=0, help="Seed of a failing world.")],
    keep: KeepOption = None,
    changes: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Find the smallest part of a world that breaks the same rule, and print its history.

    With --keep, no other steps are tried. Options given with --set stay unchanged.

    \b
    Examples:
      partage lab shrink 7
      partage lab shrink 7 --keep 3,8 --set brokers=1
    """
    given = _parse_scenario(seed, keep, changes)
    try:
        with ProgressBar(f"shrinking world {seed}"):
            small = shrink(seed, note, given.kept, given.changes)
    except NothingToShrinkError as error:
        raise CommandError(str(error)) from None
    world, verdict = _run_with_progress(small)
    steps = [f"{step.kind} at {step.at_ms / 1000:.3f}" for step in small.steps]
    with ignore_closed_output():
        if json:
            print_json(trace_report(small, world, verdict))
            return
        for line in format_history(world.history.entries):
            print(line)
        print(_verdict_text(verdict))
        print(f"steps: {', '.join(steps) or 'none'}")


def _run_with_progress(scenario: Scenario) -> tuple[World, Verdict]:
    """Run a scenario with a progress display on a terminal; a large world takes minutes."""
    with ProgressBar(f"running world {scenario.seed}"):
        return run_scenario(scenario)


def _run_on_spark(seeds: range, changes: dict[str, Any] | None = None) -> Generator[Verdict]:
    try:
        from partage.lab.spark_swarm import run_seeds_on_spark
        from partage.spark import JavaNotFoundError, prepare_java
    except ImportError as error:
        raise CommandError(
            f"--spark needs PySpark: pip install 'partage[spark]' ({error})"
        ) from None
    try:
        prepare_java()
    except JavaNotFoundError as error:
        raise CommandError(str(error)) from None
    return run_seeds_on_spark(seeds, changes)


def _parse_scenario(seed: int, keep: str | None, changes: list[str] | None) -> Scenario:
    try:
        kept = None if keep is None else _parse_steps(keep)
        return draw_scenario(seed, kept, dict(map(_parse_change, changes or ())))
    except (KeyError, ValueError) as error:
        raise usage_error(str(error.args[0])) from None


def _parse_steps(text: str) -> tuple[int, ...]:
    if text == "none":
        return ()
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise usage_error(
            f"--keep takes numbers separated by commas, or none, not {text!r}"
        ) from None


def _parse_change(text: str) -> tuple[str, Any]:
    name, is_one, value = text.partition("=")
    if not is_one:
        raise usage_error(f"--set takes OPTION=VALUE, not {text!r}")
    return name, value


def _summarize(found: Generator[Verdict], worlds: int) -> tuple[Summary, CommandError | None]:
    """Sum up verdicts with a progress bar on stderr. Also return the error that ended the run
    early.
    """
    summary = Summary()
    try:
        with (
            SigtermAsInterrupt(),
            ProgressBar("worlds", worlds) as drawn,
            contextlib.closing(found),
        ):
            for verdict in found:
                summary.add(verdict)
                broken = f", {len(summary.failures)} broke a rule" if summary.failures else ""
                drawn.update(f"{summary.worlds:,} of {worlds:,}{broken}", summary.worlds)
    except WorkerKilledError as killed:
        return summary, _worker_killed_error(killed.seeds)
    except KeyboardInterrupt:
        return summary, CommandError(f"stopped after {summary.worlds:,} of {worlds:,} worlds", 130)
    return summary, None


def _worker_killed_error(
    seeds: Sequence[int], changes: Mapping[str, str] | None = None
) -> CommandError:
    """Return the error for a killed worker. The longest-running seeds are the likeliest cause."""
    grid = "".join(f" --grid {name}={value}" for name, value in (changes or {}).items())
    longest = sum(1 for at, seed in enumerate(seeds) if seed == seeds[0] + at)
    return CommandError(
        f"a worker process was killed (out of memory?) while it ran "
        f"{format_partitions('seeds', seeds)}: run these seeds in a single process: "
        f"partage lab run --seed-from {seeds[0]} --seeds {longest} --jobs 1{grid}"
    )


def _report(summary: Summary) -> RunReport:
    report = RunReport(**msgspec.structs.asdict(summary))
    if summary.worlds > 1:
        missing = uncovered_events(summary.group_events)
        report.uncovered_events = [
            UncoveredEvent(event=event, states=states) for event, states in missing
        ]
        report.uncovered_faults = summary.missing_faults()
    return report


def _print_summary(summary: Summary) -> None:
    report = _report(summary)
    counts = summary.group_events
    print_table(
        ["EVENT", *GROUP_STATES],
        [
            (
                event,
                *(
                    counts[f"{state} {event}"] if state in possible else ""
                    for state in GROUP_STATES
                ),
            )
            for event, possible in POSSIBLE_STATES.items()
        ],
        right=GROUP_STATES,
        optional=["elsewhere", "loading"],
    )
    print()
    print_table(["CONSUMER EVENT", "STATES"], _by_event(summary.consumer_events), wrapped=True)
    print()
    faults = sorted(summary.faults.items(), key=lambda item: (-item[1], item[0]))
    print_table(["FAULT", "COUNT"], [(kind.replace("_", " "), n) for kind, n in faults])
    for missing in report.uncovered_events or []:
        print(f"uncovered event: {missing.event} in {', '.join(missing.states)}")
    if uncovered := report.uncovered_faults:
        print(f"uncovered faults: {', '.join(kind.replace('_', ' ') for kind in uncovered)}")
    print(
        f"\n{summary.worlds:,} {'world' if summary.worlds == 1 else 'worlds'}, "
        f"{summary.generations:,} generations, "
        f"{summary.requests:,} requests, {sum(summary.faults.values()):,} faults; "
        f"{len(summary.failures)} broke a rule"
    )
    for verdict in summary.failures[:_SHOWN_MAX]:
        print(f"\n{_failure_text(verdict)}")


def _by_event(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return each event with its states, the most frequent first."""
    found: dict[str, list[str]] = defaultdict(list)
    for pair, times in sorted(counts.items(), key=lambda item: -item[1]):
        state, event = pair.split(" ", 1)
        found[event].append(f"{state} {times:,}")
    return [(event, ", ".join(states)) for event, states in sorted(found.items())]


def _print_failure(scenario: Scenario) -> None:
    """Print the options of a failing world and the end of its trace."""
    world, _ = _run_with_progress(scenario)
    texts = scenario.option_texts()
    kinds = {name: texts.pop(name) for name in list(texts) if name.endswith("kinds")}
    print(f"\nseed {scenario.seed}: " + ", ".join(f"{k}={v}" for k, v in texts.items()))
    for name, text in kinds.items():
        print(f"{name}={text}")
    for line in list(format_history(world.history.entries))[-_END_LINES:]:
        print(line)


def _verdict_text(verdict: Verdict) -> str:
    if verdict.rule is None:
        return f"seed {verdict.seed}: no rule is broken"
    broken = f"seed {verdict.seed} breaks {verdict.rule}: {verdict.description}"
    return f"{broken}\n  run again: {verdict.command}"


def _failure_text(verdict: Verdict) -> str:
    """Return a failure with the commands that explain it."""
    trace_command = verdict.command.replace("run --seed-from", "trace").replace(" --seeds 1", "")
    shrink_command = trace_command.replace("trace", "shrink")
    return f"{_verdict_text(verdict)}\n  trace: {trace_command}\n  shrink: {shrink_command}"


def _print_options(scenario: Scenario) -> None:
    for name, text in scenario.option_texts().items():
        print(f"# {name} = {text}")
    for at, step in enumerate(scenario.plan):
        mark = "" if scenario.kept is None or at in scenario.kept else " (left out)"
        print(f"# step {at}: {step.kind} at {step.at_ms / 1000:.3f}{mark}")

"""``partage lab run --grid``: the same seeds with each combination of option values."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

import msgspec

from partage.console.common.errors import CommandError, usage_error
from partage.console.common.output import ProgressBar, ignore_closed_output, print_json
from partage.console.common.signals import SigtermAsInterrupt
from partage.console.common.table import print_table
from partage.lab.runner import Verdict
from partage.lab.swarm import Summary, WorkerKilledError
from partage.lab.sweep import expand_combinations, format_combination, parse_grid

#: Runs seeds with changed options, and yields the verdicts.
SeedRunner = Callable[[Mapping[str, str]], Generator[Verdict]]


class CombinationSummary(Summary, kw_only=True):
    """The verdicts of one combination of option values."""

    options: dict[str, str]


class SweepReport(msgspec.Struct, frozen=True, kw_only=True):
    """Output of ``partage lab run --grid ... --json``."""

    combinations: list[CombinationSummary]


def parse_combinations(
    texts: Sequence[str], seeds: Sequence[int], fixed: Mapping[str, str]
) -> list[dict[str, str]]:
    """Return the combinations of ``--grid``.

    Raises:
        CommandError: The grid is invalid, or a combination is impossible.
    """
    try:
        return expand_combinations(parse_grid(texts), seeds, fixed)
    except ValueError as error:
        raise usage_error(str(error)) from None


def run_sweep(
    combinations: Sequence[dict[str, str]],
    fixed: Mapping[str, str],
    worlds: int,
    run: SeedRunner,
    killed_error: Callable[[Sequence[int], Mapping[str, str]], CommandError],
) -> tuple[SweepReport, CommandError | None]:
    """Run all combinations with a progress bar on stderr.

    Args:
        combinations: The combinations.
        fixed: Options that are the same in all combinations.
        worlds: The worlds of each combination.
        run: Runs the worlds of one combination.
        killed_error: Returns the error for a killed process, from the seeds and their options.

    Returns:
        The report, and the error that ended the run early. The combination in which it ended has
        the worlds so far.
    """
    summaries: list[CombinationSummary] = []
    total, done = worlds * len(combinations), 0
    try:
        with SigtermAsInterrupt(), ProgressBar("worlds", total) as drawn:
            for combination in combinations:
                changes = {**fixed, **combination}
                summary = CombinationSummary(options=combination)
                summaries.append(summary)
                for verdict in run(changes):
                    summary.add(verdict)
                    done += 1
                    drawn.update(f"{done:,} of {total:,}, {format_combination(combination)}", done)
    except WorkerKilledError as killed:
        return SweepReport(combinations=summaries), killed_error(killed.seeds, changes)
    except KeyboardInterrupt:
        stopped = CommandError(f"stopped after {done:,} of {total:,} worlds", 130)
        return SweepReport(combinations=summaries), stopped
    return SweepReport(combinations=summaries), None


def print_sweep(report: SweepReport, json: bool, format_failure: Callable[[Verdict], str]) -> None:
    """Print one row for each combination, and the first failure of each."""
    with ignore_closed_output():
        if json:
            print_json(report)
            return
        names = list(report.combinations[0].options)
        heads = ["WORLDS", "GENERATIONS", "REQUESTS", "FAULTS", "BROKEN"]
        print_table(
            [*map(str.upper, names), *heads],
            [
                (
                    *each.options.values(),
                    f"{each.worlds:,}",
                    f"{each.generations:,}",
                    f"{each.requests:,}",
                    f"{sum(each.faults.values()):,}",
                    len(each.failures),
                )
                for each in report.combinations
            ],
            right=heads,
        )
        for each in report.combinations:
            for verdict in each.failures[:1]:
                print(f"\n{format_failure(verdict)}")

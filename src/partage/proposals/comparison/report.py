"""The report of a comparison, as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from statistics import median_low
from typing import Final

import msgspec

from partage.proposals.comparison.cell import CellResult, PhaseResult, Workload
from partage.proposals.comparison.claim import Claim
from partage.proposals.comparison.cost_model import CostModels
from partage.proposals.comparison.cost_report import format_cost_models
from partage.proposals.comparison.grid import PARAMETERS, SOCKET_DEFAULTS, cell_command
from partage.proposals.comparison.plots import Plot
from partage.proposals.comparison.report_texts import (
    ABOUT_CLAIMS,
    ABOUT_CPU,
    ABOUT_FINDINGS,
    ABOUT_PLOTS,
    ABOUT_SOCKETS,
    COLUMN_TEXTS,
    PHASE_TEXTS,
)
from partage.proposals.comparison.seed_medians import (
    SeededResults,
    group_by_seed,
    median_phase,
    stable_seconds,
)
from partage.proposals.designs.finding_worlds import SEEDS, FindingWorld, findings_of
from partage.statemachine.pages import join_blocks, section, table

_HEAD: Final = ("design", "phase", *COLUMN_TEXTS)
_TITLE_PARAMETERS: Final = frozenset({"members", "partitions", "metadata_kb", "seed"})


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a comparison: the output of ``partage lab compare --json``.

    ``machine`` describes the machine at the end of the run. ``further_cells`` only serve the cost
    models, and the report has no tables of them. ``claims``, ``findings`` and ``cost_models`` need
    their options.
    """

    machine: str = ""
    cells: list[CellResult] = []
    further_cells: list[CellResult] = []
    socket_cells: list[CellResult] = []
    claims: list[Claim] = []
    findings: list[FindingWorld] = []
    cost_models: CostModels | None = None

    @property
    def designs(self) -> list[str]:
        """The designs and variants of all cells."""
        names = (each.workload.design for each in (*self.cells, *self.socket_cells))
        return list(dict.fromkeys(names))


#: Declaration for the tests of the documentation, see tests/docs/page_examples.py.
NOT_RUN: Final = (
    "<!-- examples: not run: they take minutes; "
    "tests/console/test_lab_compare.py runs small cells -->"
)


def format_report(comparison: Comparison, plots: Sequence[Plot] = ()) -> str:
    """Return the report.

    Args:
        comparison: The results, with cells in any order.
        plots: The plots to which the report links; see `picture_address`.
    """
    blocks = [
        "# Comparison of the designs",
        "One workload ran through each design in the simulator. CPU times depend on the machine; "
        "all other figures of the simulator depend on the seed only. With several seeds, a figure "
        "is their median, and two columns have the range in parentheses.",
        NOT_RUN,
        f"{ABOUT_CPU} ({comparison.machine})." if comparison.machine else "",
        section(
            "Phases and columns",
            "A cell runs one design through the phases of a workload, one after the other. The "
            "parentheses have the parameter of the grid and its default.",
            table(("phase", "what happens"), PHASE_TEXTS.items()),
            table(("column", "meaning"), COLUMN_TEXTS.items()),
        ),
    ]
    if comparison.claims:
        rows = [(each.title, f"**{each.verdict}**") for each in comparison.claims]
        overview = table(("claim", "verdict"), rows)
        claims = map(_claim, comparison.claims)
        blocks.append(section("Claims of the documents", ABOUT_CLAIMS, overview, *claims))
    if comparison.cost_models is not None:
        blocks.append(format_cost_models(comparison.cost_models))
    if plots:
        blocks.append(section("Plots", ABOUT_PLOTS, *map(_picture, plots)))
    if comparison.cells:
        blocks.append(section("Measurements", *_groups(comparison.cells)))
    if comparison.socket_cells:
        tables = _groups(comparison.socket_cells, is_over_sockets=True)
        blocks.append(section("Over sockets", ABOUT_SOCKETS, *tables))
    blocks.append(section("Guarantees that a design cannot give", *_findings(comparison)))
    return join_blocks(*blocks)


def picture_address(plot: Plot) -> str:
    """Return the address of a plot's file, relative to the report."""
    return f"pictures/comparison-{plot.metric.name}.svg"


def _picture(plot: Plot) -> str:
    metric = plot.metric
    text = f"### {metric.title}\n\n![{metric.title} against members]({picture_address(plot)})"
    if plot.omitted:
        text += (
            f"\n\nThe plot has the first {len(plot.rows)} combinations of the other parameters; "
            f"the tables have {plot.omitted} more."
        )
    return text


def _claim(claim: Claim) -> str:
    return join_blocks(
        f"### {claim.title}: {claim.verdict}",
        f"> {claim.statement}",
        f"**Measured.** {claim.setup}",
        table(("figure", "value"), claim.figures),
        f"**Rule.** {claim.rule}",
        f"**Verdict: {claim.verdict}.** {claim.explanation}",
    )


def _groups(results: Iterable[CellResult], *, is_over_sockets: bool = False) -> list[str]:
    """Return one table for each combination of parameters."""
    by_parameters: dict[str, list[SeededResults]] = {}
    titled = [
        (cell_title(each, is_over_sockets=is_over_sockets), each) for each in group_by_seed(results)
    ]
    for title, group in sorted(titled, key=lambda each: (each[1].workload.members, each[0])):
        by_parameters.setdefault(title, []).append(group)
    blocks = []
    for title, cells in by_parameters.items():
        rows = [_row(cell.workload.design, phases) for cell in cells for phases in cell.phases()]
        commands = [
            cell_command(
                each.workload,
                seeds=each.seeds if len(each.seeds) > 1 else (),
                is_over_sockets=is_over_sockets,
            )
            for each in cells
        ]
        blocks += [
            f"### {title}",
            table(_HEAD, rows, _HEAD[2:]),
            "\n".join(("To run one design again:", "", "```sh", *commands, "```")),
        ]
        broken = [
            f"- {each.workload.design}: {rule}" for each in cells for rule in each.broken_rules
        ]
        if broken:
            blocks += ["Guarantees that did not hold:", "\n".join(broken)]
    return blocks


def cell_title(cells: SeededResults, *, is_over_sockets: bool = False) -> str:
    """Return the parameters of a cell without its design."""
    cell = cells.workload
    defaults = msgspec.structs.asdict(Workload(design=cell.design))
    if is_over_sockets:
        defaults |= SOCKET_DEFAULTS
    further = [
        f", {name} = {value:g}"
        for name in PARAMETERS
        if name not in _TITLE_PARAMETERS and (value := getattr(cell, name)) != defaults[name]
    ]
    return (
        f"{cell.members:,} members{' over sockets' * is_over_sockets}, "
        f"{cell.partition_count:,} partitions, {cell.metadata_kb:g} KB of metadata, "
        f"seed{'s' * (len(cells.seeds) > 1)} {', '.join(map(str, cells.seeds))}{''.join(further)}"
    )


def _row(design: str, phases: Sequence[PhaseResult]) -> tuple[str, ...]:
    """Return the medians of a phase, and the ranges of the times."""
    phase = median_phase(phases)
    return (
        design,
        phase.phase,
        _with_range([stable_seconds(each) for each in phases], _stable_text),
        f"{phase.counted_s:.2f} s",
        f"{phase.messages:,}",
        f"{phase.bytes:,}",
        f"{phase.coordinator_cpu_ms:,.1f} ms",
        _with_range([each.unread_partition_s for each in phases], "{:,.1f}".format),
        f"{phase.moved_partitions:,}",
        f"{phase.duplicate_records:,}",
        str(phase.round_trips),
    )


def _stable_text(seconds: float) -> str:
    return "never" if seconds == inf else f"{seconds:.2f} s"


def _with_range(values: Sequence[float], to_text: Callable[[float], str]) -> str:
    """Return the median, and the smallest and largest value if they are other values."""
    low, middle, high = map(to_text, (min(values), median_low(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


def _findings(comparison: Comparison) -> list[str]:
    """Return the findings: with their worlds if these were searched, otherwise as a list."""
    if comparison.findings:
        return [ABOUT_FINDINGS, *map(_finding, comparison.findings)]
    lines = [
        f"- {name}, {_terms(finding.rules, finding.faults)}: {finding.reason}"
        for name in comparison.designs
        for finding in findings_of(name)
    ]
    return ["\n".join(lines) or "None is known."]


def _terms(rules: Sequence[str], faults: Sequence[str]) -> str:
    under = f"after a {' or '.join(faults)}" if faults else "without a fault"
    return f"rule{'s' * (len(rules) > 1)} {', '.join(rules)}, {under}"


def _finding(found: FindingWorld) -> str:
    finding, world = found.finding, found.world
    blocks = [
        f"### {found.design}, {_terms(finding.rules, finding.faults)}",
        finding.reason,
    ]
    if world is None:
        return join_blocks(*blocks, f"None of the {len(set(SEEDS))} searched worlds shows it.")
    steps = "\n".join(f"- {step}" for step in world.steps) or "- none"
    return join_blocks(
        *blocks,
        f"Seed {world.seed} breaks the rule “{world.rule}” with these steps, at their seconds:",
        steps,
        f"{world.description}.",
        f"```sh\n{world.command}\n```",
    )

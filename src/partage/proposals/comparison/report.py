"""The report of a comparison, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from partage.proposals.comparison.cell import CellResult, PhaseResult, Workload
from partage.proposals.comparison.claim import Claim
from partage.proposals.comparison.grid import PARAMETERS, cell_command
from partage.proposals.comparison.plots import Plot
from partage.proposals.designs.catalog import find_design
from partage.proposals.join_group.settings import CoordinatorSettings, MemberSettings
from partage.statemachine.pages import join_blocks, section, table

_ABOUT_PLOTS: Final = (
    "Each line is a design. A panel has one phase of the workload. A point is missing if the group "
    "did not become stable. Axes are logarithmic where the figures differ much."
)
_TITLE_PARAMETERS: Final = frozenset({"members", "partitions", "metadata_kb", "seed"})
_HEAD: Final = (
    "design",
    "phase",
    "stable after",
    "messages",
    "bytes",
    "coordinator CPU",
    "partition-seconds unread",
    "moved",
    "read again",
    "round trips",
)


def format_report(
    results: Sequence[CellResult],
    claims: Sequence[Claim],
    *,
    plots: Sequence[Plot] = (),
    sections: Sequence[str] = (),
) -> str:
    """Return the report.

    Args:
        results: The cells, in any order.
        claims: The measured claims; none if they were not measured.
        plots: The plots to which the report links; see `picture_address`.
        sections: Further sections in Markdown, after the claims.
    """
    blocks = [
        "# Comparison of the designs",
        "One workload ran through each design in the simulator. Sizes are those on the wire. CPU "
        "times are those of the coordinator's state machine on the machine that made this report; "
        "all other figures depend on the seed only.",
    ]
    if claims:
        blocks.append(section("Claims of the documents", *map(_claim, claims)))
    blocks += sections
    if plots:
        blocks.append(section("Plots", _ABOUT_PLOTS, *map(_picture, plots)))
    blocks.append(section("Measurements", *_groups(results)))
    blocks.append(section("Guarantees that a design cannot give", _findings(results)))
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
        table(("figure", "value"), claim.figures),
        claim.explanation,
    )


def _groups(results: Iterable[CellResult]) -> list[str]:
    """Return one table for each combination of parameters."""
    by_parameters: dict[str, list[CellResult]] = {}
    for result in sorted(results, key=lambda each: (each.workload.members, cell_title(each))):
        by_parameters.setdefault(cell_title(result), []).append(result)
    blocks = []
    for title, cells in by_parameters.items():
        rows = [_row(cell, phase) for cell in cells for phase in cell.phases]
        blocks += [f"### {title}", table(_HEAD, rows, _HEAD[2:])]
        commands = [cell_command(cell.workload) for cell in cells]
        blocks.append("\n".join(("To run one design again:", "", "```sh", *commands, "```")))
        broken = [
            f"- {cell.workload.design}: {rule}" for cell in cells for rule in cell.broken_rules
        ]
        blocks.append("\n".join(broken))
    return blocks


def cell_title(result: CellResult) -> str:
    """Return the parameters of a cell without its design."""
    cell = result.workload
    defaults = Workload(design=cell.design)
    further = [
        f", {name} = {value:g}"
        for name in PARAMETERS
        if name not in _TITLE_PARAMETERS
        and (value := getattr(cell, name)) != getattr(defaults, name)
    ]
    return (
        f"{cell.members:,} members, {cell.partition_count:,} partitions, "
        f"{cell.metadata_kb:g} KB of metadata, seed {cell.seed}{''.join(further)}"
    )


def _row(cell: CellResult, phase: PhaseResult) -> tuple[str, ...]:
    stable = "never" if phase.stable_after_s is None else f"{phase.stable_after_s:.2f} s"
    return (
        cell.workload.design,
        phase.phase,
        stable,
        f"{phase.messages:,}",
        f"{phase.bytes:,}",
        f"{phase.coordinator_cpu_ms:,.0f} ms",
        f"{phase.unread_partition_s:,.1f}",
        f"{phase.moved_partitions:,}",
        f"{phase.duplicate_records:,}",
        str(phase.round_trips),
    )


def _findings(results: Iterable[CellResult]) -> str:
    names = dict.fromkeys(each.workload.design for each in results)
    lines = []
    for name in names:
        design = find_design(name)(CoordinatorSettings(), MemberSettings(group_id="g"))
        lines += [
            f"- {name}, rules {', '.join(finding.rules)}, after a {' or '.join(finding.faults)}: "
            f"{finding.reason}"
            for finding in design.findings
        ]
    return "\n".join(lines) or "None is known."

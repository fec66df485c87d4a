"""The report of the cost models: formulas with their errors, and extrapolations."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from partage.proposals.comparison.cost_model import (
    ERROR_MAX,
    PHASES,
    CostModel,
    CostModels,
    Quantity,
    Size,
)
from partage.statemachine.pages import join_blocks, section, table


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Coordinators with groups of one size.

    Attributes:
        groups: The groups on each coordinator.
        group_members: The members of each group, which read two partitions each.
        coordinators: The numbers of coordinators for which the report has the sum.
    """

    groups: int
    group_members: int
    coordinators: tuple[int, ...]

    @property
    def members(self) -> int:
        """The members of each coordinator."""
        return self.groups * self.group_members


#: 10,000 members on 10 coordinators and 100,000 on 100, in groups of two sizes, then in one group.
SCENARIOS: Final = (
    Scenario(groups=1, group_members=1_000, coordinators=(10, 100)),
    Scenario(groups=10, group_members=100, coordinators=(10, 100)),
    Scenario(groups=1, group_members=10_000, coordinators=(1,)),
    Scenario(groups=1, group_members=100_000, coordinators=(1,)),
)

_UNITS: Final = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB"))


def format_cost_models(models: CostModels) -> str:
    """Return the section of a report: the models with their errors, and the extrapolations."""
    smallest, largest = models.smallest, models.largest
    doubtful = [each for each in models.models if not each.is_valid]
    return section(
        "Cost model",
        f"The figures of a group as functions of its size, fitted from {models.cells} cells with "
        f"{smallest.members:,} to {largest.members:,} members, {smallest.partitions:,} to "
        f"{largest.partitions:,} partitions and {smallest.metadata_kb:g} to "
        f"{largest.metadata_kb:g} KB of metadata. A term stays only if it reduces the error "
        "clearly, and no coefficient is negative.",
        f"For the errors, {models.held_out} cells were held out: the largest ones of each design, "
        "and a random quarter of the others. A fit to the remaining cells predicts them. The "
        "formula is that of a fit to all cells.",
        _doubts(doubtful, len(models.models)),
        *itertools.starmap(_models_of_phase, ((models, phase) for phase in PHASES)),
        "### Extrapolations",
        "Each member has two partitions. ± is the worst error on unseen cells; “?” marks an error "
        f"above {ERROR_MAX:.0%}. Beyond the measured range the error may be larger. "
        "The costs of several groups are added, and CPU is that of the state machine on "
        "this machine.",
        "A group has one coordinator. The first design elects one for the whole cluster, although "
        "its introduction spreads the groups over all brokers. With it, each coordinator here "
        "stands for a cluster.",
        *(_scenario(models, each) for each in SCENARIOS),
    )


def _doubts(doubtful: Sequence[CostModel], count: int) -> str:
    if not doubtful:
        return f"All {count} models predict each unseen cell with an error below {ERROR_MAX:.0%}."
    names = ", ".join(f"{each.design} ({each.phase}, {each.quantity})" for each in doubtful)
    return (
        f"{len(doubtful)} of {count} models are wrong by more than {ERROR_MAX:.0%} on an unseen "
        f"cell. Do not rely on their extrapolations: {names}."
    )


def _models_of_phase(models: CostModels, phase: str) -> str:
    rows = [
        (
            each.design,
            each.quantity,
            format_formula(each.coefficients),
            *(
                f"{error:.1%}"
                for of in (each.largest, each.random)
                for error in (of.median, of.worst)
            ),
        )
        for each in models.models
        if each.phase == phase
    ]
    head = (
        "design",
        "figure",
        "model",
        "largest cells: median error",
        "worst",
        "random cells: median error",
        "worst",
    )
    return join_blocks(f"### Cost model: {PHASES[phase]}", table(head, rows))


def format_formula(coefficients: Mapping[str, float]) -> str:
    """Return a model as text."""
    parts = [
        _number(factor) if term == "1" else f"{_number(factor)}·{term}"
        for term, factor in coefficients.items()
    ]
    return " + ".join(parts) or "none"


def _number(value: float) -> str:
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"


def _scenario(models: CostModels, scenario: Scenario) -> str:
    if scenario.coordinators == (1,):
        title = f"{scenario.members:,} members in one group on one coordinator"
    else:
        groups = "one group" if scenario.groups == 1 else f"{scenario.groups:,} groups"
        clusters = " or ".join(
            f"{count * scenario.members:,} members on {count:,}" for count in scenario.coordinators
        )
        title = f"{clusters} coordinators, {groups} of {scenario.group_members:,} on each"
    sizes = sorted({models.smallest.metadata_kb, models.largest.metadata_kb})
    designs = list(dict.fromkeys(each.design for each in models.models))
    rows = [
        _scenario_row(models, design, scenario, metadata_kb)
        for design in designs
        for metadata_kb in sizes
    ]
    head = (
        "design",
        "metadata",
        "messages/s when stable",
        "bytes/s when stable",
        "share of a core when stable",
        "bytes of a join",
        "CPU of a join",
        "bytes to form",
        *(f"the same, {count:,} coordinators" for count in scenario.coordinators if count > 1),
    )
    return join_blocks(f"#### {title}", _range(models, scenario), table(head, rows))


def _range(models: CostModels, scenario: Scenario) -> str:
    """Return whether the groups of a scenario are extrapolations."""
    times = scenario.group_members / models.largest.members
    if times > 1:
        return (
            f"Extrapolation: the groups are {times:.3g} times as large as the largest measured "
            "one. For each coordinator:"
        )
    if scenario.group_members < models.smallest.members:
        return "Extrapolation: the groups are smaller than all measured ones. For each coordinator:"
    return (
        "The size of the groups is in the measured range; only the sums are extrapolations. For "
        "each coordinator:"
    )


def _scenario_row(
    models: CostModels, design: str, scenario: Scenario, metadata_kb: float
) -> tuple[str, ...]:
    size = Size(
        members=scenario.group_members,
        partitions=2 * scenario.group_members,
        metadata_kb=metadata_kb,
    )

    def cell(phase: str, quantity: Quantity, count: int, text: Callable[[float], str]) -> str:
        model = models.find(design, phase, quantity)
        if model is None:
            return "not measured"
        error = "<1%" if model.worst_error < 0.01 else f"{model.worst_error:.0%}"
        doubt = "" if model.is_valid else " ?"
        return f"{text(count * model.predict(size))} ± {error}{doubt}"

    groups = scenario.groups
    return (
        design,
        f"{metadata_kb:g} KB",
        cell("steady", Quantity.MESSAGES, groups, "{:,.0f}".format),
        cell("steady", Quantity.BYTES, groups, _bytes),
        cell("steady", Quantity.CPU_MS, groups, lambda cpu_ms: f"{cpu_ms / 1000:.1%}"),
        cell("join", Quantity.BYTES, 1, _bytes),
        cell("join", Quantity.CPU_MS, 1, "{:,.0f} ms".format),
        cell("form", Quantity.BYTES, groups, _bytes),
        *(
            cell("form", Quantity.BYTES, groups * count, _bytes)
            for count in scenario.coordinators
            if count > 1
        ),
    )


def _bytes(value: float) -> str:
    for unit, name in _UNITS:
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.0f} B"

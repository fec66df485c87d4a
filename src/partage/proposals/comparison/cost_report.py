"""The report of the cost models: formulas with their errors, and extrapolations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from partage.proposals.comparison.cost_model import (
    ERROR_MAX,
    PHASES,
    RANGE_MAX,
    CostModel,
    CostModels,
    Quantity,
    Size,
)
from partage.statemachine.pages import join_blocks, section, table


class CostScenario(msgspec.Struct, frozen=True, kw_only=True):
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
    CostScenario(groups=1, group_members=1_000, coordinators=(10, 100)),
    CostScenario(groups=10, group_members=100, coordinators=(10, 100)),
    CostScenario(groups=1, group_members=10_000, coordinators=(1,)),
    CostScenario(groups=1, group_members=100_000, coordinators=(1,)),
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
        "clearly, and no coefficient is negative. CPU is that of the state machine on this "
        "machine, from one run of each cell.",
        _validation(models),
        _doubts(doubtful, len(models.models)),
        *itertools.starmap(_models_of_phase, ((models, phase) for phase in PHASES)),
        "### Extrapolations",
        f"Each member has two partitions. ± is the worst error of the model on unseen cells; “?” "
        f"marks an error above {ERROR_MAX:.0%}. For groups in the range of the fit, the unseen "
        "cells are the held-out ones, otherwise the larger ones too. Beyond "
        f"{RANGE_MAX} times the largest measured group no error is known: the table has the order "
        "of magnitude (~, a power of ten) with the term that dominates the model. The costs of "
        "several groups are added.",
        "A group has one coordinator. The first design elects one for the whole cluster, although "
        "its introduction spreads the groups over all brokers. With it, each coordinator here "
        "stands for a cluster.",
        *(_scenario(models, each) for each in SCENARIOS),
    )


def _validation(models: CostModels) -> str:
    """Return how the models were validated."""
    text = (
        f"For the errors, {models.held_out} cells were held out: the largest ones of each design, "
        "and a random quarter of the others. A fit to the remaining cells predicts them. The "
        "formula is that of a fit to all cells of the grid."
    )
    if models.unseen_members is None:
        return f"{text} No larger groups were measured."
    times = models.unseen_members / models.largest.members
    return (
        f"{text} It also predicts {models.unseen_cells} cells with groups of "
        f"{models.unseen_members:,} members, {times:.3g} times the largest size of the fit."
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
            "not measured" if each.unseen is None else f"{each.unseen.worst:.1%}",
        )
        for each in models.models
        if each.phase == phase
    ]
    larger = "larger" if models.unseen_members is None else f"{models.unseen_members:,}-member"
    head = (
        "design",
        "figure",
        "model",
        "largest cells of the fit: median error",
        "worst",
        "random cells: median error",
        "worst",
        f"{larger} cells: worst error",
    )
    return join_blocks(f"### Cost model: {PHASES[phase]}", table(head, rows, head[3:]))


def format_formula(coefficients: Mapping[str, float]) -> str:
    """Return a model as text."""
    parts = [
        _number(factor) if term == "1" else f"{_number(factor)}·{term}"
        for term, factor in coefficients.items()
    ]
    return " + ".join(parts) or "none"


def _number(value: float) -> str:
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"


def _scenario(models: CostModels, scenario: CostScenario) -> str:
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
    return join_blocks(f"#### {title}", _range(models, scenario), table(head, rows, head[2:]))


def _range(models: CostModels, scenario: CostScenario) -> str:
    """Return how far the groups of a scenario are from the measured ones."""
    members = scenario.group_members
    measured = max(models.largest.members, models.unseen_members or 0)
    if members < models.smallest.members:
        text = "The groups are smaller than all measured ones."
    elif members <= models.largest.members:
        text = (
            "The size of the groups is in the range of the fit; only the sums are extrapolations."
        )
    elif members <= measured:
        text = "The groups are larger than those of the fit, but not than the largest measured one."
    else:
        text = (
            f"Extrapolation: the groups are {members / measured:.3g} times as large as the largest "
            "measured one."
        )
    return f"{text} For each coordinator:"


def _scenario_row(
    models: CostModels, design: str, scenario: CostScenario, metadata_kb: float
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
        value = count * model.predict(size)
        error = models.error_of(model, size.members)
        if error is None:
            magnitude = 10.0 ** round(math.log10(value)) if value > 0 else 0.0
            return f"~{text(magnitude)}, {model.dominant_term(size)}"
        rounded = "<1%" if error < 0.01 else f"{error:.0%}"
        return f"{text(value)} ± {rounded}{' ?' if error > ERROR_MAX else ''}"

    groups = scenario.groups
    return (
        design,
        f"{metadata_kb:g} KB",
        cell("steady", Quantity.MESSAGES, groups, "{:,.0f}".format),
        cell("steady", Quantity.BYTES, groups, _bytes),
        cell("steady", Quantity.CPU_MS, groups, lambda cpu_ms: _percent(cpu_ms / 1000)),
        cell("join", Quantity.BYTES, 1, _bytes),
        cell("join", Quantity.CPU_MS, 1, "{:,.0f} ms".format),
        cell("form", Quantity.BYTES, groups, _bytes),
        *(
            cell("form", Quantity.BYTES, groups * count, _bytes)
            for count in scenario.coordinators
            if count > 1
        ),
    )


def _percent(share: float) -> str:
    return f"{share:.2%}" if share < 0.1 else f"{share:.0%}"


def _bytes(value: float) -> str:
    for unit, name in _UNITS:
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.0f} B"

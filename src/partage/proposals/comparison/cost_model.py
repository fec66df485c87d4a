"""A cost model for each design: fitted from cells, and validated on unseen cells.

A figure of a phase is a sum of terms with coefficients of at least zero, such as
``120 · members + 0.5 · members²``. The terms follow from the messages of the design. The fit
minimizes the relative errors, so that small groups count as much as large ones.

Three kinds of cells validate a model: the largest cells of the grid and random ones, by a fit to
the others, and cells of larger groups, which no fit has seen.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from random import Random
from typing import Final, NamedTuple

import msgspec

from partage.proposals.comparison.cell import CellResult, PhaseResult, Workload

#: The grid from which the command fits the models if the user gives none.
COST_GRID: Final[Mapping[str, Sequence[float]]] = {
    "members": (10, 30, 100, 300, 1_000),
    # More than the members: if a new member gets no partition, no design has to rebalance fully.
    "partitions": (0, 5_000),
    "metadata_kb": (0, 10),
}

#: The phases of cells that only serve the models.
COST_PHASES: Final = ("steady", "join")

#: The default size of the groups that no fit has seen.
UNSEEN_MEMBERS: Final = 5_000

#: An error is given for groups up to this many times the largest measured one.
RANGE_MAX: Final = 3

#: A model with a larger error on an unseen cell is marked as doubtful.
ERROR_MAX: Final = 0.5

_MEMBER_COUNTS_MIN: Final = 4
_HELD_OUT_SHARE: Final = 4  # one of four cells, besides the largest ones
#: Relative errors below this are rounding; the fit does not add terms to reduce them.
_ROUNDING: Final = 1e-5
#: Columns whose angle has a smaller squared sine cannot be told apart.
_COLLINEAR: Final = 1e-9
#: The parameters in which the cells of a design may differ.
_VARIABLES: Final = frozenset({"members", "partitions", "metadata_kb", "seed", "phases"})


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a group; ``metadata_kb`` is the user data of each member."""

    members: int
    partitions: int
    metadata_kb: float


class Quantity(StrEnum):
    """A modelled figure of a phase. The messages are those through the coordinator."""

    BYTES = "bytes"
    MESSAGES = "messages"
    CPU_MS = "CPU in ms"


#: The terms of all models, by their names in the report.
TERMS: Final[Mapping[str, Callable[[Size], float]]] = {
    "1": lambda size: 1,
    "members": lambda size: size.members,
    "members·log2(members)": lambda size: size.members * math.log2(size.members),
    "members²": lambda size: size.members**2,
    "owners": lambda size: min(size.members, size.partitions),
    "partitions": lambda size: size.partitions,
    "partitions·log10(partitions)": lambda size: size.partitions * math.log10(size.partitions),
    "members·KB": lambda size: size.members * size.metadata_kb,
    "members²·KB": lambda size: size.members**2 * size.metadata_kb,
}

_LINEAR: Final = ("1", "members", "owners", "partitions")
#: The members of a generation are one list for all responses, whose encoding is not measured. So
#: no CPU time is quadratic; if an implementation is, the error on the largest cells shows it.
_CPU: Final = (*_LINEAR, "members·log2(members)")
#: The terms of the bytes, by the beginning of the design's name; variants have those of their
#: design. Only members with partitions ("owners") fetch and commit offsets.
_BYTES: Final[Mapping[str, tuple[str, ...]]] = {
    # Without metadata and lists of members; the numbers of partitions are decimal text.
    "broker-side": (*_LINEAR, "partitions·log10(partitions)"),
    # The protocol has no user data.
    "consumer-protocol": _LINEAR,
    # Metadata goes to the coordinator and to the leader.
    "two-phase": (*_LINEAR, "members·KB"),
    # `Joined` has the ids of all members.
    "single-assignor": (*_LINEAR, "members²", "members·KB"),
}
#: Every member gets the metadata of all members. Designs without own terms have these.
_BYTES_FOR_ALL: Final = (*_LINEAR, "members²", "members·KB", "members²·KB")

#: The modelled phases, and what the report calls them.
PHASES: Final[Mapping[str, str]] = {
    "form": "the group forms",
    "steady": "one second of a stable group",
    "join": "a member joins",
}


def terms_of(design: str, quantity: Quantity) -> tuple[str, ...]:
    """Return the terms that the structure of a design allows for a figure."""
    match quantity:
        case Quantity.BYTES:
            known = (terms for name, terms in _BYTES.items() if design.startswith(name))
            return next(known, _BYTES_FOR_ALL)
        case Quantity.MESSAGES:
            return _LINEAR
        case Quantity.CPU_MS:
            return _CPU


class HoldOutErrors(msgspec.Struct, frozen=True, kw_only=True):
    """Relative errors on cells that a fit has not seen."""

    median: float
    worst: float


class CostModel(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of one phase of a design.

    Attributes:
        design: The design.
        phase: The phase.
        quantity: The figure.
        coefficients: The coefficient of each term that the model has, fitted to all cells.
        largest: The errors on the largest cells, by a fit to smaller ones.
        random: The errors on the other held-out cells, by the same fit.
        unseen: The errors on the cells of larger groups, by the fit to all cells of the grid; null
            if there are none.
    """

    design: str
    phase: str
    quantity: Quantity
    coefficients: dict[str, float]
    largest: HoldOutErrors
    random: HoldOutErrors
    unseen: HoldOutErrors | None

    def predict(self, size: Size) -> float:
        """Return the figure of a group."""
        return predict(self.coefficients, size)

    @property
    def worst_error(self) -> float:
        """The worst relative error on a cell that the fit had not seen."""
        errors = (self.largest, self.random, self.unseen)
        return max(each.worst for each in errors if each is not None)

    def dominant_term(self, size: Size) -> str:
        """Return the term with the largest part of a prediction."""
        return max(
            self.coefficients,
            key=lambda term: self.coefficients[term] * TERMS[term](size),
            default="none",
        )

    @property
    def is_valid(self) -> bool:
        """True if no error on an unseen cell is above `ERROR_MAX`."""
        return self.worst_error <= ERROR_MAX


class CostModels(msgspec.Struct, frozen=True, kw_only=True):
    """The models of all designs, and the range of the cells from which they were fitted.

    Attributes:
        models: The models.
        cells: The cells to which they were fitted.
        held_out: Of these, the cells that were held out for validation.
        smallest: The smallest parameters of these cells.
        largest: Their largest parameters.
        unseen_members: The members of the larger groups that no fit has seen; null if there are
            none.
        unseen_cells: The number of their cells.
    """

    models: list[CostModel]
    cells: int
    held_out: int
    smallest: Size
    largest: Size
    unseen_members: int | None
    unseen_cells: int

    def error_of(self, model: CostModel, members: int) -> float | None:
        """Return the worst error of a model for groups of a size, as a share of the figure.

        Returns:
            None if the groups are more than `RANGE_MAX` times as large as the largest measured
            ones, or smaller than all of them.
        """
        if members < self.smallest.members:
            return None
        if members <= self.largest.members:
            return max(model.largest.worst, model.random.worst)
        measured = max(self.largest.members, self.unseen_members or 0)
        return model.worst_error if members <= RANGE_MAX * measured else None

    def find(self, design: str, phase: str, quantity: Quantity) -> CostModel | None:
        """Return a model, or None if the cells had no such figure."""
        for each in self.models:
            if (each.design, each.phase, each.quantity) == (design, phase, quantity):
                return each
        return None


# The fit


def predict(coefficients: Mapping[str, float], size: Size) -> float:
    """Return the sum of terms with their coefficients."""
    return sum(factor * TERMS[term](size) for term, factor in coefficients.items())


def fit(terms: Sequence[str], points: Sequence[tuple[Size, float]]) -> dict[str, float]:
    """Return non-negative coefficients with small relative errors, by term.

    The best coefficients solve the least-squares problem of some subset of the terms, so all
    subsets are tried. A further term must reduce the errors enough to lower the extended Bayesian
    information criterion (Chen and Chen, 2008). Else a term with a large exponent would follow the
    noise of a few cells, and dominate each extrapolation.

    Args:
        terms: Names of `TERMS`.
        points: Sizes with their figures, which are above zero.
    """
    columns = {term: [TERMS[term](size) / value for size, value in points] for term in terms}
    best: dict[str, float] = {}
    best_criterion = math.inf
    count = len(points)
    penalty = math.log(count) + 2 * math.log(len(terms))
    for number in range(1, len(terms) + 1):
        for subset in itertools.combinations(terms, number):
            factors = _solve([columns[term] for term in subset])
            if factors is None or min(factors) <= 0:
                continue
            squares = sum(
                (sum(map(float.__mul__, factors, row)) - 1) ** 2
                for row in zip(*(columns[term] for term in subset), strict=True)
            )
            error = max(squares / count, _ROUNDING**2)
            criterion = count * math.log(error) + number * penalty
            if criterion < best_criterion:
                best, best_criterion = dict(zip(subset, factors, strict=True)), criterion
    return best


def _solve(columns: Sequence[Sequence[float]]) -> list[float] | None:
    """Return the least-squares factors of columns whose sum shall be 1 in each row.

    Returns:
        None if the columns are not independent.
    """
    # Modified Gram-Schmidt; the right-hand side is one more column.
    basis: list[list[float]] = []
    upper: list[list[float]] = []
    rest = [1.0] * len(columns[0])
    sides: list[float] = []
    for column in columns:
        vector = list(column)
        length = _dot(vector, vector)
        shares = []
        for unit in basis:
            share = _dot(unit, vector)
            shares.append(share)
            vector = [value - share * other for value, other in zip(vector, unit, strict=True)]
        remaining = _dot(vector, vector)
        if remaining <= _COLLINEAR * length:
            return None
        norm = math.sqrt(remaining)
        unit = [value / norm for value in vector]
        basis.append(unit)
        upper.append([*shares, norm])
        side = _dot(unit, rest)
        sides.append(side)
        rest = [value - side * other for value, other in zip(rest, unit, strict=True)]
    factors = [0.0] * len(columns)
    for row in reversed(range(len(columns))):
        later = sum(upper[other][row] * factors[other] for other in range(row + 1, len(columns)))
        factors[row] = (sides[row] - later) / upper[row][row]
    return factors


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return math.fsum(map(float.__mul__, left, right))


# The cells


def check_cost_grid(cells: Iterable[Workload]) -> None:
    """Refuse cells that are too few for a model.

    Raises:
        ValueError: A design lacks cells; the message says which.
    """
    by_design: dict[str, list[Workload]] = {}
    for cell in cells:
        by_design.setdefault(cell.design, []).append(cell)
    if not by_design:
        raise ValueError("a cost model needs cells; the grid has none")
    for design, of_design in by_design.items():
        missing = _missing(of_design)
        if missing:
            raise ValueError(f"the grid is too small for a cost model of {design}: {missing}")


def _missing(cells: Sequence[Workload]) -> str:
    members = sorted({each.members for each in cells})
    metadata = sorted({each.metadata_kb for each in cells})
    ratios = {each.partition_count / each.members for each in cells}
    if any(not {"steady", "join"} <= set(each.phases) for each in cells):
        return 'its cells need the phases "steady" and "join"'
    for name in Workload.__struct_fields__:
        values = {getattr(each, name) for each in cells}
        if name not in _VARIABLES and len(values) > 1:
            return (
                f"its cells have several values of {name}, which is no variable of the model. "
                "Use one value"
            )
    if len(members) < _MEMBER_COUNTS_MIN:
        return (
            f"it has {_join(members)} members; the model needs {_MEMBER_COUNTS_MIN} sizes, of "
            "which it holds out the largest. Add some, such as --grid members=10,30,100,300"
        )
    if len(metadata) < 2:
        return (
            f"all members have {metadata[0]:g} KB of metadata. Add another size, such as "
            "--grid metadata_kb=0,10"
        )
    if len(ratios) < 2:
        return (
            "the partitions grow with the members, so their costs cannot be told apart. Add a "
            "fixed number, such as --grid partitions=0,5000"
        )
    return ""


def _join(values: Iterable[float]) -> str:
    return ", ".join(f"{each:,g}" for each in values)


def fit_cost_models(results: Iterable[CellResult], unseen: Iterable[CellResult] = ()) -> CostModels:
    """Fit and validate the models of all designs in the results.

    The hold-out has the largest cells of each design, and a random quarter of its other cells. The
    same cells are held out in every run.

    Args:
        results: The cells of the grid.
        unseen: Cells of larger groups, which only validate the models.

    Raises:
        ValueError: A design lacks cells, or a cell of larger groups did not become stable.
    """
    larger = list(unseen)
    for each in larger:
        if not _is_usable(each):
            raise ValueError(
                f"the cell of {each.workload.design} with {each.workload.members:,} members, which "
                "validates the cost model, did not become stable"
            )
    by_design: dict[str, list[CellResult]] = {}
    left_out = 0
    for result in results:
        if _is_usable(result):
            by_design.setdefault(result.workload.design, []).append(result)
        else:
            left_out += 1
    try:
        check_cost_grid(cell.workload for cells in by_design.values() for cell in cells)
    except ValueError as error:
        if not left_out:
            raise
        raise ValueError(f"{left_out} cells did not become stable, and {error}") from None
    models = []
    held_out = 0
    for design, cells in by_design.items():
        largest, random = _held_out(cells)
        held_out += len(largest) + len(random)
        for phase, quantity in itertools.product(PHASES, Quantity):
            of_design = [each for each in larger if each.workload.design == design]
            split = _Split(cells, largest, random, of_design)
            model = _fit_model(design, phase, quantity, split)
            if model is not None:
                models.append(model)
    used = [_size(cell.workload) for cells in by_design.values() for cell in cells]
    return CostModels(
        models=models,
        cells=len(used),
        held_out=held_out,
        smallest=_extreme(min, used),
        largest=_extreme(max, used),
        unseen_members=max((each.workload.members for each in larger), default=None),
        unseen_cells=len(larger),
    )


def _is_usable(result: CellResult) -> bool:
    return all(each.is_stable for each in result.phases if each.phase in PHASES)


def _extreme(choose: Callable[[Iterable[float]], float], sizes: Sequence[Size]) -> Size:
    return Size(
        members=int(choose(each.members for each in sizes)),
        partitions=int(choose(each.partitions for each in sizes)),
        metadata_kb=choose(each.metadata_kb for each in sizes),
    )


def _held_out(cells: Sequence[CellResult]) -> tuple[set[Workload], set[Workload]]:
    """Return the largest cells, and random ones of the others."""
    members_max = max(each.workload.members for each in cells)
    workloads = sorted((each.workload for each in cells), key=msgspec.json.encode)
    largest = {each for each in workloads if each.members == members_max}
    others = [each for each in workloads if each not in largest]
    count = max(1, len(others) // _HELD_OUT_SHARE)
    return largest, set(Random("held-out cells").sample(others, count))


class _Split(NamedTuple):
    """The cells of a design: those of the grid, of them the held-out ones, and the larger ones."""

    cells: Sequence[CellResult]
    largest: set[Workload]
    random: set[Workload]
    unseen: Sequence[CellResult]


def _fit_model(design: str, phase: str, quantity: Quantity, split: _Split) -> CostModel | None:
    points = _points(split.cells, phase, quantity)
    terms = terms_of(design, quantity)
    held_out = split.largest | split.random
    seen = [point for cell, point in points if cell not in held_out]
    unseen_largest = [point for cell, point in points if cell in split.largest]
    unseen_random = [point for cell, point in points if cell in split.random]
    if not (seen and unseen_largest and unseen_random):
        return None  # the CPU time was not measured
    validated = fit(terms, seen)
    coefficients = fit(terms, [point for _, point in points])
    larger = [point for _, point in _points(split.unseen, phase, quantity)]
    return CostModel(
        design=design,
        phase=phase,
        quantity=quantity,
        coefficients=coefficients,
        largest=_errors(validated, unseen_largest),
        random=_errors(validated, unseen_random),
        unseen=_errors(coefficients, larger) if larger else None,
    )


def _points(
    cells: Iterable[CellResult], phase: str, quantity: Quantity
) -> list[tuple[Workload, tuple[Size, float]]]:
    """Return the figures that are above zero, each with its cell and size."""
    return [
        (each.workload, (_size(each.workload), value))
        for each in cells
        if (value := _value(each.phase(phase), quantity)) > 0
    ]


def _size(cell: Workload) -> Size:
    return Size(members=cell.members, partitions=cell.partition_count, metadata_kb=cell.metadata_kb)


def _value(phase: PhaseResult, quantity: Quantity) -> float:
    values: dict[Quantity, float] = {
        Quantity.BYTES: phase.bytes,
        Quantity.MESSAGES: phase.messages,
        Quantity.CPU_MS: phase.coordinator_cpu_ms,
    }
    return values[quantity] / (phase.counted_s if phase.phase == "steady" else 1.0)


def _errors(
    coefficients: Mapping[str, float], points: Sequence[tuple[Size, float]]
) -> HoldOutErrors:
    errors = [abs(predict(coefficients, size) / value - 1) for size, value in points]
    return HoldOutErrors(median=statistics.median(errors), worst=max(errors))

"""The cost model of a design: its fit, its validation on unseen cells, and its report."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from random import Random

import pytest

from partage.proposals.comparison.cell import CellResult, PhaseResult, Workload, run_cell
from partage.proposals.comparison.cost_model import (
    COST_GRID,
    CostModels,
    Quantity,
    Size,
    check_cost_grid,
    fit,
    fit_cost_models,
    predict,
    terms_of,
)
from partage.proposals.comparison.cost_report import format_cost_models
from partage.proposals.comparison.grid import expand_grid
from partage.proposals.designs.catalog import DESIGNS, VARIANTS

PHASES = ("steady", "join")
LARGER = Size(members=5_000, partitions=10_000, metadata_kb=10.0)
SIZES = [
    Size(members=members, partitions=partitions, metadata_kb=metadata_kb)
    for members, partitions, metadata_kb in itertools.product(
        (10, 30, 100, 300), (20, 1_000), (0.0, 10.0)
    )
]


def result(size: Size, value: float, *, is_stable: bool = True, cpu_ms: float = 1.0) -> CellResult:
    """Return the result of a cell of multi-assignor with one figure for all bytes."""
    phases = [
        PhaseResult(
            phase=phase,
            is_stable=is_stable,
            stable_after_s=None,
            counted_s=30,
            messages=size.members,
            bytes=round(value),
            bytes_by_message={},
            coordinator_cpu_ms=cpu_ms,
            unread_partition_s=0,
            moved_partitions=0,
            duplicate_records=0,
            round_trips=0,
        )
        for phase in ("form", *PHASES)
    ]
    workload = Workload(
        design="multi-assignor",
        members=size.members,
        partitions=size.partitions,
        metadata_kb=size.metadata_kb,
        phases=PHASES,
    )
    return CellResult(workload=workload, phases=phases, broken_rules=[], double_read_s=0)


def models_of(cost: Callable[[Size], float]) -> CostModels:
    """Return the models of cells whose bytes are a function of their size."""
    return fit_cost_models(result(size, cost(size)) for size in SIZES)


class TestFit:
    @pytest.mark.parametrize(
        "known",
        [
            {"1": 500.0, "members": 120.0},
            {"members": 668.0, "partitions": 60.0, "members²": 67.0, "members²·KB": 1_000.0},
            {"partitions": 3.0, "members·KB": 2_000.0},
        ],
    )
    def test_known_cost_function_is_recovered(self, known: dict[str, float]) -> None:
        terms = terms_of("multi-assignor", Quantity.BYTES)
        found = fit(terms, [(size, predict(known, size)) for size in SIZES])
        assert found == pytest.approx(known, rel=1e-6)

    def test_noise_adds_no_term(self) -> None:
        rng = Random(1)
        points = [(size, 5.0 * size.members * rng.uniform(0.8, 1.2)) for size in SIZES]
        found = fit(terms_of("multi-assignor", Quantity.BYTES), points)
        assert list(found) == ["members"]
        assert found["members"] == pytest.approx(5, rel=0.1)

    def test_coefficients_are_never_negative(self) -> None:
        points = [(size, 1_000_000.0 - 7 * size.members) for size in SIZES]
        assert min(fit(terms_of("single-assignor", Quantity.BYTES), points).values()) > 0

    def test_terms_that_cannot_be_told_apart_are_not_both_used(self) -> None:
        sizes = [Size(members=n, partitions=2 * n, metadata_kb=0) for n in (3, 10, 30, 100)]
        found = fit(("members", "partitions"), [(size, 6.0 * size.members) for size in sizes])
        assert len(found) == 1
        assert predict(found, sizes[0]) == pytest.approx(18)


class TestValidation:
    def test_right_model_has_no_error_on_unseen_cells(self) -> None:
        models = models_of(lambda size: 100 * size.members + 60 * size.partitions)
        model = models.find("multi-assignor", "form", Quantity.BYTES)
        assert model is not None
        assert model.worst_error < 0.001
        assert model.is_valid
        assert (models.cells, models.held_out) == (16, 7)  # 4 largest, 3 of the other 12

    def test_wrong_model_has_a_large_error_on_unseen_cells(self) -> None:
        models = models_of(lambda size: size.members**3)
        model = models.find("multi-assignor", "form", Quantity.BYTES)
        assert model is not None
        assert model.largest.worst > 0.5
        assert not model.is_valid
        page = format_cost_models(models)
        assert "3 of 9 models are wrong by more than 50% on an unseen cell" in page
        assert "multi-assignor (form, bytes)" in page
        assert "% ? |" in page

    def test_same_cells_have_the_same_model_in_any_order(self) -> None:
        rng = Random(2)
        cells = [result(size, size.members * rng.uniform(90, 110)) for size in SIZES]
        assert fit_cost_models(cells) == fit_cost_models(reversed(cells))

    def test_larger_groups_show_the_error_of_a_wrong_model(self) -> None:
        def cost(size: Size) -> float:
            return size.members + (size.members / 500) ** 4  # the last term is small in the fit

        models = fit_cost_models(
            (result(size, 1_000 * cost(size)) for size in SIZES),
            [result(LARGER, 1_000 * cost(LARGER))],
        )
        model = models.find("multi-assignor", "form", Quantity.BYTES)
        assert model is not None
        assert model.unseen is not None
        assert model.largest.worst < 0.01 < 0.5 < model.unseen.worst
        assert model.worst_error == model.unseen.worst
        assert not model.is_valid
        assert models.error_of(model, 9) is None
        assert models.error_of(model, 300) == max(model.largest.worst, model.random.worst)
        assert models.error_of(model, 15_000) == model.unseen.worst
        assert models.error_of(model, 15_001) is None

    def test_larger_groups_are_not_in_the_fit(self) -> None:
        cells = [result(size, 100 * size.members) for size in SIZES]
        alone = fit_cost_models(cells)
        checked = fit_cost_models(cells, [result(LARGER, 7)])
        assert [each.coefficients for each in checked.models] == [
            each.coefficients for each in alone.models
        ]
        assert (alone.unseen_members, checked.unseen_members) == (None, 5_000)

    def test_larger_group_that_is_not_stable_is_named(self) -> None:
        cells = [result(size, size.members) for size in SIZES]
        with pytest.raises(ValueError, match=r"multi-assignor with 5,000 members.* not become"):
            fit_cost_models(cells, [result(LARGER, 1, is_stable=False)])

    def test_unmeasured_cpu_time_has_no_model(self) -> None:
        models = fit_cost_models(result(size, size.members, cpu_ms=0) for size in SIZES)
        assert models.find("multi-assignor", "form", Quantity.CPU_MS) is None
        assert "not measured" in format_cost_models(models)

    def test_cells_that_did_not_become_stable_are_left_out(self) -> None:
        cells = [result(size, size.members, is_stable=size.members < 300) for size in SIZES]
        with pytest.raises(ValueError, match=r"^4 cells did not become stable.*10, 30, 100 m"):
            fit_cost_models(cells)


class TestGrid:
    def test_grid_of_the_command_is_large_enough(self) -> None:
        check_cost_grid(expand_grid([], COST_GRID))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"members": (10, 100)}, r"10, 100 members; .* --grid members=10,30,100,300"),
            ({"metadata_kb": (10.0,)}, r"all members have 10 KB .* --grid metadata_kb=0,10"),
            ({"joining": (1, 5)}, "several values of joining, .* Use one value"),
            ({"partitions": (0,)}, r"grow with the members.* --grid partitions=0,5000"),
        ],
    )
    def test_small_grid_is_refused_with_the_cells_to_add(
        self, changes: dict[str, tuple[float, ...]], message: str
    ) -> None:
        cells = expand_grid(["two-phase-eager"], {**COST_GRID, **changes})
        with pytest.raises(ValueError, match=f"cost model of two-phase-eager: .*{message}"):
            check_cost_grid(cells)

    def test_cells_without_a_modelled_phase_are_refused(self) -> None:
        cells = expand_grid(["two-phase-eager"], COST_GRID, phases=("steady",))
        with pytest.raises(ValueError, match='need the phases "steady" and "join"'):
            check_cost_grid(cells)

    def test_empty_grid_is_refused(self) -> None:
        with pytest.raises(ValueError, match="the grid has none"):
            check_cost_grid([])


class TestReport:
    def test_report_has_formulas_with_their_errors(self) -> None:
        page = format_cost_models(models_of(lambda size: 67 * size.members**2))
        row = "| multi-assignor | bytes | 67·members² | 0.0% | 0.0% | 0.0% | 0.0% | not measured |"
        assert row in page
        assert "No larger groups were measured." in page

    def test_report_has_the_error_for_larger_groups(self) -> None:
        models = fit_cost_models(
            (result(size, 67 * size.members**2) for size in SIZES),
            [result(LARGER, 80 * LARGER.members**2)],
        )
        page = format_cost_models(models)
        assert "5,000 members, 16.7 times the largest size of the fit." in page
        assert "| 67·members² | 0.0% | 0.0% | 0.0% | 0.0% | 16.2% |" in page
        assert "larger than those of the fit, but not than the largest measured one" in page
        assert "| 67 MB ± 16% |" in page  # a group of 1,000 members

    def test_far_extrapolation_is_an_order_of_magnitude(self) -> None:
        page = format_cost_models(models_of(lambda size: 67 * size.members**2))
        assert "10,000 members on 10 or 100,000 members on 100 coordinators" in page
        assert "the groups are 333 times as large as the largest measured one" in page
        (_, far) = page.split("#### 100,000 members in one group on one coordinator")
        assert "| ~1 TB, members² |" in far  # 67 bytes for each pair of 100,000 members: 670 GB
        assert "±" not in far

    def test_sums_are_those_of_groups_and_coordinators(self) -> None:
        page = format_cost_models(models_of(lambda size: 67 * size.members**2))
        row = next(line for line in page.splitlines() if "| 6.7 MB ± <1% | 67 MB" in line)
        assert row.endswith("| 6.7 MB ± <1% | 67 MB ± <1% | 670 MB ± <1% |")  # 10 groups of 100


def small_grid(designs: Iterable[str]) -> list[Workload]:
    grid = {"members": (3, 5, 9, 15), "partitions": (0, 40), "metadata_kb": (0.0, 5.0)}
    return expand_grid(designs, grid, phases=PHASES)


@pytest.mark.parametrize("design", [*DESIGNS, *VARIANTS])
def test_every_design_has_terms_for_each_figure(design: str) -> None:
    assert all(terms_of(design, quantity) for quantity in Quantity)


@pytest.mark.parametrize("design", ["broker-side", "multi-assignor", "two-phase-eager"])
def test_simulated_cells_are_predicted_from_smaller_ones(design: str) -> None:
    models = fit_cost_models(map(run_cell, small_grid([design])))
    for model in models.models:
        # A join lasts less than a heartbeat interval, so the number of its heartbeats varies.
        limit = 0.3 if model.phase == "join" else 0.03
        assert model.quantity is not Quantity.CPU_MS
        assert model.worst_error < limit, model
        assert not any(map(math.isnan, model.coefficients.values()))

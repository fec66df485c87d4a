"""Tests of ``partage lab compare --cost-model``."""

from __future__ import annotations

from pathlib import Path

from .cli import PartageCli

COMPARE = (
    "lab", "compare", "--design", "broker-side", "--jobs", 1, "--cost-model",
    "--unseen-members", 20, "--phase", "steady", "--phase", "join",
)  # fmt: skip
GRID = ("--grid", "members=3,4,5,6", "--grid", "partitions=0,20", "--grid", "metadata_kb=0,1")


def test_report_has_the_cost_model_of_the_grid(partage: PartageCli) -> None:
    report = partage(*COMPARE, *GRID).out
    assert "## Cost model" in report
    assert "fitted from 16 cells with 3 to 6 members" in report
    assert "100,000 members on 100 coordinators" in report


def test_json_has_the_cost_model_of_the_grid(partage: PartageCli) -> None:
    found = partage(*COMPARE, *GRID, "--json").json["cost_models"]
    models = {(each["phase"], each["quantity"]): each for each in found["models"]}
    assert models["form", "messages"]["largest"]["worst"] < 0.01
    assert (found["held_out"], found["unseen_members"]) == (7, 20)
    assert models["form", "messages"]["unseen"]["worst"] < 0.01


def test_small_grid_is_refused_before_anything_runs(partage: PartageCli, tmp_path: Path) -> None:
    ran = partage(*COMPARE, "--grid", "members=3,4", "--output", tmp_path, code=2)
    assert "Add some, such as --grid members=10,30,100,300" in " ".join(ran.err.split())
    assert list(tmp_path.iterdir()) == []


def test_json_without_cost_model_has_null(partage: PartageCli) -> None:
    arguments = [each for each in COMPARE if each != "--cost-model"]
    assert partage(*arguments, "--grid", "members=3", "--json").json["cost_models"] is None

"""Tests of ``partage lab compare``."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from partage.console.app import app
from partage.console.lab import compare
from partage.proposals.comparison.cells import load_results
from partage.proposals.comparison.grid import DEFAULT_GRID, expand_grid
from partage.proposals.comparison.machine_limits import estimate_duration_s
from partage.proposals.designs import finding_worlds
from partage.proposals.designs.catalog import DESIGNS
from polled_conditions import eventually

from .cli import PartageCli

FILES = {"report.html", "report.md", "cells.parquet", "cells.jsonl", "pictures"}
SMALL = ("lab", "compare", "--design", "single-assignor", "--grid", "members=3,4", "--jobs", 1)


def test_interrupted_comparison_continues(partage: PartageCli, tmp_path: Path) -> None:
    partage(*SMALL, "--output", tmp_path)
    whole = (tmp_path / "report.md").read_text()
    lines = (tmp_path / "cells.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == 2
    # as if the run had been killed while it wrote the second result
    (tmp_path / "cells.jsonl").write_bytes(lines[0] + lines[1][:100])
    partage(*SMALL, "--output", tmp_path)
    report = (tmp_path / "report.md").read_text()
    assert _without_cpu(report) == _without_cpu(whole)
    assert len(load_results(tmp_path / "cells.jsonl")) == 2, "a third run continues too"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_stopped_comparison_repeats_no_finished_cell(
    partage: PartageCli, tmp_path: Path, number: signal.Signals
) -> None:
    """SIGINT goes to all processes of the group, as from a terminal."""
    sizes = ("--grid", "members=30,3,4,5,6,7")
    command = ("lab", "compare", "--design", "multi-assignor", *sizes, "--jobs", "1")
    path = tmp_path / "cells.jsonl"
    with partage.drawing(*command, "--output", str(tmp_path)) as (process, drawn):
        eventually(lambda: path.exists() and path.read_bytes().count(b"\n") >= 1)
        os.killpg(process.pid, number) if number == signal.SIGINT else process.kill()
        process.communicate()
    finished = path.read_bytes()
    count = finished.count(b"\n")
    assert 1 <= count < 6, drawn.text
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert f"stopped after {count} of 6 cells. Run the command again to" in drawn.text
    found = partage(*command, "--output", tmp_path, "--json").json["cells"]
    whole = path.read_bytes()
    assert whole.startswith(finished[: finished.rfind(b"\n") + 1])
    assert [each["workload"]["members"] for each in found] == [30, 3, 4, 5, 6, 7]
    assert len(load_results(path)) == whole.count(b"\n") == 6
    assert {each.name for each in tmp_path.iterdir()} == FILES


def _without_cpu(report: str) -> list[list[str]]:
    """Return the cells of all table rows, without the measured CPU time and load."""
    rows = [line.split("|") for line in report.splitlines() if not line.startswith("A CPU time")]
    return [row[:7] + row[8:] if len(row) > 8 else row for row in rows]


def test_json_has_every_cell_and_phase(partage: PartageCli) -> None:
    found = partage(*SMALL, "--json").json
    assert [cell["workload"]["members"] for cell in found["cells"]] == [3, 4]
    assert [phase["phase"] for phase in found["cells"][0]["phases"]][:2] == ["form", "steady"]
    assert found["claims"] == []


def test_output_has_page_report_pictures_and_table(partage: PartageCli, tmp_path: Path) -> None:
    ran = partage(*SMALL, "--output", tmp_path, "--json")
    assert {each.name for each in tmp_path.iterdir()} == FILES
    linked = re.findall(r"!\[.+\]\((.+)\)", (tmp_path / "report.md").read_text())
    assert len(linked) == 8
    assert all((tmp_path / each).read_text().startswith("<svg") for each in linked)
    table = pq.read_table(tmp_path / "cells.parquet").to_pylist()
    phases = [phase for cell in ran.json["cells"] for phase in cell["phases"]]
    assert [(row["phase"], row["bytes"]) for row in table] == [
        (each["phase"], each["bytes"]) for each in phases
    ]
    assert "report.html" in ran.err


def test_printed_command_reproduces_the_figures(partage: PartageCli, tmp_path: Path) -> None:
    grid = ("--grid", "members=4", "--grid", "metadata_kb=0.5", "--grid", "seed=3")
    designs = ("--design", "multi-assignor", "--design", "broker-side")
    ran = partage("lab", "compare", *designs, *grid, "--output", tmp_path, "--json", "--jobs", 1)
    report = (tmp_path / "report.md").read_text()
    commands = re.findall(r"^partage (lab compare .+)$", report, re.MULTILINE)
    assert len(commands) == 2
    again = [partage(*each.split(), "--json").json["cells"][0] for each in commands]
    assert [_figures(each) for each in again] == [_figures(each) for each in ran.json["cells"]]


def _figures(cell: dict[str, Any]) -> dict[str, Any]:
    """Return a result without the measured CPU times."""
    for phase in cell["phases"]:
        del phase["coordinator_cpu_ms"]
    return cell


def test_progress_counts_the_cells(partage: PartageCli) -> None:
    with partage.drawing(*map(str, SMALL), "--json") as (process, drawn):
        process.communicate()
    assert "comparing designs" in drawn.text
    assert "single-assignor, 3 members" in drawn.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--design", "two-phase"), "no design 'two-phase'; did you mean 'two-phase-"),
        (("--design", "x"), "no design 'x'. The designs are: broker-side, "),
        (("--grid", "members=2"), "at least 3 members"),
        (("--grid", "metadata_kb=1000", "--grid", "members=5000"), "bytes of metadata"),
        (("--grid", "session_timeout_ms=100"), "session_timeout_ms=100 is not between 6000 and"),
        (("--grid", "members=10", "--grid", "members=20"), "members is given twice"),
        (("--master", "local[1]"), "add --spark"),
        (("--sockets", "--spark"), "--sockets cannot be combined with --spark"),
        (("--sockets", "--everything"), "--sockets cannot be combined with --spark"),
        (("--phase", "lunch"), "no phase 'lunch'"),
        (("--sockets", "--phase", "slow"), "does not run over sockets"),
        (("--cost-model", "--unseen-members", 1000), "must be above the 1,000 members"),
        (("--sockets", "--grid", "members=500"), "a cell over sockets has 500 members"),
    ],
)
def test_impossible_comparison_is_refused(
    partage: PartageCli, arguments: tuple[str, ...], message: str
) -> None:
    refused = partage("lab", "compare", *arguments, code=2)
    assert message in refused.err


def test_missing_package_is_named_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("matplotlib", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)
    ran = CliRunner().invoke(app, [*map(str, SMALL), "--output", str(tmp_path / "new")])
    assert ran.exit_code != 0
    assert "needs matplotlib, pyarrow: pip install 'partage[arrow,plot]'" in ran.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("parameters", "needed"),
    [
        (("members=10000", "metadata_kb=100"), "8.6 GB"),
        (("members=10000", "metadata_kb=90"), "7.8 GB"),
        (("members=2000", "topics=4000"), "5.8 GB"),
    ],
)
def test_cells_beyond_the_memory_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, parameters: tuple[str, ...], needed: str
) -> None:
    monkeypatch.setattr(compare, "available_memory_bytes", lambda: 2_000_000_000)
    arguments = ["--design", "multi-assignor", "--output", str(tmp_path)]
    arguments += [word for each in parameters for word in ("--grid", each)]
    ran = CliRunner().invoke(app, ["lab", "compare", *arguments])
    assert ran.exit_code == 2
    assert f"needs about {needed}, but 2.0 GB of memory are available" in ran.stderr
    assert not list(tmp_path.iterdir())


def test_estimate_is_that_of_the_cells_without_a_result(
    partage: PartageCli, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = partage(*SMALL, "--json").json["cells"][0]
    plan = compare._plan([result["workload"]["design"]], {"members": (1_000, 2_000)}, None, None)
    compare._print_estimate(plan, None, jobs=1)
    assert re.fullmatch(r"2 cells: about \d+ s on 1 idle CPU\n", capsys.readouterr().err)
    result["workload"]["members"] = 1_000  # as if an earlier run had finished this cell
    (tmp_path / "cells.jsonl").write_text(json.dumps(result) + "\n")
    compare._print_estimate(plan, tmp_path, jobs=1)
    assert capsys.readouterr().err.startswith("1 cell: about ")


def test_short_comparison_has_no_estimate(partage: PartageCli) -> None:
    assert "about" not in partage(*SMALL, "--phase", "none").err


def test_default_grid_takes_less_than_five_minutes_on_two_cores() -> None:
    cells = expand_grid([], DEFAULT_GRID)
    assert {(each.design, each.members) for each in cells} >= {(name, 1_000) for name in DESIGNS}
    assert estimate_duration_s(cells, 2) < 300


def test_chosen_phases_run_after_the_group_has_formed(partage: PartageCli) -> None:
    found = partage(*SMALL, "--phase", "leave", "--json").json["cells"]
    assert [[each["phase"] for each in cell["phases"]] for cell in found] == [["form", "leave"]] * 2


def test_findings_have_their_smallest_worlds(
    partage: PartageCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding_worlds, "SEEDS", (28,))
    found = partage(
        "lab", "compare", "--design", "two-phase-resync", "--grid", "members=3", "--phase", "none",
        "--findings", "--jobs", 1, "--json",
    ).json["findings"]  # fmt: skip
    first = found[0]
    assert first["finding"]["faults"] == ["new partition", "new topic"]
    words = first["world"]["command"].split()[1:]
    again = partage(*words, "--json", code=1).json["failures"]
    assert [each["rule"] for each in again] == [first["world"]["rule"]]

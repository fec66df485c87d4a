"""Tests of ``partage lab compare``."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cli import PartageCli

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


def _without_cpu(report: str) -> list[list[str]]:
    """Return the cells of all table rows, without the measured CPU time."""
    rows = [line.split("|") for line in report.splitlines()]
    return [row[:6] + row[7:] if len(row) > 7 else row for row in rows]


def test_json_has_every_cell_and_phase(partage: PartageCli) -> None:
    found = partage(*SMALL, "--json").json
    assert [cell["workload"]["members"] for cell in found["cells"]] == [3, 4]
    assert [phase["phase"] for phase in found["cells"][0]["phases"]][:2] == ["form", "steady"]
    assert found["claims"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--design", "two-phase"), "no design 'two-phase'"),
        (("--grid", "members=2"), "at least 3 members"),
        (("--grid", "metadata_kb=1000", "--grid", "members=5000"), "bytes of metadata"),
    ],
)
def test_impossible_comparison_is_refused(
    partage: PartageCli, arguments: tuple[str, ...], message: str
) -> None:
    refused = partage("lab", "compare", *arguments, code=2)
    assert message in refused.err

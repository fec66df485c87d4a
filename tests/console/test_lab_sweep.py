"""Tests of ``partage lab run --grid``."""

from __future__ import annotations

import pytest

from partage.console.lab.sweep import CombinationSummary, SweepReport, print_sweep
from partage.lab.runner import Verdict
from partage.lab.swarm import run_seed
from partage.lab.sweep import expand_combinations, parse_grid

from .cli import PartageCli

GRID = ("--grid", "members=1,2", "--grid", "steps=0", "--set", "brokers=1")


def test_grid_runs_the_seeds_with_each_combination(partage: PartageCli) -> None:
    ran = partage("lab", "run", "--seed-from", 3, "--seeds", 2, "--jobs", 1, *GRID, "--json")
    found = ran.json["combinations"]
    assert [each["options"] for each in found] == [
        {"members": "1", "steps": "0"},
        {"members": "2", "steps": "0"},
    ]
    changes = {"brokers": "1", "members": "2", "steps": "0"}
    verdicts = [run_seed(seed, changes=changes) for seed in (3, 4)]
    assert found[1]["worlds"] == 2
    assert found[1]["events"] == sum(each.events for each in verdicts)
    assert found[0]["events"] != found[1]["events"]


def test_grid_prints_one_row_for_each_combination(partage: PartageCli) -> None:
    ran = partage("lab", "run", "--seeds", 2, "--jobs", 2, *GRID)
    rows = [line.split() for line in ran.lines]
    heads = ["WORLDS", "GENERATIONS", "REQUESTS", "FAULTS", "BROKEN"]
    assert rows[0] == ["MEMBERS", "STEPS", *heads]
    assert [row[:3] for row in rows[1:]] == [["1", "0", "2"], ["2", "0", "2"]]


def test_failure_of_a_combination_has_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    report = SweepReport(combinations=[CombinationSummary(options={"members": "2"})])
    report.combinations[0].add(Verdict(seed=7, rule="offsets", command="the command"))
    print_sweep(report, json=False, format_failure=lambda verdict: f"run {verdict.command}")
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["2", "1", "0", "0", "0", "1"]
    assert lines[-1] == "run the command"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--grid", "members"), "--grid takes OPTION=VALUE,VALUE, not 'members'"),
        (("--grid", "members=2,,3"), "--grid takes OPTION=VALUE,VALUE"),
        (("--grid", "memers=2"), "unknown option 'memers'; did you mean 'members'? Options"),
        (("--grid", "members=2", "--grid", "members=3"), "members is given twice"),
        (("--grid", "members=2", "--set", "members=3"), "in --grid and in --set"),
        (("--grid", "members=2,many"), "members=many: Expected `int`"),
        (("--grid", "heartbeat_interval_ms=1,7000"), "impossible with seed"),
        (("--grid", "members=2", "--keep", "none"), "--keep applies to one world"),
        (("--grid", "safety_ms=" + ",".join(map(str, range(1000, 21001)))), "the limit is"),
    ],
)
def test_impossible_grid_is_refused_before_anything_runs(
    partage: PartageCli, arguments: tuple[str, ...], message: str
) -> None:
    assert message in partage("lab", "run", "--seeds", 50, *arguments, code=2).err


def test_combinations_are_checked_with_the_fixed_options() -> None:
    grid = parse_grid(["heartbeat_interval_ms=7000"])
    fixed = {"session_timeout_ms": "30000", "rebalance_timeout_ms": "30000"}
    assert expand_combinations(grid, range(20), fixed) == [{"heartbeat_interval_ms": "7000"}]

"""Tests of ``partage lab shells``."""

from __future__ import annotations

import pytest

from partage.testing.shell_worlds import swarm
from partage.testing.shell_worlds.runner import ShellResult

from .cli import PartageCli


def test_report_has_counts_and_no_failure(partage: PartageCli) -> None:
    report = partage("lab", "shells", "--seeds", 2, "--json").json
    assert report["worlds"] == 2
    assert report["records"] > 0 < report["reads"]
    assert report["failures"] == []


def test_failure_is_shown_with_its_command_and_story(
    partage: PartageCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = ShellResult(
        seed=7,
        rule="order",
        description="reader-1 read t-0 5 instead of 4",
        records=9,
        reads=5,
        faults=["at 1.0 s: kill broker-1, 0.1 s"],
        story=["     1.000  broker-1      killed"],
    )
    monkeypatch.setattr(swarm, "run_shell_seed", lambda seed: failed)
    ran = partage("lab", "shells", "--seed-from", 7, "--seeds", 1, code=1)
    assert ran.lines[0] == "1 world, 9 records written, 5 read, 1 fault; 1 broke a rule"
    assert "seed 7 breaks order: reader-1 read t-0 5 instead of 4" in ran.lines
    assert "  run again: partage lab shells --seed-from 7 --seeds 1" in ran.lines
    assert ran.lines[-2:] == [*failed.faults, *failed.story]

"""Tests of ``partage lab shells``."""

from __future__ import annotations

import pytest

from partage.testing import world_swarm
from partage.testing.shell_worlds.result import ShellResult
from partage.testing.world_kind import WorldKind

from .cli import PartageCli


@pytest.mark.parametrize("kind", WorldKind)
def test_report_has_counts_and_no_failure(partage: PartageCli, kind: WorldKind) -> None:
    report = partage("lab", "shells", "--kind", kind, "--seeds", 2, "--json").json
    assert report["worlds"] == 2
    assert report["reads"] > 0
    assert (report["records"] > 0) == (kind is not WorldKind.RECIPES)
    assert report["failures"] == []


@pytest.mark.parametrize("options", [(), ("--kind", "topics")])
def test_failure_is_shown_with_its_command_and_story(
    partage: PartageCli, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
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
    monkeypatch.setattr(world_swarm, "run_shell_seed", lambda seed, kind: failed)
    ran = partage("lab", "shells", *options, "--seed-from", 7, "--seeds", 1, code=1)
    assert ran.lines[0] == "1 world, 9 records written, 5 read, 1 fault; 1 broke a rule"
    assert "seed 7 breaks order: reader-1 read t-0 5 instead of 4" in ran.lines
    again = " ".join(["partage lab shells", *options, "--seed-from 7 --seeds 1"])
    assert f"  run again: {again}" in ran.lines
    assert ran.lines[-2:] == [*failed.faults, *failed.story]

"""The simulator detects a few mutants; ``make mutants`` runs all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .mutants import MUTANTS, Mutant
from .mutation import find_mutant_in_subprocess

#: One mutant of each kind that most seeds detect.
QUICK = (
    "an OffsetCommit of any generation is accepted",
    "replies are sent before their records are durable",
    "revoked partitions stay owned",
    "REBALANCE_IN_PROGRESS is ignored",
    "files are not synced",
    "aborted transactions are not in the index",
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_matches_current_code_once(mutant: Mutant) -> None:
    assert mutant.original != mutant.replacement
    compile(mutant.mutated_source(), mutant.module, "exec")


def test_mutated_sources_have_no_undefined_names(tmp_path: Path) -> None:
    for number, mutant in enumerate(MUTANTS):
        (tmp_path / f"mutant_{number}.py").write_text(f"# {mutant.name}\n{mutant.mutated_source()}")
    undefined_name = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821"]
    run = subprocess.run(
        [*undefined_name, tmp_path], capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_mutants_are_many_and_unique() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 50


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_quick_mutant_is_detected(name: str) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    found = find_mutant_in_subprocess(mutant, 120)
    assert found.rule is not None, f"120 seeds do not detect: {name}"

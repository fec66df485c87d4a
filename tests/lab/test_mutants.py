"""The simulator detects a few mutants; ``make mutants`` runs all of them."""

from __future__ import annotations

import importlib.util
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
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_matches_current_code_once(mutant: Mutant) -> None:
    spec = importlib.util.find_spec(mutant.module)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text()
    assert source.count(mutant.words) == 1
    assert mutant.words != mutant.by
    compile(source.replace(mutant.words, mutant.by), spec.origin, "exec")


def test_mutants_are_many_and_unique() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 50


@pytest.mark.parametrize("name", QUICK)
def test_quick_mutant_is_detected(name: str) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    found = find_mutant_in_subprocess(mutant, 60)
    assert found.rule is not None, f"60 seeds do not detect: {name}"

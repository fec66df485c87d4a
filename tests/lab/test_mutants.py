"""The laboratory finds bugs: a few of those that `planting` plants; ``make mutants`` has all."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from .mutants import MUTANTS, Mutant
from .mutation import find_mutant_in_subprocess

#: Of each kind one that few worlds survive.
QUICK = (
    "commits of any generation are accepted",
    "replies leave before they are durable",
    "what was revoked stays owned",
    "a rebalance is taken no note of",
    "nothing is synced",
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_a_change_of_code_as_it_stands(mutant: Mutant) -> None:
    spec = importlib.util.find_spec(mutant.module)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text()
    assert source.count(mutant.words) == 1
    assert mutant.words != mutant.by
    compile(source.replace(mutant.words, mutant.by), spec.origin, "exec")


def test_there_are_enough_of_them() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 50


@pytest.mark.parametrize("name", QUICK)
def test_it_is_found(name: str) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    found = find_mutant_in_subprocess(mutant, 60)
    assert found.rule is not None, f"60 worlds survive: {name}"

"""The quoted sources of the mutants exist; ``make mutants`` runs all mutants."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from lab.mutant import Mutant

from .independent_mutants import INDEPENDENT_MUTANTS
from .mutants import MUTANTS

ALL = (*MUTANTS, *INDEPENDENT_MUTANTS)


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_mutant_matches_current_code_once(mutant: Mutant) -> None:
    spec = importlib.util.find_spec(mutant.module)
    assert spec is not None
    assert spec.origin is not None
    assert mutant.original != mutant.replacement
    compile(mutant.apply(Path(spec.origin).read_text()), mutant.module, "exec")


def test_mutants_are_many_and_unique() -> None:
    assert len({mutant.name for mutant in ALL}) == len(ALL) >= 110

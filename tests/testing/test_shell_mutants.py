"""The planted bugs of the shells match the current code; `shell_mutation` searches for them."""

from __future__ import annotations

import pytest

from lab.mutant import Mutant
from testing.shell_mutants import DRAWN_SHELL_MUTANTS, LATER_SHELL_MUTANTS, SHELL_MUTANTS

MUTANTS = (*SHELL_MUTANTS, *LATER_SHELL_MUTANTS, *DRAWN_SHELL_MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_matches_current_code_once(mutant: Mutant) -> None:
    assert mutant.original != mutant.replacement
    compile(mutant.mutated_source(), mutant.module, "exec")

"""Smoke test of the fuzzer: no finding in a few hundred cases, and different results."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

import pytest

from fuzz.__main__ import NAMES, dice, opened
from fuzz.targets import WAYS


@pytest.mark.parametrize(("name", "cases"), [*((name, 30) for name in NAMES[:-1]), ("frames", 10)])
def test_fuzzer_finds_nothing_in_few_cases(name: str, cases: int) -> None:
    with ExitStack() as stack:
        target = opened(name, stack)
        outcomes = Counter(
            what for number in range(cases) for what in target.try_one(dice(1, name, number))
        )
    assert outcomes.total() == cases * WAYS
    assert len(outcomes) > 1, "all cases ended alike"

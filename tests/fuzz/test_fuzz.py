"""The fuzzer finds nothing in a few hundred cases, and reaches both ends."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

import pytest

from fuzz.__main__ import NAMES, dice, opened


@pytest.mark.parametrize(("name", "cases"), [*((n, 300) for n in NAMES[:3]), (NAMES[3], 100)])
def test_a_little_of_it(name: str, cases: int) -> None:
    with ExitStack() as stack:
        target = opened(name, stack)
        outcomes = Counter(target.try_one(dice(1, name, number)) for number in range(cases))
    assert outcomes.total() == cases
    assert len(outcomes) > 1, "all cases ended alike"

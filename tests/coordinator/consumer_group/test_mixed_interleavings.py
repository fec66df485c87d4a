"""Any interleaving of clients with both protocols, which upgrades and downgrades their group."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .mixed_group import MixedGroup

VERBS = (
    *("act",) * 12,
    "complete",
    "complete",
    "complete",
    "leave",
    "crash",
    "topics",
    "time",
    "restart",
    "fail",
)
steps = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(VERBS)), max_size=60)


@pytest.mark.parametrize("is_cooperative", [False, True])
@given(steps)
@settings(max_examples=25, deadline=None)
def test_any_interleaving_of_both_protocols_has_one_reader_of_each_partition(
    is_cooperative: bool, steps_: list[tuple[int, str]]
) -> None:
    group = MixedGroup(is_cooperative=is_cooperative)
    group.start()
    for index, verb in steps_:
        group.step(index, verb)
    group.settle()
    running = [*group.classic, *group.consumers]
    if any(client.is_running for client in running):
        assert not group.unread()
        uses_consumer_protocol = any(client.is_running for client in group.consumers)
        assert group.is_consumer_group == uses_consumer_protocol

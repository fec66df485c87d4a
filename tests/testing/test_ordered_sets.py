"""Sets of clients in a world: an order without hashes, and otherwise the behaviour of sets."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from aiokafka.consumer import subscription_state
from hypothesis import given
from hypothesis import strategies as st

from partage import Consumer
from partage.testing import PartageWorld
from partage.testing.world.ordered_sets import OrderedFrozenSet, OrderedSet, ordered_sets

KINDS = [OrderedSet, OrderedFrozenSet]
names = st.sets(st.text(max_size=3))


@pytest.mark.parametrize("kind", KINDS)
@given(one=names, other=names)
def test_ordered_set_is_equal_to_a_set_and_sorted(kind: Any, one: set[str], other: set[str]):
    ordered, plain = kind(one), kind.__mro__[1](other)
    assert ordered == one
    assert list(ordered) == sorted(one)
    for found, expected in [
        (ordered & other, one & other),
        (ordered | other, one | other),
        (ordered - other, one - other),
        (plain - ordered, other - one),
        (ordered ^ other, one ^ other),
        (ordered.union(other, ["x"]), one.union(other, ["x"])),
        (copy.copy(ordered), one),
    ]:
        assert type(found) is kind
        assert list(found) == sorted(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_ordered_set_looks_like_a_set(kind: Any) -> None:
    base = kind.__mro__[1]
    assert [repr(kind()), repr(kind("a"))] == [repr(base()), repr(base("a"))]
    assert isinstance(base("a"), kind)
    assert isinstance(kind("a"), base)
    assert not isinstance(["a"], kind)
    assert hash(OrderedFrozenSet("ab")) == hash(frozenset("ab"))


def test_ordered_set_keeps_elements_without_order() -> None:
    elements = {1, "a", None}
    assert list(OrderedSet(elements)) == list(elements)


def test_change_during_iteration_raises() -> None:
    changing = OrderedSet("ab")
    elements = iter(changing)
    changing.discard(next(elements))
    with pytest.raises(RuntimeError, match="changed size"):
        next(elements)


def test_pop_returns_the_first_element() -> None:
    popped = OrderedSet("cab")
    assert [popped.pop() for _ in range(3)] == ["a", "b", "c"]
    with pytest.raises(KeyError):
        popped.pop()


def test_modules_have_ordered_sets_only_in_a_world() -> None:
    module = vars(subscription_state)
    with ordered_sets():
        assert module["set"] is OrderedSet
    assert "set" not in module
    assert "frozenset" not in module


def test_consumer_returns_its_partitions_in_order(tmp_path: Path) -> None:
    """Sets of strings in the user's program would have the order of their hashes."""
    world = PartageWorld(1, tmp_path)
    found: list[Any] = []

    async def test() -> None:
        topics = [f"topic-{number}" for number in range(9)]
        for topic in topics:
            await world.create_topic(topic)
        async with Consumer(world.bootstrap_servers, group_id="g") as consumer:
            consumer.subscribe(topics)
            while not consumer.assignment():
                await consumer.poll(100)
            found.extend([topics, list(consumer.subscription())])
            found.append([each.topic for each in consumer.assignment()])

    world.run(test)
    assert found[1] == found[0]
    assert found[2] == found[0]

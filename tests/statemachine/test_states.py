"""The transition tables of state machines."""

from __future__ import annotations

from enum import StrEnum

from partage.statemachine.states import predecessors


class Light(StrEnum):
    RED = "Red"
    AMBER = "Amber"
    GREEN = "Green"


def test_predecessors_include_states_without_any() -> None:
    transitions = [(Light.RED, Light.GREEN), (Light.AMBER, Light.GREEN), (Light.GREEN, Light.AMBER)]
    assert predecessors(Light, transitions) == {
        Light.RED: frozenset(),
        Light.AMBER: {Light.GREEN},
        Light.GREEN: {Light.RED, Light.AMBER},
    }

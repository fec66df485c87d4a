"""The transitions of a state machine."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeVar

State = TypeVar("State", bound=StrEnum)


def predecessors(
    states: Iterable[State], transitions: Iterable[tuple[State, State]]
) -> dict[State, frozenset[State]]:
    """Return the states that may precede each state.

    Args:
        states: All states.
        transitions: The allowed transitions, each as the states before and after it.
    """
    allowed = list(transitions)
    return {
        state: frozenset(before for before, after in allowed if after is state) for state in states
    }

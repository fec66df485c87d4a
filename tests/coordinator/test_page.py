"""The page ``docs/groups.md`` is up to date, and the tables are complete."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from partage.coordinator.page import page
from partage.coordinator.states import (
    LOADED_STATES,
    PREDECESSORS,
    STATE_DESCRIPTIONS,
    GroupState,
)
from partage.coordinator.timers import TIMERS, TimerKey

PAGE = Path(__file__).parents[2] / "docs" / "groups.md"


def test_groups_page_is_up_to_date() -> None:
    """To update: ``python tools/generate_pages.py``."""
    assert PAGE.read_text() == page()


def test_states_transitions_and_timers_are_documented() -> None:
    assert STATE_DESCRIPTIONS.keys() == set(GroupState)
    assert all(PREDECESSORS[state] for state in GroupState)
    assert LOADED_STATES.keys() < set(GroupState)
    assert {facts.key for facts in TIMERS} == set(get_args(TimerKey))

"""The page on members shows the tables, and the tables are complete."""

from __future__ import annotations

from pathlib import Path

from partage.member.page import page
from partage.member.reactions import DEFAULT_REACTIONS, REACTIONS, CoordinatorRequest
from partage.member.states import (
    ACTIVE_STATES,
    AWAITING_STATES,
    COMMITTING_STATES,
    HEARTBEATING_STATES,
    PARKED_STATES,
    PREDECESSORS,
    STATE_DESCRIPTIONS,
    MemberState,
)
from partage.member.timers import TIMERS, MemberTimer

PAGE = Path(__file__).parents[2] / "docs" / "members.md"


def test_page_is_up_to_date() -> None:
    """To update: ``python tools/generate_pages.py``."""
    assert PAGE.read_text() == page()


def test_page_covers_states_requests_and_timers() -> None:
    assert STATE_DESCRIPTIONS.keys() == set(MemberState)
    assert REACTIONS.keys() == DEFAULT_REACTIONS.keys() == set(CoordinatorRequest)
    assert {facts.key for facts in TIMERS} == set(MemberTimer)


def test_state_sets_are_consistent() -> None:
    assert PARKED_STATES < ACTIVE_STATES & AWAITING_STATES
    assert not PARKED_STATES & (HEARTBEATING_STATES | COMMITTING_STATES)
    assert COMMITTING_STATES < HEARTBEATING_STATES
    assert all(PREDECESSORS[state] for state in MemberState)

"""The page ``docs/transactions.md`` is up to date, and the tables are complete."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from partage.transactions.page import page
from partage.transactions.states import PREDECESSORS, STATE_DESCRIPTIONS, TransactionState
from partage.transactions.timers import TIMERS, TransactionTimerKey

PAGE = Path(__file__).parents[2] / "docs" / "transactions.md"


def test_transactions_page_is_up_to_date() -> None:
    """To update: ``python tools/generate_pages.py``."""
    assert PAGE.read_text() == page()


def test_states_and_timers_are_documented() -> None:
    assert STATE_DESCRIPTIONS.keys() == set(TransactionState)
    assert all(PREDECESSORS[state] for state in TransactionState)
    assert {facts.key for facts in TIMERS} == set(get_args(TransactionTimerKey))

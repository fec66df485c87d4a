"""Generator of the diagrams and state tables of ``docs/designs.md``.

A diagram is between the comments ``<!-- diagram: DESIGN SCENARIO -->`` and ``<!-- end -->``, and a
table between ``<!-- states: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from enum import StrEnum
from typing import Final, TypeVar

from partage.coordinator.consumer_group.states import (
    CONSUMER_STATE_DESCRIPTIONS as CONSUMER_GROUP_DESCRIPTIONS,
)
from partage.coordinator.states import PREDECESSORS as GROUP_PREDECESSORS
from partage.coordinator.states import STATE_DESCRIPTIONS as GROUP_DESCRIPTIONS
from partage.member.consumer_group.states import (
    CONSUMER_STATE_MEANINGS,
    CONSUMER_STATE_PREDECESSORS,
)
from partage.member.states import PREDECESSORS as MEMBER_PREDECESSORS
from partage.member.states import STATE_DESCRIPTIONS as MEMBER_DESCRIPTIONS
from partage.proposals.broker_side.consumer import STATE_DESCRIPTIONS as CONSUMER_DESCRIPTIONS
from partage.proposals.broker_side.elector import ELECTOR_STATE_DESCRIPTIONS
from partage.proposals.broker_side.registry import PHASE_DESCRIPTIONS
from partage.proposals.broker_side.state_tables import (
    CONSUMER_TRANSITIONS,
    ELECTOR_TRANSITIONS,
    REBALANCE_TRANSITIONS,
)
from partage.proposals.diagrams.recorder import DiagramScenario, record_diagram
from partage.proposals.diagrams.text_diagram import draw_text
from partage.proposals.join_group.group import STATE_DESCRIPTIONS as JOIN_GROUP_DESCRIPTIONS
from partage.proposals.join_group.group import DesignGroupState
from partage.proposals.join_group.member import STATE_DESCRIPTIONS as JOIN_MEMBER_DESCRIPTIONS
from partage.proposals.join_group.member import DesignMemberState
from partage.proposals.multi_assignor.state_tables import (
    MULTI_GROUP_TRANSITIONS,
    MULTI_MEMBER_TRANSITIONS,
)
from partage.proposals.single_assignor.state_tables import (
    SINGLE_GROUP_TRANSITIONS,
    SINGLE_MEMBER_TRANSITIONS,
)
from partage.proposals.state_table import StateTransition, transition_table
from partage.statemachine.pages import join_blocks, state_table, table

State = TypeVar("State", bound=StrEnum)

_PLACE: Final = re.compile(
    r"(<!-- (diagram|states): ([\w -]+) -->\n).*?(<!-- end -->\n)", re.DOTALL
)


def fill_designs(text: str) -> str:
    """Return the page with its diagrams and tables replaced by the current ones."""

    def fill(found: re.Match[str]) -> str:
        kind, name = found[2], found[3]
        block = _diagram(name) if kind == "diagram" else STATE_TABLES[name]()
        return f"{found[1]}\n{block}\n{found[4]}"

    return _PLACE.sub(fill, text)


def _diagram(name: str) -> str:
    design, _, scenario = name.partition(" ")
    diagram = record_diagram(design, DiagramScenario(scenario))
    return f"```text\n{draw_text(diagram)}```\n"


def _states(
    descriptions: Mapping[State, str],
    rows: tuple[StateTransition, ...],
    other: Container[State] = (),
) -> str:
    """Return the tables of states and of transitions.

    Args:
        descriptions: The meaning of each state.
        rows: The transitions.
        other: The states of other designs only.
    """
    states = {state: text for state, text in descriptions.items() if state not in other}
    return join_blocks(
        table(("state", "meaning"), states.items()), transition_table(rows, frozenset(states))
    )


#: The tables, by the name in the comment.
STATE_TABLES: Final[Mapping[str, Callable[[], str]]] = {
    "broker-side elector": lambda: _states(ELECTOR_STATE_DESCRIPTIONS, ELECTOR_TRANSITIONS),
    "broker-side coordinator": lambda: _states(PHASE_DESCRIPTIONS, REBALANCE_TRANSITIONS),
    "broker-side consumer": lambda: _states(CONSUMER_DESCRIPTIONS, CONSUMER_TRANSITIONS),
    "multi-assignor coordinator": lambda: _states(
        JOIN_GROUP_DESCRIPTIONS,
        MULTI_GROUP_TRANSITIONS,
        frozenset({DesignGroupState.SYNCHRONIZING}),
    ),
    "multi-assignor member": lambda: _states(
        JOIN_MEMBER_DESCRIPTIONS,
        MULTI_MEMBER_TRANSITIONS,
        frozenset({DesignMemberState.SYNCHRONIZING}),
    ),
    "single-assignor coordinator": lambda: _states(
        JOIN_GROUP_DESCRIPTIONS, SINGLE_GROUP_TRANSITIONS
    ),
    "single-assignor member": lambda: _states(JOIN_MEMBER_DESCRIPTIONS, SINGLE_MEMBER_TRANSITIONS),
    "two-phase coordinator": lambda: state_table(GROUP_DESCRIPTIONS, GROUP_PREDECESSORS),
    "consumer-protocol coordinator": lambda: table(
        ("state", "meaning"), CONSUMER_GROUP_DESCRIPTIONS.items()
    ),
    "consumer-protocol member": lambda: state_table(
        CONSUMER_STATE_MEANINGS, CONSUMER_STATE_PREDECESSORS
    ),
    "two-phase member": lambda: state_table(MEMBER_DESCRIPTIONS, MEMBER_PREDECESSORS),
}

"""The state tables of the designs, compared in both directions with worlds under faults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

import msgspec
import pytest

from partage.proposals.broker_side.elector import (
    Elector,
    ElectorState,
    NodeCreated,
    NodeDeleted,
    NodeExists,
    SessionExpired,
    SessionStarted,
)
from partage.proposals.broker_side.events import (
    OffsetsOutOfRange,
    RebalancingSwitched,
    ResetPositions,
)
from partage.proposals.broker_side.registry import RebalancePhase
from partage.proposals.broker_side.state_tables import (
    CONSUMER_TRANSITIONS,
    ELECTOR_TRANSITIONS,
    REBALANCE_TRANSITIONS,
)
from partage.proposals.designs.broker_side import BrokerSide
from partage.proposals.designs.multi_assignor import MultiAssignor
from partage.proposals.designs.single_assignor import SingleAssignor
from partage.proposals.join_group.group import DesignGroupState
from partage.proposals.join_group.member import DesignMemberState
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.machine import Action, Event
from partage.proposals.multi_assignor.state_tables import (
    MULTI_GROUP_TRANSITIONS,
    MULTI_MEMBER_TRANSITIONS,
)
from partage.proposals.simulation.design import Design
from partage.proposals.simulation.world import DesignWorld
from partage.proposals.single_assignor.member import ComputeShares, ShareComputationFailed
from partage.proposals.single_assignor.state_tables import (
    SINGLE_GROUP_TRANSITIONS,
    SINGLE_MEMBER_TRANSITIONS,
)
from partage.proposals.state_table import (
    SESSION_OVER,
    StateTransition,
    action_names,
    event_name,
    expand,
)
from proposals.state_observer import (
    Disturbance,
    Transitions,
    deliver,
    observe,
    run_world,
)

GROUP = "g"
#: A test runs at least SEEDS_MIN worlds, and more until all rows of its tables have occurred.
SEEDS_MIN = 100
SEEDS_MAX = 400
#: An effect that a transition may lack in all worlds: the member may have stopped before.
OPTIONAL = {"stops reading"}


def member_settings(seed: int) -> DesignMemberSettings:
    return DesignMemberSettings(
        group_id=GROUP,
        session_timeout_ms=10_000 if seed % 2 else 45_000,
        join_timeout_ms=15_000 if seed % 5 else 300_000,
    )


def coordinator_settings(seed: int) -> CoordinatorSettings:
    """Every twentieth world refuses the session timeout of its members."""
    return CoordinatorSettings(
        session_timeout_min_ms=50_000 if seed % 20 == 19 else 6_000,
        offsets_retention_ms=1_000 if seed % 3 else 604_800_000,
    )


class PushDesign(BrokerSide):
    """The first design with few retries, and consumers whose offsets may be out of range."""

    def __init__(self, seed: int) -> None:
        super().__init__(coordinator_settings(seed), member_settings(seed))
        self._coordinator_settings = msgspec.structs.replace(
            self._coordinator_settings, rebalance_retries_max=seed % 3
        )

    def perform(self, action: Action) -> Iterable[tuple[int, Event]]:
        return [] if isinstance(action, ResetPositions) else super().perform(action)


class SlowSingleAssignor(SingleAssignor):
    """A design whose assignors are slow or fail."""

    def __init__(self, seed: int) -> None:
        assign_ms = (0, 50, 12_000)[seed % 3]
        super().__init__(coordinator_settings(seed), member_settings(seed), assign_ms=assign_ms)
        self._random = Random(f"assignor {seed}")

    def perform(self, action: Action) -> Iterable[tuple[int, Event]]:
        if isinstance(action, ComputeShares) and self._random.random() < 0.1:
            return [(1, ShareComputationFailed(at_ms=0, number=action.number))]
        return super().perform(action)


def exceed_range(world: DesignWorld, random: Random) -> None:
    """Stop the fetchers of a consumer: an offset is out of range."""
    readers = [each for each in world.live_members if each.machine.owned]
    if readers:
        process = random.choice(readers)
        partition = min(process.machine.owned)
        deliver(process, OffsetsOutOfRange(at_ms=0, partitions=frozenset({partition})))


def switch_rebalancing(world: DesignWorld, random: Random) -> None:
    """Switch the rebalancing of the group on or off."""
    coordinator = world.coordinator
    if coordinator is not None:
        coordinator._handle(
            RebalancingSwitched(
                at_ms=world.clock.now_ms, group_id=GROUP, is_enabled=random.random() < 0.7
            )
        )


def rebalance_phase(coordinator: Any) -> str:
    group = coordinator.groups.get(GROUP)
    return RebalancePhase.IDLE if group is None else group.phase


def group_state(coordinator: Any) -> str:
    group = coordinator.groups.get(GROUP)
    return DesignGroupState.EMPTY if group is None else group.state


DESIGNS: dict[
    str,
    tuple[
        Callable[[int], Design],
        Callable[[Any], str],
        Sequence[Disturbance],
        Sequence[StateTransition],
        Sequence[StateTransition],
    ],
] = {
    "broker-side": (
        PushDesign,
        rebalance_phase,
        (exceed_range, switch_rebalancing),
        REBALANCE_TRANSITIONS,
        CONSUMER_TRANSITIONS,
    ),
    "multi-assignor": (
        lambda seed: MultiAssignor(coordinator_settings(seed), member_settings(seed)),
        group_state,
        (),
        MULTI_GROUP_TRANSITIONS,
        MULTI_MEMBER_TRANSITIONS,
    ),
    "single-assignor": (
        SlowSingleAssignor,
        group_state,
        (),
        SINGLE_GROUP_TRANSITIONS,
        SINGLE_MEMBER_TRANSITIONS,
    ),
}


@pytest.mark.parametrize("name", DESIGNS)
def test_state_tables_have_exactly_the_transitions_that_occur(name: str) -> None:
    design, state, disturbances, coordinator_rows, member_rows = DESIGNS[name]
    coordinators: Transitions = {}
    members: Transitions = {}
    for seed in range(SEEDS_MAX):
        observed = design(seed)
        observe(observed, coordinators, members, state)
        run_world(observed, seed, disturbances)
        if seed >= SEEDS_MIN and not (
            rows_without_run(coordinator_rows, coordinators)
            or rows_without_run(member_rows, members)
        ):
            break
    compare(coordinator_rows, coordinators)
    compare(member_rows, members)


def compare(rows: Sequence[StateTransition], seen: Transitions) -> None:
    """Raise `AssertionError` if a transition is missing in a table, or a row never occurs."""
    listed = expand(rows)
    missing = {key: sorted(effects) for key, effects in seen.items() if key not in listed}
    assert not missing
    wrong = {
        key: sorted(effects - listed[key])
        for key, effects in seen.items()
        if not effects <= listed[key]
    }
    assert not wrong, f"the answers lack {wrong}"
    unseen = rows_without_run(rows, seen)
    assert not unseen, f"these never occur with all their effects: {unseen}"


def rows_without_run(rows: Sequence[StateTransition], seen: Transitions) -> list[StateTransition]:
    """Return the rows that have not occurred with all their effects."""
    return [
        row
        for row in rows
        # See test_member_that_is_closed_after_its_session_stops_without_leaving.
        if not (row.event == SESSION_OVER and row.next_state == DesignMemberState.STOPPED)
        and not (
            any(key in seen for key in row.keys)
            and frozenset[str]().union(*(seen.get(key, ()) for key in row.keys))
            >= set(row.answer) - OPTIONAL
        )
    ]


def test_elector_has_exactly_the_transitions_of_its_table() -> None:
    seen: Transitions = {}
    for state in ElectorState:
        for kind in (SessionStarted, SessionExpired, NodeCreated, NodeExists, NodeDeleted):
            elector = Elector(broker_id=1)
            elector.state = state
            event = kind(at_ms=0)
            effects = set(action_names(elector.handle(event)))
            if effects or elector.state is not state:
                seen[state, event_name(event), elector.state] = effects
    assert seen == expand(ELECTOR_TRANSITIONS)


def test_table_with_the_same_transition_twice_is_refused() -> None:
    row = StateTransition((DesignGroupState.EMPTY,), "JoinGroup", None)
    with pytest.raises(ValueError, match="two rows have the transition"):
        expand((row, row))

"""The states of a group and the allowed transitions."""

from __future__ import annotations

from enum import StrEnum

from partage.statemachine.states import predecessors


class GroupState(StrEnum):
    """The state of a group, with the name that Kafka's tools show.

    The client-side assignment proposal calls PreparingRebalance Joining, CompletingRebalance
    AwaitingSync, and Dead Down. Its Initialize state is the loading of the shard here.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


#: A description of each state, for the documentation.
STATE_DESCRIPTIONS: dict[GroupState, str] = {
    GroupState.EMPTY: "The group has no members, but may have offsets.",
    GroupState.PREPARING_REBALANCE: (
        "The join phase: members park in JoinGroup until all have joined. "
        "Members of the last generation may still commit."
    ),
    GroupState.COMPLETING_REBALANCE: (
        "The sync phase: the generation is stored, "
        "and members park in SyncGroup until the leader sends the assignment."
    ),
    GroupState.STABLE: "The assignment is stored, and SyncGroup returns each member's part.",
    GroupState.DEAD: "The group was removed; responses are those for a missing group.",
}

#: The allowed transitions, each with its causes for the documentation.
TRANSITION_CAUSES: dict[tuple[GroupState, GroupState], str] = {
    (GroupState.EMPTY, GroupState.PREPARING_REBALANCE): "a member joins",
    (GroupState.COMPLETING_REBALANCE, GroupState.PREPARING_REBALANCE): (
        "a member joins, changes, leaves or expires; the leader cannot assign"
    ),
    (GroupState.STABLE, GroupState.PREPARING_REBALANCE): (
        "a member joins, changes, leaves or expires; the leader rejoins"
    ),
    (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE): (
        "all members have joined, or the join timer fires"
    ),
    (GroupState.PREPARING_REBALANCE, GroupState.EMPTY): "no member is left",
    (GroupState.COMPLETING_REBALANCE, GroupState.STABLE): "the leader sends the assignment",
    (GroupState.EMPTY, GroupState.DEAD): "deleted, or empty with all offsets expired",
}

#: The allowed predecessors of each state. Loading sets the state directly from the record.
PREDECESSORS: dict[GroupState, frozenset[GroupState]] = predecessors(GroupState, TRANSITION_CAUSES)

#: The states in which a rebalance can start.
MAY_REBALANCE = PREDECESSORS[GroupState.PREPARING_REBALANCE]

#: The states of a loaded group, each with its record's content, for the documentation.
LOADED_STATES: dict[GroupState, str] = {
    GroupState.EMPTY: "loaded without members",
    GroupState.COMPLETING_REBALANCE: "loaded with its sync pending",
    GroupState.STABLE: "loaded with an assignment",
}

"""The states of a group and the allowed transitions."""

from __future__ import annotations

from enum import StrEnum


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


#: The allowed predecessors of each state. Loading sets the state directly from the record.
PREDECESSORS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset({GroupState.EMPTY}),
}

#: The states in which a rebalance can start.
MAY_REBALANCE = PREDECESSORS[GroupState.PREPARING_REBALANCE]

#: A description of each state, for the documentation.
MEANINGS: dict[GroupState, str] = {
    GroupState.EMPTY: "There are no members; offsets may be kept.",
    GroupState.PREPARING_REBALANCE: (
        "The join phase: members are awaited, and park in JoinGroup. "
        "The last generation may still commit."
    ),
    GroupState.COMPLETING_REBALANCE: (
        "The sync phase: the generation is stored and told, "
        "and members park in SyncGroup until its leader has assigned."
    ),
    GroupState.STABLE: "The assignment is stored, and whoever asks for its own part gets it.",
    GroupState.DEAD: "The group is removed, and answered as missing.",
}

#: The causes of each transition, for the documentation.
CAUSES: dict[tuple[GroupState, GroupState], str] = {
    (GroupState.EMPTY, GroupState.PREPARING_REBALANCE): "somebody joins",
    (GroupState.COMPLETING_REBALANCE, GroupState.PREPARING_REBALANCE): (
        "a member joins, changes, leaves or is missed; the leader cannot assign"
    ),
    (GroupState.STABLE, GroupState.PREPARING_REBALANCE): (
        "a member joins, changes, leaves or is missed; the leader joins again"
    ),
    (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE): (
        "all have joined, or the time is up"
    ),
    (GroupState.PREPARING_REBALANCE, GroupState.EMPTY): "nobody is left",
    (GroupState.COMPLETING_REBALANCE, GroupState.STABLE): "the leader has assigned",
    (GroupState.EMPTY, GroupState.DEAD): "deleted, or nothing is left of it",
}

#: The states of a loaded group, each with its record's content, for the documentation.
RESUMED: dict[GroupState, str] = {
    GroupState.EMPTY: "loaded without members",
    GroupState.COMPLETING_REBALANCE: "loaded, its sync awaited",
    GroupState.STABLE: "loaded with an assignment",
}

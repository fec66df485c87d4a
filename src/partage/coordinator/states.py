"""The states of a group, and which may follow which."""

from __future__ import annotations

from enum import StrEnum


class GroupState(StrEnum):
    """A group's state, under the name that Kafka's tools show.

    In the client-side assignment proposal PreparingRebalance is called Joining,
    CompletingRebalance AwaitingSync, and Dead Down; its Initialize is no state of a group but the
    loading of its shard.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


#: Each state with those it may follow. A group that is loaded is put where its record says.
PREDECESSORS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset({GroupState.EMPTY}),
}

#: The states in which a rebalance may be started.
MAY_REBALANCE = PREDECESSORS[GroupState.PREPARING_REBALANCE]

#: What a group in each state is about.
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

#: Why a group takes each of the transitions.
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

#: The states that a group is loaded in, and what its record then says.
RESUMED: dict[GroupState, str] = {
    GroupState.EMPTY: "loaded without members",
    GroupState.COMPLETING_REBALANCE: "loaded, its sync awaited",
    GroupState.STABLE: "loaded with an assignment",
}

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

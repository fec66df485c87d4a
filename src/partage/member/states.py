"""The states of a member, and the transitions between them."""

from __future__ import annotations

from enum import StrEnum


class MemberState(StrEnum):
    """The state of a member, named after Kafka's MemberState where it has one.

    Kafka's classic client has four states. Its UNJOINED is Unsubscribed, Stale and Unjoined here;
    PREPARING_REBALANCE is Joining; COMPLETING_REBALANCE is Assigning and Syncing; STABLE is
    Reconciling, Stable and, while the member still belongs to its generation, Preparing.
    """

    OUT = "Unsubscribed"
    DORMANT = "Stale"
    WAITING = "Unjoined"
    PREPARING = "Preparing"
    JOINING = "Joining"
    ASSIGNING = "Assigning"
    SYNCING = "Syncing"
    ADOPTING = "Reconciling"
    STABLE = "Stable"
    RELEASING = "PrepareLeaving"
    LEAVING = "Leaving"
    FAILED = "Fatal"


_S = MemberState

#: The meaning of each state.
MEANINGS: dict[MemberState, str] = {
    _S.OUT: "Not in the group, and not asked to join.",
    _S.DORMANT: "Joins at the next poll: poll was not called yet, or not in time.",
    _S.WAITING: (
        "Wants to join or rejoin, and waits until the coordinator is known and the back-off "
        "is over."
    ),
    _S.PREPARING: "Gives up partitions where the protocol requires it, and encodes its metadata.",
    _S.JOINING: "JoinGroup is sent or parked. The member keeps working on the partitions it owns.",
    _S.ASSIGNING: "The member is the leader and computes the assignment.",
    _S.SYNCING: "SyncGroup is sent or parked.",
    _S.ADOPTING: "The member has its assignment and applies it.",
    _S.STABLE: "The member works and sends heartbeats.",
    _S.RELEASING: "The member is about to leave and gives up its partitions.",
    _S.LEAVING: "LeaveGroup is sent.",
    _S.FAILED: "An error that retries do not solve; only a new start leaves this state.",
}

#: The states in which the member takes part in the group: it needs the coordinator and polls.
INSIDE = frozenset(
    {
        _S.WAITING,
        _S.PREPARING,
        _S.JOINING,
        _S.ASSIGNING,
        _S.SYNCING,
        _S.ADOPTING,
        _S.STABLE,
    }
)
#: The states whose request the coordinator may park; the session of a parked member does not run.
PARKED = frozenset({_S.JOINING, _S.SYNCING})
#: The states in which a member of a generation sends heartbeats.
BEATING = frozenset({_S.WAITING, _S.PREPARING, _S.ASSIGNING, _S.ADOPTING, _S.STABLE, _S.RELEASING})
#: The states in which the coordinator can accept a commit of the member.
COMMITTING = frozenset({_S.WAITING, _S.PREPARING, _S.ADOPTING, _S.STABLE, _S.RELEASING})
#: The states that wait for a response or for the embedded protocol.
ASKING = frozenset(
    {
        _S.PREPARING,
        _S.JOINING,
        _S.ASSIGNING,
        _S.SYNCING,
        _S.ADOPTING,
        _S.RELEASING,
        _S.LEAVING,
    }
)

#: The cause of each transition.
CAUSES: dict[tuple[MemberState, MemberState], str] = {
    (_S.OUT, _S.DORMANT): "started, poll not called yet",
    (_S.OUT, _S.WAITING): "started",
    (_S.FAILED, _S.DORMANT): "started again, poll not called yet",
    (_S.FAILED, _S.WAITING): "started again",
    (_S.DORMANT, _S.WAITING): "poll is called",
    (_S.WAITING, _S.PREPARING): "the coordinator is known and no back-off runs",
    (_S.PREPARING, _S.JOINING): "partitions are given up, metadata is encoded",
    (_S.PREPARING, _S.WAITING): "the generation or the coordinator is lost",
    (_S.JOINING, _S.ASSIGNING): "the member is the leader",
    (_S.JOINING, _S.SYNCING): "the member is a follower, or a leader that must not assign",
    (_S.JOINING, _S.WAITING): "a rejoin is required, or there is no response",
    (_S.ASSIGNING, _S.SYNCING): "the assignment is computed, or failed",
    (_S.ASSIGNING, _S.WAITING): "the generation or the coordinator is lost",
    (_S.SYNCING, _S.ADOPTING): "the assignment is received",
    (_S.SYNCING, _S.WAITING): "a rejoin is required, or there is no response",
    (_S.ADOPTING, _S.STABLE): "the assignment is applied",
    (_S.ADOPTING, _S.WAITING): "the generation is lost",
    (_S.STABLE, _S.WAITING): "the group or the member rebalances, or the generation is lost",
    (_S.RELEASING, _S.LEAVING): "partitions are given up, LeaveGroup is sent",
    (_S.RELEASING, _S.OUT): "partitions are given up, LeaveGroup is not needed",
    (_S.LEAVING, _S.OUT): "LeaveGroup is answered, or times out",
    **{(state, _S.DORMANT): "poll was not called in time" for state in INSIDE},
    **{(state, _S.FAILED): "a fatal error" for state in INSIDE},
    **{
        (state, _S.RELEASING): "leave is requested"
        for state in MemberState
        if state in INSIDE | {_S.DORMANT, _S.FAILED}
    },
}

#: The states that may precede each state.
PREDECESSORS: dict[MemberState, frozenset[MemberState]] = {
    after: frozenset(before for before, to in CAUSES if to is after) for after in MemberState
}

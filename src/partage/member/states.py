"""The states of a member, and which may follow which."""

from __future__ import annotations

from enum import StrEnum


class MemberState(StrEnum):
    """Where a member stands.

    Kafka's own client has four: its UNJOINED is Out, Dormant and Waiting here, PREPARING_REBALANCE
    is Joining, COMPLETING_REBALANCE is Assigning and Syncing, and STABLE is Adopting, Stable and,
    as long as the member still belongs to its generation, Preparing.
    """

    OUT = "Out"
    DORMANT = "Dormant"
    WAITING = "Waiting"
    PREPARING = "Preparing"
    JOINING = "Joining"
    ASSIGNING = "Assigning"
    SYNCING = "Syncing"
    ADOPTING = "Adopting"
    STABLE = "Stable"
    RELEASING = "Releasing"
    LEAVING = "Leaving"
    FAILED = "Failed"


_S = MemberState

#: What a member in each state is about.
MEANINGS: dict[MemberState, str] = {
    _S.OUT: "It is not in the group and does not want to be.",
    _S.DORMANT: "It joins at the next poll: nobody has polled yet, or not in time.",
    _S.WAITING: (
        "It wants to join, or to join again, and waits until the coordinator is known and a "
        "back-off is over."
    ),
    _S.PREPARING: "It gives up what it has to, and writes its metadata.",
    _S.JOINING: "JoinGroup is on its way, or parked. What is still owned goes on.",
    _S.ASSIGNING: "It leads, and the assignment is made.",
    _S.SYNCING: "SyncGroup is on its way, or parked.",
    _S.ADOPTING: "It has its assignment and takes it over.",
    _S.STABLE: "It does its work and heartbeats.",
    _S.RELEASING: "It is about to leave, and gives up what it owns.",
    _S.LEAVING: "LeaveGroup is on its way.",
    _S.FAILED: "An error that trying again does not heal; only a new start does.",
}

#: The states in which the coordinator is needed, and poll has to be called.
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
#: The states whose request the coordinator may park; a parked member's session does not run.
PARKED = frozenset({_S.JOINING, _S.SYNCING})
#: The states in which the member heartbeats, if it is in a generation.
BEATING = frozenset({_S.WAITING, _S.PREPARING, _S.ASSIGNING, _S.ADOPTING, _S.STABLE, _S.RELEASING})
#: The states in which a commit in the member's name can be accepted.
COMMITTING = frozenset({_S.WAITING, _S.PREPARING, _S.ADOPTING, _S.STABLE, _S.RELEASING})
#: The states that wait for an answer: to a request, or of the embedded protocol.
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

#: Why a member takes each of the transitions.
CAUSES: dict[tuple[MemberState, MemberState], str] = {
    (_S.OUT, _S.DORMANT): "it is started, and has to be polled first",
    (_S.OUT, _S.WAITING): "it is started",
    (_S.FAILED, _S.DORMANT): "it is started again, and has to be polled first",
    (_S.FAILED, _S.WAITING): "it is started again",
    (_S.DORMANT, _S.WAITING): "somebody polls",
    (_S.WAITING, _S.PREPARING): "the coordinator is known and no back-off runs",
    (_S.PREPARING, _S.JOINING): "nothing is left to give up, the metadata is written",
    (_S.PREPARING, _S.WAITING): "the generation is lost, or the coordinator",
    (_S.JOINING, _S.ASSIGNING): "it leads",
    (_S.JOINING, _S.SYNCING): "it follows, or leads and must not assign",
    (_S.JOINING, _S.WAITING): "it is told to join again, or not told anything",
    (_S.ASSIGNING, _S.SYNCING): "the assignment is made, or could not be",
    (_S.ASSIGNING, _S.WAITING): "the generation is lost, or the coordinator",
    (_S.SYNCING, _S.ADOPTING): "it is told its assignment",
    (_S.SYNCING, _S.WAITING): "it is told to join again, or not told anything",
    (_S.ADOPTING, _S.STABLE): "the assignment is taken over",
    (_S.ADOPTING, _S.WAITING): "the generation is lost",
    (_S.STABLE, _S.WAITING): "the group rebalances, the member has to, or the generation is lost",
    (_S.RELEASING, _S.LEAVING): "nothing is owned any more, and the coordinator is to be told",
    (_S.RELEASING, _S.OUT): "nothing is owned any more, and nobody need be told",
    (_S.LEAVING, _S.OUT): "the coordinator answers, or it takes too long",
    **{(state, _S.DORMANT): "nobody polled in time" for state in INSIDE},
    **{(state, _S.FAILED): "an error that is final" for state in INSIDE},
    **{
        (state, _S.RELEASING): "it is to leave"
        for state in MemberState
        if state in INSIDE | {_S.DORMANT, _S.FAILED}
    },
}

#: Each state with those it may follow.
PREDECESSORS: dict[MemberState, frozenset[MemberState]] = {
    after: frozenset(before for before, to in CAUSES if to is after) for after in MemberState
}

"""The states of a member, and the transitions between them."""

from __future__ import annotations

from enum import StrEnum

from partage.statemachine.states import predecessors


class MemberState(StrEnum):
    """The state of a member, named after Kafka's MemberState where it has one.

    Kafka's classic client has four states. Its UNJOINED is Unsubscribed, Stale and Unjoined here;
    PREPARING_REBALANCE is Joining; COMPLETING_REBALANCE is Assigning and Syncing; STABLE is
    Reconciling, Stable and, while the member still belongs to its generation, Preparing.
    """

    UNSUBSCRIBED = "Unsubscribed"
    STALE = "Stale"
    UNJOINED = "Unjoined"
    PREPARING = "Preparing"
    JOINING = "Joining"
    ASSIGNING = "Assigning"
    SYNCING = "Syncing"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    PREPARE_LEAVING = "PrepareLeaving"
    LEAVING = "Leaving"
    FATAL = "Fatal"


_S = MemberState

#: The meaning of each state.
STATE_DESCRIPTIONS: dict[MemberState, str] = {
    _S.UNSUBSCRIBED: "Not in the group, and not asked to join.",
    _S.STALE: "Joins at the next poll: poll was not called yet, or not in time.",
    _S.UNJOINED: (
        "Wants to join or rejoin, and waits until the coordinator is known and the back-off "
        "is over."
    ),
    _S.PREPARING: "Gives up partitions where the protocol requires it, and encodes its metadata.",
    _S.JOINING: "JoinGroup is sent or parked. The member keeps working on the partitions it owns.",
    _S.ASSIGNING: "The member is the leader and computes the assignment.",
    _S.SYNCING: "SyncGroup is sent or parked.",
    _S.RECONCILING: "The member has its assignment and applies it.",
    _S.STABLE: "The member works and sends heartbeats.",
    _S.PREPARE_LEAVING: "The member is about to leave and gives up its partitions.",
    _S.LEAVING: "LeaveGroup is sent.",
    _S.FATAL: "An error that retries do not solve; only a new start leaves this state.",
}

#: The states in which the member takes part in the group: it needs the coordinator and polls.
ACTIVE_STATES = frozenset(
    {
        _S.UNJOINED,
        _S.PREPARING,
        _S.JOINING,
        _S.ASSIGNING,
        _S.SYNCING,
        _S.RECONCILING,
        _S.STABLE,
    }
)
#: The states whose request the coordinator may park; the session of a parked member does not run.
PARKED_STATES = frozenset({_S.JOINING, _S.SYNCING})
#: The states in which a member of a generation sends heartbeats.
HEARTBEATING_STATES = frozenset(
    {_S.UNJOINED, _S.PREPARING, _S.ASSIGNING, _S.RECONCILING, _S.STABLE, _S.PREPARE_LEAVING}
)
#: The states in which the coordinator can accept a commit of the member.
COMMITTING_STATES = frozenset(
    {_S.UNJOINED, _S.PREPARING, _S.RECONCILING, _S.STABLE, _S.PREPARE_LEAVING}
)
#: The states that wait for a response or for the embedded protocol.
AWAITING_STATES = frozenset(
    {
        _S.PREPARING,
        _S.JOINING,
        _S.ASSIGNING,
        _S.SYNCING,
        _S.RECONCILING,
        _S.PREPARE_LEAVING,
        _S.LEAVING,
    }
)

#: The cause of each transition.
TRANSITION_CAUSES: dict[tuple[MemberState, MemberState], str] = {
    (_S.UNSUBSCRIBED, _S.STALE): "started, poll not called yet",
    (_S.UNSUBSCRIBED, _S.UNJOINED): "started",
    (_S.FATAL, _S.STALE): "started again, poll not called yet",
    (_S.FATAL, _S.UNJOINED): "started again",
    (_S.STALE, _S.UNJOINED): "poll is called",
    (_S.UNJOINED, _S.PREPARING): "the coordinator is known and no back-off runs",
    (_S.PREPARING, _S.JOINING): "partitions are given up, metadata is encoded",
    (_S.PREPARING, _S.UNJOINED): "the generation or the coordinator is lost",
    (_S.JOINING, _S.ASSIGNING): "the member is the leader",
    (_S.JOINING, _S.SYNCING): "the member is a follower, or a leader that must not assign",
    (_S.JOINING, _S.UNJOINED): "a rejoin is required, or there is no response",
    (_S.ASSIGNING, _S.SYNCING): "the assignment is computed, or failed",
    (_S.ASSIGNING, _S.UNJOINED): "the generation or the coordinator is lost",
    (_S.SYNCING, _S.RECONCILING): "the assignment is received",
    (_S.SYNCING, _S.UNJOINED): "a rejoin is required, or there is no response",
    (_S.RECONCILING, _S.STABLE): "the assignment is applied",
    (_S.RECONCILING, _S.UNJOINED): "the generation is lost",
    (_S.STABLE, _S.UNJOINED): "the group or the member rebalances, or the generation is lost",
    (_S.PREPARE_LEAVING, _S.LEAVING): "partitions are given up, LeaveGroup is sent",
    (_S.PREPARE_LEAVING, _S.UNSUBSCRIBED): "partitions are given up, LeaveGroup is not needed",
    (_S.LEAVING, _S.UNSUBSCRIBED): "LeaveGroup is answered, or times out",
    **{(state, _S.STALE): "poll was not called in time" for state in ACTIVE_STATES},
    **{(state, _S.FATAL): "a fatal error" for state in ACTIVE_STATES},
    **{
        (state, _S.PREPARE_LEAVING): "leave is requested"
        for state in MemberState
        if state in ACTIVE_STATES | {_S.STALE, _S.FATAL}
    },
}

#: The states that may precede each state.
PREDECESSORS: dict[MemberState, frozenset[MemberState]] = predecessors(
    MemberState, TRANSITION_CAUSES
)

"""The states of a member with the consumer group protocol, and the transitions between them."""

from __future__ import annotations

from enum import StrEnum

from partage.statemachine.states import predecessors


class ConsumerMemberState(StrEnum):
    """The state of a member, with the names of Kafka's ``MemberState``."""

    UNSUBSCRIBED = "Unsubscribed"
    STALE = "Stale"
    JOINING = "Joining"
    RECONCILING = "Reconciling"
    ACKNOWLEDGING = "Acknowledging"
    STABLE = "Stable"
    FENCED = "Fenced"
    PREPARE_LEAVING = "PrepareLeaving"
    LEAVING = "Leaving"
    FATAL = "Fatal"


_S = ConsumerMemberState

#: The meaning of each state.
CONSUMER_STATE_MEANINGS: dict[ConsumerMemberState, str] = {
    _S.UNSUBSCRIBED: "Not in the group, and not asked to join.",
    _S.STALE: "Joins at the next poll: poll was not called yet, or not in time.",
    _S.JOINING: "Sends heartbeats with epoch 0 until one is accepted. It owns no partition.",
    _S.RECONCILING: (
        "Has an assignment that differs from its partitions: it revokes some, then adds others. "
        "It also waits for the names of assigned topics."
    ),
    _S.ACKNOWLEDGING: "Owns its assignment, and confirms it by a heartbeat.",
    _S.STABLE: "The coordinator knows that the member owns its assignment.",
    _S.FENCED: "Was removed from the group: gives up its partitions as lost, then joins again.",
    _S.PREPARE_LEAVING: "Is about to leave, and gives up its partitions.",
    _S.LEAVING: "Sends the heartbeat with a negative epoch, and waits for the response.",
    _S.FATAL: "An error that retries do not solve; only a new start leaves this state.",
}

#: The states in which the member takes part in the group: it needs the coordinator and polls.
ACTIVE_CONSUMER_STATES = frozenset(
    {_S.JOINING, _S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE, _S.FENCED}
)
#: The states in which an accepted member can be.
IN_GROUP_STATES = frozenset({_S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE, _S.PREPARE_LEAVING})
#: The states in which the member sends heartbeats at an interval.
REPORTING_STATES = IN_GROUP_STATES | {_S.JOINING}

#: The cause of each transition.
CONSUMER_TRANSITION_CAUSES: dict[tuple[ConsumerMemberState, ConsumerMemberState], str] = {
    (_S.UNSUBSCRIBED, _S.STALE): "started, poll not called yet",
    (_S.UNSUBSCRIBED, _S.JOINING): "started",
    (_S.FATAL, _S.STALE): "started again, poll not called yet",
    (_S.FATAL, _S.FENCED): "started again",
    (_S.STALE, _S.JOINING): "poll is called, and no partition is left",
    (_S.JOINING, _S.RECONCILING): "the heartbeat is accepted",
    (_S.RECONCILING, _S.ACKNOWLEDGING): "the partitions are those of the assignment",
    (_S.ACKNOWLEDGING, _S.STABLE): "the heartbeat is accepted",
    (_S.ACKNOWLEDGING, _S.RECONCILING): "another assignment, or an unknown topic id",
    (_S.STABLE, _S.RECONCILING): "another assignment",
    (_S.RECONCILING, _S.FENCED): "the coordinator removed the member",
    (_S.ACKNOWLEDGING, _S.FENCED): "the coordinator removed the member",
    (_S.STABLE, _S.FENCED): "the coordinator removed the member",
    (_S.FENCED, _S.JOINING): "the lost partitions are given up",
    (_S.PREPARE_LEAVING, _S.LEAVING): "partitions are given up, a last heartbeat is needed",
    (_S.PREPARE_LEAVING, _S.UNSUBSCRIBED): "partitions are given up, no heartbeat is needed",
    (_S.LEAVING, _S.UNSUBSCRIBED): "the heartbeat is answered, or times out",
    **{(state, _S.STALE): "poll was not called in time" for state in ACTIVE_CONSUMER_STATES},
    **{(state, _S.FATAL): "a fatal error" for state in ACTIVE_CONSUMER_STATES},
    **{
        (state, _S.PREPARE_LEAVING): "leave is requested"
        for state in ConsumerMemberState
        if state in ACTIVE_CONSUMER_STATES | {_S.STALE, _S.FATAL}
    },
}

#: The states that may precede each state.
CONSUMER_STATE_PREDECESSORS: dict[ConsumerMemberState, frozenset[ConsumerMemberState]] = (
    predecessors(ConsumerMemberState, CONSUMER_TRANSITION_CAUSES)
)

"""The states of a transactional id and the allowed transitions."""

from __future__ import annotations

from enum import StrEnum

from partage.statemachine.states import predecessors


class TransactionState(StrEnum):
    """The state of a transactional id, with the name that Kafka's tools show."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


#: States that Kafka's tools know and that no transactional id is in here. In Kafka they exist in
#: memory only, while a record is on its way to the log.
KAFKA_INTERNAL_STATES = ("Dead", "PrepareEpochFence")

#: A description of each state, for the documentation.
STATE_DESCRIPTIONS: dict[TransactionState, str] = {
    TransactionState.EMPTY: "A producer has the id and its epoch, and no transaction.",
    TransactionState.ONGOING: "A transaction is open and has partitions.",
    TransactionState.PREPARE_COMMIT: (
        "The commit is decided and durable. The markers are being written."
    ),
    TransactionState.PREPARE_ABORT: (
        "The abort is decided and durable. The markers are being written."
    ),
    TransactionState.COMPLETE_COMMIT: "Every partition has its commit marker.",
    TransactionState.COMPLETE_ABORT: "Every partition has its abort marker.",
}

_ENDED = (
    TransactionState.EMPTY,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)

#: The allowed transitions, each with its causes for the documentation.
TRANSITION_CAUSES: dict[tuple[TransactionState, TransactionState], str] = {
    **{(state, TransactionState.EMPTY): "InitProducerId" for state in _ENDED},
    **{(state, TransactionState.ONGOING): "the first partition is added" for state in _ENDED},
    (TransactionState.ONGOING, TransactionState.ONGOING): "a partition is added",
    (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT): "EndTxn commits",
    (TransactionState.ONGOING, TransactionState.PREPARE_ABORT): (
        "EndTxn aborts, a new producer starts, or the timeout passes"
    ),
    **{
        (state, TransactionState.PREPARE_ABORT): "EndTxn v5 aborts without a transaction"
        for state in _ENDED
    },
    (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT): "the last marker",
    (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT): "the last marker",
}

#: The allowed predecessors of each state. Loading sets the state directly from the record.
PREDECESSORS: dict[TransactionState, frozenset[TransactionState]] = predecessors(
    TransactionState, TRANSITION_CAUSES
)

#: The states in which no transaction is open.
ENDED = frozenset(_ENDED)
#: The states in which the markers are being written.
PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})


def completion_of(prepared: TransactionState) -> TransactionState:
    """Return the state after the last marker."""
    if prepared is TransactionState.PREPARE_COMMIT:
        return TransactionState.COMPLETE_COMMIT
    return TransactionState.COMPLETE_ABORT

"""The response to each request in each state, as the table that the handlers use.

Each row is a request, divided into the cases that get different responses. The first column is for
a transactional id that does not exist. While the markers are being written, every request gets
CONCURRENT_TRANSACTIONS: its producer may already use the id of the next transaction. `VALIDATIONS`
lists the checks that come first. The page
``docs/transactions.md`` is generated from this module.
"""

from __future__ import annotations

from enum import Enum, StrEnum

from partage.model.errors import ErrorCode
from partage.transactions.states import TransactionState


class TransactionCase(StrEnum):
    """A request, divided into the cases that get different responses."""

    INIT_NEW = "InitProducerId, without producer id"
    INIT_CURRENT = "InitProducerId, with the current epoch"
    INIT_LAST = "InitProducerId, with the last epoch"
    INIT_STALE = "InitProducerId, with another epoch"
    INIT_FOREIGN = "InitProducerId, with another producer id"
    ADD = "AddPartitionsToTxn, AddOffsetsToTxn, first write"
    VERIFY = "AddPartitionsToTxn, check only"
    COMMIT = "EndTxn up to v4, commit"
    ABORT = "EndTxn up to v4, abort"
    COMMIT_2 = "EndTxn v5, commit"
    ABORT_2 = "EndTxn v5, abort"
    REPEATED_COMMIT_2 = "EndTxn v5, commit, with the last epoch"
    REPEATED_ABORT_2 = "EndTxn v5, abort, with the last epoch"


class TransactionResponse(Enum):
    """A response; the value describes it in the generated documentation."""

    UNKNOWN_ID = "INVALID_PRODUCER_ID_MAPPING"
    FENCED = "PRODUCER_FENCED"
    CONCURRENT = "CONCURRENT_TRANSACTIONS"
    INVALID_STATE = "INVALID_TXN_STATE"
    CREATE = "a new producer id, epoch 0"
    BUMP = "the next epoch"
    KEEP_EPOCH = "the current epoch"
    ABORT_OPEN = "CONCURRENT_TRANSACTIONS; the transaction is aborted with the next epoch"
    BEGIN = "a transaction begins with the partitions"
    ADD = "the new partitions are added"
    VERIFY = "NONE, or TRANSACTION_ABORTABLE if the partition was not added"
    PREPARE = "the result is stored, from v5 on with the next epoch; then the markers are written"
    ABORT_NOTHING = "an abort without partitions is stored, with the next epoch"
    DONE = "NONE"


_A = TransactionResponse

#: Columns: missing, Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort.
_TABLE: dict[TransactionCase, tuple[TransactionResponse, ...]] = {
    TransactionCase.INIT_NEW: (
        _A.CREATE,
        _A.BUMP,
        _A.ABORT_OPEN,
        _A.CONCURRENT,
        _A.CONCURRENT,
        _A.BUMP,
        _A.BUMP,
    ),
    TransactionCase.INIT_CURRENT: (
        _A.CREATE,
        _A.BUMP,
        _A.ABORT_OPEN,
        _A.CONCURRENT,
        _A.CONCURRENT,
        _A.BUMP,
        _A.BUMP,
    ),
    TransactionCase.INIT_LAST: (
        _A.CREATE,
        _A.KEEP_EPOCH,
        _A.ABORT_OPEN,
        _A.CONCURRENT,
        _A.CONCURRENT,
        _A.KEEP_EPOCH,
        _A.KEEP_EPOCH,
    ),
    TransactionCase.INIT_STALE: (
        _A.CREATE,
        _A.FENCED,
        _A.ABORT_OPEN,
        _A.CONCURRENT,
        _A.CONCURRENT,
        _A.FENCED,
        _A.FENCED,
    ),
    TransactionCase.INIT_FOREIGN: (
        _A.CREATE,
        _A.FENCED,
        _A.FENCED,
        _A.CONCURRENT,
        _A.CONCURRENT,
        _A.FENCED,
        _A.FENCED,
    ),
    TransactionCase.ADD: (
        _A.UNKNOWN_ID,
        _A.BEGIN,
        _A.ADD,
        _A.CONCURRENT,
        _A.CONCURRENT,
        _A.BEGIN,
        _A.BEGIN,
    ),
    TransactionCase.VERIFY: (
        _A.UNKNOWN_ID,
        _A.VERIFY,
        _A.VERIFY,
        _A.CONCURRENT,
        _A.CONCURRENT,
        _A.VERIFY,
        _A.VERIFY,
    ),
    TransactionCase.COMMIT: (
        _A.UNKNOWN_ID,
        _A.INVALID_STATE,
        _A.PREPARE,
        _A.CONCURRENT,
        _A.CONCURRENT,
        _A.DONE,
        _A.INVALID_STATE,
    ),
    TransactionCase.ABORT: (
        _A.UNKNOWN_ID,
        _A.INVALID_STATE,
        _A.PREPARE,
        _A.CONCURRENT,
        _A.CONCURRENT,
        _A.INVALID_STATE,
        _A.DONE,
    ),
    TransactionCase.COMMIT_2: (
        _A.UNKNOWN_ID,
        _A.INVALID_STATE,
        _A.PREPARE,
        _A.CONCURRENT,
        _A.CONCURRENT,
        _A.INVALID_STATE,
        _A.INVALID_STATE,
    ),
    TransactionCase.ABORT_2: (
        _A.UNKNOWN_ID,
        _A.ABORT_NOTHING,
        _A.PREPARE,
        _A.CONCURRENT,
        _A.CONCURRENT,
        _A.ABORT_NOTHING,
        _A.ABORT_NOTHING,
    ),
    TransactionCase.REPEATED_COMMIT_2: (
        _A.UNKNOWN_ID,
        _A.FENCED,
        _A.FENCED,
        _A.CONCURRENT,
        _A.CONCURRENT,
        _A.DONE,
        _A.INVALID_STATE,
    ),
    TransactionCase.REPEATED_ABORT_2: (
        _A.UNKNOWN_ID,
        _A.FENCED,
        _A.FENCED,
        _A.CONCURRENT,
        _A.CONCURRENT,
        _A.INVALID_STATE,
        _A.DONE,
    ),
}

STATE_COLUMNS: tuple[TransactionState | None, ...] = (
    None,
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)

RESPONSES: dict[TransactionCase, dict[TransactionState | None, TransactionResponse]] = {
    row: dict(zip(STATE_COLUMNS, responses, strict=True)) for row, responses in _TABLE.items()
}

#: The error codes of the responses that consist of an error only.
RESPONSE_ERRORS: dict[TransactionResponse, ErrorCode] = {
    TransactionResponse.UNKNOWN_ID: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    TransactionResponse.FENCED: ErrorCode.PRODUCER_FENCED,
    TransactionResponse.CONCURRENT: ErrorCode.CONCURRENT_TRANSACTIONS,
    TransactionResponse.INVALID_STATE: ErrorCode.INVALID_TXN_STATE,
}

_KNOWN_PRODUCER = (
    "PrepareCommit or PrepareAbort: CONCURRENT_TRANSACTIONS",
    "another producer id: INVALID_PRODUCER_ID_MAPPING",
    "another epoch: PRODUCER_FENCED; INVALID_PRODUCER_EPOCH in the first two versions",
)

#: The checks before the table lookup, in order, by request.
VALIDATIONS: dict[str, tuple[str, ...]] = {
    "InitProducerId": (
        "no transactional id: a new producer id, epoch 0",
        "only one of producer id and epoch: INVALID_REQUEST",
        "empty transactional id: INVALID_REQUEST",
        "timeout of 0 or less, or above `transaction.max.timeout.ms`: INVALID_TRANSACTION_TIMEOUT",
    ),
    "AddPartitionsToTxn": (
        "empty transactional id: INVALID_REQUEST",
        "a partition does not exist: UNKNOWN_TOPIC_OR_PARTITION; all others: "
        "OPERATION_NOT_ATTEMPTED",
        *_KNOWN_PRODUCER,
    ),
    "AddOffsetsToTxn": ("empty transactional id: INVALID_REQUEST", *_KNOWN_PRODUCER),
    "EndTxn": ("empty transactional id: INVALID_REQUEST", *_KNOWN_PRODUCER),
}

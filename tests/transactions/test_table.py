"""The response table against the state machine: every cell is requested and compared."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.transactions.events import (
    VERSION_0,
    VERSION_2,
    AddPartitions,
    EndTransaction,
    InitProducer,
    TransactionRequest,
    VerifyPartitions,
)
from partage.transactions.records import TransactionRecord
from partage.transactions.replies import PartitionsReply, ProducerReply
from partage.transactions.response_table import (
    RESPONSE_ERRORS,
    RESPONSES,
    STATE_COLUMNS,
    TransactionCase,
    TransactionResponse,
)
from partage.transactions.states import ENDED, PREPARED, TransactionState

from .harness import Harness

PRODUCER_ID, EPOCH, LAST_EPOCH, FRESH_ID = 7, 5, 4, 99
ADDED, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def in_state(state: TransactionState | None) -> Harness:
    """Return a shard whose transactional id ``x`` is in a state."""
    harness = Harness()
    if state is not None:
        is_open = state not in ENDED
        harness.log.append(
            TransactionRecord(
                transactional_id="x",
                producer_id=PRODUCER_ID,
                epoch=EPOCH,
                last_epoch=LAST_EPOCH,
                timeout_ms=1_000,
                state=state,
                partitions=(ADDED,) if is_open else (),
                updated_ms=1,
                started_ms=1 if is_open else -1,
            )
        )
        harness.crash()
    harness.is_held = True
    return harness


def init(producer_id: int, epoch: int) -> TransactionRequest:
    return InitProducer(
        at_ms=2,
        reply_to=object(),
        transactional_id="x",
        timeout_ms=1_000,
        producer_id=producer_id,
        epoch=epoch,
        fresh_producer_id=FRESH_ID,
    )


def end(*, is_commit: bool, version: int, epoch: int = EPOCH) -> TransactionRequest:
    return EndTransaction(
        at_ms=2,
        reply_to=object(),
        transactional_id="x",
        producer_id=PRODUCER_ID,
        epoch=epoch,
        is_commit=is_commit,
        version=version,
    )


def partitions_request(kind: type[AddPartitions | VerifyPartitions]) -> TransactionRequest:
    return kind(
        at_ms=2,
        reply_to=object(),
        transactional_id="x",
        producer_id=PRODUCER_ID,
        epoch=EPOCH,
        partitions=(ADDED, OTHER),
    )


REQUESTS: dict[TransactionCase, TransactionRequest] = {
    TransactionCase.INIT_NEW: init(-1, -1),
    TransactionCase.INIT_CURRENT: init(PRODUCER_ID, EPOCH),
    TransactionCase.INIT_LAST: init(PRODUCER_ID, LAST_EPOCH),
    TransactionCase.INIT_STALE: init(PRODUCER_ID, 1),
    TransactionCase.INIT_FOREIGN: init(8, EPOCH),
    TransactionCase.ADD: partitions_request(AddPartitions),
    TransactionCase.VERIFY: partitions_request(VerifyPartitions),
    TransactionCase.COMMIT: end(is_commit=True, version=VERSION_0),
    TransactionCase.ABORT: end(is_commit=False, version=VERSION_0),
    TransactionCase.COMMIT_2: end(is_commit=True, version=VERSION_2),
    TransactionCase.ABORT_2: end(is_commit=False, version=VERSION_2),
    TransactionCase.REPEATED_COMMIT_2: end(is_commit=True, version=VERSION_2, epoch=LAST_EPOCH),
    TransactionCase.REPEATED_ABORT_2: end(is_commit=False, version=VERSION_2, epoch=LAST_EPOCH),
}


class Cell:
    """A cell with its request and effects."""

    def __init__(self, case: TransactionCase, state: TransactionState | None) -> None:
        self.case = case
        self.state = state
        self.harness = in_state(state)
        request = REQUESTS[case]
        if case is TransactionCase.ADD:  # only a new partition changes an open transaction
            assert isinstance(request, AddPartitions)
            request = msgspec.structs.replace(request, partitions=(OTHER,))
        self.harness.orders.clear()
        self.harness.appended.clear()
        self.harness.handle(request)
        self.records = list(self.harness.appended)
        held = not self.harness.replies
        self.is_reply_held = held
        self.are_markers_held = not self.harness.orders
        self.harness.release()
        ((_, self.reply),) = self.harness.replies

    @property
    def record(self) -> TransactionRecord:
        record = self.records[-1]
        assert isinstance(record, TransactionRecord)
        return record

    def check_error(self, error: ErrorCode) -> None:
        if isinstance(self.reply, PartitionsReply):
            assert set(self.reply.errors) == {error}
        else:
            assert self.reply.error is error

    def check_granted(self, producer_id: int, epoch: int) -> None:
        assert self.reply == ProducerReply(producer_id=producer_id, epoch=epoch)
        assert self.is_reply_held
        assert self.record.state is TransactionState.EMPTY


def check_verified(cell: Cell) -> None:
    assert isinstance(cell.reply, PartitionsReply)
    is_open = cell.state is TransactionState.ONGOING
    first = ErrorCode.NONE if is_open else ErrorCode.TRANSACTION_ABORTABLE
    assert cell.reply.errors == (first, ErrorCode.TRANSACTION_ABORTABLE)


def check_added(cell: Cell) -> None:
    cell.check_error(ErrorCode.NONE)
    assert cell.is_reply_held
    begins = cell.state is not TransactionState.ONGOING
    assert cell.record.partitions == ((OTHER,) if begins else (ADDED, OTHER))
    assert cell.record.started_ms == (2 if begins else 1)


def check_prepared(cell: Cell) -> None:
    assert cell.is_reply_held
    assert cell.are_markers_held, "a marker may not precede the durable decision"
    request = REQUESTS[cell.case]
    assert isinstance(request, EndTransaction)
    epoch = EPOCH + (request.version == VERSION_2)
    assert cell.reply == ProducerReply(producer_id=PRODUCER_ID, epoch=epoch)
    (order,) = cell.harness.orders
    assert (order.epoch, order.is_commit, order.partitions) == (epoch, request.is_commit, (ADDED,))


def check_nothing_aborted(cell: Cell) -> None:
    assert cell.reply == ProducerReply(producer_id=PRODUCER_ID, epoch=EPOCH + 1)
    assert cell.record.state is TransactionState.COMPLETE_ABORT
    assert not cell.harness.orders


def check_open_aborted(cell: Cell) -> None:
    cell.check_error(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert cell.record.state is TransactionState.PREPARE_ABORT
    assert cell.record.epoch == EPOCH + 1
    (order,) = cell.harness.orders
    assert not order.is_commit


CHECKS: dict[TransactionResponse, Callable[[Cell], None]] = {
    TransactionResponse.CREATE: lambda cell: cell.check_granted(FRESH_ID, 0),
    TransactionResponse.BUMP: lambda cell: cell.check_granted(PRODUCER_ID, EPOCH + 1),
    TransactionResponse.KEEP_EPOCH: lambda cell: cell.check_granted(PRODUCER_ID, EPOCH),
    TransactionResponse.ABORT_OPEN: check_open_aborted,
    TransactionResponse.BEGIN: check_added,
    TransactionResponse.ADD: check_added,
    TransactionResponse.VERIFY: check_verified,
    TransactionResponse.PREPARE: check_prepared,
    TransactionResponse.ABORT_NOTHING: check_nothing_aborted,
    TransactionResponse.DONE: lambda cell: cell.check_error(ErrorCode.NONE),
}


@pytest.mark.parametrize("case", TransactionCase)
def test_response_equals_table(case: TransactionCase) -> None:
    for state in STATE_COLUMNS:
        response = RESPONSES[case][state]
        cell = Cell(case, state)
        if response in RESPONSE_ERRORS:
            cell.check_error(RESPONSE_ERRORS[response])
            assert not cell.records, "an error changes nothing"
        else:
            CHECKS[response](cell)


def test_every_request_waits_while_markers_are_written() -> None:
    for state in PREPARED:
        assert {responses[state] for responses in RESPONSES.values()} == {
            TransactionResponse.CONCURRENT
        }

"""Exactly-once delivery without I/O: the steps of a task, of the driver's commit and its abort.

A step is a generator. It yields requests and gets their replies, so a shell can perform them at a
cluster, and a test can interleave the steps of several runs.

The rules:

1. Each attempt of a task writes with its own transactional id. It leaves its transaction open.
2. The rows of a task and its marker are in one transaction. So the marker tells if the rows are
   committed, even if the coordinator no longer knows the transaction.
3. The driver stores one decision for each batch before it commits a transaction. The decision is
   a transaction of the *owner id*. From then on, each process that finds an open transaction of
   the decision commits it. No process commits a transaction that is in no decision.
4. A run becomes the owner before its first task opens a transaction. This fences the decisions of
   earlier runs. So no two runs decide the same batch.
5. If a transaction of the decision is lost, the owner stores a new decision with a transaction of
   the repetition in its place.
6. The owner aborts the open transactions of former owners only. They cannot decide again, so it
   aborts no decided transaction, even if a later run has become the owner in the meantime.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from partage.spark.sink.batch_decision import (
    Decision,
    Owner,
    PreparedTransaction,
    SinkName,
    SinkState,
    TaskResult,
    choose_substitutes,
    unfinished,
)


class Request(msgspec.Struct, frozen=True):
    """A request to the cluster."""


class ReadState(Request, frozen=True):
    """Read the committed state; the reply is a `SinkState`.

    Attributes:
        is_stable: wait for the end of a transaction that stores a state. A coordinator may apply
            a committed offset after it has answered the commit (KIP-447), so the reply could lack
            a decision. Without this wait, a reader is not blocked by a driver that has died.
    """

    is_stable: bool = False


class AwaitOwner(Request, frozen=True):
    """Read the state until a run is or was the owner; the reply is the last `SinkState`.

    Attributes:
        run: the run.
        timeout_s: the longest wait. It ends at a random time in its second half, so that processes
            that began to wait at the same time do not go on at the same time.
        must_have_cleaned: also wait until the run has cleaned, if it is the owner.
    """

    run: str
    timeout_s: float
    must_have_cleaned: bool = False

    def is_met_by(self, state: SinkState) -> bool:
        """True if there is no reason to wait after this state."""
        owner = state.owner
        if owner is None or self.run not in (owner.run, *owner.former_runs):
            return False
        return owner.has_cleaned or not self.must_have_cleaned or owner.run != self.run


class ReadMarkers(Request, frozen=True):
    """Read the committed markers of tasks; the reply is a mapping from task to `Marker`."""

    tasks: tuple[int, ...]


class AwaitMarkers(Request, frozen=True):
    """Wait until committed tasks have markers of a batch or a later one; the reply is a mapping.

    A coordinator answers a commit before its markers can be read.
    """

    tasks: tuple[int, ...]
    batch: int


class TakeOver(Request, frozen=True):
    """Fence a transactional id; the reply is its new producer id and epoch.

    An open transaction is aborted. A transaction that the coordinator has decided completes first.
    """

    transactional_id: str


class StoreState(Request, frozen=True):
    """Write a state and commit it, as its owner; the reply is False if the owner is fenced."""

    state: SinkState


class FindClosed(Request, frozen=True):
    """Return transactions that are no longer open, or may time out before a decision is stored."""

    transactions: tuple[PreparedTransaction, ...]


class CommitAll(Request, frozen=True):
    """Commit transactions; the reply is a list of those that were not committed."""

    transactions: tuple[PreparedTransaction, ...]


class AbortOpen(Request, frozen=True):
    """Abort all open transactions whose ids begin with one of some prefixes; there is no reply."""

    prefixes: tuple[str, ...]


class TransactionLostError(RuntimeError):
    """The broker has aborted the transaction of a task before its batch was committed."""


class SupersededError(RuntimeError):
    """Another run of the same query has started, and this one may no longer write."""


class OutdatedCheckpointError(RuntimeError):
    """The sink has a later batch than the checkpoint of the query."""

    def __init__(self, batch: int, decided: int) -> None:
        super().__init__(
            f"the query runs batch {batch}, but the sink has batch {decided} already: the "
            "checkpoint was restored from an older copy, or another run of this query has "
            "continued. Stop the other run, or start the query with a new checkpoint"
        )


#: A task waits this long for task 0, times its number, so that not all tasks take over at once.
_TASK_WAIT_S: Final = 1.0
_WAITING_TASKS_MAX: Final = 20
#: An attempt that was fenced while it took over waits this long, then twice as long, and so on.
_FENCED_WAIT_S: Final = 2.0
_FENCED_WAIT_MAX_S: Final = 16.0

T = TypeVar("T")
Flow: TypeAlias = Generator[Request, Any, T]


def begin_task(sink: SinkName, run: str, batch: int, task: int) -> Flow[bool]:
    """Return True if the task must write its rows; False if its batch is committed already.

    Task 0 makes its run the owner. Another task does so if it has waited for task 0 in vain. Tasks
    may read an outdated decision. The driver then does not use what they write.

    Raises:
        OutdatedCheckpointError: if a later batch is decided.
        SupersededError: if a later run has become the owner instead of this run.
    """
    if task == 0:
        state = yield from _become_owner(sink, run, batch)
    else:
        state = yield AwaitOwner(run, min(task, _WAITING_TASKS_MAX) * _TASK_WAIT_S)
        _check_not_replaced(state, run, batch)
        if state.owner is None or state.owner.run != run:
            state = yield from _become_owner(sink, run, batch)
    decision = state.decision
    if decision is None or decision.batch < batch:
        return True
    if decision.batch > batch:
        raise OutdatedCheckpointError(batch, decision.batch)
    lost = yield from _complete(decision)
    return bool(lost)


def end_task(run: str, batch: int, prepared: PreparedTransaction) -> Flow[None]:
    """Raise `SupersededError` if the driver no longer needs a transaction that a task has prepared.

    The driver aborts the transactions of other attempts when it commits a batch. An attempt that
    opens its transaction later must abort it: it would block readers until the next batch.
    """
    state: SinkState = yield ReadState()
    decision = state.decision
    is_late = decision is not None and (
        decision.batch > batch
        or (
            decision.batch == batch
            and decision.run == run
            and prepared not in decision.transactions
        )
    )
    if is_late or (state.owner is not None and run in state.owner.former_runs):
        raise SupersededError(
            f"another attempt of task {prepared.task} was committed with batch {batch}, or another "
            "run of this query has started, so the rows of this attempt are not written"
        )


def commit_batch(sink: SinkName, run: str, batch: int, results: Sequence[TaskResult]) -> Flow[None]:
    """Commit a batch whose tasks have all ended.

    Raises:
        TransactionLostError: if a transaction was aborted. Nothing or a part is committed; the
            repetition of the batch commits the rest.
        SupersededError: if another run of the query is the owner. This run commits nothing.
        RowsChangedError: if a part is committed and its repetition has other rows.
        OutdatedCheckpointError: if a later batch is decided. Nothing is committed.
    """
    state: SinkState = yield ReadState(is_stable=True)
    decision = state.decision
    if decision is not None and decision.batch > batch:
        raise OutdatedCheckpointError(batch, decision.batch)
    if decision is None or decision.batch < batch:
        prepared = tuple(each.transaction for each in results if each.transaction is not None)
        if prepared:
            wanted = Decision(batch, run, prepared)
            yield from _commit_as_owner(sink, run, state, wanted, prepared)
    else:
        lost = yield from _complete(decision)
        if lost:
            kept = tuple(each for each in decision.transactions if each not in lost)
            markers = yield AwaitMarkers(tuple(sorted(each.task for each in kept)), batch)
            substitutes = tuple(choose_substitutes(decision, lost, markers, results))
            wanted = Decision(batch, run, kept + substitutes)
            yield from _commit_as_owner(sink, run, state, wanted, substitutes)
    # Transactions of other attempts would block readers until their timeout.
    yield AbortOpen((sink.run_prefix(run),))


def abort_batch(sink: SinkName, run: str, batch: int) -> Flow[None]:
    """Abort the transactions of a failed batch, unless they are decided."""
    state: SinkState = yield ReadState()
    if state.owner is not None and state.owner.run == run:
        # The reply to a decision may be missing: complete or abort it, so that it can be read.
        yield TakeOver(sink.root)
        state = yield ReadState(is_stable=True)
    decision = state.decision
    if (
        decision is None
        or decision.batch != batch
        or all(each.run != run for each in decision.transactions)
    ):
        yield AbortOpen((sink.run_prefix(run),))


def _become_owner(sink: SinkName, run: str, batch: int) -> Flow[SinkState]:
    """Make a run the owner, and return the state after that.

    Several attempts may try this at the same time, and each fences the one before it. So a fenced
    one waits for the other. If it tried again at once, they could fence one another without end.
    """
    wait_s = _FENCED_WAIT_S
    while True:
        state: SinkState = yield ReadState()
        _check_not_replaced(state, run, batch)
        if state.owner is not None and state.owner.run == run and state.owner.has_cleaned:
            return state
        producer_id, producer_epoch = yield TakeOver(sink.root)
        # No earlier owner can decide from here on.
        state = yield ReadState(is_stable=True)
        _check_not_replaced(state, run, batch)
        state = state.owned_by(run, producer_id, producer_epoch)
        if (yield StoreState(state)):
            assert state.owner is not None
            if state.owner.has_cleaned:
                return state
            if state.decision is not None:
                yield from _complete(state.decision)
            yield AbortOpen(tuple(map(sink.run_prefix, state.owner.former_runs)))
            # Stored last: if this attempt dies before, the next one repeats the cleanup.
            owner = msgspec.structs.replace(state.owner, has_cleaned=True)
            state = SinkState(owner, state.decision)
            if (yield StoreState(state)):
                return state
        yield AwaitOwner(run, wait_s, must_have_cleaned=True)
        wait_s = min(2 * wait_s, _FENCED_WAIT_MAX_S)


def _check_not_replaced(state: SinkState, run: str, batch: int) -> None:
    """Raise `SupersededError` if a run was the owner, and a later run is the owner now."""
    if state.owner is not None and run in state.owner.former_runs:
        raise _superseded(batch)


def _commit_as_owner(
    sink: SinkName,
    run: str,
    state: SinkState,
    wanted: Decision,
    prepared: tuple[PreparedTransaction, ...],
) -> Flow[None]:
    """Store a decision as the owner, and complete it.

    Args:
        sink: the names of the sink.
        run: the run, which must be the owner.
        state: the state that was read.
        wanted: the decision to store.
        prepared: its transactions that are open.
    """
    decision = yield from _decide(sink, run, state, wanted, prepared)
    lost = yield from _complete(decision)
    if lost:
        raise _lost(wanted.batch, lost)


def _decide(
    sink: SinkName,
    run: str,
    state: SinkState,
    wanted: Decision,
    prepared: tuple[PreparedTransaction, ...],
) -> Flow[Decision]:
    """Store a decision as the owner; return the stored one."""
    previous = state.decision
    for is_retry in False, True:
        if is_retry:
            state = yield ReadState()
        owner = _check_owner(state, run, wanted.batch)
        if is_retry or not owner.has_cleaned:
            # Another attempt of task 0 has fenced the owner, or the coordinator has removed its
            # expired id.
            producer_id, producer_epoch = yield TakeOver(sink.root)
            state = yield ReadState(is_stable=True)
            _check_owner(state, run, wanted.batch)
            if state.decision is not None and state.decision != previous:
                return state.decision  # it was stored, but the reply was lost
            state = state.owned_by(run, producer_id, producer_epoch)
            # An attempt of task 0 has ended, so it has cleaned.
            owner = msgspec.structs.replace(
                _check_owner(state, run, wanted.batch), has_cleaned=True
            )
        # A decision about a lost transaction cannot be kept, so look at the last moment.
        lost = yield FindClosed(prepared)
        if lost:
            raise _lost(wanted.batch, lost)
        if (yield StoreState(SinkState(owner, wanted))):
            return wanted
    raise _superseded(wanted.batch)


def _check_owner(state: SinkState, run: str, batch: int) -> Owner:
    """Return the owner. Raise `SupersededError` if it is another run."""
    if state.owner is None or state.owner.run != run:
        raise _superseded(batch)
    return state.owner


def _complete(decision: Decision) -> Flow[list[PreparedTransaction]]:
    """Commit the open transactions of a decision; return those that were lost."""
    tasks = tuple(each.task for each in decision.transactions)
    open_ones = unfinished(decision, (yield ReadMarkers(tasks)))
    if not open_ones:
        return []
    refused = yield CommitAll(tuple(open_ones))
    if not refused:
        return []
    # Another process may have completed it, and the coordinator may not know it any longer.
    markers = yield ReadMarkers(tuple(each.task for each in refused))
    return unfinished(msgspec.structs.replace(decision, transactions=tuple(refused)), markers)


def _lost(batch: int, lost: Sequence[PreparedTransaction]) -> TransactionLostError:
    tasks = ", ".join(str(each.task) for each in lost)
    return TransactionLostError(
        f"the broker aborted the transactions of batch {batch}, tasks {tasks}, before the batch "
        "was committed, or would abort them soon: the batch took as long as "
        "kafka.transaction.timeout.ms without kafka.max.block.ms, or another run of this query "
        "has started. The query repeats the batch when it is started again"
    )


def _superseded(batch: int) -> SupersededError:
    return SupersededError(
        f"another run of this query writes to the same sink, so batch {batch} is not committed. "
        "Stop the other run, or give each query its own checkpoint"
    )

"""Decisions about the batches of a query: which transactions of its tasks are committed.

The decision is stored as committed offsets with metadata, in groups that have no members. Kafka
limits the metadata of one offset (``offset.metadata.max.bytes``), so a decision with many
transactions needs several groups. They are written in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

#: Transactions in one document: 40 of at most 85 bytes, and the owner, are less than 4096 bytes.
_TRANSACTIONS_MAX: Final = 40
#: Former owners that the state keeps.
_FORMER_RUNS_MAX: Final = 8


class SinkName(msgspec.Struct, frozen=True):
    """The names that a query uses at the brokers, from its prefix and the query's id."""

    prefix: str
    query: str

    @property
    def root(self) -> str:
        """The transactional id of the decisions, and the group of their first document."""
        return f"{self.prefix}/{self.query}"

    def document_group(self, number: int) -> str:
        """Return the group of a document of the decision."""
        return self.root if number == 0 else f"{self.root}/decision/{number}"

    def marker_group(self, task: int) -> str:
        """Return the group of the marker of a task."""
        return f"{self.root}/task/{task}"

    def run_prefix(self, run: str) -> str:
        """Return the prefix of the transactional ids of all tasks of a run."""
        return f"{self.root}/{run}/"

    def task_id(self, run: str, task: int, attempt: int) -> str:
        """Return the transactional id of an attempt of a task."""
        return f"{self.run_prefix(run)}{task}/{attempt}"


class PreparedTransaction(msgspec.Struct, frozen=True, array_like=True):
    """An open transaction with all rows of a task; its producer has ended."""

    task: int
    attempt: int
    producer_id: int
    producer_epoch: int
    run: str


class Decision(msgspec.Struct, frozen=True):
    """The transactions of a batch that are committed, and the run of the query that decided.

    A later run replaces lost transactions by its own, so the transactions may be of several runs.
    """

    batch: int
    run: str
    transactions: tuple[PreparedTransaction, ...]


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """The run of the query that may decide, with the producer of its decisions.

    Attributes:
        run: the run.
        producer_id: the producer id of its decisions.
        producer_epoch: the epoch of this producer.
        has_cleaned: True if the run has completed the decision of its predecessor and has aborted
            the other transactions.
        former_runs: the last owners before it. They cannot become the owner again.
    """

    run: str
    producer_id: int
    producer_epoch: int
    has_cleaned: bool = False
    former_runs: tuple[str, ...] = ()


class SinkState(msgspec.Struct, frozen=True):
    """The owner and the last decision; None before the first ones."""

    owner: Owner | None = None
    decision: Decision | None = None

    def owned_by(self, run: str, producer_id: int, producer_epoch: int) -> SinkState:
        """Return the state after a run has fenced the producer of the decisions."""
        if self.owner is None:
            owner = Owner(run, producer_id, producer_epoch)
        elif self.owner.run == run:
            owner = msgspec.structs.replace(
                self.owner, producer_id=producer_id, producer_epoch=producer_epoch
            )
        else:
            former_runs = (*self.owner.former_runs, self.owner.run)[-_FORMER_RUNS_MAX:]
            owner = Owner(run, producer_id, producer_epoch, former_runs=former_runs)
        return SinkState(owner, self.decision)


class Marker(msgspec.Struct, frozen=True):
    """The last committed batch of a task, with a digest of its rows."""

    batch: int
    digest: int


class TaskResult(msgspec.Struct, frozen=True):
    """The end of a task.

    Attributes:
        task: the number of the task in its batch.
        rows: the number of rows that it wrote.
        digest: the digest of these rows; None if an earlier run has committed the whole batch.
        transaction: the open transaction with the rows; None if there are no rows.
    """

    task: int
    rows: int
    digest: int | None
    transaction: PreparedTransaction | None


class RowsChangedError(RuntimeError):
    """A repeated batch has other rows, although a part of it is committed already."""


class _Document(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a state; the owner is in the first document only."""

    batch: int
    run: str
    count: int
    owner: Owner | None = None
    transactions: tuple[PreparedTransaction, ...] = ()


def encode_state(state: SinkState) -> list[str]:
    """Return the documents of a state, at least one."""
    decision = state.decision or Decision(-1, "", ())
    count = len(decision.transactions)
    return [
        msgspec.json.encode(
            _Document(
                batch=decision.batch,
                run=decision.run,
                count=count,
                owner=state.owner if start == 0 else None,
                transactions=decision.transactions[start : start + _TRANSACTIONS_MAX],
            )
        ).decode()
        for start in range(0, max(count, 1), _TRANSACTIONS_MAX)
    ]


def document_count(first: str) -> int:
    """Return the number of documents of a state, from its first one."""
    count = msgspec.json.decode(first, type=_Document).count
    return max(1, -(-count // _TRANSACTIONS_MAX))


def decode_state(documents: Sequence[str | None]) -> SinkState | None:
    """Return the state in documents; None if they are of different decisions.

    Another run may store a decision between two reads. Read all documents again then.
    """
    if documents[0] is None:
        return SinkState()
    first, *others = (
        None if each is None else msgspec.json.decode(each, type=_Document) for each in documents
    )
    assert first is not None
    decision = first.batch, first.run, first.count
    transactions = list(first.transactions)
    for other in others:
        if other is None or (other.batch, other.run, other.count) != decision:
            return None
        transactions += other.transactions
    if first.batch < 0:
        return SinkState(first.owner)
    return SinkState(first.owner, Decision(first.batch, first.run, tuple(transactions)))


def unfinished(decision: Decision, markers: Mapping[int, Marker]) -> list[PreparedTransaction]:
    """Return the transactions of a decision whose markers are missing."""
    return [
        each
        for each in decision.transactions
        if each.task not in markers or markers[each.task].batch < decision.batch
    ]


def choose_substitutes(
    decision: Decision,
    lost: Iterable[PreparedTransaction],
    markers: Mapping[int, Marker],
    results: Sequence[TaskResult],
) -> list[PreparedTransaction]:
    """Return the new transactions of a repeated batch for those that were lost.

    Args:
        decision: the decision about the batch.
        lost: its transactions that the broker has aborted, because no process committed them
            within their timeout.
        markers: the markers of its committed transactions.
        results: the results of the repeated tasks.

    Raises:
        RowsChangedError: if a committed task has other rows now, or a lost one has none.
    """
    missing = {each.task for each in lost}
    committed = {each.task for each in decision.transactions} - missing
    substitutes = {}
    for result in results:
        if result.digest is None:
            continue
        if result.task in missing:
            if result.transaction is not None:
                substitutes[result.task] = result.transaction
        elif result.digest != (markers[result.task].digest if result.task in committed else 0):
            raise _rows_changed(decision, result.task)
    for task in missing - substitutes.keys():
        raise _rows_changed(decision, task)
    return [substitutes[task] for task in sorted(missing)]


def _rows_changed(decision: Decision, task: int) -> RowsChangedError:
    return RowsChangedError(
        f"batch {decision.batch} was committed in part, and task {task} of its repetition has "
        "other rows, so it cannot be completed without a duplicate or a gap. Exactly-once "
        "delivery needs a source and a query that repeat a batch with the same rows in the same "
        "tasks. Start the query with a new checkpoint, or write with "
        "deliveryGuarantee=at-least-once"
    )

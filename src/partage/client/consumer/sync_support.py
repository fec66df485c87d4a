"""Waits and listener calls of the blocking consumer, and the methods that only it has.

The functions have the names of those in `async_support`, so that `sync_consumer` can be generated
from `consumer`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from partage.client.consumer.arguments import OffsetsLike, PartitionLike
from partage.client.consumer.base_consumer import (
    BaseConsumer,
    partitions_behind,
    to_records,
)
from partage.client.consumer.deadline import Deadline
from partage.client.consumer.errors import ReadTimeoutError
from partage.client.consumer.listener import RebalanceListener
from partage.client.consumer.records import COLUMNS, check_columns, import_arrow
from partage.member.outcome import ListenerCallback
from partage.model.arguments import InvalidArgumentError, check_optional_timeout_ms
from partage.model.topic_partition import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_P = ParamSpec("_P")
_T = TypeVar("_T")


def result_of(future: Future[_T]) -> _T:
    """Wait for work on the client's event loop, and return its result."""
    return future.result()


def result_by(future: Future[_T], deadline: Deadline) -> _T:
    """Return the result of work; raise TimeoutError if there is none by the deadline."""
    try:
        return future.result(deadline.remaining_s)
    finally:
        future.cancel()


def run_blocking(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Run a function that blocks."""
    return function(*args, **kwargs)


def wait_for_change(waiter: Future[None], deadline: Deadline) -> None:
    """Wait for a change of the engine, or until the deadline."""
    try:
        waiter.result(deadline.remaining_s)
    except TimeoutError:
        waiter.cancel()


def call_listener(
    listener: RebalanceListener,
    callback: ListenerCallback,
    partitions: Collection[TopicPartition],
) -> None:
    """Run a listener callback; `subscribe` has rejected coroutine functions."""
    listener.call(callback, partitions)


class SyncConsumerBase(BaseConsumer):
    """Base of the blocking consumer, with the methods that only it has."""

    @abstractmethod
    def end_offsets(self, partitions: Iterable[PartitionLike]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition."""

    @abstractmethod
    def _run_due_callbacks(self, deadline: Deadline) -> None:
        """Run the due listener callbacks and auto commits before records are delivered."""

    def arrow_reader(
        self, *, columns: Sequence[str] = COLUMNS, timeout_ms: int | None = None
    ) -> pa.RecordBatchReader:
        """Return a reader of record batches from the positions to the current end offsets.

        Records are fetched as the reader is consumed, and the positions advance with it.

        Args:
            columns: The names of the columns to return.
            timeout_ms: Longest wait for the next batch; None for no limit. The reader raises
                `ReadTimeoutError` after it.
        """
        names, timeout = check_columns(columns), check_optional_timeout_ms(timeout_ms)
        to_reader = import_arrow().to_reader
        self._end_cursor()
        return to_reader(self._read_to_ends(names, timeout), names)

    def commit_async(self, offsets: OffsetsLike | None = None) -> Future[None]:
        """Commit offsets as `commit` does, without waiting; the future has the result."""
        return self._require_group("commit_async()").commit(offsets)

    def _read_to_ends(
        self, columns: Sequence[str], timeout_ms: int | None
    ) -> Iterator[pa.RecordBatch]:
        ends = self.end_offsets(self._engine.assignment())
        deadline = Deadline(timeout_ms)
        while left := partitions_behind(self._engine.positions(), ends):
            version = self._engine.version
            self._run_due_callbacks(deadline)
            if taken := self._engine.collect(None, parts_max=1):
                yield to_records(taken).batches[0].to_arrow(columns)
                deadline = Deadline(timeout_ms)
            elif deadline.is_expired:
                raise ReadTimeoutError(timeout_ms or 0, left)
            else:
                wait_for_change(self._engine.next_change(version), deadline)

    def _check_listener(self, listener: RebalanceListener | None) -> RebalanceListener | None:
        checked = super()._check_listener(listener)
        if checked is not None and checked.is_asynchronous:
            raise InvalidArgumentError(
                "the listener has coroutine functions, which only partage.Consumer can await"
            )
        return checked

"""The writer of a stream that delivers exactly once; `transaction_flow` has the rules."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from partage.client.errors import BrokerResponseError, ClientError, UnsupportedApiError
from partage.model.errors import ErrorCode
from partage.spark.bounds import SparkOptionError
from partage.spark.client_cache import get_client
from partage.spark.sink.batch_decision import Marker, PreparedTransaction, SinkName, TaskResult
from partage.spark.sink.columns import ColumnPositions, SinkRecord, to_records
from partage.spark.sink.errors import WriteError
from partage.spark.sink.options import WriteOptions
from partage.spark.sink.row_marks import StreamingTask, add_marks, current_task
from partage.spark.sink.transaction_client import TransactionClient
from partage.spark.sink.transaction_flow import (
    Flow,
    TransactionLostError,
    abort_batch,
    begin_task,
    commit_batch,
    end_task,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from partage.spark.sink.task_producer import TaskProducer

log = logging.getLogger(__name__)

_DIGEST_MODULUS: Final = 2**64
_AUTHORIZATION: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)

T = TypeVar("T")


@dataclass(frozen=True)
class TransactionCommitMessage(WriterCommitMessage):
    """Commit message of a task: its result, and the query and run that it belongs to."""

    query: str
    run: str
    result: TaskResult


class TransactionalStreamWriter(DataSourceStreamArrowWriter):
    """Writes each batch of a stream once: tasks prepare transactions, the driver commits them."""

    def __init__(self, options: WriteOptions, shape: ColumnPositions) -> None:
        self._options = options
        self._shape = shape

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TransactionCommitMessage:
        """Write the rows of one task to an open transaction; runs on an executor.

        Raises:
            WriteError: if a record was not acknowledged, or the cluster refuses the transaction.
            NullTopicError: if a row has no topic.
            SparkOptionError: if a header has no key, or a partition is negative.
        """
        task = current_task()
        if task is None or not task.run:
            raise SparkOptionError(
                "Spark passed no query id; deliveryGuarantee=exactly-once needs df.writeStream"
            )
        records = chain.from_iterable(
            to_records(batch, self._shape, self._options.topic) for batch in iterator
        )
        result = write_task(self._options, task, records)
        return TransactionCommitMessage(task.query, task.run, result)

    def commit(self, messages: Iterable[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit the transactions of a batch. Raises as `transaction_flow.commit_batch`."""
        given = [each for each in messages if isinstance(each, TransactionCommitMessage)]
        if given:
            results = [each.result for each in given]
            commit_results(self._options, given[0].query, given[0].run, batchId, results)
            rows = sum(each.rows for each in results)
            skipped = sum(each.digest is None for each in results)
            log.info("committed batch=%d records=%d skipped_tasks=%d", batchId, rows, skipped)

    def abort(self, messages: Iterable[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Abort the transactions of a failed batch, unless they are decided.

        Tasks that failed have aborted theirs. If brokers do not answer, the next run aborts them.
        """
        given = [each for each in messages if isinstance(each, TransactionCommitMessage)]
        if given:
            try:
                abort_results(self._options, given[0].query, given[0].run, batchId)
            except WriteError as error:
                log.warning("transactions remain open batch=%d error=%s", batchId, error)


def write_task(
    options: WriteOptions, task: StreamingTask, records: Iterable[SinkRecord]
) -> TaskResult:
    """Write the records of a task to a transaction, and leave it open.

    Raises:
        WriteError: if a record was not acknowledged, or the cluster refuses the transaction.
    """
    # Imported here because the driver needs no producer.
    from partage.spark.sink.task_producer import TaskProducer

    sink = _sink_name(options, task.query)
    transactional_id = sink.task_id(task.run, task.partition, task.attempt)
    producer = None
    if task.partition == 0 and options.topic is not None:
        producer = TaskProducer(options, transactional_id)
        producer.ensure_topic(options.topic)  # decisions are offsets of this topic
    flow = begin_task(sink, task.run, task.batch, task.partition)
    must_write = _run(options, task.query, flow)
    remaining = iter(records)
    if not must_write:
        for _ in remaining:  # Spark's worker expects that all rows are read
            pass
        return TaskResult(task.partition, 0, None, None)
    first = next(remaining, None)
    if first is None:
        return TaskResult(task.partition, 0, 0, None)
    producer = producer or TaskProducer(options, transactional_id)
    try:
        return _prepare(options, task, producer, chain([first], remaining))
    except BaseException:
        producer.discard()
        raise


def commit_results(
    options: WriteOptions, query: str, run: str, batch: int, results: Sequence[TaskResult]
) -> None:
    """Commit the transactions of a batch.

    Raises:
        WriteError: if the cluster does not answer in time, or refuses a request.
        RuntimeError: as `transaction_flow.commit_batch`.
    """
    _run(options, query, commit_batch(_sink_name(options, query), run, batch, results))


def abort_results(options: WriteOptions, query: str, run: str, batch: int) -> None:
    """Abort the transactions of a batch, unless they are decided.

    Raises:
        WriteError: if the cluster does not answer in time, or refuses a request.
    """
    _run(options, query, abort_batch(_sink_name(options, query), run, batch))


def _prepare(
    options: WriteOptions,
    task: StreamingTask,
    producer: TaskProducer,
    records: Iterable[SinkRecord],
) -> TaskResult:
    """Write records and the marker of the task to a new transaction."""
    transactional_id = _sink_name(options, task.query).task_id(
        task.run, task.partition, task.attempt
    )
    # The producer does not tell its id and epoch, so the coordinator is asked before the first
    # record. If another producer had them already, the broker would reject all records.
    producer_id, producer_epoch = producer.begin(
        lambda: _call(options, task.query, lambda client: client.identify(transactional_id))
    )
    digest = _Digest()
    given = digest.of(records)
    rows = producer.send_all(add_marks(given, task.name) if options.mark_rows else given)
    prepared = PreparedTransaction(
        task.partition, task.attempt, producer_id, producer_epoch, task.run
    )
    marker = Marker(task.batch, digest.value)
    if not _call(options, task.query, lambda client: client.add_marker(prepared, marker)):
        raise TransactionLostError(
            f"the broker aborted the transaction of task {task.partition} while the task wrote: "
            "it took longer than kafka.transaction.timeout.ms, or another attempt has started"
        )
    _run(options, task.query, end_task(task.run, task.batch, prepared))
    return TaskResult(task.partition, rows, digest.value, prepared)


class _Digest:
    """A digest of records in any order, because a shuffle may change the order of rows."""

    def __init__(self) -> None:
        self.value = 0

    def of(self, records: Iterable[SinkRecord]) -> Iterator[SinkRecord]:
        """Yield the records; add each of them to the digest."""
        for record in records:
            encoded = msgspec.msgpack.encode(record)
            added = int.from_bytes(hashlib.blake2b(encoded, digest_size=8).digest(), "big")
            self.value = (self.value + added) % _DIGEST_MODULUS
            yield record


def _sink_name(options: WriteOptions, query: str) -> SinkName:
    assert options.transactional_id_prefix is not None
    return SinkName(options.transactional_id_prefix, query)


def _run(options: WriteOptions, query: str, flow: Flow[T]) -> T:
    return _call(options, query, lambda client: client.run(flow))


def _call(
    options: WriteOptions,
    query: str,
    work: Callable[[TransactionClient], Coroutine[object, object, T]],
) -> T:
    """Run requests on this process's client of the cluster."""
    connected = get_client(options.kafka, is_known_to_answer=True)
    client = TransactionClient(
        connected.cluster,
        _sink_name(options, query),
        options.topic,
        options.transaction_timeout_ms,
    )
    try:
        return connected.loop.call(work(client))
    except ClientError as error:
        raise WriteError(_explain(error, options)) from error


def _explain(error: ClientError, options: WriteOptions) -> str:
    code = error.code if isinstance(error, BrokerResponseError) else 0
    if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        return (
            f"{error}: kafka.transaction.timeout.ms={options.transaction_timeout_ms} is longer "
            "than the brokers' transaction.max.timeout.ms; shorten it"
        )
    if code in _AUTHORIZATION:
        prefix = options.transactional_id_prefix
        return (
            f"{error}: the sink needs Write on transactional ids and Read on groups with the "
            f"prefix {prefix!r}, and Read on the topic"
        )
    if isinstance(error, UnsupportedApiError):
        return f"{error}. Without transactions, write with deliveryGuarantee=at-least-once"
    return str(error)

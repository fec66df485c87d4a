"""Writer classes that Spark calls on the driver and in tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from partage.spark.bounds import SparkOptionError
from partage.spark.sink.columns import ColumnPositions, find_columns, to_records
from partage.spark.sink.options import WriteOptions, parse_write_options
from partage.spark.sink.row_marks import add_marks, current_task
from partage.spark.sink.transactional_writer import TransactionalStreamWriter

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskCommitMessage(WriterCommitMessage):
    """Commit message of a task: the number of records that the brokers acknowledged."""

    records: int


def make_writer(
    given: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DataSourceArrowWriter:
    """Return the writer for ``df.write``.

    Raises:
        SparkOptionError: if an option or a column is missing or invalid, or ``overwrite`` is set.
    """
    if overwrite:
        raise SparkOptionError("a topic cannot be overwritten; write with .mode('append')")
    options = parse_write_options(given, is_stream=False)
    return BatchWriter(options, find_columns(schema, options.topic))


def make_stream_writer(given: Mapping[str, str], schema: StructType) -> DataSourceStreamArrowWriter:
    """Return the writer for ``df.writeStream``. It appends rows in every output mode.

    Raises:
        SparkOptionError: if an option or a column is missing or invalid.
    """
    options = parse_write_options(given, is_stream=True)
    shape = find_columns(schema, options.topic)
    if options.transactional_id_prefix is not None:
        return TransactionalStreamWriter(options, shape)
    return StreamWriter(options, shape)


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame at least once: a retried task writes its rows again."""

    def __init__(self, options: WriteOptions, shape: ColumnPositions) -> None:
        self._options = options
        self._shape = shape

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        """Send the rows of one task; runs on an executor. Raises the errors of `_write`."""
        return _write(iterator, self._options, self._shape)

    def commit(self, messages: Iterable[WriterCommitMessage | None]) -> None:
        """Log the number of records; all are acknowledged at this point."""
        log.info("wrote records=%d", _count_records(messages))

    def abort(self, messages: Iterable[WriterCommitMessage | None]) -> None:
        """Log the records that remain: this sink has no transactions and cannot remove them."""
        log.warning(
            "write failed; records of other tasks remain records=%d",
            _count_records(messages),
        )


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream at least once, with a mark in each row."""

    def __init__(self, options: WriteOptions, shape: ColumnPositions) -> None:
        self._options = options
        self._shape = shape

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        """Send the rows of one task; runs on an executor. Raises the errors of `_write`."""
        return _write(iterator, self._options, self._shape)

    def commit(self, messages: Iterable[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log the number of records; all are acknowledged at this point."""
        log.info("wrote batch=%d records=%d", batchId, _count_records(messages))

    def abort(self, messages: Iterable[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log the records that remain; Spark repeats the batch, and its rows get the same marks."""
        log.warning(
            "batch failed; its records remain batch=%d records=%d",
            batchId,
            _count_records(messages),
        )


def _write(
    batches: Iterable[pa.RecordBatch], options: WriteOptions, shape: ColumnPositions
) -> TaskCommitMessage:
    """Send rows and wait for their acknowledgements.

    Raises:
        WriteError: if a record was not acknowledged.
        NullTopicError: if a row has no topic.
        SparkOptionError: if a header has no key, or a partition is negative.
    """
    # Imported here because planning needs no producer.
    from partage.spark.sink.task_producer import write_all

    records = chain.from_iterable(to_records(batch, shape, options.topic) for batch in batches)
    task = current_task() if options.mark_rows else None
    return TaskCommitMessage(
        write_all(records if task is None else add_marks(records, task.name), options)
    )


def _count_records(messages: Iterable[WriterCommitMessage | None]) -> int:
    return sum(one.records for one in messages if isinstance(one, TaskCommitMessage))

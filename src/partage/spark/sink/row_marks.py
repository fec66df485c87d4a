"""Row marks: headers by which a reader recognises rows that were written twice.

Spark repeats an interrupted streaming batch with the same batch number. The repeated batch has the
same rows in the same tasks and order if two conditions hold. The query only selects and filters,
and its source replays exactly, as this source and files do. Then query id, batch, task and row
number identify a row permanently, and two rows with the same mark are duplicates.

After a shuffle the order can differ. Such rows need a unique key in their data.

The query id comes from Spark's checkpoint and survives restarts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from partage.model.arguments import invalid_argument
from partage.spark.sink.columns import SinkRecord

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Header key; the value is ``QUERY/BATCH/TASK/ROW``.
MARK: Final = "partage.row"

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
#: Spark makes the run's id the job group of all jobs of a run.
_RUN: Final = "spark.jobGroup.id"


def add_marks(records: Iterable[SinkRecord], task: str) -> Iterator[SinkRecord]:
    """Yield the records with a mark header added. ``task`` is `StreamingTask.name`."""
    for number, record in enumerate(records):
        mark = (MARK, f"{task}/{number}".encode())
        yield record._replace(headers=[*record.headers, mark])


class StreamingTask(NamedTuple):
    """The current task of a streaming batch.

    Attributes:
        query: the id of the query, which its checkpoint keeps.
        run: the id of this run of the query; a restarted query has another one.
        batch: the number of the batch.
        partition: the number of the task in the batch.
        attempt: the number of the attempt, from 0.
    """

    query: str
    run: str
    batch: int
    partition: int
    attempt: int

    @property
    def name(self) -> str:
        """``QUERY/BATCH/TASK``, as in the marks of its rows."""
        return f"{self.query}/{self.batch}/{self.partition}"


def current_task() -> StreamingTask | None:
    """Return the current task, or None outside a streaming batch."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return None
    query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    if query is None or batch is None:
        return None
    run = context.getLocalProperty(_RUN) or ""
    return StreamingTask(query, run, int(batch), context.partitionId(), context.attemptNumber())


def mark_column(headers: str = "headers") -> Column:
    """Return the mark in a column of headers as a string column; null for rows without a mark."""
    from pyspark.sql import functions as f

    ours = f.filter(f.col(headers), lambda header: header["key"] == MARK)
    return f.try_element_at(ours, f.lit(1))["value"].cast("string")


def drop_duplicates(frame: DataFrame, *, within: str | None = None) -> DataFrame:
    """Drop rows whose mark occurs more than once; keep rows without a mark.

    Args:
        frame: rows of a read with ``includeHeaders``: it needs the columns topic, partition,
            offset and headers.
        within: for a stream, the maximum time between duplicates by record timestamp, such as
            ``"1 hour"``. Spark then drops older state. None keeps the state of all rows forever.

    Returns:
        The frame with one row for each mark, and with the same columns.
    """
    from pyspark.sql import functions as f

    if not hasattr(frame, "withColumn"):  # Spark Connect's DataFrame is another class.
        raise invalid_argument("frame", frame, "a DataFrame")
    mark = "__partage_row"
    place = f.concat_ws("/", f.lit("offset"), f.col("partition"), f.col("offset"))
    named = frame.withColumn(mark, f.coalesce(mark_column(), place))
    if within is None:
        return named.dropDuplicates(["topic", mark]).drop(mark)
    # Repeated rows have different timestamps, so the timestamp is not part of the key.
    late = named.withWatermark("timestamp", within)
    return late.dropDuplicatesWithinWatermark(["topic", mark]).drop(mark)

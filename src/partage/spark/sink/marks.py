"""Marks in the records' headers, by which a reader knows what was written twice.

Spark runs a streaming batch again if it was interrupted, with the same number. Its rows then come
in the same tasks and the same order, as long as the query is a chain of selections and filters over
a source that replays exactly (this one does, and files do); after a shuffle their order may differ,
and then rows must carry a key of their own. Under this condition the query, the batch, the task
and the row's place in the task name a row for good, and rows of one name are one row.

The ids are Spark's: the query's is kept in its checkpoint and survives restarts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from partage.spark.sink.columns import ToWrite

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The header's key; its value is ``QUERY/BATCH/TASK/ROW``.
MARK: Final = "partage.row"

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


def marked(records: Iterable[ToWrite], task: str) -> Iterator[ToWrite]:
    """The records with marks of a task, which `task_name` gives."""
    for number, record in enumerate(records):
        mark = (MARK, f"{task}/{number}".encode())
        yield record._replace(headers=[*record.headers, mark])


def task_name() -> str | None:
    """``QUERY/BATCH/TASK`` of the task that runs here, None outside a streaming batch."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return None
    query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    return None if query is None or batch is None else f"{query}/{batch}/{context.partitionId()}"


def mark_of(headers: str = "headers") -> Column:
    """The mark in a column of headers, as text; null for rows that have none."""
    from pyspark.sql import functions as f

    ours = f.filter(f.col(headers), lambda header: header["key"] == MARK)
    return f.try_element_at(ours, f.lit(1))["value"].cast("string")


def drop_doubles(frame: DataFrame, *, within: str | None = None) -> DataFrame:
    """The rows of a read with ``includeHeaders``, each marked one once; others stay as they are.

    ``frame`` needs the columns topic, partition, offset and headers. For a stream, ``within`` is
    how far doubles may lie apart in the records' time, such as ``"1 hour"``: what Spark has to
    remember is then forgotten after it. Without it, a stream remembers every row for good.
    """
    from pyspark.sql import functions as f

    mark = "__partage_row"
    place = f.concat_ws("/", f.lit("offset"), f.col("partition"), f.col("offset"))
    named = frame.withColumn(mark, f.coalesce(mark_of(), place))
    if within is None:
        return named.dropDuplicates(["topic", mark]).drop(mark)
    # A re-run's records have times of their own, so the time is no part of what is compared.
    late = named.withWatermark("timestamp", within)
    return late.dropDuplicatesWithinWatermark(["topic", mark]).drop(mark)

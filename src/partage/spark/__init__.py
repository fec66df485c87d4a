"""Spark data source and sink for Kafka topics, ``spark.read.format("partage")``.

The source registers itself: Spark imports every module named ``pyspark_*``, and so finds
``pyspark_partage``. `prepare_java` finds a Java installation for Spark, `install_commit_listener`
commits offsets at the end of each batch, `drop_duplicates` removes rows that were written twice,
and `failure_reason` shortens the error of a failed query.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from partage.model.arguments import invalid_argument
from partage.spark.bounds import SparkOptionError
from partage.spark.failures import failure_reason
from partage.spark.java import Java, JavaNotFoundError, prepare_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from partage.spark.sink.row_marks import drop_duplicates
    from partage.spark.stream.listener import CommitListener

__all__ = [
    "Java",
    "JavaNotFoundError",
    "SparkOptionError",
    "drop_duplicates",
    "failure_reason",
    "install_commit_listener",
    "prepare_java",
]


def __getattr__(name: str) -> object:
    # Imported on first use, because `prepare_java` must run before the first import of PySpark.
    if name == "drop_duplicates":
        from partage.spark.sink.row_marks import drop_duplicates

        return drop_duplicates
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def install_commit_listener(
    spark: SparkSession, options: Mapping[str, str] | None = None
) -> CommitListener:
    """Commit the offsets of each batch as soon as the batch is written.

    Without it, a query commits a batch at its next trigger. Use it for queries with a long trigger
    interval. It applies to all queries of the session. To undo it, pass the result to
    ``spark.streams.removeListener``.

    Args:
        spark: the session.
        options: options that the driver needs to reach the brokers, by the names of the source's
            options, such as ``kafka.security.protocol``. The addresses come from the queries.

    Returns:
        The listener that was added to the session.

    Raises:
        SparkOptionError: if an option is unknown or has an invalid value.
    """
    # Imported here because `prepare_java` must run before the first import of PySpark.
    from partage.spark.stream.listener import CommitListener

    if not hasattr(spark, "streams"):  # Spark Connect's session is another class.
        raise invalid_argument("spark", spark, "a SparkSession")

    listener = CommitListener(options or {})
    spark.streams.addListener(listener)
    return listener

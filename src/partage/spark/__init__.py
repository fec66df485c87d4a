"""Floor 5: Spark reads Kafka's topics through PySpark, ``spark.read.format("partage")``.

The source registers itself: Spark looks for modules named ``pyspark_*``, and finds
``pyspark_partage``. `prepare_java` gives Spark a Java on machines that have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from partage.spark.java import Java, NoJava, prepare_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from partage.spark.stream.listener import CommitListener

__all__ = ["Java", "NoJava", "install", "prepare_java"]


def install(spark: SparkSession, options: Mapping[str, str] | None = None) -> CommitListener:
    """Have all queries of this session commit each batch when it ends, not at the next trigger.

    For queries whose triggers are far apart: without it, a group's offsets stay behind until the
    next one. ``options`` are what the driver needs beside the addresses to reach the brokers, by
    the names of the source's: ``kafka.security.protocol`` and so on. Remove what is returned with
    ``spark.streams.removeListener``.

    Raises:
        BadOption: an option is unknown or has no such value.
    """
    # Here and not above: `prepare_java` comes before anything of PySpark's.
    from partage.spark.stream.listener import CommitListener

    listener = CommitListener(options or {})
    spark.streams.addListener(listener)
    return listener

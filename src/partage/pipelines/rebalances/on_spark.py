"""The analysis on Spark: the topic is read in parallel, and each group analysed by one task.

The groups' functions take and give Arrow (``arrow_udf``), so Spark needs no pandas for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from partage.pipelines.queries import QueryFailed, told
from partage.pipelines.rebalances.results import Format
from partage.pipelines.rebalances.tables import NESTED, SCHEMAS, TABLES, nested

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def analyse_on_spark(
    spark: SparkSession, options: Mapping[str, str], groups: Sequence[str]
) -> SparkResults:
    """Read the topic and analyse it; all groups where none are named.

    Raises:
        QueryFailed: an option is wrong, or the topic cannot be read.
    """
    from pyspark.sql import functions as f

    # A row here is a whole group's history.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "16")
    try:
        records = spark.read.format("partage").options(**options).load()
        if groups:
            key = f.col("key").cast("string")
            records = records.where(key.isin(list(groups)) | f.col("key").isNull())
        histories = analysed(records).persist()
        histories.count()
    except Exception as error:  # what Spark raises is of many kinds
        raise QueryFailed(told(error)) from error
    return SparkResults(histories)


def analysed(records: DataFrame) -> DataFrame:
    """One row a group, with a list for each table, of records with key, value and offset.

    The topic has one partition, or at least one for each group: offsets are an order.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.pandas.types import from_arrow_type

    as_udf: Any = arrow_udf  # its stub knows no structs
    history = as_udf(nested, from_arrow_type(NESTED))
    in_order = f.sort_array(f.collect_list(f.struct("offset", "value")))
    grouped = records.groupBy("key").agg(in_order.alias("records"))
    return grouped.select(history("key", "records").alias("history")).select("history.*")


class SparkResults:
    """Tables of a data frame of `analysed`."""

    def __init__(self, histories: DataFrame) -> None:
        self._histories = histories

    def _rows(self, name: str) -> DataFrame:
        from pyspark.sql import functions as f

        return self._histories.select(f.inline(name))

    def table(self, name: str, groups: Sequence[str] | None = None) -> pa.Table:
        """A table; of some groups only, if they are given."""
        rows = self._rows(name)
        if groups is not None:
            rows = rows.where(rows.group_id.isin(list(groups)))
        return rows.toArrow().cast(SCHEMAS[name])

    def top(self, name: str, column: str, count_max: int) -> pa.Table:
        """The rows with the largest values of a column, the largest first."""
        rows = self._rows(name).orderBy(column, ascending=False).limit(count_max)
        return rows.toArrow().cast(SCHEMAS[name])

    def write(self, directory: Path, kind: Format) -> dict[str, int]:
        """Write every table into a directory of its own in ``directory``; how many rows each."""
        from pyspark.sql import functions as f

        for name in TABLES:
            writer = self._rows(name).write
            place = (directory.resolve() / name).as_uri()
            if kind is Format.PARQUET:
                writer.parquet(place)
            else:
                writer.csv(place, header=True)
        sizes = [f.sum(f.size(name)).alias(name) for name in TABLES]
        (counted,) = self._histories.agg(*sizes).collect()
        return {name: counted[name] or 0 for name in TABLES}

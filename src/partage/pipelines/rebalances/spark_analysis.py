"""The analysis on Spark: reads the topic in parallel and analyses each group in one task.

The user-defined function takes and returns Arrow data (``arrow_udf``), so pandas is not required.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from partage.pipelines.queries import QueryFailedError, spark_errors
from partage.pipelines.rebalances.output_directory import TableFormat
from partage.pipelines.rebalances.tables import GROUP_TABLES_TYPE, SCHEMAS, TABLES, analyse_groups
from partage.spark.failures import failure_reason

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: A row is the complete history of a group, so batches are small. Code generation is off: compiling
#: Java for rows of a hundred columns takes longer than the work, which is in Python.
_SETTINGS: Final = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def analyse_on_spark(
    spark: SparkSession, options: Mapping[str, str], groups: Sequence[str]
) -> SparkResults:
    """Read the topic and analyse it.

    Args:
        spark: the session.
        options: options of Spark's batch source.
        groups: group ids; empty for all groups.

    Raises:
        QueryFailedError: if an option is invalid, or the topic cannot be read.
    """
    from pyspark.sql import functions as f

    try:
        records = spark.read.format("partage").options(**options).load()
        if groups:
            key = f.coalesce(f.col("key").cast("string"), f.lit(""))
            records = records.where(key.isin([*groups, ""]))
        with _settings(spark, _SETTINGS):
            histories = analyse_records(records).persist()
            histories.count()
    except spark_errors() as error:
        raise QueryFailedError(failure_reason(error)) from error
    # Each table is one job, and writes one file for each partition (spark.sql.shuffle.partitions).
    return SparkResults(histories.coalesce(spark.sparkContext.defaultParallelism))


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Apply configuration values, and restore the previous ones afterwards."""
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is not None:
                spark.conf.set(name, old)


def analyse_records(records: DataFrame) -> DataFrame:
    """Return one row for each group, with a list for each table.

    ``records`` needs the columns key, value, partition and offset.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.pandas.types import from_arrow_type

    as_udf: Any = arrow_udf  # its type stub does not accept structs
    history = as_udf(analyse_groups, from_arrow_type(GROUP_TABLES_TYPE))
    by_offset = f.sort_array(f.collect_list(f.struct("partition", "offset", "value")))
    key = f.coalesce("key", f.lit("").cast("binary")).alias("key")
    grouped = records.groupBy(key).agg(by_offset.alias("records"))
    return grouped.select(history("key", "records").alias("history")).select("history.*")


class SparkResults:
    """Tables from a DataFrame of `analyse_records`.

    The first request for a group collects all its tables to the driver in one job, and keeps them.
    """

    def __init__(self, histories: DataFrame) -> None:
        self._histories = histories
        self._whole: dict[str, pa.Table] = {}
        self._groups: dict[str, pa.Table] = {}  # tables of the collected groups
        self._collected_groups: set[str] = set()

    def _rows(self, name: str) -> DataFrame:
        from pyspark.sql import functions as f

        return self._histories.select(f.inline(name))

    def table(self, name: str, groups: Sequence[str] | None = None) -> pa.Table:
        """Return a table, of the given groups only if there are any."""
        if groups is not None:
            self._collect_groups(set(groups))
            table = self._groups[name]
            return table.filter(pc.is_in(table["group_id"], pa.array(groups, pa.string())))
        if name not in self._whole:
            # Both are small, and a caller of one also reads the other.
            names = ("groups", "causes") if name in ("groups", "causes") else (name,)
            self._whole |= _unnest(self._histories.select(*names), names)
        return self._whole[name]

    def _collect_groups(self, groups: set[str]) -> None:
        from pyspark.sql import functions as f

        if not groups - self._collected_groups and self._groups:
            return
        self._collected_groups |= groups
        of_whom = f.get("groups", f.lit(0)).group_id
        wanted = self._histories.where(of_whom.isin(sorted(self._collected_groups)))
        self._groups = _unnest(wanted, tuple(TABLES))

    def top(self, name: str, column: str, count_max: int) -> pa.Table:
        """Return the rows with the largest values of a column, in descending order."""
        rows = self._rows(name).orderBy(column, ascending=False).limit(count_max)
        return rows.toArrow().cast(SCHEMAS[name])

    def write(self, directory: Path, kind: TableFormat) -> dict[str, int]:
        """Write each table into its subdirectory of ``directory``. Return the row counts."""
        from pyspark.sql import functions as f

        for name in TABLES:
            writer = self._rows(name).write
            path = (directory.resolve() / name).as_uri()
            if kind is TableFormat.PARQUET:
                writer.parquet(path)
            else:
                writer.csv(path, header=True)
        sizes = [f.sum(f.size(name)).alias(name) for name in TABLES]
        (counted,) = self._histories.agg(*sizes).collect()
        return {name: counted[name] or 0 for name in TABLES}


def _unnest(histories: DataFrame, names: Sequence[str]) -> dict[str, pa.Table]:
    """Return the named tables, from one list for each group."""
    rows = histories.select(*names).toArrow()
    tables = {}
    for name in names:
        structs = rows[name].combine_chunks().flatten()
        tables[name] = pa.Table.from_struct_array(structs).cast(SCHEMAS[name])
    return tables

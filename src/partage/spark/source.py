"""The data source ``format("partage")`` on PySpark's Python data source API.

The driver resolves offsets and plans ranges. Executors fetch the ranges and decode them to Arrow.
Spark pickles readers and writers, so they hold options only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from partage.spark.bounds import SparkOptionError
from partage.spark.client_cache import get_client
from partage.spark.offset_resolver import plan_batch, planning_options
from partage.spark.options import (
    ReadOptions,
    check_batch_options,
    check_stream_options,
    parse_options,
)
from partage.spark.ranges import RangePartition, read_range
from partage.spark.rows import row_schema
from partage.spark.sink.writers import make_stream_writer, make_writer
from partage.spark.stream.reader import StreamReader
from partage.spark.table_options import options_of_new_table, store_options, stored_options

log = logging.getLogger(__name__)

FORMAT: Final = "partage"


class PartageDataSource(DataSource):
    """The data source; its options are those of Spark's Kafka connector, see docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        """Return the connector's columns, or those named by the option ``columns``.

        Raises:
            SparkOptionError: if an option is invalid.
        """
        of_table = options_of_new_table(self.options)
        if of_table is None:
            return row_schema(parse_options(self.options).columns)
        return store_options(row_schema(parse_options(of_table).columns), of_table)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch read.

        Raises:
            SparkOptionError: if an option is invalid, or a schema is given.
        """
        options = self._parse(schema)
        check_batch_options(options)
        for name in (*options.streaming_only_names, *options.kafka.group_only_names):
            log.warning("%s has no effect on a batch read", name)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of a streaming query.

        Raises:
            SparkOptionError: if an option is invalid, or a schema is given.
        """
        options = self._parse(schema)
        check_stream_options(options)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of ``df.write``.

        Raises:
            SparkOptionError: if an option or a column is missing or invalid.
        """
        if not self.options:
            raise SparkOptionError(
                "Spark passed no options: it drops those of a table when it writes with a Python "
                'source; write with df.write.format("partage") and options'
            )
        return make_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Return the writer of ``df.writeStream``.

        Raises:
            SparkOptionError: if an option or a column is missing or invalid.
        """
        return make_stream_writer(self.options, schema)

    def _parse(self, schema: StructType) -> ReadOptions:
        """Parse the options of the query and of its table, and check the schema."""
        given = {**stored_options(schema), **self.options}
        if not given:
            raise SparkOptionError(
                "Spark passed no options: it drops those of a table whose columns are declared; "
                "create the table without a list of columns, or use a temporary view"
            )
        options = parse_options(given)
        if schema.names != list(options.columns):
            raise SparkOptionError("the source has a fixed schema: remove .schema(...)")
        return options


class BatchReader(DataSourceReader):
    """Reads offset ranges of partitions, without a consumer group."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Resolve the offsets. Spark calls it once for each ``load()``. Raises as `plan_batch`."""
        connected = get_client(planning_options(self._options), is_known_to_answer=False)
        ranges = connected.loop.call(plan_batch(connected.cluster, self._options))
        return [RangePartition(one) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of one range as Arrow batches; runs on an executor."""
        # for an empty plan, Spark passes a partition of another class
        if isinstance(partition, RangePartition):
            yield from read_range(partition.range, self._options)

"""``format("partage")``: Kafka's topics as a data source, through PySpark's Python interface.

The driver's side resolves offsets and makes ranges; the executors' side fetches and decodes them
straight into Arrow. Objects of one side reach the other pickled, so they hold options only.
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

from partage.spark.bounds import BadOption
from partage.spark.connecting import connect
from partage.spark.options import ReadOptions, check_batch, check_stream, parse_options
from partage.spark.planning import plan_batch
from partage.spark.ranges import RangePartition, read_range
from partage.spark.rows import row_schema
from partage.spark.sink.writers import make_stream_writer, make_writer
from partage.spark.stream.reader import StreamReader

log = logging.getLogger(__name__)

FORMAT: Final = "partage"


class PartageDataSource(DataSource):
    """The data source; options as Spark's Kafka connector has them, see docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        """The connector's columns, or those that ``columns`` names. Raises `BadOption`."""
        return row_schema(parse_options(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raises `BadOption`."""
        options = parse_options(self.options)
        check_batch(options)
        if schema.names != list(options.columns):
            raise BadOption("the source has a fixed schema: remove .schema(...)")
        for name in (*options.streaming_only, *options.kafka.membership_only):
            log.warning("%s has no effect on a batch read", name)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A query's source. Raises `BadOption`."""
        options = parse_options(self.options)
        check_stream(options)
        if schema.names != list(options.columns):
            raise BadOption("the source has a fixed schema: remove .schema(...)")
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Raises `BadOption`."""
        return make_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Raises `BadOption`."""
        return make_stream_writer(self.options, schema)


class BatchReader(DataSourceReader):
    """Reads ranges of partitions, outside any group."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Resolve the offsets; Spark asks once for each ``load()``. Raises as `plan_batch`."""
        connected = connect(self._options.kafka, is_known_to_answer=False)
        ranges = connected.loop.call(plan_batch(connected.cluster, self._options))
        return [RangePartition(one) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one range as Arrow batches; runs on an executor."""
        if isinstance(partition, RangePartition):  # Spark makes up another for an empty plan
            yield from read_range(partition.range, self._options)

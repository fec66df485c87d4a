"""``format("partage")``: Kafka's topics as a data source, through PySpark's Python interface.

The driver's side resolves offsets and makes ranges; the executors' side fetches and decodes them
straight into Arrow. Objects of one side reach the other pickled, so they hold options only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from partage.client.fetching import decoded, fetch_range
from partage.client.topics import TopicPartition
from partage.spark.bounds import BadOption
from partage.spark.connecting import connect
from partage.spark.options import ReadOptions, check_batch, parse_options
from partage.spark.planning import OffsetRange, plan_batch
from partage.spark.rows import row_schema
from partage.wire.records.decode import DECODER

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

FORMAT: Final = "partage"
#: Arrow batches of this size go through Spark's pipes about as fast as any.
_ROWS_MAX: Final = 20_000


class NotYet(NotImplementedError):  # noqa: N818 - named after what it says
    """Something that the data source will do in a later version."""


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
            raise BadOption("the rows have columns of their own: leave out .schema(...)")
        for name in options.streaming_only:
            log.warning("%s has no effect on a batch read", name)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - PySpark's
        """Not yet: a reader that says so, which Spark reports better than having none."""
        return _NoStream()

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Not yet."""
        raise NotYet('df.write.format("partage") is not there yet; spark.read is')

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: N802
        """Not yet."""
        raise NotYet('df.writeStream.format("partage") is not there yet; spark.read is')


class _NoStream(DataSourceStreamReader):
    """Stands where the streaming source will."""

    def initialOffset(self) -> NoReturn:  # noqa: N802 - PySpark's name
        raise NotYet('spark.readStream.format("partage") is not there yet; spark.read is')

    def read(self, partition: InputPartition) -> NoReturn:
        raise NotYet("there is nothing to read")


class RangePartition(InputPartition):
    """The part of a read that one task does."""

    def __init__(self, of: OffsetRange) -> None:
        super().__init__(tuple(of))
        self.range = of

    def __repr__(self) -> str:
        return f"{self.range.partition}[{self.range.from_offset}:{self.range.to_offset}]"


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


def read_range(of: OffsetRange, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The records of a range, in order, in batches of bounded size.

    The next answer of the broker is on its way while the last one is handed to Spark.

    Raises:
        ClientError: as `fetch_range`.
    """
    # Here and not above: the driver has no need of pyarrow to plan.
    from partage.client.arrow import ArrowRows, kafka_schema

    if DECODER == "plain":
        log.warning("the compiled decoder is not built; the plain one is about 30 times slower")
    connected = connect(options.kafka, is_known_to_answer=True)
    fetch = msgspec.structs.replace(
        options.kafka.fetch,
        patience_ms=options.poll_timeout_ms,
        skip_gone=not options.fail_on_data_loss,
    )
    topic = TopicPartition(*of.partition)
    rows = ArrowRows(topic.topic, topic.partition, kafka_schema(options.columns))
    answers = fetch_range(connected.cluster, topic, of.from_offset, of.to_offset, fetch)
    for fetched in connected.loop.pulled(answers):
        for columns in decoded(
            fetched, with_headers=rows.with_headers, verify_crc=fetch.verify_crc
        ):
            batch = rows.batch(columns)
            for start in range(0, batch.num_rows, _ROWS_MAX):
                yield batch.slice(start, _ROWS_MAX)

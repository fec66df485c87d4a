"""The task side of a read, on an executor: fetch an offset range and decode it to Arrow."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql.datasource import InputPartition

from partage.client.errors import UnknownTopicError
from partage.client.range_fetch import FetchedRange, decode_fetched, fetch_range
from partage.model.topic_partition import TopicPartition
from partage.spark.client_cache import get_client
from partage.spark.offset_resolver import OffsetRange, TopicDeletedError
from partage.spark.options import ReadOptions
from partage.wire.records.decoder import DECODER

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

#: Larger Arrow batches do not pass faster through Spark's pipes.
_ROWS_MAX: Final = 20_000


class RangePartition(InputPartition):
    """A Spark partition: one offset range, read by one task."""

    def __init__(self, of: OffsetRange) -> None:
        super().__init__(tuple(of))
        self.range = of

    def __repr__(self) -> str:
        return f"{self.range.partition}[{self.range.from_offset}:{self.range.to_offset}]"


def read_range(of: OffsetRange, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range in order, as batches of bounded size.

    The next fetch is in flight while Spark consumes the current batch.

    Raises:
        TopicDeletedError: if the topic was deleted meanwhile and failOnDataLoss is true.
        ClientError: as `fetch_range`.
    """
    # Imported here because the driver does not need pyarrow for planning.
    from partage.client.arrow import ArrowBatchBuilder, kafka_schema

    if DECODER == "plain":
        log.warning("the compiled decoder is not built; the Python one is about 30 times slower")
    connected = get_client(options.kafka, is_known_to_answer=True)
    fetch = msgspec.structs.replace(
        options.kafka.fetch,
        progress_timeout_ms=options.poll_timeout_ms,
        may_skip_unavailable=not options.fail_on_data_loss,
    )
    topic = TopicPartition(*of.partition)
    rows = ArrowBatchBuilder(topic.topic, topic.partition, kafka_schema(options.columns))
    answers = fetch_range(connected.cluster, topic, of.from_offset, of.to_offset, fetch)
    for fetched in _until_deleted(connected.loop.iterate(answers), of, options):
        for columns in decode_fetched(
            fetched, with_headers=rows.needs_headers, verify_crc=fetch.verify_crc
        ):
            batch = rows.batch(columns)
            for start in range(0, batch.num_rows, _ROWS_MAX):
                yield batch.slice(start, _ROWS_MAX)


def _until_deleted(
    answers: Iterable[FetchedRange], of: OffsetRange, options: ReadOptions
) -> Iterator[FetchedRange]:
    """Yield the responses; report a topic that was deleted since its ranges were planned."""
    try:
        yield from answers
    except UnknownTopicError as error:
        description = f"topic {error.topic!r} was deleted before {of.partition} was read"
        if options.fail_on_data_loss:
            # Without the cause, which asks if another topic was meant.
            raise TopicDeletedError(
                f"{description}. Set failOnDataLoss=false to continue without it"
            ) from None
        log.warning("%s; skipped because failOnDataLoss=false", description)

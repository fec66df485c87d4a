"""The task side of a read, on an executor: fetch an offset range and decode it to Arrow."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql.datasource import InputPartition

from partage.client.errors import UnknownTopicError
from partage.client.range_fetch import FetchedRange, FetchOptions, decode_fetched, fetch_range
from partage.model.topic_partition import TopicPartition
from partage.spark.client_cache import CachedClient, get_client
from partage.spark.offset_resolver import OffsetRange, TopicDeletedError, is_deleted
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
    rows = ArrowBatchBuilder(*of.partition, kafka_schema(options.columns))
    for fetched in _fetch_until_deleted(connected, of, options, fetch):
        for columns in decode_fetched(
            fetched, with_headers=rows.needs_headers, verify_crc=fetch.verify_crc
        ):
            batch = rows.batch(columns)
            for start in range(0, batch.num_rows, _ROWS_MAX):
                yield batch.slice(start, _ROWS_MAX)


def _fetch_until_deleted(
    connected: CachedClient, of: OffsetRange, options: ReadOptions, fetch: FetchOptions
) -> Iterator[FetchedRange]:
    """Yield the responses; report a topic that was deleted since its ranges were planned."""
    partition, position = TopicPartition(*of.partition), of.from_offset
    while True:
        responses = fetch_range(connected.cluster, partition, position, of.to_offset, fetch)
        try:
            for fetched in connected.loop.iterate(responses):
                yield fetched
                position = fetched.to_offset
        except UnknownTopicError as error:
            if not connected.loop.call(is_deleted(connected.cluster, error.topic, options)):
                continue
            description = f"topic {error.topic!r} was deleted before {partition} was read"
            if options.fail_on_data_loss:
                # Without the cause, which asks if another topic was meant.
                raise TopicDeletedError(
                    f"{description}. Set failOnDataLoss=false to continue without it"
                ) from None
            log.warning("%s; skipped because failOnDataLoss=false", description)
        return

"""The analysis in this process, for topics that one machine reads in seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from partage.client.errors import ClientError
from partage.client.range_fetch import decode_fetched, fetch_range
from partage.pipelines.queries import QueryFailedError
from partage.pipelines.rebalances.results import LocalResults
from partage.pipelines.rebalances.tables import TopicAnalysis, group_id_of
from partage.spark.bounds import SparkOptionError
from partage.spark.client_cache import CachedClient, get_client
from partage.spark.offset_resolver import OffsetRange, plan_batch
from partage.spark.options import ReadOptions, parse_options
from partage.store.group_events import order_by_epoch


def analyse_locally(
    options: Mapping[str, str],
    groups: Sequence[str],
    progress: Callable[[int], None] = lambda count: None,
) -> LocalResults:
    """Read the topic and analyse it.

    Args:
        options: options of Spark's batch source.
        groups: group ids; empty for all groups.
        progress: called with the number of records read so far.

    Raises:
        QueryFailedError: if an option is invalid, or the topic cannot be read.
    """
    analysis = TopicAnalysis()
    wanted = frozenset(groups)
    count = 0
    try:
        parsed = parse_options(options)
        connected = get_client(parsed.kafka, is_known_to_answer=False)
        ranges = connected.loop.call(plan_batch(connected.cluster, parsed))
        # Each broker of a cluster has its own partition, so records of a group must be merged.
        by_group: dict[str, list[bytes | None]] | None = None
        if len({of.partition for of in ranges}) > 1:
            by_group = {}
        for of in ranges:
            for key, value in _records(connected, of, parsed):
                group_id = group_id_of(key)
                if not wanted or not group_id or group_id in wanted:
                    if by_group is None:
                        analysis.add(group_id, value)
                    else:
                        by_group.setdefault(group_id, []).append(value)
                count += 1
            progress(count)
        for group_id, values in (by_group or {}).items():
            for index in order_by_epoch(values):
                analysis.add(group_id, values[index])
    except (SparkOptionError, ClientError) as error:
        raise QueryFailedError(str(error)) from None
    return LocalResults(analysis.tables())


def _records(
    connected: CachedClient, of: OffsetRange, options: ReadOptions
) -> Iterator[tuple[bytes | None, bytes | None]]:
    from partage.client.arrow import ArrowBatchBuilder, kafka_schema

    fetch = msgspec.structs.replace(
        options.kafka.fetch,
        progress_timeout_ms=options.poll_timeout_ms,
        may_skip_unavailable=not options.fail_on_data_loss,
    )
    rows = ArrowBatchBuilder(*of.partition, kafka_schema(["key", "value"]))
    answers = fetch_range(connected.cluster, of.partition, of.from_offset, of.to_offset, fetch)
    for fetched in connected.loop.iterate(answers):
        for columns in decode_fetched(fetched, with_headers=False, verify_crc=fetch.verify_crc):
            batch = rows.batch(columns)
            for key, value in zip(batch["key"], batch["value"], strict=True):
                yield key.as_py(), value.as_py()

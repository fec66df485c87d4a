"""Checks of a pipeline's topics before Spark starts, so that errors appear at once."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from partage.client.cluster import Cluster
from partage.client.errors import ClientError
from partage.spark.bounds import SparkOptionError
from partage.spark.client_cache import get_client
from partage.spark.offset_resolver import end_offsets
from partage.spark.options import ReadOptions, parse_options

T = TypeVar("T")


class SourceError(RuntimeError):
    """A source option is invalid, no broker answers, or a topic does not fit the pipeline."""


def partition_counts(
    servers: str, topics: Iterable[str], options: Mapping[str, str]
) -> dict[str, int]:
    """Return the partition count of each topic.

    Args:
        servers: addresses of the brokers.
        topics: topic names.
        options: further options of the streaming source.

    Raises:
        SourceError: if an option is invalid, no broker answers, or a topic does not exist.
    """
    names = list(topics)
    found = _query_cluster(servers, names, options, lambda cluster, _: cluster.topics(names))
    return {name: len(topic.topic_partitions) for name, topic in found.items()}


def topic_end_offsets(servers: str, topic: str, options: Mapping[str, str]) -> dict[int, int]:
    """Return the current end offset of each partition. Otherwise as `partition_counts`."""
    found = _query_cluster(servers, [topic], options, end_offsets)
    return {place.partition: offset for place, offset in found.items()}


def _query_cluster(
    servers: str,
    topics: Iterable[str],
    options: Mapping[str, str],
    ask: Callable[[Cluster, ReadOptions], Coroutine[Any, Any, T]],
) -> T:
    given = {"kafka.bootstrap.servers": servers, "subscribe": ",".join(topics), **options}
    try:
        parsed = parse_options(given)
        connected = get_client(parsed.kafka, is_known_to_answer=False)
        return connected.loop.call(ask(connected.cluster, parsed))
    except (SparkOptionError, ClientError) as error:
        raise SourceError(str(error)) from None


def check_co_partitioned(counts: Mapping[str, int]) -> None:
    """Check that topics can be joined partition by partition.

    Raises:
        SourceError: if their partition counts differ.
    """
    if len(set(counts.values())) > 1:
        sizes = " and ".join(f"{name} has {count}" for name, count in counts.items())
        raise SourceError(
            f"joined topics need the same number of partitions, so that equal keys meet: {sizes}"
        )

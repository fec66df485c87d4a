"""Partitions of the topic whose broker is available."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec

from partage.client.errors import ClientError
from partage.pipelines.queries import QueryFailedError
from partage.spark.bounds import SparkOptionError
from partage.spark.client_cache import get_client
from partage.spark.options import parse_options


class OnlinePartitions(msgspec.Struct, frozen=True, kw_only=True):
    """Options that read the online partitions, and the number of ``unread`` partitions."""

    source_options: Mapping[str, str]
    unread: int


def find_online_partitions(options: Mapping[str, str], topic: str) -> OnlinePartitions:
    """Return options that read ``topic`` without its partitions that have no leader.

    In a cluster each broker holds one partition of the topic, and some brokers may be down.

    Raises:
        QueryFailedError: if an option is invalid, the cluster does not answer, or no partition
            has a leader.
    """
    try:
        connected = get_client(parse_options(options).kafka, is_known_to_answer=False)
        lookup = connected.cluster.topics([topic], fresh=True)
        partitions = connected.loop.call(lookup)[topic].partitions
    except (SparkOptionError, ClientError) as error:
        raise QueryFailedError(str(error)) from None
    with_leader = sorted(
        index for index, leadership in partitions.items() if leadership.leader_id >= 0
    )
    if len(with_leader) == len(partitions):
        return OnlinePartitions(source_options=options, unread=0)
    if not with_leader:
        raise QueryFailedError(f"all brokers that hold partitions of {topic} are down")
    remaining = {name: value for name, value in options.items() if name != "subscribe"}
    remaining["assign"] = json.dumps({topic: with_leader})
    return OnlinePartitions(source_options=remaining, unread=len(partitions) - len(with_leader))

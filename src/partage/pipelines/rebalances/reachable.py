"""Which partitions of the topic can be read now."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec

from partage.client.errors import ClientError
from partage.pipelines.queries import QueryFailed
from partage.spark.bounds import BadOption
from partage.spark.connecting import connect
from partage.spark.options import parse_options


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a read of what can be read, and how many partitions are ``unread``."""

    source: Mapping[str, str]
    unread: int


def reach(options: Mapping[str, str], topic: str) -> Reach:
    """The options of a read of ``topic``, without the partitions that have no leader: of several
    brokers each holds one, and some may be down.

    Raises:
        QueryFailed: an option is wrong, the cluster does not answer, or no partition can be read.
    """
    try:
        connected = connect(parse_options(options).kafka, is_known_to_answer=False)
        asked = connected.cluster.topics([topic], fresh=True)
        partitions = connected.loop.call(asked)[topic].partitions
    except (BadOption, ClientError) as error:
        raise QueryFailed(str(error)) from None
    led = sorted(index for index, leadership in partitions.items() if leadership.leader_id >= 0)
    if len(led) == len(partitions):
        return Reach(source=options, unread=0)
    if not led:
        raise QueryFailed(f"all brokers that hold partitions of {topic} are down")
    left = {name: value for name, value in options.items() if name != "subscribe"}
    left["assign"] = json.dumps({topic: led})
    return Reach(source=left, unread=len(partitions) - len(led))

"""Groups of every protocol type, by the older of librdkafka's two ways to ask for them.

`AdminClient.list_groups` is deprecated, and the only call that tells of groups that are not of
consumers: it has their protocol types and the bytes that members brought and were given. It asks
with DescribeGroups v0, so it knows no instance ids, and of groups of KIP-848 only their names.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

from confluent_kafka import KafkaException

from partage.console.common.cluster_client import ClusterClient


class RawMember(NamedTuple):
    """A member, with its metadata and its assignment as bytes that only its own kind reads."""

    member_id: str
    client_id: str
    host: str
    metadata: bytes
    assignment: bytes


class RawGroup(NamedTuple):
    """A group; ``told`` is False where the broker listed it and then did not describe it."""

    is_described: bool
    state: str
    protocol_type: str
    protocol: str
    broker: Any
    members: list[RawMember]


def raw_groups(cluster: ClusterClient, names: list[str] | None) -> dict[str, RawGroup]:
    """Those of the named groups that there are; all groups for None."""
    one = {"group": names[0]} if names is not None and len(names) == 1 else {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            found: list[Any] = cluster.admin.list_groups(timeout=cluster.timeout_s, **one)
    except KafkaException as error:
        raise cluster.command_error(error) from error
    return {each.id: _raw(each) for each in found if names is None or each.id in names}


def _raw(group: Any) -> RawGroup:
    return RawGroup(
        is_described=group.error is None
        and (group.state not in ("", "Dead") or bool(group.members)),
        state=group.state,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        broker=group.broker,
        members=[
            RawMember(
                each.id,
                each.client_id,
                each.client_host,
                each.metadata or b"",
                each.assignment or b"",
            )
            for each in group.members
        ],
    )

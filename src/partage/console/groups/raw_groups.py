"""Groups of all protocol types, through librdkafka's older API.

`AdminClient.list_groups` is deprecated, but it is the only call that includes groups that are not
consumer groups. It returns their protocol types and the raw metadata and assignment of members. It
uses DescribeGroups v0, so instance ids are missing, and KIP-848 groups have only names.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

from confluent_kafka import KafkaException

from partage.console.common.cluster_client import ClusterClient


class RawMember(NamedTuple):
    """A member; ``metadata`` and ``assignment`` are bytes that depend on the protocol type."""

    member_id: str
    client_id: str
    host: str
    metadata: bytes
    assignment: bytes


class RawGroup(NamedTuple):
    """A group; ``is_described`` is False if the broker listed the group but did not describe it."""

    is_described: bool
    state: str
    protocol_type: str
    protocol: str
    broker: Any
    members: list[RawMember]


def raw_groups(cluster: ClusterClient, names: list[str] | None) -> dict[str, RawGroup]:
    """Return existing groups by name; all groups if ``names`` is None."""
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

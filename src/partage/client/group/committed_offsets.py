"""Committed offsets of many groups, read without being a member."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from partage.bridge.member_requests import to_error_code
from partage.client.cluster import Cluster
from partage.client.connection import Connection
from partage.client.errors import (
    BrokerResponseError,
    ClientError,
    ConnectError,
    UnsupportedApiError,
)
from partage.client.group.coordinator_lookup import find_coordinators
from partage.client.group.offsets import Offsets, parse_offsets
from partage.client.options import RetryPolicy
from partage.client.retries import Retries
from partage.model.addresses import Address
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchGroup,
    OffsetFetchGroupResult,
    OffsetFetchRequest,
    OffsetFetchTopic,
)

#: The first versions that can ask for all partitions (KIP-88), for stable offsets (KIP-447) and
#: for several groups (KIP-709).
_ALL_PARTITIONS: Final = 2
_STABLE: Final = 7
_SEVERAL: Final = 8

#: Maximum number of groups in one request: each may have thousands of partitions.
_GROUPS_MAX: Final = 100


class _Selection(NamedTuple):
    """The offsets that a request asks for; ``topics`` None for all topics."""

    topics: list[OffsetFetchTopic] | None
    require_stable: bool


async def committed_offsets(
    cluster: Cluster,
    group_ids: Iterable[str],
    *,
    policy: RetryPolicy | None = None,
    partition: TopicPartition | None = None,
    require_stable: bool = False,
) -> dict[str, Offsets]:
    """Return all committed offsets of each group; none for a group that does not exist.

    Each coordinator gets requests for all of its groups. Groups without an answer, or whose
    coordinator has changed, are retried. Offsets of pending transactions are not included.

    Args:
        policy: The retry policy; that of the cluster if None.
        partition: The partition to ask for; all partitions with an offset if None.
        require_stable: Wait for the end of pending transactions (KIP-447). Brokers check the
            requested partition, or else the partitions that have an offset already.

    Raises:
        ClientError: An error of the last attempt; a permanent one if there is any.
    """
    wanted = list(dict.fromkeys(group_ids))
    topics = partition and [
        OffsetFetchTopic(name=partition.topic, partition_indexes=[partition.partition])
    ]
    selection = _Selection(topics, require_stable)
    found: dict[str, Offsets] = {}
    retries = Retries(policy or cluster.options.retries)
    while left := [group_id for group_id in wanted if group_id not in found]:
        failures = await _attempt(cluster, left, selection, found)
        failures.sort(key=lambda failure: failure.is_retriable)
        if failures:
            await retries.wait_or_raise(failures[0])
    return {group_id: found[group_id] for group_id in wanted}


async def _attempt(
    cluster: Cluster, group_ids: Sequence[str], selection: _Selection, found: dict[str, Offsets]
) -> list[ClientError]:
    """Ask each group's coordinator once; return the errors."""
    try:
        coordinators = await find_coordinators(await cluster.any_broker(), group_ids)
    except ClientError as error:
        return [error]
    by_address: dict[Address, list[str]] = {}
    failures: list[ClientError] = []
    for group_id, place in coordinators.items():
        if isinstance(place, BrokerResponseError):
            failures.append(place)
        else:
            by_address.setdefault(place, []).append(group_id)
    requests = (
        _ask(cluster, address, some, selection, found) for address, some in by_address.items()
    )
    for failed in await asyncio.gather(*requests):
        failures += failed
    return failures


async def _ask(
    cluster: Cluster,
    address: Address,
    group_ids: Sequence[str],
    selection: _Selection,
    found: dict[str, Offsets],
) -> list[ClientError]:
    """Ask one coordinator for its groups; return the errors."""
    failures: list[ClientError] = []
    try:
        connection = await cluster.connect_to(address)
        for start in range(0, len(group_ids), _GROUPS_MAX):
            some = group_ids[start : start + _GROUPS_MAX]
            for result in await _fetch(connection, some, selection):
                offsets, code = parse_offsets(result.topics)
                code = result.error_code or code
                if code:
                    what = f"reading the offsets of group {result.group_id!r}"
                    failures.append(BrokerResponseError(to_error_code(code), what))
                else:
                    found[result.group_id] = offsets
    except ConnectError as error:
        more = f" and {len(group_ids) - 1} more" if len(group_ids) > 1 else ""
        why = f"{error.reason}; it is the coordinator of group {group_ids[0]!r}{more}"
        failures.append(ConnectError(address, why))
    except ClientError as error:
        failures.append(error)
    return failures


async def _fetch(
    connection: Connection, group_ids: Sequence[str], selection: _Selection
) -> list[OffsetFetchGroupResult]:
    """Fetch the selected committed offsets of some groups."""
    version = connection.version_of(OFFSET_FETCH)
    version_min = _STABLE if selection.require_stable else _ALL_PARTITIONS
    if version < version_min:
        ours = f"v{version_min} and newer"
        raise UnsupportedApiError(connection.address, OFFSET_FETCH.name, ours, f"v{version}")
    if version < _SEVERAL:
        return await asyncio.gather(
            *(_fetch_one(connection, each, selection) for each in group_ids)
        )
    groups = [
        OffsetFetchGroup(group_id=group_id, topics=selection.topics) for group_id in group_ids
    ]
    request = OffsetFetchRequest(groups=groups, require_stable=selection.require_stable)
    answer = await connection.send(OFFSET_FETCH, request)
    by_id = {group.group_id: group for group in answer.groups}
    return [by_id.get(group_id, _left_out(group_id)) for group_id in group_ids]


async def _fetch_one(
    connection: Connection, group_id: str, selection: _Selection
) -> OffsetFetchGroupResult:
    """Fetch one group; the response before v8 has one group."""
    request = OffsetFetchRequest(
        group_id=group_id, topics=selection.topics, require_stable=selection.require_stable
    )
    answer = await connection.send(OFFSET_FETCH, request)
    return OffsetFetchGroupResult(
        group_id=group_id, topics=answer.topics, error_code=answer.error_code
    )


def _left_out(group_id: str) -> OffsetFetchGroupResult:
    """Return the result for a group that the response left out."""
    return OffsetFetchGroupResult(
        group_id=group_id, topics=[], error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE
    )

"""Groups as their coordinators describe them, through Partage's client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from partage.client.cluster import Cluster
from partage.client.errors import BrokerResponseError, ClientError, UnsupportedApiError
from partage.client.group.coordinator_lookup import find_coordinators
from partage.client.retries import Retries
from partage.console.common.client_requests import (
    broker_nodes,
    brokers_by_address,
    request_error,
    run_client,
)
from partage.console.common.cluster_client import ClusterClient
from partage.console.common.errors import CommandError
from partage.console.groups.consumer_groups import describe_consumer_group
from partage.console.groups.raw_groups import UNKNOWN, RawGroup, RawMember, describe_raw
from partage.model.addresses import Address
from partage.model.errors import ErrorCode
from partage.model.groups import GroupDescription, Node
from partage.wire.apis.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
    DescribedConsumerGroup,
)
from partage.wire.apis.describe_groups import (
    DESCRIBE_GROUPS,
    DescribedGroup,
    DescribeGroupsRequest,
)
from partage.wire.apis.list_groups import LIST_GROUPS, ListedGroup, ListGroupsRequest

T = TypeVar("T")

#: Errors of a coordinator after which another request may succeed.
RETRIABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
_DEAD: Final = "Dead"
#: Errors for a group without members of the consumer protocol. A broker that has this protocol
#: disabled (``group.coordinator.rebalance.protocols``) answers so for every group.
_NOT_A_CONSUMER_GROUP: Final = frozenset(
    {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION}
)


class CoordinatedGroup(NamedTuple):
    """A group: its description without offsets, and its bytes if it has the classic protocol."""

    description: GroupDescription
    raw: RawGroup | None


class GroupsOfBrokers(NamedTuple):
    """Groups by name, and the error of a broker that did not respond; its groups are missing."""

    groups: dict[str, CoordinatedGroup]
    failure: CommandError | None


def fetch_groups(cluster: ClusterClient, names: Sequence[str]) -> dict[str, CoordinatedGroup]:
    """Return the existing groups of these names, without offsets.

    Raises:
        CommandError: A coordinator does not respond.
    """
    if not names:
        return {}
    nodes = broker_nodes(cluster)

    async def attempt(client: Cluster) -> dict[str, CoordinatedGroup]:
        found = await find_coordinators(await client.any_broker(), names)
        by_address: dict[Address, list[str]] = {}
        for name, address in found.items():
            if isinstance(address, BrokerResponseError):
                raise address
            by_address.setdefault(address, []).append(name)
        described = await _all(
            fetch_groups_by_name(client, address, some, nodes.get(address))
            for address, some in by_address.items()
        )
        return {name: group for groups in described for name, group in groups.items()}

    return run_client(cluster, attempt)


def fetch_all_groups(cluster: ClusterClient, *, can_wait: bool = True) -> GroupsOfBrokers:
    """Return the groups of all brokers that respond, without offsets.

    Args:
        cluster: Cluster to ask.
        can_wait: True to repeat the requests while a broker does not respond or loads its groups.

    Raises:
        CommandError: No broker responds.
    """
    nodes: dict[Address, Node] = {}

    async def attempts(client: Cluster) -> tuple[dict[str, CoordinatedGroup], ClientError | None]:
        retries = Retries(client.options.retries)
        while True:
            # The cluster forgets a lost broker; other brokers have its groups then.
            nodes.clear()
            nodes.update(await client.with_retries(lambda: brokers_by_address(client)))
            found, failure = await _groups_of_brokers(client, nodes)
            if failure is None or not can_wait:
                return found, failure
            try:
                await retries.wait_or_raise(failure)
            except ClientError as error:
                return found, error

    groups, error = run_client(cluster, attempts)
    failure = None if error is None else request_error(error, nodes)
    return GroupsOfBrokers(dict(sorted(groups.items())), failure)


async def _groups_of_brokers(
    client: Cluster, nodes: Mapping[Address, Node]
) -> tuple[dict[str, CoordinatedGroup], ClientError | None]:
    """Return the groups of all brokers that respond, and the first error of another broker."""
    groups: dict[str, CoordinatedGroup] = {}
    failures: list[ClientError] = []

    async def add_groups_of(address: Address, node: Node) -> None:
        try:
            groups.update(await fetch_groups_of_broker(client, address, node))
        except ClientError as error:
            failures.append(error)

    await _all(add_groups_of(address, node) for address, node in nodes.items())
    # An error that no retry can remove ends the retries.
    failures.sort(key=lambda failure: failure.is_retriable)
    return groups, failures[0] if failures else None


async def _all(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Return the results of concurrent calls; their first error if one fails."""
    return list(await asyncio.gather(*calls))


async def fetch_groups_by_name(
    client: Cluster, coordinator: Address, names: list[str], node: Node | None
) -> dict[str, CoordinatedGroup]:
    """Return the groups of these names that exist; other types of groups are only listed.

    Raises:
        BrokerResponseError: The coordinator refuses to describe a group.
    """
    described, refusals = await _describe(client, coordinator, names, node)
    for name, code in refusals.items():
        raise BrokerResponseError(code, f"group {name!r}")
    missing = set(names) - described.keys()
    if missing:
        for each in await _list(client, coordinator):
            if each.group_id in missing:
                described[each.group_id] = _undescribed(each, node)
    return described


async def _list(client: Cluster, address: Address) -> list[ListedGroup]:
    listed = await (await client.connect_to(address)).send(LIST_GROUPS, ListGroupsRequest())
    if listed.error_code:
        raise BrokerResponseError(listed.error_code, f"listing the groups of {address}")
    return listed.groups


async def fetch_groups_of_broker(
    client: Cluster, address: Address, node: Node | None
) -> dict[str, CoordinatedGroup]:
    """Return the groups that a broker coordinates.

    A group that cannot be described, such as a share group, has only its type and state.

    Raises:
        ClientError: The broker does not respond, or is loading its groups.
    """
    listed = await _list(client, address)
    if not listed:
        return {}
    described, _ = await _describe(client, address, [each.group_id for each in listed], node)
    return {
        each.group_id: described.get(each.group_id) or _undescribed(each, node) for each in listed
    }


def _undescribed(listed: ListedGroup, node: Node | None) -> CoordinatedGroup:
    state = listed.group_state or UNKNOWN
    raw = RawGroup(False, state, listed.protocol_type, "", node, [])
    description = msgspec.structs.replace(
        describe_raw(listed.group_id, raw),
        type=listed.group_type.capitalize() or None,
        state=state,
    )
    return CoordinatedGroup(description, raw)


async def _describe(
    client: Cluster, coordinator: Address, names: list[str], node: Node | None
) -> tuple[dict[str, CoordinatedGroup], dict[str, int]]:
    """Return the groups of one coordinator, and the error codes of those that it refuses."""
    connection = await client.connect_to(coordinator)
    response = await connection.send(DESCRIBE_GROUPS, DescribeGroupsRequest(groups=names))
    groups: dict[str, CoordinatedGroup] = {}
    refusals: dict[str, int] = {}
    others = []
    for group in response.groups:
        _raise_retriable(group)
        if _is_missing(group):
            others.append(group.group_id)
        else:
            raw = _raw(group, node)
            groups[group.group_id] = CoordinatedGroup(describe_raw(group.group_id, raw), raw)
    if not others:
        return groups, refusals
    try:
        consumers = await connection.send(
            CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest(group_ids=others)
        )
    except UnsupportedApiError:
        return groups, refusals
    for each in consumers.groups:
        _raise_retriable(each)
        if not each.error_code:
            description = describe_consumer_group(each, node)
            groups[each.group_id] = CoordinatedGroup(description, None)
        elif each.error_code not in _NOT_A_CONSUMER_GROUP:
            refusals[each.group_id] = each.error_code
    return groups, refusals


def _raise_retriable(group: DescribedGroup | DescribedConsumerGroup) -> None:
    if group.error_code in RETRIABLE:
        raise BrokerResponseError(group.error_code, f"group {group.group_id!r}")


def _is_missing(group: DescribedGroup) -> bool:
    """Return True if no classic group has this name; v6 has an error instead of a state."""
    return group.error_code == ErrorCode.GROUP_ID_NOT_FOUND or (
        not group.error_code and group.group_state == _DEAD
    )


def _raw(group: DescribedGroup, node: Node | None) -> RawGroup:
    return RawGroup(
        is_described=not group.error_code,
        state=group.group_state,
        protocol_type=group.protocol_type,
        protocol=group.protocol_data,
        coordinator=node,
        members=[
            RawMember(
                member_id=each.member_id,
                instance_id=each.group_instance_id,
                client_id=each.client_id,
                host=each.client_host,
                metadata=bytes(each.member_metadata),
                assignment=bytes(each.member_assignment),
            )
            for each in group.members
        ],
    )

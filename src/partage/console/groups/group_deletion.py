"""Deletion of groups by their coordinators (DeleteGroups, KIP-229)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from partage.client.cluster import Cluster
from partage.client.errors import BrokerResponseError, ClientError, UnsupportedApiError
from partage.client.group.coordinator_lookup import find_coordinators
from partage.client.retries import Retries
from partage.console.groups.coordinated_groups import RETRIABLE
from partage.model.addresses import Address
from partage.model.errors import ErrorCode
from partage.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest

#: Advice for a deletion without a response.
DOUBT: Final = "check with partage groups list whether it was deleted"


class GroupDeletion(NamedTuple):
    """The result of the deletion of one group.

    Attributes:
        error_code: Error code of the coordinator; `ErrorCode.NONE` if the group was deleted.
        failure: Error if there was no response; ``error_code`` has no meaning then.
        may_be_deleted: True if the request was sent, and there was no response.
    """

    error_code: int
    failure: ClientError | None = None
    may_be_deleted: bool = False


async def delete_groups(client: Cluster, names: Sequence[str]) -> dict[str, GroupDeletion]:
    """Delete groups. Return the result of each group.

    Coordinators that move or load are retried. A request whose response is lost is not repeated:
    the repetition would report a deleted group as missing.
    """
    retries = Retries(client.options.retries)
    results: dict[str, GroupDeletion] = {}
    pending = list(names)
    while pending:
        attempted = await _attempt(client, pending)
        results |= attempted
        errors = {name: _retriable_error(name, result) for name, result in attempted.items()}
        pending = [name for name in pending if errors[name] is not None]
        if pending:
            error = errors[pending[0]]
            assert error is not None  # By the selection of pending groups.
            try:
                await retries.wait_or_raise(error)
            except ClientError:  # The results have it.
                break
    return results


def _retriable_error(name: str, result: GroupDeletion) -> ClientError | None:
    """Return the error after which the deletion may be sent again, or None."""
    if result.failure is None:
        is_retriable = result.error_code in RETRIABLE
        return BrokerResponseError(result.error_code, f"group {name!r}") if is_retriable else None
    return result.failure if result.failure.is_retriable and not result.may_be_deleted else None


async def _attempt(client: Cluster, names: Sequence[str]) -> dict[str, GroupDeletion]:
    """Send one request to each coordinator."""
    try:
        coordinators = await find_coordinators(await client.any_broker(), names)
    except ClientError as error:
        return dict.fromkeys(names, GroupDeletion(ErrorCode.NONE, error))
    results: dict[str, GroupDeletion] = {}
    by_address: dict[Address, list[str]] = {}
    for name, place in coordinators.items():
        if isinstance(place, BrokerResponseError):
            results[name] = GroupDeletion(place.code)
        else:
            by_address.setdefault(place, []).append(name)
    requests = (_send(client, address, some) for address, some in by_address.items())
    for found in await asyncio.gather(*requests):
        results |= found
    return results


async def _send(client: Cluster, address: Address, names: list[str]) -> dict[str, GroupDeletion]:
    try:
        connection = await client.connect_to(address)
    except ClientError as error:
        return dict.fromkeys(names, GroupDeletion(ErrorCode.NONE, error))
    try:
        response = await connection.send(DELETE_GROUPS, DeleteGroupsRequest(groups_names=names))
    except ClientError as error:
        is_sent = not isinstance(error, UnsupportedApiError)
        return dict.fromkeys(names, GroupDeletion(ErrorCode.NONE, error, may_be_deleted=is_sent))
    codes = {each.group_id: each.error_code for each in response.results}
    return {name: GroupDeletion(codes.get(name, ErrorCode.UNKNOWN_SERVER_ERROR)) for name in names}

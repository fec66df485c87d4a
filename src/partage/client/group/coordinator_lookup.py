"""FindCoordinator requests for one or many groups."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from partage.bridge.member_requests import to_error_code
from partage.client.connection import Connection
from partage.client.errors import BrokerResponseError
from partage.model.addresses import Address
from partage.model.errors import ErrorCode
from partage.wire.apis.find_coordinator import (
    FIND_COORDINATOR,
    FindCoordinatorRequest,
    FindCoordinatorResult,
)

#: The first version that can ask for several keys (KIP-699).
_SEVERAL: Final = 4
#: Maximum number of requests in flight with older versions.
_AT_ONCE: Final = 100


#: The result for a group that the response left out.
_LEFT_OUT: Final = FindCoordinatorResult(
    key="", node_id=-1, host="", port=-1, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE
)


async def find_coordinators(
    broker: Connection, group_ids: Sequence[str]
) -> dict[str, Address | BrokerResponseError]:
    """Return the coordinator's address of each group, or the error; use one request if possible.

    Raises:
        ClientError: As `Connection.send`.
    """
    if broker.version_of(FIND_COORDINATOR) >= _SEVERAL:
        request = FindCoordinatorRequest(coordinator_keys=list(group_ids))
        answer = await broker.send(FIND_COORDINATOR, request)
        found = {each.key: each for each in answer.coordinators}
    else:
        found = {}
        for start in range(0, len(group_ids), _AT_ONCE):
            some = group_ids[start : start + _AT_ONCE]
            answers = await asyncio.gather(*(_find_one(broker, group_id) for group_id in some))
            found |= {each.key: each for each in answers}
    return {group_id: _place(group_id, found.get(group_id, _LEFT_OUT)) for group_id in group_ids}


async def _find_one(broker: Connection, group_id: str) -> FindCoordinatorResult:
    """Find one coordinator; the response before v4 does not repeat the key."""
    found = await broker.send(FIND_COORDINATOR, FindCoordinatorRequest(key=group_id))
    return FindCoordinatorResult(
        key=group_id,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
        error_code=found.error_code,
    )


def _place(group_id: str, found: FindCoordinatorResult) -> Address | BrokerResponseError:
    if found.error_code:
        what = f"finding the coordinator of group {group_id!r}"
        return BrokerResponseError(to_error_code(found.error_code), what)
    return Address(found.host, found.port)

"""The APIs of the accepted design, in the versions that the product's consumer uses."""

from __future__ import annotations

from typing import Final

from partage.wire.api import AnyApi
from partage.wire.apis.heartbeat import HEARTBEAT
from partage.wire.apis.join_group import JOIN_GROUP
from partage.wire.apis.leave_group import LEAVE_GROUP
from partage.wire.apis.offset_commit import OFFSET_COMMIT
from partage.wire.apis.offset_fetch import OFFSET_FETCH
from partage.wire.apis.sync_group import SYNC_GROUP
from partage.wire.types import Message

APIS: Final[tuple[tuple[AnyApi, int], ...]] = tuple(
    (api, api.by_name_max)
    for api in (JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP, OFFSET_COMMIT, OFFSET_FETCH)
)

#: The API and its version, by the type of the request.
API_BY_REQUEST: Final[dict[type[Message], tuple[AnyApi, int]]] = {
    api.request: (api, version) for api, version in APIS
}

"""The APIs of the consumer group protocol, in the versions that the product's consumer uses."""

from __future__ import annotations

from typing import Final

from partage.wire.api import AnyApi
from partage.wire.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from partage.wire.apis.offset_commit import OFFSET_COMMIT
from partage.wire.apis.offset_fetch import OFFSET_FETCH
from partage.wire.types import Message

APIS: Final[tuple[tuple[AnyApi, int], ...]] = tuple(
    (api, api.by_name_max) for api in (CONSUMER_GROUP_HEARTBEAT, OFFSET_COMMIT, OFFSET_FETCH)
)

#: The API and its version, by the type of the request.
API_BY_REQUEST: Final[dict[type[Message], tuple[AnyApi, int]]] = {
    api.request: (api, version) for api, version in APIS
}

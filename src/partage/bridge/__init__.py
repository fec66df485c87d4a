"""Converts wire messages of any version to the state machines' events, and their replies back
(layer 2).

Each API has a module with an `ApiAdapter`; `API_ADAPTERS` holds them by API key. Only the bridge
knows both API versions and events.
"""

from __future__ import annotations

from typing import Any, Final

from partage.bridge.delete_groups import DELETE_GROUPS_EXCHANGE
from partage.bridge.describe_groups import DESCRIBE_GROUPS_EXCHANGE
from partage.bridge.exchange import Call, Exchange, Part
from partage.bridge.heartbeat import HEARTBEAT_EXCHANGE
from partage.bridge.join_group import JOIN_GROUP_EXCHANGE
from partage.bridge.leave_group import LEAVE_GROUP_EXCHANGE
from partage.bridge.list_groups import LIST_GROUPS_EXCHANGE
from partage.bridge.offset_commit import OFFSET_COMMIT_EXCHANGE
from partage.bridge.offset_delete import OFFSET_DELETE_EXCHANGE
from partage.bridge.offset_fetch import OFFSET_FETCH_EXCHANGE
from partage.bridge.sync_group import SYNC_GROUP_EXCHANGE

__all__ = ["EXCHANGES", "Call", "Exchange", "Part"]

EXCHANGES: Final[dict[int, Exchange[Any, Any]]] = {
    exchange.api.key: exchange
    for exchange in (
        OFFSET_COMMIT_EXCHANGE,
        OFFSET_FETCH_EXCHANGE,
        JOIN_GROUP_EXCHANGE,
        HEARTBEAT_EXCHANGE,
        LEAVE_GROUP_EXCHANGE,
        SYNC_GROUP_EXCHANGE,
        DESCRIBE_GROUPS_EXCHANGE,
        LIST_GROUPS_EXCHANGE,
        DELETE_GROUPS_EXCHANGE,
        OFFSET_DELETE_EXCHANGE,
    )
}

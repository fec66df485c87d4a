"""Converts wire messages of any version to the state machines' events, and their replies back
(layer 2).

Each API has a module with an `ApiAdapter`; `API_ADAPTERS` holds them by API key. Only the bridge
knows both API versions and events.
"""

from __future__ import annotations

from typing import Any, Final

from partage.bridge.api_adapter import ApiAdapter, ApiCall, SubTicket
from partage.bridge.consumer_group_describe import CONSUMER_GROUP_DESCRIBE_ADAPTER
from partage.bridge.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT_ADAPTER
from partage.bridge.delete_groups import DELETE_GROUPS_ADAPTER
from partage.bridge.describe_groups import DESCRIBE_GROUPS_ADAPTER
from partage.bridge.heartbeat import HEARTBEAT_ADAPTER
from partage.bridge.join_group import JOIN_GROUP_ADAPTER
from partage.bridge.leave_group import LEAVE_GROUP_ADAPTER
from partage.bridge.list_groups import LIST_GROUPS_ADAPTER
from partage.bridge.offset_commit import OFFSET_COMMIT_ADAPTER
from partage.bridge.offset_delete import OFFSET_DELETE_ADAPTER
from partage.bridge.offset_fetch import OFFSET_FETCH_ADAPTER
from partage.bridge.sync_group import SYNC_GROUP_ADAPTER
from partage.bridge.txn_offset_commit import TXN_OFFSET_COMMIT_ADAPTER

__all__ = ["API_ADAPTERS", "ApiAdapter", "ApiCall", "SubTicket"]

API_ADAPTERS: Final[dict[int, ApiAdapter[Any, Any]]] = {
    exchange.api.key: exchange
    for exchange in (
        OFFSET_COMMIT_ADAPTER,
        OFFSET_FETCH_ADAPTER,
        JOIN_GROUP_ADAPTER,
        HEARTBEAT_ADAPTER,
        LEAVE_GROUP_ADAPTER,
        SYNC_GROUP_ADAPTER,
        DESCRIBE_GROUPS_ADAPTER,
        LIST_GROUPS_ADAPTER,
        DELETE_GROUPS_ADAPTER,
        OFFSET_DELETE_ADAPTER,
        TXN_OFFSET_COMMIT_ADAPTER,
        CONSUMER_GROUP_HEARTBEAT_ADAPTER,
        CONSUMER_GROUP_DESCRIBE_ADAPTER,
    )
}

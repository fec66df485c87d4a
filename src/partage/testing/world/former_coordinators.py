"""Responses of brokers whose groups another broker has taken over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from partage.broker.net.inbound_request import InboundRequest
from partage.lab.brokers.observed_response import ObservedResponse, observe_response
from partage.lab.checkers.group_in_response import group_in_response
from partage.wire.apis.consumer_group_describe import CONSUMER_GROUP_DESCRIBE
from partage.wire.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from partage.wire.apis.delete_groups import DELETE_GROUPS
from partage.wire.apis.describe_groups import DESCRIBE_GROUPS
from partage.wire.apis.heartbeat import HEARTBEAT
from partage.wire.apis.join_group import JOIN_GROUP
from partage.wire.apis.leave_group import LEAVE_GROUP
from partage.wire.apis.offset_commit import OFFSET_COMMIT
from partage.wire.apis.offset_delete import OFFSET_DELETE
from partage.wire.apis.offset_fetch import OFFSET_FETCH
from partage.wire.apis.sync_group import SYNC_GROUP
from partage.wire.apis.txn_offset_commit import TXN_OFFSET_COMMIT

_COORDINATED: Final = frozenset(
    {
        CONSUMER_GROUP_DESCRIBE.key,
        CONSUMER_GROUP_HEARTBEAT.key,
        DELETE_GROUPS.key,
        DESCRIBE_GROUPS.key,
        HEARTBEAT.key,
        JOIN_GROUP.key,
        LEAVE_GROUP.key,
        OFFSET_COMMIT.key,
        OFFSET_DELETE.key,
        OFFSET_FETCH.key,
        SYNC_GROUP.key,
        TXN_OFFSET_COMMIT.key,
    }
)


class FormerCoordinators:
    """Checks that only the owner of a shard in ZooKeeper responds for its groups.

    Requests for several groups are not judged: the result for one of them was valid at first, and
    waited for the others. The former owner cannot know of a takeover while it is cut off or paused.
    Its lease must have ended before.

    Args:
        owner: returns the broker that owns the shard of a group in ZooKeeper; None if none does.
        report: called with a description of a response by another broker.
    """

    def __init__(self, owner: Callable[[str], str | None], report: Callable[[str], None]) -> None:
        self._owner, self._report = owner, report

    def on_request(self, broker: str, inbound: InboundRequest) -> None:
        """Check the response of a broker to a request."""
        if inbound.api.key not in _COORDINATED or len(_group_names(inbound.message)) > 1:
            return

        def answered(response: ObservedResponse) -> None:
            group = group_in_response(inbound.message, inbound.version, response.message)
            owner = None if group is None else self._owner(group)
            if owner not in (None, broker):
                self._report(
                    f"{broker} responded to {inbound.api.name} for group {group} although {owner} "
                    "had taken over the group"
                )

        observe_response(inbound, answered)


def _group_names(message: Any) -> list[Any]:
    """Return the groups of a request for several groups; [] for other requests."""
    for field in ("groups", "group_ids", "groups_names"):
        if names := getattr(message, field, None):
            return list(names)
    return []

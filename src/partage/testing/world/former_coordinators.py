"""Responses of brokers whose groups another broker has taken over."""

from __future__ import annotations

from collections.abc import Callable

from partage.broker.net.inbound_request import InboundRequest
from partage.lab.brokers.observed_response import ObservedResponse, observe_response
from partage.lab.checkers.group_in_response import group_in_response
from partage.wire.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from partage.wire.apis.heartbeat import HEARTBEAT
from partage.wire.apis.join_group import JOIN_GROUP
from partage.wire.apis.leave_group import LEAVE_GROUP
from partage.wire.apis.offset_commit import OFFSET_COMMIT
from partage.wire.apis.offset_fetch import OFFSET_FETCH
from partage.wire.apis.sync_group import SYNC_GROUP
from partage.wire.apis.txn_offset_commit import TXN_OFFSET_COMMIT

_COORDINATED = frozenset(
    {
        CONSUMER_GROUP_HEARTBEAT.key,
        HEARTBEAT.key,
        JOIN_GROUP.key,
        LEAVE_GROUP.key,
        OFFSET_COMMIT.key,
        OFFSET_FETCH.key,
        SYNC_GROUP.key,
        TXN_OFFSET_COMMIT.key,
    }
)


class FormerCoordinators:
    """Checks that only the owner of a shard in ZooKeeper responds for its groups.

    The former owner cannot know of a takeover while it is cut off or paused. Its lease must have
    ended before.

    Args:
        owner: returns the broker that owns the shard of a group in ZooKeeper; None if none does.
        report: called with a description of a response by another broker.
    """

    def __init__(self, owner: Callable[[str], str | None], report: Callable[[str], None]) -> None:
        self._owner, self._report = owner, report

    def on_request(self, broker: str, inbound: InboundRequest) -> None:
        """Check the response of a broker to a request."""
        if inbound.api.key not in _COORDINATED:
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

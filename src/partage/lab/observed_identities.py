"""Member identities and requests seen on the wire, which rogue clients reuse."""

from __future__ import annotations

from typing import Any

import msgspec

from partage.lab import history
from partage.lab.names import CONSUMER_GROUP
from partage.wire.apis.heartbeat import HEARTBEAT
from partage.wire.apis.join_group import JOIN_GROUP, JoinGroupResponse
from partage.wire.apis.offset_commit import OFFSET_COMMIT


class MemberIdentity(msgspec.Struct, frozen=True):
    """A member's identity, as seen on the wire."""

    group_id: str
    member_id: str
    generation: int
    instance_id: str | None


class ObservedIdentities:
    """The identities of all members so far, and the requests of members, both oldest first.

    Members of `CONSUMER_GROUP` do not count: `RogueMember` sends requests to their group.
    """

    def __init__(self, observed: history.History) -> None:
        self.members: list[MemberIdentity] = []
        self.requests: list[history.RequestReceived] = []
        self.last_offset = 0  # the last offset that a rogue client committed
        observed.subscribe(history.ResponseSent, self._observe)

    def _observe(self, entry: history.ResponseSent) -> None:
        message = entry.message
        request: Any = entry.request.message
        is_membership = entry.request.api_key in (JOIN_GROUP.key, HEARTBEAT.key)
        if is_membership and getattr(request, "group_id", None) == CONSUMER_GROUP:
            return
        if entry.request.api_key in (JOIN_GROUP.key, HEARTBEAT.key, OFFSET_COMMIT.key):
            self.requests.append(entry.request)
        if isinstance(message, JoinGroupResponse) and message.member_id:
            self.members.append(
                MemberIdentity(
                    request.group_id,
                    message.member_id,
                    message.generation_id,
                    request.group_instance_id,
                )
            )

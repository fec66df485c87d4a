"""Rogue requests to the group with the consumer protocol: repeated, stale, and impersonating."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import msgspec

from partage.lab.clients.client_connection import ClientConnection
from partage.lab.clients.group_member import VERSIONS, commit_request
from partage.lab.context import WorldContext
from partage.lab.history import RequestReceived
from partage.lab.names import CONSUMER_GROUP, ROGUE_MEMBER
from partage.wire.api import AnyApi
from partage.wire.apis.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
)
from partage.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from partage.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from partage.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupMember, LeaveGroupRequest
from partage.wire.apis.offset_commit import OFFSET_COMMIT
from partage.wire.apis.offset_fetch import OFFSET_FETCH, OffsetFetchGroup, OffsetFetchRequest
from partage.wire.apis.sync_group import SYNC_GROUP, SyncGroupRequest

_TIMEOUT_MS: Final = 20_000


class RogueMember:
    """A client that sends one request over a new connection."""

    def __init__(self, world: WorldContext, rng: Random) -> None:
        self._world = world
        self._rng = rng
        coordinator_id = world.coordinator_id(CONSUMER_GROUP)
        self._connection = ClientConnection(
            world.network,
            ROGUE_MEMBER,
            1 if coordinator_id is None else coordinator_id,
            0,
            lambda: None,
            versions=VERSIONS,
        )

    def _send(self, api: AnyApi, message: Any) -> bool:
        def opened(is_open: bool) -> None:
            if is_open:
                self._connection.send(api, message, lambda response: None, _TIMEOUT_MS)

        self._connection.open(opened)
        return True

    def _pick(self) -> ConsumerGroupHeartbeatRequest | None:
        """Return a heartbeat that a broker received, usually a new one."""
        sent: list[RequestReceived] = self._world.consumer_requests
        if not sent:
            return None
        message: Any = self._rng.choice(sent[-8:] if self._rng.random() < 0.7 else sent).message
        found: ConsumerGroupHeartbeatRequest = message
        return found

    # Requests: each method returns True if it sent one

    def repeat(self) -> bool:
        """Send a heartbeat of a member once more, as a late packet."""
        request = self._pick()
        if request is None or request.member_epoch == 0:
            return False
        self._world.was_impersonated = True
        return self._send(CONSUMER_GROUP_HEARTBEAT, request)

    def heartbeat(self) -> bool:
        """Send a heartbeat with a wrong epoch, or a wrong member id or instance id."""
        request = self._pick()
        if request is None:
            return False
        rng, epoch = self._rng, max(request.member_epoch, 1)
        changes: dict[str, Any] = rng.choice(
            (
                {"member_epoch": epoch + rng.choice((1, 7))},
                {"member_epoch": max(1, epoch - rng.choice((1, 2, 3))), "topic_partitions": None},
                {"member_epoch": epoch, "member_id": "nobody"},
                {"member_epoch": epoch, "instance_id": rng.choice(("s1", "s9"))},
                {"member_epoch": -2, "instance_id": rng.choice(("s1", "s9"))},
                {"member_epoch": -1, "member_id": "nobody"},
                {"member_epoch": -3},
                {"server_assignor": "nothing"},
                {"subscribed_topic_regex": "k["},
            )
        )
        self._world.was_impersonated = True
        return self._send(CONSUMER_GROUP_HEARTBEAT, msgspec.structs.replace(request, **changes))

    def prefer_assignor(self) -> bool:
        """Send a heartbeat of a member that changes only its assignor."""
        request = self._pick()
        if request is None or request.member_epoch <= 0:
            return False
        self._world.was_impersonated = True
        assignor = self._rng.choice(("range", "uniform"))
        changed = ConsumerGroupHeartbeatRequest(
            group_id=CONSUMER_GROUP,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            instance_id=request.instance_id,
            server_assignor=assignor,
        )
        return self._send(CONSUMER_GROUP_HEARTBEAT, changed)

    def send_classic(self, member_id: str, generation: int) -> bool:
        """Send a Heartbeat or a SyncGroup with a wrong generation or id of a classic member."""
        rng = self._rng
        generation += rng.choice((-2, -1, 1))
        if rng.random() < 0.2:
            member_id = "nobody"
        if rng.random() < 0.7:
            heartbeat = HeartbeatRequest(
                group_id=CONSUMER_GROUP, generation_id=generation, member_id=member_id
            )
            return self._send(HEARTBEAT, heartbeat)
        sync = SyncGroupRequest(
            group_id=CONSUMER_GROUP,
            generation_id=generation,
            member_id=member_id,
            assignments=[],
        )
        return self._send(SYNC_GROUP, sync)

    def commit(self) -> bool:
        """Commit with the identity of a member, and with its epoch or another one."""
        request = self._pick()
        if request is None:
            return False
        rng, epoch = self._rng, request.member_epoch
        member_id = rng.choice((request.member_id, request.member_id, "nobody", ""))
        epoch = rng.choice((epoch, epoch - 1, epoch - 2, epoch + 1, -1))
        name = rng.choice(list(self._world.consumer_topics.images) or ["ka"])
        self._world.identities.last_offset += 1
        offset = 100_000 + self._world.identities.last_offset
        offsets = {name: dict.fromkeys(range(rng.choice((1, 3))), offset)}
        return self._send_commit(member_id, epoch, offsets)

    def _send_commit(self, member_id: str, epoch: int, offsets: dict[str, dict[int, int]]) -> bool:
        return self._send(OFFSET_COMMIT, commit_request(member_id, epoch, None, offsets))

    def remove(self) -> bool:
        """Remove a member as an administrator does, by its member id or instance id."""
        request = self._pick()
        if request is None:
            return False
        member = LeaveGroupMember(member_id=request.member_id)
        if request.instance_id is not None and self._rng.random() < 0.5:
            member = LeaveGroupMember(member_id="", group_instance_id=request.instance_id)
        return self._send(LEAVE_GROUP, LeaveGroupRequest(group_id=CONSUMER_GROUP, members=[member]))

    def describe(self) -> bool:
        """Describe the group."""
        request = ConsumerGroupDescribeRequest(group_ids=[CONSUMER_GROUP])
        return self._send(CONSUMER_GROUP_DESCRIBE, request)

    def delete_group(self) -> bool:
        """Delete the group, which succeeds only without members."""
        return self._send(DELETE_GROUPS, DeleteGroupsRequest(groups_names=[CONSUMER_GROUP]))

    def fetch_offsets(self) -> bool:
        """Read all committed offsets of the group."""
        group = OffsetFetchGroup(group_id=CONSUMER_GROUP, topics=None)
        return self._send(OFFSET_FETCH, OffsetFetchRequest(groups=[group]))

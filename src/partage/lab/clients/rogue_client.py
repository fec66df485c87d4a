"""Rogue clients: stale, impersonating, duplicate or malformed requests."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

import msgspec

from partage.lab import history
from partage.lab.clients.client_connection import ClientConnection
from partage.wire.api import AnyApi
from partage.wire.apis import APIS
from partage.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from partage.wire.apis.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from partage.wire.apis.join_group import (
    JOIN_GROUP,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
)
from partage.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupMember, LeaveGroupRequest
from partage.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest
from partage.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from partage.wire.apis.offset_delete import (
    OFFSET_DELETE,
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
)
from partage.wire.apis.offset_fetch import OFFSET_FETCH, OffsetFetchGroup, OffsetFetchRequest
from partage.wire.apis.sync_group import SYNC_GROUP, SyncGroupAssignment, SyncGroupRequest
from partage.wire.consumer_protocol import Subscription, encode_subscription
from partage.wire.frames import encode_request_frame

if TYPE_CHECKING:
    from partage.lab.world import World

_PATIENCE_MS: Final = 20_000
#: A topic without readers, for which offsets are committed.
UNREAD_TOPIC: Final = "x"
#: A group with offsets that never has members.
MEMBERLESS_GROUP: Final = "simple"


class MemberIdentity(msgspec.Struct, frozen=True):
    """A member's identity, as seen on the wire."""

    group_id: str
    member_id: str
    generation: int
    instance_id: str | None


class ObservedIdentities:
    """Member identities and requests seen on the wire, which rogue clients reuse."""

    def __init__(self, world: World) -> None:
        self.members: list[MemberIdentity] = []
        self.requests: list[history.RequestReceived] = []
        self.last_offset = 0
        world.history.subscribe(history.ResponseSent, self._observe)

    def _observe(self, entry: history.ResponseSent) -> None:
        message = entry.message
        if entry.request.api_key in (JOIN_GROUP.key, HEARTBEAT.key, OFFSET_COMMIT.key):
            self.requests.append(entry.request)
        if isinstance(message, JoinGroupResponse) and message.member_id:
            asked: Any = entry.request.message
            name = MemberIdentity(
                asked.group_id, message.member_id, message.generation_id, asked.group_instance_id
            )
            self.members.append(name)


class RogueClient:
    """A client that sends one request over a new connection."""

    def __init__(self, world: World, rng: Random) -> None:
        self._world = world
        self._rng = rng
        self._cap = rng.choice((0, 1, 4, 9))
        broker_id = world.guess_coordinator(rng)
        self._connection = ClientConnection(
            world.network, "stranger", broker_id, self._cap, lambda: None
        )

    def _send(self, api: AnyApi, message: Any) -> None:
        def opened(is_open: bool) -> None:
            if is_open:
                self._connection.send(api, message, lambda answer: None, _PATIENCE_MS)

        self._connection.open(opened)

    def _pick_identity(self, *, is_stale: bool) -> MemberIdentity | None:
        """Return a random observed identity. A stale one may have a wrong generation."""
        names = self._world.identities.members
        if not names:
            return None
        name = self._rng.choice(names[-6:] if self._rng.random() < 0.5 else names)
        if is_stale and self._rng.random() < 0.5:
            generation = self._rng.choice((name.generation - 1, name.generation + 1, 0, -1))
            name = msgspec.structs.replace(name, generation=generation)
        return name

    # Requests: each method returns True if it sent one

    def heartbeat(self) -> bool:
        """Send a Heartbeat with an observed identity."""
        name = self._pick_identity(is_stale=True)
        if name is not None:
            self._send(
                HEARTBEAT,
                HeartbeatRequest(
                    group_id=name.group_id,
                    generation_id=name.generation,
                    member_id=name.member_id,
                    group_instance_id=name.instance_id,
                ),
            )
        return name is not None

    def commit(self, *, for_nobody: bool = False) -> bool:
        """Send an OffsetCommit for a topic without readers, with an observed identity or none."""
        name = self._pick_identity(is_stale=True) or MemberIdentity("g", "", -1, None)
        if for_nobody or self._rng.random() < 0.3:
            name = MemberIdentity(self._rng.choice(("g", MEMBERLESS_GROUP)), "", -1, None)
        gossip = self._world.identities
        partitions = []
        for index in range(self._rng.choice((1, 1, 2))):
            gossip.last_offset += 1
            metadata = "m" * self._rng.choice((0, 3, 3, 5_000))
            partitions.append(
                OffsetCommitPartition(
                    partition_index=index,
                    committed_offset=gossip.last_offset,
                    committed_metadata=metadata,
                )
            )
        self._send(
            OFFSET_COMMIT,
            OffsetCommitRequest(
                group_id=name.group_id,
                generation_id_or_member_epoch=name.generation,
                member_id=name.member_id,
                group_instance_id=name.instance_id,
                topics=[OffsetCommitTopic(name=UNREAD_TOPIC, partitions=partitions)],
            ),
        )
        return True

    def sync(self) -> bool:
        """Send a SyncGroup of an old generation with an invalid assignment."""
        name = self._pick_identity(is_stale=True)
        if name is None:
            return False
        # The generations of a deleted group start again.
        heard = [
            n.generation for n in self._world.identities.members if n.group_id == name.group_id
        ]
        if name.generation >= heard[-1]:
            return False
        shares = [SyncGroupAssignment(member_id=name.member_id, assignment=b"mine")]
        self._send(
            SYNC_GROUP,
            SyncGroupRequest(
                group_id=name.group_id,
                generation_id=name.generation,
                member_id=name.member_id,
                group_instance_id=name.instance_id,
                protocol_type="consumer",
                protocol_name="cooperative-sticky",
                assignments=shares,
            ),
        )
        return True

    def leave(self) -> bool:
        """Send a LeaveGroup for an observed member, as administrators do."""
        name = self._pick_identity(is_stale=False)
        if name is not None:
            member = LeaveGroupMember(
                member_id=name.member_id,
                group_instance_id=name.instance_id,
                reason="removed",
            )
            self._send(
                LEAVE_GROUP,
                LeaveGroupRequest(
                    group_id=name.group_id, member_id=name.member_id, members=[member]
                ),
            )
        return name is not None

    def remove_static_member(self, group_id: str, instance_id: str) -> None:
        """Send a LeaveGroup for a static member, as administrators do (KIP-345)."""
        self._use_coordinator(group_id)
        member = LeaveGroupMember(member_id="", group_instance_id=instance_id, reason="removed")
        self._send(
            LEAVE_GROUP, LeaveGroupRequest(group_id=group_id, member_id="", members=[member])
        )

    def fetch_all_offsets(self, group_id: str) -> None:
        """Send an OffsetFetch for all offsets of a group to its coordinator."""
        self._use_coordinator(group_id)
        group = OffsetFetchGroup(group_id=group_id, topics=None)
        self._send(OFFSET_FETCH, OffsetFetchRequest(group_id=group_id, topics=None, groups=[group]))

    def _use_coordinator(self, group_id: str) -> None:
        coordinator = self._world.coordinator(group_id)
        broker_id = 1 if coordinator is None else coordinator.broker_id
        self._connection = ClientConnection(
            self._world.network, "stranger", broker_id, 0, lambda: None
        )

    def join(self) -> bool:
        """Send a JoinGroup without a following SyncGroup."""
        options = self._world.options
        metadata = encode_subscription(Subscription(topics=["t"]))
        name = self._rng.choice(("cooperative-sticky", "range", "nothing-in-common"))
        self._send(
            JOIN_GROUP,
            JoinGroupRequest(
                group_id="g",
                session_timeout_ms=self._rng.choice((10, options.session_timeout_ms)),
                rebalance_timeout_ms=options.rebalance_timeout_ms,
                member_id="",
                group_instance_id=None,
                protocol_type="consumer",
                protocols=[JoinGroupProtocol(name=name, metadata=metadata)],
            ),
        )
        return True

    def read_offsets(self) -> bool:
        """Send an OffsetFetch for all offsets of a group (since v2)."""
        if self._cap > OFFSET_FETCH.version_max - 2:
            return False
        group = OffsetFetchGroup(group_id="g", topics=None)
        self._send(OFFSET_FETCH, OffsetFetchRequest(group_id="g", topics=None, groups=[group]))
        return True

    def look(self) -> bool:
        """Send DescribeGroups or ListGroups."""
        if self._rng.random() < 0.5:
            self._send(DESCRIBE_GROUPS, DescribeGroupsRequest(groups=["g", "h", "nobody"]))
        else:
            self._send(LIST_GROUPS, ListGroupsRequest())
        return True

    def delete_group(self) -> bool:
        """Send DeleteGroups."""
        self._send(DELETE_GROUPS, DeleteGroupsRequest(groups_names=["g"]))
        return True

    def delete_offsets(self) -> bool:
        """Send an OffsetDelete for the topic without readers or for a subscribed one."""
        topic = self._rng.choice((UNREAD_TOPIC, "t"))
        asked = OffsetDeleteTopic(name=topic, partitions=[OffsetDeletePartition(partition_index=0)])
        self._send(OFFSET_DELETE, OffsetDeleteRequest(group_id="g", topics=[asked]))
        return True

    def repeat(self) -> bool:
        """Send an observed request again over another connection."""
        requests = self._world.identities.requests
        if not requests:
            return False
        asked = self._rng.choice(requests[-10:])
        api = APIS[asked.api_key]

        def opened(is_open: bool) -> None:
            if is_open:
                body = api.encode_request(asked.version, asked.message)
                frame = encode_request_frame(api, asked.version, 1, "stranger", body)
                self._connection.send_bytes(b"".join(frame))

        self._connection.open(opened)
        return True

    def babble(self) -> bool:
        """Send random bytes, or a damaged request."""
        rng = self._rng
        data = rng.randbytes(rng.randrange(1, 80))
        requests = self._world.identities.requests
        if requests and rng.random() < 0.7:
            asked = rng.choice(requests[-10:])
            api = APIS[asked.api_key]
            body = api.encode_request(asked.version, asked.message)
            frame = bytearray(
                b"".join(encode_request_frame(api, asked.version, 1, "stranger", body))
            )
            frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
            # A member id changed by one bit may be valid, and a commit with it would count. So only
            # Heartbeats are sent whole.
            data = (
                bytes(frame) if asked.api_key == HEARTBEAT.key else bytes(frame[: len(frame) // 2])
            )
        self._connection.open(lambda is_open: self._connection.send_bytes(data))
        return True

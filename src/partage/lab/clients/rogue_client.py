"""Rogue clients: stale, impersonating, duplicate or malformed requests."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import msgspec

from partage.lab.clients.client_connection import ClientConnection
from partage.lab.context import WorldContext
from partage.lab.names import GROUPS, MEMBERLESS_GROUP, UNREAD_TOPIC
from partage.lab.observed_identities import MemberIdentity
from partage.wire.api import AnyApi
from partage.wire.apis import APIS
from partage.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from partage.wire.apis.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from partage.wire.apis.join_group import (
    JOIN_GROUP,
    JoinGroupProtocol,
    JoinGroupRequest,
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

_TIMEOUT_MS: Final = 20_000
#: The client id. It is part of the meaning of seeds: its length, and its place among member ids.
_CLIENT_ID: Final = "rogue-01"


class RogueClient:
    """A client that sends one request over a new connection."""

    def __init__(self, world: WorldContext, rng: Random) -> None:
        self._world = world
        self._rng = rng
        self._versions_below_newest = rng.choice((0, 1, 4, 9))
        broker_id = world.guess_coordinator(rng)
        self._connection = ClientConnection(
            world.network, _CLIENT_ID, broker_id, self._versions_below_newest, lambda: None
        )

    def _send(self, api: AnyApi, message: Any) -> None:
        def opened(is_open: bool) -> None:
            if is_open:
                self._connection.send(api, message, lambda response: None, _TIMEOUT_MS)

        self._connection.open(opened)

    def _pick_identity(self, *, is_stale: bool) -> MemberIdentity | None:
        """Return a random observed identity. A stale one may have a wrong generation."""
        members = self._world.identities.members
        if not members:
            return None
        identity = self._rng.choice(members[-6:] if self._rng.random() < 0.5 else members)
        if is_stale and self._rng.random() < 0.5:
            generation = self._rng.choice((identity.generation - 1, identity.generation + 1, 0, -1))
            identity = msgspec.structs.replace(identity, generation=generation)
        return identity

    # Requests: each method returns True if it sent one

    def heartbeat(self) -> bool:
        """Send a Heartbeat with an observed identity."""
        identity = self._pick_identity(is_stale=True)
        if identity is not None:
            self._send(
                HEARTBEAT,
                HeartbeatRequest(
                    group_id=identity.group_id,
                    generation_id=identity.generation,
                    member_id=identity.member_id,
                    group_instance_id=identity.instance_id,
                ),
            )
        return identity is not None

    def commit_beside_transactions(self, group_id: str) -> bool:
        """Send an OffsetCommit for a partition of which transactions commit offsets, too."""
        identities = self._world.identities
        identities.last_offset += 1
        partition = OffsetCommitPartition(
            partition_index=self._rng.randrange(2),
            committed_offset=identities.last_offset,
            committed_metadata="plain",
        )
        topics = [OffsetCommitTopic(name=UNREAD_TOPIC, partitions=[partition])]
        message = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=topics,
        )
        self._send(OFFSET_COMMIT, message)
        return True

    def delete_beside_transactions(self, group_id: str) -> bool:
        """Send an OffsetDelete for a partition of which transactions commit offsets, too."""
        partition = OffsetDeletePartition(partition_index=self._rng.randrange(2))
        deleted = OffsetDeleteTopic(name=UNREAD_TOPIC, partitions=[partition])
        self._send(OFFSET_DELETE, OffsetDeleteRequest(group_id=group_id, topics=[deleted]))
        return True

    def commit(self, *, without_identity: bool = False) -> bool:
        """Send an OffsetCommit for a topic without readers, with an observed identity or none."""
        identity = self._pick_identity(is_stale=True) or MemberIdentity(GROUPS[0], "", -1, None)
        if without_identity or self._rng.random() < 0.3:
            identity = MemberIdentity(self._rng.choice((GROUPS[0], MEMBERLESS_GROUP)), "", -1, None)
        identities = self._world.identities
        partitions = []
        for index in range(self._rng.choice((1, 1, 2))):
            identities.last_offset += 1
            metadata = "m" * self._rng.choice((0, 3, 3, 5_000))
            partitions.append(
                OffsetCommitPartition(
                    partition_index=index,
                    committed_offset=identities.last_offset,
                    committed_metadata=metadata,
                )
            )
        self._send(
            OFFSET_COMMIT,
            OffsetCommitRequest(
                group_id=identity.group_id,
                generation_id_or_member_epoch=identity.generation,
                member_id=identity.member_id,
                group_instance_id=identity.instance_id,
                topics=[OffsetCommitTopic(name=UNREAD_TOPIC, partitions=partitions)],
            ),
        )
        return True

    def sync(self) -> bool:
        """Send a SyncGroup of an old generation with an invalid assignment."""
        identity = self._pick_identity(is_stale=True)
        if identity is None:
            return False
        # The generations of a deleted group start again.
        generations = [
            n.generation for n in self._world.identities.members if n.group_id == identity.group_id
        ]
        if identity.generation >= generations[-1]:
            return False
        assignments = [SyncGroupAssignment(member_id=identity.member_id, assignment=b"mine")]
        self._send(
            SYNC_GROUP,
            SyncGroupRequest(
                group_id=identity.group_id,
                generation_id=identity.generation,
                member_id=identity.member_id,
                group_instance_id=identity.instance_id,
                protocol_type="consumer",
                protocol_name="cooperative-sticky",
                assignments=assignments,
            ),
        )
        return True

    def leave(self) -> bool:
        """Send a LeaveGroup for an observed member, as administrators do."""
        identity = self._pick_identity(is_stale=False)
        if identity is not None:
            member = LeaveGroupMember(
                member_id=identity.member_id,
                group_instance_id=identity.instance_id,
                reason="removed",
            )
            self._send(
                LEAVE_GROUP,
                LeaveGroupRequest(
                    group_id=identity.group_id, member_id=identity.member_id, members=[member]
                ),
            )
        return identity is not None

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
        broker_id = self._world.coordinator_id(group_id) or 1
        self._connection = ClientConnection(
            self._world.network, _CLIENT_ID, broker_id, 0, lambda: None
        )

    def join(self) -> bool:
        """Send a JoinGroup without a following SyncGroup."""
        options = self._world.options
        metadata = encode_subscription(Subscription(topics=["t"]))
        name = self._rng.choice(("cooperative-sticky", "range", "nothing-in-common"))
        self._send(
            JOIN_GROUP,
            JoinGroupRequest(
                group_id=GROUPS[0],
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
        if self._versions_below_newest > OFFSET_FETCH.by_name_max - 2:
            return False
        group = OffsetFetchGroup(group_id=GROUPS[0], topics=None)
        self._send(
            OFFSET_FETCH, OffsetFetchRequest(group_id=GROUPS[0], topics=None, groups=[group])
        )
        return True

    def describe_or_list(self) -> bool:
        """Send DescribeGroups or ListGroups."""
        if self._rng.random() < 0.5:
            self._send(DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[*GROUPS, "nobody"]))
        else:
            self._send(LIST_GROUPS, ListGroupsRequest())
        return True

    def delete_group(self) -> bool:
        """Send DeleteGroups."""
        self._send(DELETE_GROUPS, DeleteGroupsRequest(groups_names=[GROUPS[0]]))
        return True

    def delete_offsets(self) -> bool:
        """Send an OffsetDelete for the topic without readers or for a subscribed one."""
        topic = self._rng.choice((UNREAD_TOPIC, "t"))
        deleted = OffsetDeleteTopic(
            name=topic, partitions=[OffsetDeletePartition(partition_index=0)]
        )
        self._send(OFFSET_DELETE, OffsetDeleteRequest(group_id=GROUPS[0], topics=[deleted]))
        return True

    def repeat(self) -> bool:
        """Send an observed request again over another connection."""
        requests = self._world.identities.requests
        if not requests:
            return False
        observed = self._rng.choice(requests[-10:])
        api = APIS[observed.api_key]

        def opened(is_open: bool) -> None:
            if is_open:
                body = api.encode_request(observed.version, observed.message)
                frame = encode_request_frame(api, observed.version, 1, _CLIENT_ID, body)
                self._connection.send_bytes(b"".join(frame))

        self._connection.open(opened)
        return True

    def send_garbage(self) -> bool:
        """Send random bytes, or a damaged request."""
        rng = self._rng
        data = rng.randbytes(rng.randrange(1, 80))
        requests = self._world.identities.requests
        if requests and rng.random() < 0.7:
            observed = rng.choice(requests[-10:])
            api = APIS[observed.api_key]
            body = api.encode_request(observed.version, observed.message)
            frame = bytearray(
                b"".join(encode_request_frame(api, observed.version, 1, _CLIENT_ID, body))
            )
            frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
            # A member id changed by one bit may be valid, and a commit with it would count. So only
            # Heartbeats are sent whole.
            data = (
                bytes(frame)
                if observed.api_key == HEARTBEAT.key
                else bytes(frame[: len(frame) // 2])
            )
        self._connection.open(lambda is_open: self._connection.send_bytes(data))
        return True

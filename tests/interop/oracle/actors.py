"""Group members that send only the requests that a test asks for."""

from __future__ import annotations

import itertools
import os
import time
import uuid
from typing import Any, Self

from interop.oracle.connection import Connection, NoResponseError, Pending
from partage.model.errors import ErrorCode
from partage.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from partage.wire.apis.describe_groups import DESCRIBE_GROUPS, DescribedGroup, DescribeGroupsRequest
from partage.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from partage.wire.apis.join_group import (
    JOIN_GROUP,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
)
from partage.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupMember, LeaveGroupRequest
from partage.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)
from partage.wire.apis.offset_delete import (
    OFFSET_DELETE,
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
)
from partage.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from partage.wire.apis.sync_group import (
    SYNC_GROUP,
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)
from partage.wire.consumer_protocol import Subscription, encode_subscription
from polled_conditions import PATIENCE_S, eventually

#: Sessions and rebalances that do not end during a story.
LONG_MS = 300_000

_numbers = itertools.count()

Protocols = tuple[tuple[str, bytes], ...]


def error_name(code: int) -> str:
    """Return the name of an error code, or its number if our table lacks it."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


class Stage:
    """A broker, one group on it, and all clients of that group."""

    def __init__(self, bootstrap: str, topic: str, *, patience_s: float = 1.0) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.patience_s = patience_s
        self.group = f"oracle-{os.getpid()}-{next(_numbers)}"
        self.names: dict[str, str] = {}
        self._connections: list[Connection] = []
        self.admin = self.connect("admin")
        self.range: Protocols = (("range", self.subscription(topic)),)

    def __enter__(self) -> Self:
        self._find_coordinator()
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.__exit__()

    def connect(self, client_id: str) -> Connection:
        """Return a connection that is closed with the stage."""
        connection = Connection(self.bootstrap, client_id)
        self._connections.append(connection)
        return connection

    def subscription(self, *topics: str, note: bytes = b"") -> bytes:
        """Return a consumer's subscription metadata."""
        return encode_subscription(Subscription(topics=list(topics), user_data=note), 0)

    def actor(self, name: str, **settings: Any) -> Actor:
        """Return a client that can join; ``name`` replaces its member id in the output."""
        return Actor(self, name, **settings)

    def name_of(self, member_id: str) -> str:
        """Return the name for a member id."""
        return self.names.get(member_id, "a new id" if member_id else "no id")

    def described(self, version: int = 5) -> DescribedGroup:
        """Return the group from a DescribeGroups response."""
        request = DescribeGroupsRequest(groups=[self.group])
        return self.admin.ask(DESCRIBE_GROUPS, request, version).groups[0]

    def state(self) -> str:
        """Return the group's state and its number of members."""
        described = self.described()
        return f"{described.group_state}/{len(described.members)}"

    def wait_for_state(self, state: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait until `state` returns this state: a request of another client may be in progress."""
        until = time.monotonic() + timeout_s
        while self.state() != state:
            if time.monotonic() > until:
                raise AssertionError(f"the group is {self.state()}, not {state}")
            time.sleep(0.01)

    def parked(self, pending: Pending) -> bool:
        """Return True if a request is parked; leave an available response to be read."""
        try:
            pending.peek(self.patience_s)
        except NoResponseError:
            # The broker was idle or busy for that long: another response proves that it is alive.
            self.described()
        try:
            pending.peek(0.2)
        except NoResponseError:
            return True
        return False

    def commit(
        self,
        connection: Connection,
        *,
        offset: int = 5,
        generation: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
        topic: str | None = None,
        partition: int = 0,
        metadata: str = "",
        version: int = 9,
    ) -> OffsetCommitResponse:
        """Commit the offset of one partition."""
        position = OffsetCommitPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=[OffsetCommitTopic(name=topic or self.topic, partitions=[position])],
        )
        return connection.ask(OFFSET_COMMIT, request, version)

    def delete(self) -> str:
        """Delete the group; return the error's name."""
        request = DeleteGroupsRequest(groups_names=[self.group])
        return error_name(self.admin.ask(DELETE_GROUPS, request).results[0].error_code)

    def delete_offset(self) -> str:
        """Delete the offset of partition 0; return the name of the group's or the partition's
        error.
        """
        partition = OffsetDeletePartition(partition_index=0)
        topics = [OffsetDeleteTopic(name=self.topic, partitions=[partition])]
        request = OffsetDeleteRequest(group_id=self.group, topics=topics)
        answer = self.admin.ask(OFFSET_DELETE, request)
        return error_name(answer.error_code or answer.topics[0].partitions[0].error_code)

    def offset(self) -> int:
        """Return the committed offset of partition 0, or -1."""
        topics = [OffsetFetchTopic(name=self.topic, partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[OffsetFetchGroup(group_id=self.group, topics=topics)])
        found = self.admin.ask(OFFSET_FETCH, request).groups[0]
        return found.topics[0].partitions[0].committed_offset

    def _find_coordinator(self) -> None:
        """Wait until the coordinator answers; a new broker first creates its offsets topic."""
        request = FindCoordinatorRequest(coordinator_keys=[self.group])
        ready = {ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND}

        def is_up() -> bool:
            found = self.admin.ask(FIND_COORDINATOR, request, 4).coordinators[0]
            return found.error_code == 0 and self.described().error_code in ready

        eventually(is_up, lambda: "the group's coordinator does not come up")


class Actor:
    """A client that is a member, was one, or never was.

    Before its first join, its member id is one that no broker has assigned.
    """

    def __init__(
        self,
        stage: Stage,
        name: str,
        *,
        instance_id: str | None = None,
        protocols: Protocols | None = None,
        protocol_type: str = "consumer",
        session_timeout_ms: int = LONG_MS,
        rebalance_timeout_ms: int = LONG_MS,
    ) -> None:
        self.stage = stage
        self.name = name
        self.connection = stage.connect(name)
        self.instance_id = instance_id
        self.protocols = protocols or stage.range
        self.protocol_type = protocol_type
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.member_id = f"{name}-{uuid.UUID(int=0)}"
        self.generation = 1
        stage.names[self.member_id] = name

    def ask_to_join(
        self, member_id: str | None = None, version: int = 9
    ) -> Pending[JoinGroupResponse]:
        """Send one JoinGroup request, by default with its current member id."""
        request = JoinGroupRequest(
            group_id=self.stage.group,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id if member_id is None else member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupProtocol(name=n, metadata=m) for n, m in self.protocols],
        )
        return self.connection.begin(JOIN_GROUP, request, version)

    def begin_to_join(self, version: int = 9) -> Pending[JoinGroupResponse]:
        """Get a member id from the broker if it requires one, and send a JoinGroup request."""
        if self.instance_id is None and version >= 4:
            answer = self.ask_to_join("", version).result()
            assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED, answer
            self._take_id(answer.member_id)
            return self.ask_to_join(version=version)
        return self.ask_to_join("", version)

    def joined(self, pending: Pending[JoinGroupResponse]) -> JoinGroupResponse:
        """Wait for a JoinGroup response, and store its member id and generation."""
        answer = pending.result()
        assert answer.error_code == ErrorCode.NONE, f"{self.name}: {answer}"
        self._take_id(answer.member_id)
        self.generation = answer.generation_id
        return answer

    def join(self, version: int = 9) -> JoinGroupResponse:
        """Join, and wait for the next generation."""
        return self.joined(self.begin_to_join(version))

    def begin_to_sync(
        self,
        assignments: dict[str, bytes] | None = None,
        *,
        generation: int | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        version: int = 5,
    ) -> Pending[SyncGroupResponse]:
        """Send one SyncGroup request; ``assignments`` are by member id."""
        request = SyncGroupRequest(
            group_id=self.stage.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=protocol_type or self.protocol_type,
            protocol_name=protocol_name or self.protocols[0][0],
            assignments=[
                SyncGroupAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in (assignments or {}).items()
            ],
        )
        return self.connection.begin(SYNC_GROUP, request, version)

    def heartbeat(
        self, *, generation: int | None = None, version: int = 4, instance_id: str | None = None
    ) -> str:
        """Send one heartbeat; return the error's name."""
        request = HeartbeatRequest(
            group_id=self.stage.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
            group_instance_id=instance_id or self.instance_id,
        )
        return error_name(self.connection.ask(HEARTBEAT, request, version).error_code)

    def leave(self, version: int = 5) -> str:
        """Leave the group; return the error's name."""
        if version < 3:
            request = LeaveGroupRequest(group_id=self.stage.group, member_id=self.member_id)
            return error_name(self.connection.ask(LEAVE_GROUP, request, version).error_code)
        member = LeaveGroupMember(
            member_id=self.member_id, group_instance_id=self.instance_id, reason="told to"
        )
        request = LeaveGroupRequest(group_id=self.stage.group, members=[member])
        answer = self.connection.ask(LEAVE_GROUP, request, version)
        return error_name(answer.error_code or answer.members[0].error_code)

    def commit(self, **settings: Any) -> str:
        """Commit with its member id and generation; return the error's name."""
        given = {"generation": self.generation, "member_id": self.member_id, **settings}
        answer = self.stage.commit(self.connection, instance_id=self.instance_id, **given)
        return error_name(answer.topics[0].partitions[0].error_code)

    def _take_id(self, member_id: str) -> None:
        self.member_id = member_id
        self.stage.names[member_id] = self.name

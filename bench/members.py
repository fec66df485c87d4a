"""Group members that act like clients: they join, sync, send heartbeats and rejoin.

Each member has one connection; all share one event loop. The protocol type is that of consumers,
with the two-step join (KIP-394). The leader assigns one partition to each member.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Awaitable, Callable

from bench.load import Address, Caller, call, connect, decoded, encoded, exchange
from partage.model.errors import ErrorCode
from partage.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from partage.wire.apis.find_coordinator import (
    FIND_COORDINATOR,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from partage.wire.apis.join_group import (
    JOIN_GROUP,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
)
from partage.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupMember, LeaveGroupRequest
from partage.wire.apis.offset_fetch import OFFSET_FETCH, OffsetFetchRequest, OffsetFetchResponse
from partage.wire.apis.sync_group import SYNC_GROUP, SyncGroupAssignment, SyncGroupRequest
from partage.wire.consumer_protocol import (
    Assignment,
    ConsumerTopicPartitions,
    Subscription,
    encode_assignment,
    encode_subscription,
)

TOPIC = "flights"
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 9, 5, 4, 5

_PROTOCOLS = [
    JoinGroupProtocol(name=name, metadata=encode_subscription(Subscription(topics=[TOPIC])))
    for name in ("range", "cooperative-sticky")
]
#: kfake knows no group before its first member.
_READY = frozenset({ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND})
#: In a HeartbeatResponse: correlation id, no tags, throttle time, then the error.
_HEARTBEAT_ERROR = struct.Struct(">h")
_HEARTBEAT_ERROR_AT = 9


class Group:
    """The members of one group, as the load generator sees them."""

    def __init__(
        self,
        group_id: str,
        *,
        heartbeat_interval_s: float,
        session_ms: int,
        rebalance_ms: int = 60_000,
    ) -> None:
        self.group_id = group_id
        self.heartbeat_interval_s = heartbeat_interval_s
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.members: list[Member] = []
        self.generation = -1
        self.generations = 0  # in which a member was stable
        self._stable: set[Member] = set()
        self._wanted = 0
        self._formed: asyncio.Future[float] | None = None

    def when_formed(self, size: int) -> asyncio.Future[float]:
        """Return the time at which ``size`` members have their assignment in one generation."""
        self._formed = asyncio.get_running_loop().create_future()
        self._wanted = size
        return self._formed

    def protocols(self, member: Member) -> list[JoinGroupProtocol]:
        """Return the protocols with which a member joins."""
        return _PROTOCOLS

    def assignments(self, joined: JoinGroupResponse) -> list[SyncGroupAssignment]:
        """Return the assignments of the leader; an empty list for other members."""
        return [
            SyncGroupAssignment(member_id=member.member_id, assignment=_assignment_of(number))
            for number, member in enumerate(joined.members)
        ]

    def accept(self, member: Member, protocol: str, assignment: bytes) -> bool:
        """Accept the assignment of a member; return True if the member must join again."""
        return False

    @property
    def is_complete(self) -> bool:
        """True if the wanted number of members have their assignment in this generation."""
        return len(self._stable) == self._wanted

    def mark_stable(self, member: Member) -> None:
        """Note that a member has its assignment."""
        if member.generation != self.generation:
            self.generation = member.generation
            self.generations += 1
            self._stable.clear()
        self._stable.add(member)
        if self.is_complete and self._formed and not self._formed.done():
            self._formed.set_result(time.perf_counter())

    def fail(self, error: Exception) -> None:
        """Report an unexpected response."""
        if self._formed and not self._formed.done():
            self._formed.set_exception(error)
        else:
            raise error


class Member:
    """A member; if ``heartbeat_latencies_s`` is a list, it collects the latencies of heartbeats."""

    def __init__(self, group: Group, caller: Caller) -> None:
        self.group = group
        self.caller = caller
        self.member_id = ""
        self.generation = -1
        self.heartbeat_latencies_s: list[float] | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._heartbeat_frame = b""
        self._heartbeat_sent_at = 0.0
        self._is_waiting = False
        caller.on_lost = lambda _: group.fail(ConnectionResetError("a member lost its connection"))

    def join(self) -> None:
        """Send a JoinGroup."""
        group = self.group
        request = JoinGroupRequest(
            group_id=group.group_id,
            session_timeout_ms=group.session_ms,
            rebalance_timeout_ms=group.rebalance_ms,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=group.protocols(self),
        )
        self.caller.on_response = self._on_join_response
        self._is_waiting = True
        self.caller.send(encoded(JOIN_GROUP, JOIN_VERSION, request))

    def _on_join_response(self, _: Caller, frame: bytes) -> None:
        self._is_waiting = False
        response = decoded(JOIN_GROUP, JOIN_VERSION, frame)
        match response.error_code:
            case ErrorCode.NONE:
                self.member_id = response.member_id
                self.generation = response.generation_id
                self._sync(response)
            case ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
                self.join()
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
                self.join()
            case _:
                self._fail("JoinGroup", response.error_code)

    def _sync(self, joined: JoinGroupResponse) -> None:
        request = SyncGroupRequest(
            group_id=self.group.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name=joined.protocol_name,
            assignments=self.group.assignments(joined),
        )
        self.caller.on_response = self._on_sync_response
        self._is_waiting = True
        self.caller.send(encoded(SYNC_GROUP, SYNC_VERSION, request))

    def _on_sync_response(self, _: Caller, frame: bytes) -> None:
        self._is_waiting = False
        response = decoded(SYNC_GROUP, SYNC_VERSION, frame)
        if response.error_code != ErrorCode.NONE:
            self._rejoin_after_error("SyncGroup", response.error_code)
        elif self.group.accept(self, response.protocol_name or "", bytes(response.assignment)):
            self.join()
        else:
            self._heartbeat_frame = self.heartbeat_frame()
            self.caller.on_response = self._on_heartbeat_response
            self.schedule_heartbeat(self.group.heartbeat_interval_s)
            self.group.mark_stable(self)

    def _rejoin_after_error(self, what: str, error: int) -> None:
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.member_id = ""
        elif error != ErrorCode.REBALANCE_IN_PROGRESS:
            self._fail(what, error)
            return
        self.join()

    def _fail(self, what: str, error: int) -> None:
        self.group.fail(AssertionError(f"{what} was answered {ErrorCode(error).name}"))

    # Heartbeats.

    def heartbeat_frame(self) -> bytes:
        """Return a Heartbeat request of this member."""
        request = HeartbeatRequest(
            group_id=self.group.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
        )
        return encoded(HEARTBEAT, HEARTBEAT_VERSION, request)

    def schedule_heartbeat(self, delay_s: float) -> None:
        """Send a heartbeat after ``delay_s``, and then at every interval."""
        self.stop_heartbeats()
        self._timer = self._loop.call_later(delay_s, self._send_heartbeat)

    def stop_heartbeats(self) -> None:
        """Cancel the next heartbeat."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send_heartbeat(self) -> None:
        self._timer = None
        self._heartbeat_sent_at = time.perf_counter()
        self._is_waiting = True
        self.caller.send(self._heartbeat_frame)

    def _on_heartbeat_response(self, _: Caller, frame: bytes) -> None:
        self._is_waiting = False
        (error,) = _HEARTBEAT_ERROR.unpack_from(frame, _HEARTBEAT_ERROR_AT)
        if self.heartbeat_latencies_s is not None:
            self.heartbeat_latencies_s.append(time.perf_counter() - self._heartbeat_sent_at)
        if error:
            self._rejoin_after_error("Heartbeat", error)
        else:
            self.schedule_heartbeat(self.group.heartbeat_interval_s)

    # Leaving.

    def leave(self) -> asyncio.Future[None]:
        """Send a LeaveGroup and close; done when the response arrives."""
        self.stop_heartbeats()
        request = LeaveGroupRequest(
            group_id=self.group.group_id, members=[LeaveGroupMember(member_id=self.member_id)]
        )
        left = self._loop.create_future()

        def on_response(caller: Caller, _: bytes) -> None:
            if self._is_waiting:  # an earlier request is answered first
                self._is_waiting = False
                return
            caller.close()
            left.set_result(None)

        self.caller.on_response = on_response
        self.caller.send(encoded(LEAVE_GROUP, LEAVE_VERSION, request))
        return left

    def crash(self) -> None:
        """Close the connection without a LeaveGroup."""
        self.stop_heartbeats()
        self.caller.close()


def _assignment_of(number: int) -> bytes:
    return encode_assignment(
        Assignment(assigned_partitions=[ConsumerTopicPartitions(topic=TOPIC, partitions=[number])])
    )


async def wait_for_coordinator(address: Address, group_id: str) -> None:
    """Wait until the group's coordinator is available and has loaded the group."""
    (caller,) = await connect(address, 1)
    find = FindCoordinatorRequest(key=group_id)
    await retry_until_ok(lambda: call(caller, FIND_COORDINATOR, 2, find))
    fetch = OffsetFetchRequest(group_id=group_id, topics=[])
    await retry_until_ok(lambda: call(caller, OFFSET_FETCH, 7, fetch))
    caller.close()


async def retry_until_ok(
    send: Callable[[], Awaitable[FindCoordinatorResponse | OffsetFetchResponse]],
    pause_s: float = 0.05,
) -> None:
    """Send a request repeatedly until the response has no error, except that of a new group."""
    while True:
        if (await send()).error_code in _READY:
            return
        await asyncio.sleep(pause_s)


async def connect_group(
    address: Address,
    group_id: str,
    size: int,
    *,
    heartbeat_interval_s: float,
    session_ms: int = 60_000,
) -> Group:
    """Return a group whose members are connected and have not joined.

    As clients do, each asks for the versions first. Without that, the broker may accept the last
    connections only after the other members have formed the group, which then forms twice.
    """
    await wait_for_coordinator(address, group_id)
    group = Group(group_id, heartbeat_interval_s=heartbeat_interval_s, session_ms=session_ms)
    callers = await connect(address, size)
    versions = encoded(API_VERSIONS, 0, ApiVersionsRequest())
    await asyncio.gather(*(exchange(caller, versions) for caller in callers))
    group.members = [Member(group, caller) for caller in callers]
    return group


async def form(group: Group) -> float:
    """Let all members join; return the seconds until all are stable in one generation."""
    forming = group.when_formed(len(group.members))
    begin = time.perf_counter()
    for member in group.members:
        member.join()
    return await forming - begin


async def leave_all(group: Group) -> None:
    """Let all members leave, and wait until they have left."""
    group.when_formed(-1)
    await asyncio.gather(*(member.leave() for member in group.members))

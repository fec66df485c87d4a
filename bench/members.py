"""Members of groups as clients are: they join, sync, beat, and join again when they are told.

One connection a member, one loop for all. The protocol is the consumer's, with the two-step join;
what a leader assigns is one partition a member.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Awaitable, Callable

from bench.load import Address, Caller, call, connect, decoded, encoded
from partage.model.errors import ErrorCode
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
#: In a Heartbeat's response: correlation id, no tags, throttle time, then the error.
_BEAT_ERROR = struct.Struct(">h")
_BEAT_ERROR_AT = 9


class Group:
    """Members of one group, seen from outside."""

    def __init__(
        self, group_id: str, *, beat_s: float, session_ms: int, rebalance_ms: int = 60_000
    ) -> None:
        self.group_id = group_id
        self.beat_s = beat_s
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.members: list[Member] = []
        self.generation = -1
        self.generations = 0  # that anybody was stable in
        self._stable: set[Member] = set()
        self._wanted = 0
        self._formed: asyncio.Future[float] | None = None

    def forms(self, size: int) -> asyncio.Future[float]:
        """The time at which ``size`` members have their assignment in one generation, from now."""
        self._formed = asyncio.get_running_loop().create_future()
        self._wanted = size
        return self._formed

    def is_stable(self, member: Member) -> None:
        """A member has its assignment."""
        if member.generation != self.generation:
            self.generation = member.generation
            self.generations += 1
            self._stable.clear()
        self._stable.add(member)
        if len(self._stable) == self._wanted and self._formed and not self._formed.done():
            self._formed.set_result(time.perf_counter())

    def failed(self, error: Exception) -> None:
        """A member met what it should not."""
        if self._formed and not self._formed.done():
            self._formed.set_exception(error)
        else:
            raise error


class Member:
    """One member; ``beats_s``, if there, gathers how long Heartbeats took."""

    def __init__(self, group: Group, caller: Caller) -> None:
        self.group = group
        self.caller = caller
        self.member_id = ""
        self.generation = -1
        self.beats_s: list[float] | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._beat_frame = b""
        self._beat_at = 0.0
        self._is_asking = False
        caller.lost = lambda _: group.failed(ConnectionResetError("a member lost its connection"))

    def join(self) -> None:
        """Join, or join again."""
        group = self.group
        request = JoinGroupRequest(
            group_id=group.group_id,
            session_timeout_ms=group.session_ms,
            rebalance_timeout_ms=group.rebalance_ms,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=_PROTOCOLS,
        )
        self.caller.answered = self._joined
        self._is_asking = True
        self.caller.ask(encoded(JOIN_GROUP, JOIN_VERSION, request))

    def _joined(self, _: Caller, frame: bytes) -> None:
        self._is_asking = False
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
            assignments=[
                SyncGroupAssignment(member_id=member.member_id, assignment=_share(number))
                for number, member in enumerate(joined.members)
            ],
        )
        self.caller.answered = self._synced
        self._is_asking = True
        self.caller.ask(encoded(SYNC_GROUP, SYNC_VERSION, request))

    def _synced(self, _: Caller, frame: bytes) -> None:
        self._is_asking = False
        error = decoded(SYNC_GROUP, SYNC_VERSION, frame).error_code
        if error == ErrorCode.NONE:
            self._beat_frame = self.beat_frame()
            self.caller.answered = self._beaten
            self.beat_later(self.group.beat_s)
            self.group.is_stable(self)
        else:
            self._again("SyncGroup", error)

    def _again(self, what: str, error: int) -> None:
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.member_id = ""
        elif error != ErrorCode.REBALANCE_IN_PROGRESS:
            self._fail(what, error)
            return
        self.join()

    def _fail(self, what: str, error: int) -> None:
        self.group.failed(AssertionError(f"{what} was answered {ErrorCode(error).name}"))

    # Heartbeats.

    def beat_frame(self) -> bytes:
        """A Heartbeat of this member."""
        request = HeartbeatRequest(
            group_id=self.group.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
        )
        return encoded(HEARTBEAT, HEARTBEAT_VERSION, request)

    def beat_later(self, delay_s: float) -> None:
        """Beat after a while, and from then on every interval."""
        self.hold()
        self._timer = self._loop.call_later(delay_s, self._beat)

    def hold(self) -> None:
        """Beat no more until told."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _beat(self) -> None:
        self._timer = None
        self._beat_at = time.perf_counter()
        self._is_asking = True
        self.caller.ask(self._beat_frame)

    def _beaten(self, _: Caller, frame: bytes) -> None:
        self._is_asking = False
        (error,) = _BEAT_ERROR.unpack_from(frame, _BEAT_ERROR_AT)
        if self.beats_s is not None:
            self.beats_s.append(time.perf_counter() - self._beat_at)
        if error:
            self._again("Heartbeat", error)
        else:
            self.beat_later(self.group.beat_s)

    # Leaving.

    def leave(self) -> asyncio.Future[None]:
        """Leave, and close; done when the broker knows."""
        self.hold()
        request = LeaveGroupRequest(
            group_id=self.group.group_id, members=[LeaveGroupMember(member_id=self.member_id)]
        )
        left = self._loop.create_future()

        def answered(caller: Caller, _: bytes) -> None:
            if self._is_asking:  # what was asked before is answered before
                self._is_asking = False
                return
            caller.close()
            left.set_result(None)

        self.caller.answered = answered
        self.caller.ask(encoded(LEAVE_GROUP, LEAVE_VERSION, request))
        return left

    def crash(self) -> None:
        """Be gone without a word."""
        self.hold()
        self.caller.close()


def _share(number: int) -> bytes:
    return encode_assignment(
        Assignment(assigned_partitions=[ConsumerTopicPartitions(topic=TOPIC, partitions=[number])])
    )


async def coordinated(address: Address, group_id: str) -> None:
    """Return once the group's coordinator is there and has loaded."""
    (caller,) = await connect(address, 1)
    find = FindCoordinatorRequest(key=group_id)
    await until_no_error(lambda: call(caller, FIND_COORDINATOR, 2, find))
    fetch = OffsetFetchRequest(group_id=group_id, topics=[])
    await until_no_error(lambda: call(caller, OFFSET_FETCH, 7, fetch))
    caller.close()


async def until_no_error(
    ask: Callable[[], Awaitable[FindCoordinatorResponse | OffsetFetchResponse]],
    pause_s: float = 0.05,
) -> None:
    """Ask again and again until the answer is no error."""
    while True:
        if not (await ask()).error_code:
            return
        await asyncio.sleep(pause_s)


async def group_of(
    address: Address, group_id: str, size: int, *, beat_s: float, session_ms: int = 60_000
) -> Group:
    """A group with its members connected, none of which has joined."""
    await coordinated(address, group_id)
    group = Group(group_id, beat_s=beat_s, session_ms=session_ms)
    group.members = [Member(group, caller) for caller in await connect(address, size)]
    return group


async def form(group: Group) -> float:
    """Let all members join; seconds from the first Join until all are stable together."""
    forming = group.forms(len(group.members))
    begin = time.perf_counter()
    for member in group.members:
        member.join()
    return await forming - begin


async def dismiss(group: Group) -> None:
    """Have all members leave, and wait until they are gone."""
    group.forms(-1)
    await asyncio.gather(*(member.leave() for member in group.members))

"""Clients that send arbitrary requests, or behave as a client should.

An `Actor` remembers, for each group, every member id and generation that it received. So it can use
current ids, stale ones, or those of another actor. `Actor.next_request` is the next request of a
well-behaved client.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from partage.coordinator.events import (
    Commit,
    Heartbeat,
    Join,
    Leave,
    LeavingMember,
    OffsetToCommit,
    Protocol,
    Sync,
)
from partage.coordinator.replies import HeartbeatReply, JoinReply, Reply, SyncReply
from partage.model.errors import ErrorCode

from .harness import Harness
from .trace import Request

HEARTBEAT_MS = 3_000
BACKOFF_MS = 1_000

#: The errors after which a client must join again.
REJOIN = {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.MEMBER_ID_REQUIRED,
}


@dataclass
class GroupView:
    """An actor's knowledge of one group."""

    member_ids: list[str] = field(default_factory=list)  # received so far; the last one is current
    generations: list[int] = field(default_factory=list)
    others: tuple[str, ...] = ()  # members, as sent to the leader
    member_id: str = ""
    stage: str = "join"  # next step: join, sync, beat
    owed: Request | None = None  # request without a reply yet
    next_ms: int = 0

    @property
    def generation(self) -> int:
        """The last generation that it received."""
        return self.generations[-1] if self.generations else -1


@dataclass
class Actor:
    """A client, which can be in several groups."""

    name: str
    instance_id: str | None
    session_ms: int
    rebalance_ms: int
    must_rejoin: bool
    may_skip: bool
    protocols: tuple[Protocol, ...] = (Protocol("range", b"t"),)
    seats: dict[str, GroupView] = field(default_factory=dict)
    ids: int = 0

    def seat(self, group_id: str) -> GroupView:
        """Return its knowledge of a group."""
        return self.seats.setdefault(group_id, GroupView())

    # Requests.

    def join(self, harness: Harness, group_id: str, member_id: str) -> Join:
        """Return a JoinGroup with any member id."""
        self.ids += 1
        return Join(
            at_ms=harness.now_ms,
            reply_to=harness.ticket(),
            group_id=group_id,
            member_id=member_id,
            generated_member_id=f"{self.name}-{self.ids}",
            instance_id=self.instance_id,
            client_id=self.name,
            client_host="/127.0.0.1",
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            protocol_type="consumer",
            protocols=self.protocols,
            must_rejoin_with_id=self.must_rejoin,
            may_skip_assignment=self.may_skip,
        )

    def sync(
        self,
        harness: Harness,
        group_id: str,
        member_id: str,
        generation: int,
        error: str | None = None,
    ) -> Sync:
        """Return a SyncGroup; an actor that received the members assigns, differently each time."""
        self.ids += 1
        shares = {
            other: f"{self.ids}.{position}".encode()
            for position, other in enumerate(self.seat(group_id).others)
        }
        return Sync(
            at_ms=harness.now_ms,
            reply_to=harness.ticket(),
            group_id=group_id,
            generation=generation,
            member_id=member_id,
            instance_id=self.instance_id,
            assignments=shares,
            assignment_error=error,
        )

    def heartbeat(
        self, harness: Harness, group_id: str, member_id: str, generation: int
    ) -> Heartbeat:
        """Return a Heartbeat."""
        return Heartbeat(
            at_ms=harness.now_ms,
            reply_to=harness.ticket(),
            group_id=group_id,
            generation=generation,
            member_id=member_id,
            instance_id=self.instance_id,
        )

    def leave(self, harness: Harness, group_id: str, member_ids: tuple[str, ...]) -> Leave:
        """Return a LeaveGroup for one or several members."""
        return Leave(
            at_ms=harness.now_ms,
            reply_to=harness.ticket(),
            group_id=group_id,
            members=tuple(
                LeavingMember(member_id=m, instance_id=self.instance_id) for m in member_ids
            ),
        )

    def commit(
        self,
        harness: Harness,
        group_id: str,
        member_id: str,
        generation: int,
        offsets: tuple[OffsetToCommit, ...],
    ) -> Commit:
        """Return an OffsetCommit."""
        return Commit(
            at_ms=harness.now_ms,
            reply_to=harness.ticket(),
            group_id=group_id,
            generation=generation,
            member_id=member_id,
            instance_id=self.instance_id if member_id else None,
            offsets=offsets,
        )

    # A well-behaved client.

    def next_request(self, harness: Harness, group_id: str) -> Request:
        """Return the next request of a well-behaved client, which then waits for the reply."""
        seat = self.seat(group_id)
        if seat.stage == "sync":
            asked: Request = self.sync(harness, group_id, seat.member_id, seat.generation)
        elif seat.stage == "beat":
            asked = self.heartbeat(harness, group_id, seat.member_id, seat.generation)
        else:
            asked = self.join(harness, group_id, seat.member_id)
        seat.owed = asked
        return asked

    def hear(self, asked: Request, reply: Reply, now_ms: int) -> None:
        """Remember the reply, and the next step if the actor waited for it."""
        seat = self.seat(asked.group_id)  # type: ignore[union-attr]  # actors list no groups
        if isinstance(reply, JoinReply):
            self._remember(seat, reply)
        if asked is not seat.owed:
            return
        seat.owed = None
        seat.next_ms = now_ms
        assert isinstance(reply, JoinReply | SyncReply | HeartbeatReply)
        if reply.error is ErrorCode.NONE:
            seat.stage = "sync" if isinstance(reply, JoinReply) else "beat"
            if not isinstance(reply, JoinReply):
                seat.next_ms = now_ms + HEARTBEAT_MS
        elif reply.error in REJOIN:
            seat.stage = "join"
            if reply.error is ErrorCode.UNKNOWN_MEMBER_ID:
                seat.member_id = ""
        else:
            seat.next_ms = now_ms + BACKOFF_MS
            if reply.error in (ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.FENCED_INSTANCE_ID):
                seat.stage, seat.member_id = "join", ""

    def _remember(self, seat: GroupView, reply: JoinReply) -> None:
        if reply.error is ErrorCode.NONE:
            seat.generations.append(reply.generation)
            seat.others = tuple(m.member_id for m in reply.members)
            if reply.skip_assignment:
                seat.others = ()
        if reply.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            seat.member_ids.append(reply.member_id)
            seat.member_id = reply.member_id

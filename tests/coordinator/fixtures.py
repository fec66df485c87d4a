"""A group in a given state, and one request to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec

from partage.coordinator.events import (
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    OffsetToCommit,
    Protocol,
    TransactionalCommit,
)
from partage.coordinator.replies import Reply
from partage.coordinator.response_table import RequestCase
from partage.coordinator.states import GroupState
from partage.model.settings import GroupSettings

from .actors import Actor
from .harness import Harness
from .trace import Request

SESSION_MS = 10_000
REBALANCE_MS = 30_000
INITIAL_DELAY_MS = 3_000


def actor(name: str) -> Actor:
    return Actor(name, None, SESSION_MS, REBALANCE_MS, must_rejoin=False, may_skip=True)


class GroupFixture:
    """A group in some state, with leader a, follower b and pending member p.

    It has committed offset 5 of t-0, which its members subscribe to, and of u-0, to which no member
    subscribes.
    """

    def __init__(
        self,
        column: GroupState | None,
        type: str = "consumer",
        settings: GroupSettings | None = None,
    ) -> None:
        self.harness = Harness(settings)
        self.type = type
        self.a, self.b, self.c, self.p = (actor(name) for name in "abcp")
        self.p = replace(self.p, must_rejoin=True)
        self.column = column
        ARRANGE[column](self)
        self.harness.tick(1_000)
        self.harness.trace.clear()
        self.armed = dict(self.harness.driver.timers.armed)
        self.logged = len(self.harness.log.durable)
        assert self.state is column

    @property
    def state(self) -> GroupState | None:
        """The group's state; None if there is no group."""
        group = self.harness.shard.groups.get("g")
        return None if group is None else group.state

    def ask(self, who: Actor, event: Request) -> Reply | None:
        """Send an actor's request and pass it the reply."""
        reply = self.harness.answer_to(event)
        if reply is not None:
            who.hear(event, reply, self.harness.now_ms)
        return reply

    def join(self, *joining: Actor) -> None:
        """Let all actors join, and receive the generation if one starts."""
        events = [join_as(self, who, who.seat("g").member_id) for who in joining]
        before = len(self.harness.trace)
        for event in events:
            self.harness.handle(event)
        if self.state is GroupState.PREPARING_REBALANCE:
            self.harness.tick(2 * INITIAL_DELAY_MS)
        for entry in self.harness.trace[before:]:
            for who, event in zip(joining, events, strict=True):
                if getattr(entry, "asked", None) is event and hasattr(entry, "reply"):
                    who.hear(event, entry.reply, self.harness.now_ms)

    def sync(self, *syncing: Actor) -> None:
        for who in syncing:
            self.ask(who, self.sync_of(who))

    def sync_of(self, who: Actor) -> Request:
        return who.sync(self.harness, "g", self.id_of(who), self.generation)

    def id_of(self, who: Actor) -> str:
        """Return an actor's member id, or a plausible one."""
        return who.seat("g").member_id or f"{who.name}-0"

    @property
    def generation(self) -> int:
        """The generation that the members know."""
        return max(self.a.seat("g").generation, 1)

    def written(self) -> list[object]:
        """Return the records stored since the setup."""
        return list(self.harness.log.durable[self.logged :])

    def words(self) -> dict[str, object]:
        """Return the fields that every request has."""
        harness = self.harness
        return {"at_ms": harness.now_ms, "reply_to": harness.ticket(), "group_id": "g"}


# States.


def arrange_nothing(stage: GroupFixture) -> None:
    pass


def arrange_completing(stage: GroupFixture) -> None:
    offsets = tuple(OffsetToCommit(topic=t, partition=0, offset=5) for t in "tu")
    stage.ask(stage.a, stage.a.commit(stage.harness, "g", "", -1, offsets))
    stage.join(stage.a, stage.b)
    stage.ask(stage.p, join_as(stage, stage.p, ""))


def arrange_stable(stage: GroupFixture) -> None:
    arrange_completing(stage)
    stage.sync(stage.a, stage.b)


def arrange_preparing(stage: GroupFixture) -> None:
    arrange_stable(stage)
    stage.ask(stage.c, join_as(stage, stage.c, ""))


def arrange_empty(stage: GroupFixture) -> None:
    arrange_stable(stage)
    ids = (stage.id_of(stage.a), stage.id_of(stage.b))
    stage.ask(stage.a, stage.a.leave(stage.harness, "g", ids))
    stage.harness.tick(0)  # only the pending member is waited for, and not for long


ARRANGE: dict[GroupState | None, Callable[[GroupFixture], None]] = {
    None: arrange_nothing,
    GroupState.EMPTY: arrange_empty,
    GroupState.PREPARING_REBALANCE: arrange_preparing,
    GroupState.COMPLETING_REBALANCE: arrange_completing,
    GroupState.STABLE: arrange_stable,
}

# Requests.


def join_as(stage: GroupFixture, who: Actor, member_id: str) -> Request:
    event = who.join(stage.harness, "g", member_id)
    return msgspec.structs.replace(event, protocol_type=stage.type)


def changed(who: Actor) -> Actor:
    return replace(who, protocols=(Protocol("range", b"t,u"),))


def commit_in_transaction(stage: GroupFixture, member_id: str, generation: int) -> Request:
    return TransactionalCommit(
        **stage.words(),
        producer_id=7,
        producer_epoch=0,
        member_id=member_id,
        generation=generation,
        offsets=(OffsetToCommit(topic="t", partition=0, offset=6),),
    )


def commit_as(stage: GroupFixture, who: Actor, member_id: str, generation: int) -> Request:
    offset = OffsetToCommit(topic="t", partition=0, offset=6)
    return who.commit(stage.harness, "g", member_id, generation, (offset,))


ASK: dict[RequestCase, Callable[[GroupFixture], Request]] = {
    RequestCase.JOIN_NEW: lambda s: join_as(s, actor("n"), ""),
    RequestCase.JOIN_PENDING: lambda s: join_as(s, s.p, s.id_of(s.p)),
    RequestCase.JOIN_LEADER: lambda s: join_as(s, s.a, s.id_of(s.a)),
    RequestCase.JOIN_CHANGED: lambda s: join_as(s, changed(s.b), s.id_of(s.b)),
    RequestCase.JOIN_UNCHANGED: lambda s: join_as(s, s.b, s.id_of(s.b)),
    RequestCase.SYNC_LEADER: lambda s: s.sync_of(s.a),
    RequestCase.SYNC_FOLLOWER: lambda s: s.sync_of(s.b),
    RequestCase.HEARTBEAT: lambda s: s.b.heartbeat(s.harness, "g", s.id_of(s.b), s.generation),
    RequestCase.LEAVE: lambda s: s.b.leave(s.harness, "g", (s.id_of(s.b),)),
    RequestCase.COMMIT_MEMBER: lambda s: commit_as(s, s.b, s.id_of(s.b), s.generation),
    RequestCase.COMMIT_SIMPLE: lambda s: commit_as(s, s.b, "", -1),
    RequestCase.TXN_COMMIT_MEMBER: lambda s: commit_in_transaction(s, s.id_of(s.b), s.generation),
    RequestCase.TXN_COMMIT_SIMPLE: lambda s: commit_in_transaction(s, "", -1),
    RequestCase.FETCH: lambda s: FetchOffsets(**s.words(), partitions=(("t", 0), ("t", 9))),
    RequestCase.DESCRIBE: lambda s: DescribeGroup(**s.words()),
    RequestCase.DELETE: lambda s: DeleteGroup(**s.words()),
    RequestCase.DELETE_OFFSETS: lambda s: DeleteOffsets(
        **s.words(), partitions=(("t", 0), ("u", 0))
    ),
}


def variant(
    row: RequestCase, column: GroupState | None, **changes: object
) -> tuple[GroupFixture, Reply | None]:
    """Repeat the case with a client of other capabilities."""
    stage = GroupFixture(column)
    event = msgspec.structs.replace(ASK[row](stage), **changes)
    return stage, stage.harness.answer_to(event)

"""A random sequence of requests and failures leaves the coordinator in a correct state.

``PARTAGE_PROPERTIES=long`` runs many more examples. Add a scenario for each failure found.
"""

from __future__ import annotations

import os

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from partage.coordinator.events import (
    CompleteTransaction,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    Join,
    Leave,
    LeavingMember,
    ListGroups,
    OffsetToCommit,
    Protocol,
    Sync,
    TopicsDeleted,
    TransactionalCommit,
)
from partage.coordinator.states import GroupState
from partage.coordinator.timers import ExpiryTimer
from partage.model.settings import GroupSettings

from .actors import HEARTBEAT_MS, Actor
from .checker import Checker
from .harness import Harness
from .trace import ReplyLost, ReplySent, Request

GROUPS = ("g", "h")
SETTINGS = GroupSettings(
    members_max=4,
    new_member_join_timeout_ms=8_000,
    offset_metadata_bytes_max=4,
    offsets_retention_ms=100_000,
    offsets_retention_check_interval_ms=40_000,
)
SESSION_MS = 12_000  # the longest of all actors
REBALANCE_MS = 20_000  # the same
#: A join phase lasts at most as long as its slowest member may take. A member that stopped may then
#: block for one session timeout, after which all join once more.
STABLE_WITHIN_MS = REBALANCE_MS + SESSION_MS + 2 * HEARTBEAT_MS


def cast() -> list[Actor]:
    """Return dynamic and static clients, old and new ones; two share an instance id."""
    return [
        Actor("a", None, 6_000, 10_000, must_rejoin=True, may_skip=True),
        Actor("b", None, SESSION_MS, REBALANCE_MS, must_rejoin=False, may_skip=False),
        Actor("c", None, 10_000, 5_000, must_rejoin=True, may_skip=False),
        Actor("d", "i", 8_000, 10_000, must_rejoin=True, may_skip=True),
        Actor("e", "i", SESSION_MS, 10_000, must_rejoin=False, may_skip=False),
        Actor("f", "j", 10_000, REBALANCE_MS, must_rejoin=True, may_skip=True),
    ]


LISTS = (
    ("range", "roundrobin"),
    ("roundrobin", "range"),
    ("range", "roundrobin"),
    ("roundrobin",),
    ("sticky",),
)
EVERYTHING = ("range", "roundrobin", "sticky")

actors = st.integers(0, 5)
speakers = st.integers(0, 14)  # the last ones only of clients that believe to be members
groups = st.sampled_from(("g", "g", "g", "h"))
#: Usually the right id or generation; sometimes an old one, an unknown one, or another client's.
whose = st.sampled_from(("right",) * 8 + ("stale", "none", "other", "strange"))
#: The member id and generation of a request.
claims = st.sampled_from(
    (
        *(("right", "right"),) * 6,
        *(("right", which) for which in ("stale", "none", "other", "strange")),
        *((whose_id, "right") for whose_id in ("stale", "none", "other", "strange")),
        ("none", "none"),
    )
)
alive = st.sets(actors, min_size=2, max_size=4)
partitions = st.tuples(st.sampled_from(("t", "u")), st.integers(0, 1))
offsets = st.builds(
    lambda at, offset, metadata: OffsetToCommit(
        topic=at[0], partition=at[1], offset=offset, metadata=metadata
    ),
    partitions,
    st.integers(0, 9),
    st.sampled_from(("", "m", "too long")),
)

producers = st.integers(1, 2)
commits = st.lists(offsets, min_size=1, max_size=3, unique_by=lambda o: (o.topic, o.partition))


class CoordinatorMachine(RuleBasedStateMachine):
    """Two groups, six clients, one log, one clock."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = Harness(SETTINGS)
        self.checker = Checker(SETTINGS.members_max)
        self.actors = cast()
        self.askers: dict[object, Actor] = {}

    def ask(self, actor: Actor, event: Request) -> None:
        self.askers[event.reply_to] = actor
        self.harness.handle(event)
        self.hear()

    def hear(self) -> None:
        trace = self.harness.trace
        self.checker.feed(trace)
        for entry in trace:
            if isinstance(entry, ReplySent) and entry.asked.reply_to in self.askers:
                actor = self.askers.pop(entry.asked.reply_to)
                actor.hear(entry.asked, entry.reply, self.harness.now_ms)
            elif isinstance(entry, ReplyLost) and entry.asked.reply_to in self.askers:
                actor = self.askers.pop(entry.asked.reply_to)
                for seat in actor.seats.values():
                    if seat.owed is entry.asked:
                        seat.owed = None
        trace.clear()

    def speaker(self, who: int, group_id: str) -> Actor:
        if who < len(self.actors):
            return self.actors[who]
        seated = [actor for actor in self.actors if actor.seat(group_id).stage != "join"]
        return (seated or self.actors)[who % len(seated or self.actors)]

    def member_id(self, actor: Actor, group_id: str, who: str) -> str:
        seat = actor.seat(group_id)
        match who:
            case "right":
                return seat.member_id
            case "stale":
                return seat.member_ids[0] if seat.member_ids else ""
            case "other":
                ids = [i for a in self.actors for i in a.seat(group_id).member_ids[-1:]]
                return ids[0] if ids else ""
            case "strange":
                return "nobody"
        return ""

    def generation(self, actor: Actor, group_id: str, which: str) -> int:
        seat = actor.seat(group_id)
        match which:
            case "right":
                return seat.generation
            case "stale":
                return seat.generations[0] if seat.generations else 0
            case "other":
                return max(a.seat(group_id).generation for a in self.actors)
            case "strange":
                return seat.generation + 1
        return -1

    # Requests of clients.

    @rule(who=actors, group_id=groups)
    def comply(self, who: int, group_id: str) -> None:
        actor = self.actors[who]
        self.ask(actor, actor.next_request(self.harness, group_id))

    @initialize(some=alive, rounds=st.integers(0, 8))
    def begin(self, some: set[int], rounds: int) -> None:
        self.settle_down("g", some, rounds)

    @rule(group_id=groups, some=alive, rounds=st.integers(1, 8))
    def settle_down(self, group_id: str, some: set[int], rounds: int) -> None:
        """Let some clients behave well for a while, so that there are generations to disturb."""
        self.heal()
        for who in some:
            self.actors[who].protocols = tuple(
                Protocol(name, b"t", who % 3 - 1) for name in EVERYTHING
            )
        for _ in range(rounds):
            for who in sorted(some):
                actor = self.actors[who]
                if actor.seat(group_id).owed is None:
                    self.ask(actor, actor.next_request(self.harness, group_id))
            self.harness.tick(2_000)
            self.hear()

    @rule(some=alive)
    def settle(self, some: set[int]) -> None:
        """Run long enough for a stable group, as a rule."""
        self.settle_down("g", some, 8)

    @rule(
        who=actors,
        group_id=groups,
        whose_id=whose,
        names=st.sampled_from(LISTS),
        metadata=st.sampled_from((b"t", b"t,u", b"?")),
        version=st.sampled_from((-1, -1, 0, 1)),
    )
    def join(
        self,
        who: int,
        group_id: str,
        whose_id: str,
        names: tuple[str, ...],
        metadata: bytes,
        version: int,
    ) -> None:
        actor = self.actors[who]
        actor.protocols = tuple(Protocol(name, metadata, version) for name in names)
        member_id = self.member_id(actor, group_id, whose_id)
        self.ask(actor, actor.join(self.harness, group_id, member_id))

    @rule(
        who=speakers,
        group_id=groups,
        claim=claims,
        error=st.sampled_from((None, None, None, None, "why")),
    )
    def sync(self, who: int, group_id: str, claim: tuple[str, str], error: str | None) -> None:
        actor = self.speaker(who, group_id)
        member_id = self.member_id(actor, group_id, claim[0])
        generation = self.generation(actor, group_id, claim[1])
        self.ask(actor, actor.sync(self.harness, group_id, member_id, generation, error))

    @rule(who=speakers, group_id=groups, claim=claims)
    def heartbeat(self, who: int, group_id: str, claim: tuple[str, str]) -> None:
        actor = self.speaker(who, group_id)
        member_id = self.member_id(actor, group_id, claim[0])
        generation = self.generation(actor, group_id, claim[1])
        self.ask(actor, actor.heartbeat(self.harness, group_id, member_id, generation))

    @precondition(lambda self: self.harness.owed)
    @rule(which=st.integers(0, 20), beat=st.booleans())
    def ask_again(self, which: int, beat: bool) -> None:
        """Repeat a parked request on another connection, or send a heartbeat there."""
        owed = list(self.harness.owed.values())
        asked = owed[which % len(owed)]
        actor = self.askers.get(asked.reply_to)
        if actor is None:
            return
        if beat and isinstance(asked, Join | Sync):
            seat = actor.seat(asked.group_id)
            member_id = asked.member_id or seat.member_id
            generation = seat.generation
            self.ask(actor, actor.heartbeat(self.harness, asked.group_id, member_id, generation))
        elif isinstance(asked, Join):
            self.ask(actor, actor.join(self.harness, asked.group_id, asked.member_id))
        else:
            now_ms, ticket = self.harness.now_ms, self.harness.ticket()
            self.ask(actor, msgspec.structs.replace(asked, at_ms=now_ms, reply_to=ticket))

    @rule(who=speakers, group_id=groups, whose_ids=st.lists(whose, min_size=1, max_size=2))
    def leave(self, who: int, group_id: str, whose_ids: list[str]) -> None:
        actor = self.speaker(who, group_id)
        ids = tuple(self.member_id(actor, group_id, whose_id) for whose_id in whose_ids)
        self.ask(actor, actor.leave(self.harness, group_id, ids))

    @rule(group_id=groups, some=st.sets(actors, min_size=1))
    def leave_together(self, group_id: str, some: set[int]) -> None:
        """Remove members by their current or future ids."""
        going = [self.actors[who] for who in sorted(some)]
        self.let_go(
            group_id,
            [
                LeavingMember(
                    member_id=actor.seat(group_id).member_id, instance_id=actor.instance_id
                )
                for actor in going
            ],
        )

    @rule(
        who=speakers,
        group_id=groups,
        claim=claims,
        wanted=st.lists(
            offsets, min_size=1, max_size=3, unique_by=lambda o: (o.topic, o.partition)
        ),
    )
    def commit(
        self, who: int, group_id: str, claim: tuple[str, str], wanted: list[OffsetToCommit]
    ) -> None:
        actor = self.speaker(who, group_id)
        member_id = self.member_id(actor, group_id, claim[0])
        generation = self.generation(actor, group_id, claim[1])
        event = actor.commit(self.harness, group_id, member_id, generation, tuple(wanted))
        self.ask(actor, event)

    @rule(who=actors, group_id=groups, wanted=commits)
    def commit_from_outside(self, who: int, group_id: str, wanted: list[OffsetToCommit]) -> None:
        actor = self.actors[who]
        self.ask(actor, actor.commit(self.harness, group_id, "", -1, tuple(wanted)))

    # Requests of producers. The transaction coordinator has checked them.

    @rule(who=speakers, group_id=groups, claim=claims, producer_id=producers, wanted=commits)
    def commit_in_transaction(
        self,
        who: int,
        group_id: str,
        claim: tuple[str, str],
        producer_id: int,
        wanted: list[OffsetToCommit],
    ) -> None:
        actor = self.speaker(who, group_id)
        self.harness.handle(
            TransactionalCommit(
                at_ms=self.harness.now_ms,
                reply_to=self.harness.ticket(),
                group_id=group_id,
                producer_id=producer_id,
                producer_epoch=0,
                generation=self.generation(actor, group_id, claim[1]),
                member_id=self.member_id(actor, group_id, claim[0]),
                offsets=tuple(wanted),
            )
        )
        self.hear()

    @rule(producer_id=producers, is_commit=st.booleans())
    def complete_transaction(self, producer_id: int, is_commit: bool) -> None:
        self.end(producer_id, is_commit=is_commit)

    def end(self, producer_id: int, *, is_commit: bool) -> None:
        self.harness.handle(
            CompleteTransaction(
                at_ms=self.harness.now_ms,
                reply_to=self.harness.ticket(),
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
                is_commit=is_commit,
            )
        )
        self.hear()

    # Requests of administrators.

    @rule(
        what=st.sampled_from((DescribeGroup, ListGroups, DeleteGroup, FetchOffsets, FetchOffsets)),
        group_id=groups,
        wanted=st.none() | st.lists(partitions, max_size=3),
        stable=st.booleans(),
    )
    def administrate(
        self,
        what: type[Request],
        group_id: str,
        wanted: list[tuple[str, int]] | None,
        stable: bool,
    ) -> None:
        words: dict[str, object] = {
            "at_ms": self.harness.now_ms,
            "reply_to": self.harness.ticket(),
        }
        if what is not ListGroups:
            words["group_id"] = group_id
        if what is FetchOffsets:
            words["partitions"] = None if wanted is None else tuple(wanted)
            words["requires_stable"] = stable
        self.harness.handle(what(**words))
        self.hear()

    @rule(group_id=groups, wanted=st.lists(partitions, min_size=1, max_size=2))
    def delete_offsets(self, group_id: str, wanted: list[tuple[str, int]]) -> None:
        self.harness.handle(
            DeleteOffsets(
                at_ms=self.harness.now_ms,
                reply_to=self.harness.ticket(),
                group_id=group_id,
                partitions=tuple(wanted),
            )
        )
        self.hear()

    @rule(topic=st.sampled_from("tu"))
    def delete_topic(self, topic: str) -> None:
        now_ms = self.harness.now_ms
        self.harness.handle(TopicsDeleted(at_ms=now_ms, topics=frozenset({topic})))
        self.hear()

    @rule(group_id=groups, instance_ids=st.lists(st.sampled_from("ijk"), min_size=1, max_size=3))
    def remove(self, group_id: str, instance_ids: list[str]) -> None:
        self.let_go(group_id, [LeavingMember(member_id="", instance_id=i) for i in instance_ids])

    def let_go(self, group_id: str, leavers: list[LeavingMember]) -> None:
        self.harness.handle(
            Leave(
                at_ms=self.harness.now_ms,
                reply_to=self.harness.ticket(),
                group_id=group_id,
                members=tuple(leavers),
            )
        )
        self.hear()

    # Failures.

    @rule(ms=st.sampled_from((1, 1_000, 3_000, 5_000, 6_000, 10_000, 20_000, 45_000)))
    def tick(self, ms: int) -> None:
        self.harness.tick(ms)
        self.hear()

    @rule(
        kind=st.sampled_from(("hold", "hold", "release", "fail", "crash", "crash")),
        count=st.integers(0, 5),
    )
    def trouble(self, kind: str, count: int) -> None:
        match kind:
            case "hold":
                self.harness.hold()
            case "release":
                self.harness.release(count)
            case "fail" if self.harness.is_loaded:
                self.harness.fail()
            case "crash":
                self.harness.crash(count)
                if count:
                    self.harness.load()
        self.hear()

    @precondition(lambda self: not self.harness.is_loaded)
    @rule()
    def load(self) -> None:
        self.harness.load()
        self.hear()

    # Final checks.

    def teardown(self) -> None:
        self.heal()
        self.become_stable()
        for producer_id in (1, 2):  # groups with pending offsets do not expire
            self.end(producer_id, is_commit=True)
        self.fall_silent()

    def heal(self) -> None:
        """Stop all failures."""
        self.harness.log.fails = False
        self.harness.release()
        if not self.harness.is_loaded:
            self.harness.load()
        self.hear()
        assert self.harness.owed.keys() == self.harness.parked()

    def become_stable(self) -> None:
        """Check that well-behaved clients soon form one generation and stay in it."""
        alive = [self.actors[0], self.actors[1], self.actors[3]]
        for actor in alive:
            actor.protocols = tuple(Protocol(name, b"t") for name in EVERYTHING)
            actor.seat("g").owed = None
            actor.seat("g").next_ms = self.harness.now_ms
        began_ms = self.harness.now_ms
        while not self.is_stable(alive):
            took_ms = self.harness.now_ms - began_ms
            assert took_ms <= STABLE_WITHIN_MS, f"not stable after {took_ms} ms"
            self.live(alive)
        generation = self.harness.shard.groups["g"].generation
        until_ms = self.harness.now_ms + 2 * REBALANCE_MS
        while self.harness.now_ms < until_ms:
            self.live(alive)
            assert self.is_stable(alive), "something disturbs a group of well-behaved clients"
        assert self.harness.shard.groups["g"].generation == generation

    def live(self, alive: list[Actor]) -> None:
        for actor in alive:
            seat = actor.seat("g")
            while seat.owed is None and seat.next_ms <= self.harness.now_ms:
                self.ask(actor, actor.next_request(self.harness, "g"))
        self.harness.tick(500)
        self.hear()

    def is_stable(self, alive: list[Actor]) -> bool:
        group = self.harness.shard.groups.get("g")
        if group is None or group.state is not GroupState.STABLE or group.pending_sync_members:
            return False
        members = {actor.seat("g").member_id for actor in alive}
        return members == group.members.keys() and all(
            actor.seat("g").stage == "beat" and actor.seat("g").generation == group.generation
            for actor in alive
        )

    def fall_silent(self) -> None:
        """Check that without requests every ticket gets a reply and all groups are removed."""
        self.harness.tick(REBALANCE_MS + SESSION_MS)
        self.hear()
        assert not self.harness.owed
        self.harness.tick(
            SETTINGS.offsets_retention_ms + 2 * SETTINGS.offsets_retention_check_interval_ms
        )
        self.hear()
        assert not self.harness.shard.groups
        assert not self.harness.shard.offsets
        assert set(self.harness.driver.timers.armed) == {ExpiryTimer()}


LONG = os.environ.get("PARTAGE_PROPERTIES") == "long"

TestAnything = CoordinatorMachine.TestCase
TestAnything.settings = settings(
    max_examples=int(os.environ.get("PARTAGE_EXAMPLES", 5_000)) if LONG else 100,
    stateful_step_count=60 if LONG else 30,
    deadline=None,
    derandomize=not LONG,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

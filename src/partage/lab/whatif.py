"""What would become of a group: its members and partitions, in a world without faults but one.

The group is given as plain values, as somebody found it. Its members join in the world, then
something happens to them: one is lost, all are restarted one after the other, others come. What
comes out is how long partitions stood still, how many moved, and how far the group fell behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from partage.assignors import Assignor, CooperativeSticky, Member, Range, RoundRobin, Sticky, Topic
from partage.bridge.embedding import Embedding
from partage.coordinator.states import GroupState
from partage.lab import history
from partage.lab.consumer import Process
from partage.lab.faults import KINDS
from partage.lab.options import Options, Scenario, scenario
from partage.lab.world import World
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC

Partition = tuple[str, int]

ASSIGNORS: Final[Mapping[str, type[Assignor]]] = {
    each.name: each for each in (Range, RoundRobin, Sticky, CooperativeSticky)
}
_STEADY_MS: Final = 10_000
_DOWN_MS: Final = 5_000


class LiveMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member as it was found: what it subscribes to, and what it is assigned."""

    name: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    assigned: tuple[Partition, ...] = ()


class LivePartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition as it was found; records, and records a second."""

    topic: str
    index: int
    lag: int = 0
    rate: float = 0.0


class LiveGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group as it was found.

    ``speed`` is how many records a second a member can read; the timeouts are its consumers'.
    """

    name: str
    assignor: str
    members: tuple[LiveMember, ...]
    partitions: tuple[LivePartition, ...]
    speed: float
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What comes of one event under one assignor.

    ``stood_still_s`` adds up the seconds of all partitions that nobody read; ``moved`` counts
    those that somebody else read in the end; ``settled_s`` is until the last change, ``lag_peak``
    the records that the whole group was behind at its worst. ``lags`` has that by second.
    """

    event: str
    assignor: str
    session_timeout_ms: int
    stood_still_s: float
    moved: int
    settled_s: float
    rebalances: int
    lag_peak: int
    lags: tuple[int, ...]


Event = Callable[["_Rehearsal"], int]


def events(more: int) -> dict[str, Event]:
    """What can be tried, by name; ``more`` is how many join at once."""
    return {
        "a member is lost": lambda rehearsal: rehearsal.lose(),
        "a rolling restart": lambda rehearsal: rehearsal.restart_all(),
        f"{more} more members": lambda rehearsal: rehearsal.add(more),
    }


def try_out(group: LiveGroup, name: str, event: Event, assignor: str) -> Outcome:
    """What comes of an event if the group's members offer ``assignor``."""
    return _Rehearsal(group, assignor).outcome(name, event)


def moved_by_assignor(group: LiveGroup, assignor: str) -> int:
    """How many partitions would have another owner than now, were ``assignor`` to assign once."""
    topics = {
        name: Topic(name=name, partition_count=sum(p.topic == name for p in group.partitions))
        for name in dict.fromkeys(p.topic for p in group.partitions)
    }
    members = [
        Member(
            member_id=member.name,
            instance_id=member.instance_id,
            topics=member.topics,
            owned=_by_topic(member.assigned),
            generation=1,
        )
        for member in group.members
    ]
    made = ASSIGNORS[assignor]()
    shares = made.assign(members, topics)
    if assignor == CooperativeSticky.name:  # what it holds back goes in the second step
        kept = [
            msgspec.structs.replace(m, owned=shares.get(m.member_id, {}), generation=2)
            for m in members
        ]
        shares = made.assign(kept, topics)
    owner = {p: member.name for member in group.members for p in member.assigned}
    after = {
        (topic, index): member_id
        for member_id, share in shares.items()
        for topic, indexes in share.items()
        for index in indexes
    }
    return sum(owner.get(p) not in (None, new) for p, new in after.items())


def _by_topic(partitions: Sequence[Partition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        found.setdefault(topic, []).append(index)
    return found


class _Quiet(World):
    """A world whose topics nobody stores: only who holds what counts."""

    @property
    def stored_topics(self) -> dict[str, int]:
        return {OFFSETS_TOPIC: 1}


class _Rehearsal:
    """One group in one world."""

    def __init__(self, group: LiveGroup, assignor: str) -> None:
        self._group = group
        self._assignor = assignor
        self._world = _Quiet(_scenario(group))
        self._world.partition_counts = {
            topic: 1 + max(p.index for p in group.partitions if p.topic == topic)
            for topic in dict.fromkeys(p.topic for p in group.partitions)
        }
        self._world.broker.start()
        self._places: dict[str, str] = {}  # process -> the place in the group that it fills
        self._processes = [self._start(member, member.name) for member in group.members]
        self._steady()

    def _start(self, member: LiveMember, place: str) -> Process:
        name = self._world.fresh_name()
        self._places[name] = place
        return self._world.add_process(
            name=name,
            group_id=self._group.name,
            topics=frozenset(member.topics),
            embedding=Embedding([ASSIGNORS[self._assignor]()]),
            instance_id=member.instance_id,
        )

    def _steady(self) -> None:
        """Wait until nobody has come to hold something else for a while."""
        world = self._world
        patience_ms = 3 * (self._group.session_timeout_ms + self._group.max_poll_interval_ms)
        for _ in range(0, patience_ms, _STEADY_MS):
            world.clock.run(_STEADY_MS)
            changes = [e.at_ms for e in world.history.entries if isinstance(e, history.Holds)]
            is_quiet = not changes or world.now_ms - changes[-1] >= _STEADY_MS
            if is_quiet and self._is_complete():
                return

    def _is_complete(self) -> bool:
        """Whether the coordinator has exactly those for members that are there, and is at rest."""
        shard = self._world.broker.shard
        group = None if shard is None else shard.groups.get(self._group.name)
        if group is None or group.state is not GroupState.STABLE:
            return False
        there = {p.core.membership.member_id for p in self._world.members(self._group.name)}
        return set(group.members) == there

    # Events; each gives the time when it began.

    def lose(self) -> int:
        """The member with the most partitions is gone without a word."""
        begin_ms = self._world.now_ms
        lost = max(self._processes, key=lambda process: len(process.core.owned))
        lost.crash(silently=True)
        return begin_ms

    def restart_all(self) -> int:
        """Each member ends and comes back, the next one when all is steady again."""
        begin_ms = self._world.now_ms
        for member, process in zip(self._group.members, list(self._processes), strict=True):
            if member.instance_id is None:
                process.leave()
                self._world.clock.run(1_000)
            process.crash(silently=False)
            self._world.clock.run(_DOWN_MS)
            self._start(member, member.name)
            self._steady()
        return begin_ms

    def add(self, count: int) -> int:
        """So many more members like the first one join at once."""
        begin_ms = self._world.now_ms
        like = msgspec.structs.replace(self._group.members[0], instance_id=None)
        for number in range(count):
            self._start(like, f"new {number + 1}")
        return begin_ms

    # What came of it.

    def outcome(self, name: str, event: Event) -> Outcome:
        """Have it happen, and look at what came of it."""
        before = self._owners(self._world.now_ms)
        generations = len(self._world.generations)
        begin_ms = event(self)
        self._steady()
        world = self._world
        changes = [
            entry.at_ms
            for entry in world.history.entries
            if isinstance(entry, history.Holds) and entry.at_ms >= begin_ms
        ]
        end_ms = max(changes, default=begin_ms)
        after = self._owners(world.now_ms)
        lags, idle_ms = self._lags(begin_ms, end_ms)
        return Outcome(
            event=name,
            assignor=self._assignor,
            session_timeout_ms=self._group.session_timeout_ms,
            stood_still_s=idle_ms / 1000,
            moved=sum(after.get(p) != owner for p, owner in before.items()),
            settled_s=(end_ms - begin_ms) / 1000,
            rebalances=len(world.generations) - generations,
            lag_peak=max(lags),
            lags=tuple(lags),
        )

    def _timeline(self) -> list[tuple[int, str, frozenset[Partition]]]:
        return [
            (entry.at_ms, entry.process, frozenset(entry.partitions))
            for entry in self._world.history.entries
            if isinstance(entry, history.Holds)
        ]

    def _owners(self, at_ms: int) -> dict[Partition, str]:
        held: dict[str, frozenset[Partition]] = {}
        held.update(
            (process, partitions)
            for when_ms, process, partitions in self._timeline()
            if when_ms <= at_ms
        )
        return {p: self._places[process] for process, ps in held.items() for p in ps}

    def _lags(self, begin_ms: int, end_ms: int) -> tuple[list[int], int]:
        """The group's lag second by second, until it is what it was, and how long partitions were
        nobody's, in ms.
        """
        group = self._group
        lag = {(p.topic, p.index): float(p.lag) for p in group.partitions}
        rate = {(p.topic, p.index): p.rate for p in group.partitions}
        held: dict[str, frozenset[Partition]] = {}
        changes = self._timeline()
        at, lags, idle_ms = 0, [int(sum(lag.values()))], 0
        step_ms = 100
        for now_ms in range(begin_ms, max(end_ms, begin_ms + 1_000) + _STEADY_MS, step_ms):
            while at < len(changes) and changes[at][0] <= now_ms:
                held[changes[at][1]] = changes[at][2]
                at += 1
            read = frozenset(p for partitions in held.values() for p in partitions)
            for partition in lag:
                lag[partition] += rate[partition] * step_ms / 1000
                if partition not in read and now_ms < end_ms:
                    idle_ms += step_ms
            for partitions in held.values():
                _read(lag, partitions, group.speed * step_ms / 1000)
            if (now_ms - begin_ms) % 1000 == 0:
                lags.append(int(sum(lag.values())))
        return lags, idle_ms


def _read(lag: dict[Partition, float], partitions: frozenset[Partition], room: float) -> None:
    """A member reads what it can, of its most delayed partitions first."""
    for partition in sorted(partitions & lag.keys(), key=lambda p: (-lag[p], p)):
        done = min(lag[partition], room)
        lag[partition] -= done
        room -= done


def _scenario(group: LiveGroup) -> Scenario:
    """A world of ordinary speed in which nothing is planned."""
    drawn = scenario(1, KINDS)
    options = Options(
        **{
            **msgspec.structs.asdict(drawn.options),
            "version_cap": 0,
            "session_timeout_ms": group.session_timeout_ms,
            "rebalance_timeout_ms": group.max_poll_interval_ms,
            "heartbeat_interval_ms": group.heartbeat_interval_ms,
            "max_poll_interval_ms": group.max_poll_interval_ms,
            "poll_interval_ms": 500,
            "initial_rebalance_delay_ms": 3_000,
            "members_max": 1_000_000,
            "delay_max_ms": 2,
            "disk_delay_ms": 2,
            "splits": 0.0,
            "kinds": (),
            "brokers": 1,
        }
    )
    return Scenario(seed=1, options=options, plan=())

"""A rolling restart, as it happens: real consumers, a steady producer, and who got what when.

Ten consumers of one group run in threads of one process, and each works for a while on what a poll
brought, as one does that writes batches to a database. One after the other is closed, or drained
first, stays away for a moment and comes back as a new member, which is what a rolling restart of a
service does to its group. Meanwhile every partition gets records at a steady pace. What is kept is
each poll's first and last record of a partition, when they were made and when they were handed out,
and when a member gave a partition up.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterable
from itertools import pairwise
from random import Random
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.apart import Apart
from bench.machine import LOAD_CORE
from partage.client.consumer import RebalanceListener, Record
from partage.model.topic_partition import TopicPartition
from partage.sync import Consumer

#: How much longer than its owner's work a record may wait for other reasons than a rebalance.
GRACE_S = 0.25

_TIMEOUT_S = 120.0


class Plan(NamedTuple):
    """How it goes."""

    members: int = 10
    partitions: int = 30
    per_s: float = 20.0  # records, each partition
    work_s: float = 1.0  # on what one poll brought, half as much more or less
    settle_s: float = 4.0  # before the first restart and after the last
    every_s: float = 8.0  # a restart
    away_s: float = 1.0
    heartbeat_ms: int = 1000
    drains: bool = False  # before it is closed

    @property
    def lasts_s(self) -> float:
        return self.members * self.every_s


class Handed(NamedTuple):
    """The records of one partition in one poll: ``first`` to ``last`` offset.

    ``made_s`` is when the first was made, ``at_s`` when they were handed out; seconds of the wall
    clock, the producer's and the consumers' being the same one. The member worked on them until
    ``until_s`` and then polled again. ``member`` is which of the places
    of a member, ``life`` how many have had it before. ``hold`` is how often the partition has been
    given to anybody before.
    """

    partition: int
    first: int
    last: int
    made_s: float
    at_s: float
    until_s: float
    member: int
    life: int
    hold: int


class History(NamedTuple):
    """One rolling restart; restarts began at ``begun_s``, one at a time, until ``ended_s``.

    ``given_up_s`` is when a hold of a partition ended, by partition and hold.
    """

    plan: Plan
    begun_s: float
    ended_s: float
    handed: list[Handed]
    given_up_s: dict[tuple[int, int], float]


class Wait(NamedTuple):
    """Records of a partition wait, from when on and until they are handed out.

    ``is_lost``: nobody delivered meanwhile. ``stays``: the same member did before and after.
    """

    partition: int
    from_s: float
    to_s: float
    is_lost: bool
    stays: bool

    @property
    def lasts_s(self) -> float:
        return self.to_s - self.from_s


def rolling(servers: str, topic: str, strategy: str, plan: Plan) -> History:
    """Restart a group that assigns by ``strategy``; every record is handed out in the end."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, plan.partitions, 1)])[topic].result(_TIMEOUT_S)
    stop = threading.Event()
    producing = threading.Thread(target=_produce, args=(servers, topic, plan, stop))
    with Apart(LOAD_CORE) as apart:
        restarting = apart.begin(_restart, servers, topic, strategy, plan)
        producing.start()
        try:
            return restarting.result(plan.lasts_s + _TIMEOUT_S)
        finally:
            stop.set()
            producing.join(_TIMEOUT_S)


def waits(history: History) -> list[Wait]:
    """All waits, in each partition from one poll that brought something of it to the next.

    From the moment that its owner gives a partition up, or a record is made for it later than
    that, it is lost until one is handed out. While it has an owner it is lost only once the owner
    should long have polled again.
    """
    by_partition: defaultdict[int, list[Handed]] = defaultdict(list)
    for one in sorted(history.handed, key=lambda one: one.at_s):
        by_partition[one.partition].append(one)
    found = []
    for partition, polls in sorted(by_partition.items()):
        for before, after in pairwise(polls):
            stays = (before.member, before.life) == (after.member, after.life)
            due_s = before.until_s
            if before.hold != after.hold:
                due_s = history.given_up_s.get((partition, before.hold), due_s)
            from_s = max(due_s, after.made_s)
            is_lost = before.hold != after.hold or after.at_s - from_s > GRACE_S
            if after.at_s > from_s:
                found.append(Wait(partition, from_s, after.at_s, is_lost, stays))
    return [one for one in found if one.to_s > history.begun_s and one.from_s < history.ended_s]


def share_lost(history: History) -> float:
    """The share of partition-seconds in which records waited and nobody delivered."""
    seconds = history.plan.partitions * (history.ended_s - history.begun_s)
    return sum(one.lasts_s for one in waits(history) if one.is_lost) / seconds


def read_twice(handed: Iterable[Handed]) -> int:
    """How many records were handed out more than once. Raises if one never was."""
    counts: defaultdict[int, int] = defaultdict(int)
    ends: defaultdict[int, int] = defaultdict(int)
    for one in handed:
        counts[one.partition] += one.last + 1 - one.first
        ends[one.partition] = max(ends[one.partition], one.last + 1)
    assert all(counts[partition] >= ends[partition] for partition in ends), "records were skipped"
    return sum(counts.values()) - sum(ends.values())


def _produce(servers: str, topic: str, plan: Plan, stop: threading.Event) -> None:
    """Records for every partition at a steady pace, not all at the same moment."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    step_s = 1 / plan.per_s / plan.partitions
    due, number = time.monotonic(), 0
    while not stop.is_set():
        due += step_s
        stop.wait(max(0.0, due - time.monotonic()))
        producer.produce(topic, b"%d" % number, partition=number % plan.partitions)
        producer.poll(0)
        number += 1
    producer.flush(_TIMEOUT_S)


def _restart(servers: str, topic: str, strategy: str, plan: Plan) -> History:
    notes = _Notes()
    members = [_Member(servers, topic, strategy, plan, n, notes) for n in range(plan.members)]
    deadline = time.monotonic() + _TIMEOUT_S
    while len({one.partition for one in notes.handed}) < plan.partitions:
        assert time.monotonic() < deadline, "the group does not form"
        time.sleep(0.1)
    time.sleep(plan.settle_s)
    begun_s, begun = time.time(), time.monotonic()
    for number, member in enumerate(members):
        time.sleep(max(0.0, begun + number * plan.every_s - time.monotonic()))
        member.leave()
        time.sleep(plan.away_s)
        member.join()
    time.sleep(max(0.0, begun + plan.lasts_s - time.monotonic()))
    ended_s = time.time()
    time.sleep(plan.settle_s)
    for member in members:
        member.leave()
    return History(plan, begun_s, ended_s, notes.handed, notes.given_up_s)


class _Notes:
    """What all members write down."""

    def __init__(self) -> None:
        self.handed: list[Handed] = []
        self.holds: defaultdict[int, int] = defaultdict(int)  # by partition, how many so far
        self.given_up_s: dict[tuple[int, int], float] = {}


class _Member(RebalanceListener):
    """A place in the group, and the consumer that has it."""

    def __init__(
        self, servers: str, topic: str, strategy: str, plan: Plan, number: int, notes: _Notes
    ) -> None:
        self._servers = servers
        self._topic = topic
        self._strategy = strategy
        self._plan = plan
        self._number = number
        self._notes = notes
        self._held: dict[int, int] = {}  # by partition, which hold of it is ours
        self._chance = Random(number)
        self._life = -1
        self.join()

    def join(self) -> None:
        """Begin a new life."""
        self._life += 1
        self._told = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def leave(self) -> None:
        """Close the consumer, drained first if the plan says so: it commits, and leaves."""
        self._told.set()
        self._thread.join(_TIMEOUT_S)

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        for _, partition in partitions:
            self._notes.holds[partition] += 1
            self._held[partition] = self._notes.holds[partition]

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        now_s = time.time()
        for _, partition in partitions:
            self._notes.given_up_s[partition, self._held.pop(partition)] = now_s

    def _run(self) -> None:
        with Consumer(
            self._servers,
            group_id=f"rolling-{self._topic}",
            partition_assignment_strategy=self._strategy,
            heartbeat_interval_ms=self._plan.heartbeat_ms,
            auto_offset_reset="earliest",
        ) as consumer:
            consumer.subscribe([self._topic], listener=self)
            while not (self._told.is_set() and self._has_left(consumer)):
                polled = consumer.poll(100)
                at_s = time.time()
                work_s = self._plan.work_s * self._chance.uniform(0.5, 1.5)
                for batch in polled.batches:
                    if records := batch.records():
                        self._note(records[0], records[-1], at_s, work_s)
                if polled and self._plan.drains:
                    time.sleep(work_s)  # whatever it is told: it goes on as if nothing were
                elif polled:
                    self._told.wait(work_s)

    def _has_left(self, consumer: Consumer) -> bool:
        if not self._plan.drains:
            return True
        consumer.drain()
        return consumer.is_drained

    def _note(self, first: Record, last: Record, at_s: float, work_s: float) -> None:
        hold = self._held[first.partition]
        span = (first.partition, first.offset, last.offset, first.timestamp / 1000)
        who = (self._number, self._life, hold)
        self._notes.handed.append(Handed(*span, at_s, at_s + work_s, *who))

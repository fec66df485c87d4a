"""A real rolling restart: consumers, a steady producer, and a log of all deliveries.

Ten consumers of one group run in threads of one process. Each works for a while on the records of a
poll, as a program does that writes batches to a database. The consumers are closed one after the
other, or drained first. Each is away for a moment and returns as a new member, as in a rolling
restart of a service. Meanwhile every partition gets records at a steady rate.

The log has the first and last record of each poll and partition, when they were produced and when
they were delivered, and when a member gave up a partition.
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

from bench.machine import LOAD_CORE
from bench.worker_process import WorkerProcess
from partage.client.consumer import RebalanceListener, Record
from partage.model.topic_partition import TopicPartition
from partage.sync import Consumer

#: Longest wait of a record, after its owner's work, that is not caused by a rebalance.
GRACE_S = 0.25

_TIMEOUT_S = 120.0


class Plan(NamedTuple):
    """The parameters of a restart."""

    members: int = 10
    partitions: int = 30
    per_s: float = 20.0  # records in each partition
    work_s: float = 1.0  # on the records of one poll, plus or minus half
    settle_s: float = 4.0  # before the first restart and after the last
    every_s: float = 8.0  # between two restarts
    away_s: float = 1.0
    heartbeat_ms: int = 1000
    drains: bool = False  # before it is closed

    @property
    def lasts_s(self) -> float:
        return self.members * self.every_s


class Delivery(NamedTuple):
    """The records of one partition in one poll: ``first`` to ``last`` offset.

    ``produced_s`` is when the first record was produced, ``at_s`` when the records were delivered,
    both in seconds of the wall clock of this machine. The member worked on them until ``until_s``
    and then polled again. ``member`` is the number of the member, ``incarnation`` its number of
    restarts before. ``ownership`` counts the assignments of the partition to any member.
    """

    partition: int
    first: int
    last: int
    produced_s: float
    at_s: float
    until_s: float
    member: int
    incarnation: int
    ownership: int


class History(NamedTuple):
    """One rolling restart: the restarts took place from ``begun_s`` to ``ended_s``.

    ``given_up_s`` is when an ownership of a partition ended, by partition and ownership.
    """

    plan: Plan
    begun_s: float
    ended_s: float
    deliveries: list[Delivery]
    given_up_s: dict[tuple[int, int], float]


class Wait(NamedTuple):
    """A time in which records of a partition wait for their delivery.

    ``is_lost``: no member delivered meanwhile. ``stays``: the same member delivered before and
    after.
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
    """Restart a group that assigns by ``strategy``; every record is delivered in the end."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, plan.partitions, 1)])[topic].result(_TIMEOUT_S)
    stop = threading.Event()
    producer = threading.Thread(target=_produce, args=(servers, topic, plan, stop))
    with WorkerProcess(LOAD_CORE) as worker:
        history = worker.submit(_restart, servers, topic, strategy, plan)
        producer.start()
        try:
            return history.result(plan.lasts_s + _TIMEOUT_S)
        finally:
            stop.set()
            producer.join(_TIMEOUT_S)


def waits(history: History) -> list[Wait]:
    """Return all waits, in each partition between one poll with records and the next.

    Time is lost from the moment when the owner gives up the partition, or when a record is
    produced later than that, until the next delivery. While a partition has an owner, time is lost
    only if the owner is overdue to poll again.
    """
    by_partition: defaultdict[int, list[Delivery]] = defaultdict(list)
    for one in sorted(history.deliveries, key=lambda one: one.at_s):
        by_partition[one.partition].append(one)
    found = []
    for partition, polls in sorted(by_partition.items()):
        for before, after in pairwise(polls):
            stays = (before.member, before.incarnation) == (after.member, after.incarnation)
            due_s = before.until_s
            if before.ownership != after.ownership:
                due_s = history.given_up_s.get((partition, before.ownership), due_s)
            from_s = max(due_s, after.produced_s)
            is_lost = before.ownership != after.ownership or after.at_s - from_s > GRACE_S
            if after.at_s > from_s:
                found.append(Wait(partition, from_s, after.at_s, is_lost, stays))
    return [one for one in found if one.to_s > history.begun_s and one.from_s < history.ended_s]


def share_lost(history: History) -> float:
    """Return the share of partition-seconds that were lost."""
    seconds = history.plan.partitions * (history.ended_s - history.begun_s)
    return sum(one.lasts_s for one in waits(history) if one.is_lost) / seconds


def read_twice(deliveries: Iterable[Delivery]) -> int:
    """Return the number of records that were delivered more than once.

    Raises:
        AssertionError: A record was never delivered.
    """
    counts: defaultdict[int, int] = defaultdict(int)
    ends: defaultdict[int, int] = defaultdict(int)
    for one in deliveries:
        counts[one.partition] += one.last + 1 - one.first
        ends[one.partition] = max(ends[one.partition], one.last + 1)
    assert all(counts[partition] >= ends[partition] for partition in ends), "records were skipped"
    return sum(counts.values()) - sum(ends.values())


def _produce(servers: str, topic: str, plan: Plan, stop: threading.Event) -> None:
    """Produce records to every partition at a steady rate, evenly distributed over time."""
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
    log = _Log()
    members = [_Member(servers, topic, strategy, plan, n, log) for n in range(plan.members)]
    deadline = time.monotonic() + _TIMEOUT_S
    while len({one.partition for one in log.deliveries}) < plan.partitions:
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
    return History(plan, begun_s, ended_s, log.deliveries, log.given_up_s)


class _Log:
    """The log of all members."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        #: Number of ownerships by partition.
        self.ownerships: defaultdict[int, int] = defaultdict(int)
        self.given_up_s: dict[tuple[int, int], float] = {}


class _Member(RebalanceListener):
    """A place in the group, and the consumer that has it."""

    def __init__(
        self, servers: str, topic: str, strategy: str, plan: Plan, number: int, log: _Log
    ) -> None:
        self._servers = servers
        self._topic = topic
        self._strategy = strategy
        self._plan = plan
        self._number = number
        self._log = log
        self._owned: dict[int, int] = {}  # number of our ownership by partition
        self._random = Random(number)
        self._incarnation = -1
        self.join()

    def join(self) -> None:
        """Start a new consumer."""
        self._incarnation += 1
        self._stop_requested = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def leave(self) -> None:
        """Close the consumer, after a drain if the plan says so: it commits and leaves."""
        self._stop_requested.set()
        self._thread.join(_TIMEOUT_S)

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        for _, partition in partitions:
            self._log.ownerships[partition] += 1
            self._owned[partition] = self._log.ownerships[partition]

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        now_s = time.time()
        for _, partition in partitions:
            self._log.given_up_s[partition, self._owned.pop(partition)] = now_s

    def _run(self) -> None:
        with Consumer(
            self._servers,
            group_id=f"rolling-{self._topic}",
            partition_assignment_strategy=self._strategy,
            heartbeat_interval_ms=self._plan.heartbeat_ms,
            auto_offset_reset="earliest",
        ) as consumer:
            consumer.subscribe([self._topic], listener=self)
            while not (self._stop_requested.is_set() and self._has_left(consumer)):
                polled = consumer.poll(100)
                at_s = time.time()
                work_s = self._plan.work_s * self._random.uniform(0.5, 1.5)
                for batch in polled.batches:
                    if records := batch.records():
                        self._note(records[0], records[-1], at_s, work_s)
                if polled and self._plan.drains:
                    time.sleep(work_s)  # a draining member continues to work
                elif polled:
                    self._stop_requested.wait(work_s)

    def _has_left(self, consumer: Consumer) -> bool:
        if not self._plan.drains:
            return True
        consumer.drain()
        return consumer.is_drained

    def _note(self, first: Record, last: Record, at_s: float, work_s: float) -> None:
        ownership = self._owned[first.partition]
        span = (first.partition, first.offset, last.offset, first.timestamp / 1000)
        member = (self._number, self._incarnation, ownership)
        self._log.deliveries.append(Delivery(*span, at_s, at_s + work_s, *member))

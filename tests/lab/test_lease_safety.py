"""Brokers that share shards over a ZooKeeper, on the virtual clock: the stores and the lease.

Brokers stand still, are cut off from ZooKeeper, die, and begin again; two of them may believe that
they have a shard. Whoever is answered must never be shown less than somebody was before: so what a
broker says is checked at every answer against what all have said, and what it loads against what
was acknowledged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

import pytest

from partage.coordinator.records import OffsetRecord
from partage.lab.brokers import cluster_membership
from partage.lab.brokers.cluster_membership import ClusterMembership, zookeeper_client_name
from partage.lab.environment.clock import Clock
from partage.lab.environment.coroutines import SimFuture
from partage.lab.environment.zookeeper import ZooKeeper
from partage.model.settings import GroupSettings
from partage.store.lease import Lease
from partage.store.shard_log import encode_records, replay
from partage.store.shared_log import SharedLog
from partage.store.zookeeper import InDoubtError, StoreError
from partage.wire.primitives import MalformedError

SHARDS = 3
TIMEOUT_MS = 6_000


class StaleReadError(AssertionError):
    """Somebody was shown less than somebody before."""


class World:
    """Brokers, their ZooKeeper, and what was said to clients."""

    def __init__(self, seed: int, brokers: int = 3, delay_ms: int | None = None) -> None:
        self.rng = Random(f"world {seed}")
        self.clock = Clock()
        drawn_ms = self.rng.choice((1, 20, 400))
        delay_ms = drawn_ms if delay_ms is None else delay_ms
        self.zookeeper = ZooKeeper(self.clock, Random(f"zookeeper {seed}"), delay_ms)
        self.said = [-1] * SHARDS  # the last number that was shown or acknowledged
        self.answers = 0
        self.numbers = 0
        self.brokers: list[Broker] = []
        self.add_brokers(brokers)

    def add_brokers(self, count: int) -> None:
        self.brokers += [Broker(self, broker_id) for broker_id in range(1, count + 1)]
        for broker in self.brokers:
            broker.start()

    def run(self, for_ms: int, faults: float) -> None:
        """Let time pass, with clients that ask, and now and then something that goes wrong."""
        until_ms = self.clock.now_ms + for_ms
        while self.clock.now_ms < until_ms:
            self.clock.run(self.rng.randrange(1, 120))
            broker, shard = self.rng.choice(self.brokers), self.rng.randrange(SHARDS)
            if self.rng.random() < faults:
                self.disturb(broker)
            elif self.rng.random() < 0.5:
                broker.when_awake(lambda broker=broker, shard=shard: broker.read(shard))
            else:
                broker.when_awake(lambda broker=broker, shard=shard: broker.write(shard))

    def disturb(self, broker: Broker) -> None:
        for_ms = self.rng.choice((500, TIMEOUT_MS // 2, TIMEOUT_MS + 500, 3 * TIMEOUT_MS))
        match self.rng.randrange(4):
            case 0:
                broker.pause(for_ms)
            case 1:
                self.zookeeper.cut(broker.name, for_ms)
            case 2:
                self.zookeeper.cut_server(broker.name, for_ms)
            case _:
                broker.die()
                self.clock.call_later(self.rng.choice((10, 2_000)), broker.start)

    def heal(self) -> None:
        self.zookeeper.heal()
        for broker in self.brokers:
            broker.resume()

    def show(self, shard: int, number: int, who: Broker) -> None:
        """A client is answered."""
        if number < self.said[shard]:
            raise StaleReadError(f"{who.name} shows {number} of {shard} after {self.said[shard]}")
        self.said[shard] = number
        self.answers += 1


class Broker:
    """A broker, one process after the other on one data directory."""

    def __init__(self, world: World, broker_id: int) -> None:
        self.world = world
        self.name = zookeeper_client_name(broker_id)
        self.broker_id = broker_id
        self.lives = 0
        self.is_up = False
        self.is_asleep = False
        self.postponed: list[Callable[[], None]] = []
        self.shards = [Shard(self) for _ in range(SHARDS)]

    # The process.

    def start(self) -> None:
        if self.is_up:
            self.die()
        self.is_up = True
        self.lives += 1
        lives = self.lives

        def when_awake(call: Callable[[], None]) -> None:
            self.when_awake(lambda: call() if lives == self.lives else None)

        self.shards = [Shard(self) for _ in range(SHARDS)]
        servers = self.world.zookeeper
        self.place = ClusterMembership(servers, self.broker_id, self.shards, TIMEOUT_MS, when_awake)

    def die(self) -> None:
        if self.is_up:
            self.is_up = False
            self.place.end()

    def pause(self, for_ms: int) -> None:
        if not self.is_asleep:
            self.is_asleep = True
            self.world.clock.call_later(for_ms, self.resume)

    def resume(self) -> None:
        self.is_asleep = False
        postponed, self.postponed = self.postponed, []
        self.world.rng.shuffle(postponed)  # whatever wakes first
        for call in postponed:
            self.when_awake(call)

    def when_awake(self, call: Callable[[], None]) -> None:
        if self.is_asleep:
            self.postponed.append(call)
        else:
            call()

    # Clients.

    def read(self, shard: int) -> None:
        shown = self.shards[shard].shown
        if self.is_up and shown is not None and self.place.may_answer():
            self.world.show(shard, shown, self)

    def write(self, shard: int) -> None:
        if self.is_up and self.shards[shard].shown is not None:
            self.shards[shard].write(shard)


class Shard:
    """A shard in one process: all it has is the last number that was written."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.log: SharedLog | None = None
        self.shown: int | None = None

    # As `partage.lab.brokers.cluster_membership.ShardOwner`.

    def on_acquired(self, log: SharedLog) -> None:
        self.log, self.shown = log, None
        self.broker.place.spawn(self.load(log))

    def on_resigned(self) -> None:
        self.log = self.shown = None

    def on_lease_renewed(self) -> None:
        """Nothing waits: who asks while the lease is over is not answered."""

    async def load(self, log: SharedLog) -> None:
        while self.log is log:
            try:
                content = await log.load()
            except InDoubtError:
                await self.broker.place.session.wait_connected()
            except MalformedError:  # who has the shard by now may have merged what was to be read
                moment: SimFuture[None] = SimFuture()
                self.broker.world.clock.call_later(500, partial(moment.set_result, None))
                await moment
            else:
                break
        if self.log is log:
            self.shown = last_of(content)

    def write(self, shard: int) -> None:
        broker, log, world = self.broker, self.log, self.broker.world
        assert log is not None
        world.numbers += 1
        number = world.numbers
        record = OffsetRecord(
            group_id="g", topic="t", partition=0, offset=number, commit_ms=world.clock.now_ms
        )

        def written(fault: StoreError | None) -> None:
            if self.log is not log or not broker.is_up or broker.shards[shard] is not self:
                return
            if fault is not None:
                broker.place.on_deposed(log)  # it is taken anew, if it is still there to be taken
                return
            self.shown = number
            if broker.place.may_answer():
                world.show(shard, number, broker)

        for batch in encode_records([record], world.clock.now_ms):
            broker.place.append(log, batch, written)
        if log.needs_merge and world.rng.random() < 0.5:
            broker.place.merge(log)


def last_of(content: Sequence[Any]) -> int:
    offsets = replay(content, GroupSettings()).offsets.get("g", {})
    return max((committed.offset for committed in offsets.values()), default=-1)


def live(seed: int, for_ms: int = 90_000) -> World:
    world = World(seed)
    world.run(10_000, 0.0)
    world.run(for_ms, world.rng.choice((0.005, 0.02, 0.06)))
    world.heal()
    world.run(8 * TIMEOUT_MS, 0.0)
    before = world.answers
    owners: dict[int, list[str]] = defaultdict(list)
    for broker in world.brokers:
        for number, shard in enumerate(broker.shards):
            if shard.shown is not None:
                owners[number].append(broker.name)
    assert sorted(map(len, owners.values())) == [1] * SHARDS, owners
    world.run(5_000, 0.0)
    assert world.answers > before + 5
    return world


@pytest.mark.parametrize("seed", range(20))
def test_nobody_is_shown_less_than_somebody_before(seed: int) -> None:
    world = live(seed)
    assert world.answers > 100


def cut_off_with_its_server(begin_ms: int, held_ms: int = 0) -> None:
    """Whoever has a shard, at any time of its asking and its server's telling; before that what it
    asks is held back for a while, and comes together with what it asks after it.
    """
    for phase_ms in range(0, 1_600, 100):
        world = World(1, brokers=0, delay_ms=0)
        world.clock.run(begin_ms)
        world.add_brokers(2)
        world.clock.run(10_000 + phase_ms)
        owner = next(broker for broker in world.brokers if broker.shards[0].shown is not None)
        if held_ms:
            world.zookeeper.cut(owner.name, held_ms)
            world.clock.run(held_ms + 10)
        world.zookeeper.cut_server(owner.name, 3 * TIMEOUT_MS)
        answers = world.answers
        for _ in range(2 * TIMEOUT_MS // 10):
            world.clock.run(10)
            for broker in world.brokers:
                broker.read(0)
                broker.write(0)
        assert world.answers > answers + 500


@pytest.mark.parametrize("held_ms", [0, 3_700])
@pytest.mark.parametrize("begin_ms", range(100, 1_000, 200))
def test_a_broker_that_is_cut_off_with_its_server(begin_ms: int, held_ms: int) -> None:
    """What it asked last was answered, and yet the leader may have heard of it before that only."""
    cut_off_with_its_server(begin_ms, held_ms)


def a_lease_that_counts_from_what_was_asked_last(patch: pytest.MonkeyPatch) -> None:
    def renew(lease: Any, sent_ms: int, answered_ms: int) -> None:
        lease._until_ms = sent_ms + lease.length_ms

    patch.setattr(Lease, "renew", renew)


def a_lease_that_takes_what_was_sent_for_what_has_come(patch: pytest.MonkeyPatch) -> None:
    right = Lease.renew
    patch.setattr(
        Lease, "renew", lambda lease, sent_ms, answered_ms: right(lease, sent_ms, sent_ms)
    )
    patch.setattr(
        cluster_membership, "_RENEWALS", 6
    )  # eight times a session it would be a matter of luck


def a_lease_that_nobody_looks_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lease, "is_valid", lambda lease, now_ms: lease._until_ms is not None)


@pytest.mark.parametrize(
    ("plant", "begin_ms", "held_ms"),
    [
        (a_lease_that_counts_from_what_was_asked_last, 500, 0),
        (a_lease_that_takes_what_was_sent_for_what_has_come, 900, 3_700),
        (a_lease_that_nobody_looks_at, 900, 0),
    ],
)
def test_a_wrong_lease_is_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    begin_ms: int,
    held_ms: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    with pytest.raises(StaleReadError):
        cut_off_with_its_server(begin_ms, held_ms)

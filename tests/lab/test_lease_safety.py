"""Safety of leases: brokers that share shards over a simulated ZooKeeper.

Brokers pause, are cut off from ZooKeeper, die, and restart, so that two brokers may believe that
they own a shard. Reads must never go back: each response is compared with all earlier ones, and
each load with the acknowledged writes.
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
    """Raised when a client reads an older value than a client before it."""


class World:
    """Brokers, their ZooKeeper, and the values shown to clients."""

    def __init__(self, seed: int, brokers: int = 3, delay_ms: int | None = None) -> None:
        self.rng = Random(f"world {seed}")
        self.clock = Clock()
        drawn_ms = self.rng.choice((1, 20, 400))
        delay_ms = drawn_ms if delay_ms is None else delay_ms
        self.zookeeper = ZooKeeper(self.clock, Random(f"zookeeper {seed}"), delay_ms)
        self.said = [-1] * SHARDS  # the last number shown or acknowledged, by shard
        self.answers = 0
        self.numbers = 0
        self.brokers: list[Broker] = []
        self.add_brokers(brokers)

    def add_brokers(self, count: int) -> None:
        self.brokers += [Broker(self, broker_id) for broker_id in range(1, count + 1)]
        for broker in self.brokers:
            broker.start()

    def run(self, for_ms: int, faults: float) -> None:
        """Let time pass with client requests and random faults."""
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
        """Show a number to a client."""
        if number < self.said[shard]:
            raise StaleReadError(f"{who.name} shows {number} of {shard} after {self.said[shard]}")
        self.said[shard] = number
        self.answers += 1


class Broker:
    """A broker: successive processes with one id."""

    def __init__(self, world: World, broker_id: int) -> None:
        self.world = world
        self.name = zookeeper_client_name(broker_id)
        self.broker_id = broker_id
        self.lives = 0
        self.is_up = False
        self.is_asleep = False
        self.postponed: list[Callable[[], None]] = []
        self.shards = [Shard(self) for _ in range(SHARDS)]

    # Process

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
        self.world.rng.shuffle(postponed)  # in random order
        for call in postponed:
            self.when_awake(call)

    def when_awake(self, call: Callable[[], None]) -> None:
        if self.is_asleep:
            self.postponed.append(call)
        else:
            call()

    # Clients

    def read(self, shard: int) -> None:
        shown = self.shards[shard].shown
        if self.is_up and shown is not None and self.place.may_answer():
            self.world.show(shard, shown, self)

    def write(self, shard: int) -> None:
        if self.is_up and self.shards[shard].shown is not None:
            self.shards[shard].write(shard)


class Shard:
    """A shard in one process; its state is the last number written."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.log: SharedLog | None = None
        self.shown: int | None = None

    # Interface of `partage.lab.brokers.cluster_membership.ShardOwner`

    def on_acquired(self, log: SharedLog) -> None:
        self.log, self.shown = log, None
        self.broker.place.spawn(self.load(log))

    def on_resigned(self) -> None:
        self.log = self.shown = None

    def on_lease_renewed(self) -> None:
        """Do nothing: requests without a lease get no response here."""

    async def load(self, log: SharedLog) -> None:
        while self.log is log:
            try:
                content = await log.load()
            except InDoubtError:
                await self.broker.place.session.wait_connected()
            except MalformedError:  # the new owner may have merged the entries meanwhile
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
                broker.place.on_deposed(log)  # the broker acquires it again if it is still free
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
def test_reads_never_go_back(seed: int) -> None:
    world = live(seed)
    assert world.answers > 100


def cut_off_with_its_server(begin_ms: int, held_ms: int = 0) -> None:
    """Cut off the owner of a shard together with its server, at different phases of its requests.

    With ``held_ms``, the owner's requests are delayed first, so that several arrive together.
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


@pytest.mark.slow
@pytest.mark.parametrize("held_ms", [0, 3_700])
@pytest.mark.parametrize("begin_ms", range(100, 1_000, 200))
def test_broker_cut_off_with_its_server_is_safe(begin_ms: int, held_ms: int) -> None:
    """The last request got a response, but the leader may only know of earlier ones."""
    cut_off_with_its_server(begin_ms, held_ms)


def lease_from_last_request(patch: pytest.MonkeyPatch) -> None:
    def renew(lease: Any, sent_ms: int, answered_ms: int) -> None:
        lease._until_ms = sent_ms + lease.length_ms

    patch.setattr(Lease, "renew", renew)


def lease_from_send_time(patch: pytest.MonkeyPatch) -> None:
    right = Lease.renew
    patch.setattr(
        Lease, "renew", lambda lease, sent_ms, answered_ms: right(lease, sent_ms, sent_ms)
    )
    patch.setattr(
        cluster_membership, "_RENEWALS", 6
    )  # with eight renewals in a session, detection would depend on luck


def lease_without_expiry(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lease, "is_valid", lambda lease, now_ms: lease._until_ms is not None)


@pytest.mark.parametrize(
    ("plant", "begin_ms", "held_ms"),
    [
        (lease_from_last_request, 500, 0),
        (lease_from_send_time, 900, 3_700),
        (lease_without_expiry, 900, 0),
    ],
)
def test_wrong_lease_is_detected(
    plant: Callable[[pytest.MonkeyPatch], None],
    begin_ms: int,
    held_ms: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    with pytest.raises(StaleReadError):
        cut_off_with_its_server(begin_ms, held_ms)

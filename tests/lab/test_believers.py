"""Brokers that share shards over a ZooKeeper, on the virtual clock: the stores and the lease.

Brokers stand still, are cut off from ZooKeeper, die, and begin again; two of them may believe that
they have a shard. Whoever is answered must never be shown less than somebody was before: so what a
broker says is checked at every answer against what all have said, and what it loads against what
was acknowledged.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from partage.coordinator.records import OffsetCommitted
from partage.lab.clock import Clock
from partage.lab.coroutines import Moment, Task
from partage.lab.zookeeper import LabSession, ZooKeeper
from partage.model.settings import GroupSettings
from partage.store.founding import found_cluster
from partage.store.gathering import Gatherer
from partage.store.lease import Lease
from partage.store.roster import Roster
from partage.store.shard_log import encode_records, replay
from partage.store.shared_log import SharedLog
from partage.store.tree import BrokerDoc, Tree
from partage.store.zookeeper import ANY_VERSION, Check, InDoubt, Refused, SessionOver, StoreFault

TREE = Tree("/partage")
SHARDS = 3
TIMEOUT_MS = 6_000
RENEWALS = 4  # as in `partage.broker.cluster.leasing`
LOOKED_EVERY_MS = 2_000


class Violation(AssertionError):  # noqa: N818 - as in the laboratory
    """Somebody was shown less than somebody before."""


class World:
    """Brokers, their ZooKeeper, and what was said to clients."""

    COUNTS_FROM_ANSWER = False  # a bug to be planted

    def __init__(self, seed: int, brokers: int = 3) -> None:
        self.rng = Random(f"world {seed}")
        self.clock = Clock()
        delay_ms = self.rng.choice((1, 20, 400))
        self.zookeeper = ZooKeeper(self.clock, Random(f"zookeeper {seed}"), delay_ms)
        self.said = [-1] * SHARDS  # the last number that was shown or acknowledged
        self.answers = 0
        self.numbers = 0
        self.brokers = [Broker(self, broker_id) for broker_id in range(brokers)]
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
        match self.rng.randrange(3):
            case 0:
                broker.pause(for_ms)
            case 1:
                self.zookeeper.cut(broker.name, for_ms)
            case _:
                broker.die()
                self.clock.later(self.rng.choice((10, 2_000)), broker.start)

    def heal(self) -> None:
        self.zookeeper.heal()
        for broker in self.brokers:
            broker.resume()

    def show(self, shard: int, number: int, who: Broker) -> None:
        """A client is answered."""
        if number < self.said[shard]:
            raise Violation(f"{who.name} shows {number} of {shard} after {self.said[shard]}")
        self.said[shard] = number
        self.answers += 1


class Broker:
    """A broker's place in the cluster, one process after the other on one data directory."""

    def __init__(self, world: World, broker_id: int) -> None:
        self.world = world
        self.broker_id = broker_id
        self.name = f"broker {broker_id}"
        self.lives = 0
        self.is_up = False
        self.is_asleep = False
        self.postponed: list[Callable[[], None]] = []
        self.tasks: list[Task] = []
        self.held: dict[int, SharedLog] = {}
        self.shown: dict[int, int] = {}  # of what is loaded, the last number

    # The process.

    def start(self) -> None:
        self.die()
        self.is_up = True
        self.lives += 1
        self.spawn(self.live())

    def die(self) -> None:
        self.is_up = False
        if self.lives and hasattr(self, "session"):
            self.session.end()
        self.end_tasks()
        self.held.clear()
        self.shown.clear()

    def end_tasks(self) -> None:
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            task.cancel()

    def pause(self, for_ms: int) -> None:
        if not self.is_asleep:
            self.is_asleep = True
            self.world.clock.later(for_ms, self.resume)

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

    def spawn(self, work: Any) -> Task:
        lives = self.lives

        def when_awake(call: Callable[[], None]) -> None:
            self.when_awake(lambda: call() if lives == self.lives else None)

        task = Task(work, when_awake)
        self.tasks.append(task)
        return task

    def sleep(self, for_ms: int) -> Moment[None]:
        moment: Moment[None] = Moment()
        self.world.clock.later(for_ms, lambda: moment.come(None))
        return moment

    # Its place, as `partage.broker.cluster` has it.

    async def live(self) -> None:
        while True:
            lives = self.lives
            self.session = self.world.zookeeper.begin(
                self.name,
                TIMEOUT_MS,
                lambda call, lives=lives: self.when_awake(
                    lambda: call() if lives == self.lives else None
                ),
            )
            try:
                await self.stay(self.session)
            except SessionOver:
                self.give_up()

    def give_up(self) -> None:
        self.held.clear()
        self.shown.clear()

    async def stay(self, session: LabSession) -> None:
        self.lease = lease = Lease(session.timeout_ms)
        session.on_suspended, session.on_over = lease.suspend, self.give_up
        roster = Roster(session, TREE, self.broker_id, SHARDS)
        gatherer = Gatherer(session)
        self.gatherer, self.is_flushing = gatherer, False
        await found_cluster(session, TREE, "the cluster", SHARDS)
        me = BrokerDoc(
            host="h",
            port=self.broker_id,
            incarnation=f"{self.broker_id}.{session.session_id}",
            directory=f"directory of {self.broker_id}",
        )
        await roster.register(me)
        self.spawn(self.keep(lease, session))
        while True:
            changed: Moment[None] = Moment()
            try:
                await roster.refresh(lambda changed=changed: changed.come(None))
                await self.see_to(roster, session)
            except InDoubt:
                await session.connected()
                continue
            self.world.clock.later(LOOKED_EVERY_MS, lambda changed=changed: changed.come(None))
            await changed

    async def keep(self, lease: Lease, session: LabSession) -> None:
        try:
            while not session.is_over:
                sent_ms = self.world.clock.now_ms
                try:
                    await session.reach()
                except InDoubt:
                    await session.connected()
                    continue
                lease.renew(self.world.clock.now_ms if World.COUNTS_FROM_ANSWER else sent_ms)
                await self.sleep(session.timeout_ms // RENEWALS)
        except SessionOver:
            pass

    async def see_to(self, roster: Roster, session: LabSession) -> None:
        for shard in list(self.held):
            if roster.owner(shard) != self.broker_id:
                self.resign(shard)
        take, give = roster.wanted()
        take += [s for s in roster.owned() if s not in self.held and s not in give]
        for shard in give:
            self.resign(shard)
        if give:
            await roster.give(give)
        for tenure in await roster.take(take):
            log = SharedLog(session, TREE, tenure.shard, tenure.version, tenure.epoch)
            self.held[tenure.shard] = log
            self.spawn(self.load(log))

    def resign(self, shard: int) -> None:
        self.held.pop(shard, None)
        self.shown.pop(shard, None)

    async def load(self, log: SharedLog) -> None:
        try:
            while self.held.get(log.shard) is log:
                try:
                    content = await log.load()
                except InDoubt:
                    await self.session.connected()
                else:
                    break
        except SessionOver:
            return
        if self.held.get(log.shard) is log:
            self.shown[log.shard] = last_of(content)

    # Clients.

    def read(self, shard: int) -> None:
        if self.is_up and shard in self.shown and self.lease.holds(self.world.clock.now_ms):
            self.world.show(shard, self.shown[shard], self)

    def write(self, shard: int) -> None:
        if not self.is_up or shard not in self.shown:
            return
        log, world, lives = self.held[shard], self.world, self.lives
        world.numbers += 1
        number = world.numbers
        record = OffsetCommitted(
            group_id="g", topic="t", partition=0, offset=number, commit_ms=world.clock.now_ms
        )

        def written(fault: StoreFault | None) -> None:
            if lives != self.lives or self.held.get(shard) is not log:
                return
            if fault is not None:  # the host would load again; here the shard is taken anew
                self.resign(shard)
                return
            self.shown[shard] = number
            if self.lease.holds(world.clock.now_ms):
                world.show(shard, number, self)

        for batch in encode_records([record], world.clock.now_ms):
            self.gatherer.add(log, batch, written)
        if not self.is_flushing:
            self.is_flushing = True
            self.spawn(self.flush(self.gatherer))
        if log.wants_merging and world.rng.random() < 0.5:
            self.spawn(self.merge(log))

    async def flush(self, gatherer: Gatherer) -> None:
        try:
            await gatherer.flush()
        except SessionOver:
            return
        if gatherer is self.gatherer:
            self.is_flushing = False

    async def merge(self, log: SharedLog) -> None:
        with contextlib.suppress(Refused, InDoubt, SessionOver):
            await log.merge(at_once)


async def at_once(work: Callable[[], list[bytes]]) -> list[bytes]:
    return work()


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
        for shard in broker.shown:
            owners[shard].append(broker.name)
    assert sorted(map(len, owners.values())) == [1] * SHARDS, owners
    world.run(5_000, 0.0)
    assert world.answers > before + 5
    return world


@pytest.mark.parametrize("seed", range(20))
def test_nobody_is_shown_less_than_somebody_before(seed: int) -> None:
    world = live(seed)
    assert world.answers > 100


def a_lease_that_is_a_tenth_too_long(patch: pytest.MonkeyPatch) -> None:
    def init(lease: Any, timeout_ms: int) -> None:
        lease.length_ms = timeout_ms * 11 // 10
        lease._until_ms = None

    patch.setattr(Lease, "__init__", init)


def a_lease_that_counts_from_the_answer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(World, "COUNTS_FROM_ANSWER", True)


def a_lease_that_nobody_looks_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lease, "holds", lambda lease, now_ms: lease._until_ms is not None)


def writes_without_a_fence(patch: pytest.MonkeyPatch) -> None:
    init = SharedLog.__init__

    def unfenced(log: SharedLog, *made_of: Any) -> None:
        init(log, *made_of)
        log.fence = Check(log.fence.path, ANY_VERSION)

    patch.setattr(SharedLog, "__init__", unfenced)


#: Each with worlds that find it: most do not.
BUGS: dict[Callable[[pytest.MonkeyPatch], None], range] = {
    a_lease_that_is_a_tenth_too_long: range(38, 44),
    a_lease_that_counts_from_the_answer: range(6),
    a_lease_that_nobody_looks_at: range(6),
    writes_without_a_fence: range(180, 184),
}


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    found = list(filter(is_broken, BUGS[plant]))
    assert found, f"worlds that survive: {BUGS[plant]}"


def is_broken(seed: int) -> bool:
    try:
        live(seed)
    except Violation:
        return True
    return False

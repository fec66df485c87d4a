"""Publishing of group events by a shard's host whose shard another broker can take over."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest

from broker.group_requests import commit_request, join_request
from broker.shard_requests import RecordingPublisher
from partage.broker.cluster import session_writer
from partage.broker.coordination import shard_host
from partage.broker.coordination.shard_host import ShardHost
from partage.coordinator.outcome import GroupEvent
from partage.store.group_events import (
    GroupEventRecord,
    decode_event,
    encode_event,
    event_records,
    order_by_epoch,
)
from partage.store.memory import MemoryZooKeeper
from partage.store.shared_log import SharedLog
from partage.wire.apis.join_group import JOIN_GROUP, JoinGroupProtocol
from partage.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupMember, LeaveGroupRequest
from partage.wire.apis.offset_commit import OFFSET_COMMIT

from .group_client import error_of
from .test_shared_store import SETTINGS, WITHIN_S, StoreFixture

FORMED = ["joined", "rebalance started", "generation started"]
EMPTIED = ["left", "rebalance started", "emptied"]


class PublishingStore(StoreFixture):
    """A store whose host publishes events."""

    async def open(self, zoo: MemoryZooKeeper | None = None, broker_id: int = 1) -> PublishingStore:
        await super().open(zoo, broker_id)
        self.heard = RecordingPublisher()
        self.host = ShardHost(
            "the shard", self.store, SETTINGS, self.clock, lambda notice: None, None, self.heard
        )
        self.host.resign()
        return self

    async def form(self) -> None:
        """Form a group of one member, with a stored generation."""
        joined = self.ask(JOIN_GROUP, 3, join_request("g"))
        self.member_id = (await asyncio.wait_for(joined, WITHIN_S)).member_id

    async def empty(self) -> None:
        """The member leaves, which is stored."""
        leaver = LeaveGroupMember(member_id=self.member_id)
        self.ask(LEAVE_GROUP, 3, LeaveGroupRequest(group_id="g", members=[leaver]))
        async with asyncio.timeout(WITHIN_S):
            while (await self.other.read()).groups["g"].record.members:
                await self.turns()

    async def turns(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    def on_deposed(self, log: SharedLog) -> None:
        if self.store.log is log:  # else the log is of an earlier ownership
            super().on_deposed(log)

    def refuse(self) -> None:
        """Commit as an unknown member: it writes nothing, and is published at once."""
        request = commit_request("g", "t", {0: 1})
        request.generation_id_or_member_epoch, request.member_id = 5, "nobody"
        self.ask(OFFSET_COMMIT, 8, request)


def test_owner_publishes_with_epoch_next_owner_loaded() -> None:
    async def scenario() -> None:
        one = await PublishingStore().open()
        await one.acquire()
        await one.form()
        await one.turns()
        assert one.heard.event_types == FORMED
        two = await PublishingStore().open(one.zoo, 2)
        await two.acquire()
        assert two.heard.event_types == ["loaded"]
        (first,) = set(one.heard.epochs)
        (second,) = two.heard.epochs
        assert first is not None
        assert second is not None
        assert first < second
        one.host.close()
        two.host.close()

    asyncio.run(scenario())


def test_invalid_lease_defers_events() -> None:
    async def scenario() -> None:
        holder = await PublishingStore().open()
        await holder.acquire()
        await holder.form()
        holder.has_lease = False
        await holder.empty()
        await holder.turns()
        assert holder.heard.event_types == FORMED
        assert not holder.host.is_authoritative
        holder.has_lease = True
        holder.host.flush()
        assert holder.heard.event_types == FORMED + EMPTIED
        holder.host.close()

    asyncio.run(scenario())


def test_lost_shard_publishes_no_deferred_events() -> None:
    """Neither stored events, which the next owner publishes, nor those that are never stored."""

    async def scenario() -> None:
        holder = await PublishingStore().open()
        await holder.acquire()
        await holder.form()
        holder.has_lease = False
        await holder.empty()
        holder.refuse()
        await holder.turns()
        assert len(holder.host._unpublished) == len(EMPTIED) + 1
        assert holder.store.log is not None
        await holder.other.acquire()
        holder.on_deposed(holder.store.log)
        holder.has_lease = True
        holder.host.flush()
        holder.refuse()
        await holder.turns()
        assert holder.heard.event_types == FORMED
        holder.host.close()

    asyncio.run(scenario())


def test_fenced_writes_are_not_published() -> None:
    async def scenario() -> None:
        holder = await PublishingStore().open()
        await holder.acquire()
        await holder.other.acquire()
        joined = holder.ask(JOIN_GROUP, 3, join_request("g"))
        assert error_of(await asyncio.wait_for(joined, WITHIN_S)) == 16
        assert "generation started" not in holder.heard.event_types
        holder.host.close()

    asyncio.run(scenario())


def test_deferred_events_are_limited_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shard_host, "_UNPUBLISHED_MAX", 10)

    async def scenario() -> None:
        holder = await PublishingStore().open()
        await holder.acquire()
        await holder.form()
        await holder.turns()
        holder.has_lease = False
        for _ in range(25):
            holder.refuse()
        assert holder.heard.dropped == 15
        holder.has_lease = True
        holder.host.flush()
        assert holder.heard.event_types == [*FORMED, *["commit refused"] * 10]
        holder.host.close()

    asyncio.run(scenario())


def test_failing_publisher_affects_no_group() -> None:
    def fail(told: object) -> None:
        raise RuntimeError(told)

    async def scenario() -> None:
        holder = await PublishingStore().open()
        holder.heard._on_published = fail
        await holder.acquire()
        await holder.form()
        assert await holder.answer(1) == 25, "the group has members"
        assert holder.heard.published == []
        holder.host.close()

    asyncio.run(scenario())


STEPS = ("joins", "joins", "joins", "refuse", "take", "lapse", "renew", "learn", "turns", "turns")


class BrokerCluster:
    """Three brokers, a group of one member that rejoins repeatedly, and the published events.

    As with a real ZooKeeper, no other broker has a valid lease when a broker takes over the shard.
    The broker that lost it may notice that at any later time.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.member_id = ""
        self.joins = 0
        self.owner: PublishingStore

    async def open(self) -> BrokerCluster:
        first = await PublishingStore().open()
        self.brokers = [first] + [await PublishingStore().open(first.zoo, n) for n in (11, 21)]
        await self.take(first)
        joined = await asyncio.wait_for(first.ask(JOIN_GROUP, 3, join_request("g")), WITHIN_S)
        self.member_id = joined.member_id
        return self

    async def take(self, taker: PublishingStore) -> None:
        for broker in self.brokers:
            broker.has_lease = False
        if taker.store.log is not None:
            taker.host.resign()
        self.owner = taker
        taker.has_lease = True
        await taker.acquire()

    async def step(self) -> None:
        broker = self.chance.choice(self.brokers)
        match self.chance.choice(STEPS):
            case "joins":  # with new metadata, so that there is a new generation
                self.joins += 1
                said = [JoinGroupProtocol(name="p", metadata=b"%d" % self.joins)]
                broker.ask(JOIN_GROUP, 3, join_request("g", self.member_id, protocols=said))
            case "refuse":
                broker.refuse()
            case "take":
                await self.take(broker)
            case "lapse":
                broker.has_lease = False
            case "renew":
                self.owner.has_lease = True
                self.owner.host.flush()
            case "learn" if broker is not self.owner and broker.store.log is not None:
                broker.on_deposed(broker.store.log)
            case _:
                await broker.turns()

    def told(self) -> list[tuple[int, GroupEventRecord]]:
        """Return all events in the order of a reader, with their broker."""
        values, tellers = list[bytes](), list[int]()
        for number, broker in enumerate(self.brokers):
            for told, epoch in zip(broker.heard.published, broker.heard.epochs, strict=True):
                assert isinstance(told, GroupEvent)
                for event in filter(None, event_records(told)):
                    values.append(encode_event(msgspec.structs.replace(event, epoch=epoch)))
                    tellers.append(number)
        return [(tellers[place], decode_event(values[place])) for place in order_by_epoch(values)]


@pytest.mark.parametrize("seed", range(40))
def test_events_of_competing_brokers_form_one_history(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Generations grow by one or stay the same. Each epoch has one publisher, which begins with the
    loaded state.
    """
    monkeypatch.setattr(session_writer, "_TICK_S", 0)

    async def scenario() -> None:
        several = await BrokerCluster(seed).open()
        for _ in range(60):
            await several.step()
        several.owner.has_lease = True
        several.owner.host.flush()
        await several.owner.turns()
        told = several.told()
        tellers: dict[int | None, int] = {}
        generation = 0
        for number, event in told:
            is_first = event.epoch not in tellers
            assert tellers.setdefault(event.epoch, number) == number
            if is_first and generation:
                assert event.event == "loaded"
            if event.event == "generation started":
                assert event.generation == generation + 1
            # the last state that the previous owner stored but could not publish
            if event.event == "loaded":
                assert event.generation >= generation
            else:
                assert event.generation in (generation, generation + 1)
            generation = event.generation
        stored = await several.owner.other.read()
        assert generation == stored.groups["g"].generation
        for broker in several.brokers:
            broker.host.close()

    asyncio.run(scenario())

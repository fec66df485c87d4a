"""What a shard's host tells of its groups, on a store that others may take away."""

from __future__ import annotations

import asyncio

import pytest

from broker.grouping import committing, joining
from broker.kept import Told
from partage.broker import shard_host
from partage.broker.shard_host import ShardHost
from partage.store.memory import MemoryZooKeeper
from partage.wire.apis.join_group import JOIN_GROUP
from partage.wire.apis.offset_commit import OFFSET_COMMIT

from .asking import error_of
from .test_shared_store import SETTINGS, WITHIN_S, Holder

FORMED = ["joined", "rebalance started", "generation started"]


class Telling(Holder):
    """A holder whose host tells what happens."""

    async def open(self, zoo: MemoryZooKeeper | None = None, broker_id: int = 1) -> Telling:
        await super().open(zoo, broker_id)
        self.heard = Told()
        self.host = ShardHost(
            "the shard", self.store, SETTINGS, self.clock, lambda notice: None, None, self.heard
        )
        self.host.resign()
        return self

    async def form(self) -> None:
        """A group of one, whose generation is stored, whoever is told."""
        self.ask(JOIN_GROUP, 3, joining("g"))
        while not (await self.other.read()).groups.get("g"):
            await self.turns()

    async def turns(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    def refuse(self) -> None:
        """A commit of somebody unknown: it writes nothing, and is told of at once."""
        request = committing("g", "t", {0: 1})
        request.generation_id_or_member_epoch, request.member_id = 5, "nobody"
        self.ask(OFFSET_COMMIT, 8, request)


def test_who_has_the_shard_tells_with_its_epoch_and_the_next_what_it_found() -> None:
    async def scenario() -> None:
        one = await Telling().open()
        await one.take()
        await one.form()
        await one.turns()
        assert one.heard.happened == FORMED
        two = await Telling().open(one.zoo, 2)
        await two.take()
        assert two.heard.happened == ["loaded"]
        (first,) = set(one.heard.epochs)
        (second,) = two.heard.epochs
        assert first is not None
        assert second is not None
        assert first < second
        one.host.close()
        two.host.close()

    asyncio.run(scenario())


def test_without_a_lease_nothing_is_told_until_it_is_renewed() -> None:
    async def scenario() -> None:
        holder = await Telling().open()
        await holder.take()
        holder.has_lease = False
        await holder.form()
        await holder.turns()
        assert holder.heard.told == []
        assert not holder.host.is_sure
        holder.has_lease = True
        holder.host.settle()
        assert holder.heard.happened == FORMED
        holder.host.close()

    asyncio.run(scenario())


def test_who_lost_the_shard_in_silence_tells_nothing_of_what_it_saw_since() -> None:
    """Neither what is stored, for the next owner tells what it found, nor what never is."""

    async def scenario() -> None:
        holder = await Telling().open()
        await holder.take()
        holder.has_lease = False
        await holder.form()
        holder.refuse()
        await holder.turns()
        assert len(holder.host._unpublished) == len(FORMED) + 1
        holder.deposed(await holder.other.take())
        holder.has_lease = True
        holder.host.settle()
        holder.refuse()
        await holder.turns()
        assert holder.heard.told == []
        holder.host.close()

    asyncio.run(scenario())


def test_who_was_deposed_without_knowing_tells_of_no_write_that_was_refused() -> None:
    async def scenario() -> None:
        holder = await Telling().open()
        await holder.take()
        await holder.other.take()
        joined = holder.ask(JOIN_GROUP, 3, joining("g"))
        assert error_of(await asyncio.wait_for(joined, WITHIN_S)) == 16
        assert "generation started" not in holder.heard.happened
        holder.host.close()

    asyncio.run(scenario())


def test_what_waits_for_long_has_bounds_and_the_rest_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shard_host, "_UNPUBLISHED_MAX", 10)

    async def scenario() -> None:
        holder = await Telling().open()
        await holder.take()
        await holder.form()
        await holder.turns()
        holder.has_lease = False
        for _ in range(25):
            holder.refuse()
        assert holder.heard.lost == 15
        holder.has_lease = True
        holder.host.settle()
        assert holder.heard.happened == [*FORMED, *["commit refused"] * 10]
        holder.host.close()

    asyncio.run(scenario())

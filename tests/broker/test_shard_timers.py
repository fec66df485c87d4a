"""Timers of a shard whose loop has much to do."""

from __future__ import annotations

import asyncio

import pytest

from partage.broker.clock import Clock
from partage.broker.shard_host import ShardHost
from partage.coordinator.outcome import Happening, Notice
from partage.coordinator.records import GroupSaved, SavedMember
from partage.model.settings import GroupSettings

from .test_shard_host import Alone

SILENT = GroupSaved(
    group_id="g",
    protocol_type="consumer",
    protocol="range",
    generation=1,
    leader="m",
    members=(
        SavedMember(
            member_id="m",
            instance_id=None,
            client_id="c",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=60_000,
            session_timeout_ms=1_000,
            subscription=b"",
        ),
    ),
)


class TurnedClock(Clock):
    """A clock that can be put forward."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class TurnedLoop(asyncio.SelectorEventLoop):
    """A loop that goes by such a clock."""

    clock: TurnedClock

    def time(self) -> float:
        return super().time() + self.clock.ahead_ms / 1000


@pytest.mark.parametrize("turn_ms", [110, 150, 220, 330])
def test_however_long_turns_take_the_silent_are_taken_for_dead(turn_ms: int) -> None:
    """How long the loop reads what has arrived is no standstill, after which timers wait."""
    clock = TurnedClock()

    async def scenario() -> None:
        alone = await Alone().open()
        await alone.stored(SILENT)
        gone: list[Notice] = []
        host = ShardHost("busy", alone.store, GroupSettings(), clock, gone.append)
        host.load()
        await asyncio.wait_for(host.loaded(), 10)
        for _ in range(60):
            clock.ahead_ms += turn_ms
            await asyncio.sleep(0)
        assert [notice.member_id for notice in gone if notice.happening is Happening.EXPIRED] == [
            "m"
        ]
        host.close()

    def made() -> TurnedLoop:
        loop = TurnedLoop()
        loop.clock = clock
        return loop

    with asyncio.Runner(loop_factory=made) as runner:
        runner.run(scenario())

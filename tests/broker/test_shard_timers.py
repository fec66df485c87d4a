"""Timers of a shard whose event loop is busy or stalled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine

import pytest

from partage.broker.clock import Clock
from partage.broker.coordination.shard_host import ShardHost
from partage.broker.net.turn_limiter import TurnLimiter
from partage.coordinator.outcome import GroupEvent, GroupEventType
from partage.coordinator.records import GroupRecord, MemberRecord
from partage.model.settings import GroupSettings
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest

from .shard_requests import ask
from .test_shard_host import HostFixture


def silent(**sessions_ms: int) -> GroupRecord:
    """Return a group whose members send nothing, with these session timeouts."""
    return GroupRecord(
        group_id="g",
        protocol_type="consumer",
        protocol="range",
        generation=1,
        leader="m",
        members=tuple(
            MemberRecord(
                member_id=name,
                instance_id=None,
                client_id="c",
                client_host="/127.0.0.1",
                rebalance_timeout_ms=60_000,
                session_timeout_ms=session_ms,
                subscription=b"",
            )
            for name, session_ms in sessions_ms.items()
        ),
    )


class ManualClock(Clock):
    """A clock that a test advances."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class ManualLoop(asyncio.SelectorEventLoop):
    """An event loop with such a clock."""

    clock: ManualClock

    def time(self) -> float:
        return super().time() + self.clock.ahead_ms / 1000


class TimerFixture:
    """A shard of silent members, the loop's clock, and the expired members."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.may_answer = True
        self._gone: list[GroupEvent] = []

    async def open(self, saved: GroupRecord) -> None:
        alone = await HostFixture().open()
        await alone.stored(saved)
        setattr(alone.store, "may_answer", lambda: self.may_answer)  # noqa: B010 - its class says always
        self.turns = TurnLimiter()
        self.host = ShardHost(
            "busy",
            alone.store,
            GroupSettings(),
            self.clock,
            self._gone.append,
            turns=self.turns,
        )
        self.host.load()
        await asyncio.wait_for(self.host.wait_loaded(), 10)

    async def turn(self, ahead_ms: int, turns: int = 1) -> None:
        """Run turns of the loop; the first one takes ``ahead_ms``."""
        self.clock.ahead_ms += ahead_ms
        for _ in range(turns):
            await asyncio.sleep(0)

    @property
    def expired(self) -> list[str | None]:
        return [n.member_id for n in self._gone if n.event_type is GroupEventType.EXPIRED]


def run_scenario(scenario: Callable[[TimerFixture], Coroutine[None, None, None]]) -> None:
    """Run a scenario on a loop whose clock a test advances."""
    clock = ManualClock()

    def made() -> ManualLoop:
        loop = ManualLoop()
        loop.clock = clock
        return loop

    async def run() -> None:
        shard = TimerFixture(clock)
        await scenario(shard)
        shard.host.close()

    with asyncio.Runner(loop_factory=made) as runner:
        runner.run(run())


@pytest.mark.parametrize("turn_ms", [110, 150, 220, 330])
def test_slow_loop_turns_still_expire_silent_members(turn_ms: int) -> None:
    """The time for reading received requests is not a stall, after which timers would wait."""

    async def scenario(shard: TimerFixture) -> None:
        await shard.open(silent(m=1_000))
        for _ in range(60):
            await shard.turn(turn_ms)
        assert shard.expired == ["m"]

    run_scenario(scenario)


@pytest.mark.parametrize("jump_s", [-86_400, 86_400])
def test_wall_clock_jump_neither_expires_nor_prolongs_session(
    jump_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wall clock jumps by a day when half of the session of 10 s has passed."""

    async def scenario(shard: TimerFixture) -> None:
        await shard.open(silent(m=10_000))
        for _ in range(50):
            await shard.turn(100, turns=4)
        wall_ms = shard.clock.wall_ms()
        wall_s, wall_ns = time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: wall_s() + jump_s)
        monkeypatch.setattr(time, "time_ns", lambda: wall_ns() + jump_s * 10**9)
        assert abs(shard.clock.wall_ms() - wall_ms - jump_s * 1_000) < 10_000
        for _ in range(40):
            await shard.turn(100, turns=4)
        assert shard.expired == [], "9 of 10 s have passed"
        for _ in range(40):
            await shard.turn(100, turns=4)
        assert shard.expired == ["m"], "13 s have passed"

    run_scenario(scenario)


def test_second_stall_defers_newly_due_members() -> None:
    """Members due in the first stall have expired; the second stall is no longer than the grace
    period.
    """

    async def scenario(shard: TimerFixture) -> None:
        await shard.open(silent(m=1_000, n=5_000))
        await shard.turn(3_000, turns=9)
        assert shard.expired == [], "it rests for two seconds"
        await shard.turn(3_900, turns=9)
        assert shard.expired == ["m"]
        await shard.turn(2_000, turns=9)
        assert shard.expired == ["m", "n"]

    run_scenario(scenario)


def test_request_that_waits_for_its_turn_is_handled_before_timers() -> None:
    """A member is due while its request waits behind those of seven turns of the loop."""

    async def scenario(shard: TimerFixture) -> None:
        await shard.open(silent(m=1_000, n=1_000))

        def heartbeat() -> None:
            request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
            ask(shard.host, HEARTBEAT, 4, request, shard.clock.now_ms())

        await shard.turn(990)
        for _ in range(8 * 64 - 1):
            shard.turns.take_turn(lambda: None)
        assert not shard.turns.take_turn(heartbeat)
        await shard.turn(20, turns=20)
        assert shard.expired == ["n"]

    run_scenario(scenario)


def test_invalid_lease_defers_due_members() -> None:
    """Members get no responses and therefore send nothing; timers wait as long as that lasts."""

    async def scenario(shard: TimerFixture) -> None:
        await shard.open(silent(m=1_000))
        shard.may_answer = False
        for _ in range(30):
            await shard.turn(100, turns=4)
        assert shard.expired == []
        shard.may_answer = True
        shard.host.flush()
        for _ in range(18):
            await shard.turn(100, turns=4)
        assert shard.expired == []
        for _ in range(6):
            await shard.turn(100, turns=4)
        assert shard.expired == ["m"]

    run_scenario(scenario)

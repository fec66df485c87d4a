"""The processes of a world's brokers: connections, pauses, and failures in their tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from partage.broker.cluster.cluster_membership import ClusterMembership
from partage.lab import history, runner
from partage.lab.brokers.broker import SimulatedBroker
from partage.lab.environment.network import SimConnection
from partage.lab.runner import draw_scenario, run_scenario
from partage.lab.world import World

#: A world with two brokers.
SEED = 5


@contextmanager
def running_world() -> Iterator[World]:
    """Run the brokers of a world, without clients and faults."""
    world = World(draw_scenario(SEED))
    world.start_brokers()
    world.clock.run(500)
    assert all(broker.is_up for broker in world.brokers)
    try:
        yield world
    finally:
        world.end()


class ClientEnd:
    """The client's end of a connection."""

    def data_received(self, data: bytes) -> None:
        """Ignore received bytes."""

    def connection_lost(self) -> None:
        """Ignore the loss."""


def connection_count(broker: SimulatedBroker) -> int:
    """Return how many connections a broker serves."""
    assert broker._broker is not None
    return len(broker._broker.server.connections)


def raise_at(
    patch: pytest.MonkeyPatch, kind: type[history.HistoryEntry], number: int
) -> Callable[[], int]:
    """Let a rule be broken at an entry of the next world; return the function that counts them."""
    seen: list[history.HistoryEntry] = []

    def judge(entry: history.HistoryEntry) -> None:
        seen.append(entry)
        if len(seen) == number:
            raise history.RuleViolationError("planted", "a task of the broker")

    def attach(found: history.History, *settings: object, **options: object) -> None:
        found.subscribe(kind, judge)

    patch.setattr(runner, "attach_checkers", attach)
    return lambda: len(seen)


@pytest.mark.parametrize("kind", [history.ShardLoaded, history.ShardAcquired])
def test_rule_that_a_task_breaks_fails_the_world(
    kind: type[history.HistoryEntry], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task loads a shard, and no code awaits it."""
    count = raise_at(monkeypatch, kind, 2)
    _, verdict = run_scenario(draw_scenario(SEED))
    assert count() == 2
    assert verdict.rule == "planted"


def test_exception_that_a_task_logs_fails_the_world(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(membership: ClusterMembership) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(ClusterMembership, "_run_session", fail)
    _, verdict = run_scenario(draw_scenario(SEED))
    assert verdict.rule == "ZeroDivisionError"


@pytest.mark.parametrize("delay_ms", range(0, 12, 3))
def test_connection_that_is_lost_while_it_opens_raises(delay_ms: int) -> None:
    with running_world() as world:
        first, second = world.brokers[:2]
        ends: list[str] = []
        accept = second.accept

        def accept_and_die(connection: SimConnection) -> object:
            transport = accept(connection)
            world.clock.call_later(0, lambda: second.die("planted"))
            return transport

        second.accept = accept_and_die  # type: ignore[method-assign,assignment]  # the fault

        class Protocol(asyncio.Protocol):
            def connection_lost(self, error: Exception | None) -> None:
                ends.append("lost")

        async def connect() -> None:
            try:
                await asyncio.get_running_loop().create_connection(Protocol, "broker-2", 9092)
            except OSError:
                ends.append("refused")

        world.clock.run(delay_ms)
        first.spawn(connect())
        world.clock.run(300)
        assert len(ends) == 1


def test_code_after_a_connection_has_a_running_loop() -> None:
    with running_world() as world:
        found: list[object] = []

        async def connect() -> None:
            loop = asyncio.get_running_loop()
            await loop.create_connection(asyncio.Protocol, "broker-2", 9092)
            found.append(asyncio.get_running_loop())
            await asyncio.sleep(0.001)
            found.append(asyncio.get_running_loop())

        world.brokers[0].spawn(connect())
        world.clock.run(300)
        assert found == [world.brokers[0]._loop] * 2


def test_paused_process_accepts_connections_after_its_pause() -> None:
    with running_world() as world:
        broker = world.brokers[0]
        before = connection_count(broker)
        broker.pause(5_000)
        world.network.connect("client", broker.broker_id, ClientEnd(), lambda connection: None)
        world.clock.run(100)
        assert connection_count(broker) == before
        broker.resume()
        assert connection_count(broker) == before + 1


def test_process_that_pauses_again_runs_the_other_calls_later() -> None:
    with running_world() as world:
        broker = world.brokers[1]
        broker.pause(100)
        ran: list[str] = []
        broker.when_awake(lambda: broker.pause(1_000))
        broker.when_awake(lambda: ran.append("later"))
        world.clock.run(200)
        assert ran == []
        broker.resume()
        assert ran == ["later"]


def test_process_that_has_died_is_not_paused() -> None:
    with running_world() as world:
        broker = world.brokers[1]
        broker.pause(10_000)
        broker.die("planted")
        before = len(world.history.entries)
        broker.resume()
        assert len(world.history.entries) == before

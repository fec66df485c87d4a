"""Takeover of shards between the brokers of a world."""

from __future__ import annotations

from functools import partial

import pytest

from partage.lab import history
from partage.lab.brokers.broker import SimulatedBroker
from partage.lab.runner import draw_scenario, execute_plan
from partage.lab.world import World
from partage.store.zk_schema import StateDoc, ZkPaths, decode

TIMEOUT_MS = 6_000
ZK_PATHS = ZkPaths("/partage")


@pytest.fixture
def world() -> World:
    """Two brokers with one shard, and a stable member."""
    return stable_world()


def stable_world(**more: int) -> World:
    changes = {
        "brokers": 2,
        "shards": 1,
        "members": 1,
        "members_max": 10,
        "zookeeper_timeout_ms": TIMEOUT_MS,
        "zookeeper_delay_max_ms": 20,
    } | more
    world = World(draw_scenario(7, kept=(), changes=changes))
    execute_plan(world)
    assert world.members()[0].core.owned
    return world


def coordinator_of(world: World) -> SimulatedBroker:
    coordinator = world.coordinator()
    assert coordinator is not None
    return coordinator


def loads(world: World) -> list[history.ShardLoaded]:
    return [entry for entry in world.history.entries if isinstance(entry, history.ShardLoaded)]


def test_stopped_broker_hands_over_at_once(world: World) -> None:
    stopped, before = coordinator_of(world), len(loads(world))
    assert stopped.shut_down(within_ms=TIMEOUT_MS)
    world.clock.run(TIMEOUT_MS // 3)
    assert coordinator_of(world) is not stopped
    assert len(loads(world)) == before + 1
    assert stopped.is_up
    world.clock.run(TIMEOUT_MS)
    died = [entry for entry in world.history.entries if isinstance(entry, history.BrokerDied)]
    assert [entry.cause for entry in died] == ["clean shutdown"]


def test_killed_broker_owns_until_session_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = coordinator_of(world)
    monkeypatch.setattr(world, "schedule_restart", lambda start: None)
    killed.die("killed")
    world.clock.run(TIMEOUT_MS // 2)
    assert world.coordinator() is None
    world.clock.run(TIMEOUT_MS)
    assert coordinator_of(world) is not killed


def test_failed_shard_reloads_on_same_broker(world: World) -> None:
    coordinator, last = coordinator_of(world), loads(world)[-1]
    coordinator.host_of("g").reload()
    assert world.coordinator() is None
    world.clock.run(TIMEOUT_MS)
    assert coordinator_of(world) is coordinator
    assert loads(world)[-1].epoch == last.epoch + 1


def test_log_merges_after_entries_per_merge() -> None:
    assert merged(stable_world(entries_per_merge=1_000)) == 0
    assert merged(stable_world(entries_per_merge=3)) > 3


def merged(world: World) -> int:
    """Return the number of merged log entries."""
    assert world.zookeeper is not None
    path = ZK_PATHS.state(0)
    return decode(path, world.zookeeper.nodes.nodes[path].data, StateDoc).first


def test_incomplete_log_is_loaded_again(world: World) -> None:
    assert world.zookeeper is not None
    coordinator, before = coordinator_of(world), len(loads(world))
    lost = world.zookeeper.nodes.nodes.pop(ZK_PATHS.entry(0, 0))
    coordinator.host_of("g").reload()
    world.clock.run(TIMEOUT_MS)
    assert len(loads(world)) == before
    world.zookeeper.nodes.nodes[ZK_PATHS.entry(0, 0)] = lost
    world.clock.run(2 * TIMEOUT_MS)
    assert len(loads(world)) > before


def test_owned_shards_without_log_are_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = stable_world(shards=2)
    first, second = world.brokers
    monkeypatch.setattr(world, "schedule_restart", lambda start: None)
    second.die("killed")
    world.clock.run(2 * TIMEOUT_MS)
    assert first._broker is not None
    membership = first._broker.cluster
    assert membership is not None
    owned = membership._owned_shards
    assert [owned.owns(shard) for shard in (0, 1)] == [True, True]
    for shard in (0, 1):
        first.enter(partial(owned._resign, shard))
    second.start()
    world.clock.run(2 * TIMEOUT_MS)
    owners = [world.shard_owner(shard) for shard in (0, 1)]
    assert {owner and owner.broker_id for owner in owners} == {1, 2}

"""The four failure points of the proposal: the coordinator of a group of three dies at each.

One of them is repeated with a process that kills itself, and a real ZooKeeper.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.group_requests import sync_request
from partage.lab.brokers.zookeeper_session import SimulatedSession
from partage.store.shard_log import shard_of
from partage.store.zookeeper import Operation
from partage.testing import PartageWorld
from partage.wire.apis.join_group import JoinGroupResponse
from partage.wire.apis.sync_group import SYNC_GROUP, SyncGroupRequest

from .brokers import OVERRIDES, ClusterBroker, brokers
from .crashing_broker import CRASH_POINTS, stored_groups
from .group_client import GroupClient
from .world_group_client import WorldGroupClient
from .zookeeper_ensemble import Ensemble

Result = tuple[JoinGroupResponse, bytes]

BEFORE_GENERATION, AFTER_GENERATION, BEFORE_SYNC, AFTER_SYNC = CRASH_POINTS
MEMBERS = 3
#: Time for all members to join the first generation.
DELAY = {"group.initial.rebalance.delay.ms": "3000"}
ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS = 22, 27
SHARDS = int(OVERRIDES["offsets.topic.num.partitions"])
#: In the first shard, which the first broker keeps when another one joins.
GROUP = next(name for n in range(100) if not shard_of(name := f"victim{n}", SHARDS))
GENERATIONS = {
    # No client knows that generation, so the new coordinator's first generation is 1.
    BEFORE_GENERATION: 1,
    # It was stored and waits for its sync, but its members rejoin: generation 2.
    AFTER_GENERATION: 2,
    # A sync that is repeated or was stored needs no new generation.
    BEFORE_SYNC: 1,
    AFTER_SYNC: 1,
}


def kill_at_point(world: PartageWorld, monkeypatch: pytest.MonkeyPatch, point: str) -> list[str]:
    """Kill the group's coordinator once, at a point; return its name in a list then."""
    when, what = point.split(" ", 1)
    awaits_sync = "generation" in what
    transact = SimulatedSession.transact
    killed: list[str] = []

    async def die() -> None:
        coordinator = world.coordinator(GROUP)
        assert coordinator is not None
        killed.append(coordinator)
        world.kill(coordinator)
        await asyncio.Event().wait()  # a killed process runs no more code

    async def dying(self: SimulatedSession, operations: Sequence[Operation]) -> None:
        is_it = not killed and any(
            record.members and record.awaiting_sync is awaits_sync
            for record in stored_groups(operations, GROUP)
        )
        if is_it and when == "before":
            await die()
        await transact(self, operations)
        if is_it:
            await die()

    monkeypatch.setattr(SimulatedSession, "transact", dying)
    return killed


@pytest.mark.partage_world(brokers=2)
@pytest.mark.parametrize("point", CRASH_POINTS)
async def test_coordinator_dies_at_failure_point(
    partage_world: PartageWorld, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    world = partage_world
    killed = kill_at_point(world, monkeypatch, point)
    results = await asyncio.gather(*(join_and_sync_in_world(world) for _ in range(MEMBERS)))
    check_results(point, results)
    async with WorldGroupClient(world, GROUP) as client:
        assert [await client.find()] == [each for each in world.brokers if each not in killed]
        for joined, _ in results:
            assert await client.heartbeat(joined) == 0


async def join_and_sync_in_world(world: PartageWorld) -> Result:
    """Run one member until it has an assignment, as `join_and_sync` does."""
    async with WorldGroupClient(world, GROUP) as client:
        member_id = ""
        while True:
            joined = await client.join(member_id, session_timeout_ms=60_000)
            assert joined.error_code == 0
            member_id = joined.member_id
            synced = await client.request(SYNC_GROUP, sync_with_ids(joined))
            if synced.error_code == 0:
                return joined, synced.assignment
            assert synced.error_code in (REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION)


class CrashingBroker(ClusterBroker):
    """A broker that dies at a point."""

    point = ""

    @property
    def flag(self) -> Path:
        return self.directory.with_suffix(".died")

    def command(self) -> list[str]:
        command = [
            sys.executable,
            "-m",
            "cluster.crashing_broker",
            self.point,
            str(self.flag),
            GROUP,
        ]
        return command + super().command()[3:]


@pytest.mark.slow
@pytest.mark.xdist_group("zookeeper")
@pytest.mark.timeout(600)
def test_coordinator_process_dies_after_generation_is_stored(
    zookeeper: Ensemble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    path = "/tests/point"
    state = f"zookeeper://{zookeeper.connect_string}{path}"
    dying = CrashingBroker(1, tmp_path / "broker1", state, DELAY)
    dying.point = AFTER_GENERATION
    dying.launch()
    try:
        dying.wait_ready()
        with (
            brokers(tmp_path, zookeeper.connect_string, path, (2,), DELAY) as others,
            ThreadPoolExecutor(MEMBERS) as members,
        ):
            running = [dying, *others.values()]
            with GroupClient(running, GROUP) as client:
                assert client.find()[0] == 1
            joins = [members.submit(join_and_sync, running) for _ in range(MEMBERS)]
            results = [each.result() for each in joins]
            assert dying.flag.exists()
            dying.wait()
            check_results(AFTER_GENERATION, results)
            with GroupClient(running, GROUP) as client:
                assert client.find()[0] == 2
                for joined, _ in results:
                    assert client.heartbeat(joined) == 0
    finally:
        if dying.is_running:
            dying.kill()


def join_and_sync(running: Sequence[ClusterBroker]) -> Result:
    """Run one member until it has an assignment; it rejoins if a rebalance is running."""
    with GroupClient(running, GROUP) as client:
        member_id = ""
        while True:
            joined = client.join(member_id, session_timeout_ms=60_000)
            assert joined.error_code == 0
            member_id = joined.member_id
            synced = client.request(SYNC_GROUP, sync_with_ids(joined))
            if synced.error_code == 0:
                return joined, synced.assignment
            assert synced.error_code in (REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION)


def sync_with_ids(joined: JoinGroupResponse) -> SyncGroupRequest:
    """Return the sync of a member; the leader gives each member its id as assignment."""
    assignments = {each.member_id: each.member_id.encode() for each in joined.members}
    return sync_request(GROUP, joined, assignments)


def check_results(point: str, results: Sequence[Result]) -> None:
    """Check that all members are in one generation."""
    assert {joined.generation_id for joined, _ in results} == {GENERATIONS[point]}
    assert len({joined.member_id for joined, _ in results}) == MEMBERS
    assert len({joined.leader for joined, _ in results}) == 1
    for joined, assignment in results:
        assert assignment == joined.member_id.encode()

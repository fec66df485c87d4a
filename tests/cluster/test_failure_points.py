"""The four failure points of the proposal, each with a coordinator process that dies there."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.group_requests import sync_request
from partage.store.shard_log import shard_of
from partage.wire.apis.join_group import JoinGroupResponse
from partage.wire.apis.sync_group import SYNC_GROUP

from .brokers import OVERRIDES, ClusterBroker, brokers
from .crashing_broker import CRASH_POINTS
from .group_client import GroupClient
from .zookeeper_ensemble import Ensemble

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("zookeeper"), pytest.mark.timeout(600)]

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


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(BEFORE_GENERATION, marks=pytest.mark.interop),
        AFTER_GENERATION,
        BEFORE_SYNC,
        pytest.param(AFTER_SYNC, marks=pytest.mark.interop),
    ],
)
def test_coordinator_dies_at_failure_point(
    zookeeper: Ensemble, tmp_path: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    path = f"/tests/point{CRASH_POINTS.index(point)}"
    state = f"zookeeper://{zookeeper.connect_string}{path}"
    dying = CrashingBroker(1, tmp_path / "broker1", state, DELAY)
    dying.point = point
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
            check_group(point, results, running)
    finally:
        if dying.is_running:
            dying.kill()


def join_and_sync(running: Sequence[ClusterBroker]) -> tuple[JoinGroupResponse, bytes]:
    """Run one member until it has an assignment; it rejoins if a rebalance is running.

    The leader gives each member its id as assignment.
    """
    with GroupClient(running, GROUP) as client:
        member_id = ""
        while True:
            joined = client.join(member_id, session_timeout_ms=60_000)
            assert joined.error_code == 0
            member_id = joined.member_id
            assignments = {each.member_id: each.member_id.encode() for each in joined.members}
            synced = client.request(SYNC_GROUP, sync_request(GROUP, joined, assignments))
            if synced.error_code == 0:
                return joined, synced.assignment
            assert synced.error_code in (REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION)


def check_group(
    point: str,
    results: Sequence[tuple[JoinGroupResponse, bytes]],
    running: Sequence[ClusterBroker],
) -> None:
    """Check that all members are in one generation of the new coordinator."""
    with GroupClient(running, GROUP) as client:
        assert client.find()[0] == 2
        assert {joined.generation_id for joined, _ in results} == {GENERATIONS[point]}
        assert len({joined.member_id for joined, _ in results}) == MEMBERS
        assert len({joined.leader for joined, _ in results}) == 1
        for joined, assignment in results:
            assert assignment == joined.member_id.encode()
            assert client.heartbeat(joined) == 0

"""The four failure points of the proposal, each with a coordinator process that dies there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from partage.store.shard_log import shard_of

from .brokers import OVERRIDES, ClusterBroker, brokers
from .crashing_broker import CRASH_POINTS
from .group_client import GroupClient
from .zookeeper_ensemble import Ensemble

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("zookeeper"), pytest.mark.timeout(240)]

BEFORE_GENERATION, AFTER_GENERATION, BEFORE_SYNC, AFTER_SYNC = CRASH_POINTS
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
    dying = CrashingBroker(1, tmp_path / "broker1", state, {})
    dying.point = point
    dying.launch()
    try:
        dying.wait_ready()
        with (
            brokers(tmp_path, zookeeper.connect_string, path, ids=(2,)) as others,
            GroupClient([dying, *others.values()], GROUP) as client,
        ):
            play(point, dying, client)
    finally:
        if dying.is_running:
            dying.kill()


def play(point: str, dying: CrashingBroker, client: GroupClient) -> None:
    assert client.find()[0] == 1
    joined = client.join(session_timeout_ms=60_000)
    assert joined.error_code == 0
    if point in (BEFORE_GENERATION, AFTER_GENERATION):
        assert dying.flag.exists()
        dying.wait()
    synced = client.sync(joined)
    if point in (BEFORE_SYNC, AFTER_SYNC):
        assert dying.flag.exists()
        dying.wait()
    assert client.find()[0] == 2
    assert synced.error_code == 0
    assert synced.assignment == b"all"
    assert client.heartbeat(joined) == 0
    assert joined.generation_id == GENERATIONS[point]

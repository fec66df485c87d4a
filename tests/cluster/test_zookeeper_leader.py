"""The leader of three ZooKeeper servers is killed: groups wait for a new one, and continue."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest

from group_descriptions import describe_group
from polled_conditions import eventually

from .brokers import brokers, create
from .group_client import GroupClient
from .group_members import SuppliedConsumerPair
from .soak_groups import FAILOVERS, GROUPS, Cluster, WatchedGroup, summary
from .zookeeper_ensemble import ZooKeeperServer, ensemble

pytestmark = [pytest.mark.xdist_group("zookeeper")]


def is_serving(server: ZooKeeperServer) -> bool:
    return server.mode in ("leader", "follower")


def known_of(cluster: Cluster, group: str) -> dict[str, int]:
    """Return the generation of each member."""
    with GroupClient(list(cluster.values()), group) as asking:
        members = describe_group(cluster[1].address, group).members
        return {each.member_id: asking.generation(each.member_id) for each in members}


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(1, marks=[pytest.mark.interop, pytest.mark.timeout(600)]),
        pytest.param(
            max(2, FAILOVERS // 10), marks=[pytest.mark.soak, pytest.mark.timeout(3600)], id="many"
        ),
    ],
)
def test_killed_zookeeper_leader_keeps_groups(
    tmp_path: Path, kills: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Brokers keep their shards, or another one takes them over. In both cases groups continue, and
    real members read each record once.
    """
    times_s: list[float] = []
    with (
        ensemble(tmp_path / "ensemble", 3) as servers,
        brokers(tmp_path, servers.connect_string, "/tests/leader", ids=(1, 2)) as cluster,
    ):
        create(cluster, "t", [1])
        create(cluster, "flights", [1, 2, 1, 2])
        groups = [WatchedGroup(cluster, f"g{n}") for n in range(GROUPS)]
        members = SuppliedConsumerPair(cluster, "real", "flights", partitions=4)
        try:
            members.wait_shared()
            assigned, known = members.assigned, known_of(cluster, "real")
            assert len(known) == 2
            for turn in range(kills):
                for each in groups:
                    each.commit()
                leader = servers.leader
                began = time.monotonic()
                leader.kill()
                groups[turn % GROUPS].commit()
                times_s.append(time.monotonic() - began)
                members.wait_commits()
                for each in groups:
                    each.commit()
                    each.check()
                assert known_of(cluster, "real") == known
                leader.start()
                servers.wait_ready()
                eventually(partial(is_serving, leader))
                members.wait_commits()
            assert members.assigned == assigned
            members.check_all_was_read_once()
        finally:
            members.stop()
        for each in groups:
            each.client.close()
    with capsys.disabled():
        print(f"\n{summary('deaths of the leader of three ZooKeepers', times_s)}")

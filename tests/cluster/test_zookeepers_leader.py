"""One of three ZooKeeper servers dies, the leader: groups wait for another, and go on."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest

from waiting import eventually

from .asking import GroupClient
from .brokers import brokers, create
from .ensemble import Server, ensemble
from .members import Supplied, described
from .watched import FAILOVERS, GROUPS, Cluster, Group, figures

pytestmark = [pytest.mark.xdist_group("zookeeper")]


def is_serving(server: Server) -> bool:
    return server.mode in ("leader", "follower")


def known_of(cluster: Cluster, group: str) -> dict[str, int]:
    """The generation of each member."""
    with GroupClient(list(cluster.values()), group) as asking:
        members = described(cluster[1], group).members
        return {each.member_id: asking.generation(each.member_id) for each in members}


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(1, marks=[pytest.mark.interop, pytest.mark.timeout(300)]),
        pytest.param(
            max(2, FAILOVERS // 10), marks=[pytest.mark.soak, pytest.mark.timeout(3600)], id="many"
        ),
    ],
)
def test_zookeepers_leader_is_killed(
    tmp_path: Path, kills: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody loses a shard for it, or another takes it over; in any case groups go on, and real
    members read everything once.
    """
    times_s: list[float] = []
    with (
        ensemble(tmp_path / "ensemble", 3) as servers,
        brokers(tmp_path, servers.servers_at, "/tests/leader", ids=(1, 2)) as cluster,
    ):
        create(cluster, "t", [1])
        create(cluster, "flights", [1, 2, 1, 2])
        groups = [Group(cluster, f"g{n}") for n in range(GROUPS)]
        members = Supplied(cluster, "real", "flights", partitions=4)
        try:
            members.share()
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
                members.go_on()
                for each in groups:
                    each.commit()
                    each.check()
                assert known_of(cluster, "real") == known
                leader.start()
                servers.ready()
                eventually(partial(is_serving, leader))
                members.go_on()
            assert members.assigned == assigned
            members.check_all_was_read_once()
        finally:
            members.stop()
        for each in groups:
            each.client.close()
    with capsys.disabled():
        print(f"\n{figures('deaths of the leader of three ZooKeepers', times_s)}")

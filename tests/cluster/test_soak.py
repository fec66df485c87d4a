"""Failovers by the dozen: ``make soak``. SOAK_FAILOVERS says how many of each kind, 50 by default.

Twenty groups, each of one member that commits, on three brokers. The coordinator of one of them is
killed, or stopped with commits waiting in its sockets; the time runs until another broker has
acknowledged a commit. Groups must keep their generation, and an acknowledged offset its place; and
what all brokers told of them in the end is that, and who took them over.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from functools import partial
from pathlib import Path

import pytest

from broker.grouping import committing
from broker.raw import Raw
from partage.wire.apis.join_group import JoinGroupResponse
from partage.wire.apis.offset_commit import OFFSET_COMMIT
from waiting import eventually

from .asking import GroupClient, error_of
from .brokers import PATIENCE_S, SESSION_MS, ClusterBroker, brokers, know_each_other
from .ensemble import Ensemble, Server, ensemble
from .telling import of_group, read

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("zookeeper"), pytest.mark.timeout(3600)]

FAILOVERS = int(os.environ.get("SOAK_FAILOVERS", "50"))
GROUPS = 20

Cluster = dict[int, ClusterBroker]


class Group:
    """A group of one member; ``sent`` is the last offset that it tried, ``acked`` the last that was
    acknowledged.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.client = GroupClient(list(cluster.values()), name)
        self.joined: JoinGroupResponse = self.client.stable(session_timeout_ms=300_000)
        self.sent = self.acked = 0

    def commit(self, through: GroupClient | None = None) -> None:
        self.sent += 1
        client = through or self.client
        assert client.commit("t", self.sent, self.joined) == 0
        self.acked = self.sent

    def check(self) -> None:
        assert self.client.beat(self.joined) == 0, "the generation is another"
        assert self.client.committed("t") == self.acked


def topic(cluster: Cluster) -> None:
    from .test_failover import create

    create(cluster, "t", [1])


def figures(what: str, times_s: list[float]) -> str:
    ordered = sorted(times_s)
    late = sum(t > SESSION_MS / 1000 + 1 for t in ordered)
    return (
        f"{len(ordered)} {what}: taken over after {statistics.median(ordered):.2f} s in the "
        f"median, {ordered[0]:.2f} to {ordered[-1]:.2f} s, with a session of "
        f"{SESSION_MS / 1000:g} s; {late} took more than a second longer than that"
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_failovers(
    zookeeper: Ensemble,
    tmp_path: Path,
    number: signal.Signals,
    capsys: pytest.CaptureFixture[str],
) -> None:
    times_s: list[float] = []
    path = f"/soak/{number.name.lower()}"
    with brokers(tmp_path, zookeeper.servers_at, path, ids=(1, 2, 3)) as cluster:
        topic(cluster)
        groups = [Group(cluster, f"g{n}") for n in range(GROUPS)]
        for each in groups:
            each.commit()
        for turn in range(FAILOVERS):
            watched = groups[turn % GROUPS]
            times_s.append(failed_over(cluster, watched, number))
            for each in groups:
                each.check()
                each.commit()
        for each in groups:
            each.client.close()
        told = sum(takeovers_told(cluster, each.client.group) for each in groups)
        assert told >= FAILOVERS // 2
    with capsys.disabled():
        print(f"\n{figures(f'failovers by {number.name}', times_s)}")


def takeovers_told(cluster: Cluster, group: str) -> int:
    """How many of its coordinators have told that they loaded a group, in which nothing happened
    since it was formed.
    """
    told = [event for event in of_group(read(cluster), group) if event.event != "lag"]
    tellers: dict[int | None, int | None] = {}
    assert [event.epoch or 0 for event in told] == sorted(event.epoch or 0 for event in told)
    for event in told:
        assert tellers.setdefault(event.epoch, event.broker_id) == event.broker_id
    formed, after = told[:4], told[4:]
    assert [event.event for event in formed][-2:] == ["generation started", "assigned"]
    assert {(event.event, event.generation) for event in after} <= {("loaded", 1)}
    return len(after)


def failed_over(cluster: Cluster, group: Group, number: signal.Signals) -> float:
    """One failover; the time until a commit was acknowledged by another broker."""
    owner, address = group.client.find()
    others = [broker for n, broker in cluster.items() if n != owner]
    is_stopped = number is signal.SIGSTOP
    stale = [Raw(address, timeout_s=PATIENCE_S) for _ in range(3 if is_stopped else 0)]
    began = time.monotonic()
    cluster[owner].send(number)
    for raw in stale:
        raw.send(OFFSET_COMMIT, committing(group.client.group, "t", {0: 0}, group.joined))
    group.client.close()
    with GroupClient(others, group.client.group) as elsewhere:
        eventually(lambda: elsewhere.find()[0] != owner)
        group.commit(elsewhere)
        took_s = time.monotonic() - began
        if not is_stopped:
            cluster[owner].wait()
            cluster[owner].start()
        else:
            cluster[owner].send(signal.SIGCONT)
            for raw in stale:
                assert error_of(raw.receive()) == 16, "the stopped one has written"
                raw.close()
    eventually(lambda: know_each_other(cluster))
    return took_s


def is_serving(server: Server) -> bool:
    return server.mode in ("leader", "follower")


def test_zookeepers_leader_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three servers, of which the leader is killed, again and again: nobody loses a shard for it,
    or another takes it over; in any case groups go on.
    """
    times_s: list[float] = []
    with (
        ensemble(tmp_path / "ensemble", 3) as servers,
        brokers(tmp_path, servers.servers_at, "/soak/leader", ids=(1, 2)) as cluster,
    ):
        topic(cluster)
        groups = [Group(cluster, f"g{n}") for n in range(GROUPS)]
        for turn in range(max(1, FAILOVERS // 10)):
            for each in groups:
                each.commit()
            leader = servers.leader
            began = time.monotonic()
            leader.kill()
            groups[turn % GROUPS].commit()
            times_s.append(time.monotonic() - began)
            for each in groups:
                each.commit()
                each.check()
            leader.start()
            servers.ready()
            eventually(partial(is_serving, leader))
        for each in groups:
            each.client.close()
    with capsys.disabled():
        print(f"\n{figures('deaths of the leader of three ZooKeepers', times_s)}")

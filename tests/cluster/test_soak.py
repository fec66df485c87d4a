"""Dozens of failovers: ``make soak``. SOAK_FAILOVERS is the number of each kind, 50 by default.

Twenty groups of one member each commit on three brokers. The coordinator of a group is killed, or
stopped with commits in its sockets. The time runs until another broker has acknowledged a commit,
at most a session timeout plus one second. Groups must keep their generation and their acknowledged
offsets. At the end, the group events of all brokers must show just that, and the takeovers.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from broker.group_requests import commit_request
from broker.raw_client import RawClient
from partage.wire.apis.offset_commit import OFFSET_COMMIT
from polled_conditions import eventually

from .brokers import PATIENCE_S, brokers, create, know_each_other
from .group_client import GroupClient, error_of
from .group_events_reader import group_events, read_events
from .soak_groups import FAILOVERS, GROUPS, TAKEOVER_MAX_S, Cluster, WatchedGroup, summary
from .zookeeper_ensemble import Ensemble

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("zookeeper"), pytest.mark.timeout(3600)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_failovers(
    zookeeper: Ensemble,
    tmp_path: Path,
    number: signal.Signals,
    capsys: pytest.CaptureFixture[str],
) -> None:
    times_s: list[float] = []
    path = f"/soak/{number.name.lower()}"
    with brokers(tmp_path, zookeeper.connect_string, path, ids=(1, 2, 3)) as cluster:
        create(cluster, "t", [1])
        groups = [WatchedGroup(cluster, f"g{n}") for n in range(GROUPS)]
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
        print(f"\n{summary(f'failovers by {number.name}', times_s)}")
    assert [took_s for took_s in times_s if took_s > TAKEOVER_MAX_S] == []


def takeovers_told(cluster: Cluster, group: str) -> int:
    """Return how many coordinators published that they loaded the group, in which nothing else
    happened.
    """
    told = [event for event in group_events(read_events(cluster), group) if event.event != "lag"]
    tellers: dict[int | None, int | None] = {}
    assert [event.epoch or 0 for event in told] == sorted(event.epoch or 0 for event in told)
    for event in told:
        assert tellers.setdefault(event.epoch, event.broker_id) == event.broker_id
    formed, after = told[:4], told[4:]
    assert [event.event for event in formed][-2:] == ["generation started", "assigned"]
    assert {(event.event, event.generation) for event in after} <= {("loaded", 1)}
    return len(after)


def failed_over(cluster: Cluster, group: WatchedGroup, number: signal.Signals) -> float:
    """Do one failover; return the time until another broker acknowledged a commit."""
    owner, address = group.client.find()
    others = [broker for n, broker in cluster.items() if n != owner]
    is_stopped = number is signal.SIGSTOP
    stale = [RawClient(address, timeout_s=PATIENCE_S) for _ in range(3 if is_stopped else 0)]
    began = time.monotonic()
    cluster[owner].send(number)
    for raw in stale:
        raw.send(OFFSET_COMMIT, commit_request(group.client.group, "t", {0: 0}, group.joined))
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

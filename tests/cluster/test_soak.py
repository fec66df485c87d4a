"""Failovers by the dozen: ``make soak``. SOAK_FAILOVERS says how many of each kind, 50 by default.

Twenty groups, each of one member that commits, on three brokers. The coordinator of one of them is
killed, or stopped with commits waiting in its sockets; the time runs until another broker has
acknowledged a commit, and none may take a second longer than a session. Groups must keep their
generation, and an acknowledged offset its place; and what all brokers told of them in the end is
that, and who took them over.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from broker.group_requests import commit_request
from broker.raw_client import RawClient
from partage.wire.apis.offset_commit import OFFSET_COMMIT
from waiting import eventually

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
    """How many of its coordinators have told that they loaded a group, in which nothing happened
    since it was formed.
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
    """One failover; the time until a commit was acknowledged by another broker."""
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

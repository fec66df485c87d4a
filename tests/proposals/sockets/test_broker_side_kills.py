"""The first design with real processes and a real ZooKeeper, which are killed and stopped.

Every record is delivered at least once, partitions get owners again, and offsets continue. Most
tests run with both ways to rebalance: StopFetcher requests, and closed connections.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.zookeeper_ensemble import Ensemble
from partage.console.proposal.broker_side import RebalanceMethodName
from partage.testing import ThreadedBroker
from polled_conditions import eventually
from proposals.sockets.push_cluster import (
    SESSION_MS,
    ZOOKEEPER_SESSION_MS,
    PushCluster,
    push_cluster,
)

pytestmark = pytest.mark.slow


both_methods = pytest.mark.parametrize("method", [*RebalanceMethodName])


@pytest.fixture
def method() -> RebalanceMethodName:
    """The way to rebalance; `both_methods` overrides it."""
    return RebalanceMethodName.STOP_FETCHERS


@pytest.fixture
def single(
    tmp_path: Path, zookeeper: Ensemble, records: ThreadedBroker, method: RebalanceMethodName
) -> Iterator[PushCluster]:
    settings = {"--rebalance-method": method.value}
    with push_cluster(tmp_path, zookeeper, records, 1, settings=settings) as cluster:
        yield cluster


@pytest.fixture
def double(
    tmp_path: Path, zookeeper: Ensemble, records: ThreadedBroker, method: RebalanceMethodName
) -> Iterator[PushCluster]:
    settings = {"--rebalance-method": method.value}
    with push_cluster(tmp_path, zookeeper, records, 1, 2, settings=settings) as cluster:
        yield cluster


@both_methods
def test_killed_consumer_loses_its_partitions_and_no_record(single: PushCluster) -> None:
    killed, *survivors = (single.consumer(name) for name in ("a", "b", "c"))
    single.wait_owned_by("a", "b", "c")
    single.produce(100)
    single.wait_delivered()
    killed.kill()
    single.produce(100)
    single.wait_owned_by("b", "c")
    single.wait_delivered()
    for each in survivors:
        each.interrupt()
    single.wait_committed(200)
    later = single.consumer("d")
    single.wait_owned_by("d")
    single.produce(10)
    single.wait_delivered()
    assert sorted(later.values, key=int) == [str(number) for number in range(200, 210)]
    single.check_one_reader()


@both_methods
def test_killed_coordinator_is_replaced_and_no_record_is_lost(double: PushCluster) -> None:
    double.consumer("a"), double.consumer("b")
    double.wait_owned_by("a", "b")
    double.produce(100)
    double.wait_delivered()
    double.wait_committed(100)
    double.brokers[0].kill()
    double.produce(100)
    eventually(lambda: double.coordinator() == 2, double.describe)
    double.wait_delivered()
    double.wait_committed(200)
    double.wait_owned_by("a", "b")
    returned = double.broker(1)
    for each in double.consumers:
        each.interrupt()
    double.brokers[1].interrupt()
    eventually(lambda: double.coordinator() == 1, double.describe)
    later = double.consumer("c")
    double.wait_owned_by("c")
    double.produce(10)
    double.wait_delivered()
    assert sorted(later.values, key=int) == [str(number) for number in range(200, 210)]
    assert returned.process.poll() is None
    double.check_one_reader()


@both_methods
def test_new_coordinator_waits_for_a_consumer_that_is_killed_meanwhile(
    double: PushCluster,
) -> None:
    killed = double.consumer("a")
    double.consumer("b")
    double.wait_owned_by("a", "b")
    double.produce(40)
    double.wait_delivered()
    killed.kill()
    double.brokers[0].kill()
    double.produce(40)
    double.wait_owned_by("b")
    double.wait_delivered()


@both_methods
def test_consumer_stopped_longer_than_its_session_returns(single: PushCluster) -> None:
    stopped = single.consumer("a")
    single.consumer("b")
    single.wait_owned_by("a", "b")
    single.produce(40)
    single.wait_delivered()
    stopped.send(signal.SIGSTOP)
    single.produce(40)
    single.wait_owned_by("b")
    single.wait_delivered()
    stopped.send(signal.SIGCONT)
    single.wait_owned_by("a", "b")
    single.produce(40)
    single.wait_delivered()
    single.wait_committed(120)


def test_consumer_stopped_while_joining_ignores_a_late_request(
    single: PushCluster,
) -> None:
    waited_for = single.consumer("a", session_ms=5 * SESSION_MS)
    single.wait_owned_by("a")
    single.produce(40)
    single.wait_delivered()
    single.wait_committed(40)
    waited_for.send(signal.SIGSTOP)  # the rebalance waits until it stops its fetchers
    joining = single.consumer("b")
    eventually(lambda: "registered" in joining.log.read_text(), single.describe)
    joining.send(signal.SIGSTOP)  # StartFetcher arrives meanwhile
    waited_for.send(signal.SIGCONT)
    single.produce(40)
    single.wait_delivered()
    single.wait_committed(80)
    joining.send(signal.SIGCONT)
    single.wait_owned_by("a", "b")
    single.produce(40)
    single.wait_delivered()
    assert min(map(int, joining.values)) >= 80


@both_methods
def test_frozen_group_rebalances_when_it_is_thawed(double: PushCluster) -> None:
    """Also a new coordinator leaves it frozen: its consumers register, and read nothing."""
    first = double.consumer("a")
    double.wait_owned_by("a")
    double.switch(is_enabled=False)
    frozen = "group was frozen: group=g"
    eventually(lambda: frozen in double.brokers[0].log.read_text(), double.describe)
    second = double.consumer("b")
    eventually(lambda: second.registrations == 1, double.describe)
    double.produce(40)
    double.wait_delivered()
    double.wait_committed(40)
    assert {*double.owners().values()} == {"a"}
    assert second.lines == []
    double.brokers[0].kill()
    eventually(lambda: first.registrations == second.registrations == 2, double.describe)
    double.produce(40)
    assert frozen in double.brokers[1].log.read_text()
    assert not first.is_reading
    double.switch(is_enabled=True)
    double.wait_owned_by("a", "b")
    double.wait_delivered()
    assert second.lines
    double.wait_committed(80)
    double.check_one_reader()


@both_methods
def test_coordinator_stopped_longer_than_its_session_resigns(double: PushCluster) -> None:
    double.consumer("a", session_ms=2 * ZOOKEEPER_SESSION_MS)
    double.wait_owned_by("a")
    double.produce(40)
    double.wait_delivered()
    double.brokers[0].send(signal.SIGSTOP)
    eventually(lambda: double.coordinator() == 2, double.describe)
    double.produce(40)
    double.brokers[0].send(signal.SIGCONT)
    double.wait_delivered()
    double.wait_committed(80)
    assert double.coordinator() == 2
    # The first broker follows: it replaces the second one.
    double.brokers[1].kill()
    eventually(lambda: double.coordinator() == 1, double.describe)
    double.produce(40)
    double.wait_delivered()

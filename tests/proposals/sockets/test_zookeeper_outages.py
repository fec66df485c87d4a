"""The first design with real processes, while its real ZooKeeper is stopped and started again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.zookeeper_ensemble import Ensemble, ensemble
from partage.testing import ThreadedBroker
from polled_conditions import eventually
from proposals.sockets.push_cluster import PushCluster, push_cluster

pytestmark = pytest.mark.slow

LONG_MS = 60_000
SHORT_MS = 3_000
#: With 0, a consumer that does not answer in time may be replaced before it has stopped.
RETRIES = {"--ping-retries-max": "1"}
CLOSING = {"--rebalance-method": "close-connections"}
LASTING = {"--zookeeper-session-timeout-ms": str(LONG_MS)}


@pytest.fixture
def outage(tmp_path: Path) -> Iterator[Ensemble]:
    """A ZooKeeper for one test, which stops and starts it."""
    with ensemble(tmp_path / "zookeeper") as running:
        yield running


def restart(zookeeper: Ensemble, cluster: PushCluster) -> None:
    zookeeper.start()
    cluster.wait_zookeeper()


def test_zookeeper_outage_shorter_than_sessions_moves_no_partition(
    tmp_path: Path, outage: Ensemble, records: ThreadedBroker
) -> None:
    with push_cluster(tmp_path, outage, records, 1, 2, settings=RETRIES | LASTING) as cluster:
        first, second = (cluster.consumer(name, session_ms=LONG_MS) for name in ("a", "b"))
        cluster.wait_owned_by("a", "b")
        cluster.produce(40)
        cluster.wait_delivered()
        owners, registrations = cluster.owners(), (first.registrations, second.registrations)
        outage.stop()
        cluster.produce(40)
        delivered = cluster.wait_delivered()  # the consumers go on during the outage
        assert set(delivered.values()) == {1}
        restart(outage, cluster)
        cluster.produce(40)
        assert set(cluster.wait_delivered().values()) == {1}
        cluster.wait_committed(120)
        assert cluster.coordinator() == 1
        assert cluster.owners() == owners
        assert (first.registrations, second.registrations) == registrations
        cluster.check_one_reader()


@pytest.mark.parametrize("method", [{}, CLOSING], ids=["stop fetchers", "close connections"])
def test_zookeeper_outage_longer_than_sessions_loses_no_record(
    tmp_path: Path, outage: Ensemble, records: ThreadedBroker, method: dict[str, str]
) -> None:
    with push_cluster(tmp_path, outage, records, 1, 2, settings=RETRIES | method) as cluster:
        consumers = [cluster.consumer(name, session_ms=SHORT_MS) for name in ("a", "b")]
        cluster.wait_owned_by("a", "b")
        cluster.produce(40)
        cluster.wait_delivered()
        outage.stop()
        # The coordinator is silent without a valid session, so the consumers suspect it and stop.
        eventually(lambda: not any(each.is_reading for each in consumers))
        cluster.produce(40)
        restart(outage, cluster)
        cluster.wait_delivered()
        cluster.wait_owned_by("a", "b")
        cluster.produce(40)
        cluster.wait_delivered()
        cluster.wait_committed(120)
        cluster.check_one_reader()


def test_coordinator_killed_during_a_zookeeper_outage_is_replaced(
    tmp_path: Path, outage: Ensemble, records: ThreadedBroker
) -> None:
    with push_cluster(tmp_path, outage, records, 1, 2, settings=RETRIES) as cluster:
        killed, _ = cluster.consumer("a"), cluster.consumer("b")
        cluster.wait_owned_by("a", "b")
        cluster.produce(40)
        cluster.wait_delivered()
        outage.stop()
        cluster.brokers[0].kill()
        killed.kill()
        cluster.produce(40)
        restart(outage, cluster)
        eventually(lambda: cluster.coordinator() == 2, cluster.describe)
        cluster.wait_owned_by("b")
        cluster.wait_delivered()
        cluster.wait_committed(80)
        cluster.check_one_reader()

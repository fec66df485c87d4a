"""The transactional sink on a cluster of our brokers, through kills of them and of the query."""

import contextlib

import pytest

from cluster.brokers import bootstrap, brokers, know_each_other
from cluster.zookeeper_ensemble import ensemble
from polled_conditions import eventually

from .test_transactional_sink_kills import check_kills

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("zookeeper"), pytest.mark.timeout(600)]


class KilledInTurn:
    """A cluster of which one broker after the other is killed.

    A broker starts again only when the others own its shards, so each kill moves coordinators.
    """

    def __init__(self, running):
        self._running = running
        self._order = list(running)
        self._killed = None

    def kill(self):
        self._order.append(self._order.pop(0))
        self._killed = self._running[self._order[-1]]
        self._killed.kill()

    def start(self):
        eventually(self._is_taken_over)
        self._killed.start()
        eventually(lambda: know_each_other(self._running))

    def _is_taken_over(self):
        others = {n: each for n, each in self._running.items() if each is not self._killed}
        with contextlib.suppress(OSError):
            return know_each_other(others)
        return False


def test_each_row_is_committed_once_to_a_cluster_through_kills(tmp_path):
    with (
        ensemble(tmp_path / "zookeeper") as zookeeper,
        brokers(tmp_path / "brokers", zookeeper.connect_string, "/sink", (1, 2, 3)) as running,
    ):
        cluster = KilledInTurn(running)
        check_kills(cluster, bootstrap(running), tmp_path, 28908, kills_of_each=3)

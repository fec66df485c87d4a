"""A topic is deleted and created again while no broker owns the groups that committed offsets for
it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from polled_conditions import eventually

from .brokers import PATIENCE_S, brokers, know_each_other
from .group_client import GroupClient, client_coordinated_by
from .zookeeper_ensemble import Ensemble

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("zookeeper"), pytest.mark.timeout(600)]

#: Longer than a deletion waits for brokers that have not applied it.
SESSION = {"zookeeper.session.timeout.ms": "7000"}


def test_topic_recreated_without_coordinator_has_no_offsets(
    zookeeper: Ensemble, tmp_path: Path
) -> None:
    path = "/tests/topics-anew"
    with brokers(tmp_path, zookeeper.connect_string, path, (1, 2), SESSION) as running:
        client = AdminClient({"bootstrap.servers": running[1].address, "log_level": 0})

        def create() -> None:
            made = NewTopic("t", 1, replica_assignment=[[1]])
            client.create_topics([made], request_timeout=60)["t"].result(PATIENCE_S)

        create()
        with client_coordinated_by(running, 2) as before:
            assert before.commit("t", 5) == 0
            group = before.group
        running[2].kill()
        client.delete_topics(["t"], request_timeout=60)["t"].result(PATIENCE_S)
        create()
        with GroupClient([running[1]], group) as after:
            assert after.committed("t") == -1
            assert after.commit("t", 1) == 0
        running[2].start()
        eventually(lambda: know_each_other(running))
        with GroupClient([*running.values()], group) as back:
            assert back.committed("t") == 1

"""Clients with ``transaction.version`` 2 whose coordinator is killed at a step of a transaction."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from broker.dying_broker import dying_broker
from broker.dying_transaction_coordinator import STEPS
from client.confluent_admin import create_topic
from cluster.transactional_clients import CommittedReader
from interop import client_kinds

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

PARTITIONS = range(3)
#: What each client reports when its first producer is fenced at the end.
FENCED = {"franz-go": "PRODUCER_FENCED", "java": "ProducerFencedException"}
#: franz-go gives up a request for an id if the broker closes the connection, and a commit if it
#: cannot connect a few times.
CASES = [
    (client, step)
    for client in FENCED
    for step in STEPS
    if not (client == "franz-go" and ("the id" in step or "the decision" in step))
]


@pytest.mark.parametrize(("client", "step"), CASES)
def test_client_of_version_2_continues_after_kill_at_step(
    peers: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: str, step: str
) -> None:
    """It commits a transaction, during which the broker dies, and aborts one.

    A successor fences it during a third one, and commits.
    """
    with dying_broker(tmp_path, monkeypatch, step) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "target", len(PARTITIONS))
        options = ["--bootstrap", servers, "--topic", "target", "--id", "writer"]
        command = client_kinds.command(client, "transact", options)
        run = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert run.returncode == 0, run.stderr
        assert run.stdout.strip() == FENCED[client]
        broker.check_restarted()
        reader = CommittedReader(servers, "target", PARTITIONS)
        reader.wait(
            [
                (partition, b"%b-%d" % (value, partition))
                for value in (b"committed", b"successor")
                for partition in PARTITIONS
            ]
        )
        reader.close()

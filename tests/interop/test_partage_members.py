"""The group tests of our consumer, run against Apache Kafka."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from interop.peers.kafka import ApacheKafka

TESTS = Path(__file__).parents[1]

#: As our broker is configured for tests: a dead member is detected soon.
SETTINGS = {
    "auto.create.topics.enable": "false",
    "broker.rack": "here",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "20000",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
}


@pytest.mark.timeout(1800)
@pytest.mark.interop
def test_group_tests_pass_on_apache_kafka(peers: None) -> None:
    with ApacheKafka(overrides=SETTINGS) as kafka:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "client/group"]
        ran = subprocess.run(
            command,
            cwd=TESTS,
            env={**os.environ, "PARTAGE_TEST_BOOTSTRAP_SERVER": kafka.bootstrap},
            capture_output=True,
            text=True,
        )
    assert ran.returncode == 0, ran.stdout[-8000:]

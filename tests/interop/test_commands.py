"""All tests of our commands, run against Apache Kafka."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from interop.peers.kafka import ApacheKafka

TESTS = Path(__file__).parents[1]

#: Tests in parts, which may run at the same time.
PARTS = {
    part: [f"console/test_{subject}.py" for subject in subjects]
    for part, subjects in {
        "administration": ("configs", "group_changes", "records_delete"),
        "groups": ("groups", "consumer_groups", "reset_offsets", "explain"),
        "records": ("consume", "produce"),
    }.items()
}
#: Tests of all other commands, except those of the simulator.
PARTS["others"] = [
    "console",
    "--ignore-glob=*/test_lab_*.py",
    *(f"--ignore={path}" for paths in PARTS.values() for path in paths),
]


@pytest.mark.interop
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", PARTS)
def test_command_tests_pass_on_apache_kafka(peers: None, part: str) -> None:
    overrides = {
        "auto.create.topics.enable": "false",
        "group.consumer.assignment.interval.ms": "0",  # as our tests of groups expect
        # Members of the tests send no heartbeats, also on a busy machine.
        "group.consumer.max.session.timeout.ms": "600000",
        "group.consumer.session.timeout.ms": "600000",
    }
    with ApacheKafka(overrides=overrides) as kafka:
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PARTS[part]],
            cwd=TESTS,
            env={**os.environ, "PARTAGE_TEST_BOOTSTRAP_SERVER": kafka.bootstrap},
            capture_output=True,
            text=True,
        )
    assert ran.returncode == 0, ran.stdout[-8000:]

"""A batch read and a grouped stream through a server of Spark Connect, as its client."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .group_state import committed, produce

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]

APPLICATION = Path(__file__).with_name("connect_application.py")
PARTITIONS = 2
RECORDS = 5


def test_connect_client_reads_topic_and_stream_in_group(kafka, tmp_path):
    topic = kafka.topic(PARTITIONS)
    produce(kafka, topic, PARTITIONS, RECORDS)
    ran = subprocess.run(
        [sys.executable, APPLICATION, kafka.servers, topic, "tower", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    places = [[partition, offset] for partition in range(PARTITIONS) for offset in range(RECORDS)]
    for rows in found.values():
        assert sorted(row[1:] for row in rows) == places
    assert sorted(found) == ["batch", "stream"]
    assert committed(kafka, "tower", topic, PARTITIONS) == [RECORDS] * PARTITIONS

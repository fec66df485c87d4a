"""Progress of a running streaming query as shown by other tools.

kcat cannot query a group, so it reads the topic of the committed offsets. (``-o stored`` with a
group.id fails an assertion in librdkafka.) Kafka's consumer-groups tool shows the lag.
"""

import re
import struct
import subprocess

import pytest

from interop.peers import debs
from interop.peers.tools import tool

from .group_state import committed, filled_topic, produce, wait_until
from .test_stream import grouped, stream

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.xdist_group("spark")]

__all__ = ["stream"]


def lags(servers, group):
    """Return committed offset, lag and client id of each partition, from Kafka's tool."""
    said = tool("consumer-groups", servers, "--describe", "--group", group)
    row = rf"^{group}\s+{group}\s+(\d+)\s+(\d+)\s+\d+\s+(\d+)\s+\S+\s+\S+\s+(\S+)"
    found = re.findall(row, said, re.MULTILINE)
    return {int(p): (int(offset), int(lag), client) for p, offset, lag, client in found}


def last_commits(servers, group, topic):
    """Return a group's last commits of each partition, read by kcat from the offsets topic."""
    command = [*debs.command(), "-b", servers, "-C", "-t", "__consumer_offsets", "-e", "-q"]
    command += ["-o", "beginning", "-f", r"%k\x01%s\x02"]
    ran = subprocess.run(command, env=debs.environment(), capture_output=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    key = b"".join(struct.pack(">h", len(name)) + name.encode() for name in (group, topic))
    # The key has a version, both names and the partition; the value a version and the offset.
    pattern = re.escape(struct.pack(">h", 1) + key) + rb"(.{4})\x01.{2}(.{8})"
    found = re.findall(pattern, ran.stdout, re.DOTALL)
    return {int.from_bytes(partition): int.from_bytes(offset) for partition, offset in found}


def test_kafka_tool_and_kcat_show_query_progress(stream, kafka):
    topic, _ = filled_topic(kafka, 2)
    query = stream(kafka__client__id="archivist", **grouped(topic))
    query.has(100)
    wait_until(lambda: committed(kafka, topic, topic, 2) == [50, 50])
    query.may_go_on.clear()  # from here on a batch is in progress
    produce(kafka, topic, 2, 10)
    wait_until(lambda: len(query.rows) > 100)
    shown = wait_until(lambda: lags(kafka.servers, topic))
    assert shown == dict.fromkeys(range(2), (50, 10, "archivist"))
    assert last_commits(kafka.servers, topic, topic) == {0: 50, 1: 50}
    query.may_go_on.set()
    query.has(120)
    wait_until(lambda: committed(kafka, topic, topic, 2) == [60, 60])
    assert lags(kafka.servers, topic) == dict.fromkeys(range(2), (60, 0, "archivist"))
    assert last_commits(kafka.servers, topic, topic) == {0: 60, 1: 60}

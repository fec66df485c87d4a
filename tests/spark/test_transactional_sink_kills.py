"""The transactional sink through kills of driver, tasks, commits and broker, without Spark."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from interop.peers.kafka import ApacheKafka
from interop.peers.tools import offline_tool
from partage import TopicPartition, sync
from partage.testing import BrokerProcess

from .group_state import wait_until
from .test_transactional_sink import committed, create_topic, reader, watermark

PROGRAM = Path(__file__).parent / "sink_process.py"
#: Rows of a task, tasks of a batch.
ROWS, TASKS = 20, 3
DRIVER, ALL, CHILD, BROKER = "driver", "driver and tasks", "a task or commit", "broker"


class Query:
    """The processes of the query."""

    def __init__(self, servers, at, batches):
        self._at = at
        given = {
            "options": {
                "kafka.bootstrap.servers": servers,
                "topic": "target",
                "kafka.linger.ms": "0",
                "kafka.max.block.ms": "120000",
            },
            "topic": "target",
            "query": "query",
            "rows": ROWS,
            "batches": batches,
            "checkpoint": str(at / "checkpoint"),
        }
        self._command = [sys.executable, str(PROGRAM), json.dumps(given)]
        self._process = None
        self._orphans = []
        self.start()

    def start(self):
        with (self._at / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def log(self):
        return (self._at / "log").read_text()[-3000:]

    def revive(self):
        """Start the query again if it has failed; return True if it has ended."""
        status = self._process.poll()
        if status not in (None, 0):
            self.start()
        return status == 0

    def kill(self, which, rng):
        """Kill processes of the query. If only the driver dies, its children go on for a while."""
        children = []
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(self._process.pid).children()
        killed = rng.sample(children, min(1, len(children))) if which == CHILD else []
        if which in (DRIVER, ALL):
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()
            killed = children if which == ALL else []
        self._orphans += children
        for child in killed:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        if which != CHILD:
            self.start()

    def end(self):
        with contextlib.suppress(psutil.NoSuchProcess):
            self._orphans += psutil.Process(self._process.pid).children()
        self._process.kill()
        self._process.wait()
        for child in self._orphans:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()


def check_kills(broker, servers, at, seed, kills_of_each):
    """Kill at random moments, which are numbers of written offsets; print the seed."""
    rng = random.Random(seed)
    kills = [DRIVER, ALL, CHILD, BROKER] * kills_of_each
    rng.shuffle(kills)
    batches = 2 * len(kills)
    create_topic(servers, "target")
    plain = reader(servers, "read_uncommitted")
    query = Query(servers, at, batches)
    try:
        for which in kills:
            wanted = watermark(plain, "target") + rng.randrange(1, 2 * ROWS * TASKS)
            print(f"seed {seed}: kill {which} after {wanted} offsets", flush=True)
            wait_until(
                lambda wanted=wanted: query.revive() or watermark(plain, "target") >= wanted,
                query.log(),
            )
            if which == BROKER:
                broker.kill()
                broker.start()
            else:
                query.kill(which, rng)
        wait_until(query.revive, "the end of the query", 300)
        wait_until(lambda: not any(p.is_running() for p in query._orphans), "orphans to end", 300)
        expected = {
            f"{batch}/{task}/{row}": 1
            for batch in range(batches)
            for task in range(TASKS)
            for row in range(ROWS)
        }
        found = committed(servers, "target")
        assert found == expected, describe_differences(broker, servers, found, expected)
    finally:
        query.end()
        plain.close()


def describe_differences(broker, servers, found, expected):
    """Say what another reader finds of the rows whose number differs; dump the log of Kafka."""
    values = {value for value in found.keys() | expected.keys() if found[value] != expected[value]}
    offsets = {}
    for isolation_level in ("read_uncommitted", "read_committed"):
        rows = offsets[isolation_level] = {}
        options = {"isolation_level": isolation_level, "auto_offset_reset": "earliest"}
        with sync.Consumer(servers, **options) as other:
            place = TopicPartition("target", 0)
            other.assign([place])
            end = other.end_offsets([place])[place]
            while other.position(place) < end:
                for record in other.poll():
                    if record.value.decode() in values:
                        rows[record.offset] = record.value.decode()
    text = f"{len(values)} rows differ; read by another consumer: {offsets}"
    if isinstance(broker, ApacheKafka):
        (segment,) = broker.directory.rglob("target-0/*.log")
        text += "\n" + offline_tool("dump-log", "--print-data-log", "--files", str(segment))
    return text


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_row_is_committed_once_through_kills(tmp_path):
    with BrokerProcess(tmp_path / "data") as broker:
        check_kills(broker, broker.bootstrap_servers, tmp_path, 28908, kills_of_each=5)


@pytest.mark.interop
@pytest.mark.timeout(900)
def test_each_row_is_committed_once_to_apache_kafka_through_kills(tmp_path):
    with ApacheKafka() as broker:
        check_kills(broker, broker.bootstrap, tmp_path, 28908, kills_of_each=5)

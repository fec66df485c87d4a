"""Speculation: Spark runs two attempts of a task at once, and each row is committed once."""

import contextlib
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka import TopicPartition

from .group_state import wait_until
from .standalone import Standalone
from .test_transactional_sink import reader, watermark

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.xdist_group("processes"),
    pytest.mark.timeout(900),
]

APPLICATION = Path(__file__).parent / "speculation_application.py"
#: Timeout for several JVMs on two cores, next to other tests.
SLOWLY_S = 600
PARTITIONS = 2
#: Rows of a task. A task waits before its last row: of those before it, buffers hold back some.
ROWS = 8
#: More than a buffer.
ROW_BYTES = 4_000
CONF = {
    **Standalone.conf,
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": Standalone.conf["spark.executor.extraJavaOptions"],
    # When one task has ended, the other one gets a second attempt.
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1",
    "spark.speculation.efficiency.enabled": "false",
    # Each row is passed on at once.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.buffer.size": "1024",
}


class Copy:
    """The application."""

    def __init__(self, servers, source, target, at, master):
        self._pipes = at / "pipes"
        self._pipes.mkdir()
        self._log = at / "log"
        common = {"kafka.bootstrap.servers": servers}
        columns = {"subscribe": source, "startingOffsets": "earliest", "columns": "key,value"}
        given = {
            "master": master,
            "conf": CONF,
            "pipes": str(self._pipes),
            "row": ROWS - 1,
            "source": common | columns,
            "sink": {
                **common,
                "topic": target,
                "kafka.linger.ms": "0",
                "checkpointLocation": str(at / "checkpoint"),
            },
        }
        with self._log.open("w") as log:
            command = [sys.executable, str(APPLICATION), json.dumps(given)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self._process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        self._process.kill()
        self._process.wait(60)

    def open_pipe(self, attempt):
        """Open the pipe of an attempt; return None if the attempt does not wait."""
        assert self._process.poll() is None, self._log.read_text()[-4000:]
        try:
            return os.open(self._pipes / attempt, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENXIO):  # no pipe, or no reader
                raise
            return None

    def done(self):
        """Wait until the application ends by itself."""
        assert self._process.wait(SLOWLY_S) == 0, self._log.read_text()[-4000:]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    # Spark runs no two attempts of a task on the same host.
    hosts = ("127.0.0.1", "127.0.0.2")
    with Standalone(tmp_path_factory.mktemp("spark") / "cluster", hosts=hosts) as running:
        yield running


def test_speculative_attempts_of_a_task_commit_each_row_once(kafka, cluster, tmp_path):
    """Both attempts have written rows to open transactions before one of them ends."""
    source, target = kafka.topic(PARTITIONS), kafka.topic()
    values = [f"{p}/{n}/".ljust(ROW_BYTES, "x") for p in range(PARTITIONS) for n in range(ROWS)]
    kafka.produce(source, [{"value": one, "partition": int(one[0])} for one in values])
    with Copy(kafka.servers, source, target, tmp_path, cluster.url) as copy:
        pipes = [
            wait_until(lambda attempt=attempt: copy.open_pipe(attempt), attempt, SLOWLY_S)
            for attempt in ("0", "1")
        ]
        read_until(
            reader(kafka.servers, "read_uncommitted"),
            target,
            lambda found, error: has_two_attempts(found),
        )
        for pipe in pipes:
            os.close(pipe)
        copy.done()
    wait_until(lambda: is_stable(kafka.servers, target), "the end of the other transaction")
    found = read_until(
        reader(kafka.servers, "read_committed"), target, lambda found, error: error is not None
    )
    assert sorted(value for _, value in found) == values
    assert not has_two_attempts(found), "an attempt is committed in part"


def has_two_attempts(found):
    """Return True if rows of a task are from two attempts."""
    return len({(value[0], attempt) for attempt, value in found}) > PARTITIONS


def read_until(consumer, topic, is_done):
    """Return attempts and values of the rows in a topic, until ``is_done`` of rows and error."""
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []

    def reads_enough():
        message = consumer.poll(1)
        if message is None:
            return False
        if message.error() is None:
            found.append((message.key().decode(), message.value().decode()))
        return is_done(found, message.error())

    wait_until(reads_enough, "rows", SLOWLY_S)
    consumer.close()
    return found


def is_stable(servers, topic):
    """Return True if a topic has no open transaction."""
    levels = "read_committed", "read_uncommitted"
    consumers = [reader(servers, level) for level in levels]
    ends = {watermark(consumer, topic) for consumer in consumers}
    for consumer in consumers:
        consumer.close()
    return len(ends) == 1

"""Applications killed in the middle of a batch: driver, JVM and executors."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest

from .group_state import committed, member_partitions, produce, wait_until
from .standalone import Standalone

# Marked interop because each application is slow.
pytestmark = [
    pytest.mark.interop,
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.xdist_group("processes"),
]

APPLICATION = Path(__file__).parent / "application.py"
PARTITIONS = 2
#: Records in each partition for each kill.
RECORDS = 40
#: Timeout for several JVMs on two cores, next to other tests.
SLOWLY_S = 600
PROTOCOLS = "classic", "consumer"
#: Moments to kill an executor.
IN_A_TASK, AFTER_A_BATCH = "in a task", "after a batch"


class Application:
    """One query, run by several applications one after another."""

    def __init__(self, servers, topic, at, master="local[2,4]", **conf):
        self._master, self._conf, self._at = master, conf, at
        self._out = at / "out"
        self._out.mkdir(parents=True)
        self._tasks = at / "tasks"
        self._tasks.mkdir()
        self._options = {
            "kafka.bootstrap.servers": servers,
            "subscribe": topic,
            "kafka.group.id": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "20",
            "columns": "partition,offset",
        }
        self._process = None

    def start(self, *, ends=False, batch_s=0.5, task_s=0, protocol="classic"):
        given = {
            "master": self._master,
            "conf": self._conf,
            "options": self._options | {"kafka.group.protocol": protocol},
            "checkpoint": str(self._at / "checkpoint"),
            "out": str(self._out),
            "ends": ends,
            "batch_s": batch_s,
            "tasks": str(self._tasks),
            "task_s": task_s,
        }
        with (self._at / "log").open("a") as log:
            command = [sys.executable, str(APPLICATION), json.dumps(given)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def batches(self):
        return {int(file.stem): file for file in self._out.glob("*.json")}

    def goes_on(self, count=2):
        """Wait for ``count`` more batches."""
        goal = len(self.batches()) + count
        wait_until(
            lambda: len(self.batches()) >= goal or self._check(), f"{goal} batches", SLOWLY_S
        )

    def _check(self):
        assert self._process.poll() is None, (self._at / "log").read_text()[-4000:]

    def done(self):
        """Wait until the application ends by itself."""
        assert self._process.wait(SLOWLY_S) == 0, (self._at / "log").read_text()[-4000:]

    def kill_executor(self, cluster, *, in_a_task):
        """Kill an executor; if ``in_a_task``, one that runs a task that has read its records."""

        def under_way():
            self._check()
            return {int(file.name) for file in self._tasks.iterdir()} if in_a_task else None

        cluster.kill_executor(under_way, SLOWLY_S)

    def kill(self, which):
        """Kill the driver or its JVM; the other process then ends by itself."""
        (jvm,) = [p for p in psutil.Process(self._process.pid).children() if "java" in p.name()]
        pid = self._process.pid if which == "driver" else jvm.pid
        os.kill(pid, signal.SIGKILL)
        psutil.wait_procs([jvm], 60)
        self.end()

    def end(self):
        if self._process is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self._process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        self._process.kill()
        self._process.wait(60)

    def rows(self):
        """Return how often each record was written."""
        files = self.batches().values()
        return Counter(tuple(row) for file in files for row in json.loads(file.read_text()))


@pytest.fixture
def application(kafka, tmp_path):
    made = []

    def make(topic, **options):
        made.append(one := Application(kafka.servers, topic, tmp_path / "app", **options))
        return one

    yield make
    for one in made:
        one.end()


def killed(application, kafka, kills):
    """Kill applications one after another; check that the result is as without kills.

    They change the group protocol at each start.
    """
    topic = kafka.topic(PARTITIONS)
    one = application(topic)
    for which, protocol in zip(kills, itertools.cycle(PROTOCOLS)):
        produce(kafka, topic, PARTITIONS, RECORDS)
        one.start(protocol=protocol)
        one.goes_on()
        one.kill(which)
        wait_until(lambda: member_partitions(kafka, topic) == {}, "the member to be removed")
    one.start(ends=True, batch_s=0)
    one.done()
    count = RECORDS * len(kills)
    truth = {(p, o): 1 for p in range(PARTITIONS) for o in range(count)}
    assert one.rows() == truth
    assert committed(kafka, topic, topic, PARTITIONS) == [count] * PARTITIONS


def test_killed_driver_and_jvm_lose_no_records(application, kafka):
    killed(application, kafka, ["driver", "jvm"])


@pytest.fixture
def cluster(request, tmp_path):
    with Standalone(tmp_path / "cluster", workers=request.param) as running:
        yield running


@pytest.mark.parametrize(
    ("cluster", "moments"),
    [
        (1, [IN_A_TASK]),
        pytest.param(2, [IN_A_TASK, AFTER_A_BATCH] * 2 + [IN_A_TASK], marks=pytest.mark.soak),
    ],
    indirect=["cluster"],
)
def test_killed_executors_lose_no_records(application, kafka, cluster, moments):
    """The work of a killed executor is repeated; master and workers are separate processes."""
    topic = kafka.topic(PARTITIONS)
    count = len(moments) * RECORDS
    produce(kafka, topic, PARTITIONS, count)
    one = application(topic, master=cluster.url, **cluster.conf)
    one.start(ends=True, batch_s=0, task_s=1)
    for moment in moments:
        if moment == AFTER_A_BATCH:
            one.goes_on(1)
        one.kill_executor(cluster, in_a_task=moment == IN_A_TASK)
    one.done()
    assert one.rows() == {(p, o): 1 for p in range(PARTITIONS) for o in range(count)}
    assert committed(kafka, topic, topic, PARTITIONS) == [count] * PARTITIONS


@pytest.mark.soak
def test_many_kills_lose_no_records(application, kafka):
    killed(application, kafka, ["driver", "jvm"] * 5)

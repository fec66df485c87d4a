"""A query from topic to topic through kills: each row is committed once."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from group_descriptions import owned_partitions
from interop.peers.kafka import ApacheKafka
from partage.testing import BrokerProcess, ThreadedBroker

from .conftest import Kafka
from .group_state import wait_until
from .standalone import Standalone

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.xdist_group("processes"),
]

APPLICATION = Path(__file__).parent / "sink_application.py"
PARTITIONS = 2
#: Records for each kill, and in a batch.
RECORDS, BATCH = 40, 20
#: Timeout for several JVMs on two cores, next to other tests.
SLOWLY_S = 600
DRIVER, JVM, WORKER, BROKER = "driver", "jvm", "worker", "broker"
#: What the application logs before the error.
QUERY_FAILED = "the query failed: "
#: Moments to kill an executor.
IN_A_TASK, AT_RANDOM = "in a task", "at random"
#: A row is larger than Spark's buffers, so that it is written before its task goes on.
BUFFER_BYTES, ROW_BYTES = 1024, 4000
#: Spark passes each row of a task on at once.
ROW_BY_ROW = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.buffer.size": str(BUFFER_BYTES),
}


class Copy:
    """The query, run by several applications one after another."""

    def __init__(self, servers, source, target, at, master="local[2,4]", conf=None, **options):
        self._at = at
        self._process = None
        self._master, self._conf = master, conf or {}
        self._gate, self._tasks = at / "gate", at / "tasks"
        self._tasks.mkdir()
        common = {"kafka.bootstrap.servers": servers}
        self._source = {
            **common,
            "subscribe": source,
            "kafka.group.id": "copy",
            "kafka.session.timeout.ms": "6000",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(BATCH),
            "columns": "key,value",
            **options,
        }
        checkpoint = str(at / "checkpoint")
        self._sink = {**common, "topic": target, "checkpointLocation": checkpoint}

    def start(self, *, ends=False, has_gate=False):
        given = {
            "master": self._master,
            "conf": self._conf,
            "source": self._source,
            "sink": self._sink,
            "ends": ends,
        }
        if has_gate:
            given |= {"gate": str(self._gate), "tasks": str(self._tasks)}
        with (self._at / "log").open("a") as log:
            command = [sys.executable, str(APPLICATION), json.dumps(given)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def check(self):
        assert self._process.poll() is None, self.log()

    def done(self):
        """Wait until the application ends by itself."""
        assert self._process.wait(SLOWLY_S) == 0, self.log()

    def close_gate(self):
        """Let each task wait before its last row, if the application has a gate."""
        self._gate.touch()

    def open_gate(self):
        self._gate.unlink()

    def waiting_tasks(self):
        """Return the process ids of tasks that wait at the gate, or were killed there."""
        self.check()
        return {int(file.name) for file in self._tasks.iterdir()}

    def failures(self):
        """Return the errors with which the query has failed, before the application went on."""
        return (self._at / "log").read_text().split(QUERY_FAILED)[1:]

    def log(self):
        return (self._at / "log").read_text()[-4000:]

    def kill(self, which):
        """Kill the driver or its JVM, and wait until both have ended."""
        (jvm,) = wait_until(self._jvms, "the JVM", SLOWLY_S)  # it may be about to start
        os.kill(self._process.pid if which == DRIVER else jvm.pid, signal.SIGKILL)
        psutil.wait_procs([jvm], 60)
        self.end()

    def kill_worker(self, choose):
        """Kill one of the Python processes that run tasks, commits and plans."""
        found = wait_until(self._workers, "a worker", SLOWLY_S)
        with contextlib.suppress(psutil.NoSuchProcess):
            choose(found).kill()

    def _jvms(self):
        return [p for p in psutil.Process(self._process.pid).children() if "java" in p.name()]

    def _workers(self):
        self.check()
        found = []
        for process in psutil.Process(self._process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                parent = process.parent()
                is_forked = parent is not None and "pyspark.daemon" in parent.cmdline()
                found += [process] if is_forked else []
        return sorted(found, key=lambda process: process.pid)

    def end(self):
        if self._process is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self._process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        self._process.kill()
        self._process.wait(60)


class Target:
    """The target topic, read with another client."""

    def __init__(self, servers, topic):
        self._servers = servers
        self._partitions = [TopicPartition(topic, n) for n in range(PARTITIONS)]
        self._plain, self._stable = map(self._reader, ("read_uncommitted", "read_committed"))

    def positions(self):
        """Return the end and the last stable offset of each partition."""
        return self._ends(self._plain), self._ends(self._stable)

    def end(self):
        """Return the number of offsets, with uncommitted rows and markers."""
        return sum(self._ends(self._plain))

    def open_rows(self):
        """Return the number of offsets from the first row of an open transaction."""
        stable = sum(self._ends(self._stable))
        return self.end() - stable

    def committed(self):
        """Return how often each value is committed; no transaction may stay open.

        The coordinator may complete a transaction after its response to the producer.
        """
        wait_until(lambda: self.open_rows() == 0, "a transaction is open")
        return self._read("read_committed")

    def written(self):
        """Return how often each value is written, also in aborted transactions."""
        return self._read("read_uncommitted")

    def _read(self, isolation_level):
        reader = self._reader(isolation_level)
        ends = self._ends(reader)
        reader.assign([TopicPartition(p.topic, p.partition, 0) for p in self._partitions])
        found, reached = Counter(), [0] * PARTITIONS
        until = time.monotonic() + 60
        # The query may commit more rows meanwhile, so the reader may pass the ends.
        while any(at < end for at, end in zip(reached, ends, strict=True)):
            message = reader.poll(1)
            if message is None:
                assert time.monotonic() < until, (reached, ends, self._ends(reader))
                continue
            until = time.monotonic() + 60
            if message.error() is None:
                found[int(message.value())] += 1
            elif message.error().code() == KafkaError._PARTITION_EOF:
                # After aborted rows and markers, only this error has the offset.
                reached[message.partition()] = message.offset()
        reader.close()
        return found

    def close(self):
        self._plain.close()
        self._stable.close()

    def _ends(self, reader):
        """Look the ends up; librdkafka may not know the leader of a partition after a restart."""

        def attempt():
            with contextlib.suppress(KafkaException):
                return [reader.get_watermark_offsets(p, 60)[1] for p in self._partitions]

        return wait_until(attempt, "the ends of the target")

    def _reader(self, isolation_level):
        return Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "truth",
                "isolation.level": isolation_level,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )


def check_kills(broker, servers, at, seed, kills_of_each):
    """Kill at random moments, which are numbers of written offsets; print the seed."""
    rng = random.Random(seed)
    kafka = Kafka(servers)
    for topic in ("source", "target"):
        kafka.create(topic, PARTITIONS)
    kills = [DRIVER, JVM, WORKER, BROKER] * kills_of_each
    rng.shuffle(kills)
    count = RECORDS * (len(kills) + 1)
    rows = [{"value": b"%d" % n, "partition": n % PARTITIONS} for n in range(count)]
    kafka.produce("source", rows)
    target, copy = Target(servers, "target"), Copy(servers, "source", "target", at)
    try:
        copy.start()
        for which in kills:
            wanted = min(target.end() + rng.randrange(1, RECORDS), count - 1)
            print(f"seed {seed}: kill the {which} after {wanted} offsets", flush=True)
            wait_until(
                lambda wanted=wanted: copy.check() or target.end() >= wanted, which, SLOWLY_S
            )
            if which == BROKER:
                broker.kill()
                broker.start()
            elif which == WORKER:
                copy.kill_worker(rng.choice)
            else:
                copy.kill(which)
                copy.start()
        copy.kill(DRIVER)
        copy.start(ends=True)
        copy.done()
        assert target.committed() == dict.fromkeys(range(count), 1)
    finally:
        copy.end()
        target.close()


# Marked interop because each application is slow.
@pytest.mark.interop
@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.soak)])
def test_each_row_is_written_once_through_kills(tmp_path, kills):
    with BrokerProcess(tmp_path / "data") as broker:
        check_kills(broker, broker.bootstrap_servers, tmp_path, seed=28908, kills_of_each=kills)


@pytest.mark.interop
@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.soak)])
def test_each_row_is_written_once_to_apache_kafka_through_kills(tmp_path, kills):
    with ApacheKafka() as broker:
        check_kills(broker, broker.bootstrap, tmp_path, seed=28908, kills_of_each=kills)


def check_executor_kills(servers, at, seed, moments):
    """Kill executors of a cluster while their tasks have written rows, or at random moments.

    After each kill, all rows are committed and no transaction stays open. No further batch starts
    before this check, because its tasks would abort the transactions of killed ones.
    """
    rng = random.Random(seed)
    kafka = Kafka(servers)
    for topic in ("source", "target"):
        kafka.create(topic, PARTITIONS)
    target = Target(servers, "target")
    count = 0

    def is_committed():
        copy.check()
        return target.open_rows() == 0 and target.committed().total() >= count

    with Standalone(at / "cluster") as cluster:
        conf = cluster.conf | ROW_BY_ROW
        only_full = {"minOffsetsPerTrigger": str(BATCH)}
        copy = Copy(servers, "source", "target", at, cluster.url, conf, **only_full)
        try:
            for number, moment in enumerate(moments):
                if moment == IN_A_TASK:
                    copy.close_gate()
                rows = range(count, count + (BATCH if moment == IN_A_TASK else RECORDS))
                count = rows.stop
                kafka.produce("source", [large_row(n) for n in rows])
                if number == 0:
                    copy.start(has_gate=True)
                if moment == IN_A_TASK:
                    wait_until(
                        lambda: copy.check() or target.open_rows() >= BATCH // PARTITIONS,
                        "rows of both tasks",
                        SLOWLY_S,
                    )
                    cluster.kill_executor(copy.waiting_tasks, SLOWLY_S, with_workers=True)
                    copy.open_gate()
                else:
                    wanted = target.end() + rng.randrange(1, RECORDS)
                    print(f"seed {seed}: kill an executor after {wanted} offsets", flush=True)
                    wait_until(
                        lambda wanted=wanted: copy.check() or target.end() >= wanted,
                        moment,
                        SLOWLY_S,
                    )
                    cluster.kill_executor(patience_s=SLOWLY_S)
                wait_until(is_committed, "the commit of all rows", SLOWLY_S)
                assert target.committed() == dict.fromkeys(range(count), 1)
            assert target.written().total() > count, "no killed task has written rows"
            # Spark repeated the tasks. On a busy machine, a Python process may start too slowly.
            assert all("failed to connect back" in error for error in copy.failures())
        except AssertionError:
            print(f"owned partitions: {owned_partitions(servers, 'copy')}")
            print(f"positions: {target.positions()}; log: {copy.log()}", flush=True)
            raise
        finally:
            copy.end()
            target.close()


def large_row(n):
    return {"value": (b"%d" % n).ljust(ROW_BYTES), "partition": n % PARTITIONS}


@pytest.mark.slow
@pytest.mark.parametrize(
    "moments",
    [
        pytest.param([IN_A_TASK], id="1"),
        pytest.param([IN_A_TASK, AT_RANDOM] * 2 + [IN_A_TASK], id="5", marks=pytest.mark.soak),
    ],
)
def test_each_row_is_written_once_through_executor_kills(tmp_path, moments):
    with ThreadedBroker() as broker:
        check_executor_kills(broker.bootstrap_servers, tmp_path, seed=28908, moments=moments)


@pytest.mark.interop
def test_each_row_is_written_once_to_apache_kafka_through_executor_kills(tmp_path):
    with ApacheKafka() as broker:
        check_executor_kills(broker.bootstrap, tmp_path, seed=28908, moments=[IN_A_TASK, AT_RANDOM])

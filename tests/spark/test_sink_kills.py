"""A query from topic to topic through kills: each row is committed once."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from interop.peers.kafka import ApacheKafka
from partage.testing import BrokerProcess

from .conftest import Kafka
from .group_state import wait_until

# Marked interop because each application is slow.
pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.xdist_group("spark")]

APPLICATION = Path(__file__).parent / "sink_application.py"
PARTITIONS = 2
#: Records for each kill.
RECORDS = 40
#: Timeout for several JVMs on two cores, next to other tests.
SLOWLY_S = 600
DRIVER, JVM, WORKER, BROKER = "driver", "jvm", "worker", "broker"


class Copy:
    """The query, run by several applications one after another."""

    def __init__(self, servers, source, target, at):
        self._at = at
        self._process = None
        common = {"kafka.bootstrap.servers": servers}
        self._source = {
            **common,
            "subscribe": source,
            "kafka.group.id": "copy",
            "kafka.session.timeout.ms": "6000",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "20",
            "columns": "key,value",
        }
        checkpoint = str(at / "checkpoint")
        self._sink = {**common, "topic": target, "checkpointLocation": checkpoint}

    def start(self, *, ends=False):
        given = {"source": self._source, "sink": self._sink, "ends": ends}
        with (self._at / "log").open("a") as log:
            command = [sys.executable, str(APPLICATION), json.dumps(given)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def check(self):
        assert self._process.poll() is None, self.log()

    def done(self):
        """Wait until the application ends by itself."""
        assert self._process.wait(SLOWLY_S) == 0, self.log()

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
        self._plain = self._reader("read_uncommitted")

    def end(self):
        """Return the number of offsets, with uncommitted rows and markers."""
        return sum(self._ends(self._plain))

    def committed(self):
        """Return how often each value is committed; no transaction may stay open.

        The coordinator may complete a transaction after its response to the producer.
        """
        reader = self._reader("read_committed")
        wait_until(lambda: sum(self._ends(reader)) == self.end(), "a transaction is open")
        stable = self._ends(reader)
        reader.assign([TopicPartition(p.topic, p.partition, 0) for p in self._partitions])
        found = Counter()
        while [p.offset for p in reader.position(self._partitions)] != stable:
            message = reader.poll(60)
            assert message is not None
            if message.error() is None:
                found[int(message.value())] += 1
        reader.close()
        return found

    def close(self):
        self._plain.close()

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


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.soak)])
def test_each_row_is_written_once_through_kills(tmp_path, kills):
    with BrokerProcess(tmp_path / "data") as broker:
        check_kills(broker, broker.bootstrap_servers, tmp_path, seed=28908, kills_of_each=kills)


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.soak)])
def test_each_row_is_written_once_to_apache_kafka_through_kills(tmp_path, kills):
    with ApacheKafka() as broker:
        check_kills(broker, broker.bootstrap, tmp_path, seed=28908, kills_of_each=kills)

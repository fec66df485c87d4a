"""``partage pipeline archive`` with Spark and with kills."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter

import psutil
import pyarrow.dataset as ds
import pytest

from partage.pipelines.archive.job import ArchiveOptions, archive
from partage.pipelines.queries import QueryFailedError
from polled_conditions import eventually

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

PATIENCE_S = 420
DAY_MS = 86_400_000


@pytest.fixture
def run(spark, kafka, tmp_path):
    def go(*topics, **changed):
        given = {"servers": kafka.servers, "topics": topics, "group": f"g-{topics[0]}"}
        given |= {"output": tmp_path / "archive", "is_once": True}
        return archive(spark, ArchiveOptions(**given | changed))

    return go


def rows(root, columns=("topic", "date", "partition", "offset")):
    """Return the rows that a reader without knowledge of the manifest finds."""
    files = ds.dataset(
        root,
        format="parquet",
        partitioning=ds.partitioning(flavor="hive"),
        exclude_invalid_files=False,
    )
    return Counter(tuple(row.values()) for row in files.to_table(columns=list(columns)).to_pylist())


class TestInOneSession:
    def test_each_record_is_archived_once_by_topic_and_date(self, spark, kafka, run, tmp_path):
        first, second = kafka.topic(2), kafka.topic(1)
        records = [
            {"key": b"%d" % n, "value": b"v%d" % n, "partition": n % 2, "timestamp": n * DAY_MS}
            for n in range(1, 7)
        ]
        records[0]["headers"] = [("h", b"x")]
        kafka.produce(first, records)
        kafka.produce(second, [{"value": None, "timestamp": DAY_MS}])
        report = run(first, second)
        assert (report.rows, report.refused) == (7, 0)
        assert rows(tmp_path / "archive") == Counter(
            [(first, f"1970-01-0{n + 1}", n % 2, (n - 1) // 2) for n in range(1, 7)]
            + [(second, "1970-01-02", 0, 0)]
        )
        frame = spark.read.parquet(str(tmp_path / "archive"))
        (row,) = frame.where(f"topic = '{first}' and date = '1970-01-02'").collect()
        assert (row.key, row.value, row.timestampType) == (b"1", b"v1", 0)
        assert [tuple(header) for header in row.headers] == [("h", b"x")]
        # A second run after one new record archives that record only.
        kafka.produce(first, [{"value": b"more", "partition": 0, "timestamp": DAY_MS}])
        report = run(first, second)
        assert (report.rows, report.refused) == (8, 0)
        assert {p.partition: p.spans for p in report.partitions if p.topic == first} == {
            0: [(0, 4)],
            1: [(0, 3)],
        }

    def test_other_group_archives_new_records_only(self, kafka, run, tmp_path):
        topic = kafka.topic(2)
        kafka.produce(topic, [{"value": b"x", "partition": n % 2} for n in range(10)])
        run(topic)
        kafka.produce(topic, [{"value": b"y", "partition": n % 2} for n in range(4)])
        report = run(topic, group=f"another-{topic}")
        assert (report.rows, report.refused) == (14, 10)
        found = rows(tmp_path / "archive", ["partition", "offset"])
        assert found == Counter((p, o) for p in range(2) for o in range(7))
        assert not list((tmp_path / "archive" / "_staging").iterdir())

    def test_failed_query_raises_its_error(self, kafka, run):
        story = "there is no topic 'nowhere'"
        with pytest.raises(QueryFailedError, match=story):
            run("nowhere", source={"kafkaConsumer.pollTimeoutMs": "1000"})


class Archiving:
    """The command as a process."""

    def __init__(self, servers, topic, output, log, *more):
        command = [sys.executable, "-m", "partage", "pipeline", "archive", "-b", servers]
        command += ["--topic", topic, "--output", str(output), "--json", "--master", "local[1]"]
        for option in ("kafka.session.timeout.ms=6000", "maxOffsetsPerTrigger=400"):
            command += ["--option", option]
        self._log = log.open("w")
        self.process = subprocess.Popen(
            [*command, *more], stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        self.log = log

    def kill(self):
        self.process.kill()
        self.process.communicate()
        self._log.close()

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        self._log.close()
        assert self.process.returncode == 0, self.log.read_text()
        return json.loads(out)


@pytest.mark.slow
@pytest.mark.xdist_group("processes")
def test_killed_driver_loses_and_duplicates_no_record(kafka, tmp_path):
    """Two processes archive one topic. One is killed with SIGKILL, then more records arrive."""
    topic = kafka.topic(4)
    root = tmp_path / "archive"

    def produce(first, last):
        numbers = range(first, last)
        kafka.produce(topic, [{"value": b"%d" % n, "partition": n % 4} for n in numbers])

    def brought_by(run):
        mine = f":{run.process.pid}"
        return [entry for entry in entries(root) if entry["by"].endswith(mine)]

    produce(0, 2000)
    running = [
        Archiving(kafka.servers, topic, root, tmp_path / name, "--every", "0.1")
        for name in ("killed.log", "other.log")
    ]
    killed, other = running
    try:
        # The first one to start owns all partitions until the other joins.
        produced = 2000
        while not all(map(brought_by, running)):
            produce(produced, produced + 400)
            produced += 400
            until_archived(root, produced, *running)
        killed.kill()
        produce(produced, produced + 2000)
        produced += 2000
        # The partitions of the killed process move after its session timeout.
        until_archived(root, produced, other)
        report = other.stop()
    finally:
        for one in running:
            if one.process.poll() is None:
                one.kill()
    assert report["rows"] == produced
    assert rows(root, ["partition", "offset"]) == Counter((n % 4, n // 4) for n in range(produced))
    assert rows(root, ["value"]) == Counter((b"%d" % n,) for n in range(produced))


@pytest.mark.slow
@pytest.mark.xdist_group("processes")
def test_ctrl_c_within_first_batch_ends_archive_with_report_and_no_stack(kafka, tmp_path):
    topic = kafka.topic(4)
    kafka.produce(topic, [{"value": b"x", "partition": n % 4} for n in range(4000)])
    root, log = tmp_path / "archive", tmp_path / "log"
    running = Archiving(kafka.servers, topic, root, log, "--every", "0.1")
    try:
        until(lambda: any(root.glob("_staging/*/*/_temporary")), running)  # its job runs
        report = running.stop(signal.SIGINT)
    finally:
        if running.process.poll() is None:
            running.kill()
    assert report["rows"] == archived(root)
    story = log.read_text()
    for sign in ("Traceback", "StackOverflowError", "\tat "):
        assert sign not in story, story


@pytest.mark.slow
@pytest.mark.xdist_group("processes")
def test_killed_jvm_is_reported(kafka, tmp_path):
    topic = kafka.topic()
    kafka.produce(topic, [{"value": b"x"}])
    root, log = tmp_path / "archive", tmp_path / "log"
    running = Archiving(kafka.servers, topic, root, log, "--every", "0.1")
    try:
        until_archived(root, 1, running)
        (jvm,) = [p for p in psutil.Process(running.process.pid).children() if "java" in p.name()]
        jvm.kill()
        running.process.wait(PATIENCE_S)
    finally:
        running.kill()
    assert running.process.returncode == 1
    (error,) = [line for line in log.read_text().splitlines() if line.startswith("error: ")]
    assert error.startswith("error: the JVM of Spark has ended")


def until_archived(root, count, *running):
    until(lambda: archived(root) == count, *running)


def archived(root):
    """Return the number of archived rows."""
    return sum(taken["rows"] for entry in entries(root) for taken in entry["taken"])


def entries(root):
    """Return the manifest's entries, while other processes write it."""
    return [json.loads(path.read_bytes()) for path in sorted(root.glob("_manifest/0*.json"))]


def until(is_so, *running):
    """Wait until a condition holds; fail if a process has ended."""

    def check():
        for one in running:
            assert one.process.poll() is None, one.log.read_text()

    eventually(is_so, lambda: [one.log.read_text()[-2000:] for one in running], PATIENCE_S, check)

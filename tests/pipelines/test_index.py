"""Indexer processes that are killed: all replicas are restored and agree with their positions."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from console.cli import PartageCli
from examples.flights.csv_records import FLIGHTS, PARTITIONS, records
from examples.flights.loader import load
from polled_conditions import PATIENCE_S, eventually
from recipes.external_broker import empty_broker, fresh_topic

pytestmark = pytest.mark.timeout(600)
COUNT = 12_000
QUICK = {
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 100,
    "fetch.wait.max.ms": 50,
}


@pytest.fixture
def servers(request):
    with empty_broker(request) as servers:
        # the records are from 2013
        fresh_topic(servers, FLIGHTS, PARTITIONS, **{"retention.ms": "-1"})
        yield servers


def fill(servers, begin, end):
    return load(servers, FLIGHTS, itertools.islice(records(FLIGHTS), begin, end), lambda _: None)


class Indexer:
    """``partage pipeline index`` as a process."""

    def __init__(self, servers, directory, *options):
        self.directory = directory
        command = [sys.executable, "-m", "partage", "pipeline", "index", "-t", FLIGHTS]
        command += ["-o", str(directory), "--commit-interval-ms", "200", "--json", *options]
        for name, value in QUICK.items():
            command += ["-X", f"{name}={value}"]
        self._error = (directory.with_suffix(".err")).open("a+")
        self.process = subprocess.Popen(
            [*command, "-b", servers],
            env=os.environ.copy(),
            stdout=subprocess.PIPE,
            stderr=self._error,
            text=True,
        )

    def kill(self):
        self.process.kill()
        self._end()

    def stop(self):
        """Stop it with SIGINT, as Ctrl-C does, and return its report."""
        self.process.send_signal(signal.SIGINT)
        return self.report()

    def report(self, within_s=240):
        """Wait until it ends, and return the printed report."""
        out, _ = self.process.communicate(timeout=within_s)
        self._error.seek(0)
        assert self.process.returncode == 0, self._error.read()
        self._end()
        return json.loads(out)

    def _end(self):
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()
        self._error.close()

    def close(self):
        if self.process.poll() is None:
            self.kill()
        elif not self._error.closed:
            self._end()

    def positions(self):
        """Return the position of each active index, by partition."""
        found = {}
        for path in self.directory.glob("*.index"):
            row = asked(path, "SELECT partition, coalesce(position, 0), retired_at_ms FROM state")
            if row and row[0][2] is None:
                found[row[0][0]] = row[0][1]
        return found


def asked(path: Path, question: str):
    """Query an index; return nothing while it is being created or removed."""
    connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=30)
    try:
        return connection.execute(question).fetchall()
    except sqlite3.OperationalError:
        return []
    finally:
        connection.close()


@pytest.fixture
def indexer_of(servers, tmp_path):
    made = []

    def make(name, *options):
        made.append(Indexer(servers, tmp_path / name, *options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def ends(servers):
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "-"})
    try:
        return {
            number: consumer.get_watermark_offsets(
                TopicPartition(FLIGHTS, number), timeout=PATIENCE_S
            )[1]
            for number in range(PARTITIONS)
        }
    finally:
        consumer.close()


def truth(servers):
    """Return all records as another client reads them: texts by partition and offset."""
    last = ends(servers)
    found = {number: {} for number in last}
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "-"})
    consumer.assign([TopicPartition(FLIGHTS, number, 0) for number in last])
    while sum(map(len, found.values())) < sum(last.values()):
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None
        found[message.partition()][message.offset()] = message.value().decode()
    consumer.close()
    return found


def documents(directory, partition):
    path = directory / f"{FLIGHTS}-{partition}.index"
    return dict(asked(path, 'SELECT "offset", text FROM documents'))


def check_consistent(indexer, true):
    """Check that the documents are exactly those before the positions."""
    for partition, position in indexer.positions().items():
        held = documents(indexer.directory, partition)
        assert held == {n: text for n, text in true[partition].items() if n < position}


def until(holds, *indexers, within_s=180.0):
    """Wait until a condition holds; fail if an indexer has ended."""

    def check():
        for indexer in indexers:
            assert indexer.process.poll() is None, indexer.directory.with_suffix(".err").read_text()

    eventually(holds, lambda: [indexer.positions() for indexer in indexers], within_s, check)


def replicated(last, times, *indexers):
    """True if each partition has ``times`` indexes, all of them complete."""
    positions = [indexer.positions() for indexer in indexers]
    count = Counter(partition for its in positions for partition in its)
    return count == dict.fromkeys(last, times) and all(
        at == last[partition] for its in positions for partition, at in its.items()
    )


@pytest.mark.slow
def test_killed_members_are_replaced_by_full_replicas(servers, indexer_of, tmp_path):
    a, b, c = (indexer_of(name) for name in "abc")
    writing = threading.Thread(target=fill, args=(servers, 0, COUNT // 2))
    writing.start()
    until(lambda: any(c.positions().values()), a, b, c)
    c.kill()
    writing.join()
    last = ends(servers)
    until(lambda: replicated(last, 2, a, b), a, b)
    true = truth(servers)
    check_consistent(c, true)

    fill(servers, COUNT // 2, COUNT)
    last, true = ends(servers), truth(servers)
    assert sum(last.values()) == COUNT
    c = indexer_of("c")  # with its earlier indexes
    # the shares may differ until the last rebalance
    until(
        lambda: replicated(last, 2, a, b, c) and {len(m.positions()) for m in (a, b, c)} == {8},
        *(a, b, c),
    )
    a.kill()
    until(lambda: replicated(last, 2, b, c), b, c)
    for indexer in (a, b, c):
        check_consistent(indexer, true)
    reports = [b.stop(), c.stop()]
    for report in reports:
        assert [each["lag"] for each in report["partitions"]] == [0] * PARTITIONS
        assert sum(each["documents"] for each in report["partitions"]) == COUNT
        assert report["rebuilt"] == 0
    assert reports[0]["records"] >= COUNT

    flown = sum('"tailnum":"N14228"' in text for its in true.values() for text in its.values())
    assert flown > 0
    for directory in (tmp_path, tmp_path / "b", tmp_path / "c"):
        found = PartageCli(servers)("search", directory, "N14228", "-n", COUNT, "--json").json
        assert len(found["hits"]) == flown


@pytest.mark.slow
def test_repeated_kills_leave_a_correct_index(servers, indexer_of):
    fill(servers, 0, COUNT // 2)
    last, true = ends(servers), truth(servers)
    for _ in range(3):
        indexer = indexer_of("a", "--once", "-X", "fetch.message.max.bytes=20000")
        before = indexer.positions()
        eventually(
            lambda: indexer.process.poll() is not None or indexer.positions() != before  # noqa: B023
        )
        indexer.kill()
        check_consistent(indexer, true)
    report = indexer_of("a", "--once").report()
    assert {each["partition"]: each["position"] for each in report["partitions"]} == last
    for partition in last:
        assert documents(indexer.directory, partition) == true[partition]


class TestCommand:
    @pytest.fixture
    def partage(self, servers):
        return PartageCli(servers)

    def index(self, partage, directory, *options, code=0):
        quick = [option for n, v in QUICK.items() for option in ("-X", f"{n}={v}")]
        arguments = ("-t", FLIGHTS, "-o", directory, "--once", *quick, *options)
        return partage("pipeline", "index", *arguments, code=code)

    def test_text_report_lists_partitions(self, partage, servers, tmp_path):
        fill(servers, 0, 100)
        ran = self.index(partage, tmp_path)
        assert ran.lines[0].split() == ["TOPIC", "PARTITION", "DOCUMENTS", "POSITION", "LAG"]
        assert len(ran.lines) == 1 + PARTITIONS
        assert f"{tmp_path}: 100 documents of 12 partitions; indexed 100 records (" in ran.err
        assert re.search(r"; \d+ rebalances?\n", ran.err)
        again = self.index(partage, tmp_path, "--json").json
        assert (again["records"], again["group"], again["replicas"]) == (0, "partage-index", 2)

    def test_search_finds_indexed_records(self, partage, servers, tmp_path):
        fill(servers, 0, 1000)
        self.index(partage, tmp_path / "a")
        ran = partage("search", tmp_path, '"dest IAH" UA', "--limit", 2)
        heads = ["TOPIC", "PARTITION", "OFFSET", "TIME", "KEY", "EXCERPT"]
        assert ran.lines[0].split() == heads
        assert len(ran.lines) == 3
        assert '"dest":"IAH"' in ran.lines[1]
        assert ran.err == "found 2 records; there may be more, increase --limit\n"
        found = partage("search", tmp_path, "b6 OR ua", "--fts5", "-n", 5000, "--json").json["hits"]
        assert {json.loads(hit["text"])["carrier"] for hit in found} == {"B6", "UA"}
        assert found[0]["score"] >= found[-1]["score"]
        assert partage("search", tmp_path, "nobody").err == "found 0 records\n"
        assert partage("search", tmp_path, "iah", "-t", FLIGHTS, "--json").json["hits"]

    def test_invalid_input_is_rejected(self, partage, tmp_path):
        assert "does not exist" in partage.fails("search", tmp_path / "x", "y")
        assert "no search index in" in partage.fails("search", tmp_path, "y")
        assert "no words" in partage.fails("search", tmp_path, "-", code=2)
        story = "must be at most 1000000"
        assert story in partage.fails("search", tmp_path, "x", "-n", 2**63, code=2)
        (tmp_path / "file").touch()
        ran = self.index(partage, tmp_path / "file", code=1)
        assert "cannot create directory" in ran.err
        ran = partage("pipeline", "index", "-t", "nope", "-o", tmp_path, "--once", code=1)
        assert ran.err == "error: no such topic: nope\n"
        ran = self.index(partage, tmp_path, "-X", "auto.offset.reset=latest", code=2)
        assert "does not accept auto_offset_reset" in ran.err
        ran = self.index(partage, tmp_path, "-X", "heartbeat.interval.ms=8000", code=2)
        assert "heartbeat_interval_ms=8000: expected less than session_timeout_ms" in ran.err

"""``partage pipeline join`` of flights and weather, with a kill."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections import Counter

import pyarrow.dataset as ds
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import given
from hypothesis import strategies as st

from console.cli import PartageCli
from examples.flights.csv_records import FLIGHTS, WEATHER, records
from partage.pipelines.join.job import JoinOptions, batch_source_options, join
from partage.pipelines.join.window import JoinWindow, left_end_offsets, pending_spans
from partage.pipelines.offset_spans import OffsetSpan
from partage.pipelines.sources import SourceError, topic_end_offsets

from .test_archive import entries, until

PARTITIONS = 3
HOUR_MS = 3_600_000


class TestWindows:
    @given(*[st.integers(0, 10_000)] * 4, st.integers(0, 30_000))
    def test_record_waits_until_no_match_can_arrive(self, left, within, late, early, latest):
        """No record allowed by the watermark can match a row that was already written."""
        terms = JoinWindow(within_ms=within, late_ms=late)
        is_put_out = left <= terms.last_complete_ms(latest)
        to_come_ms = latest - late + early  # any right record that may still arrive
        assert not (is_put_out and abs(to_come_ms - left) <= within)
        # and it does not wait longer than necessary
        assert is_put_out or left + within >= latest - late
        assert terms.right_start_ms(left) <= max(left - within, 0)

    def test_left_end_offsets_need_both_topics(self):
        offset = {"ranges": {"f": {"0": [3, 9], "2": [1, 1]}, "w": {"0": [0, 0], "1": [5, 6]}}}
        assert left_end_offsets(offset, "f", "w") == {0: 9}
        assert left_end_offsets({"ranges": {}}, "f", "w") == {}

    def test_pending_spans_start_at_output_end(self):
        assert pending_spans({0: 4, 1: 7}, {0: 9, 1: 7, 2: 5}) == {
            0: OffsetSpan(4, 9),
            2: OffsetSpan(0, 5),
        }


def test_batch_source_options_drop_streaming_options():
    """Options for streaming queries, group members and start offsets are dropped."""
    both = {
        "kafka.isolation.level": "read_committed",
        "kafka.security.protocol": "SSL",
        "kafka.client.id": "joiner",
        "kafka.default.api.timeout.ms": "9000",
        "kafkaConsumer.pollTimeoutMs": "1000",
        "failOnDataLoss": "false",
        "minPartitions": "8",
    }
    only_the_query = {
        "maxOffsetsPerTrigger": "600",
        "minoffsetspertrigger": "1",
        "maxTriggerDelay": "1m",
        "kafka.session.timeout.ms": "6000",
        "kafka.group.instance.id": "me",
        "startingTimestamp": "5",
        "startingOffsetsByTimestampStrategy": "latest",
    }
    assert batch_source_options(both | only_the_query) == both


def matches(root):
    """Return value and matching values of each row; check that no row is duplicated."""
    files = ds.dataset(root, format="parquet", partitioning="hive", exclude_invalid_files=False)
    rows = files.to_table(columns=["partition", "offset", "value", "matches"]).to_pylist()
    assert max(Counter((row["partition"], row["offset"]) for row in rows).values()) == 1
    return Counter(
        (row["value"], tuple(match["value"] for match in row["matches"])) for row in rows
    )


class TestRefusals:
    """Errors before Spark starts."""

    @pytest.fixture
    def partage(self, partage_broker):
        servers = partage_broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
        for made in admin.create_topics([NewTopic("a", 2, 1), NewTopic("b", 3, 1)]).values():
            made.result(30)
        return PartageCli(servers)

    @pytest.mark.parametrize(
        ("words", "story"),
        [
            ("join --left a --right b -o j", "need the same number of partitions.*a has 2 and b"),
            ("join --left a --right c -o j", "there is no topic 'c'"),
            (
                "join --left a --right b -o j --option kafka.group.protocol=consumer",
                "group.protocol=consumer: a join needs the classic protocol",
            ),
            ("archive --topic c -o j", "there is no topic 'c'"),
            ("archive --topic a -o j --option maxOffsetPerTrigger=1", "mean maxOffsetsPerTrigger"),
        ],
    )
    def test_unusable_topics_or_options_fail(self, partage, tmp_path, monkeypatch, words, story):
        monkeypatch.chdir(tmp_path)
        ran = partage("pipeline", *words.split(), code=1)
        assert re.search(story, ran.err)
        assert not (tmp_path / "j").exists()

    @pytest.mark.parametrize(
        ("words", "story"),
        [
            ("join --left a --right a -o j", "--left and --right must be different topics"),
            (
                "join --left a --right b -o j --option kafka.partition.assignment.strategy=range",
                "cannot be set: the pipeline sets it",
            ),
            ("join --left a --right b -o j --within inf", "'--within': must be at most 1000000000"),
            ("join --left a --right b -o j --late nan", "'--late': must be at most 1000000000"),
            ("join --left a --right b -o j --late 1e300", "'--late': must be at most 1000000000"),
            ("archive --topic a -o j --every inf", "'--every': must be at most"),
            ("archive -o j", "archive requires either topics or --report"),
            ("archive --topic a -o j --option subscribe=b", "cannot be set: the pipeline sets it"),
        ],
    )
    def test_invalid_usage_is_rejected(self, partage, words, story):
        assert story in partage("pipeline", *words.split(), code=2).err


def test_topic_end_offsets_are_returned(partage_broker):
    servers = partage_broker.bootstrap_servers
    partage_broker.create_topic("a", partitions=2)
    producer = Producer({"bootstrap.servers": servers})
    for _ in range(3):
        producer.produce("a", b"x", partition=1)
    assert producer.flush(60) == 0
    assert topic_end_offsets(servers, "a", {"kafka.isolation.level": "read_committed"}) == {
        0: 0,
        1: 3,
    }
    with pytest.raises(SourceError, match="there is no topic 'b'"):
        topic_end_offsets(servers, "b", {})


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
class TestSmall:
    @pytest.fixture
    def topics(self, kafka):
        return kafka.topic(PARTITIONS), kafka.topic(PARTITIONS)

    @pytest.fixture
    def run(self, spark, kafka, topics, tmp_path):
        def go(**changed):
            left, right = changed.pop("topics", topics)
            given = {"servers": kafka.servers, "left": left, "right": right, "is_once": True}
            given |= {"window": JoinWindow(within_ms=1000, late_ms=0), "group": f"g-{left}"}
            return join(spark, JoinOptions(**given | {"output": tmp_path / "j"} | changed))

        return go

    def test_records_match_by_key_and_time(self, kafka, topics, run, tmp_path):
        left, right = topics

        def produce(topic, *given):
            rows = [{"key": k, "value": v, "timestamp": ms, "partition": 0} for k, v, ms in given]
            kafka.produce(topic, rows)

        produce(left, (b"a", b"L1", 5000), (b"b", b"L2", 5000), (None, b"L3", 5000))
        produce(right, (b"a", b"R1", 4000), (b"a", b"R2", 6000), (b"a", b"R3", 6001))
        produce(right, (None, b"R4", 5000), (b"c", b"R5", 5000))
        report = run()
        assert matches(tmp_path / "j") == Counter(
            {(b"L1", (b"R1", b"R2")): 1, (b"L2", ()): 1, (b"L3", ()): 1}
        )
        # A second run writes no row again, and joins new records with old ones.
        produce(left, (b"b", b"L4", 7000))
        produce(right, (b"b", b"R6", 7500))
        report = run()
        assert (report.rows, report.refused) == (4, 0)
        assert matches(tmp_path / "j")[b"L4", (b"R6",)] == 1


def fill(servers, topic, rows):
    """Produce rows in timestamp order, with the demo's partitioning."""
    rows = sorted(rows, key=lambda row: row.timestamp_ms)
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
    for row in rows:
        producer.produce(topic, row.value, row.key, timestamp=row.timestamp_ms)
    assert producer.flush(60) == 0
    return rows


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_killed_join_is_completed_by_another_run(spark, kafka, tmp_path):
    """One process joins until it is killed with SIGKILL; another run completes the join."""
    left, right = kafka.topic(PARTITIONS), kafka.topic(PARTITIONS)
    flights = fill(kafka.servers, left, itertools.islice(records(FLIGHTS), 3000))
    last_ms = flights[-1].timestamp_ms
    hours = (row for row in records(WEATHER) if row.timestamp_ms <= last_ms)
    hours = fill(kafka.servers, right, hours)
    root = tmp_path / "joined"
    command = [sys.executable, "-m", "partage", "pipeline", "join", "-b", kafka.servers]
    command += ["--left", left, "--right", right, "--output", str(root), "--group", "joiners"]
    command += ["--every", "0.1", "--master", "local[1]", "--option", "maxOffsetsPerTrigger=600"]
    command += ["--option", "kafka.session.timeout.ms=6000"]

    class Killed:
        log = tmp_path / "killed.log"

    with Killed.log.open("w") as log:
        Killed.process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until(lambda: len(entries(root)) >= 2, Killed)
    finally:
        Killed.process.kill()
        Killed.process.wait()
    before = sum(taken["rows"] for entry in entries(root) for taken in entry["taken"])
    options = JoinOptions(
        servers=kafka.servers,
        left=left,
        right=right,
        window=JoinWindow(within_ms=0, late_ms=0),
        group="joiners",
        output=root,
        is_once=True,
        source={"kafka.session.timeout.ms": "6000"},
    )
    report = join(spark, options)
    assert 0 < before < report.rows == 3000
    weather = {row.key: row.value for row in hours}
    truth = Counter(
        (row.value, (weather[row.key],) if row.key in weather else ()) for row in flights
    )
    assert matches(root) == truth
    assert json.loads(next(iter(weather.values())))["origin"]

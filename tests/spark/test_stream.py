"""Streaming queries in Spark as group members: ``spark.readStream.format("partage")``."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from partage.spark import failure_reason, install_commit_listener
from partage.sync import Consumer
from partage.testing import BrokerProcess, ThreadedBroker

from .conftest import Kafka
from .group_state import PATIENCE_S, committed, filled_topic, member_partitions, produce, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


class Query:
    """A streaming query that collects its rows batch by batch."""

    def __init__(self, frame, checkpoint, **trigger):
        self.batches = []
        self.by_number = {}
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.is_to_fail = False
        writer = frame.writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(checkpoint))
        self._start(writer.trigger(**trigger) if trigger else writer)

    def _start(self, writer):
        """Start the query again if its source process misses Spark's limit of ten seconds."""
        for _ in range(5):
            self.query = writer.start()
            wait_until(lambda: not self.query.isActive or not self._is_beginning())
            if "failed to connect back" not in str(self.query.exception()):
                return

    def _is_beginning(self):
        return "nitializing" in self.query.status["message"]

    def _take(self, frame, batch_id):
        if rows := [tuple(row) for row in frame.collect()]:
            self.batches.append(sorted(rows))
            self.by_number[batch_id] = sorted(rows)
            self.may_go_on.wait()
            if self.is_to_fail:
                raise RuntimeError("this batch was to fail")

    @property
    def rows(self):
        return [row for batch in self.batches for row in batch]

    def has(self, count):
        """Wait for ``count`` rows, and return all rows in order."""

        def come():
            if self.query.exception() is not None:
                raise self.query.exception()
            return len(self.rows) >= count

        wait_until(come, f"{count} rows")
        return sorted(self.rows)

    def done(self):
        """Wait until the query ends by itself."""
        assert self.query.awaitTermination(PATIENCE_S)
        return self


@pytest.fixture
def stream(spark, kafka, tmp_path):
    queries = []

    def start(name="q", trigger=None, **options):
        options = {"columns": "partition,offset", **options}
        options = {n.replace("__", "."): v for n, v in options.items()}
        frame = spark.readStream.format("partage").options(
            **{"kafka.bootstrap.servers": kafka.servers, **options}
        )
        queries.append(query := Query(frame.load(), tmp_path / name, **(trigger or {})))
        return query

    yield start
    for one in queries:
        one.may_go_on.set()
        one.query.stop()


def sources(spark):
    """Return the source processes of the session's queries."""
    jvm = spark.sparkContext._gateway.jvm.java.lang.ProcessHandle.current().pid()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                parent = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()[1]
                command = Path(f"/proc/{entry}/cmdline").read_text()
                if int(parent) == jvm and "python_streaming_source_runner" in command:
                    found.append(int(entry))
    return found


def grouped(topic, **options):
    """Return the options of a query in a group named after its topic, from the earliest offset."""
    return {"subscribe": topic, "kafka__group__id": topic, "startingOffsets": "earliest"} | options


NOW = {"availableNow": True}
#: Moments of a kill.
WAITING, IN_A_BATCH, AT_ONCE = "while it waits", "in a batch", "as records come"
PARTAGE = (sys.executable, "-m", "partage")


def test_query_joins_group_and_commits_finished_batches(stream, kafka):
    topic, truth = filled_topic(kafka)
    query = stream(**grouped(topic))
    assert query.has(100) == truth
    wait_until(lambda: committed(kafka, topic, topic, 4) == [25] * 4)
    kafka.produce(topic, [{"value": b"x", "partition": 2}] * 3)
    assert query.has(103) == sorted([*truth, (2, 25), (2, 26), (2, 27)])
    wait_until(lambda: committed(kafka, topic, topic, 4) == [25, 25, 28, 25])
    query.query.processAllAvailable()
    source = query.query.lastProgress.sources[0]
    end, latest = json.loads(source.endOffset), json.loads(source.latestOffset)
    assert list(member_partitions(kafka, topic)) == [end["member"]] == [latest["member"]]
    assert end["generation"] == latest["generation"] > 0
    assert end["ranges"][topic] == {"0": [25, 25], "1": [25, 25], "2": [25, 28], "3": [25, 25]}
    assert end["lag"] == {topic: dict.fromkeys("0123", 0)}
    query.may_go_on.clear()
    produce(kafka, topic, 4, 7)
    query.has(131)  # a batch is in progress, so the group lags
    lags = subprocess.run(
        [*PARTAGE, "groups", "describe", "--group", topic, "--bootstrap-server", kafka.servers],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert [line.split()[3:6] for line in lags[1:5]] == [
        [str(at), str(at + 7), "7"] for at in (25, 25, 28, 25)
    ]
    query.may_go_on.set()


@pytest.mark.slow
def test_queries_share_partitions_and_take_over(stream, kafka):
    """With a cooperative assignor, no record is lost or duplicated."""
    topic, truth = filled_topic(kafka, 4)
    one = stream("one", **grouped(topic))
    assert one.has(100) == truth
    two = stream("two", **grouped(topic))

    def shared():
        return sorted(map(len, member_partitions(kafka, topic).values())) == [2, 2]

    wait_until(shared, "two members with two partitions each")
    produce(kafka, topic, 4, 5)
    wait_until(lambda: len(one.rows) + len(two.rows) == 120)
    assert {p for p, _ in two.rows}.isdisjoint(p for p, _ in one.rows[100:])
    assert len({p for p, _ in two.rows}) == 2
    two.query.processAllAvailable()
    # sends SIGTERM to the source, which leaves the group without a session timeout
    two.query.stop()
    wait_until(lambda: list(map(len, member_partitions(kafka, topic).values())) == [4])
    produce(kafka, topic, 4, 5)
    wait_until(lambda: len(one.rows) + len(two.rows) == 140)
    assert sorted(one.rows + two.rows) == [(p, o) for p in range(4) for o in range(35)]


@pytest.mark.slow
def test_killed_source_repeats_batch_unchanged(stream, kafka, spark):
    topic, _ = filled_topic(kafka)
    options = grouped(topic, kafka__group__instance__id="i")
    query = stream(**options)
    query.query.processAllAvailable()
    query.is_to_fail = True
    query.may_go_on.clear()
    produce(kafka, topic, 4, 5)
    query.has(101)  # the batch may begin before all of them are written
    produce(kafka, topic, 4, 5)
    (pid,) = sources(spark)
    os.kill(pid, signal.SIGKILL)
    query.may_go_on.set()
    wait_until(lambda: query.query.exception() is not None)
    again = stream(**options)  # same checkpoint, same static member
    again.has(40)
    assert again.batches[0] == query.batches[1]
    assert sorted(query.batches[0] + again.rows) == [(p, o) for p in range(4) for o in range(35)]
    wait_until(lambda: committed(kafka, topic, topic, 4) == [35] * 4)


@pytest.mark.slow
def test_killed_source_is_named_in_failure_reason(stream, kafka, spark):
    topic, truth = filled_topic(kafka)
    query = stream(subscribe=topic, startingOffsets="earliest")
    assert query.has(100) == truth
    (pid,) = sources(spark)
    os.kill(pid, signal.SIGKILL)
    assert "has ended without an error" in failure_reason(wait_until(query.query.exception))


@pytest.mark.soak
def test_repeated_source_kills_lose_no_records(stream, kafka, spark):
    """Each kill fails the query; the next query continues with the same checkpoint."""
    topic, _ = filled_topic(kafka)
    options = grouped(topic, kafka__group__instance__id="i")
    table, count = {}, 25
    for moment in [WAITING, IN_A_BATCH, AT_ONCE, IN_A_BATCH, AT_ONCE]:
        query = stream(**options)
        query.query.processAllAvailable()
        if moment == IN_A_BATCH:
            query.may_go_on.clear()
        if moment != WAITING:
            produce(kafka, topic, 4, 5)
            count += 5
        if moment == IN_A_BATCH:
            query.has(len(query.rows) + 1)
        (pid,) = sources(spark)
        os.kill(pid, signal.SIGKILL)
        query.may_go_on.set()
        produce(kafka, topic, 4, 5)
        count += 5
        wait_until(lambda query=query: query.query.exception() is not None)
        check_repeats(table, query.by_number)
    last = stream(**options)
    last.query.processAllAvailable()
    check_repeats(table, last.by_number)
    rows = sorted(row for batch in table.values() for row in batch)
    assert rows == [(p, o) for p in range(4) for o in range(count)]
    wait_until(lambda: committed(kafka, topic, topic, 4) == [count] * 4)


def check_repeats(table, batches):
    """Add a query's batches to the table, and check that repeated batches are equal."""
    assert all(table.get(number, rows) == rows for number, rows in batches.items())
    table |= batches


@pytest.mark.slow
def test_kept_partitions_are_read_during_rebalance(stream):
    """The first query has rejoined and reads on while its SyncGroup response is delayed."""
    with ThreadedBroker() as broker:
        there = Kafka(broker.bootstrap_servers)
        topic, _ = filled_topic(there)
        options = grouped(topic, kafka__bootstrap__servers=there.servers)
        options["kafka__session__timeout__ms"] = "600000"  # it sends no heartbeats in the meantime
        stays = stream("a", kafka__client__id="stays", **options)
        stays.has(100)
        with broker.faults.hold("SyncGroup", client_id="stays") as answer:
            comes = stream("b", kafka__client__id="comes", **options)
            answer.wait(PATIENCE_S)
            produce(there, topic, 4)
            stays.has(104)
            assert comes.rows == []
        wait_until(lambda: sorted(map(len, member_partitions(there, topic).values())) == [2, 2])
        produce(there, topic, 4)
        wait_until(lambda: len(stays.rows) == 106 and len(comes.rows) == 2)
        for query in (stays, comes):
            query.query.stop()
    assert sorted(stays.rows + comes.rows) == [(p, o) for p in range(4) for o in range(27)]


ALL_MOMENTS = [WAITING, IN_A_BATCH, AT_ONCE, IN_A_BATCH, AT_ONCE]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moments", "outage_s"),
    [
        ([WAITING, IN_A_BATCH], 2),
        pytest.param(ALL_MOMENTS, 0, marks=pytest.mark.soak),
        pytest.param(ALL_MOMENTS[:2], 90, marks=pytest.mark.soak),
        pytest.param(ALL_MOMENTS[2:3], 90, marks=pytest.mark.soak),
    ],
)
def test_broker_outage_loses_no_records(stream, moments, outage_s):
    """Kill the broker while queries wait, during a batch, and while records arrive."""
    with BrokerProcess(overrides={"group.initial.rebalance.delay.ms": "0"}) as broker:
        there = Kafka(broker.bootstrap_servers)
        topic, _ = filled_topic(there)
        options = grouped(topic, kafka__bootstrap__servers=there.servers)
        query = stream("grouped", **options)
        del options["kafka__group__id"]
        alone = stream("alone", **options)
        count = 25
        query.has(4 * count)
        alone.has(4 * count)
        for moment in moments:
            if moment != WAITING:
                if moment == IN_A_BATCH:
                    query.may_go_on.clear()
                produce(there, topic, 4, 5)
                count += 5
            if moment == IN_A_BATCH:
                query.has(4 * (count - 5) + 1)
            broker.kill()
            query.may_go_on.set()
            time.sleep(outage_s)
            broker.start()
            produce(there, topic, 4, 5)
            count += 5
            truth = [(p, o) for p in range(4) for o in range(count)]
            assert query.has(4 * count) == truth
            assert alone.has(4 * count) == truth
        wait_until(lambda: committed(there, topic, topic, 4) == [count] * 4)
        query.query.stop()
        alone.query.stop()


@pytest.mark.slow
def test_query_stops_during_outage(stream):
    """A query that waits for its broker can be stopped, and its source process ends."""
    with BrokerProcess() as broker:
        topic, truth = filled_topic(Kafka(broker.bootstrap_servers))
        query = stream(
            subscribe=topic,
            startingOffsets="earliest",
            kafka__bootstrap__servers=broker.bootstrap_servers,
        )
        assert query.has(100) == truth
        query.query.processAllAvailable()
        broker.kill()
        wait_until(lambda: "Getting offsets" in query.query.status["message"])
        query.query.stop()
        assert query.query.exception() is None


def test_available_now_reads_in_batches_and_leaves(stream, kafka):
    topic, truth = filled_topic(kafka)
    options = grouped(topic, maxOffsetsPerTrigger="40")
    first = stream(trigger=NOW, **options).done()
    assert sorted(first.rows) == truth
    assert [len(batch) for batch in first.batches] == [40, 40, 20]
    assert committed(kafka, topic, topic, 4) == [25] * 4
    wait_until(lambda: member_partitions(kafka, topic) == {})
    produce(kafka, topic, 4)
    assert sorted(stream(trigger=NOW, **options).done().rows) == [(p, 25) for p in range(4)]


@pytest.mark.slow
def test_progress_has_metrics_of_connector_in_latest_offset(stream, kafka):
    """Spark leaves the metrics of a Python source empty. If this fails, report them there too."""
    topic, _ = filled_topic(kafka, 2, 8)
    kafka.produce(topic, [{"value": b"x", "partition": 1}] * 8)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "8"}
    query = stream(trigger=NOW, **options).done().query
    reports = [progress.sources[0] for progress in query.recentProgress]
    assert [json.loads(source.latestOffset)["metrics"] for source in reports] == [
        {
            "avgOffsetsBehindLatest": average,
            "maxOffsetsBehindLatest": most,
            "minOffsetsBehindLatest": least,
        }
        for average, most, least in [("4.0", "6", "2"), ("0.0", "0", "0")]
    ]
    assert [source.metrics for source in reports] == [{}, {}]
    assert query.lastProgress.sources[0].latestOffset == reports[-1].latestOffset


@pytest.mark.slow
def test_minimum_size_and_maximum_delay_control_batches(stream, kafka):
    topic, truth = filled_topic(kafka, 2, 4)
    options = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": "6"}
    waits = stream("waits", maxTriggerDelay="1h", **options)
    hurries = stream("hurries", maxTriggerDelay="1s", **options)
    assert waits.has(4) == hurries.has(4) == truth  # the first batch does not wait
    produce(kafka, topic, 2, 2)
    hurries.has(8)
    waits.query.processAllAvailable()
    assert waits.batches == [truth]
    produce(kafka, topic, 2, 1)
    waits.has(10)
    assert waits.batches == [truth, [(p, o) for p in range(2) for o in range(2, 5)]]


def test_listener_commits_at_end_of_batch(stream, kafka, spark):
    """With a trigger once an hour, the group sees the commit and the revocation at once."""
    topic, truth = filled_topic(kafka, 2)
    listener = install_commit_listener(spark)
    try:
        query = stream(trigger={"processingTime": "1 hour"}, **grouped(topic))
        assert query.has(100) == truth
        wait_until(lambda: committed(kafka, topic, topic, 2) == [50, 50])
        with Consumer(kafka.servers, group_id=topic) as consumer:
            consumer.subscribe([topic])
            wait_until(lambda: not consumer.poll(100) and len(consumer.assignment()) == 1)
    finally:
        spark.streams.removeListener(listener)


def test_unknown_topic_fails_the_query(stream, kafka):
    query = stream(subscribe="nowhere", kafka__group__id="g")
    story = str(wait_until(query.query.exception))
    assert "there is no topic 'nowhere'" in story

"""``spark.readStream.format("partage")``, in Spark: a query as a member of a group."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from partage.spark import install
from partage.sync import Consumer
from partage.testing import BrokerProcess, ThreadedBroker

from .conftest import Kafka
from .group_state import PATIENCE_S, committed, filled_topic, member_partitions, produce, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


class Query:
    """A streaming query that collects its rows, batch by batch."""

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
        """Spark gives a source process ten seconds to begin, which a busy machine may not have."""
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
        """Wait for so many rows; all of them, in order."""

        def come():
            if self.query.exception() is not None:
                raise self.query.exception()
            return len(self.rows) >= count

        wait_until(come, f"{count} rows")
        return sorted(self.rows)

    def done(self):
        """Wait for the query to end by itself."""
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
    """The source processes of a session's queries."""
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
    """Options of a query in a group named after its topic, which reads it from its beginning."""
    return {"subscribe": topic, "kafka__group__id": topic, "startingOffsets": "earliest"} | options


NOW = {"availableNow": True}
#: When something is killed.
WAITING, IN_A_BATCH, AT_ONCE = "while it waits", "in a batch", "as records come"
PARTAGE = (sys.executable, "-m", "partage")


def test_a_query_reads_as_a_member_and_commits_what_is_done(stream, kafka):
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
    query.has(131)  # in a batch that is under way, so that the group lags
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


def test_queries_share_and_take_over_while_the_others_run_on(stream, kafka):
    """Cooperative: who stays keeps what stays; nothing is left out, nothing comes twice."""
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
    two.query.stop()  # which is a SIGTERM to its source: no session has to expire
    wait_until(lambda: list(map(len, member_partitions(kafka, topic).values())) == [4])
    produce(kafka, topic, 4, 5)
    wait_until(lambda: len(one.rows) + len(two.rows) == 140)
    assert sorted(one.rows + two.rows) == [(p, o) for p in range(4) for o in range(35)]


def test_a_killed_source_is_replaced_and_its_batch_run_again_as_it_was(stream, kafka, spark):
    topic, _ = filled_topic(kafka)
    options = grouped(topic, kafka__group__instance__id="i")
    query = stream(**options)
    query.query.processAllAvailable()
    query.is_to_fail = True
    query.may_go_on.clear()
    produce(kafka, topic, 4, 5)
    query.has(120)
    produce(kafka, topic, 4, 5)
    (pid,) = sources(spark)
    os.kill(pid, signal.SIGKILL)
    query.may_go_on.set()
    wait_until(lambda: query.query.exception() is not None)
    again = stream(**options)  # from the same checkpoint, as the same static member
    again.has(40)
    assert again.batches[0] == query.batches[1]
    assert sorted(query.batches[0] + again.rows) == [(p, o) for p in range(4) for o in range(35)]
    wait_until(lambda: committed(kafka, topic, topic, 4) == [35] * 4)


@pytest.mark.soak
def test_sources_are_killed_one_after_the_other(stream, kafka, spark):
    """Each time the query fails, and another goes on from the same checkpoint."""
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
        again_as_it_was(table, query.by_number)
    last = stream(**options)
    last.query.processAllAvailable()
    again_as_it_was(table, last.by_number)
    rows = sorted(row for batch in table.values() for row in batch)
    assert rows == [(p, o) for p in range(4) for o in range(count)]
    wait_until(lambda: committed(kafka, topic, topic, 4) == [count] * 4)


def again_as_it_was(table, batches):
    """Put a query's batches in the table; those that were there already are the same."""
    assert all(table.get(number, rows) == rows for number, rows in batches.items())
    table |= batches


def test_what_stays_is_read_while_a_rebalance_is_under_way(stream):
    """The one that was there has rejoined, and its answer does not come; it reads on."""
    with ThreadedBroker() as broker:
        there = Kafka(broker.bootstrap_servers)
        topic, _ = filled_topic(there)
        options = grouped(topic, kafka__bootstrap__servers=there.servers)
        options["kafka__session__timeout__ms"] = "600000"  # it cannot be heard of meanwhile
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


@pytest.mark.parametrize(
    "moments",
    [
        [WAITING, IN_A_BATCH],
        pytest.param([WAITING, IN_A_BATCH, AT_ONCE, IN_A_BATCH, AT_ONCE], marks=pytest.mark.soak),
    ],
)
def test_a_broker_that_is_killed_and_comes_back_costs_nothing(stream, moments):
    """While the query waits for records, while a batch is under way, and as records come."""
    with BrokerProcess(overrides={"group.initial.rebalance.delay.ms": "0"}) as broker:
        there = Kafka(broker.bootstrap_servers)
        topic, _ = filled_topic(there)
        query = stream(**grouped(topic, kafka__bootstrap__servers=there.servers))
        count = 25
        query.has(4 * count)
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
            broker.start()
            produce(there, topic, 4, 5)
            count += 5
            assert query.has(4 * count) == [(p, o) for p in range(4) for o in range(count)]
        wait_until(lambda: committed(there, topic, topic, 4) == [count] * 4)
        query.query.stop()


def test_available_now_reads_what_there_is_in_batches_ends_and_leaves(stream, kafka):
    topic, truth = filled_topic(kafka)
    options = grouped(topic, maxOffsetsPerTrigger="40")
    first = stream(trigger=NOW, **options).done()
    assert sorted(first.rows) == truth
    assert [len(batch) for batch in first.batches] == [40, 40, 20]
    assert committed(kafka, topic, topic, 4) == [25] * 4
    wait_until(lambda: member_partitions(kafka, topic) == {})
    produce(kafka, topic, 4)
    assert sorted(stream(trigger=NOW, **options).done().rows) == [(p, 25) for p in range(4)]


def test_a_listener_commits_when_a_batch_ends(stream, kafka, spark):
    """With a trigger once in an hour: the group knows at once, and nobody waits for the hour."""
    topic, truth = filled_topic(kafka, 2)
    listener = install(spark)
    try:
        query = stream(trigger={"processingTime": "1 hour"}, **grouped(topic))
        assert query.has(100) == truth
        wait_until(lambda: committed(kafka, topic, topic, 2) == [50, 50])
        with Consumer(kafka.servers, group_id=topic) as consumer:
            consumer.subscribe([topic])
            wait_until(lambda: not consumer.poll(100) and len(consumer.assignment()) == 1)
    finally:
        spark.streams.removeListener(listener)


def test_what_is_wrong_ends_the_query_and_says_why(stream, kafka):
    query = stream(subscribe="nowhere", kafka__group__id="g")
    story = str(wait_until(query.query.exception))
    assert "there is no topic 'nowhere'" in story

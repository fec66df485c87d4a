"""Queries survive outages of their broker, of its coordinator and of the network; no Spark."""

import os
import random
import signal
import threading
import time
from contextlib import ExitStack

import pytest

from client.scripted_broker import Relay
from partage.client import LoopThread
from partage.client.errors import BrokersUnreachableError
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.spark.offset_resolver import OffsetRange
from partage.spark.options import parse_options
from partage.spark.ranges import read_range
from partage.spark.stream.partition_source import CoordinatorUnavailableError
from partage.testing import BrokerProcess, ThreadedBroker
from partage.testing.request_interceptor import FaultRule, rewrite_response
from partage.wire.apis.metadata import METADATA

from .conftest import Kafka
from .group_state import committed, filled_topic, produce, wait_until
from .reader_driver import ReaderDriver, group_query_options

PARTITIONS = 2
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "10",
}
#: A session that ends in an outage of two seconds.
SHORT_SESSION = {"kafka__session__timeout__ms": "1000", "kafka__heartbeat__interval__ms": "200"}
#: Limits of one try and of all tries to reach a broker: an outage of 25 s exceeds the first one.
TRIES = {"kafka__default__api__timeout__ms": "20000", "fetchOffset__numRetries": "9"}


class RunningQuery:
    """A query that runs batch after batch in a thread, as Spark's default trigger does."""

    def __init__(self, servers, **options):
        self.driver = ReaderDriver(servers, **options)
        self.rows = []
        self.failure = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        try:
            while not self._is_over.is_set():
                self.rows += self.driver.batch()
        except Exception as error:
            self.failure = error

    def has(self, count):
        """Return True if the query has read ``count`` rows; raise if it failed."""
        if self.failure is not None:
            raise self.failure
        return len(self.rows) >= count

    def stop(self):
        self._is_over.set()
        self._thread.join()
        self.driver.stop()


class TestOutages:
    @pytest.fixture
    def broker(self):
        with BrokerProcess(overrides=SETTINGS) as broker:
            yield broker

    @pytest.fixture
    def there(self, broker):
        return Kafka(broker.bootstrap_servers)

    @pytest.fixture
    def run(self, broker, monkeypatch):
        """Start queries that stop at the end of the test."""
        monkeypatch.setattr("partage.spark.stream.reader._on_sigterm", lambda stop: None)
        running = []

        def start(**options):
            running.append(one := RunningQuery(broker.bootstrap_servers, **options))
            return one

        yield start
        for one in running:
            one.stop()

    @pytest.mark.parametrize(
        "outages_s",
        [
            pytest.param([2, 25], marks=pytest.mark.slow),
            pytest.param([90, 2], marks=pytest.mark.soak),
        ],
    )
    def test_queries_survive_outages_at_random_moments(self, broker, there, run, outages_s):
        """Queries in and outside a group, idle and in the middle of batches, lose no record.

        Queries with a short session are removed from their group, and rejoin.
        """
        seed = random.randrange(2**32)
        print(f"seed={seed}")
        moments = random.Random(seed)
        idle, _ = filled_topic(there, PARTITIONS, 10)
        busy, assigned = there.topic(PARTITIONS), there.topic(PARTITIONS)
        pace = {"maxOffsetsPerTrigger": "3"}
        queries = {
            "idle": run(subscribe=idle, startingOffsets="earliest", **TRIES),
            "idle in a group": run(**group_query_options(idle, **TRIES)),
            "busy": run(subscribe=busy, startingOffsets="earliest", **pace),
            "busy in a group": run(**group_query_options(busy, **pace, **SHORT_SESSION)),
            "busy, assigned by the broker": run(
                **group_query_options(assigned, **pace, kafka__group__protocol="consumer")
            ),
        }
        counts = {name: 5 if name.startswith("idle") else 0 for name in queries}

        def have_read_everything():
            return all(query.has(PARTITIONS * counts[n]) for n, query in queries.items())

        for outage_s in outages_s:
            wait_until(have_read_everything)
            # From here on, the busy queries have dozens of batches to read.
            produce(there, busy, PARTITIONS, 100)
            produce(there, assigned, PARTITIONS, 100)
            time.sleep(moments.uniform(0, 1))  # the kill comes at any moment of a batch
            broker.kill()
            time.sleep(outage_s)  # the length of the outage is what the test is about
            broker.start()
            produce(there, idle, PARTITIONS, 5)
            for name in counts:
                counts[name] += 5 if name.startswith("idle") else 100
        wait_until(have_read_everything)
        for name, query in queries.items():
            truth = [(p, o) for p in range(PARTITIONS) for o in range(counts[name])]
            assert sorted(query.rows) == truth, name
        names = {idle: "idle", busy: "busy", assigned: "busy, assigned by the broker"}
        for topic, name in names.items():
            goal = [counts[name]] * PARTITIONS
            wait_until(lambda t=topic, g=goal: committed(there, t, t, PARTITIONS) == g)

    def test_restarted_query_waits_for_its_broker(self, broker, there, run):
        """A query with a checkpoint waits; a new one reports at once that no broker answers."""
        topic, truth = filled_topic(there, PARTITIONS, 10)
        options = group_query_options(topic)
        first = run(**options)
        wait_until(lambda: first.has(10))
        first.stop()
        broker.kill()
        again = run(checkpoint=first.driver.checkpoint, **options)
        new = run(**options)
        new._thread.join()
        assert isinstance(new.failure, BrokersUnreachableError)
        broker.start()
        produce(there, topic, PARTITIONS)
        wait_until(lambda: again.has(PARTITIONS))
        assert sorted(first.rows + again.rows) == sorted([*truth, (0, 5), (1, 5)])

    def test_lookup_fails_after_api_timeout(self, broker, there, run):
        """The limit is ``fetchOffset.numRetries`` times ``default.api.timeout.ms``."""
        topic, _ = filled_topic(there, PARTITIONS, 10)
        limit = {"kafka__default__api__timeout__ms": "1000", "fetchOffset__numRetries": "2"}
        query = run(**group_query_options(topic, **limit))
        wait_until(lambda: query.has(10))
        broker.kill()
        began_s = time.monotonic()
        query._thread.join()
        assert isinstance(query.failure, BrokersUnreachableError)
        assert 0.5 < time.monotonic() - began_s < 60  # the default is three minutes

    @pytest.mark.slow
    def test_available_now_reads_everything_after_lost_session(
        self, broker, there, run, monkeypatch
    ):
        """The query does not end early while its member has no coordinator."""
        monkeypatch.setattr("partage.spark.stream.stream_source._HANDOVER_TIMEOUT_S", 1.0)
        topic, truth = filled_topic(there, PARTITIONS, 200)
        options = group_query_options(topic, maxOffsetsPerTrigger="4", **SHORT_SESSION)
        query = ReaderDriver(broker.bootstrap_servers, **options)
        query.reader.prepareForTriggerAvailableNow()
        rows = query.batch() + query.batch()
        broker.kill()
        returns = threading.Timer(2, broker.start)
        returns.start()
        rows += query.all()
        returns.join()
        assert sorted(rows) == truth
        query.stop()
        assert committed(there, topic, topic, PARTITIONS) == [100] * PARTITIONS

    @pytest.mark.slow
    def test_queries_survive_silent_network(self, broker, there, run):
        """Connections stay open, but no bytes arrive: requests and connects time out."""
        topic, truth = filled_topic(there, PARTITIONS, 10)
        limits = {
            "kafka__request__timeout__ms": "800",
            "kafka__socket__connection__setup__timeout__ms": "500",
        }
        inside = run(**group_query_options(topic, **SHORT_SESSION, **limits))
        outside = run(subscribe=topic, startingOffsets="earliest", **limits)
        wait_until(lambda: inside.has(10) and outside.has(10))
        os.kill(broker.pid, signal.SIGSTOP)
        time.sleep(3)  # real sockets must reach their timeouts, which are shorter
        os.kill(broker.pid, signal.SIGCONT)
        produce(there, topic, PARTITIONS)
        wait_until(lambda: inside.has(12) and outside.has(12))
        assert sorted(inside.rows) == sorted(outside.rows) == sorted([*truth, (0, 5), (1, 5)])
        wait_until(lambda: committed(there, topic, topic, PARTITIONS) == [6, 6])


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_query_follows_broker_to_another_port(tmp_path, monkeypatch, protocol):
    """The bootstrap address is the same; the address that the broker advertises changes."""
    monkeypatch.setattr("partage.spark.stream.reader._on_sigterm", lambda stop: None)
    old, new = (BrokerProcess(tmp_path / "data", overrides=SETTINGS) for _ in range(2))
    loop = LoopThread("relay")
    with ExitStack() as stack:
        stack.callback(loop.stop)
        stack.callback(new.remove)
        stack.callback(old.remove)
        old.start()
        topic, truth = filled_topic(Kafka(old.bootstrap_servers), PARTITIONS, 10)
        relay = loop.call(Relay(old.bootstrap_servers).__aenter__())
        stack.callback(lambda: loop.call(relay.__aexit__()))
        options = group_query_options(topic, kafka__group__protocol=protocol)
        query = ReaderDriver(str(relay.address), **options)
        stack.callback(query.stop)
        assert query.batch() == truth
        old.kill()
        new.start()
        relay.target = new.bootstrap_servers
        there, rows = Kafka(new.bootstrap_servers), []
        produce(there, topic, PARTITIONS)
        wait_until(lambda: len(rows.extend(query.batch()) or rows) >= PARTITIONS)
        assert sorted(rows) == [(0, 5), (1, 5)]
        wait_until(lambda: (query.plan(), committed(there, topic, topic, PARTITIONS))[1] == [6, 6])


def without_topics(inbound, response):
    for topic in response.topics:
        topic.error_code, topic.partitions = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []
    return response


class TestCoordinatorOutages:
    @pytest.fixture
    def broker(self):
        with ThreadedBroker() as broker:
            yield broker

    def test_query_reads_without_coordinator_and_commits_later(self, broker, query):
        there = Kafka(broker.bootstrap_servers)
        topic, truth = filled_topic(there, PARTITIONS, 10)
        quick = {"kafka__heartbeat__interval__ms": "100"}
        one = query(there.servers, **group_query_options(topic, **quick))
        assert one.all() == truth
        broker.faults.kill_coordinator()
        wait_until(lambda: not one.reader._runtime.source._partition_source.has_coordinator)
        for offset in (5, 6, 7):
            produce(there, topic, PARTITIONS)
            assert wait_until(one.batch) == [(0, offset), (1, offset)]
        broker.faults.revive_coordinator()
        wait_until(lambda: one.batch() or committed(there, topic, topic, PARTITIONS) == [8, 8])

    def test_available_now_fails_after_api_timeout(self, broker, query):
        there = Kafka(broker.bootstrap_servers)
        topic, _ = filled_topic(there, PARTITIONS, 10)
        limit = {"kafka__default__api__timeout__ms": "500", "fetchOffset__numRetries": "1"}
        broker.faults.kill_coordinator()
        with pytest.raises(CoordinatorUnavailableError, match=r"was unavailable for 0\.5 s"):
            query(there.servers, **group_query_options(topic, **limit)).available_now()

    def test_briefly_unknown_topic_is_not_taken_for_deleted(self, broker, query):
        """A broker that has just started may learn of its topics late."""
        there = Kafka(broker.bootstrap_servers)
        topic, truth = filled_topic(there, PARTITIONS, 10)
        options = {"subscribe": topic, "startingOffsets": "earliest"}
        one = query(there.servers, fetchOffset__retryIntervalMs="10", **options)
        assert one.all() == truth
        broker.faults._add(FaultRule(METADATA.key, None, rewrite_response(without_topics)))
        wait_until(lambda: one.plan() is None and not broker.faults.pending)
        produce(there, topic, PARTITIONS)
        assert wait_until(one.batch) == [(0, 5), (1, 5)]

    @pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
    def test_task_reads_briefly_unknown_topic(self, broker, fail_on_data_loss):
        there = Kafka(broker.bootstrap_servers)
        topic, _ = filled_topic(there, 1, 10)
        given = {
            "kafka.bootstrap.servers": there.servers,
            "subscribe": topic,
            "failOnDataLoss": fail_on_data_loss,
            "fetchOffset.retryIntervalMs": "10",
        }
        broker.faults._add(FaultRule(METADATA.key, None, rewrite_response(without_topics)))
        batches = read_range(OffsetRange(TopicPartition(topic, 0), 0, 10), parse_options(given))
        assert sum(batch.num_rows for batch in batches) == 10


def test_tasks_wait_as_long_as_lookups():
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}

    def limit_ms(**options):
        return parse_options(given | options).poll_timeout_ms

    assert limit_ms() == 180_000
    assert limit_ms(**{"fetchOffset.numRetries": "1"}) == 120_000
    assert limit_ms(**{"kafka.default.api.timeout.ms": "300000"}) == 900_000
    assert limit_ms(**{"kafkaConsumer.pollTimeoutMs": "1000"}) == 1_000

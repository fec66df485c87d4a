"""The transactional sink at a broker, without Spark: the test plays the driver and the tasks."""

import contextlib
import itertools
from collections import Counter

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from partage.client.errors import ClientError
from partage.spark.sink.batch_decision import (
    Owner,
    RowsChangedError,
    SinkName,
    SinkState,
    encode_state,
)
from partage.spark.sink.columns import SinkRecord
from partage.spark.sink.errors import WriteError
from partage.spark.sink.options import parse_write_options
from partage.spark.sink.row_marks import StreamingTask
from partage.spark.sink.transaction_flow import (
    ReadState,
    SupersededError,
    TakeOver,
    TransactionLostError,
)
from partage.spark.sink.transactional_writer import (
    _call,
    abort_results,
    commit_results,
    write_task,
)
from partage.testing import BrokerProcess, ThreadedBroker
from polled_conditions import eventually

pytestmark = [pytest.mark.timeout(600)]


NUMBERS = itertools.count()


class Query:
    """A query whose driver and tasks the test plays."""

    def __init__(self, servers, topic, name="query", **given):
        self.name = name
        self.servers = servers
        self.topic = topic
        settings = {"kafka.bootstrap.servers": servers, "kafka.linger.ms": "0", "topic": topic}
        self.options = parse_write_options(settings | given, is_stream=True)

    def write(self, batch, task, *values, run="run1", attempt=0):
        """Run a task."""
        records = (SinkRecord(self.topic, None, value, None, []) for value in values)
        return write_task(
            self.options, StreamingTask(self.name, run, batch, task, attempt), records
        )

    def write_batch(self, batch, *tasks, run="run1"):
        """Run a task for each list of values."""
        return [self.write(batch, n, *values, run=run) for n, values in enumerate(tasks)]

    def commit(self, batch, results, run="run1"):
        commit_results(self.options, self.name, run, batch, results)

    def abort(self, batch, run="run1"):
        abort_results(self.options, self.name, run, batch)

    def task_id(self, task, run="run1", attempt=0):
        return SinkName("partage-sink", self.name).task_id(run, task, attempt)


def committed(servers, topic):
    """Return how often each committed value is in a topic in which no transaction stays open.

    The coordinator may complete a transaction after its response to the producer.
    """
    consumer = reader(servers, "read_committed")
    plain = reader(servers, "read_uncommitted")
    eventually(
        lambda: watermark(consumer, topic) == watermark(plain, topic),
        lambda: "a transaction is open",
    )
    last_stable = watermark(consumer, topic)
    plain.close()
    partition = TopicPartition(topic, 0)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = Counter()
    while consumer.position([partition])[0].offset < last_stable:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is None:
            found[message.value().decode()] += 1
    consumer.close()
    return found


def watermark(consumer, topic):
    """Return the end of a topic; librdkafka may not know the leader just after a restart."""

    def attempt():
        with contextlib.suppress(KafkaException):
            return (consumer.get_watermark_offsets(TopicPartition(topic, 0), 60)[1],)
        return None

    return eventually(attempt, lambda: f"the end of {topic}", 120)[0]


def reader(servers, isolation_level):
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "truth",
            "isolation.level": isolation_level,
            "enable.partition.eof": "true",
            "log_level": 2,
        }
    )


@pytest.fixture(scope="module")
def servers():
    with ThreadedBroker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(servers):
    return create_topic(servers, f"t{next(NUMBERS)}")


def create_topic(servers, name):
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    return name


@pytest.fixture
def query(servers, topic):
    return Query(servers, topic, topic)


class TestBatches:
    def test_committed_batches_are_visible(self, query):
        for batch in range(3):
            query.commit(batch, query.write_batch(batch, [f"{batch}a"], [f"{batch}b"], []))
        wanted = [f"{batch}{task}" for batch in range(3) for task in "ab"]
        assert committed(query.servers, query.topic) == Counter(wanted)

    def test_repeated_batch_writes_nothing(self, query):
        query.commit(0, query.write_batch(0, ["a"], ["b"]))
        for run in ("run1", "run2"):
            results = query.write_batch(0, ["a"], ["b"], run=run)
            assert [each.digest for each in results] == [None, None]
            query.commit(0, results, run=run)
        assert committed(query.servers, query.topic) == Counter("ab")

    def test_driver_killed_before_its_decision_writes_nothing(self, query):
        query.write_batch(0, ["a"], ["b"])
        # Rows of the repetition may differ: nothing of the first attempt is visible.
        query.commit(0, query.write_batch(0, ["c"], ["d"], run="run2"), run="run2")
        assert committed(query.servers, query.topic) == Counter("cd")

    def test_leftover_transactions_of_attempts_are_aborted(self, query):
        query.write(0, 0, "lost")
        query.commit(0, [query.write(0, 0, "a", attempt=1)])
        # The reader would not reach the end of the topic if a transaction was open.
        assert committed(query.servers, query.topic) == Counter("a")

    def test_late_attempt_of_committed_batch_aborts_its_transaction(self, query):
        """It opens its transaction after the driver has aborted those of other attempts."""
        results = [query.write(0, 0, "a")]

        def records():
            query.commit(0, results)
            yield SinkRecord(query.topic, None, "late", None, [])

        task = StreamingTask(query.name, "run1", 0, 0, 1)
        with pytest.raises(SupersededError):
            write_task(query.options, task, records())
        assert committed(query.servers, query.topic) == Counter("a")

    def test_open_transactions_of_many_runs_are_aborted(self, query):
        """Their ids together are longer than a pattern of ListTransactions may be."""
        runs = [f"{n:036}" for n in range(10)]  # as long as Spark's ids of runs
        for run in runs:
            query.write(0, 0, "lost", run=run)
        query.commit(0, [query.write(0, 0, "a", run="last")], run="last")
        assert committed(query.servers, query.topic) == Counter("a")

    def test_aborted_batch_leaves_no_open_transaction(self, query):
        query.write_batch(0, ["a"], ["b"])
        query.abort(0)
        assert committed(query.servers, query.topic) == Counter()

    def test_empty_batch_is_committed(self, query):
        query.commit(0, query.write_batch(0, [], []))
        query.commit(1, query.write_batch(1, [], ["a"]))
        assert committed(query.servers, query.topic) == Counter("a")

    def test_rows_may_name_their_topics(self, query, servers):
        query.options = parse_write_options({"kafka.bootstrap.servers": servers}, is_stream=True)
        query.commit(0, query.write_batch(0, ["a"]))
        query.commit(0, query.write_batch(0, ["a"], run="run2"), run="run2")
        assert committed(servers, query.topic) == Counter("a")


@pytest.mark.slow
class TestDeaths:
    """The driver dies within a commit; ``die_after`` counts its committed transactions."""

    def die(self, monkeypatch, query, batch, results, after):
        from partage.spark.sink.transaction_client import TransactionClient

        real, commits = TransactionClient._commit, []

        async def commit(self, transactional_id, producer):
            if len(commits) == after:
                raise ZeroDivisionError
            commits.append(transactional_id)
            return await real(self, transactional_id, producer)

        with monkeypatch.context() as patched:
            patched.setattr(TransactionClient, "_commit", commit)
            with pytest.raises(ZeroDivisionError):
                query.commit(batch, results)

    @pytest.mark.parametrize("after", [0, 1, 2, 3])
    def test_killed_commit_is_all_or_nothing(self, query, monkeypatch, after):
        self.die(monkeypatch, query, 0, query.write_batch(0, ["a"], ["b"], ["c"]), after)
        results = query.write_batch(0, ["x"], ["y"], ["z"], run="run2")
        query.commit(0, results, run="run2")
        wanted = "xyz" if after == 0 else "abc"
        assert committed(query.servers, query.topic) == Counter(wanted)

    @pytest.mark.parametrize("after", [1, 2])
    def test_abort_keeps_a_decided_batch(self, query, monkeypatch, after):
        self.die(monkeypatch, query, 0, query.write_batch(0, ["a"], ["b"], ["c"]), after)
        query.abort(0)
        query.commit(0, query.write_batch(0, ["x"], ["y"], ["z"], run="run2"), run="run2")
        assert committed(query.servers, query.topic) == Counter("abc")

    def test_lost_part_is_written_again(self, query, monkeypatch):
        self.die(monkeypatch, query, 0, query.write_batch(0, ["a"], ["b"], ["c"]), 2)
        self.time_out(query, 1)
        repeated = query.write_batch(0, ["a"], ["b"], ["c"], run="run2")
        query.commit(0, repeated, run="run2")
        assert committed(query.servers, query.topic) == Counter("abc")

    def test_lost_part_with_other_rows_is_refused(self, query, monkeypatch):
        self.die(monkeypatch, query, 0, query.write_batch(0, ["a"], ["b"], ["c"]), 2)
        self.time_out(query, 1)
        repeated = query.write_batch(0, ["b"], ["a"], ["c"], run="run2")
        with pytest.raises(RowsChangedError, match="task 0 of its repetition has other rows"):
            query.commit(0, repeated, run="run2")
        query.abort(0, run="run2")
        assert set(committed(query.servers, query.topic).values()) == {1}

    def time_out(self, query, task):
        """Abort a transaction, as the broker does at its timeout."""
        name = query.task_id(task)
        _call(query.options, query.name, lambda client: client._take_over(name))


@pytest.mark.slow
class TestZombies:
    def test_suspended_driver_cannot_commit(self, query):
        old = query.write_batch(0, ["a"], ["b"])
        new = query.write_batch(0, ["a"], ["b"], run="run2")
        with pytest.raises(SupersededError, match="another run of this query"):
            query.commit(0, old)
        query.abort(0)
        query.commit(0, new, run="run2")
        assert committed(query.servers, query.topic) == Counter("ab")

    def test_suspended_driver_finds_its_batch_committed(self, query):
        old = query.write_batch(0, ["a"])
        query.commit(0, query.write_batch(0, ["a"], run="run2"), run="run2")
        query.commit(0, old)
        assert committed(query.servers, query.topic) == Counter("a")

    def test_lost_transaction_fails_the_whole_batch(self, query):
        results = query.write_batch(0, ["a"], ["b"])
        TestDeaths().time_out(query, 1)
        with pytest.raises(TransactionLostError, match="batch 0, tasks 1, "):
            query.commit(0, results)
        query.abort(0)
        assert committed(query.servers, query.topic) == Counter()

    def test_speculative_attempts_do_not_disturb_each_other(self, query):
        first = query.write(0, 0, "a")
        query.write(0, 0, "a", attempt=1)
        query.commit(0, [first])
        assert committed(query.servers, query.topic) == Counter("a")

    @pytest.mark.parametrize("winner", [0, 1])
    def test_attempts_at_the_same_time_write_each_row_once(self, query, winner):
        """With spark.speculation, one attempt runs beside another; Spark passes one result on."""
        results = {}

        def records():
            yield SinkRecord(query.topic, None, "a", None, [])
            results[1] = query.write(0, 0, "a", "b", attempt=1)
            yield SinkRecord(query.topic, None, "b", None, [])

        task = StreamingTask(query.name, "run1", 0, 0, 0)
        results[0] = write_task(query.options, task, records())
        query.commit(0, [results[winner]])
        query.commit(1, query.write_batch(1, ["c"]))
        assert committed(query.servers, query.topic) == Counter("abc")


class TestStableReads:
    """The state while a driver stores a decision; the driver may be dead."""

    def test_pending_state_is_awaited(self, servers, topic):
        query = Query(servers, topic, topic, **{"kafka.max.block.ms": "1000"})
        root = SinkName("partage-sink", topic).root

        async def read(client):
            producer = await client.perform(TakeOver(root))
            pending = SinkState(Owner("run1", *producer))
            (document,) = encode_state(pending)
            await client._add_document(root, producer, root, -1, document)
            assert await client.perform(ReadState()) == SinkState()
            with pytest.raises(ClientError, match="UNSTABLE_OFFSET_COMMIT"):
                await client.perform(ReadState(is_stable=True))
            await client.perform(TakeOver(root))
            assert await client.perform(ReadState(is_stable=True)) == SinkState()

        _call(query.options, query.name, read)


class TestErrors:
    def test_transaction_that_may_time_out_soon_is_not_decided(self, servers, topic):
        times = {"kafka.transaction.timeout.ms": "60001", "kafka.max.block.ms": "60000"}
        query = Query(servers, topic, topic, **times)
        results = query.write_batch(0, ["a"])
        with pytest.raises(TransactionLostError, match="or would abort them soon"):
            query.commit(0, results)
        query.abort(0)
        assert committed(servers, topic) == Counter()

    def test_too_long_transaction_names_the_option(self, servers, topic):
        query = Query(servers, topic, topic, **{"kafka.transaction.timeout.ms": "900001"})
        story = r"INVALID_TRANSACTION_TIMEOUT: kafka.transaction.timeout.ms=900001 is longer than"
        with pytest.raises(WriteError, match=story):
            query.write(0, 0, "a")

    def test_unreachable_broker_fails_after_max_block(self, topic):
        query = Query("127.0.0.1:1", topic, **{"kafka.max.block.ms": "300"})
        with pytest.raises(WriteError, match=r"no broker of 127.0.0.1:1 answered within 300 ms"):
            query.write(0, 0, "a")
        with pytest.raises(WriteError, match=r"no broker can be reached \(127.0.0.1:1"):
            query.commit(0, [])


@pytest.mark.slow
def test_batch_survives_restarts_of_the_broker():
    """The broker is killed between the tasks, the decision and its completion."""
    with BrokerProcess() as broker:
        servers = broker.bootstrap_servers
        query = Query(servers, create_topic(servers, "t"))
        for batch in range(2):
            results = query.write_batch(batch, [f"{batch}a"], [f"{batch}b"])
            broker.kill()
            broker.start()
            query.commit(batch, results)
        broker.kill()
        broker.start()
        query.commit(1, query.write_batch(1, ["1a"], ["1b"], run="run2"), run="run2")
        assert committed(servers, "t") == Counter(["0a", "0b", "1a", "1b"])

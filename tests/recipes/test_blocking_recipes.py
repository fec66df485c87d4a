"""The blocking elections, single writers and worker pools: their work runs in threads."""

from __future__ import annotations

import inspect
import threading

import pytest
from confluent_kafka import Producer

from partage import recipes
from partage.errors import CalledFromWorkError, InvalidArgumentError, NotAMemberError
from partage.recipes import sync
from partage.recipes.sync import LeaderElection, SingleWriter, WorkerPool
from partage.sync import Consumer
from polled_conditions import PATIENCE_S, eventually

from .settings import QUICK

PATIENCE_MS = int(PATIENCE_S * 1000)
UNITS = list("abcdef")


@pytest.fixture
def servers(partage_broker):
    return partage_broker.bootstrap_servers


def election(servers, identity, work=None, **options):
    return LeaderElection(servers, "scheduler", identity, work=work, **{**QUICK, **options})


class ReluctantWork:
    """Work that returns when the test allows it; at most one may run."""

    def __init__(self):
        self.may_return = threading.Event()
        self.started = []
        self.running = 0
        self.most = 0

    def __call__(self, term):
        self.running += 1
        self.most = max(self.most, self.running)
        self.started.append(term.token)
        assert term.wait_ended(PATIENCE_MS)
        assert not term.is_active
        assert self.may_return.wait(PATIENCE_S)
        self.running -= 1


def test_next_process_is_elected_after_blocking_work_has_returned(servers):
    work = ReluctantWork()
    with election(servers, "a", work) as one:
        first = one.wait_until_elected(PATIENCE_MS)
        with election(servers, "b", work) as two:
            assert two.wait_for_leader(PATIENCE_MS).identity == "a"
            resigning = threading.Thread(target=one.resign)
            resigning.start()
            assert first.wait_ended(PATIENCE_MS)
            assert first.has_ended
            with pytest.raises(TimeoutError):
                two.wait_until_elected(timeout_ms=100)
            work.may_return.set()
            assert two.wait_until_elected(PATIENCE_MS).token > first.token
            resigning.join(PATIENCE_S)
    assert work.most == 1
    assert work.running == 0
    assert work.started == sorted(set(work.started))


def test_resigned_process_is_candidate_again_after_stand(servers):
    with election(servers, "a") as one:
        first = one.wait_until_elected(PATIENCE_MS)
        assert one.is_leader
        assert not first.wait_ended(timeout_ms=1)
        one.resign()
        assert one.term is None
        assert first.wait_ended(PATIENCE_MS)
        one.stand()
        assert one.wait_until_elected(PATIENCE_MS).token > first.token
    assert not one.is_leader


def test_work_that_resigns_or_closes_raises_instead_of_deadlock(servers):
    errors = []

    def work(term):
        for call in (one.resign, one.close):
            with pytest.raises(CalledFromWorkError, match="return from the work"):
                call()
        errors.append(term.token)
        raise LookupError("mine")

    with election(servers, "a", work) as one:
        eventually(lambda: isinstance(one.failure, LookupError))
        assert len(errors) == 1


def test_election_outside_its_context_raises(servers):
    one = election(servers, "a")
    with pytest.raises(NotAMemberError):
        one.wait_until_elected()
    with one:
        one.wait_until_elected(PATIENCE_MS)
    with pytest.raises(NotAMemberError):
        one.resign()
    one.close()


def test_coroutine_functions_are_rejected(servers):
    async def work(*args):
        raise AssertionError

    match = "is a coroutine function, which only the classes of partage.recipes can await"
    with pytest.raises(InvalidArgumentError, match=f"work {match}"):
        election(servers, "a", work)
    with pytest.raises(InvalidArgumentError, match=f"work {match}"):
        WorkerPool(servers, "pool", UNITS, work, name="one")
    with pytest.raises(InvalidArgumentError, match=f"write {match}"):
        SingleWriter(servers, "ledger", create_producer=str, write=work)


def test_unclosed_election_warns_and_ends_its_thread(servers):
    one = election(servers, "a")
    one.__enter__()
    one.wait_until_elected(PATIENCE_MS)
    thread = one._runner.thread
    held = [one]
    del one
    with pytest.warns(ResourceWarning, match="unclosed LeaderElection"):
        held.clear()
    thread.join(PATIENCE_S)
    assert not thread._thread.is_alive()


class Log:
    """Records which units run; a unit that runs twice at the same time is an error."""

    def __init__(self):
        self.lock = threading.Lock()
        self.running = set()
        self.begun = []
        self.stopped = []

    def __call__(self, unit, must_stop):
        with self.lock:
            assert unit not in self.running
            self.running.add(unit)
            self.begun.append(unit)
        assert must_stop.wait(PATIENCE_S)
        with self.lock:
            self.running.discard(unit)
            self.stopped.append(unit)


def test_new_worker_gets_units_whose_work_has_returned(servers):
    log = Log()
    options = {**QUICK, "rebalance_delay_ms": 60_000}
    with WorkerPool(servers, "pool", UNITS, log, name="one", **options) as one:
        eventually(lambda: len(log.running) == 6)
        assert one.is_active("a")
        assert one.config_of("a") == {}
        with WorkerPool(servers, "pool", UNITS, log, name="two", **options) as two:
            eventually(lambda: len(two.units) == 3 and len(log.running) == 6)
            assert sorted(log.stopped) == sorted(two.units)
            assert len(log.begun) == 9
            its = two.units
        eventually(lambda: one.delayed_units == its)
    assert not log.running


class ScriptedProducer:
    """A producer as of confluent-kafka."""

    def __init__(self, calls):
        self.calls = calls

    def init_transactions(self, timeout_s):
        self.calls.append("initialized")

    def purge(self, *, blocking):
        self.calls.append("purged")


def test_single_writer_writes_in_thread_until_its_term_ends(servers):
    calls = []

    def write(term, producer):
        producer.calls.append("written")
        assert term.wait_ended(PATIENCE_MS)
        producer.calls.append("stopped")

    def create_producer(name):
        calls.append(name)
        return ScriptedProducer(calls)

    with SingleWriter(
        servers, "ledger", create_producer=create_producer, write=write, **QUICK
    ) as writer:
        assert writer.transactional_id == "ledger"
        eventually(lambda: "written" in calls)
        writer.resign()
        assert calls == ["ledger", "initialized", "written", "stopped", "purged"]


def test_single_writer_commits_transaction_with_librdkafka(servers):
    tokens = []

    def write(term, producer):
        producer.begin_transaction()
        producer.produce("journal", str(term.token))
        producer.commit_transaction()  # it blocks
        tokens.append(term.token)

    def create_producer(transactional_id):
        return Producer({"bootstrap.servers": servers, "transactional.id": transactional_id})

    with SingleWriter(servers, "journal", create_producer=create_producer, write=write, **QUICK):
        eventually(lambda: tokens)
    with Consumer(servers, isolation_level="read_committed") as consumer:
        consumer.assign(consumer.partitions_of("journal"))
        consumer.seek_to_beginning()
        records = list(consumer.poll(PATIENCE_MS))
    assert [record.value for record in records] == [str(tokens[0]).encode()]


@pytest.mark.parametrize(
    "name", ["LeaderElection", "RedundantIndexer", "SingleWriter", "WorkerPool"]
)
def test_blocking_class_has_arguments_and_methods_of_asyncio_class(name):
    blocking, ours = getattr(sync, name), getattr(recipes, name)
    assert list(inspect.signature(blocking).parameters) == list(inspect.signature(ours).parameters)
    internal = {"membership", "on_assigned", "update_metadata", "stop_all"}
    methods = {each for each in dir(ours) if not each.startswith("_")} - internal
    assert methods <= set(dir(blocking))

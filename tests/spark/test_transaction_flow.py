"""Exactly-once delivery against a model of a cluster, with runs that overlap and die."""

import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
import pytest

from partage.spark.sink.batch_decision import (
    Decision,
    Marker,
    Owner,
    PreparedTransaction,
    RowsChangedError,
    SinkName,
    SinkState,
    TaskResult,
    choose_substitutes,
    decode_state,
    document_count,
    encode_state,
)
from partage.spark.sink.transaction_flow import (
    AbortOpen,
    AwaitMarkers,
    AwaitOwner,
    CommitAll,
    FindClosed,
    OutdatedCheckpointError,
    ReadMarkers,
    ReadState,
    StoreState,
    SupersededError,
    TakeOver,
    TransactionLostError,
    abort_batch,
    begin_task,
    commit_batch,
    end_task,
)

SINK = SinkName("p", "q")
BATCHES = 3
TASKS = 3


class RequestFailedError(Exception):
    """A request failed: before it had an effect, or only its reply was lost."""


FAILURES = (TransactionLostError, SupersededError, OutdatedCheckpointError, RequestFailedError)


@dataclass
class Transaction:
    """The last transaction of an id. A prepared one takes effect later."""

    producer_id: int
    epoch: int = 0
    status: str = "empty"
    rows: list = field(default_factory=list)
    marker: tuple | None = None


class Cluster:
    """A model of the coordinators, where a decided transaction takes effect late.

    The classic coordinator of Apache Kafka applies offsets even later: after it has answered all
    requests that wait for the end of the transaction. ``applies_late`` does this to states.
    """

    def __init__(self, *, applies_late=False, patience=30):
        self.transactions = {}
        self.state = SinkState()
        self.late_state = None
        self.applies_late = applies_late
        self.patience = patience
        self.markers = {}
        self.rows = []

    def perform(self, request):
        """Perform a request; yield between its parts, where other processes may go on."""
        return (yield from getattr(self, type(request).__name__)(request))

    def ReadState(self, request):  # noqa: N802
        yield from ()
        if request.is_stable:
            # An open transaction of a dead driver would block this read for a long time.
            own = self.transactions.get(SINK.root)
            if own is not None:
                self.apply(own)
            self.apply_state()
        return self.state

    def AwaitOwner(self, request):  # noqa: N802
        for _ in range(self.patience):
            if request.is_met_by(self.state):
                break
            yield
        return self.state

    def ReadMarkers(self, request):  # noqa: N802
        yield from ()
        return {task: self.markers[task] for task in request.tasks if task in self.markers}

    def AwaitMarkers(self, request):  # noqa: N802
        yield from ()
        for one in self.transactions.values():
            if one.marker is not None and one.marker[0] in request.tasks:
                self.apply(one)
        found = {task: self.markers[task] for task in request.tasks}
        assert all(marker.batch >= request.batch for marker in found.values())
        return found

    def TakeOver(self, request):  # noqa: N802
        yield from ()
        return self.take_over(request.transactional_id)

    def StoreState(self, request):  # noqa: N802
        yield from ()
        own = self.transactions[SINK.root]
        owner = request.state.owner
        if (own.producer_id, own.epoch) != (owner.producer_id, owner.producer_epoch):
            return False
        self.apply(own)
        self.apply_state()
        own.status, own.rows = "prepared", [request.state]
        return True

    def FindClosed(self, request):  # noqa: N802
        yield from ()
        return [each for each in request.transactions if not self.is_open(each)]

    def CommitAll(self, request):  # noqa: N802
        lost = []
        for each in request.transactions:
            if not self.commit(each):
                lost.append(each)
            yield
        return lost

    def AbortOpen(self, request):  # noqa: N802
        found = [
            name
            for name, one in self.transactions.items()
            if name.startswith(request.prefixes) and one.status == "open"
        ]
        for name in found:
            yield
            self.take_over(name)

    def take_over(self, name):
        one = self.transactions.setdefault(name, Transaction(len(self.transactions), -1))
        self.apply(one)
        one.status, one.rows, one.epoch = "empty", [], one.epoch + 1
        return one.producer_id, one.epoch

    def find(self, prepared):
        one = self.transactions[SINK.task_id(prepared.run, prepared.task, prepared.attempt)]
        wanted = prepared.producer_id, prepared.producer_epoch
        return one if (one.producer_id, one.epoch) == wanted else None

    def is_open(self, prepared):
        one = self.find(prepared)
        return one is not None and one.status == "open"

    def commit(self, prepared):
        one = self.find(prepared)
        if one is None or one.status == "empty":
            return False
        if one.status == "open":
            one.status = "prepared"
        return True

    def write(self, name, epoch, rows, marker):
        one = self.transactions[name]
        if one.epoch != epoch:
            raise TransactionLostError("fenced")
        one.status, one.marker = "open", marker
        one.rows += rows

    def apply(self, one):
        """Let a prepared transaction take effect."""
        if one.status != "prepared":
            return
        one.status = "committed"
        if one is self.transactions.get(SINK.root):
            (self.late_state,) = one.rows
            if not self.applies_late:
                self.apply_state()
        else:
            self.rows += one.rows
            task, marker = one.marker
            self.markers[task] = marker

    def apply_state(self):
        """Let readers see the last committed state."""
        if self.late_state is not None:
            self.state, self.late_state = self.late_state, None

    def apply_all(self):
        for one in self.transactions.values():
            self.apply(one)
        self.apply_state()


class World:
    """Runs of one query; ``random`` chooses which of them goes on, and what fails."""

    def __init__(self, seed, *, is_deterministic=True, may_time_out=True):
        self.random = random.Random(seed)
        self.cluster = Cluster(applies_late=seed % 2 == 1, patience=seed % 40)
        self.done = 0
        self.tasks = {}
        self.may_fail = True
        self.is_deterministic = is_deterministic
        self.may_time_out = may_time_out
        self.runs = 0

    def rows(self, batch, task):
        nonce = 0 if self.is_deterministic else self.random.random()
        return [(batch, task, number, nonce) for number in range((batch + task) % 3)]

    def task(self, run, batch, task, attempt):
        """Run an attempt of a task; it yields None where other attempts may go on."""
        if not (yield from begin_task(SINK, run, batch, task)):
            return TaskResult(task, 0, None, None)
        rows = self.rows(batch, task)
        digest = hash(tuple(rows)) & 0xFFFF if rows else 0
        if not rows:
            return TaskResult(task, 0, 0, None)
        name = SINK.task_id(run, task, attempt)
        producer_id, epoch = yield TakeOver(name)
        for row in rows:
            yield None
            marker = task, Marker(batch, digest)
            self.cluster.write(name, epoch, [row], marker)
        transaction = PreparedTransaction(task, attempt, producer_id, epoch, run)
        yield from end_task(run, batch, transaction)
        return TaskResult(task, len(rows), digest, transaction)

    def attempts(self, run, batch, task):
        """Run one or two attempts of a task side by side; the first result wins."""
        count = self.random.choice([1, 1, 1, 2])
        attempts = [self.stepping(self.task(run, batch, task, n)) for n in range(count)]
        while attempts:
            one = self.random.choice(attempts)
            try:
                yield next(one)
            except StopIteration as end:
                if len(attempts) > 1 and self.random.random() < 0.3:
                    attempts.remove(one)  # the JVM failed after the Python worker had ended
                    continue
                return end.value
            except FAILURES:
                attempts.remove(one)
        raise TransactionLostError("each attempt failed")

    def stepping(self, flow):
        """Perform the requests of a flow, with pauses in and after each; some fail."""
        reply = None
        while True:
            try:
                request = flow.send(reply)
            except StopIteration as end:
                return end.value
            reply = None
            if request is not None:
                fails = self.may_fail and self.random.random() < 0.003
                if fails and self.random.random() < 0.5:
                    raise RequestFailedError
                reply = yield from self.cluster.perform(request)
                if fails:
                    raise RequestFailedError
            yield

    def run(self, name):
        """Run the query from the first batch that is not done; end at a failure."""
        batch = self.done
        while batch < BATCHES:
            try:
                flows = {n: self.attempts(name, batch, n) for n in range(TASKS)}
                self.tasks[name] = flows
                results = []
                while flows:
                    task = self.random.choice(list(flows))
                    try:
                        yield next(flows[task])
                    except StopIteration as end:
                        results.append(end.value)
                        del flows[task]
                yield from self.stepping(commit_batch(SINK, name, batch, results))
            except FAILURES:
                with suppress(RequestFailedError):
                    yield from self.stepping(abort_batch(SINK, name, batch))
                return
            self.done = max(self.done, batch + 1)
            batch += 1

    def orphan(self, flow):
        """Run a task whose driver has died."""
        with suppress(*FAILURES):
            yield from flow

    def disturb(self):
        """Let transactions take effect, or abort one at its timeout."""
        choice = self.random.random()
        if choice < 0.1:
            self.cluster.apply_all()
        elif choice < 0.11 and self.may_time_out and self.cluster.transactions:
            name, one = self.random.choice(list(self.cluster.transactions.items()))
            if one.status == "open":
                self.cluster.take_over(name)

    def start(self):
        self.runs += 1
        name = f"run{self.runs}"
        return name, self.run(name)

    def kill(self, running):
        """Kill a run or an orphan task; some tasks of the run go on."""
        killed = self.random.choice(running)
        running.remove(killed)
        self.leave_orphans(killed[0], running)

    def leave_orphans(self, name, running):
        for flow in self.tasks.pop(name, {}).values():
            if self.random.random() < 0.3:
                running.append((None, self.orphan(flow)))

    def advance(self, running):
        one = self.random.choice(running)
        try:
            next(one[1])
        except StopIteration:
            running.remove(one)
            self.leave_orphans(one[0], running)

    def play(self):
        """Run, kill and resume runs at random; then let one run end without a fault."""
        running = [self.start()]
        for _ in range(self.random.randrange(400)):
            self.disturb()
            if not running or self.random.random() < 0.02:
                running.append(self.start())
            if len(running) > 6 or self.random.random() < 0.02:
                self.kill(running)
                continue
            self.advance(running)
        self.may_time_out = self.may_fail = False
        # Runs that were only suspended continue until they end by themselves.
        running.append(self.start())
        while running:
            self.advance(running)
        for _ in range(100):
            if self.done == BATCHES:
                break
            for _ in self.start()[1]:
                self.disturb()
        assert self.done == BATCHES
        self.cluster.apply_all()

    def expected(self):
        return Counter(
            (batch, task, number)
            for batch in range(BATCHES)
            for task in range(TASKS)
            for number in range((batch + task) % 3)
        )

    def written(self):
        return Counter(row[:3] for row in self.cluster.rows)


@pytest.mark.parametrize("seed", range(0, 1000, 100))
def test_overlapping_runs_write_each_row_once(seed):
    for one in range(seed, seed + 100):
        world = World(one)
        world.play()
        assert world.written() == world.expected(), f"seed {one}"


@pytest.mark.parametrize("seed", range(0, 500, 100))
def test_changing_rows_are_written_once_without_timeouts(seed):
    """Without timeouts, rows may differ at each repetition: the batch has one decision."""
    for one in range(seed, seed + 100):
        world = World(one, is_deterministic=False, may_time_out=False)
        world.play()
        assert world.written() == world.expected(), f"seed {one}"


def test_changing_rows_are_never_written_twice():
    """After timeouts the repetition of a part is refused if its rows differ."""
    refused = 0
    for seed in range(500):
        world = World(seed, is_deterministic=False)
        try:
            world.play()
        except RowsChangedError:
            refused += 1
        world.cluster.apply_all()
        assert max(world.written().values(), default=1) == 1, f"seed {seed}"
    assert refused < 100


@pytest.mark.parametrize("tasks", [2, 8])
def test_attempts_that_take_over_at_once_do_not_fence_one_another_without_end(tasks):
    """The worst order: each attempt fences the others just before they store the owner."""
    cluster = Cluster()
    order = [ReadState, TakeOver, StoreState, AbortOpen, AwaitOwner]
    flows = [begin_task(SINK, "run", 0, 0) for _ in range(tasks)]
    pending = [(next(flow), flow) for flow in flows]
    for _ in range(20 * tasks):
        if not pending:
            break
        request, flow = min(pending, key=lambda one: order.index(type(one[0])))
        pending.remove((request, flow))
        with suppress(StopIteration):
            pending.append((flow.send(reply_to(cluster, request)), flow))
    assert pending == []


def reply_to(cluster, request):
    """Perform a request without a pause."""
    steps = cluster.perform(request)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def test_empty_batch_needs_no_decision():
    flow = commit_batch(SINK, "run", 4, [TaskResult(0, 0, 0, None)])
    assert isinstance(next(flow), ReadState)
    assert flow.send(SinkState()) == AbortOpen(("p/q/run/",))


def test_abort_keeps_transactions_of_a_decided_batch():
    mine = PreparedTransaction(0, 0, 7, 0, "run")
    decided = SinkState(Owner("run", 1, 0), Decision(4, "run", (mine,)))
    flow = abort_batch(SINK, "run", 4)
    assert next(flow) == ReadState()
    assert flow.send(decided) == TakeOver("p/q")
    assert flow.send((1, 1)) == ReadState(is_stable=True)
    with pytest.raises(StopIteration):
        flow.send(decided)


def test_older_checkpoint_is_rejected():
    state = SinkState(Owner("run", 1, 0), Decision(5, "run", ()))
    story = "runs batch 4, but the sink has batch 5 already"
    for flow in (begin_task(SINK, "run", 4, 1), commit_batch(SINK, "run", 4, [])):
        next(flow)
        with pytest.raises(OutdatedCheckpointError, match=story):
            flow.send(state)


class TestOwner:
    """The requests of the run ``run``; ``old`` and ``new`` are other runs."""

    MINE = PreparedTransaction(1, 0, 7, 0, "run")
    OLD = PreparedTransaction(1, 0, 6, 0, "old")
    CLEAN = Owner("run", 1, 1, has_cleaned=True, former_runs=("old",))

    def commit(self, state):
        flow = commit_batch(SINK, "run", 4, [TaskResult(1, 1, 5, self.MINE)])
        assert next(flow) == ReadState(is_stable=True)
        return flow, flow.send(state)

    def test_foreign_owner_cannot_be_replaced_by_a_commit(self):
        with pytest.raises(SupersededError, match="another run of this query"):
            self.commit(SinkState(Owner("new", 1, 0)))

    def test_lost_transaction_prevents_the_decision(self):
        flow, request = self.commit(SinkState(self.CLEAN))
        assert request == FindClosed((self.MINE,))
        story = r"batch 4, tasks 1, .*transaction\.timeout\.ms"
        with pytest.raises(TransactionLostError, match=story):
            flow.send([self.MINE])

    def test_foreign_owner_cannot_replace_a_lost_transaction(self):
        """A superseded driver could commit the rows that the owner commits too."""
        state = SinkState(Owner("new", 1, 0), Decision(4, "old", (self.OLD,)))
        flow, request = self.commit(state)
        assert request == ReadMarkers((1,))
        assert flow.send({}) == CommitAll((self.OLD,))
        assert flow.send([self.OLD]) == ReadMarkers((1,))
        assert flow.send({}) == AwaitMarkers((), 4)
        with pytest.raises(SupersededError):
            flow.send({})

    def test_lost_transaction_is_replaced_by_a_decision(self):
        flow, _ = self.commit(SinkState(self.CLEAN, Decision(4, "old", (self.OLD,))))
        flow.send({})
        flow.send([self.OLD])
        assert flow.send({}) == AwaitMarkers((), 4)
        assert flow.send({}) == FindClosed((self.MINE,))
        stored = SinkState(self.CLEAN, Decision(4, "run", (self.MINE,)))
        assert flow.send([]) == StoreState(stored)
        assert flow.send(True) == ReadMarkers((1,))
        assert flow.send({}) == CommitAll((self.MINE,))
        assert flow.send([]) == AbortOpen(("p/q/run/",))

    def fence(self, state):
        """Let another process fence the commit of a batch, and let the driver take over."""
        flow, _ = self.commit(state)
        assert isinstance(flow.send([]), StoreState)
        assert flow.send(False) == ReadState()
        assert flow.send(state) == TakeOver("p/q")
        assert flow.send((1, 2)) == ReadState(is_stable=True)
        return flow

    def test_attempt_of_task_0_does_not_supersede_its_driver(self):
        flow = self.fence(SinkState(self.CLEAN))
        assert flow.send(SinkState(self.CLEAN)) == FindClosed((self.MINE,))
        owner = msgspec.structs.replace(self.CLEAN, producer_epoch=2)
        stored = SinkState(owner, Decision(4, "run", (self.MINE,)))
        assert flow.send([]) == StoreState(stored)

    def test_stored_decision_is_found_after_its_reply_was_lost(self):
        flow = self.fence(SinkState(self.CLEAN))
        state = SinkState(self.CLEAN, Decision(4, "run", (self.MINE,)))
        assert flow.send(state) == ReadMarkers((1,))

    def test_driver_that_is_fenced_by_another_run_is_superseded(self):
        flow = self.fence(SinkState(self.CLEAN))
        with pytest.raises(SupersededError):
            flow.send(SinkState(Owner("new", 1, 3)))

    def test_unclean_owner_is_fenced_before_a_decision(self):
        """Another attempt of task 0 may use the same producer."""
        unclean = msgspec.structs.replace(self.CLEAN, has_cleaned=False)
        _, request = self.commit(SinkState(unclean))
        assert request == TakeOver("p/q")

    def test_completed_decision_is_not_sent_again(self):
        flow = begin_task(SINK, "run", 4, 0)
        next(flow)
        assert flow.send(SinkState(self.CLEAN, Decision(4, "old", (self.OLD,)))) == ReadMarkers(
            (1,)
        )
        with pytest.raises(StopIteration) as end:
            flow.send({1: Marker(4, 9)})
        assert end.value.value is False

    def test_decided_batch_of_a_dead_run_is_completed(self):
        flow = begin_task(SINK, "run", 4, 0)
        next(flow)
        flow.send(SinkState(self.CLEAN, Decision(4, "old", (self.OLD,))))
        assert flow.send({}) == CommitAll((self.OLD,))
        with pytest.raises(StopIteration) as end:
            flow.send([])
        assert end.value.value is False

    def test_new_run_cleans_and_keeps_the_decision(self):
        decision = Decision(3, "old", (self.OLD,))
        flow = begin_task(SINK, "run", 4, 0)
        assert next(flow) == ReadState()
        assert flow.send(SinkState(Owner("old", 1, 0))) == TakeOver("p/q")
        assert flow.send((1, 1)) == ReadState(is_stable=True)
        unclean = msgspec.structs.replace(self.CLEAN, has_cleaned=False)
        state = SinkState(Owner("old", 1, 0), decision)
        assert flow.send(state) == StoreState(SinkState(unclean, decision))
        assert flow.send(True) == ReadMarkers((1,))
        assert flow.send({1: Marker(3, 9)}) == AbortOpen(("p/q/old/",))
        assert flow.send(None) == StoreState(SinkState(self.CLEAN, decision))
        with pytest.raises(StopIteration) as end:
            flow.send(True)
        assert end.value.value is True

    def test_retry_of_task_0_repeats_the_cleanup(self):
        """The first attempt died between its takeover and the end of its cleanup."""
        unclean = msgspec.structs.replace(self.CLEAN, has_cleaned=False)
        flow = begin_task(SINK, "run", 4, 0)
        next(flow)
        assert flow.send(SinkState(unclean)) == TakeOver("p/q")
        assert flow.send((1, 2)) == ReadState(is_stable=True)
        owner = msgspec.structs.replace(unclean, producer_epoch=2)
        assert flow.send(SinkState(unclean)) == StoreState(SinkState(owner))
        assert flow.send(True) == AbortOpen(("p/q/old/",))

    def test_former_owner_cannot_become_the_owner_again(self):
        flow = begin_task(SINK, "old", 4, 0)
        next(flow)
        with pytest.raises(SupersededError):
            flow.send(SinkState(self.CLEAN))

    def test_state_keeps_the_last_eight_former_runs(self):
        state = SinkState()
        for number in range(12):
            state = state.owned_by(f"run{number}", 1, number)
        assert state.owner.former_runs == tuple(f"run{number}" for number in range(3, 11))


class TestSubstitutes:
    DECISION = Decision(4, "old", tuple(PreparedTransaction(n, 0, n, 0, "old") for n in range(2)))
    NEW = PreparedTransaction(1, 0, 9, 0, "new")

    def choose(self, *results):
        lost = [self.DECISION.transactions[1]]
        return choose_substitutes(self.DECISION, lost, {0: Marker(4, 5)}, results)

    def test_repeated_rows_replace_lost_ones(self):
        assert self.choose(TaskResult(0, 1, 5, None), TaskResult(1, 1, 8, self.NEW)) == [self.NEW]

    @pytest.mark.parametrize(
        ("results", "task"),
        [
            ([TaskResult(0, 1, 6, None), TaskResult(1, 1, 8, NEW)], 0),
            ([TaskResult(0, 1, 5, None), TaskResult(1, 0, 0, None)], 1),
            ([TaskResult(0, 1, 5, None)], 1),
            ([TaskResult(0, 1, 5, None), TaskResult(2, 1, 5, NEW)], 2),
        ],
    )
    def test_other_rows_are_rejected(self, results, task):
        with pytest.raises(RowsChangedError, match=f"batch 4 .*task {task} of its repetition"):
            self.choose(*results)


class TestDocuments:
    @pytest.mark.parametrize("count", [0, 1, 40, 41, 500])
    def test_state_survives_its_documents(self, count):
        widest = 2**62, 2**15 - 1
        run = "00000000-0000-0000-0000-000000000000"
        transactions = tuple(
            PreparedTransaction(10_000_000 + n, 1000, *widest, run) for n in range(count)
        )
        owner = Owner(run, *widest, has_cleaned=True, former_runs=(run,) * 8)
        state = SinkState(owner, Decision(2**40, run, transactions))
        documents = encode_state(state)
        assert document_count(documents[0]) == len(documents)
        assert max(map(len, documents)) < 4096  # Kafka's offset.metadata.max.bytes
        assert decode_state(documents) == state

    def test_state_without_decision_survives(self):
        for state in (SinkState(), SinkState(Owner("run", 1, 2))):
            assert decode_state(encode_state(state)) == state
        assert decode_state([None]) == SinkState()

    def test_documents_of_two_decisions_are_not_mixed(self):
        def documents(batch):
            transactions = tuple(PreparedTransaction(n, 0, n, 0, "run") for n in range(100))
            return encode_state(SinkState(None, Decision(batch, "run", transactions)))

        assert decode_state([documents(1)[0], documents(2)[1]]) is None
        assert decode_state([documents(1)[0], None]) is None

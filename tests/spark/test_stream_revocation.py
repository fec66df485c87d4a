"""Revocations whose commit fails: a partition moves after its batch is committed; no Spark."""

import asyncio

import pytest

from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.spark.options import parse_options
from partage.spark.stream.offset import INITIAL_OFFSET, QueryIdentity, StreamOffset
from partage.spark.stream.partition_source import PartitionSource
from partage.spark.stream.stream_source import StreamSource
from partage.spark.stream.trigger_limits import TriggerLimits
from partage.testing import ThreadedBroker

from .conftest import Kafka
from .group_state import committed, filled_topic, member_partitions, wait_until
from .reader_driver import ReaderDriver, group_query_options

A, B = (TopicPartition("t", n) for n in range(2))
END = StreamOffset(seq=1, identity=QueryIdentity(), ranges={A: (0, 100), B: (0, 50)})


class RevocableSource(PartitionSource):
    """A source that the test controls: owned and revoked partitions, coordinator and commits."""

    def __init__(self):
        super().__init__()
        self.held = {A: 1, B: 2}
        self.revoked = ()
        self.committed = {A: 0, B: 0}
        self.attempts = []
        self.accepts_commits = True
        self.is_connected = True

    async def start(self):
        pass

    async def readable(self):
        return {p: number for p, number in self.held.items() if p not in self.revoked}

    @property
    def owned(self):
        return self.held

    @property
    def pending_revocation(self):
        return self.revoked

    def complete_revocation(self):
        self.held = {p: number for p, number in self.held.items() if p not in self.revoked}
        self.revoked = ()

    @property
    def has_coordinator(self):
        return self.is_connected

    async def committed_offsets(self, partitions):
        return {p: self.committed[p] for p in partitions}

    async def commit(self, offsets):
        self.attempts.append(dict(offsets))
        if self.accepts_commits:
            self.committed.update(offsets)
        return self.accepts_commits


class Boundaries:
    """A query without brokers, at the boundaries of its batches."""

    def __init__(self):
        options = parse_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
        self.query = StreamSource(None, options)
        self.query._topics._initial_counts = {}
        self.source = RevocableSource()
        self.pass_boundary(INITIAL_OFFSET)

    def pass_boundary(self, end=END):
        return asyncio.run(self.query._at_boundary(self.source, end))

    def revoke_after_failed_commit(self, *partitions, is_connected=True):
        """Let the first commit of the written batch fail while partitions are to be revoked."""
        self.source.revoked = partitions
        self.source.accepts_commits, self.source.is_connected = False, is_connected
        self.pass_boundary()
        assert self.source.revoked == partitions


@pytest.mark.parametrize("revoked", [(A,), (A, B)], ids=["cooperative", "eager"])
@pytest.mark.parametrize("is_connected", [True, False])
def test_revocation_retries_failed_commit(revoked, is_connected):
    one = Boundaries()
    one.revoke_after_failed_commit(*revoked, is_connected=is_connected)
    one.source.accepts_commits = one.source.is_connected = True
    readable = one.pass_boundary()
    assert one.source.committed == {A: 100, B: 50}
    assert readable.keys() == one.source.held.keys() == {A, B} - set(revoked)


def test_revocation_completes_after_three_failed_commits():
    one = Boundaries()
    one.revoke_after_failed_commit(A)
    one.pass_boundary()
    assert one.source.revoked == (A,)
    one.pass_boundary()
    assert one.source.attempts == [{A: 100, B: 50}] * 3
    assert one.source.held.keys() == {B}


def test_revocation_waits_while_the_coordinator_is_away():
    one = Boundaries()
    one.revoke_after_failed_commit(A, is_connected=False)
    for _ in range(10):
        one.pass_boundary()
    assert one.source.revoked == (A,)
    assert one.source.attempts == [{A: 100, B: 50}] * 11


def test_revoked_partition_is_not_read_but_stays_in_the_checkpoint():
    one = Boundaries()
    one.revoke_after_failed_commit(A)
    readable = one.pass_boundary()
    one.query._ends = {A: 120, B: 60}
    ends = one.query._ends_to_read(readable)
    end = one.query._planner.plan(ends, TriggerLimits(), 0, QueryIdentity(), {})
    assert end.ranges == {A: (100, 100), B: (50, 60)}
    assert end.lag == {B: 0}


@pytest.mark.parametrize("returns", [True, False])
def test_lost_partition_is_not_committed_by_former_owner(returns):
    """Another owner has committed a later offset; a returned partition has a new ownership id."""
    one = Boundaries()
    one.revoke_after_failed_commit(A)
    one.source.attempts.clear()
    one.source.revoked, one.source.accepts_commits = (), True
    one.source.held = {A: 3, B: 2} if returns else {B: 2}
    one.source.committed[A] = 200
    one.pass_boundary()
    assert one.source.attempts == [{B: 50}]
    positions = one.query._planner.positions
    assert positions == ({A: 200, B: 50} if returns else {B: 50})


@pytest.mark.parametrize(
    "member",
    [
        {"kafka__group__protocol": "classic", "kafka__heartbeat__interval__ms": "200"},
        {"kafka__group__protocol": "consumer"},
    ],
    ids=["classic", "consumer"],
)
def test_next_owner_starts_after_batch_whose_commit_failed(member):
    """The first commits are refused while a second query waits for the partitions."""
    with ThreadedBroker({"group.consumer.session.timeout.ms": "30000"}) as broker:
        kafka = Kafka(broker.bootstrap_servers)
        topic, truth = filled_topic(kafka, 2, 10)
        options = group_query_options(topic, **member)
        one, two = (ReaderDriver(kafka.servers, **options) for _ in range(2))
        try:
            assert one.batch() == truth
            source = one.reader._runtime.source._partition_source
            wait_until(lambda: two.batch() == [] and source.pending_revocation)
            broker.faults.fail("OffsetCommit", ErrorCode.GROUP_AUTHORIZATION_FAILED, times=2)
            rows = []
            wait_until(
                lambda: (
                    rows.extend(one.batch() + two.batch())
                    or sorted(map(len, member_partitions(kafka, topic).values())) == [1, 1]
                )
            )
            assert committed(kafka, topic, topic, 2) == [5, 5]
            assert rows == []
        finally:
            one.stop()
            two.stop()

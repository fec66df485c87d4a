"""Retried commits keep their order and include only partitions that the member still owns."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from functools import partial

import pytest

import partage
from partage.client.consumer import CommitFailedError, OffsetAndMetadata
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.sync import Consumer
from partage.testing.request_interceptor import FaultRule, HeldResponse, api_key, respond_with_error

from .conftest import PARTITIONS
from .test_group_members import EVERYTHING, Told, shared, until

pytestmark = pytest.mark.timeout(120)

#: The second one reconnects to the coordinator while requests are in flight.
PASSING = ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"]
T0, T1, T2 = (("t", n) for n in range(3))


@pytest.fixture
def faults(partage_broker):
    return partage_broker.faults


@pytest.fixture
def consumer(servers, topic):
    """A consumer with manual assignment, which may commit any partition."""
    options = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 20, "fetch_max_wait_ms": 50}
    with Consumer(servers, group_id="g", **options) as consumer:
        consumer.assign([T0, T1])
        yield consumer


def stored(consumer, *partitions):
    return [each and each.offset for each in consumer.committed(partitions).values()]


@pytest.mark.parametrize("error", PASSING)
class TestOrder:
    def test_retried_commit_does_not_overwrite_later_one(self, faults, consumer, error):
        faults.fail("OffsetCommit", error)
        first, second = consumer.commit_async({T0: 5}), consumer.commit_async({T0: 8})
        first.result(30)
        second.result(30)
        assert stored(consumer, T0) == [8]

    def test_later_commit_may_have_lower_offset(self, faults, consumer, error):
        """The order of the calls counts, not the offsets."""
        faults.fail("OffsetCommit", error, times=3)
        commits = [consumer.commit_async({T0: offset}) for offset in (8, 9, 2, 5)]
        for commit in commits:
            commit.result(30)
        assert stored(consumer, T0) == [5]

    def test_partitions_not_in_later_commit_are_sent(self, faults, consumer, error):
        faults.fail("OffsetCommit", error)
        first, second = consumer.commit_async({T0: 5, T1: 5}), consumer.commit_async({T0: 8, T2: 8})
        first.result(30)
        second.result(30)
        assert stored(consumer, T0, T1, T2) == [8, 5, 8]

    def test_commit_is_sent_after_later_one_failed(self, faults, consumer, error):
        faults.fail("OffsetCommit", error)
        first = consumer.commit_async({T0: 5})
        second = consumer.commit_async({T0: OffsetAndMetadata(8, "x" * 10_000), T1: 8})
        with pytest.raises(CommitFailedError, match="t-0: OFFSET_METADATA_TOO_LARGE"):
            second.result(30)
        first.result(30)
        assert stored(consumer, T0, T1) == [5, 8], "each partition for itself"

    def test_commit_waits_for_one_in_flight(self, faults, consumer, error):
        """It is stored but not answered: the earlier one must not be sent meanwhile."""
        faults.fail("OffsetCommit", error)
        with faults.hold("OffsetCommit") as held:
            first, second = consumer.commit_async({T0: 5}), consumer.commit_async({T0: 8})
            held.wait()
            third = consumer.commit_async({T1: 1})
            assert not first.done()
            assert not second.done()
        for commit in (first, second, third):
            commit.result(30)
        assert stored(consumer, T0, T1) == [8, 1]

    def test_cancelled_commit_does_not_block_others(self, faults, consumer, error):
        with faults.hold("OffsetCommit") as held:
            first = consumer.commit_async({T0: 5})
            held.wait()
            second, third = consumer.commit_async({T0: 8}), consumer.commit_async({T0: 3})
            faults.fail("OffsetCommit", error)
            assert first.cancel()
            assert third.cancel()
        second.result(30)
        assert stored(consumer, T0) == [8]

    def test_asyncio_commits_keep_order(self, faults, servers, topic, error):
        async def work():
            options = {"retry_backoff_ms": 5, "fetch_max_wait_ms": 50}
            async with partage.Consumer(servers, group_id="g", **options) as consumer:
                consumer.assign([T0])
                faults.fail("OffsetCommit", error)
                await asyncio.gather(consumer.commit({T0: 5}), consumer.commit({T0: 8}))
                return await consumer.committed([T0])

        (found,) = asyncio.run(work()).values()
        assert found.offset == 8

    def test_auto_commit_keeps_order(self, faults, consumer, error):
        faults.fail("OffsetCommit", error)
        owner = consumer._group.assignment
        offsets = {TopicPartition(*T0): OffsetAndMetadata(5)}
        by_itself = consumer._engine.submit(owner.auto_commit(offsets))  # as a poll does
        consumer.commit({T0: 8})
        by_itself.result(30)
        assert stored(consumer, T0) == [8]


def test_commit_waiting_for_another_times_out(faults, servers, topic):
    with Consumer(servers, group_id="g", default_api_timeout_ms=200) as consumer:
        consumer.assign([T0])
        with faults.hold("OffsetCommit") as held:
            first = consumer.commit_async({T0: 5})
            held.wait()
            second = consumer.commit_async({T0: 8})
            with pytest.raises(CommitFailedError, match=r"default_api_timeout_ms \(200\)"):
                second.result(30)
            assert not first.done(), "it is on its way, and may take its request's time"
        first.result(30)
        assert stored(consumer, T0) == [5]


@pytest.fixture
def member(servers, topic):
    """Create blocking members without auto commit."""
    with ExitStack() as stack:

        def make(client_id, **options):
            settled = {
                "group_id": "g",
                "client_id": client_id,
                "enable_auto_commit": False,
                "auto_offset_reset": "earliest",
                "heartbeat_interval_ms": 50,
                "retry_backoff_ms": 5,
                "retry_backoff_max_ms": 50,
                "fetch_max_wait_ms": 50,
                **options,
            }
            made = stack.enter_context(Consumer(servers, **settled))
            made.subscribe(["t"])
            return made

        yield make


def refused_later(faults, error, client_id):
    """Refuse this client's next commit without effect, and delay the response."""
    held = HeldResponse(faults._loop, withdraw=lambda: None)
    refuse = respond_with_error(ErrorCode[error])
    commits = api_key("OffsetCommit")
    refused = partial(held.intercept, handler=lambda served: refuse(served, None))
    faults._add(FaultRule(commits, client_id, lambda inbound, _: refused(inbound)))
    return held


class TestRebalances:
    """A commit fails in one generation and is retried in a later one."""

    def test_commit_after_rebalance_skips_moved_partitions(self, faults, member):
        one = member("one")
        until(lambda: shared(one), one)
        with refused_later(faults, "COORDINATOR_LOAD_IN_PROGRESS", "one") as held:
            commit = one.commit_async(dict.fromkeys(EVERYTHING, 5))
            held.wait()
            two = member("two")
            until(lambda: shared(one, two), one, two)
            two.commit(dict.fromkeys(two.assignment(), 9))
        error = commit.exception(30)
        assert isinstance(error, CommitFailedError)
        gone = sorted(two.assignment())
        assert "rebalanced" in str(error)
        assert all(str(each) in str(error) for each in gone)
        assert not any(str(each) in str(error) for each in one.assignment())
        assert stored(one, *gone) == [9] * len(gone)
        kept = sorted(one.assignment())
        assert stored(one, *kept) == [5] * len(kept), "in the name of the present generation"

    def test_commit_bound_to_generation_ends_with_it(self, faults, member):
        """As the commits of a Spark query, which stores its offsets and commits them again."""
        one = member("one")
        until(lambda: shared(one), one)
        owner, offset = one._group.assignment, OffsetAndMetadata(5)
        with refused_later(faults, "NOT_COORDINATOR", "one") as held:
            of_then = owner.commit(dict.fromkeys(EVERYTHING, offset), only_as=owner.identity)
            commit = one._engine.submit(of_then)
            held.wait()
            two = member("two")
            until(lambda: shared(one, two), one, two)
        with pytest.raises(CommitFailedError):
            commit.result(30)
        assert stored(one, *EVERYTHING) == [None] * PARTITIONS

    def test_commit_skips_partition_that_returned(self, faults, member):
        """Another member owned it in between and has advanced."""
        one = member("one", partition_assignment_strategy=["range"])
        one.subscribe(["t"], heard := Told())
        until(lambda: shared(one), one)
        with refused_later(faults, "NOT_COORDINATOR", "one") as held:
            commit = one.commit_async({T0: 5})
            held.wait()
            faults.expire("g", client_id="one")
            # One poll may lose all partitions and get them again.
            until(lambda: "lost" in dict(heard.calls) and shared(one), one)
        with pytest.raises(CommitFailedError, match=r"rebalanced.*t-0"):
            commit.result(30)
        assert stored(one, T0) == [None]

    def test_commit_lost_with_connection_skips_moved(self, faults, member):
        """It may be stored, and another member has committed a later offset since."""
        one = member("one")
        until(lambda: shared(one), one)
        with faults.hold("OffsetCommit", client_id="one") as held:
            commit = one.commit_async(dict.fromkeys(EVERYTHING, 5))
            held.wait()
            two = member("two")
            until(lambda: shared(one, two), one, two)
            two.commit(dict.fromkeys(two.assignment(), 9))
            faults.disconnect(client_id="one")
        with pytest.raises(CommitFailedError, match="rebalanced"):
            commit.result(30)
        assert stored(two, *two.assignment()) == [9] * (PARTITIONS // 2)

    def test_commit_after_leave_is_refused(self, faults, member):
        """Without members, the group would accept a commit of any client."""
        one = member("one")
        until(lambda: shared(one), one)
        with refused_later(faults, "COORDINATOR_LOAD_IN_PROGRESS", "one") as held:
            commit = one.commit_async({T0: 5})
            held.wait()
            one.unsubscribe()
            one.assign([T0])
        with pytest.raises(CommitFailedError, match=r"rebalanced.*t-0"):
            commit.result(30)
        assert stored(one, T0) == [None]

    def test_commit_of_unowned_partitions_is_sent(self, member):
        one, two = member("one"), member("two")
        until(lambda: shared(one, two), one, two)
        of_two = sorted(two.assignment())
        one.commit(dict.fromkeys(of_two, 3))
        assert stored(one, *of_two) == [3] * len(of_two)

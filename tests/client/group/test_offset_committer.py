"""Retried commits keep their order and include only partitions that the member still owns."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import pytest

import partage
from partage.client.consumer import CommitFailedError, OffsetAndMetadata, group_subscription
from partage.client.consumer.group_assignment import GroupAssignment
from partage.client.group.offsets import IdentifiedOffsets
from partage.member.outcome import ListenerCallback
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.sync import Consumer
from partage.testing.request_interceptor import FaultRule, HeldResponse, api_key, respond_with_error
from polled_conditions import PATIENCE_S, eventually

from .conftest import PARTITIONS
from .test_group_members import EVERYTHING, Told, shared, until

pytestmark = pytest.mark.timeout(600)

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
        with pytest.raises(CommitFailedError, match="t-0: OFFSET_METADATA_TOO_LARGE") as raised:
            second.result(30)
        assert raised.value.code == ErrorCode.OFFSET_METADATA_TOO_LARGE
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
        offsets = IdentifiedOffsets({TopicPartition(*T0): OffsetAndMetadata(5)})
        by_itself = consumer._engine.submit(owner.auto_commit(offsets))  # as a poll does
        consumer.commit({T0: 8})
        by_itself.result(30)
        assert stored(consumer, T0) == [8]


def test_auto_commit_waits_for_the_previous_one(faults, servers, topic, monkeypatch):
    """Otherwise, commits pile up while the coordinator is silent."""
    started = []
    commit = GroupAssignment.auto_commit

    def count(owner, offsets):
        started.append(offsets)
        return commit(owner, offsets)

    monkeypatch.setattr(GroupAssignment, "auto_commit", count)
    options = {"enable_auto_commit": True, "auto_commit_interval_ms": 1}
    with Consumer(servers, group_id="g", **options) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 5)
        with faults.hold("OffsetCommit") as held:
            consumer.poll(20)
            held.wait()
            for _ in range(5):
                consumer.poll(10)
            assert len(started) == 1
            consumer.seek(T0, 8)
        eventually(lambda: consumer.poll(10) is not None and stored(consumer, T0) == [8])
        assert len(started) > 1


def test_commits_end_within_the_timeout_of_calls(faults, servers, topic):
    with Consumer(servers, group_id="g", default_api_timeout_ms=200) as consumer:
        consumer.assign([T0])
        with faults.hold("OffsetCommit") as held:
            first = consumer.commit_async({T0: 5})
            held.wait()
            second = consumer.commit_async({T0: 8})
            for commit in (first, second):
                with pytest.raises(CommitFailedError, match=r"default_api_timeout_ms \(200\)"):
                    commit.result(10)
        # the coordinator had stored the first one, and may have got the second one
        assert stored(consumer, T0) in ([5], [8])
        consumer.commit({T0: 9})
        assert stored(consumer, T0) == [9]


def test_commit_before_revocation_times_out(faults, servers, topic):
    """A quarter of the rebalance timeout is far less than the 60 s of default_api_timeout_ms."""
    with Consumer(servers, group_id="g", max_poll_interval_ms=1_000) as consumer:
        consumer.assign([T0])
        offsets = IdentifiedOffsets({TopicPartition(*T0): OffsetAndMetadata(5)})
        committing = consumer._group.assignment.auto_commit_before_revocation(offsets)
        with faults.hold("OffsetCommit") as held:
            commit = consumer._engine.submit(committing)
            held.wait()
            assert commit.result(30) is None


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
            if settled.get("group_protocol") == "consumer":
                del settled["heartbeat_interval_ms"]
            made = stack.enter_context(Consumer(servers, **settled))
            made.subscribe(["t"])
            return made

        yield make


def is_revoking(consumer):
    """True if the next poll has to revoke partitions."""
    due = consumer._group.due_callback
    return due is not None and due.callback is ListenerCallback.REVOKED


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
        assert error.code is None, "no broker refused it"
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
            offsets = IdentifiedOffsets(dict.fromkeys(EVERYTHING, offset))
            of_then = owner.commit(offsets, only_as=owner.identity)
            commit = one._engine.submit(of_then)
            held.wait()
            two = member("two")
            until(lambda: shared(one, two), one, two)
        with pytest.raises(CommitFailedError):
            commit.result(30)
        assert stored(one, *EVERYTHING) == [None] * PARTITIONS

    def test_assignment_after_poll_excludes_revoked_partitions(self, member):
        """Although the event loop is busy when the callback returns."""
        one, revoked = member("one"), set()

        def keep_loop_busy(name, partitions):
            if name == "revoked":
                revoked.update(partitions)
                one._engine._loop.call_soon_threadsafe(threading.Event().wait, 0.2)

        one.subscribe(["t"], Told(keep_loop_busy))
        until(lambda: shared(one), one)
        two = member("two")
        until(lambda: revoked, one, two)
        assert not one.assignment() & revoked

    @pytest.mark.parametrize(
        ("protocol", "error"),
        [("classic", "UNKNOWN_TOPIC_OR_PARTITION"), ("consumer", "UNKNOWN_TOPIC_ID")],
    )
    def test_commit_of_deleted_topic_delays_no_revocation(self, faults, member, protocol, error):
        """As in Kafka's consumer; any other commit of an unknown topic is retried."""
        options = {"enable_auto_commit": True, "auto_commit_interval_ms": 600_000}
        options["group_protocol"] = protocol
        one, heard = member("one", **options), Told()
        one.subscribe(["t"], heard)
        until(lambda: shared(one), one)
        faults.fail("OffsetCommit", error, client_id="one", times=1_000_000, required=False)
        two = member("two", **options | {"enable_auto_commit": False})
        until(lambda: shared(one, two), one, two)
        faults.clear()
        assert "revoked" in dict(heard.calls)
        assert stored(one, *EVERYTHING) == [None] * PARTITIONS

    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    def test_first_poll_after_revocation_runs_listener(self, faults, member, monkeypatch, protocol):
        """A later poll may be too late: it follows the processing of this poll's records."""
        monkeypatch.setattr(group_subscription, "COMMIT_WAIT_MS", 1_000 * PATIENCE_S)
        options = {"group_protocol": protocol, "auto_commit_interval_ms": 600_000}
        one, heard = member("one", enable_auto_commit=True, **options), Told()
        one.subscribe(["t"], heard)
        until(lambda: heard.holds() == set(range(PARTITIONS)), one)
        one.seek_to_beginning()
        until(lambda: len(one.poll(20, max_records=1)) == 1)
        two = member("two", **options)
        until(lambda: is_revoking(one), two)
        polls = one._group.assignment._polls
        polls.poll_ended_ms -= 60_000
        with ThreadPoolExecutor(1) as pool:
            with faults.hold("OffsetCommit", client_id="one") as held:
                polling = pool.submit(one.poll, int(1_000 * PATIENCE_S))
                held.wait()
                # The wait counts as a poll, so that max_poll_interval_ms does not end in it.
                eventually(lambda: polls.ms_since_poll < 60_000)
            assert len(polling.result()) > 0
        assert "revoked" in dict(heard.calls)

    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    def test_revocation_without_listener_needs_no_second_poll(self, faults, member, protocol):
        options = {"group_protocol": protocol, "auto_commit_interval_ms": 600_000}
        one = member("one", enable_auto_commit=True, **options)
        until(lambda: shared(one), one)
        two = member("two", **options)
        until(lambda: is_revoking(one), two)
        with faults.hold("OffsetCommit", client_id="one") as held:
            one.poll(0)
            held.wait()
            assert shared(one)
        until(lambda: shared(one, two), two)

    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    def test_commit_before_revocation_delays_no_poll(self, faults, member, monkeypatch, protocol):
        """The listener waits for the commit; partitions that stay deliver records."""
        monkeypatch.setattr(group_subscription, "COMMIT_WAIT_MS", 100)
        options = {"group_protocol": protocol, "auto_commit_interval_ms": 600_000}
        one, heard = member("one", enable_auto_commit=True, **options), Told()
        one.subscribe(["t"], heard)
        until(lambda: shared(one), one)
        one.seek_to_beginning()
        with faults.hold("OffsetCommit", client_id="one"):
            two = member("two", **options)
            until(lambda: not faults.pending, one, two)
            one.seek_to_beginning()
            until(lambda: len(one.poll(60_000)) > 0, two)
            assert "revoked" not in dict(heard.calls)
        until(lambda: shared(one, two), one, two)
        assert "revoked" in dict(heard.calls)

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

    def test_commit_ends_when_static_member_rejoins_in_same_epoch(self, faults, member):
        """It reads from the committed offset again, so a later commit of the old one is wrong."""
        one = member("one", group_protocol="consumer", group_instance_id="one")
        until(lambda: shared(one), one)
        before = one._group.assignment.identity
        with refused_later(faults, "COORDINATOR_LOAD_IN_PROGRESS", "one") as held:
            commit = one.commit_async({T0: 5})
            held.wait()
            one.unsubscribe()
            one.subscribe(["t"])
            until(lambda: shared(one), one)
            assert one._group.assignment.identity == before
        with pytest.raises(CommitFailedError, match=r"rebalanced.*t-0"):
            commit.result(30)
        assert stored(one, T0) == [None]

    def test_commit_of_unowned_partitions_is_sent(self, member):
        one, two = member("one"), member("two")
        until(lambda: shared(one, two), one, two)
        of_two = sorted(two.assignment())
        one.commit(dict.fromkeys(of_two, 3))
        assert stored(one, *of_two) == [3] * len(of_two)

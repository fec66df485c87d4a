"""Consumers with the consumer group protocol (KIP-848): the broker assigns partitions."""

from __future__ import annotations

import itertools
import re
from contextlib import ExitStack

import pytest

from partage import SubscriptionPattern
from partage.client.consumer import (
    InvalidOptionError,
    MaxPollExceededError,
    MemberFailedError,
    OffsetAndMetadata,
)
from partage.model.arguments import InvalidArgumentError
from partage.testing import ThreadedBroker

from ..confluent_admin import create_topic
from ..consumer.consumer_adapters import FACES
from .conftest import fill
from .test_group_members import EVERYTHING, PARTITIONS, Told, read, shared, until

#: Short intervals; `interop.test_partage_members` configures Apache Kafka in the same way.
FAST = {
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": 20_000,
    "group.consumer.min.heartbeat.interval.ms": 50,
    "group.consumer.heartbeat.interval.ms": 100,
    "group.consumer.assignment.interval.ms": 0,
}
#: Long enough for the polls of a busy machine.
POLL_INTERVAL_MS = 1_500
pytestmark = [pytest.mark.partage_broker(FAST), pytest.mark.timeout(600)]
_numbers = itertools.count(1)


@pytest.fixture(params=FACES)
def consumer_of(request, servers):
    """Create members of one kind; close them after the test."""
    with ExitStack() as stack:
        group = f"k{next(_numbers)}"

        def make(**options):
            settled = {
                "group_id": group,
                "group_protocol": "consumer",
                "auto_offset_reset": "earliest",
                "retry_backoff_ms": 5,
                "retry_backoff_max_ms": 50,
                "fetch_max_wait_ms": 50,
                "metadata_max_age_ms": 200,
                **options,
            }
            return stack.enter_context(FACES[request.param](servers, **settled))

        yield make


def test_member_reads_all_and_commits(consumer_of, topic):
    one = consumer_of(group_remote_assignor="range")
    one.subscribe([topic], heard := Told())
    seen = read(60, one)
    assert len({(r.partition, r.offset) for r in seen}) == 60
    one.commit()
    assert one.committed(EVERYTHING) == dict.fromkeys(EVERYTHING, OffsetAndMetadata(10))
    assert one.subscription() == {topic}
    assert heard.calls == [("assigned", set(range(PARTITIONS)))]


def test_second_member_gets_only_the_moving_partitions(consumer_of, topic):
    first, second, heard, other = consumer_of(), consumer_of(), Told(), Told()
    first.subscribe([topic], heard)
    until(lambda: shared(first), first)
    until(lambda: len(heard.calls) == 1, first)
    second.subscribe([topic], other)
    until(lambda: shared(first, second), first, second)
    moved = {p.partition for p in second.assignment()}
    assert [call for call in heard.calls if call[1]] == [
        ("assigned", set(range(PARTITIONS))),
        ("revoked", moved),
    ]
    assert other.holds() == moved
    first.close()
    until(lambda: shared(second), second)


def test_leave_commits_and_others_continue(consumer_of, topic):
    first, second = consumer_of(), consumer_of()
    first.subscribe([topic], heard := Told())
    read(60, first)
    first.unsubscribe()
    assert heard.calls[-1] == ("revoked", set(range(PARTITIONS)))
    second.subscribe([topic])
    until(lambda: shared(second), second)
    assert second.committed(EVERYTHING) == dict.fromkeys(EVERYTHING, OffsetAndMetadata(10))


def test_broker_matches_subscription_pattern(consumer_of, servers, topic):
    one = consumer_of(group_protocol="auto")
    create_topic(servers, "other", 1)
    fill(servers, "other", 1, partitions=1)
    one.subscribe(SubscriptionPattern("t|none"))
    assert {record.topic for record in read(60, one)} == {topic}
    assert one.subscription() == {topic}
    one.subscribe(SubscriptionPattern("oth.*"))
    assert {record.topic for record in read(1, one)} == {"other"}


def test_client_pattern_includes_new_topics(consumer_of, servers, topic):
    one = consumer_of()
    one.subscribe(re.compile("t|new"))
    until(lambda: shared(one), one)
    create_topic(servers, "new", 1)
    fill(servers, "new", 1, partitions=1)
    until(lambda: len(one.assignment()) == PARTITIONS + 1, one)
    assert one.subscription() == {"t", "new"}


def test_static_member_restart_keeps_partitions(consumer_of, topic):
    first, second, heard = consumer_of(group_instance_id="a"), consumer_of(), Told()
    first.subscribe([topic])
    second.subscribe([topic], heard)
    until(lambda: shared(first, second), first, second)
    before, calls = first.assignment(), len(heard.calls)
    first.close()
    again = consumer_of(group_instance_id="a")
    again.subscribe([topic])
    until(lambda: again.assignment() == before, again, second)
    assert len(heard.calls) == calls


def test_drain_hands_over_all_partitions(consumer_of, topic):
    going, staying, heard = consumer_of(), consumer_of(), Told()
    going.subscribe([topic], heard)
    staying.subscribe([topic])
    until(lambda: shared(going, staying), going, staying)
    going.drain()
    until(lambda: going.is_drained and shared(staying), going, staying)
    assert not heard.holds()


def test_poll_interval_exceeded_raises(consumer_of, topic):
    one = consumer_of(max_poll_interval_ms=POLL_INTERVAL_MS)
    one.subscribe([topic], heard := Told())
    until(lambda: shared(one), one)
    other = consumer_of()
    other.subscribe([topic])
    until(lambda: shared(other), other)
    with pytest.raises(MaxPollExceededError):
        until(lambda: False, one)
    until(lambda: shared(one, other), one, other)
    lost = [partitions for name, partitions in heard.calls if name == "lost"]
    assert set().union(*lost) == set(range(PARTITIONS))


def test_drain_without_polls_loses_its_partitions(consumer_of, topic):
    going, staying = consumer_of(max_poll_interval_ms=POLL_INTERVAL_MS), consumer_of()
    going.subscribe([topic], heard := Told())
    until(lambda: shared(going), going)
    going.drain()
    staying.subscribe([topic])
    until(lambda: set(staying.assignment()) == set(EVERYTHING), staying)
    until(lambda: going.is_drained, going)
    assert heard.calls[-1] == ("lost", set(range(PARTITIONS)))


def test_removed_member_loses_its_partitions_and_rejoins(
    consumer_of, topic, partage_broker: ThreadedBroker
):
    one = consumer_of()
    one.subscribe([topic], heard := Told())
    until(lambda: shared(one), one)
    group_id = f"k{next(_numbers) - 1}"
    partage_broker.faults.expire(group_id)
    until(lambda: len(heard.calls) == 3, one)
    everything = set(range(PARTITIONS))
    assert heard.calls == [("assigned", everything), ("lost", everything), ("assigned", everything)]
    one.commit()


def test_coordinator_restart_keeps_the_group(consumer_of, topic, partage_broker: ThreadedBroker):
    one = consumer_of()
    one.subscribe([topic], heard := Told())
    read(60, one)
    with partage_broker.faults.coordinator_down():
        one.poll(100)
    one.commit()
    assert heard.calls == [("assigned", set(range(PARTITIONS)))]
    assert one.committed(EVERYTHING) == dict.fromkeys(EVERYTHING, OffsetAndMetadata(10))


def test_commit_with_stale_epoch_is_sent_again(consumer_of, topic, partage_broker: ThreadedBroker):
    one = consumer_of()
    one.subscribe([topic])
    read(60, one)
    partage_broker.faults.fail("OffsetCommit", "STALE_MEMBER_EPOCH", times=2)
    one.commit()
    assert one.committed(EVERYTHING) == dict.fromkeys(EVERYTHING, OffsetAndMetadata(10))


@pytest.mark.parametrize(
    ("options", "topics", "error"),
    [
        ({}, SubscriptionPattern("(a"), r"INVALID_REGULAR_EXPRESSION.*[^.]\. A Sub.*RE2"),
        ({"group_remote_assignor": "none"}, ["t"], "UNSUPPORTED_ASSIGNOR.*group_remote_assignor"),
    ],
    ids=["regex", "assignor"],
)
def test_refused_subscription_is_fatal(consumer_of, topic, options, topics, error):
    one = consumer_of(**options)
    one.subscribe(topics)
    with pytest.raises(MemberFailedError, match=error):
        until(lambda: False, one)


def test_subscription_pattern_with_classic_protocol_raises(consumer_of, topic):
    one = consumer_of(group_protocol="classic")
    with pytest.raises(InvalidArgumentError, match="group_protocol='consumer'"):
        one.subscribe(SubscriptionPattern("t"))


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("session_timeout_ms", 9_000, "group.consumer.session.timeout.ms"),
        ("heartbeat_interval_ms", 3_000, "group.consumer.heartbeat.interval.ms"),
        ("partition_assignment_strategy", "range", "group_remote_assignor"),
        ("metadata_rebalance_delay_ms", 5, "group.consumer.assignment.interval.ms"),
        ("group_protocol", "new", "'classic', 'consumer' or 'auto'"),
    ],
)
def test_options_that_the_broker_decides_raise(consumer_of, option, value, reason):
    with pytest.raises(InvalidOptionError, match=f"{option}=.*{reason}"):
        consumer_of(**{option: value})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("session_timeout_ms", 9_000),
        ("heartbeat_interval_ms", 3_000),
        ("partition_assignment_strategy", "range"),
        ("metadata_rebalance_delay_ms", 5),
    ],
)
def test_options_of_classic_protocol_with_auto_raise(consumer_of, option, value):
    """A cluster with the consumer protocol would ignore them without a message."""
    with pytest.raises(InvalidOptionError, match=f"{option}=.*group_protocol='auto'"):
        consumer_of(group_protocol="auto", **{option: value})


def test_remote_assignor_with_classic_protocol_raises(consumer_of):
    with pytest.raises(InvalidOptionError, match="group_remote_assignor='range'"):
        consumer_of(group_protocol="classic", group_remote_assignor="range")

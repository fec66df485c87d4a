"""The choice of the group protocol by the cluster, ``group_protocol="auto"``."""

from __future__ import annotations

import re
import threading

import pytest

from group_descriptions import describe_group
from partage import SubscriptionPattern
from partage.client.consumer import (
    MemberFailedError,
    NothingAssignedError,
    OffsetAndMetadata,
    group_polls,
    group_protocol,
)
from partage.client.errors import BrokersUnreachableError
from partage.model.arguments import InvalidArgumentError
from partage.testing.request_interceptor import FaultRule, rewrite_response
from partage.wire.apis.api_versions import API_VERSIONS
from polled_conditions import PATIENCE_S, eventually

from ..consumer.consumer_adapters import FACES
from .test_group_members import EVERYTHING, PARTITIONS, Told, read, shared, until

pytestmark = pytest.mark.timeout(600)

QUICK_HEARTBEATS = {
    "group.consumer.min.heartbeat.interval.ms": 50,
    "group.consumer.heartbeat.interval.ms": 50,
}


@pytest.fixture
def faults(partage_broker):
    return partage_broker.faults


@pytest.fixture(params=FACES)
def one(request, servers, topic):
    """A consumer that has not sent a request yet."""
    options = {"group_id": "g", "client_id": "one", "auto_offset_reset": "earliest"}
    options |= {"retry_backoff_max_ms": 20, "fetch_max_wait_ms": 50, "metadata_max_age_ms": 200}
    with FACES[request.param](servers, group_protocol="auto", **options) as consumer:
        yield consumer


def assignment_of(consumer):
    return consumer._engine.assignment_source


def test_subscribe_does_not_wait_for_the_choice(faults, one):
    with faults.hold("ApiVersions", client_id="one") as held:
        one.subscribe(["t"])
        held.wait()
        assert not one.poll(0)
    assert len(read(60, one)) == 60
    assert assignment_of(one).has_server_patterns


def test_record_loop_before_the_choice_gets_records(faults, one):
    """The member that is chosen during a poll knows that the user polls."""
    records = []
    with faults.hold("ApiVersions", client_id="one") as held:
        one.subscribe(["t"])
        loop = threading.Thread(target=lambda: records.append(next(iter(one))), daemon=True)
        loop.start()
        eventually(lambda: assignment_of(one)._polls.is_polling)
        held.wait()
    loop.join(PATIENCE_S)
    assert len(records) == 1


def test_unsubscribe_before_the_choice_cancels_it(faults, one):
    with faults.hold("ApiVersions", client_id="one") as held:
        one.subscribe(["t"])
        held.wait()
        one.unsubscribe()
    one.assign([("t", 0)])
    assert len(read(10, one)) == 10
    assert faults.members("g") == {}


def test_drain_before_the_choice_cancels_it(faults, one):
    with faults.hold("ApiVersions", client_id="one") as held:
        one.subscribe(["t"])
        held.wait()
        one.drain()
        until(lambda: one.is_drained, one)
    assert not one.poll(0)


def test_drain_at_the_end_of_the_choice_stops_the_pattern(one, monkeypatch):
    ask = group_protocol.has_consumer_protocol

    async def drain_after(cluster):
        is_supported = await ask(cluster)
        one._group.drain()
        return is_supported

    monkeypatch.setattr(group_protocol, "has_consumer_protocol", drain_after)
    one.subscribe(re.compile("t"))
    until(lambda: one.is_drained, one)
    assert not one.assignment()


def test_poll_raises_no_retriable_error_of_the_choice(one, monkeypatch):
    ask, errors, is_down = group_protocol.has_consumer_protocol, [], True

    async def fail_while_down(cluster):
        if is_down:
            errors.append(BrokersUnreachableError((), is_retriable=True))
            raise errors[-1]
        return await ask(cluster)

    monkeypatch.setattr(group_protocol, "has_consumer_protocol", fail_while_down)
    one.subscribe(["t"])
    eventually(lambda: len(errors) > 1)
    assert not one.poll(0)
    is_down = False
    assert len(read(60, one)) == 60


def without_features(inbound, response):
    response.finalized_features = []
    return response


def test_cluster_without_consumer_protocol_has_classic_member(faults, one):
    rule = FaultRule(API_VERSIONS.key, "one", rewrite_response(without_features), remaining=None)
    faults._add(rule)
    one.subscribe(SubscriptionPattern("t"))
    with pytest.raises(InvalidArgumentError, match="group_protocol='consumer'"):
        until(lambda: False, one)
    one.subscribe(["t"])
    until(lambda: shared(one), one)
    assert not assignment_of(one).has_server_patterns
    with pytest.raises(InvalidArgumentError, match="group_protocol='consumer'"):
        one.subscribe(SubscriptionPattern("t"))


@pytest.mark.parametrize("face", FACES)
def test_poll_raises_the_error_of_the_choice(face):
    options = {"group_protocol": "auto", "default_api_timeout_ms": 100}
    with FACES[face]("127.0.0.1:1", group_id="g", **options) as one:
        one.subscribe(["t"])
        with pytest.raises(BrokersUnreachableError):
            until(lambda: False, one)
        one.unsubscribe()
        with pytest.raises(NothingAssignedError):
            one.poll(0)


@pytest.mark.parametrize("topics", [["t"], re.compile("t|none")], ids=["names", "pattern"])
def test_refused_member_falls_back_to_classic(partage_broker, faults, one, topics):
    """As Apache Kafka with ``group.coordinator.rebalance.protocols=classic`` refuses it."""
    faults.fail("ConsumerGroupHeartbeat", "UNSUPPORTED_VERSION")
    one.subscribe(topics, heard := Told())
    assert len(read(60, one)) == 60
    assert describe_group(partage_broker.bootstrap_servers, "g").type == "Classic"
    assert (one.subscription(), heard.calls) == ({"t"}, [("assigned", set(range(PARTITIONS)))])
    one.commit()
    assert one.committed(EVERYTHING) == dict.fromkeys(EVERYTHING, OffsetAndMetadata(10))
    with pytest.raises(InvalidArgumentError, match="group_protocol='consumer'"):
        one.subscribe(SubscriptionPattern("t"))


@pytest.fixture
def serials(monkeypatch):
    """Return the serials of completed callbacks."""
    done, completed = group_polls.GroupPolls.callback_done, []

    def record(polls, call):
        completed.append(call.serial)
        done(polls, call)

    monkeypatch.setattr(group_polls.GroupPolls, "callback_done", record)
    return completed


@pytest.mark.partage_broker(QUICK_HEARTBEATS)
def test_refused_heartbeat_loses_partitions_before_fallback(faults, one, serials):
    """A broker that was restarted without the protocol: the fallback is a new member."""
    one.subscribe(["t"], heard := Told())
    read(60, one)
    one.commit()
    [former] = faults.members("g")
    for _ in range(100):  # the serials of a member that is in the group for some time
        assignment_of(one)._member.link.next_serial()
    faults.fail("ConsumerGroupHeartbeat", "UNSUPPORTED_VERSION")
    until(lambda: faults.members("g").keys() - {former}, one)
    faults.expire("g", member_id=former)
    until(lambda: len(heard.calls) > 2 and shared(one), one)
    everything = set(range(PARTITIONS))
    assert heard.calls[:2] == [("assigned", everything), ("lost", everything)]
    assert heard.holds() == everything
    assert one.committed(EVERYTHING) == dict.fromkeys(EVERYTHING, OffsetAndMetadata(10))
    assert not one.poll(0)
    assert not assignment_of(one).has_server_patterns
    assert serials == sorted(set(serials))  # Else a callback could count as completed already.


def test_refused_server_pattern_raises(faults, one):
    faults.fail("ConsumerGroupHeartbeat", "UNSUPPORTED_VERSION", times=2)
    one.subscribe(SubscriptionPattern("t"))
    with pytest.raises(InvalidArgumentError, match="group_protocol='consumer'"):
        until(lambda: False, one)
    one.subscribe(["t"])
    assert len(read(60, one)) == 60
    assert not assignment_of(one).has_server_patterns


@pytest.mark.partage_broker(QUICK_HEARTBEATS)
def test_drain_before_the_fallback_prevents_it(faults, one):
    one.subscribe(["t"], heard := Told())
    read(60, one)
    [former] = faults.members("g")
    faults.fail("ConsumerGroupHeartbeat", "UNSUPPORTED_VERSION")
    eventually(lambda: assignment_of(one)._is_refused)  # The next poll calls the listener.
    one.drain()
    until(lambda: one.is_drained, one)
    assert heard.calls[-1] == ("lost", set(range(PARTITIONS)))
    assert faults.members("g").keys() == {former}


@pytest.mark.parametrize("face", FACES)
def test_refused_member_without_auto_fails(faults, servers, topic, face):
    faults.fail("ConsumerGroupHeartbeat", "UNSUPPORTED_VERSION")
    with FACES[face](servers, group_id="g", group_protocol="consumer") as one:
        one.subscribe(["t"])
        with pytest.raises(MemberFailedError, match=r"rebalance\.protocols.*'classic'"):
            until(lambda: False, one)

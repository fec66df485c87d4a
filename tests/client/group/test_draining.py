"""Drain: a member hands over its partitions and reads until the other members are ready."""

from __future__ import annotations

import signal
import threading

import pytest

from partage.client.consumer import MissingGroupIdError

from ..confluent_admin import produce
from .test_group_members import PARTITIONS, Told, read, shared, until

pytestmark = pytest.mark.timeout(600)


def test_drain_keeps_reading_during_rebalance(partage_broker, topic, member_of):
    """The other member's JoinGroup is delayed: nothing is revoked before it has joined."""
    going, staying, heard = member_of(), member_of(), Told()
    going.subscribe([topic], heard)
    until(lambda: shared(going), going)
    staying.subscribe([topic])
    until(lambda: shared(going, staying), going, staying)
    read_by_then = len(heard.calls)
    with partage_broker.faults.hold("JoinGroup") as held:
        going.drain()
        held.wait()
        owned = sorted(going.assignment())
        assert len(owned) == 3
        values = [{"value": b"late", "partition": p.partition} for p in owned]
        produce(partage_broker.bootstrap_servers, topic, values)
        seen = []
        while seen.count(b"late") < 3:
            seen += [record.value for record in going.poll(1000)]
        assert not going.is_drained
        assert len(heard.calls) == read_by_then, "nothing is revoked"
    until(lambda: going.is_drained and shared(staying), going, staying)
    assert heard.calls[-1] == ("revoked", {p.partition for p in owned})
    assert staying.committed(owned)[owned[0]].offset == 11, "it has committed what it read"


def test_drain_ends_record_loop(topic, member_of):
    going, staying = member_of(), member_of()
    going.subscribe([topic])
    staying.subscribe([topic])
    until(lambda: shared(going, staying), going, staying)
    going.drain()
    over = threading.Event()

    def loop() -> None:
        for _ in going:
            pass
        over.set()

    looping = threading.Thread(target=loop)
    looping.start()
    until(over.is_set, staying)
    looping.join(60)
    assert going.is_drained
    assert going.assignment() == set()
    assert not going.poll(60_000), "at once"
    until(lambda: shared(staying), staying)


def test_drain_of_only_member_leaves(topic, member_of):
    alone, heard = member_of(), Told()
    alone.subscribe([topic], heard)
    assert len(read(60, alone)) == 60
    alone.drain()
    until(lambda: alone.is_drained, alone)
    assert heard.calls == [("assigned", set(range(PARTITIONS))), ("revoked", set(range(6)))]
    assert {each.offset for each in alone.committed([(topic, n) for n in range(6)]).values()} == {
        10
    }


def test_drain_of_eager_member_leaves(topic, member_of):
    alone, heard = member_of(partition_assignment_strategy=["range"]), Told()
    alone.subscribe([topic], heard)
    assert len(read(60, alone)) == 60
    alone.drain()
    until(lambda: alone.is_drained, alone)
    assert heard.calls[-1] == ("revoked", set(range(6)))


def test_drain_before_subscribe_is_complete(topic, member_of):
    member = member_of()
    member.drain()
    assert member.is_drained
    assert not member.poll(60_000), "at once"
    member.subscribe([topic])
    assert not member.is_drained
    assert len(read(60, member)) == 60
    member.drain()
    until(lambda: member.is_drained, member)
    member.assign([(topic, 0)])
    member.seek_to_beginning()
    assert len(read(10, member)) == 10


def test_subscribe_after_drain_rejoins(topic, member_of):
    member = member_of()
    member.subscribe([topic])
    assert len(read(60, member)) == 60
    member.drain()
    until(lambda: member.is_drained, member)
    member.subscribe([topic])
    until(lambda: shared(member), member)


def test_drain_without_group_raises(servers, member_of):
    with pytest.raises(MissingGroupIdError, match="drain"):
        member_of(group_id=None).drain()


def test_drain_in_signal_handler_ends_loop(topic, member_of):
    """The signal handler may interrupt code that holds a lock, so drain must not take one."""
    member, seen = member_of(), []
    member.subscribe([topic])
    before = signal.signal(signal.SIGUSR1, lambda *_: member.drain())
    try:
        for record in member:
            seen.append(record)
            if len(seen) == 60:
                signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(seen) == 60

"""Consumers in a group: assignments, listener callbacks and commits."""

from __future__ import annotations

import re
import time

import pytest

from partage.assignors import Assignor, Range, hold_back
from partage.client.consumer import (
    AlreadyAssignedError,
    AlreadySubscribedError,
    AssignmentFailedError,
    CommitFailedError,
    InvalidOptionError,
    MaxPollExceededError,
    MemberFailedError,
    MissingGroupIdError,
    OffsetAndMetadata,
    RebalanceListener,
)
from partage.client.consumer.group_assignment import GroupAssignment
from partage.member.outcome import ListenerCallback
from partage.model.rebalance_protocol import RebalanceProtocol
from partage.model.topic_partition import TopicPartition

from .conftest import PARTITIONS, fill

EVERYTHING = {TopicPartition("t", n) for n in range(PARTITIONS)}


class Told(RebalanceListener):
    """A listener that records its callbacks; it may raise or run a function."""

    def __init__(self, do=None):
        self.calls = []
        self.do = do

    def _note(self, name, partitions):
        self.calls.append((name, {p.partition for p in partitions}))
        if self.do is not None:
            self.do(name, partitions)

    def holds(self):
        """The partitions that are assigned according to the callbacks."""
        held = set()
        for name, partitions in self.calls:
            held = held | partitions if name == "assigned" else held - partitions
        return held

    def on_partitions_revoked(self, partitions):
        self._note("revoked", partitions)

    def on_partitions_assigned(self, partitions):
        self._note("assigned", partitions)

    def on_partitions_lost(self, partitions):
        self._note("lost", partitions)


def until(done, *members, within_s=45.0):
    """Poll all members in turn until a condition holds, and once more for the listeners.

    Listeners are called in polls. Return the records.
    """
    records, give_up, is_done = [], time.monotonic() + within_s, False
    while not is_done:
        is_done = done()
        assert is_done or time.monotonic() < give_up, [sorted(m.assignment()) for m in members]
        for member in members:
            records += list(member.poll(20))
    return records


def read(count, *members, within_s=45.0):
    """Poll all members in turn until N records were delivered."""
    records, give_up = [], time.monotonic() + within_s
    while len(records) < count:
        assert time.monotonic() < give_up, f"{len(records)} of {count}"
        for member in members:
            records += list(member.poll(20))
    return records


def shared(*members):
    """True if each partition has one owner and all members have equal shares."""
    held = [p for member in members for p in member.assignment()]
    least = PARTITIONS // len(members)
    is_level = all(len(member.assignment()) >= least for member in members)
    return sorted(held) == sorted(EVERYTHING) and is_level


def test_single_member_reads_all_and_commits(member_of, topic):
    one = member_of()
    one.subscribe([topic])
    seen = read(60, one)
    assert len({(r.partition, r.offset) for r in seen}) == 60
    one.commit()
    assert one.committed(EVERYTHING) == dict.fromkeys(EVERYTHING, OffsetAndMetadata(10))
    assert one.subscription() == {topic}


def test_cooperative_join_revokes_only_moving_partitions(member_of, topic):
    first, second, heard = member_of(), member_of(), Told()
    first.subscribe([topic], heard)
    until(lambda: shared(first), first)
    second.subscribe([topic], other := Told())
    until(lambda: shared(first, second), first, second)
    assert heard.calls[0] == ("assigned", set(range(PARTITIONS)))
    revoked = [partitions for name, partitions in heard.calls if name == "revoked"]
    assert [len(partitions) for partitions in revoked] == [3]
    assert other.calls[-1] == ("assigned", revoked[0])
    assert not any(name == "lost" for name, _ in heard.calls + other.calls)


def test_eager_join_revokes_all_partitions(member_of, topic):
    options = {"partition_assignment_strategy": [Range()]}
    first, second, heard = member_of(**options), member_of(**options), Told()
    first.subscribe([topic], heard)
    until(lambda: shared(first), first)
    second.subscribe([topic])
    until(lambda: shared(first, second), first, second)
    assert heard.calls[:2] == [
        ("assigned", set(range(PARTITIONS))),
        ("revoked", set(range(PARTITIONS))),
    ]
    assert heard.calls[-1] == ("assigned", {p.partition for p in first.assignment()})


def test_orderly_moves_read_no_record_twice(member_of, topic):
    first, second = member_of(), member_of()
    first.subscribe([topic])
    records = until(lambda: shared(first), first)
    second.subscribe([topic])
    records += until(lambda: shared(first, second), first, second)
    records += read(60 - len(records), first, second)
    places = [(r.partition, r.offset) for r in records]
    assert len(places) == len(set(places)) == 60


def test_leave_commits_position(member_of, topic):
    first = member_of()
    first.subscribe([topic])
    read(60, first)
    first.close()
    second = member_of()
    second.subscribe([topic])
    until(lambda: shared(second), second)
    assert list(second.poll(100)) == []
    assert {second.position(p) for p in EVERYTHING} == {10}


def test_subscribe_after_unsubscribe_rejoins(member_of, topic):
    one, heard = member_of(), Told()
    one.subscribe([topic], heard)
    until(lambda: shared(one), one)
    one.unsubscribe()
    assert heard.calls[-1] == ("revoked", set(range(PARTITIONS)))
    assert (one.assignment(), one.subscription()) == (set(), set())
    one.subscribe([topic], heard)
    until(lambda: shared(one), one)


def test_static_member_restart_keeps_partitions(member_of, topic):
    first, second = member_of(group_instance_id="a"), member_of(group_instance_id="b")
    first.subscribe([topic])
    second.subscribe([topic], heard := Told())
    until(lambda: shared(first, second) and len(heard.holds()) == 3, first, second)
    had = first.assignment()
    calls = len(heard.calls)
    first.close()
    again = member_of(group_instance_id="a")
    again.subscribe([topic])
    until(lambda: again.assignment() == had, again, second)
    assert heard.calls[calls:] == []


def test_pattern_includes_new_topics(member_of, servers, topic):
    from client.confluent_admin import create_topic

    one = member_of()
    one.subscribe(re.compile("t[0-9]*"))
    until(lambda: shared(one), one)
    create_topic(servers, "t7", 1)
    create_topic(servers, "other", 1)
    until(lambda: TopicPartition("t7", 0) in one.assignment(), one)
    assert one.subscription() == {"t", "t7"}


@pytest.mark.parametrize("delay_ms", [0, 300])
def test_new_partitions_are_assigned(member_of, servers, topic, delay_ms):
    from confluent_kafka.admin import AdminClient, NewPartitions

    one = member_of(metadata_rebalance_delay_ms=delay_ms)
    one.subscribe([topic])
    until(lambda: shared(one), one)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions(topic, 8)])[topic].result(30)
    until(lambda: len(one.assignment()) == 8, one)


def test_topic_created_after_subscribe_is_read(member_of, servers):
    from client.confluent_admin import create_topic

    one = member_of()
    one.subscribe(["later"])
    one.poll(50)
    create_topic(servers, "later", 2)
    until(lambda: len(one.assignment()) == 2, one)


class Seen(Range):
    """The range assignor; it records its input."""

    name = "seen"
    needs_lags = True
    topics = ()

    def assign(self, members, topics):
        type(self).topics = tuple(topics.values())
        return super().assign(members, topics)


@pytest.mark.partage_broker({"broker.rack": "here"})
def test_leader_assignor_gets_metadata(member_of, topic):
    before = member_of()
    before.commit({("t", 0): 4, ("t", 1): 10})
    one = member_of(partition_assignment_strategy=[Seen()])
    one.subscribe([topic])
    until(lambda: shared(one), one)
    (seen,) = Seen.topics
    assert (seen.name, seen.partition_count) == ("t", PARTITIONS)
    assert seen.lags == (6, 0, 10, 10, 10, 10)
    assert seen.racks == (frozenset({"here"}),) * PARTITIONS


# Listeners.


def test_listener_error_is_raised_by_poll(member_of, topic):
    def fail(name, partitions):
        raise ValueError(name)

    one = member_of()
    one.subscribe([topic], heard := Told(fail))
    with pytest.raises(ValueError, match="assigned"):
        until(lambda: False, one)
    assert shared(one)
    assert len(list(one.poll(1000))) > 0
    with pytest.raises(ValueError, match="revoked"):
        one.unsubscribe()
    assert heard.calls[-1][0] == "revoked"
    assert one.assignment() == set()


def test_second_listener_error_in_a_poll_is_logged(member_of, topic, monkeypatch, caplog):
    one = member_of(partition_assignment_strategy=[Range()])
    one.subscribe([topic], heard := Told())
    until(lambda: shared(one), one)
    heard.calls.clear()

    def fail(name, partitions):
        raise ValueError(f"{name} failed")

    heard.do = fail
    report = GroupAssignment.callback_done

    def report_and_await_assignment(assignment, call):
        """Report a callback; wait for the assignment, so that the same poll runs both callbacks."""
        report(assignment, call)
        give_up = time.monotonic() + 30
        while call.callback is ListenerCallback.REVOKED and assignment.due_callback is None:
            assert time.monotonic() < give_up
            time.sleep(0.001)

    monkeypatch.setattr(GroupAssignment, "callback_done", report_and_await_assignment)
    one.subscribe([topic, "later"], heard)
    with pytest.raises(ValueError, match="revoked failed"):
        until(lambda: False, one)
    assert heard.calls == [
        ("revoked", set(range(PARTITIONS))),
        ("assigned", set(range(PARTITIONS))),
    ]
    (entry,) = [each for each in caplog.records if "listener failed again" in each.message]
    assert entry.levelname == "ERROR"
    assert entry.exc_info[1].args == ("assigned failed",)
    heard.do = None
    assert shared(one)


class Planned(Assignor):
    """An assignor that follows a plan: partitions by client id, which begins the member id."""

    name = "planned"

    def __init__(self, plan):
        self.plan = plan

    def assign(self, members, topics):
        shares = {
            member.member_id: {"t": list(partitions)}
            for member in members
            for client, partitions in self.plan.items()
            if member.member_id.startswith(client)
        }
        if RebalanceProtocol.COOPERATIVE in self.rebalance_protocols:
            return hold_back(members, shares)
        return shares


class PlannedCooperative(Planned):
    """The same with the cooperative protocol."""

    rebalance_protocols = (RebalanceProtocol.COOPERATIVE,)


@pytest.mark.parametrize(
    ("assignor", "calls"),
    [
        (Planned, [("revoked", {1, 2}), ("assigned", {2, 3})]),
        (PlannedCooperative, [("revoked", {1}), ("assigned", {3})]),
    ],
)
def test_listener_gets_only_the_changes_of_its_protocol(member_of, topic, assignor, calls):
    plan = {"one": [1, 2], "two": [0, 3, 4, 5]}
    strategy = {"partition_assignment_strategy": [assignor(plan)]}
    one, two = (member_of(client_id=name, **strategy) for name in plan)

    def is_settled():
        return all(
            {p.partition for p in member.assignment()} == set(plan[name])
            for name, member in (("one", one), ("two", two))
        )

    plan["two"] = list(range(PARTITIONS))
    two.subscribe([topic])
    until(lambda: len(two.assignment()) == PARTITIONS, two)
    plan["two"] = [0, 3, 4, 5]
    one.subscribe([topic], heard := Told())
    until(is_settled, one, two)
    assert heard.holds() == {1, 2}
    heard.calls.clear()
    plan |= {"one": [2, 3], "two": [0, 1, 4, 5]}
    two.subscribe([topic, "later"])
    until(is_settled, one, two)
    assert [call for call in heard.calls if call[1]] == calls


def test_listener_can_seek(member_of, topic):
    one = member_of()

    def skip(name, partitions):
        if name == "assigned":
            one_of(one).seek(("t", 0), 9)

    one.subscribe([topic], Told(skip))
    seen = read(51, one)
    assert [r.offset for r in seen if r.partition == 0] == [9]


def one_of(member):
    """Return the consumer itself, for code that runs on its event loop."""
    return getattr(member, "_consumer", member)


# User errors.


def test_group_methods_without_group_id_raise(servers, member_of, topic):
    one = member_of(group_id=None)
    for call in (lambda: one.subscribe([topic]), one.commit, lambda: one.committed([("t", 0)])):
        with pytest.raises(MissingGroupIdError, match="set group_id"):
            call()


def test_subscribe_and_assign_exclude_each_other(member_of, topic):
    one = member_of()
    one.assign([("t", 0)])
    with pytest.raises(AlreadyAssignedError, match="unassign"):
        one.subscribe([topic])
    one.unassign()
    one.subscribe([topic])
    with pytest.raises(AlreadySubscribedError, match="unsubscribe"):
        one.assign([("t", 0)])
    with pytest.raises(ValueError, match=re.escape("['t']")):
        one.subscribe("t")


@pytest.mark.parametrize("strategy", ["range-ish", [], [3]])
def test_unknown_assignor_raises(member_of, strategy):
    with pytest.raises(InvalidOptionError, match="partition_assignment_strategy"):
        member_of(partition_assignment_strategy=strategy)


def test_no_common_assignor_is_fatal(member_of, topic):
    one = member_of()
    one.subscribe([topic])
    until(lambda: shared(one), one)
    other = member_of(partition_assignment_strategy="range")
    other.subscribe([topic])
    with pytest.raises(MemberFailedError, match=r"INCONSISTENT_GROUP_PROTOCOL.*assignor"):
        until(lambda: False, other)
    with pytest.raises(MemberFailedError):
        other.poll(10)


class Wrong(Assignor):
    """An assignor with an invalid result until it is fixed."""

    name = "wrong"

    def __init__(self, kinds):
        self.kinds = kinds

    def assign(self, members, topics):
        everything = {"t": list(range(PARTITIONS))}
        match self.kinds:
            case ["raises"]:
                raise KeyError("oops")
            case ["ghost"]:
                return {"ghost": everything}
            case ["twice"]:
                return {m.member_id: {"t": [0, 0]} for m in members}
            case ["left out"]:
                return {}
        return {m.member_id: everything for m in members}


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("raises", "KeyError: 'oops'"),
        ("ghost", "'ghost' is not a member"),
        ("twice", "a duplicate partition"),
        ("left out", "is assigned to 0 members"),
    ],
)
def test_failed_assignor_is_reported_and_recovers(member_of, topic, kind, why):
    kinds = [kind]
    one = member_of(partition_assignment_strategy=[Wrong(kinds)])
    one.subscribe([topic])
    with pytest.raises(AssignmentFailedError, match=why):
        until(lambda: False, one)
    assert one.assignment() == set()
    kinds.clear()
    give_up = time.monotonic() + 30
    while not shared(one):
        assert time.monotonic() < give_up
        try:
            one.poll(20)
        except AssignmentFailedError:
            continue


def test_poll_interval_exceeded_raises(member_of, topic):
    one = member_of(max_poll_interval_ms=150, session_timeout_ms=1000)
    one.subscribe([topic], heard := Told())
    until(lambda: shared(one), one)
    two = member_of()
    two.subscribe([topic])
    until(lambda: shared(two), two)  # the first member is not polled
    with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
        one.commit({("t", 0): 1})
    with pytest.raises(MaxPollExceededError, match="150 ms between two polls"):
        until(lambda: False, one)
    until(lambda: shared(one, two), one, two)
    lost = [partitions for name, partitions in heard.calls if name == "lost"]
    assert set().union(*lost) == set(range(PARTITIONS))
    assert not any(name == "revoked" for name, _ in heard.calls[: -len(lost) - 1])


def test_duplicate_instance_id_fences_first_member(member_of, topic):
    one = member_of(group_instance_id="same")
    one.subscribe([topic], heard := Told())
    until(lambda: shared(one), one)
    two = member_of(group_instance_id="same")
    two.subscribe([topic])
    until(lambda: shared(two), two)
    with pytest.raises(MemberFailedError, match=r"FENCED_INSTANCE_ID.*group_instance_id"):
        until(lambda: False, one)
    with pytest.raises(CommitFailedError, match="FENCED_INSTANCE_ID"):
        one.commit({("t", 0): 7})
    assert list(one_of(one).assignment()) == [] or heard.calls


def test_offset_requests_do_not_wait_for_join(member_of, topic):
    """A JoinGroup is parked: later requests on the same connection are not answered until it is."""
    options = {"partition_assignment_strategy": "range", "default_api_timeout_ms": 1000}
    one, two = member_of(**options), member_of(**options)
    one.subscribe([topic])
    until(lambda: shared(one), one)
    two.subscribe([topic])
    for _ in range(5):  # the other member, which would have to revoke partitions, is not polled
        two.poll(20)
        assert two.committed([("t", 0)]) == {TopicPartition("t", 0): None}
    until(lambda: shared(one, two), one, two)


# Coordinator failures.


def test_coordinator_restart_keeps_group(member_of, topic, partage_broker):
    one, two = member_of(), member_of()
    one.subscribe([topic], heard := Told())
    two.subscribe([topic])
    until(lambda: shared(one, two), one, two)
    calls = len(heard.calls)
    partage_broker.run(_cut(partage_broker))
    fill(partage_broker.bootstrap_servers, topic, 5)
    until(lambda: sum(one.position(p) for p in one.assignment()) >= 45, one, two)
    one.commit()
    assert {name for name, _ in heard.calls[calls:]} <= {"assigned"}


async def _cut(broker):
    for connection in list(broker.broker.server._connections):
        connection.abort()

"""Rolling upgrades and downgrades of a group's assignor.

Each version is a separate protocol. Members offer all their versions, the newest first, and the
group uses the newest common one.
"""

from __future__ import annotations

import pytest

from interop.committed_offsets import protocol_of
from partage.assignors import CooperativeSticky, Range

from .conftest import PARTITIONS
from .test_group_members import Told, read, shared, until


def spoken(kind, used):
    """Return an assignor with another name and version; ``used`` records which one assigns."""

    class Spoken(kind):
        name = "mine"

        def assign(self, members, topics):
            used.append(self.protocol_name)
            return super().assign(members, topics)

    return Spoken


@pytest.fixture
def used():
    return []


@pytest.fixture
def old(used):
    """An assignor without versions."""
    return spoken(CooperativeSticky, used)


@pytest.fixture
def new(used):
    """An assignor that can also read the old format."""

    class New(spoken(CooperativeSticky, used)):
        versions = (1, 0)

    return New


def test_four_phase_upgrade_never_stops(member_of, topic, used, old, new):
    """All old; some new with the old version; all new; the old version removed."""

    class Newest(new):
        versions = (1,)

    def joined(kind):
        member = member_of(partition_assignment_strategy=[kind()])
        member.subscribe([topic])
        return member

    first, second = joined(old), joined(old)
    records = until(lambda: shared(first, second), first, second)
    assert set(used) == {"mine"}

    third = joined(new)
    records += until(lambda: shared(first, second, third), first, second, third)
    first.close()
    records += until(lambda: shared(second, third), second, third)
    assert set(used) == {"mine"}, "the old version is what all have"

    fourth = joined(new)
    second.close()
    records += until(lambda: shared(third, fourth), third, fourth)
    assert used[-1] == "mine-v1"

    fifth = joined(Newest)
    third.close()
    records += until(lambda: shared(fourth, fifth), fourth, fifth)
    assert used[-1] == "mine-v1"

    records += read(10 * PARTITIONS - len(records), fourth, fifth)
    places = [(r.partition, r.offset) for r in records]
    assert len(places) == len(set(places)), "nothing is read twice"


def test_downgrade_restores_old_assignor(member_of, topic, used, old, new):
    first = member_of(partition_assignment_strategy=[new()])
    first.subscribe([topic])
    until(lambda: shared(first), first)
    assert used[-1] == "mine-v1"
    second = member_of(partition_assignment_strategy=[old()])
    second.subscribe([topic])
    until(lambda: shared(first, second), first, second)
    assert used[-1] == "mine"


def test_two_bounces_migrate_eager_to_cooperative(member_of, topic, servers, request):
    """KIP-429: first all members offer both protocols, then no member offers the eager one.

    An eager member revokes all its partitions when it rejoins, a cooperative one only those that
    move. A member that offers both protocols is eager.
    """
    name = request.node.name  # Group names are never reused.
    both, cooperative = ["cooperative-sticky", "range"], ["cooperative-sticky"]

    def joined(strategy):
        member = member_of(group_id=name, partition_assignment_strategy=strategy)
        member.subscribe([topic], listener := Told())
        return member, listener

    def settle():
        until(lambda: shared(*(member for member, _ in group)), *(member for member, _ in group))

    def replace_oldest(strategy):
        """Start a member, then stop the oldest; return which of the old members revoked all."""
        for _, listener in group:
            listener.calls.clear()
        before = [(listener, held_by(member)) for member, listener in group]
        group.append(joined(strategy))
        settle()
        is_eager = [("revoked", held) in listener.calls for listener, held in before]
        group.pop(0)[0].close()
        settle()
        return is_eager

    group = [joined(["range"]), joined(["range"])]
    settle()
    assert protocol_of(servers, name) == "range"
    assert replace_oldest(both) == [True, True]
    assert protocol_of(servers, name) == "range", "one member has only the eager assignor"
    assert replace_oldest(both) == [True, True]
    assert protocol_of(servers, name) == "cooperative-sticky", "the first choice of all"
    assert replace_oldest(cooperative) == [True, True], "both members still offer range"
    assert protocol_of(servers, name) == "cooperative-sticky"
    assert replace_oldest(cooperative) == [True, False], "the second member is cooperative"
    assert protocol_of(servers, name) == "cooperative-sticky"
    assert replace_oldest(cooperative) == [False, False], "all members are cooperative"
    assert protocol_of(servers, name) == "cooperative-sticky"


def held_by(member):
    return {each.partition for each in member.assignment()}


def test_skipped_first_bounce_raises(member_of, topic):
    from partage.client.consumer import MemberFailedError

    first = member_of(partition_assignment_strategy=[Range()])
    first.subscribe([topic])
    until(lambda: shared(first), first)
    second = member_of()
    second.subscribe([topic])
    with pytest.raises(MemberFailedError, match="INCONSISTENT_GROUP_PROTOCOL"):
        until(lambda: False, second)
    until(lambda: shared(first), first)

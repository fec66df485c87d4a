"""Rolling upgrades and downgrades of a group's assignor.

Each version is a separate protocol. Members offer all their versions, the newest first, and the
group uses the newest common one.
"""

from __future__ import annotations

import pytest

from partage.assignors import CooperativeSticky, Range

from .conftest import PARTITIONS
from .test_group_members import read, shared, until


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


def test_two_bounces_migrate_eager_to_cooperative(member_of, topic):
    """KIP-429: first all members offer both protocols, then no member offers the eager one."""
    both = ["cooperative-sticky", "range"]

    def joined(strategy):
        member = member_of(partition_assignment_strategy=strategy)
        member.subscribe([topic])
        return member

    members = [joined(["range"]), joined(["range"])]
    until(lambda: shared(*members), *members)
    for strategy in (both, both, ["cooperative-sticky"], ["cooperative-sticky"]):
        members.append(joined(strategy))
        until(lambda: shared(*members), *members)
        members.pop(0).close()
        until(lambda: shared(*members), *members)


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

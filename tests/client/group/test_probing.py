"""Version probing: members with several versions of an assignor in one group (KIP-429).

With our broker, a member with the newest version leads and reads all versions. Apache Kafka does
not know versions (``interop/test_partage_members.py`` runs these tests there): an old leader
stays, and newer members write its version until it has left.
"""

from __future__ import annotations

import pytest

from partage.assignors import CooperativeSticky

from .conftest import PARTITIONS
from .test_group_members import Told, read, shared, until


def probing(used, *speaks):
    """Return a cooperative-sticky assignor with versions; ``used`` records its assignments."""

    class Probing(CooperativeSticky):
        name = "mine"
        versions = speaks
        has_version_probing = True

        def user_data(self, topics, owned, generation):
            return b"of %d" % self.version

        def assign(self, members, topics):
            assert all(m.user_data == b"of %d" % m.version for m in members)
            used.append((self.version, tuple(sorted(m.version for m in members))))
            return super().assign(members, topics)

    return Probing()


@pytest.fixture
def used():
    return []


@pytest.fixture
def joined(member_of, topic, used):
    """Create members with these versions."""

    def make(*speaks, listener=None):
        member = member_of(partition_assignment_strategy=[probing(used, *speaks)])
        member.subscribe([topic], listener)
        return member

    return make


def test_rolling_upgrade_keeps_equal_shares(joined, used):
    """With any leader, all members have equal shares, and no record is lost or read twice."""
    heard = Told()
    first, second = joined(0, listener=heard), joined(0)
    records = until(lambda: shared(first, second), first, second)
    third = joined(1, 0)
    records += until(lambda: shared(first, second, third), first, second, third)
    assert sum(len(p) for name, p in heard.calls if name == "revoked") <= PARTITIONS - 2
    first.close()
    records += until(lambda: shared(second, third), second, third)
    fourth = joined(1, 0)
    second.close()
    records += until(lambda: shared(third, fourth), third, fourth)
    records += until(lambda: used[-1] == (1, (1, 1)), third, fourth)
    records += until(lambda: shared(third, fourth), third, fourth)
    records += read(10 * PARTITIONS - len(records), third, fourth)
    places = [(r.partition, r.offset) for r in records]
    assert len(places) == len(set(places)), "nothing is read twice"


def test_newest_version_leads(joined, used, partage_broker):
    """It leads at once and never writes an older version."""
    old = joined(0)
    until(lambda: shared(old), old)
    new = joined(1, 0)
    until(lambda: shared(old, new), old, new)
    assert set(used[1:]) == {(1, (0, 1))}
    newest = joined(2, 1, 0)
    until(lambda: shared(old, new, newest), old, new, newest)
    assert used[-1] == (2, (0, 1, 2))


def test_no_common_version_raises(joined, used):
    from partage.client.consumer import AssignmentFailedError

    old = joined(0)
    until(lambda: shared(old), old)
    told = []
    new = joined(1)

    def is_told():
        for member in (old, new):
            try:
                member.poll(20)
            except AssignmentFailedError as error:
                told.append(str(error))
        return told

    until(is_told)
    assert "support one of the leader's versions" in told[0]

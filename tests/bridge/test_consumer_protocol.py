"""Encoded subscriptions and assignments, and a leader's assignment."""

from __future__ import annotations

import pytest

from partage.assignors import Assignor, CooperativeSticky, InvalidAssignmentError, Range, Topic
from partage.bridge.consumer_protocol import ConsumerProtocol, LeaderAssignmentError
from partage.bridge.version_probe import NoCommonVersionError
from partage.member.events import GroupMemberMetadata
from partage.wire.consumer_protocol import decode_assignment

TOPICS = {"t": Topic(name="t", partition_count=4)}
EVERYTHING = [("t", number) for number in range(4)]


def member(name, embedding, protocol, owned=()):
    offered = embedding.build_protocols(["t"], owned, 1)
    metadata = next(each.metadata for each in offered if each.name == protocol)
    return GroupMemberMetadata(member_id=name, instance_id=None, metadata=metadata)


def share(embedding, written):
    return {number for _, number in embedding.apply_assignment("cooperative-sticky", written, 2)}


@pytest.mark.parametrize("leader", ["eager", "cooperative"])
def test_leader_in_second_bounce_holds_back_owned(leader):
    """Eager and cooperative members in one group during a migration (KIP-429)."""
    eager, cooperative = (
        ConsumerProtocol([CooperativeSticky(), Range()]),
        ConsumerProtocol([CooperativeSticky()]),
    )
    members = [
        member("a", cooperative, "cooperative-sticky", EVERYTHING),
        member("b", eager, "cooperative-sticky"),
    ]
    leads = {"eager": eager, "cooperative": cooperative}[leader]
    given = leads.assign(leads.decode_members("cooperative-sticky", members), TOPICS)
    assert len(share(cooperative, given["a"])) == 2
    assert share(eager, given["b"]) == set()


class Careless(Assignor):
    name = "careless"

    def assign(self, members, topics):
        return {members[0].member_id: {"t": [0, 1, 2]}}


def test_eager_leader_assigns_all_partitions():
    embedding = ConsumerProtocol([Careless()])
    members = [member("a", embedding, "careless", EVERYTHING)]
    with pytest.raises(InvalidAssignmentError, match="t-3 is assigned to 0 members"):
        embedding.assign(embedding.decode_members("careless", members), TOPICS)


def test_failed_leader_reports_reason_to_its_members():
    embedding = ConsumerProtocol([CooperativeSticky()])
    members = [member(name, embedding, "cooperative-sticky") for name in "ab"]
    given = embedding.encode_failure(members, "KeyError: 'é'")
    assert given.keys() == {"a", "b"}
    for written in given.values():
        assert decode_assignment(written).assigned_partitions == []
        with pytest.raises(LeaderAssignmentError, match="KeyError: 'é'"):
            embedding.apply_assignment("cooperative-sticky", written, 2)


class Probing(CooperativeSticky):
    """An assignor that writes its version into its user data and records what it assigns to."""

    name = "mine"
    has_version_probing = True

    def __init__(self):
        super().__init__()
        self.read = []

    def user_data(self, topics, owned, generation):
        return b"of %d" % self.version

    def assign(self, members, topics):
        self.read.append({m.member_id: (m.version, m.user_data) for m in members})
        return super().assign(members, topics)


class Newer(Probing):
    versions = (1, 0)


class Newest(Probing):
    versions = (2,)


class TestVersions:
    """One protocol for all versions of an assignor (KIP-429, version probing)."""

    def led(self, leader, **embeddings):
        """Return the assignments of a leader; member "a" owns all partitions."""
        members = [
            member(name, embedding, "mine", EVERYTHING if name == "a" else ())
            for name, embedding in embeddings.items()
        ]
        return leader.assign(leader.decode_members("mine", members), TOPICS)

    def taken(self, embedding, written):
        """Return the rejoin reason and the number of partitions owned until then."""
        again = embedding.negotiate_version("mine", written)
        return again, len(embedding.apply_assignment("mine", written, 2))

    def test_newest_version_is_written(self):
        (offer,) = ConsumerProtocol([Newer()]).build_protocols(["t"], (), 1)
        assert (offer.name, offer.version) == ("mine", 1)
        (offer,) = ConsumerProtocol([CooperativeSticky()]).build_protocols(["t"], (), 1)
        assert offer.version == -1

    def test_newer_leader_reads_older_user_data(self):
        old, new, assignor = (
            ConsumerProtocol([Probing()]),
            ConsumerProtocol([leads := Newer()]),
            Newer(),
        )
        given = self.led(new, a=old, b=ConsumerProtocol([assignor]))
        assert leads.read == [{"a": (0, b"of 0"), "b": (1, b"of 1")}]
        assert self.taken(old, given["a"]) == (None, 2)
        assert self.taken(new, given["b"]) == (None, 0)

    def test_member_without_versions_has_version_0(self):
        class Unaware(Probing):
            has_version_probing = False

        new = ConsumerProtocol([leads := Newer()])
        self.led(new, a=ConsumerProtocol([Unaware()]), b=new)
        assert leads.read == [{"a": (0, b"of 0"), "b": (1, b"of 1")}]

    def test_older_leader_makes_newer_members_downgrade(self):
        old, new = ConsumerProtocol([leads := Probing()]), ConsumerProtocol([Newer()])
        given = self.led(old, a=old, b=new)
        assert leads.read == [], "it does not try"
        assert self.taken(old, given["a"]) == (None, 4), "each member keeps its partitions"
        again, owned = self.taken(new, given["b"])
        assert "version 0" in again
        assert owned == 0
        given = self.led(old, a=old, b=new)
        assert leads.read == [{"a": (0, b"of 0"), "b": (0, b"of 0")}]
        assert self.taken(new, given["b"]) == (None, 0), "once is enough"
        (offer,) = new.build_protocols(["t"], (), 1)
        assert offer.version == 1, "it can still read more"

    def test_newer_leader_makes_member_upgrade_again(self):
        old, new, leader = (
            ConsumerProtocol([Probing()]),
            ConsumerProtocol([Newer()]),
            ConsumerProtocol([Newer()]),
        )
        self.taken(new, self.led(old, a=old, b=new)["b"])
        again, _ = self.taken(new, self.led(leader, b=new)["b"])
        assert "version 1" in again
        assert self.taken(new, self.led(leader, b=new)["b"])[0] is None

    @pytest.mark.parametrize(("leads", "other"), [(Probing, Newest), (Newest, Probing)])
    def test_member_without_common_version_is_excluded(self, leads, other):
        leader, apart = ConsumerProtocol([leads()]), ConsumerProtocol([other()])
        given = self.led(leader, a=apart, b=leader)
        assert self.taken(leader, given["b"])[1] == 4
        with pytest.raises(NoCommonVersionError, match="this member supports"):
            apart.negotiate_version("mine", given["a"])

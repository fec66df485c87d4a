"""Subscriptions and assignments as bytes, and what a leader may make of them."""

from __future__ import annotations

import pytest

from partage.assignors import Assignor, BadAssignment, CooperativeSticky, Range, Topic
from partage.bridge.embedding import Embedding, LeaderFailed
from partage.member.events import GroupMember
from partage.wire.consumer_protocol import decode_assignment

TOPICS = {"t": Topic(name="t", partition_count=4)}
EVERYTHING = [("t", number) for number in range(4)]


def member(name, embedding, protocol, owned=()):
    offered = embedding.describe(["t"], owned, 1)
    metadata = next(each.metadata for each in offered if each.name == protocol)
    return GroupMember(member_id=name, instance_id=None, metadata=metadata)


def share(embedding, written):
    return {number for _, number in embedding.adopted("cooperative-sticky", written, 2)}


@pytest.mark.parametrize("leader", ["eager", "cooperative"])
def test_whoever_leads_in_the_second_bounce_holds_back_what_is_owned(leader):
    """Members that rebalance eagerly and cooperatively, side by side (KIP-429)."""
    eager, cooperative = Embedding([CooperativeSticky(), Range()]), Embedding([CooperativeSticky()])
    members = [
        member("a", cooperative, "cooperative-sticky", EVERYTHING),
        member("b", eager, "cooperative-sticky"),
    ]
    leads = {"eager": eager, "cooperative": cooperative}[leader]
    given = leads.assigned(leads.assigning("cooperative-sticky", members), TOPICS)
    assert len(share(cooperative, given["a"])) == 2
    assert share(eager, given["b"]) == set()


class Careless(Assignor):
    name = "careless"

    def assign(self, members, topics):
        return {members[0].member_id: {"t": [0, 1, 2]}}


def test_who_assigns_eagerly_leaves_nothing_out():
    embedding = Embedding([Careless()])
    members = [member("a", embedding, "careless", EVERYTHING)]
    with pytest.raises(BadAssignment, match="t-3 is given to 0 members"):
        embedding.assigned(embedding.assigning("careless", members), TOPICS)


def test_a_leader_that_failed_tells_its_own_kind_why_and_gives_others_nothing():
    embedding = Embedding([CooperativeSticky()])
    members = [member(name, embedding, "cooperative-sticky") for name in "ab"]
    given = embedding.failed(members, "KeyError: 'é'")
    assert given.keys() == {"a", "b"}
    for written in given.values():
        assert decode_assignment(written).assigned_partitions == []
        with pytest.raises(LeaderFailed, match="KeyError: 'é'"):
            embedding.adopted("cooperative-sticky", written, 2)

"""The election rule."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from partage import GenerationMember, GenerationMembers
from partage.recipes.elector import elect


def result(generation, **members):
    peers = [GenerationMember(name, None, metadata) for name, metadata in sorted(members.items())]
    results = elect(GenerationMembers(generation, peers[0].member_id, peers))
    assert set(results) == set(members)
    (one,) = {tuple(sorted(r.items(), key=str)) for r in results.values()}
    told = dict(one)
    return told["member_id"], told["token"]


def test_first_leader_token_is_generation():
    assert result(7, b={"stands": True}, a={"stands": True}) == ("a", 7)


def test_active_leader_stays_when_members_join():
    better = {"stands": True, "priority": 9}
    assert result(8, a=better, b={"stands": True, "token": 7}) == ("b", 7)


def test_ending_term_delays_next_one():
    assert result(8, a={"stands": True}, b={"stands": False, "token": 7}) == ("b", 7)


def test_highest_priority_candidate_wins():
    members = {"a": {"stands": True}, "b": {"stands": True, "priority": 1}}
    assert result(3, **members, c={"stands": False, "priority": 2}) == ("b", 3)


def test_no_candidate_no_leader():
    assert result(3, a={"stands": False}) == (None, None)


def test_foreign_metadata_is_no_candidate():
    assert result(3, a="?", b={"stands": True}) == ("b", 3)
    assert result(3, a=None, b={"stands": "yes"}) == (None, None)


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abcde"), st.booleans()), min_size=1, max_size=5),
        max_size=20,
    )
)
def test_tokens_increase_and_terms_have_one_holder(rounds):
    """Random members and candidates: generations of one group with the terms of the holders."""
    held, holder_of, last = {}, {}, 0
    for generation, present in enumerate(rounds, start=1):
        members = {name: {"stands": stands, "token": held.get(name)} for name, stands in present}
        held = {name: token for name, token in held.items() if name in members}
        chosen, token = result(generation, **members)
        if chosen is not None:
            assert holder_of.setdefault(token, chosen) == chosen
            assert token >= last
            held, last = {chosen: token}, token

"""The explanation of an assignment: a true reason for each partition, by every assignor."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec
import pytest
from hypothesis import given, settings

import partage.assignors
from assignors import group_strategies
from partage.assignors import Assignor, Member, PartitionReason, Range, explain_assignment

from .test_all_assignors import ALL, BY_NAME, full_groups


class Facts:
    """The facts of one partition, from the members and the assignment alone."""

    def __init__(self, reason: PartitionReason, members: Mapping[str, Member]) -> None:
        self.had = set(reason.owner_ids)
        self.has = set(reason.member_ids)
        self.kept = self.had & self.has
        self.lost = self.had - self.has
        self.subscribers = {each for each in members if reason.topic in members[each].topics}
        self.generations = {each: members[each].generation for each in self.had}


def _holds_latest_claim(facts: Facts, named: set[str]) -> bool:
    (winner,) = facts.has
    rivals = [facts.generations[each] for each in facts.had - {winner}]
    return named == facts.had and facts.generations[winner] > max(rivals)


#: For each reason, the condition under which it is true of the members that it names.
CONDITIONS: Mapping[str, Callable[[Facts, set[str]], bool]] = {
    r"no member subscribes to the topic": lambda facts, _: not facts.subscribers,
    r"held back until it is revoked by (.+)": lambda facts, named: (
        not facts.has and named == facts.had
    ),
    r"assigned to no member": lambda facts, _: not facts.has and not facts.had,
    r"no member owned it: it is new, or its owner left or revoked it": lambda facts, _: (
        not facts.had and bool(facts.has)
    ),
    r"stays with its owner": lambda facts, _: bool(facts.has) and facts.had == facts.has,
    r"claimed by (.+): the claim of the latest generation holds": _holds_latest_claim,
    r"no longer subscribed to by (.+)": lambda facts, named: (
        named <= facts.lost and not named & facts.subscribers
    ),
    r"stays with (.+), and no longer with .+": lambda facts, named: (
        named == facts.has and facts.has < facts.had
    ),
    r"stays with (.+), with new replicas on the other members": lambda facts, named: (
        named == facts.kept and bool(facts.has - facts.had)
    ),
    r"moved from (.+) to balance the group": lambda facts, named: (
        named == facts.had and bool(facts.has) and not facts.kept
    ),
}


def is_true(reason: PartitionReason, members: Mapping[str, Member]) -> bool:
    matches = [
        (match, condition)
        for pattern, condition in CONDITIONS.items()
        if (match := re.fullmatch(pattern, reason.reason))
    ]
    assert len(matches) == 1, f"unknown reason: {reason.reason}"
    ((match, condition),) = matches
    named = set(match[1].split(" and ")) if match.re.groups else set()
    return condition(Facts(reason, members), named)


def test_every_assignor_is_tested_here() -> None:
    exported = (getattr(partage.assignors, name) for name in partage.assignors.__all__)
    kinds = {kind for kind in exported if isinstance(kind, type) and issubclass(kind, Assignor)}
    assert {type(assignor) for assignor in ALL} == kinds - {Assignor}


@pytest.mark.parametrize("assignor", BY_NAME)
@settings(max_examples=60)
@given(group=full_groups())
def test_explanation_names_owner_and_true_reason(
    assignor: Assignor, group: group_strategies.Group
) -> None:
    members, topics = group
    assignment = assignor.assign(members, topics)
    reasons = assignor.explain(members, topics, assignment)
    by_partition = {(each.topic, each.partition): each for each in reasons}
    assert list(by_partition) == [
        (name, partition)
        for name in sorted(topics)
        for partition in range(topics[name].partition_count)
    ]
    assigned = {
        (member_id, name, partition)
        for member_id, share in assignment.items()
        for name, partitions in share.items()
        for partition in partitions
    }
    assert assigned == {
        (member_id, each.topic, each.partition) for each in reasons for member_id in each.member_ids
    }
    by_id = {each.member_id: each for each in assignor.with_user_data(members)}
    for each in reasons:
        claims = {m for m in by_id if each.partition in by_id[m].owned.get(each.topic, ())}
        assert set(each.owner_ids) == claims
        assert is_true(each, by_id), each


def test_claims_of_same_generation_name_none_as_latest() -> None:
    topics = group_strategies.named(group_strategies.topic("a", 1))
    members = group_strategies.members_of({"m1": "a", "m2": "a"}, generation=3, owned={"a": (0,)})
    (reason,) = explain_assignment(members, topics, Range().assign(members, topics))
    assert reason.reason == "stays with m1, and no longer with m2"
    members[0] = msgspec.structs.replace(members[0], generation=4)
    (reason,) = explain_assignment(members, topics, Range().assign(members, topics))
    assert reason.reason == "claimed by m1 and m2: the claim of the latest generation holds"

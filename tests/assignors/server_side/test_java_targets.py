"""Comparison with the assignors of Apache Kafka's broker on the same groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from assignors.java_program import JavaProgram
from partage.assignors.server_side import ServerSideRange, TargetAssignment, Uniform, check_target

from .groups import (
    Members,
    Topics,
    assign,
    is_homogeneous,
    kept,
    loads,
    random_group,
    subscribed,
    unevenness,
)

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("java-assignors")]

SOURCE = Path(__file__).parent / "java" / "AssignTargets.java"
GROUPS = 400


class JavaAssignors:
    """The assignors of Kafka's broker. Topics are known there by numbers."""

    def __init__(self, program: JavaProgram) -> None:
        self._program = program

    def assign(self, name: str, group: Members, existing: Topics) -> TargetAssignment:
        send = self._program.send
        topics = subscribed(group, existing)
        ids = sorted({*topics, *(t for member in group.values() for t in member.target)})
        numbers = {topic_id: str(number) for number, topic_id in enumerate(ids)}
        for topic_id, its in topics.items():
            send("topic", numbers[topic_id], str(its.partition_count))
        for member in group.values():
            wanted = ",".join(numbers[t] for t in member.subscribed_topic_ids)
            target = ",".join(
                f"{numbers[t]}:{partition}" for t, its in member.target.items() for partition in its
            )
            send("member", member.member_id, member.instance_id or "-", wanted, target)
        send("assign", name, "HOMOGENEOUS" if is_homogeneous(group) else "HETEROGENEOUS")
        target: TargetAssignment = {member_id: {} for member_id in group}
        while (line := self._program.receive()) != "end":
            member_id, words = line.split("\t")
            mine: dict[bytes, list[int]] = {}
            for word in words.split(",")[:-1]:
                number, partition = word.split(":")
                mine.setdefault(ids[int(number)], []).append(int(partition))
            target[member_id] = {t: tuple(sorted(its)) for t, its in mine.items()}
        return target


@pytest.fixture(scope="module")
def java(tmp_path_factory) -> Iterator[JavaAssignors]:
    program = JavaProgram(SOURCE, tmp_path_factory.mktemp("classes"))
    yield JavaAssignors(program)
    program.close()


def test_range_equals_java(java):
    for seed in range(GROUPS):
        group, existing = random_group(Random(seed), ServerSideRange())
        theirs = java.assign("range", group, existing)
        assert assign(ServerSideRange(), group, existing) == theirs, seed


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "different"])
def test_uniform_is_as_balanced_as_java_with_fewer_moves(java, alike):
    """With equal subscriptions, both have the fewest moves."""
    our_kept, java_kept = 0, 0
    for seed in range(2 * GROUPS):
        group, existing = random_group(Random(seed), Uniform())
        if is_homogeneous(group) is not alike:
            continue
        ours, theirs = assign(Uniform(), group, existing), java.assign("uniform", group, existing)
        check_target(group, subscribed(group, existing), ours)
        assert unevenness(ours) <= unevenness(theirs), seed
        if alike:
            assert sorted(loads(ours)) == sorted(loads(theirs)), seed
        if unevenness(ours) == unevenness(theirs):
            our_kept += kept(group, ours)
            java_kept += kept(group, theirs)
    assert our_kept >= java_kept

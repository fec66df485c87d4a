"""Timeline of a group from polling."""

from __future__ import annotations

import itertools
from collections import defaultdict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.model.groups import GroupDescription, MemberDescription
from partage.web.polled_timeline import MARKS_MAX, SPANS_MAX, PolledTimeline, member_key
from partage.web.timeline import TimelineRebalance

from .groups import group, member, with_members


def seen(*looks: GroupDescription) -> PolledTimeline:
    """Add groups 2 s apart, the first at 0."""
    sampled = PolledTimeline()
    for place, look in enumerate(looks):
        sampled.add(place * 2_000, look)
    return sampled


def spans(sampled: PolledTimeline) -> list[tuple[int, str, int, int | None]]:
    """Return partition, member, start and end of each interval."""
    return sorted(
        (span.partition, span.member.removesuffix("-id"), span.from_ms, span.to_ms)
        for span in sampled.timeline().spans
    )


def the_mark(sampled: PolledTimeline) -> TimelineRebalance:
    (mark,) = sampled.timeline().rebalances
    return mark


def test_stable_group_has_no_rebalance() -> None:
    sampled = seen(*[group(a="0-1")] * 3)
    assert spans(sampled) == [(0, "a", 0, None), (1, "a", 0, None)]
    assert sampled.timeline().rebalances == []
    assert not sampled.timeline().is_from_events


def test_move_between_polls_is_rebalance() -> None:
    sampled = seen(group(a="0-1"), group(a="0", b="1"))
    assert spans(sampled) == [(0, "a", 0, None), (1, "a", 0, 0), (1, "b", 2_000, None)]
    mark = the_mark(sampled)
    assert (mark.cause, mark.member, mark.joined, mark.moved) == ("member joined", "b-id", 1, 1)
    assert (mark.started_ms, mark.ended_ms, mark.outcome) == (0, 2_000, "assigned")


def test_unchanged_owner_keeps_partition_in_rebalance() -> None:
    """DescribeGroups returns no assignment then; an unchanged owner keeps its interval."""
    sampled = seen(
        group(a="0-1", b="2"),
        group("g", "PreparingRebalance", a="", b="", c=""),
        group("g", "CompletingRebalance", a="", b="", c=""),
        group(a="0", b="2", c="1"),
    )
    assert spans(sampled) == [
        (0, "a", 0, None),
        (1, "a", 0, 0),
        (1, "c", 6_000, None),
        (2, "b", 0, None),
    ]
    mark = the_mark(sampled)
    assert (mark.started_ms, mark.took_ms, mark.cause) == (0, 6_000, "member joined")


def test_rebalance_in_progress_has_no_end() -> None:
    mark = the_mark(seen(group(a="0"), group("g", "PreparingRebalance", a="")))
    assert (mark.ended_ms, mark.outcome, mark.cause) == (None, "under way", "unknown")


def test_removal_of_all_members_empties_group() -> None:
    sampled = seen(group(a="0", b="1"), group())
    assert spans(sampled) == [(0, "a", 0, 0), (1, "b", 0, 0)]
    mark = the_mark(sampled)
    assert (mark.outcome, mark.cause, mark.left) == ("emptied", "members removed", 2)


def test_static_member_with_new_id_keeps_partitions() -> None:
    before = member("static-1", "0")
    sampled = seen(
        with_members("g", [before]),
        with_members("g", [msgspec.structs.replace(before, member_id="other")]),
    )
    assert spans(sampled) == [(0, "static-1", 0, None)]
    assert the_mark(sampled).cause == "static member came back"


def test_partition_may_have_several_owners() -> None:
    """As in a group with replicas."""
    sampled = seen(group(a="0", b="0"), group(a="0", b="0"))
    assert spans(sampled) == [(0, "a", 0, None), (0, "b", 0, None)]


@pytest.mark.parametrize("state", ["Assigning", "Reconciling"])
def test_kip_848_states_are_rebalances(state: str) -> None:
    assert the_mark(seen(group(a="0"), group("g", state, a=""))).outcome == "under way"


MEMBERS = st.dictionaries(
    st.sampled_from(["a", "b", "c", "static-1"]),
    st.sampled_from(["", "0", "1", "0-1", "1,3", "0-3"]),
)
LOOKS = st.lists(
    st.tuples(MEMBERS, st.sampled_from(["", "", "PreparingRebalance", "CompletingRebalance"])),
    min_size=1,
    max_size=12,
)


@given(LOOKS)
def test_polled_timeline_invariants(looks: list[tuple[dict[str, str], str]]) -> None:
    """Intervals of a member do not overlap; open intervals are those of the last description."""
    groups = [
        with_members("g", [member(name) for name in of], state if of else "")
        if state
        else group("g", "", 0, **of)
        for of, state in looks
    ]
    sampled = seen(*groups)
    timeline = sampled.timeline()
    by_reader = defaultdict(list)
    for span in timeline.spans:
        assert span.to_ms is None or span.from_ms <= span.to_ms
        assert span.member in timeline.members
        by_reader[span.topic, span.partition, span.member].append(span)
    for of_one in by_reader.values():
        for before, after in itertools.pairwise(of_one):
            assert before.to_ms is not None
            assert before.to_ms <= after.from_ms
    last_told = next((each for each in reversed(groups) if each.state in ("Stable", "Empty")), None)
    still = {(span.partition, span.member) for span in timeline.spans if span.to_ms is None}
    assert still == (set() if last_told is None else owners(last_told.members))
    ends = [mark.ended_ms for mark in timeline.rebalances]
    assert None not in ends[:-1]
    is_under_way = groups[-1].state not in ("Stable", "Empty")
    assert (ends[-1:] == [None]) == is_under_way


def owners(members: list[MemberDescription]) -> set[tuple[int, str]]:
    return {
        (partition, member_key(each))
        for each in members
        for of in each.partitions
        for partition in of.partitions
    }


def test_polled_timeline_is_bounded() -> None:
    """A group that rebalances all the time, with new members."""
    sampled = PolledTimeline()
    for n in range(SPANS_MAX):
        sampled.add(n, group(**{f"m{n}": "0-3"}))
    timeline = sampled.timeline()
    assert len(timeline.spans) <= SPANS_MAX + 4
    assert len(timeline.rebalances) == MARKS_MAX
    assert {span.member for span in timeline.spans} <= timeline.members.keys()
    assert len(timeline.members) < SPANS_MAX

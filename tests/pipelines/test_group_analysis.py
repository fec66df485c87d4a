"""Analysis of scripted group events, with expected values computed by hand."""

from __future__ import annotations

import pytest

from partage.pipelines.rebalances.group_analysis import GroupAnalysis
from partage.store.group_events import EventMember, GroupEventRecord

from .event_script import COOPERATIVE, EAGER, FIRST, analyse_script, events


def stalls(analysis: GroupAnalysis) -> list[tuple[int, float, float | None, str, str | None]]:
    return [
        (
            row.partition,
            row.from_at / 1000,
            None if row.to_at is None else row.to_at / 1000,
            row.from_member,
            row.to_member,
        )
        for row in analysis.stalls
    ]


def moved(analysis: GroupAnalysis) -> list[tuple[int, str, str]]:
    return [(row.partition, row.from_member, row.to_member) for row in analysis.moves]


def owned(analysis: GroupAnalysis, partition: int) -> list[tuple[str, float, float | None]]:
    return [
        (row.member, row.from_at / 1000, None if row.to_at is None else row.to_at / 1000)
        for row in analysis.ownership
        if row.partition == partition
    ]


def test_first_generation_has_no_moves_or_stalls() -> None:
    analysis = analyse_script(FIRST)
    (row,) = analysis.rebalances
    assert (row.cause, row.outcome, row.took_ms, row.join_ms, row.sync_ms) == (
        "member joined",
        "assigned",
        3_100,
        3_000,
        100,
    )
    assert (row.members, row.joined, row.partitions, row.moved) == (1, 1, 4, 0)
    assert analysis.stalls == []
    assert analysis.moves == []
    (member,) = analysis.members
    assert (member.waited_ms, member.stalled_ms, member.held_up_ms) == (3_100, 0, 0)
    assert analysis.group.is_complete


def test_eager_rebalance_stops_all_partitions() -> None:
    analysis = analyse_script(EAGER)
    assert stalls(analysis) == [
        (0, 12.0, 12.5, "a", "a"),
        (1, 12.0, 12.5, "a", "a"),
        (2, 12.0, 12.5, "a", "b"),
        (3, 12.0, 12.5, "a", "b"),
    ]
    assert moved(analysis) == [(2, "a", "b"), (3, "a", "b")]
    a, b = analysis.members
    assert (a.stalled_ms, a.waited_ms) == (500, 3_600)
    assert (b.stalled_ms, b.waited_ms) == (0, 2_500), "b had no partitions before"
    assert (a.held_up_ms, b.held_up_ms) == (2_000, 0), "b waited for a"
    second = analysis.rebalances[1]
    assert (second.last_to_join, second.moved, second.stalled_ms) == ("a", 2, 2_000)
    (cause,) = analysis.finish()
    assert (cause.cause, cause.episodes, cause.rebalances) == ("member joined", 2, 2)
    assert (cause.took_ms, cause.moved, cause.stalled_ms) == (5_600, 2, 2_000)
    assert a.partitions_stalled_ms == 2_000


def test_cooperative_rebalance_stops_moved_partitions() -> None:
    analysis = analyse_script(COOPERATIVE)
    assert stalls(analysis) == [(2, 12.5, 13.1, "a", "b"), (3, 12.5, 13.1, "a", "b")]
    assert owned(analysis, 0) == [("a", 3.1, None)], "read without a gap"
    assert owned(analysis, 2) == [("a", 3.1, 12.5), ("b", 13.1, None)]
    a, _ = analysis.members
    assert a.stalled_ms == 0
    _, second, third = analysis.rebalances
    assert (second.episode, second.is_follow_up, second.moved) == (2, False, 0)
    assert (third.episode, third.is_follow_up, third.moved) == (2, True, 2)
    (cause,) = analysis.finish()
    assert (cause.cause, cause.episodes, cause.rebalances) == ("member joined", 2, 3)
    assert cause.stalled_ms == 1_200


def test_independent_rejoin_is_a_separate_cause() -> None:
    analysis = analyse_script(
        EAGER
        + """
    20.0  rebalance "member joined again" a
    20.0  generation 3 a@20.0[] b@20.0[]
    20.2  assigned 3 a[0,1,4] b[2,3,5]
    """
    )
    last = analysis.rebalances[-1]
    assert (last.cause, last.is_follow_up, last.moved) == ("member joined again", False, 0)
    assert last.stalled_ms == 4 * 200, "a new partition has no stall"


def test_stall_starts_when_member_leaves() -> None:
    analysis = analyse_script(
        EAGER
        + """
    20.0  left b
    20.0  rebalance "member left" b
    21.0  generation 3 a@21.0[0,1]
    21.5  assigned 3 a[0-3]
    """
    )
    assert stalls(analysis)[4:] == [(2, 20.0, 21.5, "b", "a"), (3, 20.0, 21.5, "b", "a")]
    assert [row.cause for row in analysis.stalls[4:]] == ["member left"] * 2
    assert (analysis.members[1].gone_at, analysis.members[1].gone_by) == (20_000, "left")
    assert analysis.rebalances[-1].left == 1
    assert {cause.cause: cause.stalled_ms for cause in analysis.finish()} == {
        "member joined": 2_000,
        "member left": 3_000,
    }
    assert analysis.members[1].partitions_stalled_ms == 3_000


def test_stall_of_expired_member_starts_a_session_earlier() -> None:
    analysis = analyse_script(
        EAGER
        + """
    40.0  expired b "session expired"
    40.0  rebalance "session expired" b
    41.0  generation 3 a@41.0[0,1]
    41.5  assigned 3 a[0-3]
    """
    )
    assert stalls(analysis)[4:] == [(2, 30.0, 41.5, "b", "a"), (3, 30.0, 41.5, "b", "a")]
    assert analysis.members[1].gone_by == "expired"
    assert analysis.members[1].gone_at == 40_000


def test_stall_does_not_start_before_assignment() -> None:
    """An assignment is a sign of life too."""
    analysis = analyse_script(
        EAGER
        + """
    15.0  expired b "session expired"
    15.0  rebalance "session expired" b
    15.1  generation 3 a@15.0[0,1]
    15.2  assigned 3 a[0-3]
    """
    )
    assert stalls(analysis)[4:] == [(2, 12.5, 15.2, "b", "a"), (3, 12.5, 15.2, "b", "a")]


def test_absent_member_is_charged_for_the_wait() -> None:
    analysis = analyse_script(
        EAGER
        + """
    20.0  joined c
    20.0  rebalance "member joined" c
    80.0  expired b "did not rejoin in time"
    80.0  generation 3 a@21.0[] c@20.0[]
    80.5  assigned 3 a[0,1] c[2,3]
    """
    )
    a, b, c = analysis.members
    assert b.held_up_ms == 59_000, "from a's join until b was removed"
    assert a.held_up_ms == 2_000 + 1_000
    assert (c.waited_ms, c.stalled_ms) == (60_500, 0)
    assert a.stalled_ms == 500 + 59_500
    assert stalls(analysis)[4:6] == [(2, 80.0, 80.5, "b", "c"), (3, 80.0, 80.5, "b", "c")]
    assert (analysis.rebalances[-1].joined, analysis.rebalances[-1].expired) == (1, 1)


def test_restarted_rebalance_is_abandoned() -> None:
    analysis = analyse_script(
        FIRST
        + """
    10.0  joined b
    10.0  rebalance "member joined" b
    11.0  generation 2 a@11.0[] b@10.0[]
    11.5  joined c
    11.5  rebalance "member joined" c
    12.0  generation 3 a@11.8[] b@11.9[] c@11.5[]
    12.5  assigned 3 a[0] b[1,2] c[3]
    """
    )
    assert [row.outcome for row in analysis.rebalances] == ["assigned", "abandoned", "assigned"]
    assert [row.took_ms for row in analysis.rebalances] == [3_100, 1_500, 1_000]
    assert stalls(analysis)[0] == (0, 11.0, 12.5, "a", "a"), "the stall spans both rebalances"
    a, b, _ = analysis.members
    assert a.stalled_ms == 1_500
    assert b.waited_ms == 2_500, "since it first asked"


def test_late_sync_delays_reading() -> None:
    analysis = analyse_script(
        FIRST
        + """
    10.0  joined b
    10.0  rebalance "member joined" b
    12.0  generation 2 a@12.0[] b@10.0[]
    12.5  assigned 2 a[0,1] b?[2,3]
    14.0  synced b
    """
    )
    assert stalls(analysis)[2:] == [(2, 12.0, 14.0, "a", "b"), (3, 12.0, 14.0, "a", "b")]
    assert analysis.members[1].waited_ms == 4_000
    assert analysis.rebalances[1].moved == 2


def test_time_without_members_has_own_cause() -> None:
    analysis = analyse_script(
        EAGER
        + """
    20.0  left a
    20.0  rebalance "member left" a
    20.5  left b
    20.5  emptied
    90.0  joined c
    90.0  rebalance "member joined" c
    93.0  generation 4 c@90.0[]
    93.1  assigned 4 c[0-3]
    """
    )
    assert sorted(stalls(analysis)[4:]) == [
        (0, 20.0, 20.5, "a", None),
        (0, 20.5, 93.1, "a", "c"),
        (1, 20.0, 20.5, "a", None),
        (1, 20.5, 93.1, "a", "c"),
        (2, 20.5, 93.1, "b", "c"),
        (3, 20.5, 93.1, "b", "c"),
    ]
    assert [row.outcome for row in analysis.rebalances] == [
        "assigned",
        "assigned",
        "emptied",
        "assigned",
    ]
    assert (analysis.group.members, analysis.group.members_max) == (1, 2)
    assert owned(analysis, 0)[-2:] == [("a", 12.5, 20.0), ("c", 93.1, None)]
    assert len(analysis.moves) == 2, "only those of the second generation"
    assert analysis.rebalances[-1].stalled_ms == 0
    assert {
        cause.cause: (cause.episodes, cause.rebalances, cause.stalled_ms)
        for cause in analysis.finish()
    } == {
        "member joined": (3, 3, 2_000),
        "member left": (1, 1, 2 * 500),
        "no members": (1, 0, 4 * 72_600),
    }
    assert analysis.group.stalled_ms == 2_000 + 1_000 + 290_400
    a, b, _ = analysis.members
    assert (a.partitions_stalled_ms, b.partitions_stalled_ms) == (2_000 + 1_000, 0)


def test_death_of_last_member_is_a_stall() -> None:
    analysis = analyse_script(
        FIRST
        + """
    40.0  expired a "session expired"
    40.0  rebalance "session expired" a
    40.0  emptied
    50.0  joined b
    50.0  rebalance "member joined" b
    53.0  generation 3 b@50.0[]
    53.5  assigned 3 b[0-3]
    """
    )
    assert sorted(stalls(analysis))[:2] == [(0, 30.0, 40.0, "a", None), (0, 40.0, 53.5, "a", "b")]
    assert {cause.cause: cause.stalled_ms for cause in analysis.finish()} == {
        "member joined": 0,
        "session expired": 4 * 10_000,
        "no members": 4 * 13_500,
    }
    assert analysis.members[0].partitions_stalled_ms == 4 * 10_000


def test_group_that_stays_empty_has_no_time_without_members() -> None:
    ended = FIRST + '20.0 left a\n20.0 rebalance "member left" a\n20.0 emptied\n'
    analysis = analyse_script(ended)
    assert stalls(analysis)[0] == (0, 20.0, None, "a", None)
    assert "no members" not in [cause.cause for cause in analysis.finish()]
    assert analysis.group.stalled_ms == 0
    assert analyse_script(ended + "30.0 emptied").stalls[0].from_at == 20_000
    assert analyse_script(ended + "99.0 removed").stalls == []


def test_unfinished_stall_has_no_end() -> None:
    analysis = analyse_script(EAGER + '20.0 left b\n20.0 rebalance "member left" b')
    assert stalls(analysis)[4:] == [(2, 20.0, None, "b", None), (3, 20.0, None, "b", None)]
    assert analysis.rebalances[-1].outcome == "under way"
    assert analysis.rebalances[-1].took_ms is None


def test_fenced_dynamic_member_has_left() -> None:
    analysis = analyse_script(FIRST + '10.0 joined b\n10.0 rebalance "member joined" b')
    analysis.apply(
        GroupEventRecord(
            version=1, event="fenced", at_ms=11_000, group_id="g", generation=1, member_id="a"
        )
    )
    assert (analysis.rebalances[-1].left, analysis.rebalances[-1].expired) == (1, 0)
    assert (analysis.members[0].gone_at, analysis.members[0].gone_by) == (11_000, "fenced")


def test_returning_static_member_is_the_same_member() -> None:
    script = """
    0.0   joined static_a
    0.0   rebalance "member joined" static_a
    3.0   generation 1 static_a@0.0[]
    3.1   assigned 1 static_a[0-3]
    """
    analysis = analyse_script(script)
    fenced = GroupEventRecord(
        version=1,
        event="fenced",
        at_ms=20_000,
        group_id="g",
        generation=1,
        member_id="static_a",
        instance_id="static_a",
    )
    analysis.apply(fenced)
    members = [
        EventMember(member_id="later-id", instance_id="static_a", assigned={"t": [0, 1, 2, 3]})
    ]
    again = GroupEventRecord(
        version=1, event="assigned", at_ms=21_000, group_id="g", generation=1, members=members
    )
    analysis.apply(again)
    assert analysis.stalls == []
    assert [row.member for row in analysis.members] == ["static_a"]
    assert analysis.members[0].member_id == "later-id"
    assert analysis.members[0].gone_at is None


def test_partition_with_other_reader_has_no_stall() -> None:
    """A redundant group has no stall while one replica reads."""
    analysis = analyse_script(
        """
    0.0   joined a
    0.0   joined b
    0.0   rebalance "member joined" a
    3.0   generation 1 a@0.0[] b@0.0[]
    3.1   assigned 1 a[0] b[0]
    9.0   left a
    9.0   joined c
    9.0   rebalance "member left" a
    9.1   generation 2 b@9.1[0] c@9.0[]
    9.2   assigned 2 b[0] c[0]
    """
    )
    assert analysis.stalls == []
    assert [(row.member, row.from_at) for row in analysis.ownership] == [
        ("a", 3_100),
        ("b", 3_100),
        ("c", 9_200),
    ]


def test_partial_history_is_incomplete() -> None:
    analysis = analyse_script("12.5 assigned 2 a[0,1] b[2,3]\n20.0 lag 0:3")
    assert not analysis.group.is_complete
    assert analysis.rebalances[0].cause == "unknown"
    assert analysis.stalls == []


def test_group_load_changes_nothing() -> None:
    analysis = analyse_script(EAGER + "30.0 loaded 2 a[0,1] b[2,3]")
    assert analysis.group.loads == 1
    assert analysis.group.is_complete
    assert [row.to_at for row in analysis.ownership if row.from_at == 12_500] == [None] * 4


def test_missed_generation_is_taken_from_load() -> None:
    analysis = analyse_script(EAGER + "30.0 loaded 5 a[0] c[1-3]")
    assert not analysis.group.is_complete
    assert owned(analysis, 1)[-2:] == [("a", 12.5, 30.0), ("c", 30.0, None)]
    assert analysis.group.members == 2
    assert len(analysis.moves) == 2, "the moves in between are unknown"


def test_parts_of_a_generation_are_combined() -> None:
    analysis = GroupAnalysis("g")
    parts = list(events(EAGER))
    last = parts.pop()
    assert last.members is not None
    for one in parts:
        analysis.apply(one)
    for part, each in enumerate(last.members, start=1):
        analysis.apply(
            GroupEventRecord(
                version=1,
                event="assigned",
                at_ms=last.at_ms,
                group_id="g",
                generation=2,
                members=[each],
                part=part,
                parts=2,
            )
        )
    whole = analyse_script(EAGER)
    assert stalls(analysis) == stalls(whole)
    assert analysis.group.is_complete


def test_missing_part_makes_history_incomplete() -> None:
    analysis = analyse_script(EAGER)
    half = GroupEventRecord(
        version=1, event="assigned", at_ms=1, group_id="g", generation=3, members=[], parts=2
    )
    analysis.apply(half)
    assert analysis.group.is_complete
    for one in events("30.0 generation 4 a@30.0[] b@30.0[]\n30.1 assigned 4 a[0,1] b[2,3]"):
        analysis.apply(one)
    assert not analysis.group.is_complete


def test_lag_and_rejected_commits_become_rows() -> None:
    analysis = analyse_script(
        EAGER + "13.0 lag 0:5 3:0\n13.5 lag 0:4 3:0\n14.0 refused b 7\n15.0 refused gone 2"
    )
    assert [(row.seen_at, row.topic, row.partition, row.lag) for row in analysis.lag] == [
        (13_000, "t", 0, 5),
        (13_000, "t", 3, 0),
        (13_500, "t", 0, 4),
    ]
    assert [(row.member_id, row.error, row.topics, row.commits) for row in analysis.refused] == [
        ("b", "ILLEGAL_GENERATION", "t", 7),
        ("gone", "ILLEGAL_GENERATION", "t", 2),
    ]
    assert analysis.members[1].refused_commits == 7
    assert analysis.group.refused_commits == 9


@pytest.mark.parametrize("script", [EAGER, COOPERATIVE])
def test_unknown_events_are_ignored(script: str) -> None:
    analysis = analyse_script(script + "15.0 merged")
    assert stalls(analysis) == stalls(analyse_script(script))

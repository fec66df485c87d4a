"""Analysis of scripted events of groups with the consumer protocol, with values by hand."""

from __future__ import annotations

from partage.pipelines.rebalances.group_analysis import GroupAnalysis

from .event_script import CONSUMERS, COOPERATIVE, EAGER, analyse_script
from .test_group_analysis import moved, owned, stalls


def outcomes(analysis: GroupAnalysis) -> list[tuple[str, str, int | None, int | None]]:
    return [(row.cause, row.outcome, row.generation, row.took_ms) for row in analysis.rebalances]


def test_rebalance_ends_when_all_members_are_reconciled() -> None:
    analysis = analyse_script(CONSUMERS)
    assert outcomes(analysis) == [
        ("member joined", "reconciled", 2, 100),
        ("member joined", "reconciled", 3, 3_500),
    ]
    row = analysis.rebalances[1]
    assert (row.join_ms, row.sync_ms, row.protocol) == (200, 3_300, "uniform")
    assert (row.members, row.joined, row.member, row.partitions) == (2, 1, "b", 4)
    assert (row.moved, row.stalled_ms) == (2, 1_000)
    assert moved(analysis) == [(2, "a", "b"), (3, "a", "b")]
    assert (analysis.group.type, analysis.group.is_complete) == ("consumer", True)


def test_partition_is_read_until_its_owner_confirms() -> None:
    analysis = analyse_script(CONSUMERS)
    assert stalls(analysis) == [(2, 13.0, 13.5, "a", "b"), (3, 13.0, 13.5, "a", "b")]
    assert owned(analysis, 0) == [("a", 0.1, None)]
    assert owned(analysis, 2) == [("a", 0.1, 13.0), ("b", 13.5, None)]


def test_member_that_revokes_slowly_is_named() -> None:
    analysis = analyse_script(CONSUMERS)
    row = analysis.rebalances[1]
    assert (row.last_to_revoke, row.revoke_ms) == ("a", 1_000)
    a, b = analysis.members
    assert (a.revoking_ms, a.held_up_ms, a.waited_ms) == (1_000, 1_000, 100)
    assert (b.revoking_ms, b.held_up_ms, b.waited_ms) == (0, 0, 3_500)


def test_last_of_several_members_to_revoke_held_up_the_others() -> None:
    analysis = analyse_script(
        """
    protocol consumer
    0.0  joined a
    0.0  joined b
    0.0  epoch 2 "member joined" b
    0.1  target 2
    0.1  reconciled a=2[0,1]
    0.1  reconciled b=2[2,3]
    9.0  joined c
    9.0  epoch 3 "member joined" c
    9.0  target 3
    9.0  reconciling c=3[]~
    9.5  reconciling a=2[0]-[1]
    9.6  reconciling b=2[2]-[3]
    9.9  reconciled a=3[0]
    12.6 reconciled b=3[2]
    13.0 reconciled c=3[1,3]
    """
    )
    a, b, c = analysis.members
    assert (a.held_up_ms, b.held_up_ms, c.held_up_ms) == (0, 2_700, 0)
    assert (a.revoking_ms, b.revoking_ms) == (400, 3_000)
    row = analysis.rebalances[-1]
    assert (row.last_to_revoke, row.revoke_ms, row.outcome) == ("b", 3_000, "reconciled")


def test_new_epoch_abandons_the_rebalance_under_way() -> None:
    analysis = analyse_script(
        CONSUMERS
        + """
    20.0  epoch 4 "subscription changed" a
    20.1  joined c
    20.1  epoch 5 "member joined" c
    20.2  target 4
    20.2  reconciled a=4[0,1]
    20.2  reconciled b=4[2,3]
    20.2  reconciled c=4[]
    21.0  target 5
    """
    )
    assert outcomes(analysis)[2:] == [
        ("subscription changed", "abandoned", 4, 100),
        ("member joined", "under way", 5, None),
    ]
    assert analysis.rebalances[-1].join_ms == 900, "the target of epoch 4 is not its target"


def test_dead_member_stalls_its_partitions_since_its_last_heartbeat() -> None:
    analysis = analyse_script(
        CONSUMERS
        + """
    40.0  expired b "session expired"
    40.0  epoch 4 "session expired" b
    43.0  target 4
    43.0  reconciled a=4[0-3]
    """
    )
    assert stalls(analysis)[2:] == [(2, 30.0, 43.0, "b", "a"), (3, 30.0, 43.0, "b", "a")]
    assert [row.cause for row in analysis.stalls[2:]] == ["session expired"] * 2
    row = analysis.rebalances[-1]
    assert (row.expired, row.stalled_ms, row.moved, row.took_ms) == (1, 26_000, 2, 3_000)
    assert analysis.members[1].gone_by == "expired"


def test_time_without_members_belongs_to_no_rebalance() -> None:
    analysis = analyse_script(
        """
    protocol consumer
    0.0  joined a
    0.0  epoch 2 "member joined" a
    0.0  target 2
    0.0  reconciled a=2[0,1]
    5.0  left a
    5.0  epoch 3 "member left" a
    5.0  emptied
    9.0  joined b
    9.0  epoch 4 "member joined" b
    9.5  target 4
    9.5  reconciled b=4[0,1]
    """
    )
    assert [row[1] for row in outcomes(analysis)] == ["reconciled", "emptied", "reconciled"]
    assert stalls(analysis) == [(0, 5.0, 9.5, "a", "b"), (1, 5.0, 9.5, "a", "b")]
    assert {row.cause for row in analysis.stalls} == {"no members"}
    assert analysis.rebalances[-1].stalled_ms == 0
    assert moved(analysis) == []


def test_static_member_that_returns_causes_no_rebalance() -> None:
    analysis = analyse_script(
        """
    protocol consumer
    0.0  joined static
    0.0  epoch 2 "member joined" static
    0.0  target 2
    0.0  reconciled static=2[0,1]
    5.0  away static
    8.0  fenced static
    8.0  reconciled static=2[0,1]
    """
    )
    assert len(analysis.rebalances) == 1
    assert stalls(analysis) == [
        (0, 5.0, 8.0, "static", "static"),
        (1, 5.0, 8.0, "static", "static"),
    ]
    causes = {row.cause: row for row in analysis.finish()}
    absence = causes["static member left for a while"]
    assert (absence.episodes, absence.rebalances, absence.stalled_ms) == (1, 0, 6_000)
    assert analysis.members[0].gone_by is None


def test_rebalance_does_not_wait_for_absent_static_member() -> None:
    analysis = analyse_script(
        CONSUMERS
        + """
    20.0  joined static
    20.0  epoch 4 "member joined" static
    20.0  target 4
    20.0  reconciled static=4[]
    20.1  reconciled a=4[0,1]
    20.2  away static
    20.3  reconciled b=4[2,3]
    30.0  epoch 5 "subscribed topics changed"
    30.1  target 5
    30.1  reconciled a=5[0,1,4]
    30.2  reconciled b=5[2,3]
    """
    )
    assert outcomes(analysis)[2:] == [
        ("member joined", "reconciled", 4, 300),
        ("subscribed topics changed", "reconciled", 5, 200),
    ]


def test_failover_continues_the_history() -> None:
    before, after = CONSUMERS.split("    12.0 ")
    analysis = analyse_script(
        f"""
    broker 1 epoch 4
    {before}
    broker 2 epoch 5
    11.0  loaded Reconciling 3 a=2[0-3] b=3[]~
    12.0 {after}
    """
    )
    plain = analyse_script(CONSUMERS)
    assert outcomes(analysis) == outcomes(plain)
    assert stalls(analysis) == stalls(plain)
    assert analysis.group.is_complete
    second = analysis.coordinators[1]
    assert (second.found, second.found_generation, second.found_members) == ("Reconciling", 3, 2)


def test_failover_ends_a_rebalance_whose_end_was_lost() -> None:
    lost = "    13.5  reconciled b=3[2,3]"
    analysis = analyse_script(
        f"""
    broker 1 epoch 4
    {CONSUMERS.replace(lost, "")}
    broker 2 epoch 5
    15.0  loaded Stable 3 a=3[0,1] b=3[2,3]
    """
    )
    assert outcomes(analysis)[1] == ("member joined", "reconciled", 3, 5_000)
    assert not analysis.group.is_complete, "a step of b is missing"


def test_failover_shows_an_epoch_without_events() -> None:
    analysis = analyse_script(
        f"""
    broker 1 epoch 4
    {CONSUMERS}
    broker 2 epoch 5
    15.0  loaded Assigning 4 a=3[0,1] b=3[2,3]
    16.0  target 4
    16.0  reconciled a=4[0,1]
    16.1  reconciled b=4[2,3]
    """
    )
    assert outcomes(analysis)[2:] == [("unknown", "reconciled", 4, 1_100)]
    assert not analysis.group.is_complete


def test_upgrade_and_downgrade_are_one_history() -> None:
    analysis = analyse_script(
        EAGER
        + """
    protocol consumer
    20.0  upgraded a=2[0,1] b=2[2,3]
    20.0  joined c
    20.0  epoch 3 "member joined" c
    20.1  target 3
    20.1  reconciling c=3[]~
    21.0  reconciling a=2[0]-[1]
    21.0  reconciled b=3[2,3]
    22.0  reconciled a=3[0]
    22.4  reconciled c=3[1]
    30.0  left c
    30.0  downgraded
    protocol classic
    30.0  rebalance "change to the classic protocol"
    31.0  generation 4 a@31.0[0] b@30.5[2,3]
    31.2  assigned 4 a[0,1] b[2,3]
    """
    )
    assert [(row.cause, row.outcome) for row in analysis.rebalances[2:]] == [
        ("member joined", "reconciled"),
        ("change to the classic protocol", "assigned"),
    ]
    assert owned(analysis, 1) == [
        ("a", 3.1, 12.0),
        ("a", 12.5, 22.0),
        ("c", 22.4, 30.0),
        ("a", 31.2, None),
    ]
    assert owned(analysis, 2)[-1] == ("b", 12.5, None), "read without a gap"
    assert [(row.cause, row.stalled_ms) for row in analysis.stalls[-2:]] == [
        ("member joined", 400),
        ("change to the classic protocol", 1_200),
    ]
    assert (analysis.group.type, analysis.group.is_complete) == ("classic", True)


def test_rebalance_waits_for_static_member_that_returned() -> None:
    analysis = analyse_script(
        """
    protocol consumer
    0.0  joined static
    0.0  epoch 2 "member joined" static
    0.0  target 2
    0.0  reconciled static=2[0,1]
    5.0  away static
    8.0  fenced static
    8.0  epoch 3 "subscription changed" static
    8.1  joined a
    8.2  target 3
    8.2  reconciled a=3[]
    8.5  reconciled static=3[0,1]
    """
    )
    assert outcomes(analysis)[1:] == [("subscription changed", "reconciled", 3, 500)]


def test_upgrade_shows_the_partitions_that_members_still_read() -> None:
    first = COOPERATIVE.split("    12.6 ")[0]
    analysis = analyse_script(
        first
        + """
    12.6  rebalance "member joined again" a
    protocol consumer
    12.7  upgraded a=2[0,1]-[2,3] b=2[]
    12.7  joined c
    12.7  epoch 3 "member joined" c
    """
    )
    assert owned(analysis, 2) == [("a", 3.1, 12.5), ("a", 12.7, None)]
    assert [row.outcome for row in analysis.rebalances[2:]] == ["abandoned", "under way"]
    assert analysis.rebalances[2].took_ms == 100


def test_history_can_begin_with_an_upgrade() -> None:
    analysis = analyse_script("protocol consumer\n5.0 upgraded a=2[0,1] b=2[2,3]")
    assert owned(analysis, 3) == [("b", 5.0, None)]
    assert (analysis.group.members, analysis.group.is_complete) == (2, False)

"""Analysis of a group whose events come from several brokers."""

from __future__ import annotations

import msgspec
import pytest

from partage.pipelines.rebalances.group_analysis import GroupAnalysis

from .event_script import EAGER, FIRST, MOVED, analyse_script, events


def had(
    analysis: GroupAnalysis,
) -> list[tuple[int | None, int | None, float, str | None, int | None]]:
    return [
        (row.broker_id, row.epoch, row.from_at / 1000, row.found, row.found_members)
        for row in analysis.coordinators
    ]


def test_coordinator_change_is_recorded_only() -> None:
    analysis, same = analyse_script(MOVED), analyse_script(EAGER)
    assert had(analysis) == [
        (1, 4, 0.0, None, None),
        (2, 5, 6.0, "Stable", 1),
        (1, 7, 9.0, "Stable", 1),
    ]
    assert [row.events for row in analysis.coordinators] == [4, 2, 5]
    assert analysis.group.is_complete
    assert (analysis.group.loads, analysis.group.members) == (2, 2)
    assert (analysis.rebalances, analysis.moves) == (same.rebalances, same.moves)
    assert (analysis.stalls, analysis.ownership) == (same.stalls, same.ownership)


def test_member_of_unstored_generation_is_forgotten() -> None:
    """The member rejoins with another member id."""
    analysis = analyse_script(
        f"""
    broker 1 epoch 4{FIRST}
    10.0  joined b
    10.0  rebalance "member joined" b
    broker 2 epoch 5
    13.0  loaded 1 a[0-3]
    14.0  joined c
    14.0  rebalance "member joined" c
    15.0  generation 2 a@15.0[] c@14.0[]
    15.5  assigned 2 a[0,1] c[2,3]
    """
    )
    assert [(row.member, row.gone_at, row.gone_by) for row in analysis.members] == [
        ("a", None, None),
        ("b", 13_000, "forgotten"),
        ("c", None, None),
    ]
    assert [row.outcome for row in analysis.rebalances] == ["assigned", "abandoned", "assigned"]
    assert analysis.group.members == 2
    assert analysis.group.is_complete


def test_sync_phase_continues_under_other_coordinator() -> None:
    script = f"""
    broker 1 epoch 4{FIRST}
    10.0  joined b
    10.0  rebalance "member joined" b
    12.0  generation 2 a@12.0[] b@10.0[]
    broker 2 epoch 5
    13.0  loaded 2 a[] b[]
    13.5  assigned 2 a[0,1] b[2,3]
    """
    analysis = GroupAnalysis("g")
    for one in events(script):
        is_awaiting = one.event == "loaded"
        analysis.apply(
            msgspec.structs.replace(one, reason="CompletingRebalance") if is_awaiting else one
        )
    second = analysis.rebalances[-1]
    assert (second.outcome, second.took_ms, second.sync_ms) == ("assigned", 3_500, 1_500)
    assert analysis.group.is_complete


def test_missing_broker_makes_history_incomplete() -> None:
    """The broker is down, so the generations of its epoch are unknown."""
    analysis = analyse_script(
        f"broker 1 epoch 4{FIRST}\nbroker 3 epoch 6\n20.0 loaded 5 a[0,1] b[2,3]"
    )
    assert not analysis.group.is_complete
    assert analysis.group.members == 2
    analysis = analyse_script(
        f"""
    broker 1 epoch 4{FIRST}
    broker 3 epoch 6
    20.0  joined b
    20.0  rebalance "member joined" b
    23.0  generation 7 b@20.0[]
    23.1  assigned 7 b[0-3]
    """
    )
    assert not analysis.group.is_complete
    assert [(row.member, row.gone_by) for row in analysis.members] == [
        ("a", "forgotten"),
        ("b", None),
    ]
    assert analysis.stalls == analysis.moves == []
    assert analysis.group.members == 1


def test_restart_of_single_broker_is_recorded() -> None:
    analysis = analyse_script(f"{FIRST}\n6.0 loaded 1 a[0-3]\n7.0 left a\n7.0 emptied")
    assert had(analysis) == [(None, None, 0.0, None, None), (None, None, 6.0, "Stable", 1)]
    assert [row.events for row in analysis.coordinators] == [4, 3]
    assert analysis.group.is_complete


#: The clock of the next broker is behind; it loads a group in a rebalance.
BEHIND = (
    EAGER[: EAGER.index("12.5")]
    + """
    broker 2 epoch 5
    5.0   loaded 2 a[] b[]
"""
)


@pytest.mark.parametrize(
    ("script", "ended_at"),
    [
        (f"{BEHIND}5.5 assigned 2 a[0,1] b[2,3]", 10_000),
        (f"{BEHIND}5.5 generation 3 a@5.2[] b@5.1[]\n5.6 assigned 3 a[0,1] b[2,3]", 10_000),
        (f'{BEHIND}5.5 rebalance "member joined" a', 10_000),
        (f"{BEHIND}5.5 emptied", 10_000),
    ],
)
def test_clock_skew_gives_no_negative_durations(script: str, ended_at: int) -> None:
    """The duration between two coordinators is unknown, but never negative."""
    analysis = GroupAnalysis("g")
    for one in events(f"broker 1 epoch 4{script}"):
        awaits = {"reason": "CompletingRebalance"} if one.event == "loaded" else {}
        analysis.apply(msgspec.structs.replace(one, **awaits))
    analysis.finish()
    row = analysis.rebalances[1]
    assert row.ended_at == ended_at
    assert row.took_ms == 0
    for row in analysis.rebalances:
        assert min(row.took_ms or 0, row.join_ms or 0, row.sync_ms or 0) >= 0
    for member in analysis.members:
        assert min(member.waited_ms, member.stalled_ms, member.partitions_stalled_ms) >= 0
    assert min((still.stalled_ms or 0 for still in analysis.stalls), default=0) >= 0

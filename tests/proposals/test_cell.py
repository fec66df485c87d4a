"""One cell of a comparison, and the figures that the documents state."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from partage.proposals.comparison.cell import (
    PHASES,
    CellResult,
    CellRun,
    PhaseTraffic,
    Workload,
    run_cell,
)
from partage.proposals.designs.catalog import DESIGNS, VARIANTS
from partage.proposals.designs.checked import CheckedDesign
from partage.proposals.designs.multi_assignor import MultiAssignor
from partage.proposals.join_group.coordinator import JoinGroupCoordinator
from partage.proposals.join_group.settings import CoordinatorSettings
from partage.proposals.simulation.readers import ReadingStats
from partage.proposals.simulation.traffic import Traffic
from partage.proposals.two_phase.coordinator import TwoPhaseCoordinator


def form(design: str, **changes: Any) -> CellResult:
    return run_cell(Workload(design=design, phases=(), **changes))


@pytest.mark.parametrize("design", list(DESIGNS))
def test_every_phase_ends_stable(design: str) -> None:
    result = run_cell(Workload(design=design, members=5))
    assert [each.phase for each in result.phases] == ["form", *PHASES]
    assert all(each.is_stable for each in result.phases), result
    assert result.broken_rules == []


@pytest.mark.parametrize("design", list(DESIGNS))
def test_mixed_subscriptions_and_more_churn_end_stable(design: str) -> None:
    workload = Workload(
        design=design,
        members=12,
        topics=3,
        subscribed_topics=2,
        kills=2,
        paused=2,
        churn=3,
        phases=("crash", "pause", "churn", "new partitions"),
    )
    result = run_cell(workload)
    assert all(each.is_stable for each in result.phases), result


def test_topics_share_the_partitions_and_members_take_topics_in_turn() -> None:
    workload = Workload(design="multi-assignor", members=4, topics=3, subscribed_topics=2)
    assert list(workload.partitions_by_topic.values()) == [3, 3, 2]
    names = list(workload.partitions_by_topic)
    assert workload.subscription(2) == {names[2], names[0]}


def test_slow_member_delays_a_rebalance() -> None:
    def join(phase: str) -> float:
        workload = Workload(design="two-phase-eager", members=5, slow_ms=2_000, phases=(phase,))
        return run_cell(workload).phases[-1].unread_partition_s

    assert join("slow") > join("join") + 2


def test_churn_replaces_members_one_after_the_other() -> None:
    run = CellRun(Workload(design="two-phase-eager", members=5, churn=4, phases=("churn",)), int)
    result = run.run()
    assert len(run.world.members) == 9
    assert sum(each.is_reading for each in run.world.live_members) == 5
    assert result.phases[-1].moved_partitions > 0


def test_stored_members_survive_the_coordinator_and_others_rejoin() -> None:
    def loss(design: str) -> CellResult:
        return run_cell(Workload(design=design, members=5, phases=("coordinator loss",)))

    assert loss("two-phase-eager").phases[-1].unread_partition_s == 0
    assert loss("multi-assignor").phases[-1].unread_partition_s > 0


def test_cooperative_rebalance_moves_and_stops_less_than_an_eager_one() -> None:
    eager, cooperative = (
        run_cell(Workload(design=design, members=10, phases=("join",))).phases[-1]
        for design in ("two-phase-eager", "two-phase-cooperative")
    )
    assert cooperative.moved_partitions < eager.moved_partitions / 5
    assert cooperative.unread_partition_s < eager.unread_partition_s


@pytest.mark.parametrize("design", ["multi-assignor", "single-assignor", "two-phase-eager"])
def test_all_members_join_although_a_broker_would_limit_their_metadata(design: str) -> None:
    """By default, a coordinator of the product has a limit of 64 MiB, and others of 256 MiB."""
    coordinator = Workload(design=design).create_design().coordinator()
    if isinstance(coordinator, TwoPhaseCoordinator):
        assert coordinator.shard.settings.group_bytes_max == sys.maxsize
    else:
        assert isinstance(coordinator, JoinGroupCoordinator)
        assert coordinator.settings.metadata_bytes_max == sys.maxsize


def test_phase_in_which_a_member_failed_is_not_stable() -> None:
    few_bytes = CoordinatorSettings(metadata_bytes_max=150)
    workload = Workload(design="multi-assignor", members=3, phases=("join",))
    run = CellRun(workload, lambda: 0, lambda _, member: MultiAssignor(few_bytes, member))
    assert [each.is_stable for each in run.run().phases] == [False, False]
    assert len(run.world.live_members) == 2, "the coordinator refuses the third member"


def test_hundred_members_with_100_kb_cost_a_gigabyte_if_all_receive_all() -> None:
    sent = form("multi-assignor", members=100, metadata_kb=100).phases[0].bytes_by_message
    assert sent["JoinGroupResponse"] == pytest.approx(1e9, rel=0.01)
    single = form("single-assignor", members=100, metadata_kb=100).phases[0].bytes
    assert single == pytest.approx(2e7, rel=0.02)  # once to the coordinator, once to one member


@pytest.mark.parametrize(
    ("design", "growth"),
    [("multi-assignor", 4), ("single-assignor", 2), ("two-phase-eager", 2)],
)
def test_bytes_of_a_join_grow_with_the_square_only_if_all_receive_all(
    design: str, growth: int
) -> None:
    small, large = (
        form(design, members=members, metadata_kb=10).phases[0].bytes for members in (50, 100)
    )
    assert large / small == pytest.approx(growth, rel=0.08)


@pytest.mark.parametrize("design", list(DESIGNS))
def test_time_in_which_nothing_changes_does_not_count(design: str) -> None:
    """A join is over in a few seconds; the 15 s in which the cell verifies it have heartbeats."""
    result = run_cell(Workload(design=design, members=5, phases=("steady", "join")))
    assert result.phase("steady").counted_s == 30
    for phase in ("form", "join"):
        measured = result.phase(phase)
        assert measured.stable_after_s is not None
        assert measured.stable_after_s <= measured.counted_s < measured.stable_after_s + 0.1
        assert measured.counted_s < 10


def test_traffic_counts_until_the_group_was_stable_for_the_last_time() -> None:
    traffic = Traffic()
    counted = PhaseTraffic(begin_ms=1_000)
    for at_ms in (1_500, 4_000):
        traffic.count("JoinGroupRequest", 100)
        counted.count(traffic, at_ms)
    traffic.count("HeartbeatRequest", 10)
    result = counted.result("join", ReadingStats(changed_ms=3_000), [2, 5], is_stable=True)
    assert (result.counted_s, result.stable_after_s) == (3.0, 2.0)
    assert (result.messages, result.bytes, result.round_trips) == (2, 200, 5)


def test_messages_are_slow_only_in_their_phase() -> None:
    result = run_cell(Workload(design="two-phase-eager", members=5, phases=("slow", "join")))
    slow, join = (result.phase(name).unread_partition_s for name in ("slow", "join"))
    assert join < slow / 4


def test_unknown_phase_is_refused() -> None:
    with pytest.raises(ValueError, match="no phase 'lunch'"):
        run_cell(Workload(design="multi-assignor", phases=("lunch",)))


def test_slow_member_assigns_if_the_last_to_join_is_chosen() -> None:
    """The choice changes who assigns, and neither the messages nor the bytes."""
    slow = {
        name: run_cell(Workload(design=name, members=10, slow_ms=1_000, phases=("slow",))).phase(
            "slow"
        )
        for name in (
            "single-assignor-newest",
            "single-assignor-highest-version",
            "single-assignor-last-to-join",
        )
    }
    newest, _, last = slow.values()
    assert newest.stable_after_s is not None
    assert last.stable_after_s is not None
    assert last.stable_after_s - newest.stable_after_s == pytest.approx(2, abs=0.2)
    assert len({(each.messages, each.bytes) for each in slow.values()}) == 1


@pytest.mark.parametrize("design", [*DESIGNS, *VARIANTS])
def test_checked_design_has_the_limits_of_its_design(design: str) -> None:
    inside = Workload(design=design).create_design()
    checked = CheckedDesign(inside)
    limits = [
        (
            each.partitions_per_member_max,
            each.member_metadata_bytes_max,
            each.group_metadata_bytes_max,
        )
        for each in (inside, checked)
    ]
    assert limits[0] == limits[1]

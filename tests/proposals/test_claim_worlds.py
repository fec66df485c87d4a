"""The worlds in which claims are measured."""

from __future__ import annotations

import pytest

from partage.proposals.comparison import rebalance_claims, synchronizer_claims, upgrade_claims
from partage.proposals.comparison.claim import ClaimVerdict
from partage.proposals.comparison.size_claims import measure_socket_load
from partage.proposals.comparison.upgrade_claims import upgrade
from partage.proposals.single_assignor.coordinator import SynchronizerChoice


def test_subscription_hashes_halve_the_capacity_during_an_upgrade() -> None:
    claim = rebalance_claims.measure_upgrade_with_hashes(int)
    assert claim.verdict is ClaimVerdict.REPRODUCED
    assert dict(claim.figures)["4 members, topics: active after each restart"] == "4, 4, 4, 4"


def test_metadata_of_the_coordinator_ends_rebalances_of_a_disagreement() -> None:
    claim = rebalance_claims.measure_disagreement(int)
    assert claim.verdict is ClaimVerdict.REPRODUCED
    figures = dict(claim.figures)
    for refresh_s in (2, 10, 30):
        assert float(figures[f"refresh every {refresh_s} s: joins of each member"]) > 100
        remedied = figures[f"refresh every {refresh_s} s, remedied: joins of each member"]
        assert float(remedied) <= 1


def test_one_bounce_is_rejected_and_two_succeed() -> None:
    assert upgrade(["new"]).rejected == 1
    assert upgrade(["both", "new"]).is_successful


def test_upgrade_that_keeps_the_old_assignor_does_not_succeed() -> None:
    for bounces in (["both"], ["both", "both"], ["old"]):
        result = upgrade(bounces)
        assert result.is_safe
        assert not result.is_successful
        assert str(result) == "does not reach the cooperative protocol"


def test_resync_saves_the_join_but_moves_partitions_without_a_barrier() -> None:
    claim = upgrade_claims.measure_resync(int)
    assert claim.verdict is ClaimVerdict.DEPENDS
    figures = dict(claim.figures)
    assert figures["two-phase-resync, 2 topics: JoinGroup requests"] == "0"
    assert figures["two-phase-resync, 1 topic: partition-seconds with two readers"] == "0.0"
    assert figures["two-phase-resync, 2 topics: partition-seconds with two readers"] != "0.0"


def test_largest_count_is_sooner_and_keeps_deleted_partitions() -> None:
    leader, largest = (
        upgrade_claims.changed_counts(design, seed=1)
        for design in ("two-phase-eager", "two-phase-largest-count")
    )
    assert largest.added_s < leader.added_s
    assert largest.deleted_s > leader.deleted_s > 0
    assert largest.joins > leader.joins


def test_slow_assignor_needs_the_members_synchronize_timeout() -> None:
    formation_s = synchronizer_claims.formation_s
    assert formation_s(sends_timeout=False, assign_ms=12_000, within_s=60) is None
    assert formation_s(sends_timeout=True, assign_ms=12_000, within_s=60) is not None


def test_highest_version_always_assigns_in_an_upgrade() -> None:
    upgraded = synchronizer_claims.upgraded_synchronizers
    assert upgraded(SynchronizerChoice.HIGHEST_VERSION, seed=1) == 5


@pytest.mark.timeout(600)
def test_load_over_sockets_is_that_of_a_stable_group() -> None:
    load = measure_socket_load(20, steady_s=0.2)
    assert load is not None
    assert load.is_stable
    assert load.form_s > 0
    assert load.share < 1


def test_load_over_sockets_is_not_measured_without_enough_files() -> None:
    assert measure_socket_load(10**9) is None

"""The claims of the documents: the verdict for some figures, and the measured figures."""

from __future__ import annotations

import msgspec
import pytest

from partage.proposals.comparison import claims, variant_claims
from partage.proposals.comparison.cell import PhaseResult
from partage.proposals.comparison.claim import ClaimVerdict
from partage.proposals.comparison.variant_claims import SynchronizerFigures, UpgradeResult
from partage.proposals.single_assignor.coordinator import SynchronizerChoice

REPRODUCED, REFUTED, DEPENDS = ClaimVerdict.REPRODUCED, ClaimVerdict.REFUTED, ClaimVerdict.DEPENDS


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [((0.1, 0.4), REPRODUCED), ((0.1, 0.7), DEPENDS), ((1.2, 0.1), REFUTED)],
)
def test_consumers_need_less_than_one_core(
    shares: tuple[float, ...], verdict: ClaimVerdict
) -> None:
    assert claims.judge_consumers_per_coordinator(shares) is verdict


@pytest.mark.parametrize(
    ("sent", "verdict"), [(1_010_000_000, REPRODUCED), (20_000_000, REFUTED), (2 * 10**9, REFUTED)]
)
def test_metadata_for_all_costs_about_a_gigabyte(sent: int, verdict: ClaimVerdict) -> None:
    assert claims.judge_metadata_for_all(sent) is verdict


@pytest.mark.parametrize(
    ("multi", "single", "without_metadata", "verdict"),
    [
        (2.0, 1.1, 1.0, REPRODUCED),
        (2.0, 1.1, 1.8, DEPENDS),
        (2.0, 1.9, 1.0, REFUTED),
        (1.0, 1.0, 1.0, REFUTED),
    ],
)
def test_growth_is_judged_by_its_exponents(
    multi: float, single: float, without_metadata: float, verdict: ClaimVerdict
) -> None:
    assert claims.judge_growth(multi, single, without_metadata) is verdict


@pytest.mark.parametrize(("share", "verdict"), [(0.5, REPRODUCED), (0.9, REFUTED), (0.1, REFUTED)])
def test_capacity_is_halved(share: float, verdict: ClaimVerdict) -> None:
    assert claims.judge_upgrade_with_hashes(share) is verdict


@pytest.mark.parametrize(
    ("joins", "remedied", "verdict"),
    [(90, 0.5, REPRODUCED), (90, 80, DEPENDS), (0.2, 0.1, REFUTED)],
)
def test_disagreement_is_judged_by_its_joins(
    joins: float, remedied: float, verdict: ClaimVerdict
) -> None:
    assert claims.judge_disagreement(joins, remedied) is verdict


@pytest.mark.parametrize(
    ("eager", "cooperative", "verdict"), [(2, 0.2, REPRODUCED), (2, 1.5, DEPENDS), (2, 3, REFUTED)]
)
def test_cooperative_savings_are_judged_by_unread_time(
    eager: float, cooperative: float, verdict: ClaimVerdict
) -> None:
    assert claims.judge_cooperative_savings(eager, cooperative) is verdict


def upgrade_result(rejected: int = 0, double_read_s: float = 0) -> UpgradeResult:
    return UpgradeResult(
        restarts=1, rejected=rejected, double_read_s=double_read_s, unread_partition_s=0
    )


@pytest.mark.parametrize(
    ("one", "two", "verdict"),
    [
        (upgrade_result(rejected=1), upgrade_result(), REPRODUCED),
        (upgrade_result(double_read_s=0.1), upgrade_result(), REPRODUCED),
        (upgrade_result(), upgrade_result(), REFUTED),
        (upgrade_result(rejected=1), upgrade_result(rejected=1), REFUTED),
    ],
)
def test_two_bounces_are_needed_if_one_is_unsafe(
    one: UpgradeResult, two: UpgradeResult, verdict: ClaimVerdict
) -> None:
    assert variant_claims.judge_two_bounces(one, two) is verdict


@pytest.mark.parametrize(
    ("rejoin", "resync", "double_read_s", "verdict"),
    [
        (100, 10, (0, 0), REPRODUCED),
        (100, 10, (0, 0.7), DEPENDS),
        (100, 100, (0, 0), REFUTED),
    ],
)
def test_resync_must_save_bytes_and_keep_one_reader(
    rejoin: int, resync: int, double_read_s: tuple[float, ...], verdict: ClaimVerdict
) -> None:
    assert variant_claims.judge_resync(rejoin, resync, double_read_s) is verdict


@pytest.mark.parametrize(
    ("leader_s", "largest_s", "missing", "verdict"),
    [(40, 5, 0, REPRODUCED), (40, 5, 10, DEPENDS), (40, 40, 0, REFUTED)],
)
def test_largest_count_must_be_sooner_and_exist(
    leader_s: float, largest_s: float, missing: int, verdict: ClaimVerdict
) -> None:
    assert variant_claims.judge_largest_count(leader_s, largest_s, missing) is verdict


@pytest.mark.parametrize(
    ("members", "group", "verdict"),
    [(200, 50, REPRODUCED), (200, 300, DEPENDS), (900, 50, DEPENDS), (900, 800, REFUTED)],
)
def test_compression_is_effective_at_a_tenth(
    members: int, group: int, verdict: ClaimVerdict
) -> None:
    assert variant_claims.judge_compression(1_000, members, group) is verdict


PHASE = PhaseResult(
    phase="join",
    is_stable=True,
    stable_after_s=1,
    messages=1,
    bytes=1,
    bytes_by_message={},
    coordinator_cpu_ms=0,
    unread_partition_s=1,
    moved_partitions=0,
    duplicate_records=10,
    round_trips=1,
)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, REPRODUCED),
        ({"duplicate_records": 11}, DEPENDS),
        ({"unread_partition_s": 2.1}, DEPENDS),
        ({"is_stable": False}, REFUTED),
    ],
)
def test_closed_connections_are_compared_with_stop_fetcher(
    changes: dict[str, object], verdict: ClaimVerdict
) -> None:
    closing = msgspec.structs.replace(PHASE, **changes)
    assert variant_claims.judge_closing(PHASE, closing) is verdict


@pytest.mark.parametrize(
    ("without", "with_timeout", "verdict"),
    [(False, True, REPRODUCED), (False, False, DEPENDS), (True, True, REFUTED)],
)
def test_synchronize_timeout_must_make_the_group_form(
    without: bool, with_timeout: bool, verdict: ClaimVerdict
) -> None:
    assert variant_claims.judge_synchronize_timeout(without, with_timeout) is verdict


@pytest.mark.parametrize(
    ("last_failed", "newest", "highest", "verdict"),
    [(0.1, 0.9, 1, REPRODUCED), (0.3, 0.9, 1, DEPENDS), (0.3, 0.1, 0.5, REFUTED)],
)
def test_each_synchronizer_choice_must_keep_its_promise(
    last_failed: float, newest: float, highest: float, verdict: ClaimVerdict
) -> None:
    figures = {
        SynchronizerChoice.RANDOM: SynchronizerFigures(failed=0.2, upgraded=0.5),
        SynchronizerChoice.LAST_TO_JOIN: SynchronizerFigures(failed=last_failed, upgraded=0.5),
        SynchronizerChoice.NEWEST: SynchronizerFigures(failed=0.2, upgraded=newest),
        SynchronizerChoice.HIGHEST_VERSION: SynchronizerFigures(failed=0.2, upgraded=highest),
    }
    assert variant_claims.judge_synchronizer_choices(figures) is verdict


def test_growth_exponent_of_squares_is_two() -> None:
    assert claims.growth_exponent((10, 100), (100, 10_000)) == pytest.approx(2)


def test_titles_of_claims_are_measured_once() -> None:
    assert len(set(claims.CLAIMS)) == len(claims.CLAIMS)
    assert set(variant_claims.VARIANT_CLAIMS) < set(claims.CLAIMS)


def test_subscription_hashes_halve_the_capacity_during_an_upgrade() -> None:
    assert claims.measure_upgrade_with_hashes(int).verdict is REPRODUCED


def test_disagreement_is_endless_unless_metadata_is_from_the_coordinator() -> None:
    assert claims.measure_disagreement(int).verdict is REPRODUCED


def test_one_bounce_is_rejected_and_two_are_not() -> None:
    assert variant_claims.measure_two_bounces(int).verdict is REPRODUCED


def test_resync_saves_the_join_but_moves_partitions_without_a_barrier() -> None:
    claim = variant_claims.measure_resync(int)
    assert claim.verdict is DEPENDS
    figures = dict(claim.figures)
    assert figures["two-phase-resync, 2 topics: JoinGroup requests"] == "0"
    assert figures["two-phase-resync, 1 topic: partition-seconds with two readers"] == "0.0"
    assert figures["two-phase-resync, 2 topics: partition-seconds with two readers"] != "0.0"


def test_stale_member_makes_the_group_assign_partitions_that_do_not_exist() -> None:
    assert variant_claims.missing_partitions(10, 20) == 10
    assert variant_claims.missing_partitions(20, 10) == 0


def test_slow_assignor_needs_the_members_synchronize_timeout() -> None:
    assert variant_claims.formation_s(sends_timeout=False, assign_ms=12_000, within_s=60) is None
    assert variant_claims.formation_s(sends_timeout=True, assign_ms=12_000, within_s=60) is not None

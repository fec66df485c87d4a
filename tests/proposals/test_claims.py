"""The verdicts of claims: for some figures, with the reason that states these figures."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from partage.proposals.comparison import (
    rebalance_claims,
    size_claims,
    speed_claims,
    synchronizer_claims,
    upgrade_claims,
)
from partage.proposals.comparison.cell import CellRun, PhaseResult, Workload
from partage.proposals.comparison.claim import (
    ClaimVerdict,
    Judgement,
    combine,
    combine_holds,
    join_words,
)
from partage.proposals.comparison.claims import CLAIMS
from partage.proposals.comparison.rebalance_claims import DisagreementJoins, UpgradeActivity
from partage.proposals.comparison.size_claims import CompressedShares, SocketLoad
from partage.proposals.comparison.synchronizer_claims import Proportion, SynchronizerFigures
from partage.proposals.comparison.upgrade_claims import (
    BOUNCES,
    CountResult,
    ResyncResult,
    UpgradeResult,
)
from partage.proposals.single_assignor.coordinator import SynchronizerChoice

REPRODUCED, REFUTED, DEPENDS = ClaimVerdict.REPRODUCED, ClaimVerdict.REFUTED, ClaimVerdict.DEPENDS


def check(judgement: Judgement, verdict: ClaimVerdict, *texts: str) -> None:
    """Check a verdict, and that its reason states some figures."""
    assert judgement.verdict is verdict, judgement
    for text in texts:
        assert text in judgement.reason


def test_combined_verdict_depends_if_measurements_disagree() -> None:
    assert combine([REFUTED, REFUTED]) is REFUTED
    assert combine([REFUTED, REPRODUCED]) is DEPENDS
    assert combine_holds([True, True]) is REPRODUCED
    assert combine_holds([True, False]) is DEPENDS
    with pytest.raises(ValueError, match="a verdict needs a measurement"):
        combine([])


def test_words_are_joined_as_an_enumeration() -> None:
    assert [join_words(range(count)) for count in range(4)] == [
        "none",
        "0",
        "0 and 1",
        "0, 1 and 2",
    ]


# Sizes


def socket_load(
    share: float = 0.3, *, is_stable: bool = True, form_share: float = 0.95
) -> SocketLoad:
    return SocketLoad(
        consumers=5_000, is_stable=is_stable, form_s=3, form_share=form_share, share=share
    )


@pytest.mark.parametrize(
    ("share", "sockets", "verdict", "text"),
    [
        (0.1, socket_load(), REPRODUCED, "all 5,000 consumers needs 30.0%"),
        (0.1, None, DEPENDS, "Connections were not measured"),
        (0.1, socket_load(1.1), DEPENDS, "it is open how much of this the coordinator needs"),
        (1.2, socket_load(), REFUTED, "alone needs 120.0% of a core"),
        (0.1, socket_load(is_stable=False), REFUTED, "did not become stable"),
        (0.1, socket_load(is_stable=False, form_share=0.2), DEPENDS, "got only 20% of a core"),
    ],
)
def test_consumers_need_less_than_one_core(
    share: float, sockets: SocketLoad | None, verdict: ClaimVerdict, text: str
) -> None:
    check(size_claims.judge_consumers_per_coordinator(share, sockets), verdict, text)


@pytest.mark.parametrize(
    ("form", "join", "verdict", "text"),
    [
        (1_010_000_000, 1_020_000_000, REPRODUCED, "1.01 GB (form) and 1.02 GB (join)."),
        (20_000_000, 2 * 10**9, REFUTED, "not within 10% of: form and join"),
        (1_010_000_000, 20_000_000, DEPENDS, "not within 10% of: join"),
    ],
)
def test_metadata_for_all_costs_about_a_gigabyte(
    form: int, join: int, verdict: ClaimVerdict, text: str
) -> None:
    check(size_claims.judge_metadata_for_all({"form": form, "join": join}), verdict, text)


@pytest.mark.parametrize(
    ("multi", "single", "verdict", "text"),
    [
        ((2.0, 1.9), (1.1, 1.0), REPRODUCED, "1.10 with a single assignor: the claim holds"),
        ((2.0, 2.0), (1.8, 1.1), DEPENDS, "1.80 with a single assignor: the claim fails"),
        ((1.4, 2.0), (1.0, 1.6), REFUTED, "the exponent is 1.40 if all members assign"),
    ],
)
def test_growth_is_judged_by_its_exponents(
    multi: tuple[float, float], single: tuple[float, float], verdict: ClaimVerdict, text: str
) -> None:
    sizes = (0.0, 10.0)
    judgement = size_claims.judge_growth(
        dict(zip(sizes, multi, strict=True)), dict(zip(sizes, single, strict=True))
    )
    check(judgement, verdict, text)


def test_growth_exponent_of_squares_is_two() -> None:
    assert size_claims.growth_exponent((10, 100), (100, 10_000)) == pytest.approx(2)


def shares(members: float, group: float) -> CompressedShares:
    return CompressedShares(members=members, group=group)


@pytest.mark.parametrize(
    ("identical", "half", "verdict", "text"),
    [
        (
            shares(0.9, 0.1),
            shares(0.9, 0.5),
            REPRODUCED,
            "identical: 10% of the bytes if the coord",
        ),
        (shares(0.4, 0.1), shares(0.4, 0.6), DEPENDS, "not effective for: half."),
        (shares(0.4, 0.6), shares(0.4, 0.7), REFUTED, "not effective for: identical and half."),
    ],
)
def test_compression_is_effective_at_half_of_the_bytes(
    identical: CompressedShares, half: CompressedShares, verdict: ClaimVerdict, text: str
) -> None:
    judgement = size_claims.judge_compression(
        {"identical": identical, "half": half}, disjoint=shares(0.9, 0.7)
    )
    check(judgement, verdict, text, "no common topic: 70% of the bytes")


# Rebalances


def activity(members: int, hashed: int, plain: int) -> UpgradeActivity:
    return UpgradeActivity(members=members, hashed=[members, hashed], plain=[members, plain])


@pytest.mark.parametrize(
    ("upgrades", "verdict", "text"),
    [
        ([activity(10, 5, 10), activity(9, 4, 9)], REPRODUCED, "4 of 9 members with hashes"),
        ([activity(10, 5, 10), activity(20, 8, 20)], DEPENDS, "8 of 20 members with hashes"),
        ([activity(10, 9, 10)], REFUTED, "9 of 10"),
        ([activity(10, 2, 10)], REFUTED, "2 of 10"),
        ([activity(10, 5, 5)], REFUTED, "5 without"),  # hashes are not the cause
    ],
)
def test_capacity_is_halved_by_hashes_only(
    upgrades: list[UpgradeActivity], verdict: ClaimVerdict, text: str
) -> None:
    check(rebalance_claims.judge_upgrade_with_hashes(upgrades), verdict, text)


def joins(count: float, remedied: float) -> DisagreementJoins:
    return DisagreementJoins(refresh_s=2, refreshes=150, joins=count, remedied=remedied)


@pytest.mark.parametrize(
    ("measured", "verdict", "text"),
    [
        ([joins(1_400, 0)], REPRODUCED, "the remedy ends this"),
        ([joins(1_400, 0.1)], DEPENDS, "the remedy does not end this"),  # one member joins once
        ([joins(1_400, 0), joins(150, 0)], DEPENDS, "causes no endless rebalances"),
        ([joins(151, 0)], REFUTED, "joins 151 times in a time with 150 refreshes"),
    ],
)
def test_disagreement_is_endless_if_joins_exceed_refreshes(
    measured: list[DisagreementJoins], verdict: ClaimVerdict, text: str
) -> None:
    check(rebalance_claims.judge_disagreement(measured), verdict, text)


@pytest.mark.parametrize(
    ("join", "crash", "verdict", "text"),
    [
        ([(2, 0.2), (3, 0.3)], [(9, 8), (9, 8)], REPRODUCED, "join: 2.50 partition-seconds eager"),
        ([(2, 0.2), (3, 3)], [(9, 8), (9, 8)], DEPENDS, "less in 1 of 2 worlds"),
        ([(2, 3), (3, 0.3)], [(9, 9), (9, 8)], REFUTED, "less in 1 of 2 worlds"),
    ],
)
def test_cooperative_savings_are_judged_in_each_world(
    join: list[tuple[float, float]],
    crash: list[tuple[float, float]],
    verdict: ClaimVerdict,
    text: str,
) -> None:
    judgement = rebalance_claims.judge_cooperative_savings({"join": join, "crash": crash})
    check(judgement, verdict, text)


@pytest.mark.parametrize(
    ("growth", "join", "verdict", "text"),
    [
        ((100, 5), (60, 3), REPRODUCED, "growth: 20.0 times as fast as eager"),
        ((100, 5), (3, 3), DEPENDS, "join: 1.0 times as fast as eager"),
        ((99, 5), (3, 3), REFUTED, "growth: 19.8 times as fast as eager"),
        ((100, math.inf), (3, 3), REFUTED, "growth: 0.0 times as fast as eager"),
        ((math.inf, 5), (math.inf, 3), REPRODUCED, "growth: inf times as fast as eager"),
    ],
)
def test_rebalance_speed_is_judged_in_each_case(
    growth: tuple[float, float], join: tuple[float, float], verdict: ClaimVerdict, text: str
) -> None:
    cases = [
        speed_claims.SpeedCase(name=name, classic_s=[classic_s], consumer_s=[consumer_s])
        for name, (classic_s, consumer_s) in (("growth", growth), ("join", join))
    ]
    check(speed_claims.judge_rebalance_speed(cases), verdict, text)


def test_speed_case_has_the_seconds_of_each_world() -> None:
    case, figures = speed_claims.measure_speed_case(
        "join", Workload(design="", members=3, phases=()), CellRun.join, lambda: 0, seeds=(1, 2)
    )
    assert len(case.classic_s) == len(case.consumer_s) == 2
    assert 0 < case.speedup < speed_claims.SPEEDUP
    assert [name for name, _ in figures if name.startswith("join, consumer-protocol")] == [
        "join, consumer-protocol: time in s",
        "join, consumer-protocol: partition-seconds without a reader",
    ]


PHASE = PhaseResult(
    phase="join",
    is_stable=True,
    stable_after_s=1,
    counted_s=1,
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
    ("changes", "verdict", "text"),
    [
        ({}, REPRODUCED, "costs no more"),
        ({"duplicate_records": 11}, DEPENDS, "records read again (11 instead of 10)"),
        ({"unread_partition_s": 2.1}, DEPENDS, "without a reader (2.1 instead of 1)"),
        ({"is_stable": False}, REFUTED, "does not complete"),
    ],
)
def test_closed_connections_are_compared_with_stop_fetcher(
    changes: dict[str, Any], verdict: ClaimVerdict, text: str
) -> None:
    closing = msgspec.structs.replace(PHASE, **changes)
    check(rebalance_claims.judge_closing(PHASE, closing), verdict, text)


# Upgrades and topics


def upgrade_result(
    rejected: int = 0, double_read_s: float = 0, *, is_complete: bool = True
) -> UpgradeResult:
    return UpgradeResult(
        restarts=1,
        rejected=rejected,
        double_read_s=double_read_s,
        unread_partition_s=0,
        is_complete=is_complete,
    )


def bounces(
    new: UpgradeResult, both: UpgradeResult, two: UpgradeResult
) -> dict[str, UpgradeResult]:
    return dict(zip(BOUNCES, (new, both, two), strict=True))


GOOD = upgrade_result()
REJECTED = upgrade_result(rejected=1, is_complete=False)
UNFINISHED = upgrade_result(is_complete=False)


@pytest.mark.parametrize(
    ("groups", "verdict", "text"),
    [
        ([bounces(REJECTED, UNFINISHED, GOOD)], REPRODUCED, "two bounces: succeeds"),
        ([bounces(REJECTED, upgrade_result(double_read_s=0.1), GOOD)], REPRODUCED, "two readers"),
        ([bounces(GOOD, UNFINISHED, GOOD)], REFUTED, "one bounce to the new assignor: succeeds"),
        ([bounces(REJECTED, GOOD, GOOD)], REFUTED, "that adds the new assignor: succeeds"),
        (
            [bounces(REJECTED, UNFINISHED, UNFINISHED)],
            REFUTED,
            "two bounces: does not reach the cooperative protocol",
        ),
        (
            [bounces(REJECTED, UNFINISHED, GOOD), bounces(GOOD, UNFINISHED, GOOD)],
            DEPENDS,
            "In 2 groups",
        ),
    ],
)
def test_two_bounces_are_needed_if_no_single_one_succeeds(
    groups: list[dict[str, UpgradeResult]], verdict: ClaimVerdict, text: str
) -> None:
    check(upgrade_claims.judge_two_bounces(groups), verdict, text)


def resync(resync_bytes: int, double_read_s: float = 0) -> ResyncResult:
    return ResyncResult(
        name="a topic", rejoin_bytes=100, resync_bytes=resync_bytes, double_read_s=double_read_s
    )


@pytest.mark.parametrize(
    ("results", "verdict", "text"),
    [
        ([resync(10), resync(20)], REPRODUCED, "10.0% of the bytes"),
        ([resync(10), resync(10, 0.7)], DEPENDS, "0.7 partition-seconds"),
        ([resync(10, 0.7)], DEPENDS, "0.7 partition-seconds"),
        ([resync(100), resync(120)], REFUTED, "120.0% of the bytes"),
    ],
)
def test_resync_must_save_bytes_and_keep_one_reader(
    results: list[ResyncResult], verdict: ClaimVerdict, text: str
) -> None:
    check(upgrade_claims.judge_resync(results), verdict, text)


def count_result(added_s: float, deleted_s: float) -> CountResult:
    return CountResult(added_s=added_s, joins=1, deleted_s=deleted_s)


@pytest.mark.parametrize(
    ("largest", "verdict", "text"),
    [
        ([(5, 700), (5, 700)], REPRODUCED, "sooner in 2 of 2 worlds (mean 5.0 s instead of 60.0"),
        ([(5, 700), (5, 900)], DEPENDS, "for longer in 1 of 2 worlds (mean 800"),
        ([(5, 700), (5, 700), (80, 700)], DEPENDS, "sooner in 2 of 3 worlds"),
        ([(5, 700), (60, 700)], REFUTED, "sooner in 1 of 2 worlds"),
    ],
)
def test_largest_count_must_be_sooner_and_keep_nothing_deleted(
    largest: list[tuple[float, float]], verdict: ClaimVerdict, text: str
) -> None:
    judgement = upgrade_claims.judge_largest_count(
        [count_result(60, 700)] * len(largest), [count_result(*each) for each in largest]
    )
    check(judgement, verdict, text)


# The synchronizer


@pytest.mark.parametrize(
    ("without_s", "with_s", "verdict", "text"),
    [
        (None, 15.1, REPRODUCED, "that of the members it forms in 15.1 s"),
        (None, None, DEPENDS, "that of the members it does not form"),
        (9, 9, REFUTED, "coordinator's timeout the group forms in 9.0 s"),
    ],
)
def test_synchronize_timeout_must_make_the_group_form(
    without_s: float | None, with_s: float | None, verdict: ClaimVerdict, text: str
) -> None:
    check(synchronizer_claims.judge_synchronize_timeout(without_s, with_s), verdict, text)


def of_hundred(count: int) -> Proportion:
    return Proportion(count=count, trials=100)


@pytest.mark.parametrize(
    ("last_failed", "newest", "highest", "verdict", "text"),
    [
        (2, 90, 100, REPRODUCED, "These statements hold: the last member"),
        (18, 90, 100, DEPENDS, "do not hold: the last member to join fails less often"),
        (2, 100, 100, DEPENDS, "do not hold: the newest member is not always upgraded"),
        (30, 10, 50, DEPENDS, "These statements hold: the newest member is not always upgraded."),
    ],
)
def test_each_synchronizer_choice_must_keep_its_promise(
    last_failed: int, newest: int, highest: int, verdict: ClaimVerdict, text: str
) -> None:
    check(judge_choices(last_failed, newest, highest), verdict, text)


def test_synchronizer_choices_without_any_advantage_refute_the_claim() -> None:
    assert judge_choices(20, 100, 99, random_upgraded=100).verdict is REFUTED


def judge_choices(
    last_failed: int, newest: int, highest: int, random_upgraded: int = 50
) -> Judgement:
    def figures(failed: int, upgraded: int) -> SynchronizerFigures:
        return SynchronizerFigures(failed=of_hundred(failed), upgraded=of_hundred(upgraded))

    return synchronizer_claims.judge_synchronizer_choices(
        {
            SynchronizerChoice.RANDOM: figures(20, random_upgraded),
            SynchronizerChoice.LAST_TO_JOIN: figures(last_failed, 50),
            SynchronizerChoice.NEWEST: figures(20, newest),
            SynchronizerChoice.HIGHEST_VERSION: figures(20, highest),
        }
    )


def test_confidence_interval_is_that_of_wilson() -> None:
    low, high = of_hundred(10).interval()
    assert (low, high) == (pytest.approx(0.0552, abs=1e-3), pytest.approx(0.1744, abs=1e-3))
    assert of_hundred(0).interval()[0] == pytest.approx(0, abs=1e-9)
    assert str(of_hundred(10)) == "10% (6% to 17%)"


def test_small_difference_is_no_difference() -> None:
    assert of_hundred(2).is_below(of_hundred(20))
    assert not of_hundred(18).is_below(of_hundred(20))


def test_each_claim_is_measured_once() -> None:
    assert len(set(CLAIMS)) == len(CLAIMS) == 14

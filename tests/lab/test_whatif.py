"""Simulations of events on a live group: initial state, events, and measurements."""

from __future__ import annotations

import math

import pytest

from partage.lab.whatif.group_simulation import ASSIGNORS, GroupSimulation
from partage.lab.whatif.handovers import MembershipChange, ReaderChange, measure_handovers
from partage.lab.whatif.lag_forecast import forecast_lag
from partage.lab.whatif.live_group import LiveGroup, LiveMember, LivePartition
from partage.lab.whatif.trial import Trial, TrialResult, run_trial
from partage.lab.whatif.trial_pool import run_trials

pytestmark = pytest.mark.timeout(120)

EAGER = ("range", "roundrobin", "sticky")


def member(number: int, owned: str = "", topics: str = "t", instance: str | None = None):
    """Return a member; ``owned`` is for example "t0 t3 u1"."""
    return LiveMember(
        member_id=f"c-{number:08x}",
        client_id="c",
        topics=tuple(topics.split()),
        instance_id=instance,
        assigned=tuple((place[0], int(place[1:])) for place in owned.split()),
    )


def group(*members: LiveMember, t: int = 4, u: int = 0, **others) -> LiveGroup:
    rate, lag = others.pop("rate", 0.0), others.pop("lag", 0)
    places = [("t", n) for n in range(t)] + [("u", n) for n in range(u)]
    made_of = {
        "name": "g",
        "assignor": "range",
        "speed": 1_000.0,
        "members": members,
        "partitions": tuple(LivePartition(topic=a, index=b, lag=lag, rate=rate) for a, b in places),
        "session_timeout_ms": 10_000,
        "max_poll_interval_ms": 60_000,
        **others,
    }
    return LiveGroup(**made_of)


def run(live: LiveGroup, event: str, assignor: str, away_ms: int = 5_000) -> TrialResult:
    return run_trial(trial(live, event, assignor, away_ms))


def trial(live: LiveGroup, event: str, assignor: str, away_ms: int = 5_000) -> Trial:
    return Trial(group=live, event=event, assignor=assignor, more=2, away_ms=away_ms)


#: An assignment that no assignor would produce.
SKEWED = group(
    member(3, "t0 t1 t4"),
    member(1, "u1", topics="t u"),
    member(2, topics="u"),
    member(9, "t2", topics="t u", instance="i2"),
    member(8, "u0 t5", topics="t u", instance="i1"),
    t=7,
    u=2,
    generation=41,
    leader="c-00000002",
)


class TestTheBeginning:
    @pytest.mark.parametrize("assignor", ASSIGNORS)
    def test_simulation_starts_in_live_state(self, assignor):
        rehearsal = GroupSimulation(SKEWED, assignor)
        assert rehearsal.owners == SKEWED.owners, "t3 and t6 have no owner"
        assert rehearsal.generation == 41
        assert rehearsal.live_processes[0].core.membership.is_leader
        assert rehearsal.live_processes[0].name == "c-00000002"

    def test_unknown_generation_starts_at_1(self):
        assert GroupSimulation(group(member(1, "t0")), "range").generation == 1

    @pytest.mark.parametrize("assignor", ASSIGNORS)
    def test_assignment_of_same_assignor_is_stable(self, assignor):
        skewed = group(member(1, "t0 t1 t2 t3"), member(2), member(3))
        assert run(skewed, "rebalance", assignor).moved > 0
        rehearsal = GroupSimulation(skewed, assignor)
        rehearsal.live_processes[0].request_rejoin()
        rehearsal.wait_until_stable()
        owners = rehearsal.owners
        settled = group(
            *(
                member(number, " ".join(f"t{p[1]}" for p in sorted(owners) if owners[p] == name))
                for number, name in ((number, f"c-{number:08x}") for number in (1, 2, 3))
            )
        )
        again = run(settled, "rebalance", assignor)
        assert (again.moved, again.handed_over, again.shuffled) == (0, 0, 0)

    def test_range_uses_live_member_order(self):
        """Static members come first, by instance id, then dynamic ones by member id."""
        live = group(
            member(5, "t3"),
            member(2, "t2"),
            member(9, "t0", instance="a"),
            member(1, "t1", instance="b"),
        )
        assert run(live, "rebalance", "range").handed_over == 0

    def test_sticky_claims_live_assignment(self):
        live = group(member(1, "t3 t0"), member(2, "t1 t2"))
        assert run(live, "rebalance", "sticky").handed_over == 0
        assert run(live, "rebalance", "range").handed_over == 2
        assert run(live, "rebalance", "range").shuffled == 2


class TestEvents:
    @pytest.mark.parametrize("assignor", EAGER)
    def test_eager_rebalance_leaves_partitions_unread(self, assignor):
        live = group(member(1, "t0 t1"), member(2, "t2 t3"))
        eager = run(live, "rebalance", assignor)
        kept = run(live, "rebalance", "cooperative-sticky")
        assert eager.stood_still_s > 0
        assert 0 < max(eager.still) <= 4
        assert kept.stood_still_s == 0
        assert not any(kept.still)

    def test_lost_member_partitions_unread_for_session(self):
        live = group(member(1, "t0 t1 t2"), member(2, "t3"), rate=10.0)
        lost = run(live, "lost", "cooperative-sticky")
        assert lost.detail == "c-00000001, with 3 partitions"
        assert lost.longest_still_s == pytest.approx(10, abs=3)
        assert lost.stood_still_s == pytest.approx(30, abs=9)
        assert (lost.moved, lost.handed_over, lost.shuffled, lost.unread) == (3, 3, 0, 0)
        assert lost.lag_added == pytest.approx(30 * lost.longest_still_s, rel=0.1)
        assert lost.lag_peak == lost.lag_added, "the lag started at 0"
        assert lost.caught_up_s is not None
        assert lost.caught_up_s > lost.longest_still_s

    def test_longer_session_timeout_longer_unread(self):
        short = run(group(member(1, "t0"), member(2, "t1"), t=2), "lost", "range")
        live = group(member(1, "t0"), member(2, "t1"), t=2, session_timeout_ms=45_000)
        assert run(live, "lost", "range").longest_still_s > short.longest_still_s + 30

    def test_topic_of_lost_member_only_stays_unread(self):
        live = group(member(1, "t0 t1 t2 t3 u0", topics="t u"), member(2), u=1, rate=1.0)
        lost = run(live, "lost", "cooperative-sticky")
        assert lost.unread == 1
        assert lost.moved == 4
        assert lost.caught_up_s is None, "the lag of u-0 grows without limit"

    @pytest.mark.parametrize("event", ["rebalance", "lost", "restart", "more"])
    def test_unread_by_second_sums_to_total(self, event):
        live = group(member(1, "t0 t1 u0", topics="t u"), member(2, "t2 t3"), u=1)
        found = run(live, event, "range")
        assert found.stood_still_s > 0
        assert sum(found.still) == pytest.approx(found.stood_still_s)
        assert len(found.still) == math.ceil(found.settled_s)

    def test_only_member_lost_all_unread(self):
        lost = run(group(member(1, "t0 t1 t2 t3")), "lost", "range")
        assert (lost.unread, lost.moved, lost.handed_over) == (4, 0, 0)
        assert lost.settled_s is not None

    def test_static_restart_within_session_no_rebalance(self):
        static = group(member(1, "t0 t1", instance="a"), member(2, "t2 t3", instance="b"))
        away = run(static, "restart", "range", away_ms=4_000)
        assert (away.rebalances, away.handed_over, away.moved) == (0, 0, 0)
        assert away.stood_still_s == pytest.approx(16, abs=2), "four partitions, 4 s each"
        longer = run(static, "restart", "range", away_ms=15_000)
        assert longer.rebalances >= 4, "after the session timeout they are removed"
        assert longer.handed_over > 0

    def test_skipped_time_counts(self):
        live = group(member(1, "t0 t1"), member(2, "t2 t3"))
        short, longer = (run(live, "restart", "range", away_ms) for away_ms in (10_000, 70_000))
        assert longer.settled_s == pytest.approx(short.settled_s + 2 * 60, abs=5)

    def test_heartbeats_are_desynchronized(self):
        """Members notice the rebalance at random times within 3 s and wait for the last one."""
        live = group(*(member(number, f"t{number}") for number in range(20)), t=20)
        again = run(live, "rebalance", "range")
        assert again.longest_still_s == pytest.approx(3.7, abs=0.7)
        assert again.stood_still_s / 20 == pytest.approx(2.2, abs=0.6)

    def test_dynamic_restart_rebalances_twice_per_member(self):
        live = group(member(1, "t0 t1"), member(2, "t2 t3"))
        restarted = run(live, "restart", "range")
        assert restarted.rebalances >= 4
        assert restarted.detail == "each member is down for 5 s"
        assert restarted.settled_s is not None

    def test_joining_members_get_fair_share(self):
        live = group(member(1, "t0 t1"), member(2, "t2 t3"))
        more = run(live, "more", "cooperative-sticky")
        assert (more.moved, more.shuffled, more.unread) == (2, 0, 0)
        assert more.detail == "2 members that subscribe to t"

    def test_unowned_partitions_are_assigned_not_moved(self):
        live = group(member(1, "t0"), member(2, "t1"))
        again = run(live, "rebalance", "cooperative-sticky")
        assert (again.moved, again.handed_over, again.unread) == (0, 0, 0)
        assert again.stood_still_s > 0, "t-2 and t-3, until the leader assigned"

    def test_trial_is_deterministic(self):
        live = group(member(1, "t0 t1"), member(2, "t2 t3"), rate=5.0)
        once = run(live, "restart", "roundrobin")
        assert run(live, "restart", "roundrobin") == once


def reads(at_ms: int, process: str, *indexes: int) -> ReaderChange:
    return ReaderChange(at_ms, process, frozenset(("t", index) for index in indexes))


class TestHandovers:
    def test_handovers_of_each_kind_are_counted(self):
        timeline = [
            reads(0, "a", 0, 1),
            reads(0, "b", 2),
            reads(0, "c", 3),
            reads(1_000, "a"),  # stops
            reads(3_000, "b", 2, 0),
            reads(3_000, "c", 3, 1),
            reads(4_000, "b", 0),
            reads(4_500, "c", 3, 1, 2),  # avoidable handover
            reads(5_000, "c", 3, 2),
            reads(5_000, "a2", 1),  # restarted
        ]
        places = {"a": "a", "a2": "a", "b": "b", "c": "c"}
        course = measure_handovers(
            timeline,
            [("t", index) for index in range(5)],
            places,
            [MembershipChange(1_000, frozenset(("a", "a2")))],
            begin_ms=1_000,
            end_ms=5_000,
        )
        assert course.handovers == 4
        assert course.avoidable_handovers == 1
        assert course.moved == 2, "0 is b's, and 2 is c's"
        assert course.unread == 1, "4 never has an owner"
        assert course.unread_ms == 2 * 2_000 + 500 + 4_000
        assert course.longest_gap_ms == 4_000
        assert course.unread_ms_by_second == [3_000, 3_000, 1_000, 1_500]
        assert sum(course.unread_ms_by_second) == course.unread_ms


class TestLags:
    def partitions(self, *rates: float, lag: int = 0) -> list[LivePartition]:
        return [LivePartition(topic="t", index=n, lag=lag, rate=r) for n, r in enumerate(rates)]

    def test_unread_lag_grows_then_catches_up(self):
        timeline = [reads(0, "a", 0), reads(1_000, "a"), reads(11_000, "b", 0)]
        found = forecast_lag(timeline, self.partitions(100.0), 300.0, begin_ms=1_000, end_ms=11_000)
        assert (found.peak, found.added) == (1_000, 1_000)
        assert found.caught_up_ms == 15_000, "1,000 records at 300 - 100 a second"
        assert found.by_second[:12] == [*range(0, 1_100, 100), 800]

    def test_overloaded_member_never_catches_up(self):
        timeline = [reads(0, "a", 0), reads(0, "b", 1), reads(1, "a"), reads(1_001, "b", 0, 1)]
        found = forecast_lag(timeline, self.partitions(60.0, 60.0), 100.0, begin_ms=1, end_ms=1_001)
        assert found.caught_up_ms is None
        assert found.by_second[101] - found.by_second[1] == 20 * 100

    def test_moved_partition_keeps_its_lag(self):
        """A member with two partitions reads the most delayed one first."""
        few = [
            LivePartition(topic="t", index=0, lag=1_000),
            LivePartition(topic="t", index=1, lag=100),
        ]
        timeline = [
            reads(0, "a", 0, 1),
            reads(5_000, "a", 0),  # 600 records remain: 500 and 100
            reads(5_000, "b", 1),
        ]
        found = forecast_lag(timeline, few, 100.0, begin_ms=1, end_ms=5_000)
        assert found.by_second[5] == pytest.approx(600, abs=2)
        assert found.by_second[6] == pytest.approx(400, abs=2), "both read now"
        assert found.by_second[7] == pytest.approx(300, abs=2), "b has nothing left"

    def test_shrinking_lag_peaks_at_start(self):
        found = forecast_lag([reads(0, "a", 0)], self.partitions(0.0, lag=500), 100.0, 1, 1)
        assert (found.peak, found.added, found.caught_up_ms) == (500, 0, 0)
        assert found.by_second[5] == pytest.approx(0, abs=1)
        assert found.undisturbed == found.by_second

    def test_added_lag_excludes_initial_lag(self):
        timeline = [reads(0, "a", 0), reads(1_000, "a"), reads(4_000, "b", 0)]
        found = forecast_lag(timeline, self.partitions(50.0, lag=900), 200.0, 1_000, 4_000)
        assert found.undisturbed[:4] == [900, 750, 600, 450]
        assert found.by_second[:4] == [900, 950, 1_000, 1_050]
        assert (found.peak, found.added) == (1_050, 600)
        assert found.caught_up_ms == 10_000, "both 1,050 and 600 records are read by then"


def test_trials_in_processes_equal_serial_trials():
    live = group(*(member(number, f"t{number}") for number in range(20)), t=20)
    trials = [trial(live, event, "range") for event in ("rebalance", "lost")]
    told: list[tuple[int, float]] = []
    spread = run_trials(trials, 2, lambda number, done: told.append((number, done)))
    assert spread == [run_trial(each) for each in trials]
    assert {number for number, done in told if done == 1} == {0, 1}

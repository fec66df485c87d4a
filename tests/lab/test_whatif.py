"""Simulations of events on a live group: initial state, events, and measurements."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from partage.assignors import Assignor
from partage.lab.whatif.assignor_choice import (
    ASSIGNORS,
    AssignorChoiceError,
    AssignorFailureError,
    make_assignor,
)
from partage.lab.whatif.consumer_group_simulation import ConsumerGroupSimulation
from partage.lab.whatif.group_simulation import GroupSimulation
from partage.lab.whatif.handovers import (
    MembershipChange,
    ReaderChange,
    measure_handovers,
    newest_readers,
)
from partage.lab.whatif.lag_forecast import forecast_lag
from partage.lab.whatif.live_group import LiveGroup, LiveMember, LivePartition
from partage.lab.whatif.trial import Trial, TrialResult, run_trial
from partage.lab.whatif.trial_pool import run_trials

pytestmark = pytest.mark.timeout(600)

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
    arguments = {
        "name": "g",
        "assignor": "range",
        "speed": 1_000.0,
        "members": members,
        "partitions": tuple(LivePartition(topic=a, index=b, lag=lag, rate=rate) for a, b in places),
        "session_timeout_ms": 10_000,
        "max_poll_interval_ms": 60_000,
        **others,
    }
    return LiveGroup(**arguments)


def run(live: LiveGroup, event: str, assignor: str, away_ms: int = 5_000) -> TrialResult:
    return run_trial(trial(live, event, assignor, away_ms))


def trial(live: LiveGroup, event: str, assignor: str, away_ms: int = 5_000) -> Trial:
    return Trial(group=live, event=event, assignor=assignor, joining_members=2, away_ms=away_ms)


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


class TestInitialState:
    @pytest.mark.parametrize("assignor", ASSIGNORS)
    def test_simulation_starts_in_live_state(self, assignor):
        simulation = GroupSimulation(SKEWED, assignor)
        assert simulation.owners == SKEWED.owners, "t3 and t6 have no owner"
        assert simulation.generation == 41
        assert simulation.live_processes[0].core.membership.is_leader
        assert simulation.live_processes[0].name == "c-00000002"

    def test_unknown_generation_starts_at_1(self):
        assert GroupSimulation(group(member(1, "t0")), "range").generation == 1

    @pytest.mark.parametrize("assignor", sorted({*ASSIGNORS} - {"redundant"}))
    def test_assignment_of_same_assignor_is_stable(self, assignor):
        skewed = group(member(1, "t0 t1 t2 t3"), member(2), member(3))
        assert run(skewed, "rebalance", assignor).moved_partitions > 0
        simulation = GroupSimulation(skewed, assignor)
        simulation.live_processes[0].request_rejoin()
        simulation.wait_until_stable()
        owners = simulation.owners
        settled = group(
            *(
                member(number, " ".join(f"t{p[1]}" for p in sorted(owners) if owners[p] == name))
                for number, name in ((number, f"c-{number:08x}") for number in (1, 2, 3))
            )
        )
        again = run(settled, "rebalance", assignor)
        assert (again.moved_partitions, again.handovers, again.avoidable_handovers) == (0, 0, 0)

    def test_range_uses_live_member_order(self):
        """Static members come first, by instance id, then dynamic ones by member id."""
        live = group(
            member(5, "t3"),
            member(2, "t2"),
            member(9, "t0", instance="a"),
            member(1, "t1", instance="b"),
        )
        assert run(live, "rebalance", "range").handovers == 0

    def test_sticky_claims_live_assignment(self):
        live = group(member(1, "t3 t0"), member(2, "t1 t2"))
        assert run(live, "rebalance", "sticky").handovers == 0
        assert run(live, "rebalance", "range").handovers == 2
        assert run(live, "rebalance", "range").avoidable_handovers == 2


class TestConsumerProtocol:
    """The group after its migration to the consumer protocol (KIP-848)."""

    def test_simulation_starts_in_live_state(self):
        simulation = ConsumerGroupSimulation(SKEWED)
        assert simulation.owners == SKEWED.owners
        assert simulation.generation == 41
        assert len(simulation.live_processes) == 5

    def test_unknown_generation_starts_at_1(self):
        assert ConsumerGroupSimulation(group(member(1, "t0"))).generation == 1

    def test_rebalance_keeps_a_balanced_assignment(self):
        live = group(member(1, "t3 t0"), member(2, "t1 t2"))
        again = run(live, "rebalance", "uniform")
        assert (again.rebalances, again.handovers, again.unread_s) == (1, 0, 0)

    def test_rebalance_balances_without_stopping_other_partitions(self):
        live = group(member(1, "t0 t1 t2 t3"), member(2))
        again = run(live, "rebalance", "uniform")
        assert (again.moved_partitions, again.unread_partitions) == (2, 0)
        assert max(again.unread_by_second) <= 2

    def test_unowned_partitions_get_readers(self):
        again = run(group(member(1, "t0"), member(2, "t1")), "rebalance", "uniform")
        assert (again.moved_partitions, again.unread_partitions) == (0, 0)

    def test_lost_member_partitions_unread_for_session(self):
        live = group(member(1, "t0 t1 t2"), member(2, "t3"))
        crashed = run(live, "crash", "uniform")
        assert crashed.longest_unread_s == pytest.approx(11, abs=4)
        assert (crashed.moved_partitions, crashed.unread_partitions) == (3, 0)

    def test_static_restart_within_session_no_handover(self):
        static = group(member(1, "t0 t1", instance="a"), member(2, "t2 t3", instance="b"))
        away = run(static, "restart", "uniform", away_ms=4_000)
        assert (away.handovers, away.moved_partitions, away.unread_partitions) == (0, 0, 0)
        longer = run(static, "restart", "uniform", away_ms=15_000)
        assert longer.handovers > 0

    def test_joining_members_stop_only_partitions_that_move(self):
        live = group(*(member(number, f"t{number}") for number in range(9)), t=9)
        joined = run(live, "join", "uniform")
        eager = run(live, "join", "range")
        assert joined.unread_partitions == 0
        assert joined.avoidable_handovers == 0
        assert joined.unread_s < eager.unread_s

    def test_trial_is_deterministic(self):
        live = group(member(1, "t0 t1"), member(2, "t2 t3"), rate=5.0)
        assert run(live, "restart", "uniform") == run(live, "restart", "uniform")


class Stepping(Assignor):
    """An assignor of a user with one bug, in one of its methods."""

    name = "stepping"
    bug = ""

    def assign(self, members, topics):
        if self.bug == "raises":
            raise LookupError("no such member")
        names = [member.member_id for member in members]
        if self.bug == "assigns twice":
            return {name: {"t": [0]} for name in names}
        if self.bug == "returns nothing":
            return None
        return {names[0]: {"t": range(topics["t"].partition_count)}}

    def user_data(self, topics, owned, generation):
        return b"" if self.bug != "raises in user_data" else bytes(-1)

    def on_assignment(self, assignment, generation):
        if self.bug == "raises in on_assignment":
            raise LookupError("no such assignment")


class Closest(Stepping):
    """Gives each partition to a member in the rack of its replica, the most delayed first."""

    name = "closest"

    def assign(self, members, topics):
        owner = {member.rack: member.member_id for member in members}
        assert topics["t"].lags == (3, 3, 3, 3)
        shares = {}
        for partition, racks in enumerate(topics["t"].racks):
            (rack,) = racks
            shares.setdefault(owner[rack], {}).setdefault("t", []).append(partition)
        return shares

    def rack_of_broker(self, host, rack):
        return rack or host[0]


class NeedsSize(Stepping):
    def __init__(self, size, *, color):
        self.size = size


class Raising(Stepping):
    def __init__(self):
        raise OSError("no disk")


class Unfinished(Assignor):
    name = "unfinished"


SIZED = NeedsSize(4, color="red")


class TestAssignorsOfUsers:
    def test_class_and_object_are_used(self):
        live = group(member(1, "t0 t1"), member(2, "t2 t3"))
        for path in (f"{__name__}:Stepping", f"{__name__}:SIZED"):
            found = run(live, "rebalance", path)
            assert (found.assignor, found.moved_partitions) == (path, 2)

    def test_racks_and_lags_are_known(self):
        east, west = (replace(member(n), rack=rack) for n, rack in ((1, "east"), (2, "w")))
        live = group(replace(east, assigned=tuple(("t", n) for n in range(4))), west, lag=3)
        brokers = [("e-1", "east"), ("w-2", None), ("w-2", None), ("e-1", "east")]
        live = replace(
            live,
            partitions=tuple(
                replace(each, replicas=(broker,))
                for each, broker in zip(live.partitions, brokers, strict=True)
            ),
        )
        simulation = GroupSimulation(live, f"{__name__}:Closest")
        simulation.request_rebalance()
        simulation.wait_until_stable()
        owners = simulation.owners
        assert [owners["t", n] for n in range(4)] == [
            *("c-00000001", "c-00000002", "c-00000002", "c-00000001")
        ]
        simulation = GroupSimulation(live, "rack-aware")
        simulation.request_rebalance()
        simulation.wait_until_stable()
        assert {n for n in range(4) if simulation.owners["t", n] == "c-00000001"} >= {0, 3}

    @pytest.mark.parametrize(
        ("bug", "message"),
        [
            ("raises", "LookupError: no such member (test_whatif.py, line "),
            ("assigns twice", "InvalidAssignmentError: "),
            ("returns nothing", "InvalidAssignmentError: stepping returned NoneType, expected"),
            ("raises in user_data", "ValueError: negative count (test_whatif.py, line "),
            ("raises in on_assignment", "LookupError: no such assignment (test_whatif.py, line "),
        ],
    )
    def test_failure_has_its_reason(self, monkeypatch, bug, message):
        monkeypatch.setattr(Stepping, "bug", bug)
        path = f"{__name__}:Stepping"
        with pytest.raises(AssignorFailureError) as failed:
            run(group(member(1, "t0 t1"), member(2, "t2 t3")), "rebalance", path)
        assert str(failed.value).startswith(f"assignor {path} failed: {message}")

    @pytest.mark.parametrize(
        ("path", "message"),
        [
            ("mine", "unknown assignor 'mine'; assignors are canary, "),
            ("no.where:A", "there is no module 'no.where' for no.where:A: its directory "),
            (f"{__name__}:Nothing", f"module '{__name__}' has no 'Nothing'"),
            (f"{__name__}:", f"module '{__name__}' has no ''"),
            (f"{__name__}:SKEWED", f"{__name__}:SKEWED is LiveGroup, not a subclass of "),
            (f"{__name__}:TestEvents", f"{__name__}:TestEvents is the class TestEvents, not a "),
            (f"{__name__}:Unfinished", f"{__name__}:Unfinished does not implement assign()"),
            (f"{__name__}:NeedsSize", f"{__name__}:NeedsSize needs arguments (size, color): name"),
            (f"{__name__}:Raising", f"{__name__}:Raising cannot be created: OSError: no disk"),
        ],
    )
    def test_invalid_choice_is_refused(self, path, message):
        with pytest.raises(AssignorChoiceError) as refused:
            GroupSimulation(SKEWED, path)
        assert str(refused.value).startswith(message)

    def test_module_that_cannot_be_imported_is_refused(self, tmp_path, monkeypatch):
        (tmp_path / "halfway.py").write_text("import no_such_package\n")
        (tmp_path / "wrong.py").write_text("1 / 0\n")
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(AssignorChoiceError, match=r"^halfway:A cannot be imported: No module"):
            make_assignor("halfway:A")
        with pytest.raises(AssignorChoiceError, match=r"^wrong:A .*ZeroDivisionError.*wrong\.py"):
            make_assignor("wrong:A")

    def test_failure_in_another_process_has_its_reason(self, monkeypatch):
        live = group(*(member(number, f"t{number}") for number in range(20)), t=20)
        trials = [trial(live, "rebalance", f"{__name__}:Closest") for _ in range(2)]
        with pytest.raises(AssignorFailureError, match="Closest failed: AssertionError"):
            run_trials(trials, 2, lambda number, share: None)

    def test_replicas_have_several_readers(self):
        live = group(member(1, "t0 t1 t2 t3"), member(2), member(3), lag=100, rate=10.0)
        more = run(live, "rebalance", "redundant")
        assert (more.moved_partitions, more.handovers, more.unread_partitions) == (4, 5, 0)
        simulation = GroupSimulation(live, "redundant")
        simulation.request_rebalance()
        simulation.wait_until_stable()
        owned = [place for each in simulation.live_processes for place in each.core.owned]
        assert sorted(owned) == sorted(2 * [("t", n) for n in range(4)])
        assert more.caught_up_after_s is not None


class TestEvents:
    @pytest.mark.parametrize("assignor", EAGER)
    def test_eager_rebalance_leaves_partitions_unread(self, assignor):
        live = group(member(1, "t0 t1"), member(2, "t2 t3"))
        eager = run(live, "rebalance", assignor)
        kept = run(live, "rebalance", "cooperative-sticky")
        assert eager.unread_s > 0
        assert 0 < max(eager.unread_by_second) <= 4
        assert kept.unread_s == 0
        assert not any(kept.unread_by_second)

    def test_lost_member_partitions_unread_for_session(self):
        live = group(member(1, "t0 t1 t2"), member(2, "t3"), rate=10.0)
        crashed = run(live, "crash", "cooperative-sticky")
        assert crashed.detail == "c-00000001, with 3 partitions"
        assert crashed.longest_unread_s == pytest.approx(10, abs=3)
        assert crashed.unread_s == pytest.approx(30, abs=9)
        assert (
            crashed.moved_partitions,
            crashed.handovers,
            crashed.avoidable_handovers,
            crashed.unread_partitions,
        ) == (3, 3, 0, 0)
        assert crashed.added_lag_max == pytest.approx(30 * crashed.longest_unread_s, rel=0.1)
        assert crashed.lag_max == crashed.added_lag_max, "the lag started at 0"
        assert crashed.caught_up_after_s is not None
        assert crashed.caught_up_after_s > crashed.longest_unread_s

    def test_longer_session_timeout_longer_unread(self):
        short = run(group(member(1, "t0"), member(2, "t1"), t=2), "crash", "range")
        live = group(member(1, "t0"), member(2, "t1"), t=2, session_timeout_ms=45_000)
        assert run(live, "crash", "range").longest_unread_s > short.longest_unread_s + 30

    def test_topic_of_lost_member_only_stays_unread(self):
        live = group(member(1, "t0 t1 t2 t3 u0", topics="t u"), member(2), u=1, rate=1.0)
        crashed = run(live, "crash", "cooperative-sticky")
        assert crashed.unread_partitions == 1
        assert crashed.moved_partitions == 4
        assert crashed.caught_up_after_s is None, "the lag of u-0 grows without limit"

    @pytest.mark.parametrize("event", ["rebalance", "crash", "restart", "join"])
    def test_unread_by_second_sums_to_total(self, event):
        live = group(member(1, "t0 t1 u0", topics="t u"), member(2, "t2 t3"), u=1)
        found = run(live, event, "range")
        assert found.unread_s > 0
        assert sum(found.unread_by_second) == pytest.approx(found.unread_s)
        assert len(found.unread_by_second) == math.ceil(found.stable_after_s)

    def test_only_member_lost_all_unread(self):
        crashed = run(group(member(1, "t0 t1 t2 t3")), "crash", "range")
        assert (crashed.unread_partitions, crashed.moved_partitions, crashed.handovers) == (4, 0, 0)
        assert crashed.stable_after_s is not None

    def test_static_restart_within_session_no_rebalance(self):
        static = group(member(1, "t0 t1", instance="a"), member(2, "t2 t3", instance="b"))
        away = run(static, "restart", "range", away_ms=4_000)
        assert (away.rebalances, away.handovers, away.moved_partitions) == (0, 0, 0)
        assert away.unread_s == pytest.approx(16, abs=2), "four partitions, 4 s each"
        longer = run(static, "restart", "range", away_ms=15_000)
        assert longer.rebalances >= 4, "after the session timeout they are removed"
        assert longer.handovers > 0

    def test_skipped_time_counts(self):
        live = group(member(1, "t0 t1"), member(2, "t2 t3"))
        short, longer = (run(live, "restart", "range", away_ms) for away_ms in (10_000, 70_000))
        assert longer.stable_after_s == pytest.approx(short.stable_after_s + 2 * 60, abs=5)

    def test_heartbeats_are_desynchronized(self):
        """Members notice the rebalance at random times within 3 s and wait for the last one."""
        live = group(*(member(number, f"t{number}") for number in range(20)), t=20)
        again = run(live, "rebalance", "range")
        assert again.longest_unread_s == pytest.approx(3.7, abs=0.7)
        assert again.unread_s / 20 == pytest.approx(2.2, abs=0.6)

    def test_dynamic_restart_rebalances_twice_per_member(self):
        live = group(member(1, "t0 t1"), member(2, "t2 t3"))
        restarted = run(live, "restart", "range")
        assert restarted.rebalances >= 4
        assert restarted.detail == "each member is down for 5 s"
        assert restarted.stable_after_s is not None

    def test_joining_members_get_fair_share(self):
        live = group(member(1, "t0 t1"), member(2, "t2 t3"))
        more = run(live, "join", "cooperative-sticky")
        assert (more.moved_partitions, more.avoidable_handovers, more.unread_partitions) == (
            2,
            0,
            0,
        )
        assert more.detail == "2 members that subscribe to t"

    def test_unowned_partitions_are_assigned_not_moved(self):
        live = group(member(1, "t0"), member(2, "t1"))
        again = run(live, "rebalance", "cooperative-sticky")
        assert (again.moved_partitions, again.handovers, again.unread_partitions) == (0, 0, 0)
        assert again.unread_s > 0, "t-2 and t-3, until the leader assigned"

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
        member_by_process = {"a": "a", "a2": "a", "b": "b", "c": "c"}
        stats = measure_handovers(
            timeline,
            [("t", index) for index in range(5)],
            member_by_process,
            [MembershipChange(1_000, frozenset(("a", "a2")))],
            begin_ms=1_000,
            end_ms=5_000,
        )
        assert stats.handovers == 4
        assert stats.avoidable_handovers == 1
        assert stats.moved == 2, "0 is b's, and 2 is c's"
        assert stats.unread == 1, "4 never has an owner"
        assert stats.unread_ms == 2 * 2_000 + 500 + 4_000
        assert stats.longest_gap_ms == 4_000
        assert stats.unread_ms_by_second == [3_000, 3_000, 1_000, 1_500]
        assert sum(stats.unread_ms_by_second) == stats.unread_ms

    def test_partition_is_unread_without_any_of_its_readers(self):
        timeline = [
            reads(0, "a", 0),
            reads(1_000, "b", 0),
            reads(2_000, "b"),
            reads(3_000, "b", 0),
            reads(4_000, "a"),
            reads(5_000, "b"),
            reads(7_000, "a", 0),
        ]
        stats = measure_handovers(timeline, [("t", 0)], {"a": "a", "b": "b"}, [], 500, 8_000)
        assert (stats.unread_ms, stats.longest_gap_ms, stats.unread) == (2_000, 2_000, 0)
        assert list(newest_readers(timeline)) == [
            reads(0, "a", 0),
            reads(1_000, "b", 0),
            reads(2_000, "b"),
            reads(2_000, "a", 0),
            reads(3_000, "b", 0),
            reads(4_000, "a"),
            reads(5_000, "b"),
            reads(7_000, "a", 0),
        ]


class TestLagForecast:
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
    trials = [trial(live, event, "range") for event in ("rebalance", "crash")]
    progress: list[tuple[int, float]] = []
    results = run_trials(trials, 2, lambda number, share: progress.append((number, share)))
    assert results == [run_trial(each) for each in trials]
    assert {number for number, share in progress if share == 1} == {0, 1}

"""Connectors with tasks: their placement by strategy over several generations."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from partage.recipes import Connector
from partage.recipes.connectors import split_units
from partage.recipes.task_placement import PlacementMemory
from partage.recipes.unit_assignor import PoolSnapshot, PoolWorker, assign_units

DELAY_MS = 1000


class ConnectorPool:
    """Workers that follow the assignment of connectors, without a group."""

    def __init__(self, connectors, units=()):
        self.connectors = list(connectors)
        self.units = list(units)
        self.owned = {}
        self.view = PoolSnapshot()
        self.generation = 0
        self.stopped = []

    def round(self, passed_ms=0):
        """Run one generation; return True if another one is needed at once."""
        self.generation += 1
        waited = {unit: ms + passed_ms for unit, ms in self.view.waited_ms.items()}
        view = structs.replace(self.view, generation=self.generation - 1, waited_ms=waited)
        workers = [PoolWorker(n, n, frozenset(its), view) for n, its in self.owned.items()]
        plan = assign_units(self.units, workers, DELAY_MS, self.generation, self.connectors)
        holders = {unit: name for name, its in self.owned.items() for unit in its}
        for name, its in plan.units.items():
            for unit in its:
                assert holders.get(unit, name) == name, "a unit began while it ran elsewhere"
        assigned = [unit for its in plan.units.values() for unit in its]
        assert len(assigned) == len(set(assigned))
        self.stopped += sorted(set(holders) - set(assigned))
        self.owned = {name: set(its) for name, its in plan.units.items()}
        self.view = plan.view
        self.again_ms = plan.again_ms
        return bool(plan.moving) or plan.again_ms == 0

    def settle(self):
        for _ in range(5):
            if not self.round():
                return
        raise AssertionError("it does not settle")

    def settle_after_delay(self):
        self.round(passed_ms=DELAY_MS)
        self.round(passed_ms=DELAY_MS)
        self.settle()

    def join(self, *names):
        self.owned |= {name: set() for name in names}

    def counts(self, units):
        return sorted(len(its.intersection(units)) for its in self.owned.values())


def on_last_worker(tasks, workers):
    """Place all tasks on one worker."""
    return {workers[-1]: tasks}


def by_number(tasks, workers):
    """Place task n on worker n, modulo the number of workers."""
    return {name: tasks[n :: len(workers)] for n, name in enumerate(workers)}


def test_connectors_and_tasks_are_distributed():
    pool = ConnectorPool([Connector("jdbc", 3), Connector("files", 1)])
    pool.join("one", "two")
    pool.settle()
    assert set().union(*pool.owned.values()) == {
        *("jdbc", "jdbc/0", "jdbc/1", "jdbc/2"),
        *("files", "files/0"),
    }
    assert pool.counts({"jdbc", "files"}) == [1, 1]
    assert pool.counts({"jdbc/0", "jdbc/1", "jdbc/2"}) == [1, 2]
    assert sorted(map(len, pool.owned.values())) == [3, 3]


def test_balanced_tasks_move_to_new_worker_and_sticky_stay():
    balanced, sticky = Connector("even", 4), Connector("stay", 4, "sticky")
    pool = ConnectorPool([balanced, sticky])
    pool.join("one")
    pool.settle()
    pool.join("two")
    pool.settle()
    assert pool.counts(sticky.task_units) == [0, 4]
    assert pool.counts(balanced.task_units) == [2, 2]
    assert set(pool.stopped).isdisjoint(sticky.task_units)


def test_small_connectors_balance_in_total():
    pool = ConnectorPool([Connector(f"c{number}", 1) for number in range(8)])
    pool.join("one")
    pool.settle()
    pool.join("two")
    pool.settle()
    assert sorted(map(len, pool.owned.values())) == [8, 8]


def test_strategy_function_places_tasks():
    connector = Connector("mine", 3, on_last_worker)
    pool = ConnectorPool([connector])
    pool.join("one", "two")
    pool.settle()
    assert pool.owned["two"].issuperset(connector.task_units)
    pool.join("zoe")
    pool.settle()
    assert pool.owned["zoe"].issuperset(connector.task_units)
    assert set(pool.stopped).issuperset(connector.task_units)


def test_lost_workers_tasks_wait_then_move():
    connector = Connector("even", 4)
    pool = ConnectorPool([connector])
    pool.join("one", "two")
    pool.settle()
    lost = pool.owned.pop("two")
    pool.settle()
    assert set(pool.view.waited_ms) == lost
    pool.settle_after_delay()
    assert pool.owned["one"] == {"even", *connector.task_units}


def test_function_moves_restarted_workers_tasks_after_start():
    """A restarted worker may start its tasks now, so they move in the next generation only."""
    connector = Connector("mine", 2, on_last_worker)
    pool = ConnectorPool([connector])
    pool.join("one", "two")
    pool.settle()
    pool.owned["two"] = set()
    pool.join("zoe")
    assert pool.round()
    assert pool.owned["two"].issuperset(connector.task_units)
    pool.settle()
    assert pool.owned["zoe"].issuperset(connector.task_units)


def test_repeated_deferrals_wait_longer():
    """A worker that never reports its new tasks does not cause rebalances without a pause."""
    pool = ConnectorPool([Connector("mine", 2, on_last_worker)])
    pool.join("one", "two")
    pool.settle()
    pool.join("zoe")
    delays_ms = []
    for _ in range(12):
        pool.owned["two"] = set()
        pool.round()
        delays_ms.append(pool.again_ms)
    assert delays_ms[:4] == [0, 100, 200, 400]
    assert delays_ms[-1] == 10_000
    pool.settle()
    assert pool.again_ms is None
    assert pool.view.deferrals == 0


@pytest.mark.parametrize(
    ("place", "why"),
    [
        (lambda tasks, workers: {}, "no worker for c/0, c/1"),
        (lambda tasks, workers: {"ghost": tasks}, "'ghost', which is no worker"),
        (lambda tasks, workers: {workers[0]: [*tasks, tasks[0]]}, "'c/0' twice"),
        (lambda tasks, workers: {workers[0]: ["other"]}, "'other' twice, or it is no task"),
    ],
)
def test_invalid_strategy_result_raises(place, why):
    with pytest.raises(ValueError, match=why):
        assign_units([], [PoolWorker("one", "one")], 0, 1, [Connector("c", 2, place)])


class Alternating:
    """A strategy that places all tasks on another worker at each call."""

    def __init__(self):
        self.calls = 0

    def __call__(self, tasks, workers):
        self.calls += 1
        return {workers[self.calls % len(workers)]: iter(tasks)}


def test_nondeterministic_strategy_keeps_first_placement(caplog):
    memory, alternating = PlacementMemory(), Alternating()
    strategy = memory.guard(Connector("mine", 2, alternating)).strategy
    tasks, workers = ["mine/0", "mine/1"], ["one", "two"]
    first = strategy(tasks, workers)
    assert first == {"two": tasks}
    assert not caplog.records
    # The guard of the next generation has the same memory.
    strategy = memory.guard(Connector("mine", 2, alternating)).strategy
    assert [strategy(tasks, workers) for _ in range(3)] == [first] * 3
    (logged,) = caplog.messages
    assert "connector 'mine'" in logged
    assert "must depend on its arguments only" in logged
    # Other arguments may give another placement, which is then kept.
    assert strategy(tasks, ["one", "zoe"]) == {"zoe": tasks}
    assert strategy(tasks, ["one", "zoe"]) == {"zoe": tasks}
    assert len(caplog.messages) == 1


def test_nondeterministic_strategy_moves_no_running_task(caplog):
    memory = PlacementMemory()
    pool = ConnectorPool([memory.guard(Connector("mine", 3, Alternating()))])
    pool.join("one", "two")
    pool.settle()
    for _ in range(5):
        assert not pool.round()
    assert not pool.stopped
    assert len(caplog.messages) == 1


def test_changed_strategy_applies_at_once(caplog):
    """A function that returns the connectors may return another strategy for the same name."""

    def on_worker(name):
        return lambda tasks, workers: {name: tasks}

    memory, tasks, workers = PlacementMemory(), ["mine/0"], ["one", "two"]
    for strategy in (by_number, on_last_worker, on_worker("one"), on_worker("two")):
        placement = memory.guard(Connector("mine", 1, strategy)).strategy(tasks, workers)
        assert placement == {name: its for name, its in strategy(tasks, workers).items() if its}
    assert not caplog.records


def test_strategy_with_unset_captured_variable_is_compared(caplog):
    def connector():
        def strategy(tasks, workers):
            return {workers[0]: tasks} if workers else later

        if not connector:
            later = None
        return Connector("mine", 1, strategy)

    memory = PlacementMemory()
    placements = [memory.guard(connector()).strategy(["mine/0"], ["one"]) for _ in range(2)]
    assert placements == [{"one": ["mine/0"]}] * 2
    assert not caplog.records


def test_nondeterministic_strategy_of_new_lambda_is_detected(caplog):
    memory, calls = PlacementMemory(), iter(range(9))

    def connector():
        return Connector("mine", 1, lambda tasks, workers: {workers[next(calls) % 2]: tasks})

    tasks, workers = ["mine/0"], ["one", "two"]
    placements = [memory.guard(connector()).strategy(tasks, workers) for _ in range(3)]
    assert placements == [{"one": tasks}] * 3
    assert len(caplog.messages) == 1


def test_deterministic_strategy_is_not_reported(caplog):
    memory = PlacementMemory()
    pool = ConnectorPool([memory.guard(Connector("mine", 3, by_number))])
    for name in ("one", "two", "zoe"):
        pool.join(name)
        pool.settle()
    assert not caplog.records
    sticky = Connector("stay", 3, "sticky")
    assert memory.guard(sticky) is sticky


def test_invalid_placement_is_not_remembered():
    results = [{}, {"one": ["mine/0"]}]
    strategy = PlacementMemory().guard(Connector("mine", 1, lambda *_: results.pop(0))).strategy
    with pytest.raises(ValueError, match=r"connector 'mine': .* no worker for mine/0"):
        strategy(["mine/0"], ["one"])
    assert strategy(["mine/0"], ["one"]) == {"one": ["mine/0"]}


def test_invalid_connectors_raise():
    with pytest.raises(ValueError, match="without '/'"):
        Connector("a/b", 1)
    with pytest.raises(ValueError, match="tasks=-1: expected an integer of 0 or more"):
        Connector("a", -1)
    with pytest.raises(ValueError, match="strategy must be 'balanced'"):
        Connector("a", 1, "random")
    with pytest.raises(ValueError, match="two connectors are named 'a'"):
        split_units([Connector("a", 1), Connector("a", 2)])
    with pytest.raises(ValueError, match="unit 'a/0' has the name of a connector"):
        split_units(["a/0", Connector("a", 1)])
    with pytest.raises(TypeError, match="units must be strings, not 1"):
        split_units([1])


STRATEGIES = st.sampled_from(["balanced", "sticky", by_number, on_last_worker])


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 5), STRATEGIES), max_size=4),
    st.lists(st.tuples(st.booleans(), st.sampled_from("vwxyz")), max_size=15),
)
def test_worker_changes_end_as_each_strategy_states(described, steps):
    connectors = [
        Connector(f"c{number}", tasks, strategy)
        for number, (tasks, strategy) in enumerate(described)
    ]
    pool = ConnectorPool(connectors, "pq")
    pool.join("v")
    for comes, name in steps:
        if comes and name not in pool.owned:
            pool.join(name)
        elif not comes and len(pool.owned) > 1:
            pool.owned.pop(name, None)
        pool.round(passed_ms=100)
    pool.settle_after_delay()
    plain = {"p", "q", *(each.name for each in connectors)}
    units = plain.union(*(each.task_units for each in connectors))
    assert sorted(unit for its in pool.owned.values() for unit in its) == sorted(units)
    groups = [plain, *(each.task_units for each in connectors if each.strategy == "balanced")]
    for group in groups:
        least, *_, most = [*pool.counts(group), max(pool.counts(group))]
        assert most - least <= 1
    for each in connectors:
        if callable(each.strategy):
            wanted = each.strategy(each.task_units, sorted(pool.owned))
            for name, its in pool.owned.items():
                assert its.intersection(each.task_units) == set(wanted.get(name, ()))
        elif each.strategy == "sticky":
            assert set(pool.stopped).isdisjoint(each.task_units)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 3))
def test_balanced_totals_differ_by_at_most_one(tasks, first, more):
    pool = ConnectorPool([Connector(f"c{number}", count) for number, count in enumerate(tasks)])
    names = list("rstuvwx")
    pool.join(*names[:first])
    pool.settle()
    pool.join(*names[first : first + more])
    pool.settle()
    loads = sorted(map(len, pool.owned.values()))
    assert loads[-1] - loads[0] <= 1
    stopped = len(pool.stopped)
    pool.settle()
    assert len(pool.stopped) == stopped

"""Assignment of units to workers over several generations."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from partage.recipes.unit_assignor import PoolSnapshot, PoolWorker, assign_units

DELAY_MS = 1000
UNITS = list("abcdef")


class Pool:
    """Workers that follow the assignment, without a group."""

    def __init__(self, units=UNITS):
        self.units = list(units)
        self.owned = {}
        self.view = PoolSnapshot()
        self.generation = 0
        self.stops = []  # units that had to stop, by generation

    def round(self, passed_ms=0):
        """Run one generation; return True if another one is needed at once."""
        self.generation += 1
        waited = {unit: ms + passed_ms for unit, ms in self.view.waited_ms.items()}
        view = PoolSnapshot(self.view.generation, self.view.placed, waited)
        workers = [PoolWorker(n, n, frozenset(its), view) for n, its in self.owned.items()]
        self.plan = plan = assign_units(self.units, workers, DELAY_MS, self.generation)
        begun = [u for n, its in plan.units.items() for u in its if u not in self.owned[n]]
        busy = {unit for its in self.owned.values() for unit in its}
        assert not busy.intersection(begun), "a unit began while it ran elsewhere"
        self.stops.append(sorted(busy - {u for its in plan.units.values() for u in its}))
        self.owned = {name: set(its) for name, its in plan.units.items()}
        self.view = plan.view
        return bool(plan.moving)

    def settle(self):
        for _ in range(5):
            if not self.round():
                return
        raise AssertionError("it does not settle")

    def join(self, *names):
        self.owned |= {name: set() for name in names}

    @property
    def loads(self):
        return sorted(len(its) for its in self.owned.values())


def test_single_worker_has_all_units():
    pool = Pool()
    pool.join("one")
    pool.settle()
    assert pool.owned == {"one": set(UNITS)}


def test_new_worker_gets_share_and_others_continue():
    pool = Pool()
    pool.join("one")
    pool.settle()
    pool.join("two")
    pool.settle()
    assert pool.loads == [3, 3]
    assert [len(stops) for stops in pool.stops] == [0, 3, 0]


def test_lost_workers_units_wait():
    pool = Pool()
    pool.join("one", "two")
    pool.settle()
    gone = pool.owned.pop("two")
    pool.settle()
    assert pool.owned["one"].isdisjoint(gone)
    assert set(pool.view.waited_ms) == gone
    assert pool.plan.again_ms == DELAY_MS
    pool.round(passed_ms=400)
    assert pool.plan.again_ms == 600
    pool.round(passed_ms=600)
    assert pool.owned == {"one": set(UNITS)}
    assert pool.plan.again_ms is None


def test_returning_worker_gets_units_back():
    pool = Pool()
    pool.join("one", "two")
    pool.settle()
    before = {name: set(its) for name, its in pool.owned.items()}
    del pool.owned["two"]
    pool.settle()
    pool.join("two")
    pool.settle()
    assert pool.owned == before
    assert not any(pool.stops)


def test_worker_that_joins_after_all_units_stopped_gets_its_share():
    pool = Pool()
    pool.join("one", "two")
    pool.settle()
    pool.owned = {"one": set(), "two": set()}  # the coordinator did not answer
    pool.join("three")
    assert not pool.round()  # the units start again on their former workers
    assert pool.loads == [0, 3, 3]
    assert pool.plan.again_ms == 0
    pool.settle()
    assert pool.loads == [2, 2, 2]
    assert pool.plan.again_ms is None


def test_lost_units_move_after_delay():
    pool = Pool()
    pool.join("one", "two")
    pool.settle()
    del pool.owned["two"]
    pool.settle()
    pool.join("three")
    pool.settle()
    assert pool.loads == [0, 3]  # nothing moves while a unit waits
    pool.round(passed_ms=DELAY_MS)
    pool.settle()
    assert pool.loads == [3, 3]
    assert not any(pool.stops)


def test_added_and_removed_units():
    pool = Pool()
    pool.join("one", "two")
    pool.settle()
    pool.units = [*UNITS[1:], "g", "h"]
    pool.settle()
    assert set().union(*pool.owned.values()) == set(pool.units)


def test_no_delay_moves_lost_units_at_once():
    workers = [
        PoolWorker(
            "one", "one", frozenset("ab"), PoolSnapshot(1, {"a": "one", "b": "one", "c": "x"})
        )
    ]
    assert assign_units("abc", workers, 0).units == {"one": ["a", "b", "c"]}


def test_two_workers_claim_one_unit():
    workers = [PoolWorker(name, name, frozenset("a")) for name in ("one", "two")]
    assert assign_units("a", workers, 0).units == {"one": ["a"], "two": []}


@settings(max_examples=200)
@given(st.lists(st.tuples(st.booleans(), st.sampled_from("vwxyz")), max_size=25))
def test_worker_changes_end_balanced(steps):
    pool = Pool()
    pool.join("v")
    for comes, name in steps:
        if comes and name not in pool.owned:
            pool.join(name)
        elif not comes and len(pool.owned) > 1:
            pool.owned.pop(name, None)
        pool.round(passed_ms=100)
    pool.round(passed_ms=DELAY_MS)
    pool.round(passed_ms=DELAY_MS)
    pool.settle()
    done = sorted(unit for its in pool.owned.values() for unit in its)
    assert done == UNITS
    assert pool.loads[-1] - pool.loads[0] <= 1

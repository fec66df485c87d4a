"""Worker pools: only units that must move stop, and no unit runs twice at the same time."""

from __future__ import annotations

import asyncio
import itertools
import sys

import pytest

from client.group_admin import remove_member
from partage.client.group.driver import now_ms
from partage.client.group.errors import AssignmentFailedError
from partage.recipes import Connector, WorkerPool, lease_guard
from polled_conditions import eventually_async

from .settings import QUICK, run

UNITS = list("abcdef")


@pytest.fixture
def servers(partage_broker):
    return partage_broker.bootstrap_servers


class Log:
    """Records which units run, started and stopped."""

    def __init__(self):
        self.running = set()
        self.begun = []
        self.stopped = []
        self.twice = []

    async def __call__(self, unit):
        if unit in self.running:
            self.twice.append(unit)
        self.running.add(unit)
        self.begun.append(unit)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)  # longer than a request, so that an overlap is noticed
            self.running.discard(unit)
            self.stopped.append(unit)


@pytest.fixture
def log():
    log = Log()
    yield log
    assert not log.twice
    assert not log.running


def worker(servers, log, name, units=UNITS, **options):
    settled = {**QUICK, "rebalance_delay_ms": 60_000, **options}
    return WorkerPool(servers, "pool", units, log, name=name, **settled)


def level(*pools):
    """True if all units run and are evenly distributed."""
    loads = [len(pool.units) for pool in pools]
    done = sorted(unit for pool in pools for unit in pool.units)
    return done == UNITS and max(loads) - min(loads) <= 1


def test_new_worker_gets_share_and_others_continue(servers, log):
    async def main():
        async with worker(servers, log, "one") as one:
            await eventually_async(lambda: level(one))
            async with worker(servers, log, "two") as two:
                await eventually_async(lambda: level(one, two) and len(log.running) == 6)
                assert sorted(log.stopped) == sorted(two.units)
                assert len(log.begun) == 9

    run(main())


def test_lost_workers_units_move_after_delay(servers, log):
    async def main():
        slow = {"rebalance_delay_ms": 200}
        async with worker(servers, log, "one", **slow) as one:
            async with worker(servers, log, "two", **slow) as two:
                await eventually_async(lambda: level(one, two))
                its = two.units
                stopped = len(log.stopped)
            await eventually_async(lambda: one.delayed_units == its)
            assert one.units.isdisjoint(its)
            await eventually_async(lambda: level(one))
            assert len(log.stopped) == stopped + 3

    run(main())


def test_restarted_worker_gets_units_back(servers, log):
    async def main():
        async with worker(servers, log, "one") as one:
            async with worker(servers, log, "two") as two:
                await eventually_async(lambda: level(one, two))
                its = two.units
            await eventually_async(lambda: one.delayed_units == its)
            async with worker(servers, log, "two") as again:
                await eventually_async(lambda: again.units == its)
                assert one.units == set(UNITS) - its
                assert not one.delayed_units

    run(main())


def test_expired_worker_stops_and_gets_units_back(servers, log):
    async def main():
        async with worker(servers, log, "one") as one:
            await eventually_async(lambda: len(log.running) == 6)
            await remove_member(servers, "pool", one.membership.member_id)
            await eventually_async(lambda: len(log.begun) == 12)
            assert len(log.stopped) == 6

    run(main())


def test_silent_coordinator_stops_and_restarts_units(partage_broker_process, log):
    servers = partage_broker_process.bootstrap_servers

    async def main():
        async with worker(servers, log, "one", session_timeout_ms=500, stop_ms=200) as one:
            await eventually_async(lambda: len(log.running) == 6)
            await asyncio.to_thread(partage_broker_process.kill)
            await eventually_async(lambda: not one.units)
            assert not log.running
            await asyncio.to_thread(partage_broker_process.start)
            await eventually_async(lambda: len(log.running) == 6)

    run(main())


def test_suspended_worker_is_not_active(servers, log, monkeypatch):
    async def main():
        async with worker(servers, log, "one") as one:
            await eventually_async(lambda: one.units == set(UNITS))
            assert one.is_active("a")
            assert not one.is_active("z")
            monkeypatch.setattr(lease_guard, "now_ms", lambda: now_ms() + 3_000)
            assert one.units == set(UNITS)
            assert not one.is_active("a")

    run(main())


def test_refresh_applies_changed_units(servers, log):
    units = ["a", "b"]

    async def main():
        async with worker(servers, log, "one", lambda: list(units)) as one:
            await eventually_async(lambda: one.units == {"a", "b"})
            units[:] = ["b", "c"]
            one.refresh()
            await eventually_async(lambda: one.units == {"b", "c"})
            assert log.stopped == ["a"]

    run(main())


def test_failed_work_is_logged_and_others_continue(servers, caplog):
    async def work(unit):
        if unit == "a":
            raise LookupError("mine")
        await asyncio.Event().wait()

    async def main():
        async with worker(servers, work, "one") as one:
            await eventually_async(lambda: "LookupError: mine" in caplog.text)
            assert one.units == set(UNITS)

    run(main())
    assert "unit a failed" in caplog.text


def test_invalid_arguments_raise(servers, log):
    with pytest.raises(TypeError, match="group_instance_id"):
        worker(servers, log, "one", group_instance_id="x")
    with pytest.raises(ValueError, match=r"a list: \['abc'\]"):
        worker(servers, log, "one", "abc")
    with pytest.raises(TypeError, match="units must be strings, not 2"):
        worker(servers, log, "one", ["1", 2])
    with pytest.raises(ValueError, match="a string that is not empty"):
        worker(servers, log, "")
    with pytest.raises(TypeError, match="name=1: expected a string"):
        worker(servers, log, 1)
    with pytest.raises(ValueError, match="rebalance_delay_ms=-1: expected an integer"):
        worker(servers, log, "one", rebalance_delay_ms=-1)


def test_units_from_function_are_validated(servers, log):
    async def main():
        async with worker(servers, log, "one", lambda: [1, 2]) as one:
            with pytest.raises(AssignmentFailedError, match="units must be strings, not 1"):
                await one.membership.assignment()

    run(main())


def test_connector_tasks_get_their_config_and_restart_when_it_changes(servers, log):
    connectors = [Connector("jdbc", 1, config={"table": "old"}), "other"]

    async def main():
        async with worker(servers, log, "one", lambda: list(connectors)) as one:
            await eventually_async(lambda: one.units == {"jdbc", "jdbc/0", "other"})
            assert one.config_of("jdbc/0") == {"table": "old"}
            assert one.config_of("other") == {}
            connectors[0] = Connector("jdbc", 1, config={"table": "new"})
            one.refresh()
            await eventually_async(lambda: one.config_of("jdbc/0") == {"table": "new"})
            await eventually_async(lambda: len(log.begun) == 5)
            assert sorted(log.stopped) == ["jdbc", "jdbc/0"]

    run(main())


def test_nondeterministic_strategy_stops_no_task_in_later_generations(servers, log, caplog):
    calls = itertools.count()

    def alternate(tasks, workers):
        return {workers[next(calls) % len(workers)]: tasks}

    connector = Connector("mine", 2, alternate)

    async def main():
        async with (
            worker(servers, log, "one", [connector]) as one,
            worker(servers, log, "two", [connector]) as two,
        ):
            generation = (await two.membership.assignment()).generation
            for number in range(6):
                if number == 2:  # The tasks have moved because of the second worker, if necessary.
                    stopped = list(log.stopped)
                one.refresh()
                generation = (await one.membership.assignment(generation)).generation
                await eventually_async(lambda: len(log.running) == 3)
            assert log.stopped == stopped

    run(main())
    assert "the strategy of connector 'mine' returned different placements" in caplog.text


WORKER_PROCESS = """
import asyncio, sys
from partage.recipes import Connector, WorkerPool

async def work(unit):
    print(unit, flush=True)
    await asyncio.Event().wait()

async def main():
    connectors = [Connector("even", 4), Connector("stay", 2, "sticky")]
    options = {"heartbeat_interval_ms": 30, "session_timeout_ms": 3_000}
    async with WorkerPool(
        sys.argv[1], "pool", connectors, work, name="two", rebalance_delay_ms=100, **options
    ) as pool:
        await asyncio.Event().wait()

asyncio.run(main())
"""


def test_killed_workers_connector_tasks_move(servers, log):
    even, stay = Connector("even", 4), Connector("stay", 2, "sticky")
    everything = {"even", "stay", *even.task_units, *stay.task_units}

    async def main():
        pool = worker(servers, log, "one", [even, stay], rebalance_delay_ms=100)
        async with pool as one:
            await eventually_async(lambda: one.units == everything)
            other = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", WORKER_PROCESS, servers), stdout=asyncio.subprocess.PIPE
            )
            try:
                # Its share is one of the connectors and two of the balanced tasks.
                moved = {(await other.stdout.readline()).decode().strip() for _ in range(3)}
                assert one.units == everything - moved
                assert len(moved.intersection(even.task_units)) == 2
                assert moved.isdisjoint(stay.task_units)
            finally:
                other.kill()
                await other.wait()
            begun = sorted([*everything, *moved])
            await eventually_async(lambda: sorted(log.begun) == begun)
            assert one.units == everything
            assert set(log.stopped) == moved

    run(main())

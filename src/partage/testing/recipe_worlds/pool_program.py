"""The worlds of `WorkerPool`: each unit runs on one worker at a time, and in the end on one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from partage.recipes.connectors import Connector
from partage.recipes.pool import WorkerPool
from partage.testing.recipe_worlds.exclusive_work import ExclusiveWork
from partage.testing.recipe_worlds.recipe_process import InjectedError, RecipeProcess
from partage.testing.recipe_worlds.recipe_program import GROUP, RecipeProgram
from partage.testing.recipe_worlds.scenario import RecipeScenario
from partage.testing.world.world import PartageWorld

_TURN_S: Final = 0.3
_STABLE_S: Final = 15.0
_CONNECTOR: Final = "c"


class PoolProcess(RecipeProcess):
    """A worker of a pool."""

    def __init__(
        self,
        name: str,
        world: PartageWorld,
        scenario: RecipeScenario,
        work: ExclusiveWork,
        units: Callable[[], list[str | Connector]],
    ) -> None:
        super().__init__(name, world, scenario)
        self.work = work
        self.pool: WorkerPool | None = None
        self._all_units = units

    @property
    def is_working(self) -> bool:
        return self.pool is not None and bool(self.pool.units)

    async def refresh(self) -> None:
        """Request the units again."""
        assert self.pool is not None
        self.pool.refresh()

    def _units(self) -> list[str | Connector]:
        if self.fails_now():
            raise InjectedError
        return self._all_units()

    async def run_once(self) -> None:
        self.pool = pool = WorkerPool(
            self.world.bootstrap_servers,
            GROUP,
            self._units,
            lambda unit: self._do_work(pool, unit),
            name=self.name,
            rebalance_delay_ms=self.scenario.rebalance_delay_ms,
            stop_ms=self.scenario.stop_ms,
            **self.scenario.group_options,
        )
        await pool.membership.start()
        while not self.must_leave:
            await self.perform_requests()
            if self.fails_now():
                pool.refresh()
            await asyncio.sleep(_TURN_S)
        await self.close(pool)
        if pool.units:
            self.world.break_rule("stopped", f"{self.name} has {pool.units} after close")
        for unit in self.work.units:
            for run in self.work.runs(unit):
                if run.process.name == self.name:
                    self.world.break_rule("stopped", f"{run} runs after close")
        self.pool = None

    async def _do_work(self, pool: WorkerPool, unit: str) -> None:
        run = self.work.begin(unit, lambda: pool.is_active(unit))
        config = pool.config_of(unit)
        try:
            while True:
                if pool.is_active(unit):
                    self.work.step(run)
                await asyncio.sleep(self.rng.uniform(0, self.scenario.step_s))
                if pool.config_of(unit) != config:
                    self.world.break_rule("config", f"{run} continues with another configuration")
                if not self.is_calm and self.rng.random() < self.scenario.failure_share / 10:
                    raise InjectedError
        finally:
            try:
                await self.clean_up()
            finally:
                self.work.end(run)


class PoolProgram(RecipeProgram[PoolProcess]):
    """The workers of a pool."""

    def __init__(self, world: PartageWorld, scenario: RecipeScenario) -> None:
        self.work = ExclusiveWork(world, lambda: self.cleanup_s)
        self._units = [f"unit-{number + 1}" for number in range(scenario.units)]
        self._task_count = 2 if scenario.seed % 3 == 0 else 0
        self._config = {"version": "1"}
        super().__init__(world, scenario)

    @property
    def work_count(self) -> int:
        return self.work.step_count

    def create_process(self, name: str) -> PoolProcess:
        return PoolProcess(name, self.world, self.scenario, self.work, self._described)

    def _described(self) -> list[str | Connector]:
        found: list[str | Connector] = list(self._units)
        if self._task_count:
            found.append(Connector(_CONNECTOR, self._task_count, config=dict(self._config)))
        return found

    @property
    def _all_units(self) -> list[str]:
        tasks = [f"{_CONNECTOR}/{number}" for number in range(self._task_count)]
        return sorted([*self._units, *tasks, *([_CONNECTOR] if tasks else [])])

    def _holders(self) -> dict[str, list[str]]:
        """Return the workers of each unit."""
        found: dict[str, list[str]] = {unit: [] for unit in self._all_units}
        for name, process in self.processes.items():
            if self.world.is_running(name) and not process.is_stopped and process.pool is not None:
                for unit in process.pool.units:
                    found.setdefault(unit, []).append(name)
        return found

    def _is_settled(self) -> bool:
        """True if each unit has one worker, and the loads differ by at most one."""
        if any(p.pool is None and not p.is_stopped for p in self.processes.values()):
            return False
        holders = self._holders()
        if list(holders) != self._all_units or any(len(each) != 1 for each in holders.values()):
            return False
        loads = Counter(each[0] for each in holders.values())
        counts = [loads[n] for n, p in self.processes.items() if not p.is_stopped]
        return max(counts) - min(counts) <= 1

    def _runs(self) -> dict[str, object]:
        """Return the work of each unit that runs."""
        return {unit: tuple(self.work.runs(unit)) for unit in self._all_units}

    async def check(self) -> None:
        await self.wait("liveness", "one worker for each unit", self._is_settled, self.recovery_s)
        await asyncio.sleep(self.recovery_s)
        await self.wait("liveness", "one worker for each unit", self._is_settled, self.handover_s)
        for process in self.processes.values():
            process.cleanup_s = 1.5 * self.scenario.stop_s + 0.5
        runs = self._runs()
        await asyncio.sleep(_STABLE_S)
        await self._expect_unmoved(runs, set(), "without any fault")
        await self._check_return()
        await self._check_loss()
        await self._check_units()

    async def _expect_unmoved(self, before: dict[str, object], moving: set[str], when: str) -> None:
        after = self._runs()
        moved = [unit for unit in before if unit not in moving and before[unit] != after.get(unit)]
        if moved:
            await self.fail("stable", f"units were stopped {when}: {moved}")

    async def _check_return(self) -> None:
        """A worker leaves and comes back in time: its units return, and no other unit moves."""
        if self.scenario.rebalance_delay_ms < 10_000:
            return
        name = next(iter(self.processes))
        holders, runs = self._holders(), self._runs()
        its = {unit for unit, names in holders.items() if names == [name]}
        await self.stop(name)
        await asyncio.sleep(2)
        others = [p.pool for n, p in self.processes.items() if n != name and p.pool is not None]
        if any(pool.delayed_units != its for pool in others):
            found = [sorted(pool.delayed_units) for pool in others]
            await self.fail("delay", f"{sorted(its)} wait for {name}, but delayed are {found}")
        self.start(name)
        await self.wait(
            "delay", f"the return of {name}", lambda: self._holders() == holders, self.handover_s
        )
        await self._expect_unmoved(runs, its, f"when {name} came back")

    async def _check_loss(self) -> None:
        """A worker leaves for longer: others get its units, and give some up when it returns."""
        name = next(iter(self.processes))
        runs = self._runs()
        its = {unit for unit, names in self._holders().items() if names == [name]}
        await self.stop(name)
        delay_s = self.scenario.rebalance_delay_ms / 1000
        await self.wait(
            "liveness", f"the units of {name}", self._is_settled, delay_s + self.handover_s
        )
        if len(self.processes) > 2 or self.scenario.rebalance_delay_ms == 0:
            await self._expect_unmoved(runs, its, f"when {name} left")
        runs, count = self._runs(), self.work.begin_count
        self.start(name)
        await self.wait("liveness", f"units for {name}", self._is_settled, 2 * self.handover_s)
        moved = {unit for unit, names in self._holders().items() if names == [name]}
        await self._expect_unmoved(runs, moved, f"when {name} joined")
        if self.work.begin_count - count > len(moved):
            await self.fail("stable", f"{name} got {len(moved)} units, but more started")

    async def _check_units(self) -> None:
        """The units change."""
        runs = self._runs()
        removed = self._units[0]
        self._units[:] = [*self._units[1:], "unit-new"]
        self._config["version"] = "2"
        process = next(iter(self.processes.values()))
        await process.request(process.refresh)

        def is_current() -> bool:
            return self._is_settled() and not self.work.runs(removed) and self._has_config()

        await self.wait("liveness", "the changed units", is_current, 2 * self.handover_s)
        changed = {unit for unit in self._all_units if unit.startswith(_CONNECTOR)}
        await self._expect_unmoved(runs, {*changed, removed}, "when other units changed")

    def _has_config(self) -> bool:
        for unit, names in self._holders().items():
            pool = self.processes[names[0]].pool
            assert pool is not None
            if unit.startswith(_CONNECTOR) and pool.config_of(unit) != self._config:
                return False
        return True

"""The worlds of `Membership`: members that share units until each rebalance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from partage.client.errors import ClientError
from partage.client.group.driver import now_ms
from partage.client.group.membership_protocol import (
    GenerationMembers,
    MemberAssignment,
    MembershipListener,
)
from partage.client.membership import Membership
from partage.testing.recipe_worlds.exclusive_work import ExclusiveWork, WorkRun
from partage.testing.recipe_worlds.recipe_process import InjectedError, RecipeProcess
from partage.testing.recipe_worlds.recipe_program import GROUP, RecipeProgram
from partage.testing.recipe_worlds.scenario import RecipeScenario
from partage.testing.world.world import PartageWorld

_TURN_S: Final = 0.3
_STABLE_S: Final = 15.0
_UPDATE_SHARE: Final = 0.01


class Generations:
    """The states of all generations, with the rules ``agree`` and ``generation``."""

    def __init__(self, world: PartageWorld, units: list[str]) -> None:
        self._world = world
        self.units = units
        self._states: dict[int, dict[str, Any]] = {}
        self.count = 0

    def assign(self, generation: GenerationMembers) -> dict[str, Any]:
        """Divide the units, and tell each member about all.

        A static member that returns gets the state that its former member id had.
        """
        named = {member.member_id: member.metadata["name"] for member in generation.members}
        ids = list(named)
        owners = {unit: ids[number % len(ids)] for number, unit in enumerate(self.units)}
        versions = [
            [each.metadata["name"], each.metadata["version"]] for each in generation.members
        ]
        state = {"owners": owners, "versions": versions, "generation": generation.generation}
        return {
            member_id: {
                **state,
                "name": name,
                "units": [u for u, owner in owners.items() if owner == member_id],
            }
            for member_id, name in named.items()
        }

    def on_assigned(self, name: str, assignment: MemberAssignment) -> None:
        """Note what a member was told."""
        self.count += 1
        state = assignment.state
        if state["generation"] != assignment.generation:
            self._world.break_rule("agree", f"{name}: {assignment} has the state of another one")
        common = {key: state[key] for key in ("owners", "versions")}
        first = self._states.setdefault(assignment.generation, common)
        if first != common:
            self._world.break_rule("agree", f"{name}: {common} in the generation of {first}")
        if state["name"] != name:
            self._world.break_rule("agree", f"{name} has the state of {state['name']}")


class MembershipProcess(RecipeProcess):
    """A member that works on its units until it rejoins."""

    def __init__(
        self,
        name: str,
        world: PartageWorld,
        scenario: RecipeScenario,
        work: ExclusiveWork,
        generations: Generations,
    ) -> None:
        super().__init__(name, world, scenario)
        self.work = work
        self.generations = generations
        self.member: Membership | None = None
        self.version = 0
        #: The versions of all members that this member knows, with their names.
        self.versions: list[Any] = []
        self.generation = -1

    @property
    def is_working(self) -> bool:
        return self.member is not None and self.member.current_assignment is not None

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata for the leader."""
        return {"name": self.name, "version": self.version}

    async def run_once(self) -> None:
        self.versions, self.generation = [], -1
        listener = _Listener(self)
        options = dict(self.scenario.member_options)
        if self.scenario.is_static:
            options["group_instance_id"] = self.name
        self.member = member = Membership(
            self.world.bootstrap_servers,
            GROUP,
            "units",
            self.metadata,
            assign=self._assign,
            listener=listener,
            rebalance_timeout_ms=self.scenario.rebalance_timeout_ms,
            **options,
        )
        listener.member = member
        await member.start()
        while not self.must_leave:
            await self.perform_requests()
            try:
                await self._take_turn(member)
            except ClientError as error:
                self.report(error)
            await asyncio.sleep(_TURN_S)
        await self.close(member)
        if listener.runs or listener.is_called:
            self.world.break_rule("stopped", f"{self.name} has {listener.runs} after close")
        self.member = None

    def _assign(self, generation: GenerationMembers) -> dict[str, Any]:
        if self.fails_now():
            raise InjectedError
        return self.generations.assign(generation)

    async def _take_turn(self, member: Membership) -> None:
        try:
            async with asyncio.timeout(1):
                assignment = await member.assignment(after=self.generation)
        except TimeoutError:
            if not self.is_calm and self.rng.random() < _UPDATE_SHARE:
                await self.update()
            return
        if assignment.generation <= self.generation:
            self.world.break_rule("generation", f"{assignment} after {self.generation}")
        self.generation = assignment.generation
        self.versions = assignment.state["versions"]

    async def update(self) -> None:
        """Send other metadata."""
        assert self.member is not None
        self.version += 1
        self.member.update(self.metadata)


class _Listener(MembershipListener):
    """Works on the units of an assignment until it ends."""

    def __init__(self, process: MembershipProcess) -> None:
        self._process = process
        self.member: Membership | None = None
        self.runs: list[WorkRun] = []
        self.is_called = False
        self._generation = -1

    def _begin_call(self, method: str) -> None:
        if self.is_called:
            self._process.world.break_rule(
                "callbacks", f"{method} of {self._process.name} during another call"
            )
        self.is_called = True

    async def _stop(self, method: str) -> None:
        self._begin_call(method)
        if self.runs:
            if self._process.fails_now() and method == "on_rejoining":
                self._end_runs()
                self.is_called = False
                raise InjectedError
            await self._process.clean_up()
        self._end_runs()
        self.is_called = False

    def _end_runs(self) -> None:
        while self.runs:
            self._process.work.end(self.runs.pop())

    async def on_rejoining(self, assignment: MemberAssignment | None) -> None:
        await self._stop("on_rejoining")

    async def on_leaving(self, assignment: MemberAssignment) -> None:
        await self._stop("on_leaving")

    async def on_lost(self, reason: str) -> None:
        await self._stop("on_lost")

    async def on_assigned(self, assignment: MemberAssignment) -> None:
        self._begin_call("on_assigned")
        process, member = self._process, self.member
        assert member is not None
        if assignment.generation < self._generation:
            process.world.break_rule("generation", f"{assignment} after {self._generation}")
        self._generation = assignment.generation
        process.generations.on_assigned(process.name, assignment)
        self._end_runs()
        is_active = _is_active(member)
        for unit in assignment.state["units"]:
            self.runs.append(process.work.begin(unit, is_active))
            if is_active():
                process.work.step(self.runs[-1])
        await asyncio.sleep(process.rng.uniform(0, process.scenario.step_s))
        self.is_called = False


def _is_active(member: Membership) -> Callable[[], bool]:
    return lambda: (member.exclusive_until_ms or 0) > now_ms()


class MembershipProgram(RecipeProgram[MembershipProcess]):
    """The members of a group."""

    def __init__(self, world: PartageWorld, scenario: RecipeScenario) -> None:
        # Callbacks stop the work, and no callback is called at the end of the lease.
        self.work = ExclusiveWork(world, lambda: 0.0, lambda: self._is_stable)
        self._is_stable = False
        units = [f"unit-{number + 1}" for number in range(scenario.units)]
        self.generations = Generations(world, units)
        super().__init__(world, scenario)

    @property
    def work_count(self) -> int:
        return self.generations.count

    def create_process(self, name: str) -> MembershipProcess:
        return MembershipProcess(name, self.world, self.scenario, self.work, self.generations)

    @property
    def _present(self) -> list[MembershipProcess]:
        return [
            each
            for name, each in self.processes.items()
            if self.world.is_running(name) and not each.is_stopped
        ]

    def _is_settled(self) -> bool:
        """True if all members are in one generation, and know the newest metadata of all."""
        wanted = []
        for process in self._present:
            if process.member is None or process.member.current_assignment is None:
                return False
            wanted.append([process.name, process.version])
        known = [sorted(process.versions) for process in self._present]
        if self.scenario.is_static:  # the coordinator keeps the metadata of a returning member
            wanted = [[name, 0] for name, _ in wanted]
            known = [[[name, 0] for name, _ in each] for each in known]
        if any(each != wanted for each in known):
            return False
        generations = {process.generation for process in self._present}
        runs = [self.work.runs(unit) for unit in self.generations.units]
        return len(generations) == 1 and all(len(each) == 1 for each in runs)

    async def _settle(self, what: str, for_s: float) -> int:
        """Wait for a common generation, and return it."""
        await self.wait("liveness", what, self._is_settled, for_s)
        return self._present[0].generation

    async def check(self) -> None:
        await self._settle("one generation of all members", self.recovery_s)
        await asyncio.sleep(self.recovery_s)
        generation = await self._settle("one generation of all members", self.handover_s)
        self._is_stable = True
        await asyncio.sleep(_STABLE_S)
        await self._expect(generation, "without any fault")
        process = self._present[0]
        await process.request(process.update)
        await asyncio.sleep(self.handover_s)
        await self._expect(generation + 1, "for new metadata")
        name = process.name
        await self.stop(name)
        if not self.scenario.is_static:
            await self._expect(generation + 2, f"when {name} left")
        self.start(name)
        await self._settle(f"the return of {name}", self.handover_s)

    async def _expect(self, generation: int, when: str) -> None:
        found = await self._settle(f"one generation {when}", self.handover_s)
        if found != generation:
            await self.fail("stable", f"generation {found}, not {generation}, {when}")

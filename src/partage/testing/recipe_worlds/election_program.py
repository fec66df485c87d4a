"""The worlds of `LeaderElection`: one process at a time works, and in the end one does."""

from __future__ import annotations

import asyncio
from typing import Final

from partage.recipes.election import LeaderElection, Term
from partage.testing.recipe_worlds.exclusive_work import ExclusiveWork
from partage.testing.recipe_worlds.recipe_process import InjectedError, RecipeProcess
from partage.testing.recipe_worlds.recipe_program import GROUP, RecipeProgram
from partage.testing.recipe_worlds.scenario import RecipeScenario
from partage.testing.world.world import PartageWorld

UNIT: Final = "leadership"
_TURN_S: Final = 0.2
_RESIGN_SHARE: Final = 0.01
_PENALTY_S: Final = 2.0
#: No process leads earlier than this in a stable group for which nothing happens.
_STABLE_S: Final = 15.0


class ElectionProcess(RecipeProcess):
    """A participant in an election."""

    def __init__(
        self, name: str, world: PartageWorld, scenario: RecipeScenario, work: ExclusiveWork
    ) -> None:
        super().__init__(name, world, scenario)
        self.priority = self.rng.randrange(3)
        self.work = work
        self.election: LeaderElection | None = None
        #: True after a resignation, until `stand`.
        self.has_resigned = False
        self._must_stand = False
        self._failure: BaseException | None = None  # the last one of the work

    @property
    def is_working(self) -> bool:
        return self.election is not None and self.election.is_leader

    def create(self) -> LeaderElection:
        """Return a new recipe."""
        return LeaderElection(
            self.world.bootstrap_servers,
            GROUP,
            {"name": self.name},
            work=self.do_work,
            priority=self.priority,
            stop_ms=self.scenario.stop_ms,
            **self.scenario.group_options,
        )

    async def run_once(self) -> None:
        self.has_resigned = self._must_stand = False
        self.election = election = self.create()
        await election.membership.start()
        while not self.must_leave:
            try:
                await self._take_turn(election)
            except Exception as error:
                self.report(error)
            await asyncio.sleep(_TURN_S)
        await self.close(election)
        self.check_stopped("close")
        if election.is_leader:
            self.world.break_rule("stopped", f"{self.name} leads after close")
        self.election = None

    async def _take_turn(self, election: LeaderElection) -> None:
        await self.perform_requests()
        failure = election.failure
        if failure is not None and failure is not self._failure:
            self._failure = failure
            self._must_stand = self.is_out_after(failure)
        if self._must_stand:
            await asyncio.sleep(_PENALTY_S)
            await self.stand()
        elif election.is_leader and not self.is_calm and self.rng.random() < _RESIGN_SHARE:
            await self.resign()
            await asyncio.sleep(_PENALTY_S)
            await self.stand()
        elif self.rng.random() < 0.2:
            try:
                async with asyncio.timeout(1):
                    await self._wait_until_elected(election)
            except TimeoutError:
                pass

    async def _wait_until_elected(self, election: LeaderElection) -> None:
        term = await election.wait_until_elected()
        if not term.is_active:
            self.world.break_rule("stopped", f"{self.name} was elected for an ended term")
        leader = election.leader
        if leader is None or leader.token != term.token:
            self.world.break_rule("leader", f"{self.name} leads, but knows {leader}")

    def is_out_after(self, failure: BaseException) -> bool:
        """True if the process is no candidate after a failure of its work."""
        return True

    async def resign(self) -> None:
        """Resign, and check that the work has stopped."""
        assert self.election is not None
        await self.election.resign()
        self.has_resigned = True
        self.check_stopped("resign")

    async def stand(self) -> None:
        """Be a candidate again."""
        assert self.election is not None
        self.has_resigned = self._must_stand = False
        self.election.stand()

    def check_stopped(self, after: str) -> None:
        """Check that no work of this process runs."""
        for run in self.work.runs(UNIT):
            if run.process.name == self.name:
                self.world.break_rule("stopped", f"{run} runs after {after}")

    async def do_work(self, term: Term) -> None:
        """Work in a term."""
        if self.has_resigned:
            self.world.break_rule("resigned", f"{self.name} begins a term after it resigned")
        run = self.work.begin(UNIT, lambda: term.is_active, term.token)
        try:
            while True:
                if term.is_active:
                    self.work.step(run)
                await asyncio.sleep(self.rng.uniform(0, self.scenario.step_s))
                if self.fails_now():
                    if self.rng.random() < 0.5:
                        self._must_stand = True
                        return
                    raise InjectedError
        finally:
            try:
                await self.clean_up()
            finally:
                self.work.end(run)


class ElectionProgram(RecipeProgram[ElectionProcess]):
    """The processes of an election."""

    def __init__(self, world: PartageWorld, scenario: RecipeScenario) -> None:
        self.work = ExclusiveWork(world, lambda: self.cleanup_s)
        super().__init__(world, scenario)

    @property
    def work_count(self) -> int:
        return self.work.step_count

    def create_process(self, name: str) -> ElectionProcess:
        return ElectionProcess(name, self.world, self.scenario, self.work)

    @property
    def leaders(self) -> list[str]:
        """The names of the processes that lead."""
        return [
            name
            for name, process in self.processes.items()
            if self.world.is_running(name) and process.is_working
        ]

    def _is_settled(self) -> bool:
        """True if one process leads, works, and all know it."""
        names, runs = self.leaders, self.work.runs(UNIT)
        if len(names) != 1 or len(runs) != 1 or runs[0].process.name != names[0]:
            return False
        election = self.processes[names[0]].election
        assert election is not None
        token, member_id = runs[0].token, election.membership.member_id
        for name, process in self.processes.items():
            if not self.world.is_running(name) or process.is_stopped:
                continue
            leader = None if process.election is None else process.election.leader
            if leader is None or (leader.token, leader.member_id) != (token, member_id):
                return False
            if leader.identity != {"name": names[0]}:
                return False
        return True

    async def _settle(self, for_s: float) -> tuple[str, int]:
        """Wait for a leader; return its name and token."""
        await self.wait("liveness", "one leader that all know", self._is_settled, for_s)
        token = self.work.runs(UNIT)[0].token
        assert token is not None
        return self.leaders[0], token

    async def check(self) -> None:
        await self._settle(self.recovery_s)
        await asyncio.sleep(self.recovery_s)  # removed members of killed processes are due
        leader, token = await self._settle(0.1)
        await asyncio.sleep(_STABLE_S)
        await self._expect(leader, token, "without any fault")
        await self._check_bystander(leader, token)
        for process in self.processes.values():
            process.cleanup_s = 1.5 * self.scenario.stop_s + 0.5
        next_leader = await self._check_resignation(leader, token)
        await self._check_departure(next_leader)

    async def _expect(self, leader: str, token: int, when: str) -> None:
        if await self._settle(self.handover_s) != (leader, token):
            await self.fail("stable", f"the term {token} of {leader} ended {when}")

    async def _check_bystander(self, leader: str, token: int) -> None:
        """A process that does not lead leaves and comes back."""
        other = next(name for name in self.processes if name != leader)
        await self.stop(other)
        await self._expect(leader, token, f"when {other} left")
        self.start(other)
        await asyncio.sleep(self.handover_s)
        await self._expect(leader, token, f"when {other} joined")

    async def _check_resignation(self, leader: str, token: int) -> str:
        """The leader resigns, and the candidate with the highest priority follows."""
        process = self.processes[leader]
        await process.request(process.resign)
        follower, later = await self._settle(self.handover_s)
        if follower == leader or later <= token:
            await self.fail("liveness", f"{follower} leads with {later} after {leader} resigned")
        highest = max(p.priority for name, p in self.processes.items() if name != leader)
        if self.processes[follower].priority != highest:
            await self.fail("priority", f"{follower} was elected, but not with priority {highest}")
        await process.request(process.stand)
        await asyncio.sleep(self.handover_s)
        await self._expect(follower, later, f"when {leader} became a candidate")
        return follower

    async def _check_departure(self, leader: str) -> None:
        """The leader leaves."""
        await self.stop(leader)
        await self._settle(self.handover_s)

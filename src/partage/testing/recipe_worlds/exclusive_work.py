"""Judges which processes work, and which believe that only they may, by the true time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from partage.testing.world.process import WorldProcess, current_process
from partage.testing.world.world import PartageWorld

#: Callbacks of one moment run one after the other.
_MOMENT_S: Final = 0.002


class WorkRun:
    """One run of work.

    Attributes:
        unit: The work.
        process: The process that does it.
        is_active: Returns True if the recipe says that no other process may do it.
        token: The fencing token; None without one.
    """

    def __init__(
        self,
        unit: str,
        process: WorldProcess,
        is_active: Callable[[], bool],
        token: int | None,
    ) -> None:
        self.unit = unit
        self.process = process
        self.is_active = is_active
        self.token = token
        self.has_ended = False

    @property
    def is_alive(self) -> bool:
        """True until the work ends or its process is killed."""
        return not self.has_ended and not self.process.is_killed and not self.process.has_ended

    def __repr__(self) -> str:
        return f"{self.unit} in {self.process!r}"


class ExclusiveWork:
    """The rules about work that one process at a time may do.

    ``believers``: at no time two processes, paused or not, are certain by their clocks that the
    work is theirs. ``overlap``: work starts after it has ended in the former process. If a pause
    of that process included the moment at which its work was to stop, the work stops in its time
    after the pause. ``token``: tokens grow. ``fence``: steps that are guarded by ``is_active``
    happen in the order of the tokens.

    Args:
        world: The world.
        cleanup_s: Returns the longest time that work takes to stop, in seconds.
        judges_overlap: Returns False while work may continue after the end of the lease.
    """

    def __init__(
        self,
        world: PartageWorld,
        cleanup_s: Callable[[], float],
        judges_overlap: Callable[[], bool] = lambda: True,
    ) -> None:
        self._world = world
        self._cleanup_s = cleanup_s
        self._judges_overlap = judges_overlap
        self._runs: dict[str, list[WorkRun]] = {}
        self._tokens: dict[str, int] = {}
        self._stepped: dict[str, WorkRun] = {}
        self.begin_count = 0
        self.step_count = 0
        world.always(self.check)

    def begin(self, unit: str, is_active: Callable[[], bool], token: int | None = None) -> WorkRun:
        """Note that the running process begins work."""
        process = current_process.get()
        assert process is not None
        run = WorkRun(unit, process, is_active, token)
        self._world.note(f"{process.name} begins {unit} {'' if token is None else token}")
        self._runs.setdefault(unit, []).append(run)
        self.begin_count += 1
        if token is not None:
            if token <= self._tokens.get(unit, -1):
                self._world.break_rule(
                    "token", f"{run} has token {token} after {self._tokens[unit]}"
                )
            self._tokens[unit] = token
        self._check_unit(unit)
        return run

    def end(self, run: WorkRun) -> None:
        """Note that work has ended."""
        if not run.process.is_killed:
            self._check_unit(run.unit)
            self._world.note(f"{run.process.name} ends {run.unit}")
        run.has_ended = True

    def step(self, run: WorkRun) -> None:
        """Note a step for which ``is_active`` was True just before."""
        self.step_count += 1
        last = self._stepped.get(run.unit)
        if last is not None and last is not run:
            is_late = run.token is not None and run.token < (last.token or 0)
            if is_late:
                self._world.break_rule("fence", f"{run}: step after one of {last}")
        self._stepped[run.unit] = run

    @property
    def units(self) -> list[str]:
        """All units that have ever run."""
        return list(self._runs)

    def runs(self, unit: str) -> list[WorkRun]:
        """Return the work on a unit that has not ended, oldest first."""
        found = [run for run in self._runs.get(unit, ()) if run.is_alive]
        self._runs[unit] = found
        return found

    def check(self) -> None:
        """Check all units now."""
        for unit in list(self._runs):
            self._check_unit(unit)

    def _check_unit(self, unit: str) -> None:
        alive = self.runs(unit)
        if len(alive) < 2:
            return
        active = [run for run in alive if run.is_active()]
        if len(active) > 1:
            self._world.break_rule("believers", f"several processes are active: {active}")
        if not self._judges_overlap():
            return
        for run in alive[:-1]:
            if not run.process.is_paused and not self._may_stop(run):
                self._world.break_rule("overlap", f"{run} has not stopped before {alive[-1]}")

    def _may_stop(self, run: WorkRun) -> bool:
        """True if the process was paused, and its work has still time to stop."""
        limit_s = run.process.resumed_s + self._cleanup_s() + _MOMENT_S
        return run.process.resumed_s > 0 and self._world.elapsed_s <= limit_s

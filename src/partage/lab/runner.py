"""Run one scenario and return its verdict."""

from __future__ import annotations

import traceback
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from partage.lab.checkers import attach_checkers
from partage.lab.fault_plan import PlanStep
from partage.lab.faults import DEFERRED, FAULTS, KINDS
from partage.lab.history import Incident, RuleViolationError
from partage.lab.liveness import check_liveness
from partage.lab.scenario import Scenario, build_scenario
from partage.lab.world import World

#: The rule name for failed assertions, including those of the state machines.
INVARIANT = "invariant"


class Verdict(msgspec.Struct, kw_only=True):
    """Result of a scenario; ``rule`` is None if no rule was broken.

    ``faults`` counts the faults that took effect, by kind. ``group_events`` and ``consumer_events``
    count events by the state of the group or consumer (see `partage.lab.coverage`).
    """

    seed: int
    rule: str | None = None
    description: str = ""
    command: str = ""
    events: int = 0
    requests: int = 0
    generations: int = 0
    faults: dict[str, int] = {}
    group_events: dict[str, int] = {}
    consumer_events: dict[str, int] = {}


def draw_scenario(
    seed: int, kept: tuple[int, ...] | None = None, changes: dict[str, Any] | None = None
) -> Scenario:
    """Build the scenario of a seed, with all known faults. See `build_scenario`."""
    return build_scenario(seed, KINDS, kept, changes)


def execute_plan(world: World) -> None:
    """Start a world, inject the faults of its plan, and run it to the end of the fault phase."""
    world.start()
    begin_ms = world.now_ms
    for step in world.scenario.steps:
        world.clock.run(max(0, begin_ms + step.at_ms - world.now_ms))
        _inject_fault(world, step)
    world.clock.run(max(0, begin_ms + world.options.safety_ms - world.now_ms))


def _inject_fault(world: World, step: PlanStep) -> None:
    before = len(world.history.entries)
    if FAULTS[step.kind](world, Random(step.draw)):
        detail = "takes effect at the next matching operation"
        if step.kind not in DEFERRED:
            world.count_fault(step.kind)
            detail = ""
        incident = Incident(at_ms=world.now_ms, what=step.kind, detail=detail)
        world.history.entries.insert(before, incident)


def run_scenario(drawn: Scenario) -> tuple[World, Verdict]:
    """Run a scenario.

    Returns:
        The world in its final state, and the verdict.
    """
    world = World(drawn)
    has_transactions = drawn.options.transactional_producers > 0
    attach_checkers(
        world.history,
        world.settings,
        has_transactions=has_transactions,
        has_consumer_group=drawn.options.consumer_members > 0,
    )
    verdict = Verdict(seed=drawn.seed, command=drawn.rerun_command())
    error: Exception | None = None
    try:
        try:
            execute_plan(world)
            check_liveness(world)
        finally:
            world.end()
    except Exception as raised:
        error = raised
    error = world.history.failure or error
    if error is not None:
        verdict.rule, verdict.description = _describe(error)
    _count(world, verdict)
    return world, verdict


def _describe(error: Exception) -> tuple[str, str]:
    """Return the rule that an error breaks, and a description."""
    match error:
        case RuleViolationError():
            return error.rule, error.description
        case AssertionError():  # an invariant of a state machine, or an assumption of a shell
            rule = INVARIANT
        case _:  # a bug, which a real broker would log
            rule = type(error).__name__
    return rule, f"{error}\n{_traceback_summary(error)}"


def _traceback_summary(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    return " < ".join(
        f"{frame.name} ({Path(frame.filename).name}:{frame.lineno})" for frame in frames[::-1]
    )


def _count(world: World, verdict: Verdict) -> None:
    verdict.events = world.clock.events
    verdict.requests = world.requests
    verdict.generations = len(world.generations)
    verdict.faults = dict(Counter(world.faults))
    verdict.group_events = dict(world.group_coverage)
    verdict.consumer_events = dict(world.consumer_coverage)

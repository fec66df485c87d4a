"""Output of ``partage lab trace --json`` and ``partage lab shrink --json``."""

from __future__ import annotations

import msgspec

from partage.lab.environment.clock import START_MS
from partage.lab.runner import Verdict
from partage.lab.scenario import Scenario
from partage.lab.trace import describe_history
from partage.lab.world import World


class ScenarioStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of the plan. ``kept`` is False if the step was left out."""

    step: int
    kind: str
    at_ms: int
    kept: bool


class HistoryLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the history, with the time since the start of the world."""

    at_ms: int
    text: str


class TraceReport(msgspec.Struct, frozen=True, kw_only=True):
    """The history of a world. ``rule`` is null if no rule was broken.

    ``options`` has the texts that ``--set`` accepts, and ``command`` runs the world again.
    """

    seed: int
    options: dict[str, str]
    steps: list[ScenarioStep]
    history: list[HistoryLine]
    rule: str | None
    description: str
    command: str


def trace_report(
    scenario: Scenario, world: World, verdict: Verdict, *, verbose: bool = False
) -> TraceReport:
    """Return the report of a world that has run.

    Args:
        scenario: the scenario of the world.
        world: the world, with its history.
        verdict: the result of the run.
        verbose: True to include routine events.
    """
    kept = range(len(scenario.plan)) if scenario.kept is None else scenario.kept
    return TraceReport(
        seed=scenario.seed,
        options=scenario.option_texts(),
        steps=[
            ScenarioStep(step=at, kind=step.kind, at_ms=step.at_ms, kept=at in kept)
            for at, step in enumerate(scenario.plan)
        ],
        history=[
            HistoryLine(at_ms=entry.at_ms - START_MS, text=text)
            for entry, text in describe_history(world.history.entries, verbose=verbose)
        ],
        rule=verdict.rule,
        description=verdict.description,
        command=scenario.rerun_command(),
    )

"""One scenario from its first event to its verdict."""

from __future__ import annotations

import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from partage.lab.checkers import watch
from partage.lab.faults import KINDS
from partage.lab.history import Violation
from partage.lab.options import Scenario, scenario
from partage.lab.peace import live_on
from partage.lab.world import World

#: The rule that our own assertions stand for, those of the cores among them.
INVARIANT = "invariant"


class Verdict(msgspec.Struct, kw_only=True):
    """What came of a scenario; ``rule`` is None where nothing was violated.

    ``faults`` counts what struck by its kind; ``met`` and ``met_by_consumers`` events by the state
    that they found a group or a consumer in (`partage.lab.coverage`).
    """

    seed: int
    rule: str | None = None
    story: str = ""
    command: str = ""
    events: int = 0
    requests: int = 0
    generations: int = 0
    faults: dict[str, int] = {}
    met: dict[str, int] = {}
    met_by_consumers: dict[str, int] = {}


def draw(
    seed: int, kept: tuple[int, ...] | None = None, changes: dict[str, Any] | None = None
) -> Scenario:
    """The scenario of a seed, of all the faults there are."""
    return scenario(seed, KINDS, kept, changes)


def live(drawn: Scenario) -> tuple[World, Verdict]:
    """Live through a scenario; the world as it was at its end, and the verdict."""
    world = World(drawn)
    watch(world.history, world.settings)
    verdict = Verdict(seed=drawn.seed, command=drawn.command())
    try:
        world.run()
        live_on(world)
    except Violation as violation:
        verdict.rule, verdict.story = violation.rule, violation.story
    except AssertionError as error:  # an invariant of a core, or what a shell takes for granted
        verdict.rule, verdict.story = INVARIANT, f"{error}\n{_place(error)}"
    except Exception as error:  # a fault of ours, which the broker would log
        verdict.rule, verdict.story = type(error).__name__, f"{error}\n{_place(error)}"
    _count(world, verdict)
    return world, verdict


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    return " < ".join(
        f"{frame.name} ({Path(frame.filename).name}:{frame.lineno})" for frame in frames[::-1]
    )


def _count(world: World, verdict: Verdict) -> None:
    verdict.events = world.clock.events
    verdict.requests = world.requests
    verdict.generations = len(world.generations)
    verdict.faults = dict(Counter(world.faults))
    verdict.met = dict(world.met)
    verdict.met_by_consumers = dict(world.met_by_consumers)

"""The plan of a world: which faults are injected, and when."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import NamedTuple

import msgspec


class PlanStep(msgspec.Struct, frozen=True):
    """One step of the plan: time since the start of the world, kind of fault, and its own random
    seed.
    """

    at_ms: int
    kind: str
    draw: int


class NamedPlan(NamedTuple):
    """A part of a plan. Its name seeds its random generator, so that no part changes another one.

    ``kinds`` are the names of the faults, and ``steps`` is the number of steps.
    """

    name: str
    kinds: tuple[str, ...]
    steps: int


def draw_plan(seed: int, parts: Iterable[NamedPlan], until_ms: int) -> tuple[PlanStep, ...]:
    """Return the steps of all parts, in order of their times.

    Args:
        seed: The seed of the world.
        parts: The parts of the plan; steps at the same time are in their order.
        until_ms: The end of the plan, in ms after the start of the world.
    """
    plan = []
    for part in parts:
        rng = Random(f"{part.name} {seed}")
        plan += [
            PlanStep(
                at_ms=rng.randrange(500, until_ms),
                kind=rng.choice(part.kinds),
                draw=rng.getrandbits(32),
            )
            for _ in range(part.steps)
        ]
    return tuple(sorted(plan, key=lambda step: step.at_ms))

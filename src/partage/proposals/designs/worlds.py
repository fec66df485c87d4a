"""Checked worlds of the designs: each is given by a design, a seed, and the steps to keep."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import as_completed
from typing import Final

import msgspec

from partage.lab.worker_pool import ProcessPool
from partage.proposals.designs.catalog import find_design
from partage.proposals.designs.checked import CheckedDesign
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.simulation.trial import (
    FaultTrial,
    FaultVerdict,
    TrialStep,
    shrink_trial,
)

_CHUNK: Final = 20
_COORDINATOR: Final = CoordinatorSettings()
_MEMBER: Final = DesignMemberSettings(group_id="g")


class DesignVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of a world of a design; ``rule`` is None if no rule was broken."""

    design: str
    seed: int
    rule: str | None
    description: str
    steps: tuple[TrialStep, ...]
    command: str


def new_trial(
    name: str,
    seed: int,
    steps: Sequence[TrialStep] | None = None,
    *,
    reports_findings: bool = False,
) -> FaultTrial:
    """Return a world whose machines are checked after each event.

    With hashed subscriptions only one sub-group is active. All members subscribe to the same topics
    then, as otherwise some partitions would have no reader.

    Args:
        name: The design or variant.
        seed: The seed.
        steps: Steps to take instead of those that the seed gives.
        reports_findings: True if the verdict has also rules that the design breaks by construction.

    Raises:
        ValueError: There is no design of this name.
    """
    factory = find_design(name)
    return FaultTrial(
        lambda: CheckedDesign(factory(_COORDINATOR, _MEMBER)),
        seed,
        has_mixed_subscriptions="hashes" not in name,
        reports_findings=reports_findings,
        steps=steps,
    )


def run_world(
    name: str,
    seed: int,
    kept: Sequence[int] | None = None,
    *,
    reports_findings: bool = False,
) -> DesignVerdict:
    """Run a world.

    Args:
        name: The design or variant.
        seed: The seed.
        kept: The numbers of the steps to take; None takes all.
        reports_findings: True if the verdict has also rules that the design breaks by construction.

    Raises:
        ValueError: There is no design of this name, or no step of a number.
    """
    verdict = new_trial(name, seed, reports_findings=reports_findings).run()
    if kept is not None:
        plan = verdict.steps
        unknown = [number for number in kept if not 0 <= number < len(plan)]
        if unknown:
            raise ValueError(f"seed {seed} has no step {unknown[0]}: it has {len(plan)} steps")
        steps = [plan[number] for number in kept]
        verdict = new_trial(name, seed, steps, reports_findings=reports_findings).run()
    return describe_verdict(name, verdict, kept, reports_findings=reports_findings)


def shrink_world(name: str, seed: int, *, reports_findings: bool = False) -> DesignVerdict:
    """Return the world with the fewest steps that breaks the same rule.

    Args:
        name: The design or variant.
        seed: The seed.
        reports_findings: As in `new_trial`.

    Raises:
        NoBrokenRuleError: The world breaks no rule.
    """
    plan = new_trial(name, seed).run().steps
    smallest = shrink_trial(
        lambda steps: new_trial(name, seed, steps, reports_findings=reports_findings)
    )
    kept = [plan.index(step) for step in smallest.steps]
    return describe_verdict(name, smallest, kept, reports_findings=reports_findings)


def describe_verdict(
    name: str,
    verdict: FaultVerdict,
    kept: Sequence[int] | None,
    *,
    reports_findings: bool = False,
) -> DesignVerdict:
    """Return the verdict of a world with the command that runs the world again.

    Args:
        name: The design or variant.
        verdict: The verdict.
        kept: The numbers of the steps that were taken; None if all were.
        reports_findings: As in `new_trial`.
    """
    command = f"partage lab designs --design {name} --seed-from {verdict.seed} --seeds 1"
    if reports_findings:
        command += " --findings"
    if kept is not None:
        command += f" --keep {','.join(map(str, kept)) or 'none'}"
    return DesignVerdict(
        design=name,
        seed=verdict.seed,
        rule=verdict.rule,
        description=verdict.description,
        steps=verdict.steps,
        command=command,
    )


def run_worlds(
    names: Iterable[str], seeds: range, jobs: int, *, reports_findings: bool = False
) -> Generator[DesignVerdict]:
    """Run the worlds of some seeds of each design, and yield their verdicts as they complete.

    Args:
        names: The designs and variants.
        seeds: The seeds.
        jobs: The number of processes; 1 runs the worlds in this process.
        reports_findings: As in `new_trial`.

    Raises:
        concurrent.futures.process.BrokenProcessPool: A worker process was killed.
    """
    chunks = [
        (name, seeds[at : at + _CHUNK]) for at in range(0, len(seeds), _CHUNK) for name in names
    ]
    if jobs <= 1 or len(chunks) == 1:
        for name, some in chunks:
            for seed in some:
                yield run_world(name, seed, reports_findings=reports_findings)
        return
    with ProcessPool(min(jobs, len(chunks)), gc.freeze) as pool:
        futures = [pool.submit(_run_chunk, *chunk, reports_findings) for chunk in chunks]
        for future in as_completed(futures):
            yield from future.result()


def _run_chunk(name: str, seeds: Sequence[int], reports_findings: bool) -> list[DesignVerdict]:
    return [run_world(name, seed, reports_findings=reports_findings) for seed in seeds]

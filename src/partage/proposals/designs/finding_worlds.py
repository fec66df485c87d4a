"""The smallest worlds that show what a design breaks by construction."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterable, Sequence
from functools import partial
from typing import Final

import msgspec

from partage.lab.worker_pool import ProcessPool
from partage.proposals.designs.catalog import find_design
from partage.proposals.designs.worlds import DesignVerdict, describe_verdict, new_trial
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.simulation.design import Finding
from partage.proposals.simulation.trial import FaultVerdict, shrink_steps

#: The worlds that are searched. The first and last ones showed a finding of some design before.
SEEDS: Final = (
    *(206, 2362, 10, 28, 43, 51, 195, 311, 353, 1220, 1611, 2498, 1715),
    *range(150),
    *(5698, 6714, 2313),
)


class FindingWorld(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of a design, with the smallest world that was found for it.

    Attributes:
        design: The design.
        finding: The finding.
        world: The world; null if none of the searched ones shows the finding.
    """

    design: str
    finding: Finding
    world: DesignVerdict | None


def findings_of(name: str) -> tuple[Finding, ...]:
    """Return the findings of a design or variant.

    Raises:
        ValueError: There is no design of this name.
    """
    return find_design(name)(CoordinatorSettings(), DesignMemberSettings(group_id="g")).findings


def find_worlds(names: Iterable[str], jobs: int) -> Generator[FindingWorld]:
    """Search a world for each finding, and yield the findings in the order of the designs.

    Args:
        names: The designs and variants.
        jobs: The number of processes; 1 searches in this process.

    Raises:
        concurrent.futures.process.BrokenProcessPool: A worker process was killed.
    """
    pairs = [(name, number) for name in names for number in range(len(findings_of(name)))]
    if jobs <= 1 or len(pairs) <= 1:
        for name, number in pairs:
            yield _found(name, number, find_world(name, number))
        return
    with ProcessPool(min(jobs, len(pairs)), gc.freeze) as pool:
        futures = [pool.submit(find_world, *pair) for pair in pairs]
        for (name, number), future in zip(pairs, futures, strict=True):
            yield _found(name, number, future.result())


def _found(name: str, number: int, world: DesignVerdict | None) -> FindingWorld:
    return FindingWorld(design=name, finding=findings_of(name)[number], world=world)


def find_world(name: str, number: int, seeds: Iterable[int] | None = None) -> DesignVerdict | None:
    """Return the smallest world for a finding of a design.

    A world shows a finding if it breaks one of its rules under its faults, and under no fault that
    only another finding with the same rule has.

    Args:
        name: The design or variant.
        number: The index of the finding.
        seeds: The seeds to try; by default many.

    Returns:
        None if no world shows the finding.
    """
    findings = findings_of(name)
    finding = findings[number]
    alike = [each for each in findings if not set(each.rules).isdisjoint(finding.rules)]
    others = {fault for each in alike for fault in each.faults} - set(finding.faults)

    def shows(verdict: FaultVerdict) -> bool:
        has_fault = not finding.faults or not set(finding.faults).isdisjoint(verdict.faults)
        return has_fault and not verdict.broken.keys().isdisjoint(finding.rules)

    for seed in SEEDS if seeds is None else seeds:
        new = partial(new_trial, name, seed, reports_findings=True)
        verdict = new().run()
        if not shows(verdict):
            continue
        smallest = shrink_steps(verdict, new, shows)
        if others.isdisjoint(smallest.faults):
            return _describe(name, finding, verdict, smallest)
    return None


def _describe(
    name: str, finding: Finding, whole: FaultVerdict, smallest: FaultVerdict
) -> DesignVerdict:
    kept: Sequence[int] = [whole.steps.index(step) for step in smallest.steps]
    described = describe_verdict(name, smallest, kept, reports_findings=True)
    rule = next(each for each in finding.rules if each in smallest.broken)
    return msgspec.structs.replace(described, rule=rule, description=smallest.broken[rule])

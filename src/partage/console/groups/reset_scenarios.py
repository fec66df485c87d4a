"""The scenarios of ``partage groups reset-offsets``: from partitions to the offsets they go to."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

from confluent_kafka.admin import OffsetSpec

from partage.console.common.cluster_client import ClusterClient
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.offsets import ELECTION_WAIT_S, NO_RECORD, Place, list_offsets
from partage.console.common.output import note
from partage.console.groups.reset_arguments import (
    parse_datetime,
    parse_duration,
    read_offsets_file,
)


class ResetContext(NamedTuple):
    """Partitions of one group: where each begins and ends, and what is committed of them."""

    cluster: ClusterClient
    group: str
    earliest: Mapping[Place, int]
    latest: Mapping[Place, int]
    committed: Mapping[Place, int]


OffsetTarget: TypeAlias = Callable[[ResetContext], Mapping[Place, int]]
"""Where partitions are to go; an offset that one does not have stands for the nearest it has."""


class ResetScenario(NamedTuple):
    """What was asked for; ``listed`` are the offsets of a file, by group, where there is one."""

    target: OffsetTarget
    offsets_from_file: Mapping[str, Mapping[Place, int]] | None = None


def parse_scenario(given: Mapping[str, object], groups: list[str]) -> ResetScenario:
    """The one that was chosen of these options; False and None stand for those that were not.

    Raises:
        Failure: none or several were; or the one's value makes no sense.
    """
    chosen = [name for name, value in given.items() if value is not None and value is not False]
    if len(chosen) != 1:
        raise usage_error(f"reset-offsets requires one of {', '.join(given)}")
    match chosen[0], given[chosen[0]]:
        case "--to-earliest", _:
            return ResetScenario(lambda at: at.earliest)
        case "--to-latest", _:
            return ResetScenario(lambda at: at.latest)
        case "--to-current", _:
            return ResetScenario(lambda at: {**at.latest, **at.committed})
        case "--to-offset", int(offset):
            return ResetScenario(lambda at: dict.fromkeys(at.latest, offset))
        case "--shift-by", int(step):
            return ResetScenario(lambda at: _shifted(at, step))
        case "--to-datetime", str(text):
            at_ms = parse_datetime(text)
            return ResetScenario(lambda at: _since(at, at_ms))
        case "--by-duration", str(text):
            since_ms = time.time_ns() // 1_000_000 - parse_duration(text)
            return ResetScenario(lambda at: _since(at, since_ms))
        case "--from-file", Path() as path:
            listed = read_offsets_file(path, groups)
            return ResetScenario(lambda at: listed[at.group], listed)
    raise AssertionError(f"{chosen[0]} is no scenario")


def plan_offsets(scenario: ResetScenario, at: ResetContext) -> dict[Place, int]:
    """Where each partition goes, within what it has; a note tells of those that are held back."""
    plan = {}
    for place, offset in scenario.target(at).items():
        if place not in at.latest:
            continue
        kept = min(max(offset, at.earliest[place]), at.latest[place])
        if kept != offset:
            note(f"{place[0]}-{place[1]} has no offset {offset}; using the nearest, {kept}")
        plan[place] = kept
    return dict(sorted(plan.items()))


def _shifted(at: ResetContext, step: int) -> dict[Place, int]:
    missing = [
        f"{topic}-{partition}" for topic, partition in at.latest.keys() - at.committed.keys()
    ]
    if missing:
        raise CommandError(
            f"group {at.group} has no committed offset for {', '.join(sorted(missing))}; "
            "--shift-by needs one"
        )
    return {place: at.committed[place] + step for place in at.latest}


def _since(at: ResetContext, at_ms: int) -> dict[Place, int]:
    """The first records of that time; the end where all are older."""
    asked = OffsetSpec.for_timestamp(max(at_ms, 0))
    found = list_offsets(at.cluster, at.latest, asked, patience_s=ELECTION_WAIT_S)
    for topic, partition in sorted(at.latest.keys() - found.keys()):
        raise CommandError(f"partition {partition} of {topic} has no leader")
    return {
        place: at.latest[place] if offset == NO_RECORD else offset
        for place, offset in found.items()
    }

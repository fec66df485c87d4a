"""The scenarios of ``partage groups reset-offsets``: from partitions to the offsets they go to."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

from confluent_kafka.admin import OffsetSpec

from partage.console.cluster import Cluster
from partage.console.failure import Failure, misused
from partage.console.offsets import ELECTION_S, NO_RECORD, Place, offsets
from partage.console.reset_words import parse_datetime, parse_duration, read_offsets
from partage.console.show import note


class Partitions(NamedTuple):
    """Partitions of one group: where each begins and ends, and what is committed of them."""

    cluster: Cluster
    group: str
    firsts: Mapping[Place, int]
    ends: Mapping[Place, int]
    committed: Mapping[Place, int]


Target: TypeAlias = Callable[[Partitions], Mapping[Place, int]]
"""Where partitions are to go; an offset that one does not have stands for the nearest it has."""


class Scenario(NamedTuple):
    """What was asked for; ``listed`` are the offsets of a file, by group, where there is one."""

    target: Target
    listed: Mapping[str, Mapping[Place, int]] | None = None


def scenario(given: Mapping[str, object], groups: list[str]) -> Scenario:
    """The one that was chosen of these options; False and None stand for those that were not.

    Raises:
        Failure: none or several were; or the one's value makes no sense.
    """
    chosen = [name for name, value in given.items() if value is not None and value is not False]
    if len(chosen) != 1:
        raise misused(f"reset-offsets wants one of {', '.join(given)}")
    match chosen[0], given[chosen[0]]:
        case "--to-earliest", _:
            return Scenario(lambda at: at.firsts)
        case "--to-latest", _:
            return Scenario(lambda at: at.ends)
        case "--to-current", _:
            return Scenario(lambda at: {**at.ends, **at.committed})
        case "--to-offset", int(offset):
            return Scenario(lambda at: dict.fromkeys(at.ends, offset))
        case "--shift-by", int(step):
            return Scenario(lambda at: _shifted(at, step))
        case "--to-datetime", str(text):
            at_ms = parse_datetime(text)
            return Scenario(lambda at: _since(at, at_ms))
        case "--by-duration", str(text):
            since_ms = time.time_ns() // 1_000_000 - parse_duration(text)
            return Scenario(lambda at: _since(at, since_ms))
        case "--from-file", Path() as path:
            listed = read_offsets(path, groups)
            return Scenario(lambda at: listed[at.group], listed)
    raise AssertionError(f"{chosen[0]} is no scenario")


def planned(scenario: Scenario, at: Partitions) -> dict[Place, int]:
    """Where each partition goes, within what it has; a note tells of those that are held back."""
    plan = {}
    for place, offset in scenario.target(at).items():
        if place not in at.ends:
            continue
        kept = min(max(offset, at.firsts[place]), at.ends[place])
        if kept != offset:
            note(f"{place[0]}-{place[1]} has no offset {offset}; the nearest is {kept}")
        plan[place] = kept
    return dict(sorted(plan.items()))


def _shifted(at: Partitions, step: int) -> dict[Place, int]:
    missing = [f"{topic}-{partition}" for topic, partition in at.ends.keys() - at.committed.keys()]
    if missing:
        raise Failure(
            f"group {at.group} has nothing committed of {', '.join(sorted(missing))}, so there is "
            "nothing to shift"
        )
    return {place: at.committed[place] + step for place in at.ends}


def _since(at: Partitions, at_ms: int) -> dict[Place, int]:
    """The first records of that time; the end where all are older."""
    asked = OffsetSpec.for_timestamp(max(at_ms, 0))
    found = offsets(at.cluster, at.ends, asked, patience_s=ELECTION_S)
    for topic, partition in sorted(at.ends.keys() - found.keys()):
        raise Failure(f"partition {partition} of {topic} has no leader now")
    return {
        place: at.ends[place] if offset == NO_RECORD else offset for place, offset in found.items()
    }

"""Scenarios of ``partage groups reset-offsets``: functions from partitions to new offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

from confluent_kafka.admin import OffsetSpec

from partage.console.common.cluster_client import ClusterClient
from partage.console.common.datetime_option import parse_datetime
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.offsets import ELECTION_WAIT_S, NO_RECORD, list_offsets
from partage.console.common.output import note
from partage.console.groups.reset_arguments import parse_duration, read_offsets_file
from partage.model.topic_partition import TopicPartition


class ResetContext(NamedTuple):
    """Partitions of a group, with their first, end and committed offsets."""

    cluster: ClusterClient
    group: str
    earliest: Mapping[TopicPartition, int]
    latest: Mapping[TopicPartition, int]
    committed: Mapping[TopicPartition, int]


OffsetTarget: TypeAlias = Callable[[ResetContext], Mapping[TopicPartition, int]]
"""A function from partitions to new offsets. An offset out of range means the nearest valid one."""


class ResetScenario(NamedTuple):
    """A scenario.

    ``offsets_from_file`` has the offsets of ``--from-file`` by group; None without that option.
    """

    target: OffsetTarget
    offsets_from_file: Mapping[str, Mapping[TopicPartition, int]] | None = None


def parse_scenario(given: Mapping[str, object], groups: list[str]) -> ResetScenario:
    """Return the scenario for the options.

    Args:
        given: Values by option; False and None mean that an option was not given.
        groups: Groups to reset.

    Raises:
        CommandError: Not exactly one scenario was given, or its value is invalid.
    """
    chosen = [name for name, value in given.items() if value is not None and value is not False]
    if len(chosen) != 1:
        raise usage_error(f"reset-offsets requires exactly one of {', '.join(given)}")
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
            at_ms = parse_datetime(text, "--to-datetime")
            return ResetScenario(lambda at: _since(at, at_ms))
        case "--by-duration", str(text):
            since_ms = time.time_ns() // 1_000_000 - parse_duration(text)
            return ResetScenario(lambda at: _since(at, since_ms))
        case "--from-file", Path() as path:
            listed = read_offsets_file(path, groups)
            return ResetScenario(lambda at: listed[at.group], listed)
    raise AssertionError(f"{chosen[0]} is no scenario")


def plan_offsets(scenario: ResetScenario, at: ResetContext) -> dict[TopicPartition, int]:
    """Return the new offset of each partition, limited to its valid range.

    Prints a note for each offset that was out of range.
    """
    plan = {}
    for partition, offset in scenario.target(at).items():
        if partition not in at.latest:
            continue
        kept = min(max(offset, at.earliest[partition]), at.latest[partition])
        if kept != offset:
            note(f"{partition[0]}-{partition[1]} has no offset {offset}; using the nearest, {kept}")
        plan[partition] = kept
    return dict(sorted(plan.items()))


def _shifted(at: ResetContext, step: int) -> dict[TopicPartition, int]:
    missing = sorted(at.latest.keys() - at.committed.keys())
    if missing:
        raise CommandError(
            f"group {at.group} has no committed offset for {', '.join(map(str, missing))}; "
            "--shift-by needs one"
        )
    return {partition: at.committed[partition] + step for partition in at.latest}


def _since(at: ResetContext, at_ms: int) -> dict[TopicPartition, int]:
    """Return the first offsets at or after a time; the end offset if all records are older."""
    spec = OffsetSpec.for_timestamp(max(at_ms, 0))
    found = list_offsets(at.cluster, at.latest, spec, patience_s=ELECTION_WAIT_S)
    for topic, partition in sorted(at.latest.keys() - found.keys()):
        raise CommandError(f"partition {partition} of {topic} has no leader")
    return {
        partition: at.latest[partition] if offset == NO_RECORD else offset
        for partition, offset in found.items()
    }

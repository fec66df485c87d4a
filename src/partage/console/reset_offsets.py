"""``partage groups reset-offsets``: where a group that is at rest goes on reading."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka.admin import OffsetSpec

from partage.console.cluster import Cluster, words
from partage.console.committed import committed_offsets
from partage.console.failure import Failure, misused
from partage.console.group_states import UNKNOWN, state_of
from partage.console.offsets import ELECTION_S, Place, offsets
from partage.console.options import Json
from partage.console.reset_scenarios import Partitions, Scenario, planned, scenario
from partage.console.reset_words import as_csv, parse_topics
from partage.console.show import count, note, print_json, print_table

#: Nobody owns partitions then, so nobody commits over what is reset.
_AT_REST: Final = ("Empty", "Dead")

Plans = Mapping[str, Mapping[Place, int]]


class OffsetReset(msgspec.Struct, frozen=True):
    """One partition: what is committed, null for nothing, and what is to be."""

    topic: str
    partition: int
    current_offset: int | None
    new_offset: int


class GroupReset(msgspec.Struct, frozen=True):
    """The partitions of one group."""

    group: str
    offsets: list[OffsetReset]


class Resets(msgspec.Struct, frozen=True):
    """``partage groups reset-offsets --json``; what was not ``executed`` was a dry run."""

    executed: bool
    groups: list[GroupReset]


def reset_offsets(
    cluster: Cluster,
    group: Annotated[
        list[str],
        typer.Option(
            "--group", "-g", "-G", metavar="GROUP", help="The group; may be given several times."
        ),
    ],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:0,1]",
            help="A topic, or these partitions of it; may be given several times.",
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Every topic that the group has offsets of.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the beginning.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end.")] = False,
    to_current: Annotated[
        bool,
        typer.Option("--to-current", help="To what is committed; where nothing is, to the end."),
    ] = False,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", metavar="N", min=0, help="To this offset.")
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option("--shift-by", metavar="N", help="So many on from what is committed, or back."),
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime",
            metavar="TIME",
            help="To the first record from then on: YYYY-MM-DDTHH:MM:SS.sss, UTC or with a zone.",
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(
            "--by-duration",
            metavar="PnDTnHnMnS",
            help="To the first record that is no older than this.",
        ),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option("--from-file", metavar="FILE", help="To the offsets in a file of --export."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done. This is the default.")
    ] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Do it.")] = False,
    export: Annotated[
        bool, typer.Option("--export", help="Print CSV, for --from-file, instead of a table.")
    ] = False,
    json: Json = False,
) -> None:
    """Reset the offsets of groups that have no members. Without --execute it is a dry run.

    An offset that a partition does not have becomes its beginning or its end.

    \b
    Examples:
      partage groups reset-offsets --group readers --all-topics --to-earliest
      partage groups reset-offsets --group readers --all-topics --by-duration PT2H --json
      partage groups reset-offsets --group readers --topic flights:0 --shift-by -1 --execute
      partage groups reset-offsets --group readers --all-topics --to-current --export
    """
    groups = list(dict.fromkeys(group))
    if dry_run and execute:
        raise misused("--dry-run and --execute do not go together")
    if export and json:
        raise misused("--export and --json do not go together")
    if all_topics and topic:
        raise misused("--topic and --all-topics do not go together")
    wanted = parse_topics(topic or [])
    asked = scenario(
        {
            "--to-earliest": to_earliest,
            "--to-latest": to_latest,
            "--to-current": to_current,
            "--to-offset": to_offset,
            "--shift-by": shift_by,
            "--to-datetime": to_datetime,
            "--by-duration": by_duration,
            "--from-file": from_file,
        },
        groups,
    )
    if asked.listed is None and not (all_topics or topic):
        raise misused("reset-offsets wants --topic or --all-topics")
    _check_at_rest(cluster, groups)
    committed = {
        name: {place: each.offset for place, each in of_group.items()}
        for name, of_group in committed_offsets(cluster, groups).items()
    }
    plans = {
        name: _planned(cluster, asked, name, wanted, all_topics, committed[name]) for name in groups
    }
    if execute:
        _commit(cluster, plans)
    _show(plans, committed, executed=execute, export=export, json=json)


def _check_at_rest(cluster: Cluster, groups: list[str]) -> None:
    """A group that is not there is at rest: its offsets may be set before it first starts."""
    for name in groups:
        state = state_of(cluster, name)
        if state == UNKNOWN:
            raise Failure(f"the state of group {name} cannot be told now; try again")
        if state is not None and state not in _AT_REST:
            raise Failure(
                f"group {name} has members (it is {state}), who would go on where they are; stop "
                "them first"
            )


def _planned(
    cluster: Cluster,
    asked: Scenario,
    group: str,
    wanted: Mapping[str, set[int] | None],
    all_topics: bool,
    committed: Mapping[Place, int],
) -> dict[Place, int]:
    places = _places(cluster, wanted)
    if asked.listed is not None:
        listed = asked.listed[group].keys()
        places = listed & places if wanted else set(listed)
    elif all_topics:
        places = set(committed)
        if not places:
            raise Failure(f"group {group} has no offsets; name topics with --topic")
    firsts = offsets(cluster, sorted(places), OffsetSpec.earliest(), patience_s=ELECTION_S)
    # Who has no leader by now is not waited for a second time.
    ends = offsets(cluster, sorted(firsts), OffsetSpec.latest(), patience_s=ELECTION_S)
    for topic, partition in sorted(places - (firsts.keys() & ends.keys())):
        raise Failure(f"partition {partition} of {topic} is not there, or has no leader now")
    held = {place: offset for place, offset in committed.items() if place in places}
    return planned(asked, Partitions(cluster, group, firsts, ends, held))


def _places(cluster: Cluster, wanted: Mapping[str, set[int] | None]) -> set[Place]:
    topics = cluster.require_topics(wanted).topics
    found = set[Place]()
    for topic, numbers in wanted.items():
        there = set(topics[topic].partitions)
        missing = sorted((numbers or set()) - there)
        if missing:
            raise Failure(f"topic {topic} has no partition {', '.join(map(str, missing))}")
        found |= {(topic, number) for number in (there if numbers is None else numbers)}
    return found


def _commit(cluster: Cluster, plans: Plans) -> None:
    for group, plan in plans.items():
        partitions = [TopicPartition(*place, offset) for place, offset in plan.items()]
        if not partitions:
            continue
        answers = cluster.admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, partitions)], request_timeout=cluster.timeout_s
        )
        doubt = (
            f"see with partage groups describe --group {group} whether it was reset all the same"
        )
        refusal = cluster.attempt(answers[group], doubt)
        if refusal is not None:
            raise Failure(f"the offsets of group {group} were not reset: {_why(refusal)}")
        for each in answers[group].result().topic_partitions or []:
            if each.error is not None:
                raise Failure(
                    f"the offset of {each.topic}-{each.partition} was not reset: {_why(each.error)}"
                )


def _why(refusal: KafkaError) -> str:
    if refusal.code() in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP):
        return "a member has joined meanwhile; stop it first"
    return words(refusal)


def _show(plans: Plans, committed: Plans, *, executed: bool, export: bool, json: bool) -> None:
    groups = [
        GroupReset(
            group,
            [
                OffsetReset(*place, committed[group].get(place), offset)
                for place, offset in plan.items()
            ],
        )
        for group, plan in plans.items()
    ]
    if json:
        print_json(Resets(executed, groups))
        return
    if export:
        for line in as_csv(plans):
            print(line)
    else:
        print_table(
            ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"],
            [
                (group.group, each.topic, each.partition, each.current_offset, each.new_offset)
                for group in groups
                for each in group.offsets
            ],
        )
    total = count(sum(map(len, plans.values())), "offset")
    note(f"reset {total}" if executed else f"dry run: --execute would reset {total}")

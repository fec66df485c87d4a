"""``partage groups reset-offsets``: change the committed offsets of groups without members."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from confluent_kafka import KafkaError
from confluent_kafka.admin import OffsetSpec

from partage.console.common.client_options import client_options
from partage.console.common.cluster_client import ClusterClient, error_text
from partage.console.common.completion import complete_topics
from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.offsets import ELECTION_WAIT_S, list_offsets
from partage.console.common.options import (
    GroupsArgument,
    GroupsOption,
    JsonOption,
    required_names,
    with_coordinators,
)
from partage.console.common.output import count, json_help, note, print_json
from partage.console.common.partitions import parse_topics, require_partitions, resolve_partitions
from partage.console.common.suggestions import did_you_mean
from partage.console.common.table import print_table
from partage.console.groups import librdkafka_groups
from partage.console.groups.committed import committed_offsets
from partage.console.groups.coordinator_requests import commit_offsets
from partage.console.groups.describe import UNKNOWN, existing_groups, fetch_groups
from partage.console.groups.reset_arguments import to_csv
from partage.console.groups.reset_scenarios import (
    ResetContext,
    ResetScenario,
    parse_scenario,
    plan_offsets,
)
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition

app = command_app()

#: In these states no member owns a partition, so no commit overwrites the reset.
_AT_REST: Final = ("Empty", "Dead")

OffsetPlans = Mapping[str, Mapping[TopicPartition, int]]


class OffsetReset(msgspec.Struct, frozen=True):
    """A partition with its committed offset (null if none) and its new offset."""

    topic: str
    partition: int
    current_offset: int | None
    new_offset: int


class GroupReset(msgspec.Struct, frozen=True):
    """The new offsets of a group."""

    group: str
    offsets: list[OffsetReset]


class OffsetResetReport(msgspec.Struct, frozen=True):
    """Output of ``partage groups reset-offsets --json``; ``executed`` is false for a dry run."""

    executed: bool
    groups: list[GroupReset]


@app.command("reset-offsets", epilog=json_help(OffsetResetReport))
@with_coordinators()
def reset_offsets(
    cluster: ClusterClient,
    name: GroupsArgument = None,
    group: GroupsOption = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:0,1]",
            help="Topic, or some of its partitions; repeatable.",
            autocompletion=complete_topics,
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics with committed offsets of the group.")
    ] = False,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="Reset to the beginning.")
    ] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Reset to the end.")] = False,
    to_current: Annotated[
        bool,
        typer.Option(
            "--to-current", help="Keep the committed offset; without one, reset to the end."
        ),
    ] = False,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", metavar="N", min=0, help="Reset to this offset.")
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(
            "--shift-by",
            metavar="N",
            help="Move the committed offset by N; a negative N moves back.",
        ),
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime",
            metavar="TIME",
            help="Reset to the first record at or after YYYY-MM-DDTHH:MM:SS.sss "
            "(UTC if without a zone).",
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(
            "--by-duration",
            metavar="PnDTnHnMnS",
            help="Reset to the first record that is not older than this.",
        ),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from-file", metavar="FILE", help="Reset to the offsets in a file from --export."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the new offsets. This is the default.")
    ] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Commit the new offsets.")] = False,
    export: Annotated[
        bool, typer.Option("--export", help="Print CSV for --from-file instead of a table.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Reset the committed offsets of groups without members. Default: a dry run.

    An offset that is out of range becomes the beginning or the end of the partition.

    \b
    Examples:
      partage groups reset-offsets readers --all-topics --to-earliest
      partage groups reset-offsets readers --all-topics --by-duration PT2H --json
      partage groups reset-offsets readers --topic flights:0 --shift-by -1 --execute
      partage groups reset-offsets readers --all-topics --to-current --export
    """
    groups = required_names(name, group, "group")
    if dry_run and execute:
        raise usage_error("--dry-run and --execute cannot be combined")
    if export and json:
        raise usage_error("--export and --json cannot be combined")
    if all_topics and topic:
        raise usage_error("--topic and --all-topics cannot be combined")
    wanted = parse_topics(topic or [])
    scenario = parse_scenario(
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
    if scenario.offsets_from_file is None and not (all_topics or topic):
        raise usage_error("reset-offsets requires --topic or --all-topics")
    hints = _check_at_rest(cluster, groups)
    committed = {
        name: {partition: each.offset for partition, each in of_group.items()}
        for name, of_group in committed_offsets(cluster, groups).items()
    }
    plans = {
        name: _planned(
            cluster, scenario, name, wanted, all_topics, committed[name], hints.get(name, "")
        )
        for name in groups
    }
    for missing, hint in hints.items():
        note(f"group {missing} does not exist yet{hint}")
    errors = _commit(cluster, plans) if execute else {}
    done = {group: plan for group, plan in plans.items() if group not in errors}
    if done or not errors:
        _show(done, committed, executed=execute, export=export, json=json)
    if errors:
        raise CommandError("; ".join(errors.values()))


def _check_at_rest(cluster: ClusterClient, groups: list[str]) -> dict[str, str]:
    """Raise unless all groups are without members. Return a hint for each missing group.

    A group that does not exist is accepted: its offsets may be set before its first start.
    """
    found = fetch_groups(cluster, groups)
    for name in groups:
        state = found[name].description.state if name in found else None
        if state == UNKNOWN:
            raise CommandError(f"the state of group {name} is unknown now; try again")
        if state is not None and state not in _AT_REST:
            raise CommandError(
                f"cannot reset group {name}: it is {state} and has members, which keep their "
                "positions; stop them first"
            )
    missing = [name for name in groups if name not in found]
    existing = existing_groups(cluster) if missing else []
    return {name: did_you_mean(name, existing) for name in missing}


def _planned(
    cluster: ClusterClient,
    scenario: ResetScenario,
    group: str,
    wanted: Mapping[str, set[int] | None],
    all_topics: bool,
    committed: Mapping[TopicPartition, int],
    hint: str,
) -> dict[TopicPartition, int]:
    partitions = resolve_partitions(cluster, wanted)
    if scenario.offsets_from_file is not None:
        listed = scenario.offsets_from_file[group].keys()
        partitions = listed & partitions if wanted else require_partitions(cluster, listed)
    elif all_topics:
        if not committed:
            raise CommandError(
                f"group {group} has no committed offsets; name topics with --topic{hint}"
            )
        partitions = require_partitions(cluster, committed)
    firsts = list_offsets(
        cluster, sorted(partitions), OffsetSpec.earliest(), patience_s=ELECTION_WAIT_S
    )
    # Partitions that have no leader after the first wait are not waited for again.
    ends = list_offsets(cluster, sorted(firsts), OffsetSpec.latest(), patience_s=ELECTION_WAIT_S)
    for topic, partition in sorted(partitions - (firsts.keys() & ends.keys())):
        raise CommandError(f"partition {partition} of {topic} has no leader; try again later")
    kept = {partition: offset for partition, offset in committed.items() if partition in partitions}
    return plan_offsets(scenario, ResetContext(cluster, group, firsts, ends, kept))


def _commit(cluster: ClusterClient, plans: OffsetPlans) -> dict[str, str]:
    """Commit the new offsets. Return the error of each group that was not reset completely."""
    errors = {}
    for group, plan in plans.items():
        try:
            codes = _send(cluster, group, plan) if plan else {}
        except CommandError as failure:
            errors[group] = f"group {group}: {failure.message}"
            continue
        failed = {partition: code for partition, code in codes.items() if code}
        if failed:
            reasons = dict.fromkeys(f"{each.topic}: {_why(code)}" for each, code in failed.items())
            errors[group] = (
                f"{count(len(failed), 'offset')} of group {group} not reset: {'; '.join(reasons)}"
            )
    return errors


def _send(
    cluster: ClusterClient, group: str, plan: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    doubt = f"check with partage groups describe --group {group} whether it was reset"
    if client_options(cluster.properties, cluster.timeout_ms) is None:
        return librdkafka_groups.commit_offsets(cluster, group, plan, doubt)
    return commit_offsets(cluster, group, plan, doubt)


def _why(code: int) -> str:
    if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NON_EMPTY_GROUP):
        return "a member joined in the meantime; stop it first"
    return error_text(KafkaError(code))


def _show(
    plans: OffsetPlans, committed: OffsetPlans, *, executed: bool, export: bool, json: bool
) -> None:
    groups = [
        GroupReset(
            group,
            [
                OffsetReset(*partition, committed[group].get(partition), offset)
                for partition, offset in plan.items()
            ],
        )
        for group, plan in plans.items()
    ]
    if json:
        print_json(OffsetResetReport(executed, groups))
        return
    if export:
        for line in to_csv(plans):
            print(line)
    else:
        print_table(
            ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"],
            [
                (group.group, each.topic, each.partition, each.current_offset, each.new_offset)
                for group in groups
                for each in group.offsets
            ],
            optional=["GROUP"] if len(groups) == 1 else [],
        )
    total = count(sum(map(len, plans.values())), "offset")
    note(f"reset {total}" if executed else f"dry run: --execute would reset {total}")

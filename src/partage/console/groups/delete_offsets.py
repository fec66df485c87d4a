"""``partage groups delete-offsets``: delete committed offsets of a group."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import typer

from partage.client.errors import error_name
from partage.console.common.cluster_client import ClusterClient
from partage.console.common.completion import complete_topics
from partage.console.common.confirmation import confirm
from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.options import (
    DryRunOption,
    GroupArgument,
    GroupOption,
    JsonOption,
    YesOption,
    required_name,
    with_coordinators,
)
from partage.console.common.output import count, json_help, note, print_json
from partage.console.common.partitions import parse_topics
from partage.console.common.table import print_table
from partage.console.groups.committed import committed_offsets
from partage.console.groups.coordinator_requests import delete_offsets as send_request
from partage.console.groups.describe import fetch_group_state, missing_groups_error
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition

app = command_app()

_REASONS: Final[dict[int, str]] = {
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "a member of the group subscribes to the topic; stop the "
    "members first",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such partition",
}


class DeletedOffset(msgspec.Struct, frozen=True):
    """A partition with its committed offset, and the error if the offset was not deleted."""

    topic: str
    partition: int
    offset: int
    error: str | None


class OffsetDeletionReport(msgspec.Struct, frozen=True):
    """Output of ``partage groups delete-offsets --json``; ``executed`` is false for a dry run."""

    group: str
    executed: bool
    offsets: list[DeletedOffset]


@app.command("delete-offsets", epilog=json_help(OffsetDeletionReport))
@with_coordinators()
def delete_offsets(
    cluster: ClusterClient,
    name: GroupArgument = None,
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC[:0,1]",
            help="Topics, or some of their partitions. With --group, all arguments are topics.",
            show_default=False,
            autocompletion=complete_topics,
        ),
    ] = None,
    group: GroupOption = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:0,1]",
            help="Same as the argument; repeatable.",
            autocompletion=complete_topics,
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics with committed offsets of the group.")
    ] = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Delete committed offsets of topics that no member of the group subscribes to.

    Members that start later begin at their auto.offset.reset. On a terminal, the command asks for
    confirmation.

    \b
    Examples:
      partage groups delete-offsets readers flights:0,1 --dry-run
      partage groups delete-offsets readers flights --yes
    """
    named = [*(topics or []), *(topic or [])]
    if name is not None and group is not None:
        named.insert(0, name)
        name = None
    wanted = required_name(name, group, "group")
    if all_topics == bool(named):
        raise usage_error("delete-offsets requires either topics or --all-topics")
    partitions = parse_topics(named)
    if fetch_group_state(cluster, wanted) is None:
        raise missing_groups_error(cluster, [wanted])
    committed = {
        each: commit.offset
        for each, commit in committed_offsets(cluster, [wanted])[wanted].items()
        if all_topics or _is_listed(each, partitions)
    }
    if not committed:
        raise CommandError(f"group {wanted} has no committed offsets of these partitions")
    errors = dict.fromkeys(committed, int(ErrorCode.NONE))
    if not dry_run:
        affected = [f"{each.topic}-{each.partition}" for each in sorted(committed)]
        confirm(
            f"delete {count(len(committed), 'committed offset')} of group {wanted}",
            affected,
            yes=yes,
        )
        errors |= dict.fromkeys(committed, int(ErrorCode.UNKNOWN_SERVER_ERROR))
        errors |= send_request(cluster, wanted, committed)
    report = OffsetDeletionReport(
        wanted,
        not dry_run,
        [
            DeletedOffset(*each, offset, _reason(errors[each]))
            for each, offset in sorted(committed.items())
        ],
    )
    _print_report(report, json)


def _is_listed(partition: TopicPartition, wanted: dict[str, set[int] | None]) -> bool:
    if partition.topic not in wanted:
        return False
    numbers = wanted[partition.topic]
    return numbers is None or partition.partition in numbers


def _reason(code: int) -> str | None:
    if code == ErrorCode.NONE:
        return None
    return _REASONS.get(code) or error_name(code)


def _print_report(report: OffsetDeletionReport, json: bool) -> None:
    deleted = [each for each in report.offsets if each.error is None]
    failed = [each for each in report.offsets if each.error is not None]
    if json:
        print_json(report)
    elif deleted:
        print_table(
            ["TOPIC", "PARTITION", "OFFSET"],
            [(each.topic, each.partition, each.offset) for each in deleted],
        )
    total = count(len(deleted), "offset")
    note(f"deleted {total}" if report.executed else f"dry run: would delete {total}")
    if failed:
        reasons = dict.fromkeys(f"{each.topic}: {each.error}" for each in failed)
        raise CommandError(
            f"{count(len(failed), 'offset')} of group {report.group} not deleted: "
            f"{'; '.join(reasons)}"
        )

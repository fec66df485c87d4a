"""``partage groups``: the application, and its commands list, describe and delete."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Final

import msgspec
import typer
from confluent_kafka import KafkaError

from partage.console.common.client_options import client_options
from partage.console.common.client_requests import broker_nodes, request_error, run_client
from partage.console.common.cluster_client import ClusterClient, error_text
from partage.console.common.confirmation import confirm
from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.options import (
    DryRunOption,
    GroupsArgument,
    GroupsOption,
    JsonOption,
    YesOption,
    given_names,
    required_names,
    with_coordinators,
)
from partage.console.common.output import count, json_help, note, print_json
from partage.console.common.suggestions import did_you_mean
from partage.console.common.table import print_table
from partage.console.common.watch import WATCH_INTERVAL_S, WatchIntervalOption, WatchOption, watch
from partage.console.groups import librdkafka_groups
from partage.console.groups.assignment_columns import assignment_cells, assignment_columns
from partage.console.groups.describe import (
    CONSUMER,
    UNKNOWN,
    GroupDescription,
    GroupListing,
    MemberDescription,
    describe_groups,
    existing_groups,
    fetch_group_list,
    fetch_groups,
)
from partage.console.groups.group_deletion import DOUBT, GroupDeletion, delete_groups
from partage.model.addresses import Address
from partage.model.errors import ErrorCode
from partage.model.groups import Node

app = command_app()

STATES: Final = (
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Assigning",
    "Reconciling",
    UNKNOWN,
)
TYPES: Final = ("Classic", "Consumer")
_MISSING: Final = "no such group"
_NOT_EMPTY: Final = "it has members; stop them first"


class GroupList(msgspec.Struct, frozen=True):
    """Output of ``partage groups list --json``."""

    groups: list[GroupListing]


class GroupStates(msgspec.Struct, frozen=True):
    """Output of ``partage groups describe --json``, whichever view was requested."""

    groups: list[GroupDescription]


class GroupDeletionFailure(msgspec.Struct, frozen=True):
    """A group that was not deleted, and the reason."""

    group: str
    error: str


class GroupDeletionReport(msgspec.Struct, frozen=True):
    """Output of ``partage groups delete --json``; ``executed`` is false for a dry run."""

    deleted: list[str]
    failed: list[GroupDeletionFailure]
    executed: bool = True


@app.command("list", epilog=json_help(GroupList))
@with_coordinators()
def list_groups(
    cluster: ClusterClient,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help=f"Only groups in these states (comma-separated): {', '.join(STATES)}.",
        ),
    ] = None,
    group_type: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="Only groups of these types (comma-separated): Classic, or Consumer (KIP-848).",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List groups of every protocol type with their states.

    If a broker does not respond, the other groups are listed and the exit code is 1.

    \b
    Examples:
      partage groups list
      partage groups list --state stable,empty --json
      partage groups list --type consumer
    """
    wanted = _known_words(state or [], STATES, "state")
    types = _known_words(group_type or [], TYPES, "type")
    found, failure = fetch_group_list(cluster)
    if failure is not None and not found:
        raise failure
    lines = [
        each
        for each in found
        if (not wanted or each.state in wanted) and (not types or each.type in types)
    ]
    if json:
        print_json(GroupList(lines))
    else:
        print_table(
            ["GROUP", "PROTOCOL-TYPE", "TYPE", "STATE", "#MEMBERS"],
            [
                (each.group, each.protocol_type, each.type, each.state, each.members)
                for each in lines
            ],
            optional=["TYPE", "PROTOCOL-TYPE", "#MEMBERS"],
        )
    if failure is not None:
        raise CommandError(f"the list may be incomplete: {failure.message}")


@app.command("describe", epilog=json_help(GroupStates))
@with_coordinators()
def describe(
    cluster: ClusterClient,
    name: GroupsArgument = None,
    group: GroupsOption = None,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="All groups.")] = False,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Show offsets and lag. This is the default.")
    ] = False,
    members: Annotated[
        bool, typer.Option("--members", help="Show members and their partitions.")
    ] = False,
    state: Annotated[
        bool, typer.Option("--state", help="Show state, coordinator and protocol.")
    ] = False,
    watched: WatchOption = False,
    every: WatchIntervalOption = WATCH_INTERVAL_S,
    json: JsonOption = False,
) -> None:
    """Show offsets and lag, members, or state of groups. --json prints all of it.

    \b
    Examples:
      partage groups describe readers
      partage groups describe readers --members --verbose
      partage groups describe --all-groups --state
      partage groups describe readers --json
    """
    names = given_names(name, group)
    if all_groups == bool(names):
        raise usage_error("describe requires either groups or --all-groups")
    if offsets + members + state > 1:
        raise usage_error("--offsets, --members and --state cannot be combined")
    if watched and json:
        raise usage_error("--watch and --json cannot be combined")

    def found() -> list[GroupDescription]:
        return describe_groups(cluster, None if all_groups else names)

    def show() -> None:
        if state:
            _print_states(found())
        elif members:
            _print_members(found(), cluster.verbose)
        else:
            for number, each in enumerate(found()):
                if number:
                    print()
                _print_offsets(each, cluster.verbose)

    if json:
        print_json(GroupStates(found()))
    elif watched:
        watch(cluster, show, every)
    else:
        show()


@app.command("delete", epilog=json_help(GroupDeletionReport))
@with_coordinators()
def delete(
    cluster: ClusterClient,
    name: GroupsArgument = None,
    group: GroupsOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Delete groups without members, and their committed offsets.

    On a terminal, the command asks for confirmation.

    \b
    Examples:
      partage groups delete readers --dry-run
      partage groups delete readers --yes
    """
    names = required_names(name, group, "group")
    if dry_run:
        _print_dry_run(cluster, names, json)
        return
    nodes = broker_nodes(cluster)
    confirm(f"delete {count(len(names), 'group')} and all committed offsets", names, yes=yes)
    results = _deletions(cluster, names)
    deleted = [name for name in names if _is_deleted(results[name])]
    failed = [
        GroupDeletionFailure(name, _why_not_deleted(results[name], nodes))
        for name in names
        if not _is_deleted(results[name])
    ]
    if json:
        print_json(GroupDeletionReport(deleted, failed))
    else:
        for each in deleted:
            print(f"deleted group {each}")
    doubtful = {name for name, result in results.items() if result.may_be_deleted}
    _raise_failures(cluster, failed, doubtful)


def _deletions(cluster: ClusterClient, names: list[str]) -> dict[str, GroupDeletion]:
    if client_options(cluster.properties, cluster.timeout_ms) is None:
        return librdkafka_groups.delete_groups(cluster, names)
    return run_client(cluster, lambda client: delete_groups(client, names))


def _is_deleted(result: GroupDeletion) -> bool:
    return result.failure is None and result.error_code == ErrorCode.NONE


def _print_dry_run(cluster: ClusterClient, names: list[str], json: bool) -> None:
    """Print the groups that a deletion would delete.

    Raises:
        CommandError: A group has members, or does not exist.
    """
    deletable, failed = [], []
    found = fetch_groups(cluster, names)
    for name in names:
        if name not in found:
            failed.append(GroupDeletionFailure(name, _MISSING))
        elif found[name].description.state == "Empty":
            deletable.append(name)
        elif found[name].description.state == UNKNOWN:
            failed.append(GroupDeletionFailure(name, "its state is unknown now; try again"))
        else:
            failed.append(GroupDeletionFailure(name, _NOT_EMPTY))
    if json:
        print_json(GroupDeletionReport(deletable, failed, executed=False))
    else:
        for name in deletable:
            print(f"would delete group {name}")
    _raise_failures(cluster, failed, set())


def _raise_failures(
    cluster: ClusterClient, failed: list[GroupDeletionFailure], doubtful: Collection[str]
) -> None:
    """Raise one error for all groups that were not deleted, or that may not be deleted."""
    if not failed:
        return
    is_missing = any(each.error == _MISSING for each in failed)
    existing = existing_groups(cluster) if is_missing else []
    messages = []
    for each in failed:
        outcome = "" if each.group in doubtful else " was not deleted"
        hint = did_you_mean(each.group, existing) if each.error == _MISSING else ""
        messages.append(f"group {each.group}{outcome}: {each.error}{hint}")
    raise CommandError("; ".join(messages))


def _why_not_deleted(result: GroupDeletion, nodes: Mapping[Address, Node]) -> str:
    if result.failure is not None:
        advice = DOUBT if result.may_be_deleted else "try again"
        return request_error(result.failure, nodes, advice).message
    if result.error_code == ErrorCode.NON_EMPTY_GROUP:
        return _NOT_EMPTY
    if result.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return _MISSING
    return error_text(KafkaError(result.error_code))


def _known_words(given: list[str], known: Sequence[str], subject: str) -> set[str]:
    """Return the comma-separated words in their known spelling.

    Raises:
        click.UsageError: A word is not known.
    """
    by_word = {each.lower(): each for each in known}
    words = [word.strip() for each in given for word in each.split(",") if word.strip()]
    unknown = [word for word in words if word.lower() not in by_word]
    if unknown:
        raise usage_error(
            f"unknown {subject}: {', '.join(unknown)}; known {subject}s: {', '.join(known)}"
        )
    return {by_word[word.lower()] for word in words}


def _print_states(groups: Sequence[GroupDescription]) -> None:
    has_epochs = any(each.group_epoch is not None for each in groups)
    columns = ["GROUP", "COORDINATOR (ID)", "PROTOCOL-TYPE", "TYPE", "PROTOCOL", "STATE"]
    columns += ["GROUP-EPOCH", "TARGET-EPOCH"] if has_epochs else []
    rows: list[list[object]] = []
    for each in groups:
        at = each.coordinator
        row: list[object] = [each.group, at and f"{at.host}:{at.port} ({at.id})"]
        row += [each.protocol_type, each.type, each.protocol, each.state]
        row += [each.group_epoch, each.target_epoch] if has_epochs else []
        rows.append([*row, len(each.members), each.total_lag])
    optional = ["TYPE", "PROTOCOL-TYPE", "PROTOCOL", "COORDINATOR (ID)"]
    optional += ["TARGET-EPOCH", "GROUP-EPOCH"] if has_epochs else []
    print_table([*columns, "#MEMBERS", "LAG"], rows, optional=optional)


def _print_members(groups: Sequence[GroupDescription], verbose: bool) -> None:
    has_epochs = any(each.group_epoch is not None for each in groups)
    columns = ["GROUP", "CONSUMER-ID", "INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    if verbose:
        columns += ["SUBSCRIPTION", "METADATA-BYTES", "ASSIGNMENT-BYTES"]
        columns += ["PROTOCOL"] if has_epochs else []
    rows: list[list[object]] = []
    for group in groups:
        if not group.members:
            note(f"group {group.group} has no members")
        for member in group.members:
            row = [group.group, *_identity(member), _assigned_count(member)]
            if verbose:
                row += [_subscription(member), member.metadata_bytes, member.assignment_bytes]
                row += [member.protocol] if has_epochs else []
            rows.append([*row, *assignment_cells(member, has_epochs=has_epochs)])
    optional = ["PROTOCOL"] if verbose and has_epochs else []
    optional += ["ASSIGNMENT-BYTES", "METADATA-BYTES", "SUBSCRIPTION"] if verbose else []
    optional += ["HOST", "#PARTITIONS", "INSTANCE-ID", *(["GROUP"] if len(groups) == 1 else [])]
    columns += assignment_columns(has_epochs=has_epochs)
    print_table(columns, rows, optional=[*optional, "CLIENT-ID"], wrapped=True)


def _subscription(member: MemberDescription) -> str | None:
    """Return the topics and the regular expression of a member."""
    words = [*(member.subscription or ()), *filter(None, [member.subscribed_regex])]
    return ",".join(words) if words or member.subscription is not None else None


def _identity(member: MemberDescription) -> list[object]:
    return [member.member_id, member.group_instance_id, member.host, member.client_id]


def _assigned_count(member: MemberDescription) -> int:
    return sum(len(each.partitions) for each in member.partitions)


def _print_offsets(group: GroupDescription, verbose: bool) -> None:
    if not group.members:
        note(f"group {group.group} has no members")
    if group.members and group.protocol_type != CONSUMER:
        _print_raw_members(group)
    owners = {member.member_id: member for member in group.members}
    columns = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    columns += ["CONSUMER-ID", "HOST", "CLIENT-ID"]
    if verbose:
        columns += ["INSTANCE-ID", "LEADER-EPOCH", "METADATA"]
    rows: list[list[object]] = []
    for each in group.offsets:
        owner = owners.get(each.member_id or "")
        row: list[object] = [group.group, each.topic, each.partition]
        row += [each.current_offset, each.log_end_offset, each.lag]
        row += [owner.member_id, owner.host, owner.client_id] if owner else [None, None, None]
        if verbose:
            instance_id = owner.group_instance_id if owner else None
            row += [instance_id, each.leader_epoch, each.metadata or None]
        rows.append(row)
    if rows:
        # The line below the table names the group.
        optional = ["METADATA", "LEADER-EPOCH", "HOST", "GROUP", "INSTANCE-ID"]
        print_table(columns, rows, optional=[*optional, "CONSUMER-ID", "CLIENT-ID"])
    endless = sum(each.log_end_offset is None for each in group.offsets)
    without = f" excluding {count(endless, 'partition')} with unknown end" if endless else ""
    print(
        f"group {group.group}: {group.state}, {count(len(group.members), 'member')}, "
        f"{count(len(rows), 'partition')}, total lag {group.total_lag:,}{without}"
    )


def _print_raw_members(group: GroupDescription) -> None:
    """Print the members of a group that is not a consumer group: their metadata is opaque bytes."""
    print_table(
        ["GROUP", "MEMBER-ID", "HOST", "CLIENT-ID", "METADATA-BYTES", "ASSIGNMENT-BYTES"],
        [
            (
                group.group,
                each.member_id,
                each.host,
                each.client_id,
                each.metadata_bytes,
                each.assignment_bytes,
            )
            for each in group.members
        ],
        optional=["HOST", "ASSIGNMENT-BYTES", "METADATA-BYTES", "GROUP", "CLIENT-ID"],
    )
    kind = group.protocol_type or "unknown"
    print(f"group {group.group}: protocol type {kind}, protocol {group.protocol or 'none yet'}")

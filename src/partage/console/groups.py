"""``partage groups``: the application, and its commands list, describe and delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
import typer
from confluent_kafka import KafkaError

from partage.console.cluster import Cluster, words
from partage.console.dispatch import command_app
from partage.console.failure import Failure, misused
from partage.console.group_explain import Explanation, explain
from partage.console.group_members import Members, members
from partage.console.group_states import (
    CONSUMER,
    UNKNOWN,
    GroupLine,
    GroupState,
    MemberState,
    described,
    listed,
)
from partage.console.options import Json, with_cluster
from partage.console.reset_offsets import Resets, reset_offsets
from partage.console.show import count, json_help, note, print_json, print_table, ranges
from partage.console.watching import EVERY_S, Every, Watch, watch

app = command_app("List, describe, reset and delete groups.")
app.command("reset-offsets", epilog=json_help(Resets))(with_cluster()(reset_offsets))
app.command("members", epilog=json_help(Members))(with_cluster()(members))
app.command("explain", epilog=json_help(Explanation))(with_cluster()(explain))

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


class GroupList(msgspec.Struct, frozen=True):
    """``partage groups list --json``."""

    groups: list[GroupLine]


class GroupStates(msgspec.Struct, frozen=True):
    """``partage groups describe --json``, whatever else was asked to be shown."""

    groups: list[GroupState]


class NotDeleted(msgspec.Struct, frozen=True):
    """A group that was not deleted, and why."""

    group: str
    error: str


class Deleted(msgspec.Struct, frozen=True):
    """``partage groups delete --json``."""

    deleted: list[str]
    failed: list[NotDeleted]


@app.command("list", epilog=json_help(GroupList))
@with_cluster()
def list_groups(
    cluster: Cluster,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help=f"Only groups in this state, or several with commas: {', '.join(STATES)}.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List groups of every protocol type with their states.

    Where a broker does not answer, the groups of the others are listed, and the exit code is 1.

    \b
    Examples:
      partage groups list
      partage groups list --state stable,empty --json
    """
    wanted = _states(state or [])
    found, failure = listed(cluster)
    if failure is not None and not found:
        raise failure
    lines = [each for each in found if not wanted or each.state in wanted]
    if json:
        print_json(GroupList(lines))
    else:
        print_table(
            ["GROUP", "PROTOCOL-TYPE", "TYPE", "STATE", "#MEMBERS"],
            [
                (each.group, each.protocol_type, each.type, each.state, each.members)
                for each in lines
            ],
        )
    if failure is not None:
        raise Failure(f"groups may be missing here: {failure.message}")


@app.command("describe", epilog=json_help(GroupStates))
@with_cluster()
def describe(
    cluster: Cluster,
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group", "-g", "-G", metavar="GROUP", help="The group; may be given several times."
        ),
    ] = None,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="Every group.")] = False,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Show offsets and lag. This is the default.")
    ] = False,
    members: Annotated[
        bool, typer.Option("--members", help="Show members and what they own.")
    ] = False,
    state: Annotated[
        bool, typer.Option("--state", help="Show state, coordinator and protocol.")
    ] = False,
    watched: Watch = False,
    every: Every = EVERY_S,
    json: Json = False,
) -> None:
    """Show how far groups are, who is in them, who reads what. --json has it all.

    \b
    Examples:
      partage groups describe --group readers
      partage groups describe --group readers --members --verbose
      partage groups describe --all-groups --state
      partage groups describe --group readers --json
    """
    if all_groups == bool(group):
        raise misused("describe wants either --group or --all-groups")
    if offsets + members + state > 1:
        raise misused("--offsets, --members and --state do not go together")
    if watched and json:
        raise misused("--watch and --json do not go together")

    def found() -> list[GroupState]:
        return described(cluster, None if all_groups else list(dict.fromkeys(group or [])))

    def show() -> None:
        if state:
            _print_states(found())
        elif members:
            _print_members(found(), cluster.verbose)
        else:
            for place, each in enumerate(found()):
                if place:
                    print()
                _print_offsets(each, cluster.verbose)

    if json:
        print_json(GroupStates(found()))
    elif watched:
        watch(cluster, show, every)
    else:
        show()


@app.command("delete", epilog=json_help(Deleted))
@with_cluster()
def delete(
    cluster: Cluster,
    group: Annotated[
        list[str],
        typer.Option(
            "--group", "-g", "-G", metavar="GROUP", help="The group; may be given several times."
        ),
    ],
    json: Json = False,
) -> None:
    """Delete groups that have no members, and their offsets with them.

    \b
    Examples:
      partage groups delete --group readers
    """
    cluster.metadata()
    answers = cluster.admin.delete_consumer_groups(
        list(dict.fromkeys(group)), request_timeout=cluster.timeout_s
    )
    deleted, failed = [], []
    for name, answer in answers.items():
        refusal = cluster.attempt(
            answer, "see with partage groups list whether it was deleted all the same"
        )
        if refusal is None:
            deleted.append(name)
        else:
            failed.append(NotDeleted(name, _why_not_deleted(refusal)))
    if json:
        print_json(Deleted(deleted, failed))
    else:
        for name in deleted:
            print(f"deleted group {name}")
    if failed:
        raise Failure(
            "; ".join(f"group {each.group} was not deleted: {each.error}" for each in failed)
        )


def _why_not_deleted(refusal: KafkaError) -> str:
    if refusal.code() == KafkaError.NON_EMPTY_GROUP:
        return "it has members; stop them first"
    if refusal.code() == KafkaError.GROUP_ID_NOT_FOUND:
        return "no such group"
    return words(refusal)


def _states(given: list[str]) -> set[str]:
    known = {name.lower(): name for name in STATES}
    asked = [word.strip() for text in given for word in text.split(",") if word.strip()]
    unknown = [word for word in asked if word.lower() not in known]
    if unknown:
        raise misused(f"no such state: {', '.join(unknown)}; there are {', '.join(STATES)}")
    return {known[word.lower()] for word in asked}


def _print_states(groups: Sequence[GroupState]) -> None:
    print_table(
        [
            "GROUP",
            "COORDINATOR (ID)",
            "PROTOCOL-TYPE",
            "TYPE",
            "PROTOCOL",
            "STATE",
            "#MEMBERS",
            "LAG",
        ],
        [
            (
                each.group,
                each.coordinator
                and f"{each.coordinator.host}:{each.coordinator.port} ({each.coordinator.id})",
                each.protocol_type,
                each.type,
                each.protocol,
                each.state,
                len(each.members),
                each.total_lag,
            )
            for each in groups
        ],
    )


def _print_members(groups: Sequence[GroupState], verbose: bool) -> None:
    columns = ["GROUP", "CONSUMER-ID", "INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    columns.append("ASSIGNMENT")
    if verbose:
        columns += ["SUBSCRIPTION", "METADATA-BYTES", "ASSIGNMENT-BYTES"]
    rows: list[list[object]] = []
    for group in groups:
        if not group.members:
            note(f"group {group.group} has no members")
        for member in group.members:
            row = [group.group, *_identity(member), _assigned_count(member)]
            row.append(
                " ".join(ranges(each.topic, each.partitions) for each in member.partitions) or None
            )
            if verbose:
                subscribed = None if member.subscription is None else ",".join(member.subscription)
                row += [subscribed, member.metadata_bytes, member.assignment_bytes]
            rows.append(row)
    print_table(columns, rows)


def _identity(member: MemberState) -> list[object]:
    return [member.member_id, member.group_instance_id, member.host, member.client_id]


def _assigned_count(member: MemberState) -> int:
    return sum(len(each.partitions) for each in member.partitions)


def _print_offsets(group: GroupState, verbose: bool) -> None:
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
        print_table(columns, rows)
    endless = sum(each.log_end_offset is None for each in group.offsets)
    without = (
        f" without {count(endless, 'partition')} whose end is not known now" if endless else ""
    )
    print(
        f"group {group.group}: {group.state}, {count(len(group.members), 'member')}, "
        f"{count(len(rows), 'partition')}, total lag {group.total_lag:,}{without}"
    )


def _print_raw_members(group: GroupState) -> None:
    """Members whose metadata only they themselves understand."""
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
    )
    kind = group.protocol_type or "unknown"
    print(
        f"group {group.group}: protocol type {kind}, protocol {group.protocol or 'not chosen yet'}"
    )

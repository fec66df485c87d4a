"""``partage groups members``: the members of groups and their partitions."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from partage.console.common.cluster_client import ClusterClient
from partage.console.common.dispatch import command_app
from partage.console.common.errors import usage_error
from partage.console.common.options import (
    GroupsArgument,
    GroupsOption,
    JsonOption,
    required_names,
    with_coordinators,
)
from partage.console.common.output import json_help, note, print_json
from partage.console.common.table import print_table
from partage.console.common.watch import WATCH_INTERVAL_S, WatchIntervalOption, WatchOption, watch
from partage.console.groups.assignment_columns import assignment_cells, assignment_columns
from partage.console.groups.describe import GroupDescription, MemberDescription, describe_groups

app = command_app()


class GroupMembers(msgspec.Struct, frozen=True):
    """A group; ``assignor`` is the protocol that its members agreed on, null if there is none.

    The epochs are null in a group with the classic protocol.
    """

    group: str
    state: str
    protocol_type: str | None
    assignor: str | None
    members: list[MemberDescription]
    group_epoch: int | None = None
    target_epoch: int | None = None


class GroupMembersList(msgspec.Struct, frozen=True):
    """Output of ``partage groups members --json``."""

    groups: list[GroupMembers]


@app.command("members", epilog=json_help(GroupMembersList))
@with_coordinators()
def members(
    cluster: ClusterClient,
    name: GroupsArgument = None,
    group: GroupsOption = None,
    watched: WatchOption = False,
    every: WatchIntervalOption = WATCH_INTERVAL_S,
    json: JsonOption = False,
) -> None:
    """Show the members of groups: client, host, assignor, partitions.

    \b
    Examples:
      partage groups members readers
      partage groups members readers --json
    """
    names = required_names(name, group, "group")
    if watched and json:
        raise usage_error("--watch and --json cannot be combined")
    if json:
        print_json(GroupMembersList([_members(each) for each in describe_groups(cluster, names)]))
    elif watched:
        watch(cluster, lambda: _print(describe_groups(cluster, names)), every)
    else:
        _print(describe_groups(cluster, names))


def _members(group: GroupDescription) -> GroupMembers:
    return GroupMembers(
        group=group.group,
        state=group.state,
        protocol_type=group.protocol_type,
        assignor=group.protocol,
        members=group.members,
        group_epoch=group.group_epoch,
        target_epoch=group.target_epoch,
    )


def _print(groups: Sequence[GroupDescription]) -> None:
    for group in groups:
        if not group.members:
            note(f"group {group.group} has no members")
    has_epochs = any(group.group_epoch is not None for group in groups)
    print_table(
        [
            "GROUP",
            "CONSUMER-ID",
            "INSTANCE-ID",
            "CLIENT-ID",
            "HOST",
            "ASSIGNOR",
            "#PARTITIONS",
            *assignment_columns(has_epochs=has_epochs),
        ],
        [
            (
                group.group,
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.host,
                group.protocol,
                sum(len(owned.partitions) for owned in each.partitions),
                *assignment_cells(each, has_epochs=has_epochs),
            )
            for group in groups
            for each in group.members
        ],
        optional=[
            "HOST",
            "ASSIGNOR",
            "#PARTITIONS",
            "INSTANCE-ID",
            *(["GROUP"] if len(groups) == 1 else []),
            "CLIENT-ID",
        ],
        wrapped=True,
    )

"""``partage groups members``: who is in a group, from where, and who reads what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from partage.console.cluster import Cluster
from partage.console.failure import misused
from partage.console.group_states import GroupState, MemberState, described
from partage.console.options import Json
from partage.console.show import note, print_json, print_table, ranges
from partage.console.watching import EVERY_S, Every, Watch, watch


class GroupMembers(msgspec.Struct, frozen=True):
    """One group; ``assignor`` is the protocol that its members agreed on, null for none."""

    group: str
    state: str
    protocol_type: str | None
    assignor: str | None
    members: list[MemberState]


class Members(msgspec.Struct, frozen=True):
    """``partage groups members --json``."""

    groups: list[GroupMembers]


def members(
    cluster: Cluster,
    name: Annotated[
        list[str] | None,
        typer.Argument(metavar="[GROUP]...", help="The groups.", show_default=False),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", "-g", "-G", metavar="GROUP", help="The same as an option."),
    ] = None,
    watched: Watch = False,
    every: Every = EVERY_S,
    json: Json = False,
) -> None:
    """Show who is in a group: client, host, assignor, partitions.

    \b
    Examples:
      partage groups members readers
      partage groups members readers --json
    """
    names = list(dict.fromkeys([*(name or []), *(group or [])]))
    if not names:
        raise misused("members wants a group")
    if watched and json:
        raise misused("--watch and --json do not go together")
    if json:
        print_json(Members([_members(each) for each in described(cluster, names)]))
    elif watched:
        watch(cluster, lambda: _print(described(cluster, names)), every)
    else:
        _print(described(cluster, names))


def _members(group: GroupState) -> GroupMembers:
    assignor = group.protocol
    return GroupMembers(group.group, group.state, group.protocol_type, assignor, group.members)


def _print(groups: Sequence[GroupState]) -> None:
    for group in groups:
        if not group.members:
            note(f"group {group.group} has no members")
    print_table(
        [
            "GROUP",
            "CONSUMER-ID",
            "INSTANCE-ID",
            "CLIENT-ID",
            "HOST",
            "ASSIGNOR",
            "#PARTITIONS",
            "ASSIGNMENT",
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
                " ".join(ranges(owned.topic, owned.partitions) for owned in each.partitions)
                or None,
            )
            for group in groups
            for each in group.members
        ],
    )

"""``partage groups remove-member``: remove members from a group."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import typer

from partage.client.errors import error_name
from partage.console.common.cluster_client import ClusterClient
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
from partage.console.common.output import count, json_help, print_json
from partage.console.common.suggestions import did_you_mean
from partage.console.groups.coordinator_requests import remove_members
from partage.console.groups.describe import MemberDescription, describe_groups
from partage.model.errors import ErrorCode
from partage.wire.apis.leave_group import LeaveGroupMember

app = command_app()

_REASON: Final = "removed by partage groups remove-member"


class RemovedMember(msgspec.Struct, frozen=True):
    """A member, and the error if it was not removed."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    error: str | None


class MemberRemovalReport(msgspec.Struct, frozen=True):
    """Output of ``partage groups remove-member --json``; ``executed`` is false for a dry run."""

    group: str
    executed: bool
    members: list[RemovedMember]


@app.command("remove-member", epilog=json_help(MemberRemovalReport))
@with_coordinators()
def remove_member(
    cluster: ClusterClient,
    name: GroupArgument = None,
    group: GroupOption = None,
    member_id: Annotated[
        list[str] | None,
        typer.Option("--member-id", metavar="ID", help="Id of a member; repeatable."),
    ] = None,
    group_instance_id: Annotated[
        list[str] | None,
        typer.Option(
            "--group-instance-id",
            metavar="ID",
            help="group.instance.id of a static member; repeatable.",
        ),
    ] = None,
    all_members: Annotated[
        bool, typer.Option("--all-members", help="All members of the group.")
    ] = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Remove members from a group, so that others get their partitions.

    This is for members that were stopped but whose session has not expired, such as static
    members. A running member joins again. On a terminal, the command asks for confirmation.

    \b
    Examples:
      partage groups remove-member readers --all-members --dry-run
      partage groups remove-member readers --group-instance-id reader-1 --yes
    """
    wanted = required_name(name, group, "group")
    if all_members == bool(member_id or group_instance_id):
        raise usage_error(
            "remove-member requires either --member-id, --group-instance-id or --all-members"
        )
    (described,) = describe_groups(cluster, [wanted])
    members = _selected(
        wanted, described.members, member_id or [], group_instance_id or [], all_members
    )
    errors: list[int] = [ErrorCode.NONE] * len(members)
    if members and not dry_run:
        confirm(
            f"remove {count(len(members), 'member')} from group {wanted}",
            [f"{each.member_id} (client {each.client_id})" for each in members],
            yes=yes,
        )
        errors = remove_members(
            cluster,
            wanted,
            [
                LeaveGroupMember(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    reason=_REASON,
                )
                for each in members
            ],
        )
    report = MemberRemovalReport(
        wanted,
        not dry_run,
        [
            RemovedMember(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                None if code == ErrorCode.NONE else error_name(code),
            )
            for each, code in zip(members, errors, strict=True)
        ],
    )
    _print_report(report, json)


def _selected(
    group: str,
    members: list[MemberDescription],
    member_ids: list[str],
    instance_ids: list[str],
    all_members: bool,
) -> list[MemberDescription]:
    """Return the members to remove.

    Raises:
        CommandError: The group has no member with one of the ids.
    """
    by_member_id = {each.member_id: each for each in members}
    by_instance_id = {each.group_instance_id: each for each in members if each.group_instance_id}
    missing = [f"member id {each}" for each in member_ids if each not in by_member_id]
    missing += [f"group.instance.id {each}" for each in instance_ids if each not in by_instance_id]
    if missing:
        hint = did_you_mean([*member_ids, *instance_ids], [*by_member_id, *by_instance_id])
        raise CommandError(f"group {group} has no member with {', '.join(missing)}{hint}")
    chosen = [by_member_id[each] for each in member_ids]
    chosen += [by_instance_id[each] for each in instance_ids]
    ids = {each.member_id for each in chosen}
    return [each for each in members if all_members or each.member_id in ids]


def _print_report(report: MemberRemovalReport, json: bool) -> None:
    if json:
        print_json(report)
    else:
        verb = "removed" if report.executed else "would remove"
        for each in report.members:
            if each.error is None:
                print(f"{verb} member {each.member_id} (client {each.client_id})")
        if not report.members:
            print(f"group {report.group} has no members")
    failed = [f"{each.member_id} ({each.error})" for each in report.members if each.error]
    if failed:
        raise CommandError(f"members of group {report.group} not removed: {', '.join(failed)}")

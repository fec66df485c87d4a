"""``partage proposal multi-assignor``: every member assigns."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import typer

from partage.console.common.cluster_client import ClusterClient
from partage.console.common.dispatch import command_app
from partage.console.common.options import with_cluster
from partage.console.common.output import json_help
from partage.console.proposal.join_group_options import (
    AssignorName,
    CoordinatorArguments,
    MemberArguments,
    run_coordinator,
    run_member_command,
    with_arguments,
)
from partage.console.records.record_json import JsonRecord
from partage.proposals.join_group.frames import ProtocolVersions
from partage.proposals.multi_assignor.computation import MetadataCompression
from partage.proposals.multi_assignor.coordinator import MultiAssignorCoordinator
from partage.proposals.multi_assignor.member import MultiAssignorMember, MultiAssignorOptions
from partage.proposals.multi_assignor.messages import JOIN_GROUP
from partage.proposals.simulation.message_sizes import SHARED_APIS

app = command_app()

VERSIONS: Final = ProtocolVersions((*SHARED_APIS, (JOIN_GROUP, 0)))


class MemberCompression(StrEnum):
    """The part of its metadata that a member compresses."""

    NONE = "none"
    MEMBER = "member"


@app.command("coordinator")
@with_arguments(CoordinatorArguments)
def coordinator(
    arguments: CoordinatorArguments,
    compresses_members: Annotated[
        bool,
        typer.Option(
            "--compresses-members", help="Compress the metadata of all members as a whole."
        ),
    ] = False,
) -> None:
    """Run a coordinator that sends the metadata of all members to all members.

    \b
    Examples:
      partage proposal multi-assignor coordinator --data-dir coordinator-data
    """
    machine = MultiAssignorCoordinator(arguments.settings(), compresses_members=compresses_members)
    run_coordinator(machine, VERSIONS, "multi-assignor", arguments)


@app.command("member", epilog=json_help(JsonRecord, "prints one line per record:"))
@with_cluster("--timeout-ms")
@with_arguments(MemberArguments)
def member(
    cluster: ClusterClient,
    arguments: MemberArguments,
    assignor: Annotated[
        list[AssignorName] | None,
        typer.Option(
            "--assignor",
            show_default="roundrobin",
            help="Assignor; repeatable, in order of preference. The group uses one that all "
            "members have.",
        ),
    ] = None,
    hashes_subscription: Annotated[
        bool,
        typer.Option(
            "--hashes-subscription",
            help="Send a hash of the subscription. Only the largest sub-group with one "
            "subscription is active.",
        ),
    ] = False,
    compression: Annotated[
        MemberCompression, typer.Option("--compression", help="Compress the member's metadata.")
    ] = MemberCompression.NONE,
    checks_metadata: Annotated[
        bool,
        typer.Option(
            "--checks-metadata/--no-checks-metadata",
            help="Rejoin if members have different views of the topics. Consistent hashing needs "
            "no agreement.",
        ),
    ] = True,
    coordinator_metadata_after: Annotated[
        int | None,
        typer.Option(
            "--coordinator-metadata-after",
            metavar="N",
            min=1,
            help="From N disagreements in a row on, fetch topics from the first broker of "
            "--bootstrap-server only, which acts as the coordinator here.",
        ),
    ] = None,
) -> None:
    """Run a member that assigns its own part, and print its records. Ctrl-C leaves the group.

    \b
    Examples:
      partage proposal multi-assignor member flights --group readers --json
      partage proposal multi-assignor member flights --group readers --command-config client.conf
    """
    machine = MultiAssignorMember(
        arguments.settings(),
        frozenset(arguments.topics or ()),
        MultiAssignorOptions(
            assignors=tuple(each.create() for each in assignor or [AssignorName.ROUND_ROBIN]),
            pattern=arguments.topic_pattern(),
            hashes_subscription=hashes_subscription,
            compression=MetadataCompression(compression.value),
            checks_metadata=checks_metadata,
            coordinator_metadata_after=coordinator_metadata_after,
            user_data=arguments.user_data.encode(),
        ),
    )
    run_member_command(machine, VERSIONS, arguments, cluster)

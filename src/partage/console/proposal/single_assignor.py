"""``partage proposal single-assignor``: one member assigns, within the join."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from partage.console.common.cluster_client import ClusterClient
from partage.console.common.dispatch import command_app
from partage.console.common.options import with_cluster
from partage.console.common.output import json_help
from partage.console.proposal.join_group_options import (
    MEMBER_SETTINGS,
    SETTINGS,
    AssignorName,
    CoordinatorArguments,
    MemberArguments,
    run_coordinator,
    run_member_command,
    with_arguments,
)
from partage.console.records.record_json import JsonRecord
from partage.proposals.join_group.frames import ProtocolVersions
from partage.proposals.simulation.message_sizes import SHARED_APIS
from partage.proposals.single_assignor.coordinator import (
    SingleAssignorCoordinator,
    SynchronizerChoice,
    TimeoutReaction,
)
from partage.proposals.single_assignor.member import SingleAssignorMember, SingleAssignorOptions
from partage.proposals.single_assignor.messages import JOIN_GROUP

app = command_app()

VERSIONS: Final = ProtocolVersions((*SHARED_APIS, (JOIN_GROUP, 0)))


@app.command("coordinator")
@with_arguments(CoordinatorArguments)
def coordinator(
    arguments: CoordinatorArguments,
    synchronize_timeout_ms: Annotated[
        int,
        typer.Option(
            "--synchronize-timeout-ms",
            metavar="MS",
            min=1,
            help="Time to wait for the assignment of a member whose request has no such time.",
        ),
    ] = SETTINGS.synchronize_timeout_ms,
    choice: Annotated[
        SynchronizerChoice, typer.Option("--choice", help="The member that assigns.")
    ] = SynchronizerChoice.RANDOM,
    reaction: Annotated[
        TimeoutReaction, typer.Option("--reaction", help="Reaction to an assignment that is late.")
    ] = TimeoutReaction.FAIL_GENERATION,
) -> None:
    """Run a coordinator that sends the metadata of all members to one member, which assigns.

    \b
    Examples:
      partage proposal single-assignor coordinator --data-dir coordinator-data
    """
    settings = arguments.settings(synchronize_timeout_ms=synchronize_timeout_ms)
    machine = SingleAssignorCoordinator(settings, choice=choice, reaction=reaction)
    run_coordinator(machine, VERSIONS, "single-assignor", arguments)


@app.command("member", epilog=json_help(JsonRecord, "prints one line per record:"))
@with_cluster("--timeout-ms")
@with_arguments(MemberArguments)
def member(
    cluster: ClusterClient,
    arguments: MemberArguments,
    assignor: Annotated[
        AssignorName, typer.Option("--assignor", help="The assignor, if this member assigns.")
    ] = AssignorName.ROUND_ROBIN,
    metadata_version: Annotated[
        int,
        typer.Option(
            "--metadata-version",
            metavar="N",
            min=0,
            max=32_767,
            help="Version of the metadata, for --choice highest-version.",
        ),
    ] = 0,
    synchronize_timeout_ms: Annotated[
        int,
        typer.Option(
            "--synchronize-timeout-ms",
            metavar="MS",
            min=1,
            help="Time for which the coordinator waits for the assignment of this member.",
        ),
    ] = MEMBER_SETTINGS.synchronize_timeout_ms,
    sends_timeout: Annotated[
        bool,
        typer.Option(
            "--sends-timeout/--no-sends-timeout",
            help="Send that time in the request; otherwise the coordinator's setting applies.",
        ),
    ] = True,
    assign_ms: Annotated[
        int,
        typer.Option(
            "--assign-ms",
            metavar="MS",
            min=0,
            help="Delay before the assignment, like a slow assignor.",
        ),
    ] = 0,
) -> None:
    """Run a member that assigns if it is chosen, and print its records. Ctrl-C leaves the group.

    \b
    Examples:
      partage proposal single-assignor member flights --group readers --json
      partage proposal single-assignor member flights --group readers --command-config client.conf
    """
    machine = SingleAssignorMember(
        arguments.settings(synchronize_timeout_ms=synchronize_timeout_ms),
        frozenset(arguments.topics or ()),
        SingleAssignorOptions(
            assignor=assignor.create(),
            pattern=arguments.topic_pattern(),
            metadata_version=metadata_version,
            sends_timeout=sends_timeout,
            user_data=arguments.user_data.encode(),
        ),
    )
    run_member_command(
        machine,
        VERSIONS,
        arguments,
        cluster,
        synchronize_timeout_ms=synchronize_timeout_ms,
        assign_ms=assign_ms,
    )

"""``partage proposal single-assignor``: one member assigns, within the join."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import typer

from partage.console.common.dispatch import command_app
from partage.console.common.options import JsonOption
from partage.console.common.output import json_help
from partage.console.proposal.join_group_options import (
    COORDINATOR_DEFAULT,
    MEMBER_SETTINGS,
    REFRESH_DEFAULT_MS,
    SETTINGS,
    AssignorName,
    AssignorOption,
    BootstrapOption,
    CommitOption,
    CoordinatorOption,
    DataDirOption,
    GroupOption,
    HeartbeatOption,
    InitialDelayOption,
    ListenOption,
    MemberArguments,
    PatternOption,
    RefreshOption,
    RetryOption,
    SessionMaxOption,
    SessionMinOption,
    SessionOption,
    TopicsArgument,
    UserDataOption,
    VerboseOption,
    create_assignor,
    run_coordinator,
    run_member_command,
)
from partage.console.records.record_json import JsonRecord
from partage.proposals.join_group.frames import ProtocolVersions
from partage.proposals.join_group.settings import MemberSettings
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
def coordinator(
    listen: ListenOption = COORDINATOR_DEFAULT,
    data_dir: DataDirOption = None,
    session_timeout_min_ms: SessionMinOption = SETTINGS.session_timeout_min_ms,
    session_timeout_max_ms: SessionMaxOption = SETTINGS.session_timeout_max_ms,
    initial_rebalance_delay_ms: InitialDelayOption = SETTINGS.initial_rebalance_delay_ms,
    synchronize_timeout_ms: Annotated[
        int,
        typer.Option(
            "--synchronize-timeout-ms",
            metavar="MS",
            min=1,
            help="Time to wait for the assignment of a member whose request does not say it.",
        ),
    ] = SETTINGS.synchronize_timeout_ms,
    choice: Annotated[
        SynchronizerChoice, typer.Option("--choice", help="The member that assigns.")
    ] = SynchronizerChoice.RANDOM,
    reaction: Annotated[
        TimeoutReaction, typer.Option("--reaction", help="What follows if it is too late.")
    ] = TimeoutReaction.FAIL_GENERATION,
    verbose: VerboseOption = False,
) -> None:
    """Run a coordinator that sends the metadata of all members to one member, which assigns.

    \b
    Examples:
      partage proposal single-assignor coordinator --data-dir coordinator-data
    """
    run_coordinator(
        lambda settings: SingleAssignorCoordinator(settings, choice=choice, reaction=reaction),
        msgspec.structs.replace(
            SETTINGS,
            session_timeout_min_ms=session_timeout_min_ms,
            session_timeout_max_ms=session_timeout_max_ms,
            initial_rebalance_delay_ms=initial_rebalance_delay_ms,
            synchronize_timeout_ms=synchronize_timeout_ms,
        ),
        VERSIONS,
        listen=listen,
        data_dir=data_dir,
        verbose=verbose,
    )


@app.command("member", epilog=json_help(JsonRecord, "prints one line per record:"))
def member(
    group: GroupOption,
    topics: TopicsArgument = None,
    pattern: PatternOption = None,
    coordinator: CoordinatorOption = COORDINATOR_DEFAULT,
    bootstrap_server: BootstrapOption = "127.0.0.1:9092",
    assignor: AssignorOption = AssignorName.ROUND_ROBIN,
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
            help="Time that the coordinator shall wait for the assignment of this member.",
        ),
    ] = MEMBER_SETTINGS.synchronize_timeout_ms,
    sends_timeout: Annotated[
        bool,
        typer.Option(
            "--sends-timeout/--no-sends-timeout",
            help="Say that time in the request; otherwise the coordinator's setting applies.",
        ),
    ] = True,
    assign_ms: Annotated[
        int,
        typer.Option(
            "--assign-ms", metavar="MS", min=0, help="Wait before assigning, as a slow assignor."
        ),
    ] = 0,
    user_data: UserDataOption = "",
    session_timeout_ms: SessionOption = MEMBER_SETTINGS.session_timeout_ms,
    heartbeat_interval_ms: HeartbeatOption = MEMBER_SETTINGS.heartbeat_interval_ms,
    commit_interval_ms: CommitOption = MEMBER_SETTINGS.commit_interval_ms,
    retry_backoff_ms: RetryOption = MEMBER_SETTINGS.retry_backoff_ms,
    metadata_refresh_ms: RefreshOption = REFRESH_DEFAULT_MS,
    json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Run a member that assigns if it is chosen, and print its records. Ctrl-C leaves the group.

    \b
    Examples:
      partage proposal single-assignor member flights --group readers --json
    """
    settings = MemberSettings(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        heartbeat_interval_ms=heartbeat_interval_ms,
        commit_interval_ms=commit_interval_ms,
        retry_backoff_ms=retry_backoff_ms,
        synchronize_timeout_ms=synchronize_timeout_ms,
    )
    options = SingleAssignorOptions(
        assignor=create_assignor(assignor),
        pattern=pattern,
        metadata_version=metadata_version,
        sends_timeout=sends_timeout,
        user_data=user_data.encode(),
    )
    run_member_command(
        lambda names: SingleAssignorMember(settings, names, options),
        settings,
        VERSIONS,
        MemberArguments(
            topics=topics,
            pattern=pattern,
            coordinator=coordinator,
            bootstrap_server=bootstrap_server,
            metadata_refresh_ms=metadata_refresh_ms,
            json=json,
            verbose=verbose,
            assign_ms=assign_ms,
        ),
    )

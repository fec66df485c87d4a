"""``partage proposal multi-assignor``: every member assigns."""

from __future__ import annotations

from enum import StrEnum
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
from partage.proposals.multi_assignor.computation import Compression
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
def coordinator(
    listen: ListenOption = COORDINATOR_DEFAULT,
    data_dir: DataDirOption = None,
    session_timeout_min_ms: SessionMinOption = SETTINGS.session_timeout_min_ms,
    session_timeout_max_ms: SessionMaxOption = SETTINGS.session_timeout_max_ms,
    initial_rebalance_delay_ms: InitialDelayOption = SETTINGS.initial_rebalance_delay_ms,
    compresses_members: Annotated[
        bool,
        typer.Option(
            "--compresses-members", help="Compress the metadata of all members as a whole."
        ),
    ] = False,
    verbose: VerboseOption = False,
) -> None:
    """Run a coordinator that sends the metadata of all members to all members.

    \b
    Examples:
      partage proposal multi-assignor coordinator --data-dir coordinator-data
    """
    run_coordinator(
        lambda settings: MultiAssignorCoordinator(settings, compresses_members=compresses_members),
        msgspec.structs.replace(
            SETTINGS,
            session_timeout_min_ms=session_timeout_min_ms,
            session_timeout_max_ms=session_timeout_max_ms,
            initial_rebalance_delay_ms=initial_rebalance_delay_ms,
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
            help="After N disagreements in a row, fetch topics from the first broker of "
            "--bootstrap-server, which stands for the coordinator.",
        ),
    ] = None,
    user_data: UserDataOption = "",
    session_timeout_ms: SessionOption = MEMBER_SETTINGS.session_timeout_ms,
    heartbeat_interval_ms: HeartbeatOption = MEMBER_SETTINGS.heartbeat_interval_ms,
    commit_interval_ms: CommitOption = MEMBER_SETTINGS.commit_interval_ms,
    retry_backoff_ms: RetryOption = MEMBER_SETTINGS.retry_backoff_ms,
    metadata_refresh_ms: RefreshOption = REFRESH_DEFAULT_MS,
    json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Run a member that assigns its own part, and print its records. Ctrl-C leaves the group.

    \b
    Examples:
      partage proposal multi-assignor member flights --group readers --json
    """
    settings = MemberSettings(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        heartbeat_interval_ms=heartbeat_interval_ms,
        commit_interval_ms=commit_interval_ms,
        retry_backoff_ms=retry_backoff_ms,
    )
    options = MultiAssignorOptions(
        assignor=create_assignor(assignor),
        pattern=pattern,
        hashes_subscription=hashes_subscription,
        compression=Compression(compression.value),
        checks_metadata=checks_metadata,
        coordinator_metadata_after=coordinator_metadata_after,
        user_data=user_data.encode(),
    )
    run_member_command(
        lambda names: MultiAssignorMember(settings, names, options),
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
        ),
    )

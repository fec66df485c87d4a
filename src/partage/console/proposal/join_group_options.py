"""Options of the designs with JoinGroup, and their coordinators and members in the foreground."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from partage.assignors import ConsistentHashing, Range, RoundRobin
from partage.assignors.base import Assignor
from partage.client.addresses import Address, InvalidAddressError, parse_bootstrap_servers
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.options import BOOTSTRAP_VARIABLE
from partage.console.common.output import discard_stdout, note
from partage.console.proposal.record_printer import record_printer
from partage.model.addresses import AddressParseError, parse_address
from partage.model.topic_partition import TopicPartition
from partage.proposals.join_group.coordinator import JoinGroupCoordinator
from partage.proposals.join_group.frames import ProtocolVersions
from partage.proposals.join_group.member import JoinGroupMember
from partage.proposals.join_group.settings import CoordinatorSettings, MemberSettings
from partage.proposals.sockets.foreground import ForegroundError
from partage.proposals.sockets.join_group.foreground import (
    MemberOptions,
    run_member,
    serve_coordinator,
)

COORDINATOR_DEFAULT: Final = "127.0.0.1:9192"


class AssignorName(StrEnum):
    """The assignors of members, by the names of their protocols."""

    ROUND_ROBIN = "roundrobin"
    RANGE = "range"
    CONSISTENT_HASHING = "consistent-hashing"


def create_assignor(name: AssignorName) -> Assignor:
    """Return an assignor. Consistent hashing has no load bound: it needs no agreement on topics."""
    match name:
        case AssignorName.ROUND_ROBIN:
            return RoundRobin()
        case AssignorName.RANGE:
            return Range()
        case AssignorName.CONSISTENT_HASHING:
            return ConsistentHashing(headroom=None)


def _ms(name: str, meaning: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(name, metavar="MS", min=1, help=meaning)
    return option


# Options of coordinators

ListenOption = Annotated[
    str,
    typer.Option("--listen", metavar="HOST:PORT", help="Address to listen on; port 0 is any."),
]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Directory for generations and committed offsets. Without it, they are lost when the "
        "coordinator ends.",
    ),
]
SessionMinOption = Annotated[
    int, _ms("--session-timeout-min-ms", "Shortest session timeout of a member.")
]
SessionMaxOption = Annotated[
    int, _ms("--session-timeout-max-ms", "Longest session timeout of a member.")
]
InitialDelayOption = Annotated[
    int,
    typer.Option(
        "--initial-rebalance-delay-ms",
        metavar="MS",
        min=0,
        help="Time for which an empty group waits for further members.",
    ),
]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Log at DEBUG level.")]

# Options of members

TopicsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="TOPIC", help="Topics to subscribe to.", show_default=False),
]
PatternOption = Annotated[
    str | None,
    typer.Option(
        "--pattern", metavar="REGEX", help="Subscribe to all topics that match, instead of TOPIC."
    ),
]
GroupOption = Annotated[str, typer.Option("--group", "-g", metavar="GROUP", help="The group.")]
CoordinatorOption = Annotated[
    str, typer.Option("--coordinator", metavar="HOST:PORT", help="Address of the coordinator.")
]
BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        envvar=BOOTSTRAP_VARIABLE,
        help="Broker with the topics, or a comma-separated list of brokers.",
    ),
]
AssignorOption = Annotated[
    AssignorName, typer.Option("--assignor", help="The assignor; the same for all members.")
]
UserDataOption = Annotated[
    str, typer.Option("--user-data", metavar="TEXT", help="Further metadata for the assignor.")
]
SessionOption = Annotated[
    int,
    _ms("--session-timeout-ms", "Time without heartbeat after which the member is removed."),
]
HeartbeatOption = Annotated[int, _ms("--heartbeat-interval-ms", "Interval of heartbeats.")]
CommitOption = Annotated[int, _ms("--commit-interval-ms", "Interval of commits.")]
RetryOption = Annotated[int, _ms("--retry-backoff-ms", "Time before the member connects again.")]
RefreshOption = Annotated[
    int, _ms("--metadata-refresh-ms", "Interval of looks for other partition counts.")
]

SETTINGS: Final = CoordinatorSettings()
MEMBER_SETTINGS: Final = MemberSettings(group_id="")
REFRESH_DEFAULT_MS: Final = 30_000


class MemberArguments(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments that members of all designs have; see the options of the same names."""

    topics: list[str] | None
    pattern: str | None
    coordinator: str
    bootstrap_server: str
    metadata_refresh_ms: int
    json: bool
    verbose: bool
    assign_ms: int = 0


def run_coordinator(
    create: Callable[[CoordinatorSettings], JoinGroupCoordinator],
    settings: CoordinatorSettings,
    versions: ProtocolVersions,
    *,
    listen: str,
    data_dir: Path | None,
    verbose: bool,
) -> None:
    """Run a coordinator until a signal. It prints its address when it accepts connections.

    Raises:
        CommandError: An option is invalid, or the coordinator cannot start or continue.
    """
    _log_to_stderr(verbose)
    if settings.session_timeout_min_ms > settings.session_timeout_max_ms:
        raise usage_error(
            f"--session-timeout-min-ms {settings.session_timeout_min_ms} is above "
            f"--session-timeout-max-ms {settings.session_timeout_max_ms}"
        )
    address = _address("--listen", listen)
    try:
        asyncio.run(
            serve_coordinator(
                create(settings),
                versions,
                address,
                data_dir,
                lambda bound: print(bound, flush=True),
            )
        )
    except ForegroundError as error:
        raise CommandError(str(error)) from None


def run_member_command(
    create: Callable[[frozenset[str]], JoinGroupMember],
    settings: MemberSettings,
    versions: ProtocolVersions,
    arguments: MemberArguments,
) -> None:
    """Run a member until a signal. It prints the records that it reads.

    Raises:
        CommandError: An option is invalid, or the member cannot start or continue.
    """
    _log_to_stderr(arguments.verbose)
    _check(settings, arguments)
    member = create(frozenset(arguments.topics or ()))

    def on_change(partitions: frozenset[TopicPartition]) -> None:
        names = ", ".join(f"{each.topic}-{each.partition}" for each in sorted(partitions))
        note(f"{member.member_id} reads {names or 'nothing'} in generation {member.generation}")

    options = MemberOptions(
        coordinator=_address("--coordinator", arguments.coordinator),
        bootstrap_servers=arguments.bootstrap_server,
        metadata_refresh_ms=arguments.metadata_refresh_ms,
        assign_ms=arguments.assign_ms,
    )
    try:
        asyncio.run(
            run_member(member, versions, options, record_printer(arguments.json), on_change)
        )
    except ForegroundError as error:
        raise CommandError(str(error)) from None
    except BrokenPipeError:
        discard_stdout()
        note("output closed by its reader")


def _check(settings: MemberSettings, arguments: MemberArguments) -> None:
    if bool(arguments.topics) == (arguments.pattern is not None):
        raise usage_error("name topics, or a --pattern, but not both")
    if arguments.pattern is not None:
        try:
            re.compile(arguments.pattern)
        except re.error as error:
            raise usage_error(
                f"--pattern {arguments.pattern!r} is not a regular expression: {error}"
            ) from None
    if settings.heartbeat_interval_ms >= settings.session_timeout_ms:
        raise usage_error(
            f"--heartbeat-interval-ms {settings.heartbeat_interval_ms} must be below "
            f"--session-timeout-ms {settings.session_timeout_ms}"
        )
    try:
        parse_bootstrap_servers(arguments.bootstrap_server)
    except InvalidAddressError as error:
        raise usage_error(str(error)) from None


def _address(option: str, text: str) -> Address:
    try:
        return Address(*parse_address(text))
    except AddressParseError as error:
        raise usage_error(f"{option}: {error}") from None


def _log_to_stderr(verbose: bool) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    logging.getLogger("asyncio").setLevel(logging.WARNING)

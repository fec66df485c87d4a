"""Options of the designs with JoinGroup, and their coordinators and members in the foreground."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

import msgspec
import typer

from partage.assignors import ConsistentHashing, Range, RoundRobin
from partage.assignors.base import Assignor
from partage.client.addresses import InvalidAddressError, parse_bootstrap_servers
from partage.client.consumer import InvalidOptionError
from partage.client.security.options import InvalidSecurityOptionError
from partage.console.common.client_options import consumer_options, own_client_options
from partage.console.common.cluster_client import ClusterClient
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.options import JsonOption
from partage.console.common.output import discard_stdout, note
from partage.console.proposal.process_options import address_option, log_to_stderr
from partage.console.proposal.record_printer import record_printer
from partage.model.arguments import INT32_MAX
from partage.model.topic_partition import TopicPartition
from partage.proposals.join_group.coordinator import JoinGroupCoordinator
from partage.proposals.join_group.frames import ProtocolVersions
from partage.proposals.join_group.member import DesignMember
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.sockets.foreground import ForegroundError
from partage.proposals.sockets.join_group.foreground import (
    MemberOptions,
    run_member,
    serve_coordinator,
)
from partage.proposals.topic_pattern import TopicPattern

COORDINATOR_DEFAULT: Final = "127.0.0.1:9192"
#: The defaults of coordinators and members.
SETTINGS: Final = CoordinatorSettings()
MEMBER_SETTINGS: Final = DesignMemberSettings(group_id="")
_REFRESH_DEFAULT_MS: Final = 30_000
#: Options of the reader that the design decides.
_OWN_OPTIONS: Final = ("group_id", "group_instance_id", "enable_auto_commit")


class AssignorName(StrEnum):
    """The assignors of members, by the names of their protocols."""

    ROUND_ROBIN = "roundrobin"
    RANGE = "range"
    CONSISTENT_HASHING = "consistent-hashing"

    def create(self) -> Assignor:
        """Return an assignor.

        Consistent hashing has no load bound, so that it needs no agreement on topics.
        """
        match self:
            case AssignorName.ROUND_ROBIN:
                return RoundRobin()
            case AssignorName.RANGE:
                return Range()
            case AssignorName.CONSISTENT_HASHING:
                return ConsistentHashing(headroom=None)


def _ms(name: str, meaning: str, least: int = 1) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        name, metavar="MS", min=least, max=INT32_MAX, help=meaning
    )
    return option


class CoordinatorArguments(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of the coordinators of all designs with JoinGroup."""

    listen: Annotated[
        str,
        typer.Option("--listen", metavar="HOST:PORT", help="Address to listen on; port 0 is any."),
    ] = COORDINATOR_DEFAULT
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            help="Directory for generations and committed offsets. Without it, they are lost when "
            "the coordinator ends.",
        ),
    ] = None
    session_timeout_min_ms: Annotated[
        int, _ms("--session-timeout-min-ms", "Shortest session timeout of a member.")
    ] = SETTINGS.session_timeout_min_ms
    session_timeout_max_ms: Annotated[
        int, _ms("--session-timeout-max-ms", "Longest session timeout of a member.")
    ] = SETTINGS.session_timeout_max_ms
    initial_rebalance_delay_ms: Annotated[
        int,
        _ms(
            "--initial-rebalance-delay-ms",
            "Time for which an empty group waits for further members.",
            least=0,
        ),
    ] = SETTINGS.initial_rebalance_delay_ms
    offsets_retention_ms: Annotated[
        int,
        _ms("--offsets-retention-ms", "Time for which a group without members keeps its offsets."),
    ] = SETTINGS.offsets_retention_ms
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log at DEBUG level.")] = False

    def settings(self, **changes: Any) -> CoordinatorSettings:
        """Return the settings of the coordinator.

        Args:
            changes: Further settings.
        """
        return CoordinatorSettings(
            session_timeout_min_ms=self.session_timeout_min_ms,
            session_timeout_max_ms=self.session_timeout_max_ms,
            initial_rebalance_delay_ms=self.initial_rebalance_delay_ms,
            offsets_retention_ms=self.offsets_retention_ms,
            **changes,
        )


class MemberArguments(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of the members of all designs with JoinGroup."""

    group: Annotated[str, typer.Option("--group", "-g", metavar="GROUP", help="The group.")]
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", help="Topics to subscribe to.", show_default=False),
    ] = None
    pattern: Annotated[
        str | None,
        typer.Option(
            "--pattern",
            metavar="REGEX",
            help="Subscribe to all topics that match, also new ones, instead of TOPIC.",
        ),
    ] = None
    coordinator: Annotated[
        str, typer.Option("--coordinator", metavar="HOST:PORT", help="Address of the coordinator.")
    ] = COORDINATOR_DEFAULT
    user_data: Annotated[
        str, typer.Option("--user-data", metavar="TEXT", help="Further metadata for the assignor.")
    ] = ""
    session_timeout_ms: Annotated[
        int,
        _ms("--session-timeout-ms", "Time without heartbeat after which the member is removed."),
    ] = MEMBER_SETTINGS.session_timeout_ms
    heartbeat_interval_ms: Annotated[
        int, _ms("--heartbeat-interval-ms", "Interval of heartbeats.")
    ] = MEMBER_SETTINGS.heartbeat_interval_ms
    join_timeout_ms: Annotated[
        int,
        _ms(
            "--join-timeout-ms",
            "Time to wait for the response to JoinGroup, longer than any session timeout in the "
            "group.",
        ),
    ] = MEMBER_SETTINGS.join_timeout_ms
    commit_interval_ms: Annotated[int, _ms("--commit-interval-ms", "Interval of commits.")] = (
        MEMBER_SETTINGS.commit_interval_ms
    )
    retry_backoff_ms: Annotated[
        int, _ms("--retry-backoff-ms", "Time before the member connects again.")
    ] = MEMBER_SETTINGS.retry_backoff_ms
    metadata_refresh_ms: Annotated[
        int,
        _ms("--metadata-refresh-ms", "Interval at which the member checks the partition counts."),
    ] = _REFRESH_DEFAULT_MS
    json: JsonOption = False

    def settings(self, **changes: Any) -> DesignMemberSettings:
        """Return the settings of the member.

        Args:
            changes: Further settings.
        """
        return DesignMemberSettings(
            group_id=self.group,
            session_timeout_ms=self.session_timeout_ms,
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            join_timeout_ms=self.join_timeout_ms,
            commit_interval_ms=self.commit_interval_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            **changes,
        )

    def topic_pattern(self) -> TopicPattern | None:
        """Return the pattern of the subscription.

        Raises:
            CommandError: There are both topics and a pattern, or neither, or it is invalid.
        """
        if bool(self.topics) == (self.pattern is not None):
            raise usage_error("name topics, or a --pattern, but not both")
        if self.pattern is None:
            return None
        try:
            return TopicPattern(self.pattern)
        except ValueError as error:
            raise usage_error(f"--pattern: {error}") from None


def with_arguments(kind: type[msgspec.Struct]) -> Callable[[Callable[..., None]], Any]:
    """Return a decorator that adds the fields of a struct to the parameters of a command.

    The command gets the struct as its argument ``arguments``.

    Args:
        kind: The struct. Each field is annotated with its Typer option or argument.
    """
    annotations = get_type_hints(kind, include_extras=True)
    added = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.required else field.default,
            annotation=annotations[field.name],
        )
        for field in msgspec.structs.fields(kind)
    ]

    def decorate(command: Callable[..., None]) -> Any:
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in inspect.signature(command, eval_str=True).parameters.values()
            if parameter.name != "arguments"
        ]

        def run(**given: Any) -> None:
            arguments = kind(**{each.name: given.pop(each.name) for each in added})
            command(arguments=arguments, **given)

        parameters = [*added, *own]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # PEP 362
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate


def run_coordinator(
    machine: JoinGroupCoordinator,
    versions: ProtocolVersions,
    design: str,
    arguments: CoordinatorArguments,
) -> None:
    """Run a coordinator until a signal. It prints its address when it accepts connections.

    Args:
        machine: The coordinator.
        versions: The requests of its design.
        design: The name of its design.
        arguments: The arguments of the command.

    Raises:
        CommandError: An option is invalid, or the coordinator cannot start or continue.
    """
    log_to_stderr(logging.DEBUG if arguments.verbose else logging.WARNING)
    if arguments.session_timeout_min_ms > arguments.session_timeout_max_ms:
        raise usage_error(
            f"--session-timeout-min-ms {arguments.session_timeout_min_ms} is above "
            f"--session-timeout-max-ms {arguments.session_timeout_max_ms}"
        )
    address = address_option("--listen", arguments.listen)
    try:
        asyncio.run(
            serve_coordinator(
                machine,
                versions,
                design,
                address,
                arguments.data_dir,
                lambda bound: print(bound, flush=True),
            )
        )
    except ForegroundError as error:
        raise CommandError(str(error)) from None


def run_member_command(
    member: DesignMember,
    versions: ProtocolVersions,
    arguments: MemberArguments,
    cluster: ClusterClient,
    *,
    synchronize_timeout_ms: int = 0,
    assign_ms: int = 0,
) -> None:
    """Run a member until a signal. It prints the records that it reads.

    Args:
        member: The member.
        versions: The requests of its design.
        arguments: The arguments of the command.
        cluster: The cluster with the topics.
        synchronize_timeout_ms: How long the coordinator waits for the member that assigns.
        assign_ms: How long the member waits before it assigns.

    Raises:
        CommandError: An option is invalid, or the member cannot start or continue.
    """
    log_to_stderr(logging.DEBUG if cluster.verbose else logging.WARNING)
    _check(arguments, cluster, synchronize_timeout_ms)
    reader_options = consumer_options(cluster.properties)
    for name in _OWN_OPTIONS:
        reader_options.pop(name, None)

    def on_change(partitions: frozenset[TopicPartition]) -> None:
        names = ", ".join(f"{each.topic}-{each.partition}" for each in sorted(partitions))
        note(f"{member.member_id} reads {names or 'nothing'} in generation {member.generation}")

    options = MemberOptions(
        coordinator=address_option("--coordinator", arguments.coordinator),
        bootstrap_servers=cluster.bootstrap_servers,
        client_options=own_client_options(cluster.properties, cluster.timeout_ms),
        reader_options=reader_options,
        metadata_refresh_ms=arguments.metadata_refresh_ms,
        assign_ms=assign_ms,
    )
    try:
        asyncio.run(
            run_member(member, versions, options, record_printer(arguments.json), on_change)
        )
    except ForegroundError as error:
        raise CommandError(str(error)) from None
    except (InvalidOptionError, InvalidSecurityOptionError) as error:
        raise usage_error(str(error)) from None
    except BrokenPipeError:
        discard_stdout()
        note("output closed by its reader")


def _check(arguments: MemberArguments, cluster: ClusterClient, synchronize_timeout_ms: int) -> None:
    if arguments.heartbeat_interval_ms > arguments.session_timeout_ms // 2:
        raise usage_error(
            f"--heartbeat-interval-ms {arguments.heartbeat_interval_ms} must be at most half of "
            f"--session-timeout-ms {arguments.session_timeout_ms}"
        )
    if arguments.join_timeout_ms <= arguments.session_timeout_ms + synchronize_timeout_ms:
        phases = f"--session-timeout-ms {arguments.session_timeout_ms}"
        if synchronize_timeout_ms:
            phases += f" plus --synchronize-timeout-ms {synchronize_timeout_ms}"
        raise usage_error(
            f"--join-timeout-ms {arguments.join_timeout_ms} must be above {phases}; otherwise the "
            "member gives up while the coordinator waits"
        )
    try:
        parse_bootstrap_servers(cluster.bootstrap_servers)
    except InvalidAddressError as error:
        raise usage_error(str(error)) from None

"""Options for connecting to a cluster, and other options that commands share."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from partage.console.common.completion import (
    complete_groups,
    complete_profiles,
    complete_topics,
    parameter_sources,
)
from partage.console.common.connection import (
    BOOTSTRAP_DEFAULT,
    BOOTSTRAP_VARIABLE,
    ConnectionProperties,
    connection_properties,
)
from partage.console.common.errors import usage_error

PROFILE_VARIABLE: Final = "PARTAGE_PROFILE"
#: Parameters that `with_cluster` adds with the same options everywhere.
CONNECTION_PARAMETERS: Final = frozenset(
    {"bootstrap_server", "profile", "command_config", "properties", "verbose"}
)

#: The default of `JobsOption`.
CPU_COUNT: Final = os.cpu_count() or 1

JsonOption = Annotated[bool, typer.Option("--json", "-J", help="Print JSON instead of text.")]
JobsOption = Annotated[
    int,
    typer.Option(
        "--jobs", metavar="N", min=1, help="Number of processes.", show_default="number of CPUs"
    ),
]
TopicOption = Annotated[
    str,
    typer.Option("--topic", "-t", metavar="TOPIC", help="Topic.", autocompletion=complete_topics),
]
TopicsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC", help="Topics.", show_default=False, autocompletion=complete_topics
    ),
]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC",
        help="Same as the argument; repeatable.",
        autocompletion=complete_topics,
    ),
]
GroupsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="GROUP", help="Groups.", show_default=False, autocompletion=complete_groups
    ),
]
GroupsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        "-g",
        "-G",
        metavar="GROUP",
        help="Same as the argument; repeatable.",
        autocompletion=complete_groups,
    ),
]
GroupArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="GROUP", help="The group.", show_default=False, autocompletion=complete_groups
    ),
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        "-G",
        metavar="GROUP",
        help="Same as the argument.",
        autocompletion=complete_groups,
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would be changed.")]

_Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        envvar=BOOTSTRAP_VARIABLE,
        help="Broker of the cluster, or a comma-separated list of brokers.",
    ),
]
_Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        envvar=PROFILE_VARIABLE,
        help="Profile of a cluster in ~/.config/partage/config.toml.",
        autocompletion=complete_profiles,
    ),
]
_CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="Java properties file for security and client settings, as for Kafka's tools.",
    ),
]
_Properties = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        metavar="NAME=VALUE",
        help="librdkafka property; repeatable.",
    ),
]
_Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Print more, and librdkafka's log to stderr."),
]


#: librdkafka's limit.
_TIMEOUT_MAX_MS: Final = 3_600_000
#: Default limit of retries in commands that need a coordinator. The groups of a lost broker move
#: to other brokers when its session ends: after 6 s in Partage, after 9 s in Apache Kafka.
_FAILOVER_MS: Final = 20_000


def with_coordinators() -> Callable[[Callable[..., None]], Any]:
    """Return `with_cluster` for a command that needs coordinators, and waits while they move.

    If ``--timeout-ms`` is given, it also limits this wait.
    """
    return with_cluster(
        timeout_help="Request timeout; also limits the wait for a coordinator that moves to "
        f"another broker, which is {_FAILOVER_MS} by default.",
        retry_timeout_ms=_FAILOVER_MS,
    )


def with_cluster(
    timeout_option: str = "--timeout-ms",
    timeout_help: str = "Request timeout.",
    retry_timeout_ms: int | None = None,
) -> Callable[[Callable[..., None]], Any]:
    """Return a decorator that adds the options for connecting to a cluster.

    The command gets the `ClusterClient` (`partage.console.common.cluster_client`) as its argument
    ``cluster``.

    Args:
        timeout_option: Name of the option for the request timeout.
        timeout_help: Help text of that option.
        retry_timeout_ms: Limit of the retries of a request, unless that option is given; the
            request timeout if None.
    """
    timeout = Annotated[
        int,
        typer.Option(
            timeout_option,
            metavar="MS",
            min=1,
            max=_TIMEOUT_MAX_MS,
            help=timeout_help,
        ),
    ]
    shared: list[tuple[str, Any, object]] = [
        ("bootstrap_server", _Bootstrap, BOOTSTRAP_DEFAULT),
        ("profile", _Profile, None),
        ("command_config", _CommandConfig, None),
        ("properties", _Properties, None),
        ("answer_timeout_ms", timeout, 5000),
        ("verbose", _Verbose, False),
    ]

    def decorate(command: Callable[..., None]) -> Any:
        own = [
            parameter
            for parameter in inspect.signature(command, eval_str=True).parameters.values()
            if parameter.name != "cluster"
        ]
        added = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
            )
            for name, kind, default in shared
        ]

        def run(context: typer.Context, **given: Any) -> None:
            reach = {name: given.pop(name) for name, _, _ in shared}
            sources = parameter_sources(context)
            is_default = sources.get("answer_timeout_ms") == "DEFAULT"
            _run_on_cluster(
                command,
                given,
                connection=connection_properties(reach, sources),
                timeout_ms=reach["answer_timeout_ms"],
                retry_timeout_ms=retry_timeout_ms if is_default else None,
                verbose=reach["verbose"],
            )

        run.__name__ = command.__name__
        run.__doc__ = command.__doc__
        context_parameter = inspect.Parameter(
            "context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context
        )
        parameters = [*own, *added, context_parameter]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # PEP 362
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate


def given_names(argument: list[str] | None, option: list[str] | None) -> list[str]:
    """Return the names from an argument and from an option, each name once."""
    return list(dict.fromkeys([*(argument or []), *(option or [])]))


def required_names(argument: list[str] | None, option: list[str] | None, what: str) -> list[str]:
    """Return the names from an argument and from an option.

    Args:
        argument: Names from the argument.
        option: Names from the option.
        what: ``topic`` or ``group``, for the error message.

    Raises:
        CommandError: There is no name.
    """
    names = given_names(argument, option)
    if not names:
        raise usage_error(f"no {what} given; name one as an argument or with --{what}")
    if what == "topic" and "" in names:  # Kafka has a group without a name.
        raise usage_error("the name of a topic must not be empty")
    return names


def required_name(argument: str | None, option: str | None, what: str) -> str:
    """Return the only name, from an argument or from an option.

    Raises:
        CommandError: There is no name, or there are two different names.
    """
    names = required_names([argument] if argument else [], [option] if option else [], what)
    if len(names) > 1:
        raise usage_error(f"one {what} is needed, not {' and '.join(names)}")
    return names[0]


def _run_on_cluster(
    command: Callable[..., None],
    given: dict[str, Any],
    *,
    connection: ConnectionProperties,
    timeout_ms: int,
    retry_timeout_ms: int | None,
    verbose: bool,
) -> None:
    from partage.console.common.cluster_client import ClusterClient

    properties, origins = connection
    servers = properties["bootstrap.servers"]
    with ClusterClient(
        servers, properties, timeout_ms, verbose, origins, retry_timeout_ms
    ) as cluster:
        command(cluster=cluster, **given)

"""Options for connecting to a cluster, and other options that commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from partage.console.common.errors import usage_error
from partage.console.common.java_properties import read_properties

BOOTSTRAP_VARIABLE: Final = "PARTAGE_BOOTSTRAP_SERVER"

JsonOption = Annotated[bool, typer.Option("--json", "-J", help="Print JSON instead of text.")]
TopicOption = Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC", help="Topic.")]

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


def with_cluster(timeout_option: str = "--timeout-ms") -> Callable[[Callable[..., None]], Any]:
    """Return a decorator that adds the options for connecting to a cluster.

    The command gets the `ClusterClient` (`partage.console.common.cluster_client`) as its argument
    ``cluster``.

    Args:
        timeout_option: Name of the option for the request timeout.
    """
    timeout = Annotated[
        int,
        typer.Option(
            timeout_option,
            metavar="MS",
            min=1,
            help="Request timeout.",
        ),
    ]
    shared: list[tuple[str, Any, object]] = [
        ("bootstrap_server", _Bootstrap, "127.0.0.1:9092"),
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

        def run(**given: Any) -> None:
            reach = {name: given.pop(name) for name, _, _ in shared}
            _run_on_cluster(command, given, **reach)

        run.__name__ = command.__name__
        run.__doc__ = command.__doc__
        run.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined] # PEP 362
        run.__annotations__ = {each.name: each.annotation for each in [*own, *added]}
        return run

    return decorate


def _run_on_cluster(
    command: Callable[..., None],
    given: dict[str, Any],
    *,
    bootstrap_server: str,
    command_config: Path | None,
    properties: list[str] | None,
    answer_timeout_ms: int,
    verbose: bool,
) -> None:
    from partage.console.common.cluster_client import ClusterClient

    settings = read_properties(command_config) if command_config else {}
    settings |= parse_pairs(properties or [], "-X")
    with ClusterClient(bootstrap_server, settings, answer_timeout_ms, verbose) as cluster:
        command(cluster=cluster, **given)


def parse_pairs(given: list[str], option: str) -> dict[str, str]:
    """Return NAME=VALUE texts as a dictionary. If a name is repeated, the last value wins.

    Args:
        given: Texts from the command line.
        option: Name of the option, for the error message.

    Raises:
        CommandError: A text has no ``=`` or no name.
    """
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise usage_error(f"{option} requires NAME=VALUE, not {text!r}")
        found[name.strip()] = value
    return found

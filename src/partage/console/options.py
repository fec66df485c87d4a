"""The options that every command has for reaching a cluster, and the others they share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from partage.console.failure import misused
from partage.console.properties import read_properties

BOOTSTRAP_VARIABLE: Final = "PARTAGE_BOOTSTRAP_SERVER"

Json = Annotated[
    bool, typer.Option("--json", "-J", help="Print JSON for programs instead of text.")
]
Topic = Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC", help="The topic.")]

_Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        envvar=BOOTSTRAP_VARIABLE,
        help="A broker of the cluster, or several with commas between.",
    ),
]
_CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="Java properties for security and clients, as Kafka's tools take them.",
    ),
]
_Properties = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        metavar="NAME=VALUE",
        help="A property of librdkafka; may be given several times.",
    ),
]
_Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Show more, and librdkafka's log on stderr."),
]


def with_cluster(timeout_option: str = "--timeout-ms") -> Callable[[Callable[..., None]], Any]:
    """Give a command the options for reaching a cluster.

    The command takes the result as its argument ``cluster``, a `partage.console.cluster.Cluster`.
    ``timeout_option`` is the name of the option for how long a broker may take to answer.
    """
    timeout = Annotated[
        int,
        typer.Option(
            timeout_option,
            metavar="MS",
            min=1,
            help="How long a broker may take to answer.",
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
    from partage.console.cluster import Cluster

    settings = read_properties(command_config) if command_config else {}
    settings |= pairs(properties or [], "-X")
    with Cluster(bootstrap_server, settings, answer_timeout_ms, verbose) as cluster:
        command(cluster=cluster, **given)


def pairs(given: list[str], option: str) -> dict[str, str]:
    """NAME=VALUE texts as a dictionary, the last of a name winning.

    Raises:
        Failure: a text without ``=`` or without a name.
    """
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise misused(f"{option} wants NAME=VALUE, not {text!r}")
        found[name.strip()] = value
    return found

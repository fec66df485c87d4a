"""The ``partage`` command and its sub-commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import typer

from partage import __version__
from partage.console.common.dispatch import LazyCommands, command_app


class Commands(LazyCommands):
    """Top-level commands by name, imported when they are used."""

    targets: ClassVar[Mapping[str, str]] = {
        "broker": "partage.console.broker.command:run",
        "topics": "partage.console.topics.commands:app",
        "produce": "partage.console.records.produce:app",
        "consume": "partage.console.records.consume:app",
        "groups": "partage.console.groups.commands:app",
        "web": "partage.console.web.command:app",
        "search": "partage.console.pipelines.search:app",
        "log": "partage.console.broker.log_command:app",
        "lab": "partage.console.lab.commands:app",
        "pipeline": "partage.console.pipelines.commands:app",
    }


app = command_app("Consumer groups for Python and Spark over the Kafka protocol.", cls=Commands)


def _print_version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Consumer groups for Python and Spark over the Kafka protocol."""


def main() -> None:
    """Run the ``partage`` command."""
    app(prog_name="partage")

"""``partage``: the command and its sub-commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import typer

from partage import __version__
from partage.console.dispatch import LazyCommands, command_app


class Commands(LazyCommands):
    """The sub-commands, and where each is found."""

    targets: ClassVar[Mapping[str, str]] = {
        "broker": "partage.console.broker:run",
        "topics": "partage.console.topics:app",
        "produce": "partage.console.produce:app",
        "consume": "partage.console.consume:app",
        "groups": "partage.console.groups:app",
        "web": "partage.console.web:app",
        "search": "partage.console.search:app",
        "log": "partage.console.log:app",
        "lab": "partage.console.lab:app",
        "pipeline": "partage.console.pipeline:app",
    }


app = command_app("Consumer groups for Python and Spark over Kafka's protocol.", cls=Commands)


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
    """Consumer groups for Python and Spark over Kafka's protocol."""


def main() -> None:
    """The entry point of the ``partage`` command."""
    app(prog_name="partage")

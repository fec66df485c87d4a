"""``partage``: the command and its sub-commands."""

from __future__ import annotations

from typing import Annotated

import typer

from partage import __version__
from partage.console import broker

app = typer.Typer(
    name="partage",
    help="Consumer groups for Python and Spark over Kafka's protocol.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("broker")(broker.run)


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Consumer groups for Python and Spark over Kafka's protocol."""
    if version:
        print(__version__)
        raise typer.Exit


def main() -> None:
    """The entry point of the ``partage`` command."""
    app()

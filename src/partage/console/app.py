"""The ``partage`` command and its sub-commands."""

from __future__ import annotations

from typing import Annotated

import typer

from partage import __version__
from partage.console.command_tree import COMMANDS
from partage.console.common.dispatch import RootCommands


class PartageCommands(RootCommands):
    """All commands of ``partage``."""

    entries = COMMANDS


app = typer.Typer(
    cls=PartageCommands,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
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

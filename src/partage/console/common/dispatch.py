"""Lazy import of commands, and one line on stderr for each error."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final, NamedTuple, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import Abort, TyperException

from partage.console.common.errors import EXIT_FAILED, EXIT_USAGE, CommandError
from partage.console.common.suggestions import did_you_mean

#: The extra that installs a package, for packages that only some commands need.
EXTRAS: Final = {
    "greenlet": "world",
    "kazoo": "zookeeper",
    "markdown_it": "plot",
    "matplotlib": "plot",
    "pyarrow": "arrow",
    "pyspark": "spark",
    "scramp": "sasl",
    "starlette": "web",
    "uvicorn": "web",
}

#: Texts of the library for invalid numbers, and plainer ones.
_PLAINER: Final = (
    (": Value error, ", ": "),
    ("Input should be a valid integer, unable to parse string as an integer", "must be an integer"),
    ("Input should be a valid number, unable to parse string as a number", "must be a number"),
    ("Input should be greater than or equal to", "must be at least"),
    ("Input should be less than or equal to", "must be at most"),
)


class CommandTarget(NamedTuple):
    """A command: its summary for ``--help``, and the module whose ``app`` registers it."""

    summary: str
    module: str


class CommandFamily(NamedTuple):
    """Commands with common first words, such as ``topics``."""

    summary: str
    commands: Mapping[str, CommandTarget | CommandFamily]


class LazyCommands(TyperGroup):
    """A command group that imports a command's module when the command is used.

    ``partage broker`` does not import librdkafka, and ``partage topics`` does not import the
    broker. Help and shell completion list commands by their summaries, without importing any.
    Without a sub-command, the group prints its help.
    """

    entries: Mapping[str, CommandTarget | CommandFamily] = {}
    _is_listing = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            print(ctx.get_help(), file=sys.stderr)
            ctx.exit(EXIT_USAGE)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        if self._is_listing:
            return TyperCommand(cmd_name, short_help=entry.summary)
        if isinstance(entry, CommandFamily):
            family = LazyCommands(name=cmd_name, help=entry.summary, rich_markup_mode=None)
            family.entries = entry.commands
            return family
        return typer.main.get_group(import_module(entry.module).app).commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except TyperException as error:
            if not args[0].startswith("-"):
                error.message = error.message.rstrip(".") + did_you_mean(args[0], self.entries)
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with self._listing():
            super().format_commands(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        with self._listing():
            return super().shell_complete(ctx, incomplete)

    @contextmanager
    def _listing(self) -> Iterator[None]:
        """Return commands that have only a name and a summary, inside the block."""
        self._is_listing = True
        try:
            yield
        finally:
            self._is_listing = False


class RootCommands(LazyCommands):
    """The root group. It prints each error as one line on stderr."""

    def main(self, *args: Any, **options: Any) -> Any:
        standalone = options.get("standalone_mode", True)
        options["standalone_mode"] = False
        if not standalone:
            return super().main(*args, **options)
        try:
            exit_code = super().main(*args, **options)
        except CommandError as failure:
            _end(failure.message, failure.exit_code)
        except TyperException as error:
            _end(_one_line(error), EXIT_USAGE)
        except Abort:
            _end("stopped", 130)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in EXTRAS:
                raise
            _end(f"this command needs {package}: {install_hint(package)}", EXIT_FAILED)
        except ImportError as error:
            if sys.platform != "win32":
                raise
            _end(str(error), EXIT_FAILED)
        sys.exit(exit_code or 0)


def command_app() -> typer.Typer:
    """Return an application for the commands of one module.

    Help is plain text, because rich help would truncate words.
    """
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def install_hint(*packages: str) -> str:
    """Return the command that installs optional packages."""
    extras = sorted({EXTRAS[each] for each in packages})
    return f"pip install 'partage[{','.join(extras)}]'"


def _one_line(error: TyperException) -> str:
    similar = getattr(error, "possibilities", None)
    if similar:
        message = f"{error.message}; did you mean {' or '.join(similar)}?"
    else:
        message = " ".join(error.format_message().split()).rstrip(".")
        for text, plainer in _PLAINER:
            message = message.replace(text, plainer)
    context = getattr(error, "ctx", None)
    if context is None:
        return message
    if hasattr(error, "option_name") and isinstance(context.command, LazyCommands) and not similar:
        message += "; the options of a command follow it"
    joint = " See" if message.endswith("?") else "; see"
    return f"{message}{joint} {context.command_path} --help"


def _end(message: str, exit_code: int) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(exit_code)

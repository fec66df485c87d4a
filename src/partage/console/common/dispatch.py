"""Lazy import of commands."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import Abort, TyperException

from partage.console.common.errors import (
    EXIT_FAILED,
    EXIT_STOPPED,
    EXIT_USAGE,
    CommandError,
    discard_stdout,
    errors_on_stderr,
    usage_error,
)
from partage.console.common.signals import restore_interrupts
from partage.console.common.suggestions import did_you_mean

#: Texts of the library for invalid numbers, and plainer ones.
_PLAINER: Final = (
    (": Value error, ", ": "),
    ("Input should be a valid integer, unable to parse string as an integer", "must be an integer"),
    ("Input should be a valid number, unable to parse string as a number", "must be a number"),
    ("Input should be greater than or equal to", "must be at least"),
    ("Input should be less than or equal to", "must be at most"),
)


#: A byte of an argument that is not UTF-8 (`os.fsdecode`).
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
#: Parameters that may contain any bytes.
_BYTES: Final = frozenset(
    {"format_string", "formatter_property", "key_separator", "reader_property"}
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
        command = typer.main.get_group(import_module(entry.module).app).commands[cmd_name]
        for parameter in command.params:
            _check_texts(parameter)
        restore_interrupts()
        return command

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
        with errors_on_stderr():
            try:
                exit_code = super().main(*args, **options)
                try:
                    sys.stdout.flush()
                except BrokenPipeError:
                    discard_stdout()
                    exit_code = EXIT_FAILED
            except TyperException as error:
                raise usage_error(_one_line(error)) from None
            except Abort:
                raise CommandError("stopped", EXIT_STOPPED) from None
            except SystemError as error:
                # librdkafka returns a result although a signal handler has raised.
                if not isinstance(error.__cause__, KeyboardInterrupt):
                    raise
                exit_code = EXIT_STOPPED
        sys.exit(exit_code or 0)


def command_app() -> typer.Typer:
    """Return an application for the commands of one module.

    Help is plain text, because rich help would truncate words.
    """
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def _check_texts(parameter: Any) -> None:
    """Let an option or argument refuse texts that no command can use.

    These are empty paths, which would be the current directory, and names that are not UTF-8, which
    librdkafka cannot encode; it may crash.
    """
    kind = parameter.type_descriptor.annotation
    is_path = Path in (kind, *get_args(kind))
    if not is_path and (str not in (kind, *get_args(kind)) or parameter.name in _BYTES):
        return
    convert = parameter.process_value

    def convert_checked(context: Any, value: Any) -> Any:
        for text in value if isinstance(value, list | tuple) else (value,):
            if is_path and text == "":
                raise typer.BadParameter("must not be empty", ctx=context, param=parameter)
            if not is_path and isinstance(text, str) and _SURROGATE.search(text):
                raise typer.BadParameter("must be valid UTF-8", ctx=context, param=parameter)
        return convert(context, value)

    parameter.process_value = convert_checked


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

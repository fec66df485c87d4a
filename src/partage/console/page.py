"""Generator of the reference in ``docs/cli.md`` from the commands and their options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import typer

from partage.console.command_tree import COMMANDS
from partage.console.common.dispatch import CommandFamily, CommandTarget, LazyCommands
from partage.console.common.options import CONNECTION_PARAMETERS
from partage.statemachine.pages import table

_REFERENCE: Final = re.compile(r"(<!-- commands -->\n).*?(<!-- end of commands -->\n)", re.DOTALL)
#: A command with the options that all commands for clusters share.
_SHARED_BY: Final = ("topics", "list")


def fill_reference(text: str) -> str:
    """Return the page with its reference replaced by the current one."""
    return _REFERENCE.sub(lambda found: f"{found[1]}\n{reference()}\n{found[2]}", text)


def reference() -> str:
    """Return the reference of all commands, as Markdown."""
    root = LazyCommands()
    root.entries = COMMANDS
    parts = ["## Options for connecting\n", _connection_table(root)]
    parts += _commands("partage", COMMANDS, root, 2)
    return "\n".join(parts)


def _commands(
    path: str, entries: Mapping[str, CommandTarget | CommandFamily], group: Any, level: int
) -> Iterator[str]:
    for name, entry in entries.items():
        command = group.get_command(None, name)
        if isinstance(entry, CommandFamily):
            yield f"{'#' * level} {path} {name}\n\n{entry.summary}\n"
            yield from _commands(f"{path} {name}", entry.commands, command, level + 1)
        else:
            yield from _command(f"{path} {name}", command, level)


def _connection_table(root: LazyCommands) -> str:
    family, name = _SHARED_BY
    command = root.get_command(None, family).get_command(None, name)
    return _table(command, [each for each in command.params if each.name in CONNECTION_PARAMETERS])


def _command(path: str, command: Any, level: int) -> Iterator[str]:
    description, _, examples = (command.help or "").partition("\b\nExamples:\n")
    yield f"{'#' * level} {path}\n"
    yield f"{_plain(description)}\n"
    is_for_cluster = any(each.name == "command_config" for each in command.params)
    shared = CONNECTION_PARAMETERS if is_for_cluster else frozenset[str]()
    own = [each for each in command.params if each.name not in shared]
    if own:
        yield _table(command, own)
    if is_for_cluster:
        yield "It also has the [options for connecting](#options-for-connecting).\n"
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    if lines:
        yield "\n".join(["```sh", *lines, "```\n"])
    if command.epilog:
        yield f"`{command.epilog.split()[0]}` {_keys(command.epilog)}\n"


def _keys(epilog: str) -> str:
    """Return the words of the epilog after its option, with the keys as code."""
    words, brace, keys = epilog.partition(" ")[2].partition("{")
    return f"{words}`{brace}{keys}`"


def _table(command: Any, parameters: list[Any]) -> str:
    context = typer.Context(command, info_name=command.name)
    rows = []
    for each in parameters:
        record = each.get_help_record(context)
        if record is not None:
            name = record[0]
            if each.param_type_name == "argument":
                name = _argument(each)
            rows.append((f"`{_escaped(name)}`", _escaped(_plain(record[1]))))
    return table(("option", "meaning"), rows)


def _argument(parameter: Any) -> str:
    """Return the form of an argument in a command line."""
    name = parameter.metavar or parameter.name.upper()
    form = name if parameter.required else f"[{name}]"
    return f"{form}..." if parameter.nargs == -1 else form


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _plain(text: str) -> str:
    """Return paragraphs of one line each. Options and braces in a text are not Markdown."""
    paragraphs = [" ".join(each.split()) for each in text.strip().split("\n\n")]
    return re.sub(r"(?<![\w`<])<(?=\w)", r"\\<", "\n\n".join(paragraphs)).replace("*", "\\*")

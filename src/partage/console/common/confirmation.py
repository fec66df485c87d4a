"""Confirmation of commands that delete something."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import typer

from partage.console.common.errors import CommandError, usage_error

_LISTED_MAX: Final = 10


def confirm(
    question: str, objects: Sequence[str], *, yes: bool, needs_terminal: bool = False
) -> None:
    """Ask on the terminal whether to continue. Continue if stdin is not a terminal.

    Args:
        question: Question without its question mark, such as ``delete 2 topics``.
        objects: Affected objects, listed above the question.
        yes: True if the user gave ``--yes``.
        needs_terminal: True if the command must not continue without a terminal.

    Raises:
        CommandError: The user did not answer with yes, or there is no terminal to ask on.
    """
    if yes:
        return
    has_terminal = sys.stdin.isatty() and sys.stderr.isatty()
    # If only the question would be invisible, the user has not decided anything yet.
    if not has_terminal and (needs_terminal or sys.stdin.isatty()):
        raise usage_error(f"without a terminal, add --yes to {question}, or --dry-run")
    if not has_terminal:
        return
    for name in objects[:_LISTED_MAX]:
        typer.echo(f"  {name}", err=True)
    if len(objects) > _LISTED_MAX:
        typer.echo(f"  and {len(objects) - _LISTED_MAX:,} more", err=True)
    if not typer.confirm(f"{question[:1].upper()}{question[1:]}?", err=True):
        raise CommandError("nothing was changed")

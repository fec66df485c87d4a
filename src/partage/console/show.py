"""What commands print: tables for people, JSON for programs, notes and progress on stderr.

rich is imported where it draws: it is slow to import, and most commands draw nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import msgspec

from partage.model.groups import ranges as ranges

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Drawn

ABSENT: Final = "-"
_WIDTH_ELSEWHERE: Final = 100_000
"""Columns of a pipe or a file, where no line is ever broken."""


def print_json(document: msgspec.Struct) -> None:
    """One JSON document on stdout; its keys are those of the struct, in that order."""
    text = msgspec.json.format(msgspec.json.encode(document), indent=2)
    print(text.decode())


def json_help(document: type[msgspec.Struct], what: str = "prints") -> str:
    """A line for ``--help``: the keys of what ``--json`` prints."""
    return f"--json {what} {_keys(msgspec.inspect.type_info(document))}"


def _keys(kind: msgspec.inspect.Type) -> str:
    if isinstance(kind, msgspec.inspect.StructType):
        fields = [f"{each.encode_name}{_inner(each.type)}" for each in kind.fields]
        return "{" + ", ".join(fields) + "}"
    if isinstance(kind, msgspec.inspect.ListType):
        inner = _keys(kind.item_type)
        return f"[{inner}]" if inner else ""
    if isinstance(kind, msgspec.inspect.UnionType):
        return next(filter(None, map(_keys, kind.types)), "")
    return ""


def _inner(kind: msgspec.inspect.Type) -> str:
    inner = _keys(kind)
    return f": {inner}" if inner else ""


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Collection[str] = ()
) -> None:
    """A table on stdout. Integers stand to the right, and ``right`` columns; None is a dash.

    On a terminal, cells that have no room go on in the next line; elsewhere each row is one line.
    """
    from rich.table import Table
    from rich.text import Text

    rows = [list(row) for row in rows]
    console = _console()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, column in enumerate(columns):
        numeric = column in right or (
            bool(rows) and all(row[place] is None or isinstance(row[place], int) for row in rows)
        )
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(ABSENT if cell is None else str(cell)) for cell in row))
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


def _console() -> Console:
    from rich.console import Console

    terminal = sys.stdout.isatty()
    return Console(
        file=sys.stdout,
        width=None if terminal else _WIDTH_ELSEWHERE,
        force_terminal=terminal,
        highlight=False,
    )


def note(text: str) -> None:
    """A line on stderr for whoever is watching."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def while_read() -> Iterator[None]:
    """Print in here what may have a reader that goes early, such as ``head``: no failure."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        forget_stdout()
        note("nobody reads the output any more")


def forget_stdout() -> None:
    """What is left in its buffer goes nowhere, and Python must not complain of it at exit."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def count(number: int, noun: str, plural: str | None = None) -> str:
    """``1 record``, ``2 records``; ``plural`` where an s is not enough."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"


def size(number: int) -> str:
    """A number of bytes for people, such as ``1.5 MB``."""
    if number < 1000:
        return count(number, "byte")
    amount, unit = number / 1e3, "kB"
    for larger in ("MB", "GB"):
        if amount >= 1000:
            amount, unit = amount / 1e3, larger
    return f"{amount:.1f} {unit}"


class Progress:
    """How far something has come, drawn on stderr while it is a terminal and not ``hidden``.

    A bar is drawn once there is a ``total``, in any unit.
    """

    def __init__(self, what: str, total: float | None = None, *, hidden: bool = False) -> None:
        self._drawn: Drawn | None = None
        if sys.stderr.isatty() and not hidden:
            from rich import progress
            from rich.console import Console

            self._drawn = progress.Progress(
                progress.SpinnerColumn(),
                progress.TextColumn("{task.description}"),
                progress.BarColumn(),
                progress.TextColumn("{task.fields[said]}"),
                progress.TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._drawn.add_task(what, total=total, said="")

    def __enter__(self) -> Self:
        if self._drawn is not None:
            self._drawn.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._drawn is not None:
            self._drawn.stop()

    def show(self, said: str, done: float = 0, total: float | None = None) -> None:
        """Say how far it has come, in words and in the unit of the total, which may change."""
        if self._drawn is not None:
            self._drawn.update(self._task, completed=done, total=total, said=said)

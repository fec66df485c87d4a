"""Output of commands: JSON on stdout, notes and progress on stderr.

rich is imported only where it is used: the import is slow, and most commands draw nothing.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from partage.console.common.errors import discard_stdout as discard_stdout
from partage.model.groups import format_partitions as format_partitions

if TYPE_CHECKING:
    from rich.progress import Progress as Drawn


def print_json(document: msgspec.Struct) -> None:
    """Print a struct as one JSON document on stdout. Keys are the struct's fields, in order."""
    text = msgspec.json.format(msgspec.json.encode(document), indent=2)
    print(text.decode())


def json_help(document: type[msgspec.Struct], what: str = "prints") -> str:
    """Return a line for ``--help`` that lists the keys of the ``--json`` output."""
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


def note(text: str) -> None:
    """Print a line on stderr."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def ignore_closed_output() -> Iterator[None]:
    """Ignore a closed stdout inside the block, for readers that exit early, such as ``head``."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()
        note("output closed by its reader")


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: ``1 record``, ``2 records``.

    ``plural`` is for irregular nouns.
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"


def format_bytes(number: int) -> str:
    """Return a readable number of bytes, such as ``1.5 MB``."""
    if number < 1000:
        return count(number, "byte")
    amount, unit = number / 1e3, "kB"
    for larger in ("MB", "GB"):
        if amount >= 1000:
            amount, unit = amount / 1e3, larger
    return f"{amount:.1f} {unit}"


class ProgressBar:
    """Progress on stderr, shown only on a terminal and if not ``hidden``.

    With a ``total``, in any unit, a bar is drawn.
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
                progress.TextColumn("{task.fields[detail]}"),
                progress.TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._drawn.add_task(what, total=total, detail="")

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

    def update(self, detail: str, done: float = 0, total: float | None = None) -> None:
        """Update the text, the amount done and the total. Both amounts are in the same unit."""
        if self._drawn is not None:
            self._drawn.update(self._task, completed=done, total=total, detail=detail)

"""Tables on stdout that fit into the terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Final

from rich.cells import cell_len

from partage.console.common.output import note
from partage.model.printable import printable

_ABSENT: Final = "-"
_GAP: Final = "  "
_BOLD: Final = "\x1b[1m{}\x1b[0m"
#: A wrapped column that would get less than this width has its lines below the other columns.
_WRAPPED_WIDTH_MIN: Final = 12
_INDENT: Final = 4

_frame_width: ContextVar[int | None] = ContextVar("_frame_width", default=None)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Collection[str] = (),
    optional: Sequence[str] = (),
    wrapped: bool = False,
) -> None:
    """Print a table on stdout; None is printed as a dash.

    A terminal that is too narrow gets fewer columns, and a note names the missing ones. Cells are
    neither cut nor folded, except those of a wrapped column. If the required columns before a
    wrapped column leave little space for it, such as long member ids, it has its own lines below
    them.

    Args:
        columns: Headers.
        rows: Cells of each row.
        right: Columns to align to the right; columns of integers always are.
        optional: Columns that a narrow terminal may lack, the least important first.
        wrapped: True if a narrow terminal continues the last column on the next line, at spaces and
            commas.
    """
    table = Table(columns, rows, right)
    width = output_width()
    missing: list[str] = []
    if width is not None:
        table, missing = table.fit(width, optional)
    for line in table.lines(width if wrapped else None, is_header_bold=sys.stdout.isatty()):
        print(line)
    if missing:
        note(f"not shown in {width} columns: {', '.join(missing)}")


def output_width() -> int | None:
    """Return the width of the terminal in characters; None for pipes and files."""
    width = _frame_width.get()
    if width is None and sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    return width


@contextmanager
def frame_width(width: int | None) -> Iterator[None]:
    """Set the width of tables inside the block, for output that is captured and drawn later."""
    token = _frame_width.set(width)
    try:
        yield
    finally:
        _frame_width.reset(token)


class Table:
    """A table of texts.

    Args:
        columns: Headers.
        rows: Cells of each row.
        right: Columns to align to the right; columns of integers always are.
    """

    def __init__(
        self, columns: Sequence[str], rows: Iterable[Sequence[object]], right: Collection[str] = ()
    ) -> None:
        listed = [list(row) for row in rows]
        self._columns = list(columns)
        self._rows = [[_cell(cell) for cell in row] for row in listed]
        self._is_right = [
            column in right or _is_integer_column(row[index] for row in listed)
            for index, column in enumerate(columns)
        ]

    def fit(self, width: int, optional: Sequence[str]) -> tuple[Table, list[str]]:
        """Return a table that fits into a width, and the columns that it lacks.

        Empty columns are left out first, then the others in the order of ``optional``, which may
        name columns that this table does not have. The result is too wide if the other columns are.
        """
        widths = self._widths
        kept = set(range(len(self._columns)))
        existing = [self._columns.index(name) for name in optional if name in self._columns]
        order = sorted(existing, key=lambda index: not self._is_empty(index))

        def total() -> int:
            return sum(widths[index] for index in kept) + len(_GAP) * (len(kept) - 1)

        for index in order:
            if total() <= width:
                break
            kept.discard(index)
        # A narrow column may fit into the space of a wide one that was left out after it.
        for index in reversed(order):
            if index not in kept and total() + len(_GAP) + widths[index] <= width:
                kept.add(index)
        missing = [name for index, name in enumerate(self._columns) if index not in kept]
        return self._select(sorted(kept)), missing

    def lines(self, wrap_width: int | None, *, is_header_bold: bool = False) -> Iterator[str]:
        """Yield the lines of the table.

        Args:
            wrap_width: Width at which the last column continues on the next line, or None.
            is_header_bold: True to print the header in bold on a terminal.
        """
        rows = [self._columns, *self._rows]
        laid_out = (
            ([line] for line in map(self._aligned, rows))
            if wrap_width is None
            else self._wrapped_rows(rows, wrap_width)
        )
        for number, lines in enumerate(laid_out):
            for line in lines:
                yield _BOLD.format(line) if is_header_bold and number == 0 else line

    def _wrapped_rows(self, rows: list[list[str]], width: int) -> list[list[str]]:
        """Return the lines of each row.

        The last column continues beside the other columns, or has its own lines below them if these
        leave no space for it, or if the table is shorter then.
        """
        widths = self._widths
        room = width - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1)
        beside = [self._beside(row, max(_WRAPPED_WIDTH_MIN, room)) for row in rows]
        if len(widths) == 1:
            return beside
        below = [self._below(row, width - _INDENT) for row in rows]
        if room < min(_WRAPPED_WIDTH_MIN, widths[-1]):
            return below
        return min(beside, below, key=lambda lines: sum(map(len, lines)))

    def _beside(self, row: list[str], room: int) -> list[str]:
        *first, last = row
        pieces = _wrap(last, room)
        lines = [self._aligned([*first, next(pieces)])]
        return lines + [self._aligned([*([""] * len(first)), piece]) for piece in pieces]

    def _below(self, row: list[str], room: int) -> list[str]:
        *first, last = row
        return [self._aligned(first), *(" " * _INDENT + piece for piece in _wrap(last, room))]

    def _aligned(self, cells: list[str]) -> str:
        return _GAP.join(map(_aligned, cells, self._widths, self._is_right)).rstrip()

    @cached_property
    def _widths(self) -> list[int]:
        columns = zip(self._columns, *self._rows, strict=True)
        return [max(map(cell_len, column)) for column in columns]

    def _is_empty(self, index: int) -> bool:
        return all(row[index] == _ABSENT for row in self._rows)

    def _select(self, indexes: Sequence[int]) -> Table:
        selected = Table(
            [self._columns[index] for index in indexes],
            [[row[index] for index in indexes] for row in self._rows],
        )
        selected._is_right = [self._is_right[index] for index in indexes]
        return selected


def _aligned(cell: str, width: int, is_right: bool) -> str:
    padding = " " * (width - cell_len(cell))
    return padding + cell if is_right else cell + padding


def _is_integer_column(cells: Iterable[object]) -> bool:
    """True if each cell is an integer or empty, and at least one is an integer."""
    filled = [cell for cell in cells if cell is not None]
    return bool(filled) and all(isinstance(cell, int) for cell in filled)


def _cell(value: object) -> str:
    """Return the text of a cell; control characters are escaped, so that each row is one line."""
    return printable(_ABSENT if value is None else str(value))


def _wrap(text: str, width: int) -> Iterator[str]:
    """Yield pieces of a text, broken after spaces and commas. A longer word is not broken."""
    line = ""
    for word in _words(text):
        if line and cell_len(line + word.rstrip()) > width:
            yield line.rstrip()
            line = ""
        line += word
    yield line.rstrip()


def _words(text: str) -> Iterator[str]:
    start = 0
    for at, character in enumerate(text, 1):
        if character in " ,":
            yield text[start:at]
            start = at
    yield text[start:]

"""The tables of ``docs/benchmarks.md``; the text around them is written by hand.

A table is between ``<!-- NAME -->`` and ``<!-- end of NAME -->``. A benchmark that was not run
keeps its table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from bench.figures import Figure, number

_HEAD = "| | unit | ours | peer's | ratio | target | |\n|---|---|--:|--:|--:|---|---|\n"


def update(page: Path, tables: dict[str, str]) -> None:
    """Write the tables into the page, by name."""
    text = page.read_text()
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"{page} has no place for {name}: {begin} and {end}")
        text = pattern.sub(lambda _, t=table, b=begin, e=end: f"{b}\n{t.strip()}\n{e}", text)
    page.write_text(text)


def table(figures: Iterable[Figure], conditions: str) -> str:
    """Return the figures of one benchmark in Markdown, with the machine and its load."""
    return f"{_HEAD}{''.join(map(_row, figures))}\n{conditions}\n"


def _row(figure: Figure) -> str:
    note = f"<br><small>{figure.note}</small>" if figure.note else ""
    peer = "" if figure.peer is None else f"{number(figure.peer)} ({figure.peer_name})"
    verdict = {None: "", True: "met", False: "**missed**"}[figure.is_met]
    cells = (
        f"{figure.what}{note}",
        figure.unit,
        number(figure.ours),
        peer,
        figure.ratio_text,
        figure.target,
        verdict,
    )
    return f"| {' | '.join(cells)} |\n"

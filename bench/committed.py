"""The committed figures of all benchmarks, and what has become slower since.

``docs/benchmarks.json`` has the figures of the tables in ``docs/benchmarks.md``, with the result of
each round. Machines differ, so a row with a peer is compared by its ratio to the peer, and a row
without one by its figure, if both were measured on the same machine. A row is slower if its best
round is worse than the worst committed round. So its median differs by more than the spread of
both.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.table import Table

from bench.figures import Figure, number

COMMITTED: Final = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.json"

#: The spread of a figure with fewer than two rounds is unknown. This one is assumed.
_UNKNOWN_SPREAD: Final = 0.1
#: Smaller differences of the medians are not reported, however small the spread is.
_DIFFERENCE_MIN: Final = 0.02
_SAME: Final = "the same"


@dataclass(frozen=True, kw_only=True)
class MeasuredTable:
    """The figures of one benchmark, and the machine on which they were measured."""

    machine: str
    figures: tuple[Figure, ...]


class Measure(NamedTuple):
    """The median of a row, and its worst and best round."""

    median: float
    worst: float
    best: float

    def __str__(self) -> str:
        low, high = sorted((self.worst, self.best))
        return f"{number(self.median)} ({number(low)} to {number(high)})"


class SlowerRow(NamedTuple):
    """A row that has become slower: what was compared, then and now."""

    what: str
    compared: str
    committed: Measure
    now: Measure


class Comparison(NamedTuple):
    """The rows of a benchmark that are slower, and the numbers of rows compared and not."""

    slower: list[SlowerRow]
    compared: int
    skipped: int


def compare(committed: MeasuredTable, now: MeasuredTable) -> Comparison:
    """Compare a run with the committed figures of the same benchmark.

    Rows that only one of them has are not compared, and neither are rows without a peer that were
    measured on different machines, and rows without a ratio, because a figure is 0.
    """
    before = dict(_keyed(committed.figures))
    slower, compared = [], 0
    for key, figure in _keyed(now.figures):
        known = before.get(key)
        if known is None or (figure.peer is None and committed.machine != now.machine):
            continue
        if figure.peer is not None and None in (known.ratio, figure.ratio):
            continue
        compared += 1
        then, this = _measure(known), _measure(figure)
        if _is_slower(then, this, less_is_better=figure.less_is_better and figure.peer is None):
            of = figure.unit if figure.peer is None else f"ratio to {figure.peer_name}"
            slower.append(SlowerRow(key.subject, of, then, this))
    return Comparison(slower, compared, len(now.figures) - compared)


class _Key(NamedTuple):
    """The identity of a row; ``position`` distinguishes rows with equal texts."""

    subject: str
    peer_name: str
    position: int


def _keyed(figures: Iterable[Figure]) -> Iterator[tuple[_Key, Figure]]:
    """Yield the rows by their texts. "The same: ..." refers to an earlier row."""
    earlier, seen = "", Counter[tuple[str, str]]()
    for figure in figures:
        subject = figure.what
        if subject.startswith(_SAME):
            subject = earlier + subject.removeprefix(_SAME)
        else:
            earlier = subject
        name = (subject, "" if figure.peer is None else figure.peer_name)
        yield _Key(*name, seen[name]), figure
        seen[name] += 1


def _measure(figure: Figure) -> Measure:
    """Return the ratio to the peer, or the figure itself if there is no peer."""
    if figure.ratio is not None:
        median, rounds, less_is_better = figure.ratio, figure.ratios, False
    else:
        median, rounds, less_is_better = figure.ours, figure.ours_rounds, figure.less_is_better
    if len(rounds) < 2:
        spread = abs(median) * _UNKNOWN_SPREAD
        rounds = (median - spread, median + spread)
    ends = (max(rounds), min(rounds)) if less_is_better else (min(rounds), max(rounds))
    return Measure(median, *ends)


def _is_slower(then: Measure, now: Measure, *, less_is_better: bool) -> bool:
    if less_is_better:
        return now.best > then.worst and now.median > then.median * (1 + _DIFFERENCE_MIN)
    return now.best < then.worst and now.median < then.median * (1 - _DIFFERENCE_MIN)


def slower_table(comparisons: Mapping[str, Comparison]) -> Table | str:
    """Return the slower rows of all benchmarks as a table, or a line if there are none."""
    compared = sum(each.compared for each in comparisons.values())
    skipped = sum(each.skipped for each in comparisons.values())
    counts = (
        f"{compared} rows compared with the committed figures, {skipped} without an equal there"
    )
    if not compared:
        return "no row was compared: there are no committed figures that equal these rows"
    if not any(each.slower for each in comparisons.values()):
        return f"{counts}: none is slower"
    table = Table(title=f"Slower than committed ({counts})", title_justify="left")
    for name in ("benchmark", "row", "compared", "committed", "now"):
        table.add_column(name)
    for benchmark, comparison in comparisons.items():
        for row in comparison.slower:
            table.add_row(benchmark, row.what, row.compared, str(row.committed), str(row.now))
    return table


# Files.


def load(path: Path) -> dict[str, MeasuredTable]:
    """Return the committed tables by the name of their benchmark; none if there is no file."""
    if not path.exists():
        return {}
    return {
        name: MeasuredTable(machine=table["machine"], figures=tuple(map(_figure, table["figures"])))
        for name, table in json.loads(path.read_text()).items()
    }


def save(path: Path, tables: Mapping[str, MeasuredTable]) -> None:
    """Replace these tables in the file, with one figure in each line; keep all other tables."""
    kept = {**load(path), **tables}
    blocks = []
    for name in sorted(kept):
        lines = ",\n".join(f"  {json.dumps(_as_json(each))}" for each in kept[name].figures)
        machine = json.dumps(kept[name].machine)
        blocks.append(f'{json.dumps(name)}: {{"machine": {machine}, "figures": [\n{lines}\n]}}')
    path.write_text("{\n" + ",\n".join(blocks) + "\n}\n")


def _as_json(figure: Figure) -> dict[str, Any]:
    """Return the fields that differ from their defaults; numbers have five significant digits."""
    defaults = {field.name: field.default for field in fields(Figure)}
    return {
        name: _rounded(value) for name, value in asdict(figure).items() if value != defaults[name]
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_rounded(each) for each in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _figure(stored: Mapping[str, Any]) -> Figure:
    rounds = {name: tuple(stored.get(name, ())) for name in ("ours_rounds", "peer_rounds")}
    return Figure(**{**stored, **rounds})

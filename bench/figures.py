"""The results of a benchmark: figures, each with the peer's figure and a target."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measured number.

    ``ratio_wanted`` is the target of `ratio`. ``wanted`` is the target of ``ours``: a minimum, or
    with ``less_is_better`` a maximum.
    """

    what: str
    unit: str
    ours: float
    peer_name: str = ""
    peer: float | None = None
    less_is_better: bool = False
    wanted: float | None = None
    ratio_wanted: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Number of times that ours is better than the peer's; above 1 is better for every unit."""
        if self.peer is None:
            return None
        good, bad = (self.peer, self.ours) if self.less_is_better else (self.ours, self.peer)
        return good / bad if bad else None

    @property
    def is_met(self) -> bool | None:
        """True if the target is met; None without a target."""
        if self.ratio_wanted is not None:
            return None if self.ratio is None else self.ratio >= self.ratio_wanted
        if self.wanted is None:
            return None
        return self.ours <= self.wanted if self.less_is_better else self.ours >= self.wanted

    @property
    def target(self) -> str:
        """The target as text."""
        if self.ratio_wanted is not None:
            return f"ratio ≥ {self.ratio_wanted:g}"
        if self.wanted is None:
            return ""
        return f"{'≤' if self.less_is_better else '≥'} {number(self.wanted)}"

    def as_json(self) -> dict[str, Any]:
        """Return all fields and the derived values."""
        return {**asdict(self), "ratio": self.ratio, "is_met": self.is_met}


def number(value: float) -> str:
    """Format a number with three significant digits and thousands separators."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def table_of(title: str, figures: Iterable[Figure]) -> Table:
    """Return the figures of one benchmark as a table."""
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("what")
    for name in ("unit", "ours", "peer", "peer's", "ratio", "target"):
        table.add_column(name, justify="right" if name in ("ours", "peer's", "ratio") else "left")
    table.add_column("")
    for figure in figures:
        table.add_row(
            f"{figure.what}\n[dim]{figure.note}[/dim]" if figure.note else figure.what,
            figure.unit,
            number(figure.ours),
            figure.peer_name,
            "" if figure.peer is None else number(figure.peer),
            "" if figure.ratio is None else f"{figure.ratio:.2f}",
            figure.target,
            {None: "", True: "[green]met[/green]", False: "[red]missed[/red]"}[figure.is_met],
        )
    return table

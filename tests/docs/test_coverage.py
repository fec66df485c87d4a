"""The page on coverage names tests that exist, and leaves no behaviour without one unsaid."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
PAGE = ROOT / "docs" / "coverage.md"

HEADER = ("behaviour", "asked for by", "shown by")
NOT_YET = "not yet"
#: The stories that `coordinator/test_scenarios` runs, each under the name of its file.
STORIES = ("coordinator/scenarios/", "member/scenarios/")
CELL_EDGE = re.compile(r"(?<!\\)\|")
CODE = re.compile(r"`([^`]+)`")
TARGET = re.compile(r"^([a-z]+):", re.MULTILINE)


class Entry(NamedTuple):
    """A row of the page."""

    behaviour: str
    asked_by: str
    shown_by: str

    @property
    def shown(self) -> list[str]:
        """What is named as showing it: tests, stories, targets, questions of the benchmarks."""
        return CODE.findall(self.shown_by)


def entries() -> Iterator[Entry]:
    """The rows of all tables of the page, the headers left out."""
    for line in PAGE.read_text().splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in CELL_EDGE.split(line)[1:-1]]
            assert len(cells) == len(HEADER), line
            if tuple(cells) != HEADER and set(line) - set("|-"):
                yield Entry(*cells)


ENTRIES = list(entries())
SHOWN = sorted({name for entry in ENTRIES for name in entry.shown})


@cache
def collected_in(path: Path) -> frozenset[str]:
    """The names under which pytest collects what a file holds: functions, methods, classes."""
    return frozenset(_collected(ast.parse(path.read_text()).body))


def _collected(body: list[ast.stmt], within: str = "") -> Iterator[str]:
    for node in body:
        match node:
            case ast.FunctionDef(name=name) if name.startswith("test_"):
                yield f"{within}{name}"
            case ast.ClassDef(name=name, body=inner) if name.startswith("Test"):
                yield from _collected(inner, f"{name}::")
            case ast.Assign(targets=[ast.Name(id=name)]) if name.startswith("Test"):
                yield name  # a state machine's: TestThis = This.TestCase


@cache
def targets() -> frozenset[str]:
    return frozenset(TARGET.findall((ROOT / "Makefile").read_text()))


def is_there(name: str) -> bool:
    """Whether a test, a story, a target or a benchmark of this name exists."""
    place, _, function = name.partition("::")
    if function:
        path = TESTS / place
        is_collected = path.name.startswith("test_") and path.is_file()
        return is_collected and function in collected_in(path)
    if name.startswith("make "):
        return name.removeprefix("make ") in targets()
    if name.startswith("bench/"):
        return (ROOT / name).is_file()
    return name.startswith(STORIES) and name.endswith(".txt") and (TESTS / name).is_file()


def test_what_is_named_exists() -> None:
    assert [name for name in SHOWN if not is_there(name)] == []


def test_what_does_not_exist_is_noticed() -> None:
    for name in (
        "docs/test_coverage.py::test_nothing",
        "docs/test_coverage.py::is_there",
        "docs/test_nothing.py::test_what_is_named_exists",
        "conftest.py::pytest_addoption",
        "coordinator/scenarios/00_nothing.txt",
        "docs/test_coverage.py",
        "make nothing",
        "bench/nothing.py",
    ):
        assert not is_there(name), name
    assert is_there("docs/test_coverage.py::test_what_does_not_exist_is_noticed")


def test_every_row_names_who_asks_and_what_shows_it() -> None:
    assert len(ENTRIES) > 100
    assert [entry for entry in ENTRIES if not (entry.behaviour and entry.asked_by)] == []
    assert [entry for entry in ENTRIES if not (entry.shown or NOT_YET in entry.shown_by)] == []


def test_every_table_has_the_same_columns() -> None:
    """A table with others would be passed over by whoever looks for what is not yet shown."""
    lines = PAGE.read_text().splitlines()
    heads = [above for above, line in pairwise(lines) if line == "|---|---|---|"]
    assert {head.strip("| ") for head in heads} == {" | ".join(HEADER)}
    assert len(heads) == sum(line.startswith("|--") for line in lines)


def test_no_behaviour_stands_there_twice() -> None:
    said = [entry.behaviour for entry in ENTRIES]
    assert sorted(said) == sorted(set(said))

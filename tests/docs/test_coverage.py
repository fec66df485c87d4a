"""docs/coverage.md names only existing tests, and names one or "not yet" for each behaviour."""

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
#: The scenarios, which coverage.md names by their files.
STORIES = tuple(
    f"{each}/scenarios/" for each in ("coordinator", "member", "proposals", "transactions")
)
CELL_EDGE = re.compile(r"(?<!\\)\|")
CODE = re.compile(r"`([^`]+)`")
TARGET = re.compile(r"^([a-z]+):", re.MULTILINE)


class Entry(NamedTuple):
    """A row of docs/coverage.md."""

    behaviour: str
    asked_by: str
    shown_by: str

    @property
    def shown(self) -> list[str]:
        """Names of the tests, scenarios, make targets and benchmarks of the row."""
        return CODE.findall(self.shown_by)


def entries() -> Iterator[Entry]:
    """Yield the rows of all tables, without headers."""
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
    """Return the names that pytest collects from a file: functions, methods, classes."""
    return frozenset(_collected(ast.parse(path.read_text()).body))


def _collected(body: list[ast.stmt], within: str = "") -> Iterator[str]:
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith(
                "test_"
            ):
                yield f"{within}{name}"
            case ast.ClassDef(name=name, body=inner) if name.startswith("Test"):
                yield from _collected(inner, f"{name}::")
            case ast.Assign(targets=[ast.Name(id=name)]) if name.startswith("Test"):
                yield name  # of a state machine: TestThis = This.TestCase


@cache
def targets() -> frozenset[str]:
    return frozenset(TARGET.findall((ROOT / "Makefile").read_text()))


def is_there(name: str) -> bool:
    """True if a test, scenario, make target or benchmark of this name exists."""
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


def test_named_tests_exist() -> None:
    assert [name for name in SHOWN if not is_there(name)] == []


def test_missing_names_are_detected() -> None:
    for name in (
        "docs/test_coverage.py::test_nothing",
        "docs/test_coverage.py::is_there",
        "docs/test_nothing.py::test_named_tests_exist",
        "conftest.py::pytest_addoption",
        "coordinator/scenarios/00_nothing.txt",
        "docs/test_coverage.py",
        "make nothing",
        "bench/nothing.py",
    ):
        assert not is_there(name), name
    assert is_there("docs/test_coverage.py::test_missing_names_are_detected")


def test_each_row_names_source_and_test() -> None:
    assert len(ENTRIES) > 100
    assert [entry for entry in ENTRIES if not (entry.behaviour and entry.asked_by)] == []
    assert [entry for entry in ENTRIES if not (entry.shown or NOT_YET in entry.shown_by)] == []


def test_tables_have_the_same_columns() -> None:
    """A table with other columns would be skipped by the other tests of this file."""
    lines = PAGE.read_text().splitlines()
    heads = [above for above, line in pairwise(lines) if line == "|---|---|---|"]
    assert {head.strip("| ") for head in heads} == {" | ".join(HEADER)}
    assert len(heads) == sum(line.startswith("|--") for line in lines)


def test_behaviours_are_unique() -> None:
    said = [entry.behaviour for entry in ENTRIES]
    assert sorted(said) == sorted(set(said))

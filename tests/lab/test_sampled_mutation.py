"""Random mutants and the table of their results; the searches take too long for a test."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from lab import random_mutants
from lab.sampled_mutation import PACKAGES, SampledResult, draw_mutants, score_table


def test_more_mutants_of_a_seed_begin_with_the_same_ones() -> None:
    drawn = draw_mutants(3, seed="1")
    assert drawn == [each for each in draw_mutants(5, seed="1") if each in drawn]
    assert len({mutant.name for _, mutant in drawn}) == 3 * len(PACKAGES)


def test_mutant_changes_one_place_of_its_package() -> None:
    for package, mutant in draw_mutants(2, seed="2"):
        assert mutant.module.startswith(f"partage.{package}.")
        assert mutant.original != mutant.replacement
        compile(mutant.apply(mutant.original), mutant.module, "exec")


def test_annotations_are_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed annotation has no effect, so that no test could find it."""
    source = """
def called(number: int | None) -> int | str:
    def inner(text: str | None) -> bytes | int:
        return len(text) + 1
    kept: dict[str, int | None] = {}
    kept.value: int | None = None
    return inner(number)
"""
    (tmp_path / "annotated_module.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    found = {each.description for each in random_mutants.changes("annotated_module")}
    assert found == {"+ becomes -", "1 becomes 2"}


def test_table_counts_what_tests_and_worlds_find() -> None:
    results = [
        SampledResult(package="member", mutant="a", tests="test_a", worlds={"topics": "0 close"}),
        SampledResult(package="member", mutant="b", tests="test_b", worlds={}),
        SampledResult(package="store", mutant="c", tests=None, worlds={}),
    ]
    lines = score_table(results).splitlines()
    assert lines[2:] == [
        "| `member` | 2 | 2 | 1 | 2 |",
        "| `store` | 1 | 0 | 0 | 0 |",
        "| **all** | 3 | 2 (67 %) | 1 (33 %) | 2 (67 %) |",
    ]


def test_result_of_a_file_is_the_one_that_was_written() -> None:
    result = SampledResult(package="log", mutant="d", tests=None, worlds={"lab": "3 recovery"})
    assert msgspec.json.decode(msgspec.json.encode(result), type=SampledResult) == result

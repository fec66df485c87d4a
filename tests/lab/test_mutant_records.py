"""Each mutant has a record, and a run that no longer finds a recorded one fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from proposals import mutation as design_mutation

from . import mutation
from .mutant import Mutant
from .mutant_records import (
    MutantLists,
    MutantRecord,
    MutantSearchError,
    RunOptions,
    Search,
    missed_summary,
    read_records,
    run_mutants,
    source_path,
    totals_table,
    write_records,
)
from .mutants import MUTANT_LISTS, MUTANTS

SIMULATOR_PAGE = Path(__file__).parents[2] / "docs" / "simulator.md"
FILES = {
    "lab": (MUTANT_LISTS, mutation.RECORDS_PATH),
    "proposals": (design_mutation.MUTANT_LISTS, design_mutation.RECORDS_PATH),
}

MODULE = "partage.coordinator.leave"
QUOTED = "    gone.append(member_id)\n"
EASY = Mutant("easy", MODULE, QUOTED, "    pass\n")
HARD = Mutant("hard", MODULE, QUOTED, "    del gone\n")
NEW = Mutant("new", MODULE, QUOTED, "    gone = []\n")
LISTS: MutantLists = {"some": (EASY, HARD), "others": (NEW,)}
RECORDS = {
    "easy": MutantRecord(rule="commits", seed=3),
    "hard": MutantRecord(not_found_in=60),
}


def search(found: dict[str, MutantRecord]) -> tuple[list[str], Search]:
    """Return a list of the names that are searched for, and the search."""
    names: list[str] = []

    def find(mutant: Mutant, record: MutantRecord) -> MutantRecord:
        names.append(mutant.name)
        return found.get(mutant.name, MutantRecord(not_found_in=60))

    return names, find


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with `RECORDS`."""
    write_records(tmp_path / "records.json", LISTS, RECORDS)
    return tmp_path / "records.json"


@pytest.mark.parametrize("file", FILES)
def test_each_mutant_has_one_record(file: str) -> None:
    lists, path = FILES[file]
    names = [mutant.name for mutants in lists.values() for mutant in mutants]
    assert list(read_records(path)) == names


@pytest.mark.parametrize("file", FILES)
def test_docs_have_totals_of_records(file: str) -> None:
    lists, path = FILES[file]
    assert totals_table(lists, read_records(path)) in SIMULATOR_PAGE.read_text()


def test_default_run_searches_recorded_mutants_only(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names, find = search(RECORDS)
    assert run_mutants(LISTS, path, find, RunOptions()) == 0
    assert names == ["easy"]
    printed = capsys.readouterr().out
    assert "[1/1, 0 s] found: easy (seed 3: commits)" in printed
    assert missed_summary(LISTS, RECORDS) in printed
    assert "NOT found: 1 (33.3%); not measured: 1 (33.3%)" in printed


def test_run_fails_if_recorded_mutant_is_not_found(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, find = search({})
    before = path.read_bytes()
    assert run_mutants(LISTS, path, find, RunOptions()) == 1
    printed = capsys.readouterr().out
    assert "NO LONGER FOUND: easy (not found in 60 worlds, recorded was seed 3: commits)" in printed
    assert "FAILED: 1 bugs are no longer found" in printed
    assert path.read_bytes() == before


def test_run_passes_if_another_seed_finds_mutant(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, find = search({"easy": MutantRecord(rule="commits", seed=9)})
    assert run_mutants(LISTS, path, find, RunOptions()) == 0
    assert "found by another world: easy (seed 9: commits" in capsys.readouterr().out


def test_missed_run_searches_and_records_others(path: Path) -> None:
    found = {"new": MutantRecord(rule="reads", seed=0)}
    names, find = search(found)
    assert run_mutants(LISTS, path, find, RunOptions(missed=True, write=True)) == 0
    assert names == ["hard", "new"]
    assert read_records(path) == {**RECORDS, **found}


def test_unmeasured_run_searches_unmeasured_mutants_only(path: Path) -> None:
    names, find = search({})
    assert run_mutants(LISTS, path, find, RunOptions(unmeasured=True, jobs=2)) == 0
    assert names == ["new"]


def test_run_records_each_result_before_next_search(path: Path) -> None:
    seen = []

    def find(mutant: Mutant, record: MutantRecord) -> MutantRecord:
        seen.append(read_records(path)[mutant.name])
        seen.append(read_records(path)["hard"])
        return MutantRecord(rule="reads", seed=1)

    run_mutants(LISTS, path, find, RunOptions(missed=True, write=True))
    assert seen[-1] == MutantRecord(rule="reads", seed=1)


def test_failed_search_fails_run_and_keeps_record(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def find(mutant: Mutant, record: MutantRecord) -> MutantRecord:
        raise MutantSearchError("exit status 1")

    assert run_mutants(LISTS, path, find, RunOptions(write=True)) == 1
    assert "SEARCH FAILED: easy (exit status 1)" in capsys.readouterr().out
    assert read_records(path)["easy"] == RECORDS["easy"]


def test_stale_mutant_ends_run_before_any_search(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names, find = search({})
    stale = Mutant("stale", MODULE, "no such code", "")
    assert run_mutants({**LISTS, "stale": (stale,)}, path, find, RunOptions()) == 2
    assert names == []
    assert f"stale: {MODULE} contains the code 0 times" in capsys.readouterr().out


def test_record_without_mutant_ends_run(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names, find = search({})
    assert run_mutants({"some": (HARD,)}, path, find, RunOptions()) == 2
    assert names == []
    assert "records.json has a record of an unknown bug: easy" in capsys.readouterr().out


def test_source_path_is_that_of_imported_module() -> None:
    assert source_path("partage.lab.environment") == source_path(
        "partage.lab.environment.clock"
    ).with_name("__init__.py")
    assert source_path(MODULE).read_text().count(QUOTED) == 1


@pytest.mark.slow
def test_seed_that_fails_without_mutant_is_no_evidence() -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name.startswith("revoked "))
    broken = mutation.CorrectWorlds(lambda seed, options: "commits")
    with pytest.raises(MutantSearchError, match="seed 0 breaks the rule commits without the bug"):
        mutation.search_recorded(mutant, MutantRecord(), 5, broken)
    correct = mutation.CorrectWorlds(mutation.run_correct_world)
    found = mutation.search_recorded(mutant, MutantRecord(), 5, correct)
    assert found == MutantRecord(rule="callbacks", seed=0)

"""Records of the worlds that found each mutant, and a run that compares them with today's code.

A file has one record for each mutant: the seed and rule that found it, the number of worlds in
which it was not found, or nothing if it was never searched for.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import msgspec

from .mutant import Mutant


class MutantRecord(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The result of the last recorded search for a mutant.

    Attributes:
        rule: The rule that a world broke, or the error of a property; None if nothing was found.
        seed: The seed of that world; None if a property found the mutant, or nothing did.
        finder: The design or property that found the mutant; empty if there is only one kind of
            world.
        examples: The number of examples of that property; None for a world.
        not_found_in: The number of worlds without a broken rule; None if the mutant was found, or
            was never searched for.
    """

    rule: str | None = None
    seed: int | None = None
    finder: str = ""
    examples: int | None = None
    not_found_in: int | None = None

    @property
    def is_found(self) -> bool:
        """True if a world or property found the mutant."""
        return self.rule is not None

    @property
    def is_measured(self) -> bool:
        """True if the mutant was searched for."""
        return self.is_found or self.not_found_in is not None

    def describe(self) -> str:
        """Return the result as text for people."""
        if self.is_found:
            world = "" if self.seed is None else f"seed {self.seed}"
            return f"{' of '.join(filter(None, (world, self.finder)))}: {self.rule}"
        return f"not found in {self.not_found_in:,} worlds" if self.is_measured else "not measured"


class MutantSearchError(Exception):
    """A search that proves nothing: its process failed, or the correct code breaks the rule too."""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a run.

    Attributes:
        missed: True to search for the mutants that were not found or not measured, instead of those
            that were found.
        unmeasured: True to search for the mutants that were not measured only.
        write: True to store the results, each one as soon as it is known.
        jobs: The number of searches at the same time.
    """

    missed: bool = False
    unmeasured: bool = False
    write: bool = False
    jobs: int = 1


#: Searches for a mutant, beginning with the world of its record.
Search = Callable[[Mutant, MutantRecord], MutantRecord]
#: Mutants by the title of their list.
MutantLists = Mapping[str, Sequence[Mutant]]


def source_path(module: str) -> Path:
    """Return the source file of a module of `partage`, without an import of its package."""
    spec = importlib.util.find_spec(module.partition(".")[0])
    assert spec is not None
    assert spec.submodule_search_locations
    root = Path(spec.submodule_search_locations[0])
    path = root.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def find_stale_mutants(lists: MutantLists) -> list[str]:
    """Return a line for each mutant whose source no longer contains the quoted code once, or whose
    changed source is not valid.
    """
    stale = []
    for mutants in lists.values():
        for mutant in mutants:
            try:
                compile(mutant.apply(source_path(mutant.module).read_text()), mutant.module, "exec")
            except (LookupError, SyntaxError, OSError) as error:
                stale.append(str(error))
    return stale


def read_records(path: Path) -> dict[str, MutantRecord]:
    """Read the records of a file by the names of the mutants."""
    return msgspec.json.decode(path.read_bytes(), type=dict[str, MutantRecord])


def write_records(path: Path, lists: MutantLists, records: Mapping[str, MutantRecord]) -> None:
    """Store the records, one on each line, in the order of the lists."""
    lines = [
        f"  {msgspec.json.encode(mutant.name).decode()}: "
        f"{msgspec.json.encode(records.get(mutant.name, MutantRecord())).decode()}"
        for mutants in lists.values()
        for mutant in mutants
    ]
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    unfinished.replace(path)


def totals_table(lists: MutantLists, records: Mapping[str, MutantRecord]) -> str:
    """Return a table of the recorded results, one row for each list, and their sum."""
    rows = ["| list | bugs | found | not found | not measured |", "|---|---|---|---|---|"]
    every = [mutant for mutants in lists.values() for mutant in mutants]
    for title, mutants in (*lists.items(), ("**all**", every)):
        told = [records.get(mutant.name, MutantRecord()) for mutant in mutants]
        found = sum(record.is_found for record in told)
        measured = sum(record.is_measured for record in told)
        rows.append(
            f"| {title} | {len(told)} | {found} | {measured - found} | {len(told) - measured} |"
        )
    return "\n".join(rows)


def missed_summary(lists: MutantLists, records: Mapping[str, MutantRecord]) -> str:
    """Return a sentence about the mutants that a run without ``missed`` does not search for."""
    told = [
        records.get(mutant.name, MutantRecord()) for mutants in lists.values() for mutant in mutants
    ]
    missed = sum(record.is_measured and not record.is_found for record in told)
    unmeasured = sum(not record.is_measured for record in told)
    return (
        f"{len(told) - missed - unmeasured} of {len(told)} bugs are recorded as found. "
        f"NOT found: {missed} ({missed / len(told):.1%}); "
        f"not measured: {unmeasured} ({unmeasured / len(told):.1%}). "
        "--missed searches for these."
    )


def run_mutants(lists: MutantLists, path: Path, search: Search, options: RunOptions) -> int:
    """Search for mutants, compare the results with the records, and print them.

    Args:
        lists: All mutants.
        path: The file with their records.
        search: The search for one mutant. It is called in threads if there are several jobs.
        options: Which mutants to search for, and whether to store the results.

    Returns:
        The exit status: 0; 1 if a mutant is no longer found or a search failed; 2 if a mutant does
        not match the source code, or a record has no mutant.
    """
    records = read_records(path)
    names = {mutant.name for mutants in lists.values() for mutant in mutants}
    problems = find_stale_mutants(lists)
    problems += [f"{path.name} has a record of an unknown bug: {x}" for x in records.keys() - names]
    if problems:
        print("\n".join(problems), flush=True)
        print(f"{len(problems)} bugs do not match the source code. Correct them first.")
        return 2
    wanted = [
        mutant
        for mutants in lists.values()
        for mutant in mutants
        if _is_wanted(records.get(mutant.name, MutantRecord()), options)
    ]
    begin = time.monotonic()
    counts = {"found": 0, "moved": 0, "lost": 0, "new": 0, "missed": 0, "failed": 0}
    outcomes: dict[str, str] = {}
    for number, (mutant, result) in enumerate(
        _search_all(wanted, records, search, options.jobs), 1
    ):
        before = records.get(mutant.name, MutantRecord())
        outcome = _outcome(before, result)
        counts[outcome] += 1
        outcomes[mutant.name] = outcome
        shown = str(result) if isinstance(result, Exception) else result.describe()
        note = f", recorded was {before.describe()}" if outcome in ("moved", "lost") else ""
        print(
            f"[{number}/{len(wanted)}, {time.monotonic() - begin:.0f} s] "
            f"{_TITLES[outcome]}: {mutant.name} ({shown}{note})",
            flush=True,
        )
        if options.write and isinstance(result, MutantRecord):
            records[mutant.name] = result
            write_records(path, lists, records)
    print()
    print(_run_table(lists, outcomes))
    print()
    print(missed_summary(lists, records))
    lost, failed = counts["lost"], counts["failed"]
    if lost or failed:
        print(f"FAILED: {lost} bugs are no longer found, {failed} searches failed.")
        return 1
    return 0


_TITLES = {
    "found": "found",
    "moved": "found by another world",
    "lost": "NO LONGER FOUND",
    "new": "newly found",
    "missed": "not found",
    "failed": "SEARCH FAILED",
}


def _run_table(lists: MutantLists, outcomes: Mapping[str, str]) -> str:
    """Return a table of the results of this run, one row for each list that it searched."""
    rows = [f"| list | searched | {' | '.join(_TITLES.values())} |", "|---" * 8 + "|"]
    for title, mutants in lists.items():
        told = [outcomes[mutant.name] for mutant in mutants if mutant.name in outcomes]
        if told:
            cells = " | ".join(str(told.count(outcome)) for outcome in _TITLES)
            rows.append(f"| {title} | {len(told)} | {cells} |")
    told = list(outcomes.values())
    cells = " | ".join(str(told.count(outcome)) for outcome in _TITLES)
    rows.append(f"| all | {len(told)} | {cells} |")
    return "\n".join(rows)


def _is_wanted(record: MutantRecord, options: RunOptions) -> bool:
    if options.unmeasured:
        return not record.is_measured
    return record.is_found is not options.missed


def _outcome(before: MutantRecord, result: MutantRecord | MutantSearchError) -> str:
    if isinstance(result, MutantSearchError):
        return "failed"
    if not result.is_found:
        return "lost" if before.is_found else "missed"
    if not before.is_found:
        return "new"
    return "found" if result == before else "moved"


def _search_all(
    mutants: Sequence[Mutant], records: Mapping[str, MutantRecord], search: Search, jobs: int
) -> Iterator[tuple[Mutant, MutantRecord | MutantSearchError]]:
    """Yield each mutant with the result of its search, in the order in which the searches end."""

    def attempt(mutant: Mutant, record: MutantRecord) -> MutantRecord | MutantSearchError:
        try:
            return search(mutant, record)
        except MutantSearchError as error:
            return error

    if jobs == 1:  # without threads, so that a search can fork
        for mutant in mutants:
            yield mutant, attempt(mutant, records.get(mutant.name, MutantRecord()))
        return
    with ThreadPoolExecutor(jobs) as pool:
        searches = {
            pool.submit(attempt, mutant, records.get(mutant.name, MutantRecord())): mutant
            for mutant in mutants
        }
        try:
            for done in as_completed(searches):
                yield searches[done], done.result()
        finally:
            pool.shutdown(cancel_futures=True)

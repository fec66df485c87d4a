"""Install a mutant in this process before its module is imported, and run seeds until one detects
it.

cd tests && python -m lab.mutation "a member delivers after its session expired" --seeds 100

Without a name, check that the mutants that `mutants.json` records as found are still found.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import json
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple

from .mutant import Mutant
from .mutant_records import (
    MutantRecord,
    MutantSearchError,
    RunOptions,
    read_records,
    run_mutants,
    totals_table,
)
from .mutants import MUTANT_LISTS, MUTANTS

#: The records of all mutants.
RECORDS_PATH = Path(__file__).with_name("mutants.json")
#: CPU seconds of one world of a mutant; a world that loops uses more.
_WORLD_CPU_S = 30
#: Bytes of memory of a process with a mutant, which may loop and allocate.
_MEMORY_MAX_BYTES = 4 << 30
#: If one world in n found a mutant, this many times n worlds find it again with 95 %.
_RARE_FACTOR = 3
_RARE_SEEDS_MAX = 2_000


class MutantResult(NamedTuple):
    """The seed and rule that detected a mutant; None if no seed did."""

    name: str
    seed: int | None
    rule: str | None
    seconds: float


class WorldTimeoutError(Exception):
    """A world of a mutant used too much CPU time."""


class MutatedLoader(importlib.machinery.SourceFileLoader):
    """Loads a module with the mutant in its source."""

    mutant: Mutant

    def get_code(self, fullname: str) -> CodeType:
        changed = self.mutant.apply(self.get_data(self.path).decode())
        return compile(changed, self.path, "exec")


class MutantFinder(importlib.abc.MetaPathFinder):
    """Finds the module to change, before the regular finders."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert spec is not None
        assert spec.origin is not None
        loader: Any = MutatedLoader(fullname, spec.origin)
        loader.mutant = self._mutant
        spec.loader = loader
        return spec


def install_mutant(name: str) -> Mutant:
    """Install a mutant in this process. It cannot be removed."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    assert mutant.module not in sys.modules, "the module is already imported"
    sys.meta_path.insert(0, MutantFinder(mutant))
    return mutant


def find_mutant(name: str, seeds: int, first: int | None = None) -> MutantResult:
    """Run seeds in this process until one detects the mutant.

    Args:
        name: The name of the mutant.
        seeds: The number of seeds, from 0 on.
        first: A seed to run before these; None for none.
    """
    mutant = install_mutant(name)
    from partage.lab.runner import draw_scenario, run_scenario

    signal.signal(signal.SIGPROF, _stop_world)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_MAX_BYTES, resource.RLIM_INFINITY))
    begin = time.monotonic()
    rest = (seed for seed in range(seeds) if seed != first)
    for seed in rest if first is None else (first, *rest):
        # The interval repeats the signal in case that code of the world catches the exception.
        signal.setitimer(signal.ITIMER_PROF, _WORLD_CPU_S, 1)
        _, verdict = run_scenario(draw_scenario(seed, None, dict(mutant.options)))
        signal.setitimer(signal.ITIMER_PROF, 0)
        if verdict.rule is not None:
            return MutantResult(mutant.name, seed, verdict.rule, time.monotonic() - begin)
    return MutantResult(mutant.name, None, None, time.monotonic() - begin)


def _stop_world(number: int, frame: FrameType | None) -> None:
    raise WorldTimeoutError(f"the world used {_WORLD_CPU_S} s of CPU time")


def find_mutant_in_subprocess(mutant: Mutant, seeds: int, first: int | None = None) -> MutantResult:
    """Run `find_mutant` in a separate process.

    Raises:
        MutantSearchError: The process failed, for example because the changed module has an error
            that its import shows.
    """
    command = [sys.executable, "-m", "lab.mutation", mutant.name, "--seeds", str(seeds), "--json"]
    if first is not None:
        command += ["--first", str(first)]
    here = Path(__file__).parents[1]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=here)
    if run.returncode:
        raise MutantSearchError(f"exit status {run.returncode}: {run.stderr[-500:]}")
    return MutantResult(*json.loads(run.stdout))


class CorrectWorlds:
    """Verdicts of worlds without a mutant. Each world runs once, in this process.

    A seed is evidence of a mutant only if its world breaks no rule without the mutant.

    Args:
        run: Returns the rule that the world of a seed with these options breaks, or None.
    """

    def __init__(self, run: Callable[[int, dict[str, Any]], str | None]) -> None:
        self._run = run
        self._rules: dict[tuple[int, str], str | None] = {}
        self._lock = threading.Lock()

    def broken_rule(self, seed: int, options: Mapping[str, Any]) -> str | None:
        """Return the rule that the world of a seed breaks on the current code; None if none."""
        key = (seed, json.dumps(options, sort_keys=True))
        with self._lock:
            if key not in self._rules:
                self._rules[key] = self._run(seed, dict(options))
            return self._rules[key]


def run_correct_world(seed: int, options: dict[str, Any]) -> str | None:
    """Run a world in this process, and return the rule that it breaks; None if none."""
    from partage.lab.runner import draw_scenario, run_scenario

    _, verdict = run_scenario(draw_scenario(seed, None, options))
    return verdict.rule


def search_recorded(
    mutant: Mutant, record: MutantRecord, seeds: int, worlds: CorrectWorlds
) -> MutantRecord:
    """Search for a mutant: first in the recorded world, then in those of the seeds from 0 on.

    If the world of its record has changed, a rare mutant is searched for in more worlds.

    Args:
        mutant: The mutant.
        record: Its record.
        seeds: The number of seeds, unless the record says that the mutant is rare.
        worlds: The same worlds without the mutant.

    Raises:
        MutantSearchError: The process failed, or the world breaks a rule without the mutant.
    """
    if record.seed is not None:
        seeds = max(seeds, min(_RARE_FACTOR * (record.seed + 1), _RARE_SEEDS_MAX))
    found = find_mutant_in_subprocess(mutant, seeds, record.seed)
    if found.seed is None:
        return MutantRecord(not_found_in=seeds)
    correct = worlds.broken_rule(found.seed, mutant.options)
    if correct is not None:
        raise MutantSearchError(
            f"seed {found.seed} breaks the rule {correct} without the bug: correct this first"
        )
    return MutantRecord(seed=found.seed, rule=found.rule)


def main() -> None:
    """Run one mutant, or check those that are recorded."""
    parser = argparse.ArgumentParser(description="Plant bugs and let the simulator detect them.")
    parser.add_argument("name", nargs="?", help="title of one mutant; default: the recorded ones")
    parser.add_argument("--seeds", type=int, default=60, help="maximum number of seeds")
    parser.add_argument("--first", type=int, help="with a name: run this seed first")
    parser.add_argument("--json", action="store_true", help="with a name: print JSON")
    add_run_options(parser)
    parser.add_argument("--jobs", type=int, default=2, help="number of processes")
    options = parser.parse_args()
    if options.name:
        found = find_mutant(options.name, options.seeds, options.first)
        print(json.dumps(found) if options.json else found)
        return
    if options.totals:
        print(totals_table(MUTANT_LISTS, read_records(RECORDS_PATH)))
        return
    worlds = CorrectWorlds(run_correct_world)
    sys.exit(
        run_mutants(
            MUTANT_LISTS,
            RECORDS_PATH,
            lambda mutant, record: search_recorded(mutant, record, options.seeds, worlds),
            RunOptions(
                missed=options.missed,
                unmeasured=options.unmeasured,
                write=options.write,
                jobs=options.jobs,
            ),
        )
    )


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `run_mutants` to a parser."""
    parser.add_argument(
        "--missed", action="store_true", help="search for bugs that are not recorded as found"
    )
    parser.add_argument(
        "--unmeasured", action="store_true", help="search for bugs that were never searched for"
    )
    parser.add_argument("--write", action="store_true", help="record the results")
    parser.add_argument("--totals", action="store_true", help="print the recorded totals and exit")


if __name__ == "__main__":
    main()

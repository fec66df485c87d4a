"""Install a mutant in this process before its module is imported, and run seeds until one detects
it.

cd tests && python -m lab.mutation "a member delivers after its session expired" --seeds 100
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

from .mutants import MUTANTS, Mutant


class MutantResult(NamedTuple):
    """The seed and rule that detected a mutant; None if no seed did."""

    name: str
    seed: int | None
    rule: str | None
    seconds: float


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


def find_mutant(name: str, seeds: int) -> MutantResult:
    """Run seeds in this process until one detects the mutant."""
    mutant = install_mutant(name)
    from partage.lab.runner import draw_scenario, run_scenario

    begin = time.monotonic()
    for seed in range(seeds):
        _, verdict = run_scenario(draw_scenario(seed, None, dict(mutant.options)))
        if verdict.rule is not None:
            return MutantResult(mutant.name, seed, verdict.rule, time.monotonic() - begin)
    return MutantResult(mutant.name, None, None, time.monotonic() - begin)


def find_mutant_in_subprocess(mutant: Mutant, seeds: int) -> MutantResult:
    """Run `find_mutant` in a separate process."""
    command = [sys.executable, "-m", "lab.mutation", mutant.name, "--seeds", str(seeds), "--json"]
    here = Path(__file__).parents[1]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=here)
    if run.returncode:
        raise RuntimeError(f"{mutant.name}: {run.stderr}")
    return MutantResult(*json.loads(run.stdout))


def main() -> None:
    """Run one mutant, or all mutants and print a table."""
    parser = argparse.ArgumentParser(description="Plant bugs and let the simulator detect them.")
    parser.add_argument("name", nargs="?", help="title of one mutant; default: all")
    parser.add_argument("--seeds", type=int, default=10_000, help="maximum number of seeds")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes")
    options = parser.parse_args()
    if options.name:
        found = find_mutant(options.name, options.seeds)
        print(json.dumps(found) if options.json else found)
        return
    with ThreadPoolExecutor(options.jobs) as pool:
        missed = 0
        print("| bug | where | seeds | found by |\n|---|---|---|---|", flush=True)
        results = pool.map(lambda mutant: find_mutant_in_subprocess(mutant, options.seeds), MUTANTS)
        for mutant, found in zip(MUTANTS, results, strict=True):
            where = mutant.module.removeprefix("partage.")
            seeds = "not found" if found.seed is None else f"{found.seed + 1:,}"
            missed += found.seed is None
            print(f"| {mutant.name} | `{where}` | {seeds} | {found.rule or ''} |", flush=True)
    print(f"\n{len(MUTANTS) - missed} of {len(MUTANTS)} found")
    sys.exit(1 if missed > len(MUTANTS) // 20 else 0)


if __name__ == "__main__":
    main()

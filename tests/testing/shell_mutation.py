"""Plant a bug in the shells, and run worlds until one finds it.

cd tests && python -m testing.shell_mutation "paused partitions are delivered" --seeds 100
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab.mutation import MutantFinder
from testing.shell_mutants import DRAWN_SHELL_MUTANTS, LATER_SHELL_MUTANTS, SHELL_MUTANTS

_LISTS = {"first": SHELL_MUTANTS, "later": LATER_SHELL_MUTANTS, "drawn": DRAWN_SHELL_MUTANTS}
_MUTANTS = tuple(mutant for mutants in _LISTS.values() for mutant in mutants)


def find_shell_mutant(name: str, seeds: int) -> str:
    """Run worlds in this process until one finds a bug; return the seed and the rule as text."""
    mutant = next(each for each in _MUTANTS if each.name == name)
    assert mutant.module not in sys.modules, "the module is already imported"
    sys.meta_path.insert(0, MutantFinder(mutant))
    from partage.testing.shell_worlds.runner import run_shell_world
    from partage.testing.shell_worlds.scenario import draw_scenario

    for seed in range(seeds):
        result = run_shell_world(draw_scenario(seed, mutant.options))
        if result.rule is not None:
            return f"{seed + 1} | `{result.rule}`"
    return "not found | "


def main() -> None:
    """Search for one bug, or for all of them each in a separate process, and print a table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("name", nargs="?", help="title of one bug; default: all")
    parser.add_argument("--list", choices=_LISTS, help="only the bugs of one list")
    parser.add_argument("--seeds", type=int, default=100, help="maximum number of worlds")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes")
    options = parser.parse_args()
    if options.name:
        print(find_shell_mutant(options.name, options.seeds))
        return

    def search(name: str) -> str:
        command = [sys.executable, "-m", "testing.shell_mutation", name]
        run = subprocess.run(
            [*command, "--seeds", str(options.seeds)],
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parents[1],
        )
        return run.stdout.strip().splitlines()[-1] if not run.returncode else run.stderr[-300:]

    print("| bug | worlds | rule |\n|---|---|---|", flush=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        mutants = _LISTS[options.list] if options.list else _MUTANTS
        names = [mutant.name for mutant in mutants]
        missed = 0
        for name, found in zip(names, pool.map(search, names), strict=True):
            missed += "not found" in found
            print(f"| {name} | {found} |", flush=True)
    print(f"\n{len(names) - missed} of {len(names)} found")
    sys.exit(1 if missed > len(names) // 20 else 0)


if __name__ == "__main__":
    main()

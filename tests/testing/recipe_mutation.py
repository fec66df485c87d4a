"""Plant a bug in a recipe, and run worlds of this recipe until one finds it.

cd tests && python -m testing.recipe_mutation "a lease counts from the response" --seeds 40
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from lab.mutation import MutantFinder
from testing.recipe_mutants import RECIPE_MUTANTS


def find_recipe_mutant(name: str, seeds: int) -> str:
    """Run worlds in this process until one finds a bug; return their number and the rule."""
    mutant = next(each for each in RECIPE_MUTANTS if each.name == name)
    assert mutant.module not in sys.modules, "the module is already imported"
    sys.meta_path.insert(0, MutantFinder(mutant))
    from partage.testing.recipe_worlds.runner import run_recipe_world
    from partage.testing.recipe_worlds.scenario import draw_scenario

    for seed in range(seeds):
        result = run_recipe_world(draw_scenario(seed, mutant.options))
        if result.rule is not None:
            return f"{seed + 1} | `{result.rule}`"
    return "not found | "


def main() -> None:
    """Search for one bug, or for all of them each in a separate process, and print a table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("name", nargs="?", help="title of one bug; default: all")
    parser.add_argument("--seeds", type=int, default=40, help="maximum number of worlds")
    options = parser.parse_args()
    if options.name:
        print(find_recipe_mutant(options.name, options.seeds))
        return
    print("| bug | worlds | rule |\n|---|---|---|", flush=True)
    for mutant in RECIPE_MUTANTS:
        command = [sys.executable, "-m", "testing.recipe_mutation", mutant.name]
        run = subprocess.run(
            [*command, "--seeds", str(options.seeds)],
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parents[1],
        )
        found = run.stdout.strip().splitlines()[-1] if not run.returncode else run.stderr[-300:]
        print(f"| {mutant.name} | {found} |", flush=True)


if __name__ == "__main__":
    main()

"""Run worlds of the recipes: python -m partage.testing.recipe_worlds --seeds 50."""

from __future__ import annotations

import argparse
import sys
import time

from partage.testing.recipe_worlds.runner import run_recipe_world
from partage.testing.recipe_worlds.scenario import RECIPES, draw_scenario


def main() -> int:
    """Run worlds, print those that break a rule, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m partage.testing.recipe_worlds")
    parser.add_argument("--seeds", type=int, default=50, help="number of worlds")
    parser.add_argument("--seed-from", type=int, default=0, help="first seed")
    parser.add_argument("--recipe", choices=RECIPES, help="only worlds of one recipe")
    parser.add_argument("--story", action="store_true", help="print the story of each failure")
    options = parser.parse_args()
    began_s, work, broken = time.process_time(), 0, 0
    for seed in range(options.seed_from, options.seed_from + options.seeds):
        changes = {"recipe": options.recipe} if options.recipe else None
        result = run_recipe_world(draw_scenario(seed, changes))
        work += result.work_count
        if result.rule is not None:
            broken += 1
            print(f"seed {seed} ({result.recipe}): {result.rule}: {result.description}", flush=True)
            if options.story:
                print("\n".join([*result.faults, *result.story]))
    took_s = time.process_time() - began_s
    print(f"{options.seeds} worlds, {work} steps; {broken} broke a rule; {took_s:.1f} s of CPU")
    return min(broken, 1)


if __name__ == "__main__":
    sys.exit(main())

"""Plant a bug in the production shells or in a recipe, and run worlds until one finds it.

cd tests && python -m testing.shell_mutation "paused partitions are delivered" --seeds 100

Bugs in the shells are searched in worlds of consumers and of changing topics, in turns, those in
recipes in worlds of their recipe. The world that finds a bug also runs without it: if it breaks a
rule there, too, it proves nothing, and the search goes on.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from lab.mutant import Mutant
from lab.mutation import MutantFinder
from testing.recipe_mutants import RECIPE_MUTANTS
from testing.shell_mutants import DRAWN_SHELL_MUTANTS, LATER_SHELL_MUTANTS, SHELL_MUTANTS

_LISTS: Final = {
    "first": SHELL_MUTANTS,
    "later": LATER_SHELL_MUTANTS,
    "drawn": DRAWN_SHELL_MUTANTS,
    "recipes": RECIPE_MUTANTS,
}
_MUTANTS: Final = {mutant.name: mutant for mutants in _LISTS.values() for mutant in mutants}
assert len(_MUTANTS) == sum(map(len, _LISTS.values())), "two bugs have the same title"
#: A world that takes longer hangs.
_WORLD_S: Final = 60
#: Bytes of memory of a process with a bug, which may loop and allocate.
_MEMORY_MAX_BYTES: Final = 4 << 30


class BrokenWorld(NamedTuple):
    """The number of a world that broke a rule, from 0 on; for recipes it is the seed."""

    seed: int
    rule: str


class SearchFailedError(Exception):
    """The search itself failed, for example because the bug does not match the code."""


def find_bug(mutant: Mutant, seeds: int) -> BrokenWorld | None:
    """Run worlds with a bug until one breaks a rule that it does not break without the bug.

    Raises:
        SearchFailedError: The worlds cannot run.
    """
    first = 0
    while first < seeds:
        found = _run_elsewhere(mutant, range(first, seeds), is_planted=True)
        if found is None:
            return None
        seed = found.seed
        if _run_elsewhere(mutant, range(seed, seed + 1), is_planted=False) is None:
            return found
        print(f"seed {seed} breaks a rule without the bug, too", file=sys.stderr)
        first = seed + 1
    return None


def _run_elsewhere(mutant: Mutant, seeds: range, *, is_planted: bool) -> BrokenWorld | None:
    """Run worlds in another process, because a mutant cannot be removed from this one."""
    options = ["--here", str(seeds.start), "--seeds", str(seeds.stop)]
    command = [sys.executable, "-m", "testing.shell_mutation", mutant.name, *options]
    if not is_planted:
        command.append("--without-bug")
    try:
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parents[1],
            timeout=_WORLD_S * len(seeds),
        )
    except subprocess.TimeoutExpired as error:
        begun = (error.stdout or b"").split()
        return BrokenWorld(int(begun[-1]) if begun else seeds.start, "hangs")
    if ended.returncode:
        raise SearchFailedError(f"{mutant.name}: {ended.stderr[-300:]}")
    seed, _, rule = ended.stdout.strip().rpartition("\n")[2].partition(" ")
    return BrokenWorld(int(seed), rule) if rule else None


def _run_here(mutant: Mutant, seeds: range, *, is_planted: bool) -> BrokenWorld | None:
    """Run worlds in this process until one breaks a rule; print the seed of each one before."""
    if is_planted:
        assert mutant.module not in sys.modules, "the module is already imported"
        sys.meta_path.insert(0, MutantFinder(mutant))
    for seed in seeds:
        print(seed, flush=True)
        rule = _broken_rule(mutant, seed)
        if rule is not None:
            return BrokenWorld(seed, rule)
    return None


def _broken_rule(mutant: Mutant, number: int) -> str | None:
    """Run a world in this process, and return the rule that it breaks."""
    from partage.testing.recipe_worlds import runner as recipe_runner
    from partage.testing.recipe_worlds import scenario as recipe_scenario
    from partage.testing.shell_worlds import runner, scenario
    from partage.testing.topic_worlds.runner import run_topic_world
    from partage.testing.topic_worlds.scenario import draw_topic_scenario

    if mutant in RECIPE_MUTANTS:
        drawn = recipe_scenario.draw_scenario(number, mutant.options)
        return recipe_runner.run_recipe_world(drawn).rule
    if mutant.options:  # of worlds of consumers
        return runner.run_shell_world(scenario.draw_scenario(number, mutant.options)).rule
    seed, is_of_topics = divmod(number, 2)
    if is_of_topics:
        return run_topic_world(draw_topic_scenario(seed)).rule
    return runner.run_shell_world(scenario.draw_scenario(seed)).rule


def _row(mutant: Mutant, seeds: int) -> str:
    try:
        found = find_bug(mutant, seeds)
    except SearchFailedError as error:
        result = f"not found | {error}"
    else:
        result = "not found | " if found is None else f"{found.seed + 1} | `{found.rule}`"
    return f"| {mutant.name} | {result} |"


def main() -> None:
    """Search for one bug, or for all of a list, and print a table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("name", nargs="?", help="title of one bug; default: all")
    parser.add_argument("--list", choices=_LISTS, help="only the bugs of one list")
    parser.add_argument("--seeds", type=int, default=80, help="maximum number of worlds")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes")
    parser.add_argument("--here", type=int, help=argparse.SUPPRESS)  # the first seed
    parser.add_argument("--without-bug", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here is not None:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_MAX_BYTES, resource.RLIM_INFINITY))
        seeds = range(options.here, options.seeds)
        found = _run_here(_MUTANTS[options.name], seeds, is_planted=not options.without_bug)
        print("none" if found is None else f"{found.seed} {found.rule}")
        return
    wanted = _LISTS[options.list] if options.list else tuple(_MUTANTS.values())
    if options.name:
        wanted = (_MUTANTS[options.name],)
    print("| bug | worlds | rule |\n|---|---|---|", flush=True)
    missed = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for row in pool.map(lambda mutant: _row(mutant, options.seeds), wanted):
            missed += "not found" in row
            print(row, flush=True)
    print(f"\n{len(wanted) - missed} of {len(wanted)} found")
    sys.exit(1 if missed > len(wanted) // 20 else 0)


if __name__ == "__main__":
    main()

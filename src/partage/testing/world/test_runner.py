"""One test in a world: after a failure, the smallest plan of faults that still fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from partage.testing.world.world import PartageWorld

_SEARCH_S: Final = 20.0
_STORY_LINES: Final = 40
STORY_FILE: Final = "story.txt"

Test = Callable[..., Coroutine[Any, Any, None]]


def run_world_test(test_id: str, test: Test, arguments: Mapping[str, Any]) -> None:
    """Run a test in the world among its arguments.

    After a failure, the exception gets notes: the smallest plan of faults, the end of the story and
    the command that repeats the world. The whole story is in a file of the test's directory.

    Args:
        test_id: the id with which pytest selects the test.
        test: the coroutine function.
        arguments: its arguments by name, one of which is the world.
    """
    world: PartageWorld = arguments["partage_world"]
    try:
        world.run(lambda: test(**arguments))
    except Exception as error:
        smallest = _smallest_plan(world, error, test, arguments)
        for note in _notes(test_id, world, smallest):
            error.add_note(note)
        raise


def _smallest_plan(
    world: PartageWorld, error: Exception, test: Test, arguments: Mapping[str, Any]
) -> PartageWorld:
    """Leave out one fault after the other; keep each omission with which the test still fails."""
    if set(arguments) != {"partage_world"}:
        return world  # other fixtures may have kept state of the first run
    best = world
    until_s = time.monotonic() + _SEARCH_S
    for index in reversed(range(len(world.plan))):
        if time.monotonic() > until_s:
            break
        tried = best.fresh(best.omitted | {index}, f"without-{index}")
        try:
            tried.run(lambda tried=tried: test(partage_world=tried))  # type: ignore[misc]
        except Exception as again:
            if type(again) is type(error) and len(tried.plan) == len(world.plan):
                best = tried
    return best


def _notes(test_id: str, world: PartageWorld, smallest: PartageWorld) -> list[str]:
    path = world.directory / STORY_FILE
    path.write_text("\n".join(smallest.story) + "\n")
    faults = [str(f) for n, f in enumerate(smallest.plan) if n not in smallest.omitted]
    selected = test_id.rpartition("[")[0] or test_id
    notes = [
        f"The last lines of the story of seed {world.seed} (all of it: {path}):",
        *smallest.story[-_STORY_LINES:],
    ]
    if world.plan:
        notes += [
            f"The smallest plan that fails: {len(faults)} of {len(world.plan)} faults",
            *faults,
        ]
    return [*notes, f"Run again: pytest '{selected}' --world-seed {world.seed}"]

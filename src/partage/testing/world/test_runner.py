"""One test in a world: after a failure, the smallest plan of faults that still fails."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from partage.lab.reduction import reduce_steps
from partage.testing.world.run_page import RecordedRun, describe_error, write_run_page
from partage.testing.world.world import PartageWorld

#: How long a smaller plan is searched.
SEARCH_S: Final = 60.0
_STORY_LINES: Final = 40
STORY_FILE: Final = "story.txt"
PAGE_FILE: Final = "run.html"
_NOT_REPEATED: Final = (
    "Requests and owners are missing: the test did not fail when it was repeated to record them. "
    "Something in it does not depend on the seed alone."
)

Test = Callable[..., Coroutine[Any, Any, None]]


def run_world_test(test_id: str, test: Test, arguments: Mapping[str, Any]) -> None:
    """Run a test in the world among its arguments.

    After a failure, the exception gets notes: the smallest plan of faults, the end of the story and
    the command that repeats the world. Files in the test's directory have the whole story, and a
    page that plays the run.

    Args:
        test_id: the id with which pytest selects the test.
        test: the coroutine function.
        arguments: its arguments by name, one of which is the world.
    """
    world: PartageWorld = arguments["partage_world"]
    if not _is_repeatable(arguments):
        world.record_requests()
    try:
        world.run(lambda: test(**arguments))
    except Exception as error:
        recorded, is_smallest = _repeat(world, error, test, arguments)
        for note in _notes(test_id, world, recorded, error, is_smallest=is_smallest):
            error.add_note(note)
        raise


def _is_repeatable(arguments: Mapping[str, Any]) -> bool:
    """Return True unless other fixtures may have kept state of the first run."""
    return set(arguments) == {"partage_world"}


def _repeat(
    world: PartageWorld, error: Exception, test: Test, arguments: Mapping[str, Any]
) -> tuple[PartageWorld, bool]:
    """Run the world again with the fewest faults, and record its requests.

    Leave out halves of the plan, then quarters and so on; keep each omission with which the test
    still fails.

    Returns:
        The world to show: the smallest one that failed, or the given one; and False if the search
        took too long and was given up.
    """
    if not _is_repeatable(arguments):
        return world, True
    best = world
    until_s = time.monotonic() + SEARCH_S

    def fails(tried: PartageWorld) -> bool:
        tried.record_requests()
        try:
            tried.run(lambda: test(partage_world=tried))
        except Exception as again:
            return type(again) is type(error) and len(tried.plan) == len(world.plan)
        return False

    every = range(len(world.plan))
    numbers = itertools.count(1)

    def still_fails(kept: Sequence[int]) -> bool:
        nonlocal best
        if time.monotonic() > until_s:
            raise TimeoutError
        tried = world.fresh(frozenset(every).difference(kept), f"fewer-{next(numbers)}")
        if not fails(tried):
            return False
        best = tried
        return True

    is_complete = True
    try:
        reduce_steps(every, still_fails)
    except TimeoutError:
        is_complete = False
    if best is world:
        again = world.fresh(frozenset(), "recorded")
        if fails(again):
            best = again
    return best, is_complete


def _notes(
    test_id: str,
    world: PartageWorld,
    recorded: PartageWorld,
    error: Exception,
    *,
    is_smallest: bool,
) -> list[str]:
    path, page = world.directory / STORY_FILE, world.directory / PAGE_FILE
    path.write_text("\n".join(recorded.story) + "\n")
    faults = [str(f) for n, f in enumerate(recorded.plan) if n not in recorded.omitted]
    selected = test_id.rpartition("[")[0] or test_id
    command = f"pytest '{selected}' --world-seed {world.seed}"
    write_run_page(_recorded_run(selected, recorded, error, command, faults), page)
    notes = [
        f"The last lines of the story of seed {world.seed} (all of it: {path}):",
        *recorded.story[-_STORY_LINES:],
        f"The page that plays the run: {page}",
    ]
    if world.plan:
        plan = "smallest plan that fails" if is_smallest else "smallest plan found"
        notes += [f"The {plan}: {len(faults)} of {len(world.plan)} faults", *faults]
        if not is_smallest:
            notes.append(f"The search was given up after {SEARCH_S:g} s.")
    return [*notes, f"Run again: {command}"]


def _recorded_run(
    test_id: str, world: PartageWorld, error: Exception, command: str, faults: list[str]
) -> RecordedRun:
    recorder = world.recorder
    return RecordedRun(
        title=test_id,
        seed=world.seed,
        error=describe_error(error),
        command=command,
        faults=faults,
        faults_drawn=len(world.plan),
        events=world.events,
        requests=recorder.requests if recorder is not None else (),
        owned=recorder.owned_partitions() if recorder is not None else (),
        failed_at_s=world.failed_at_s or world.elapsed_s,
        remark="" if recorder is not None else _NOT_REPEATED,
    )

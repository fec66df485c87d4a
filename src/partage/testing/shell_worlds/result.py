"""The result of one world of the production shells, of any kind."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import msgspec

from partage.testing.world.errors import InvariantError, WaitTimeoutError
from partage.testing.world.world import PartageWorld


class ShellResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one world.

    Attributes:
        seed: Its seed.
        rule: The broken rule; None if none was broken.
        description: How it was broken.
        records: The number of records that were written.
        reads: The number of records that were read in all groups; in worlds of recipes, that of the
            steps of work.
        faults: The drawn faults.
        story: What happened, a line for each event.
    """

    seed: int
    rule: str | None
    description: str
    records: int
    reads: int
    faults: list[str]
    story: list[str]


class WorldVerdict(NamedTuple):
    """The rule that a world broke, None if it broke none, and how."""

    rule: str | None
    description: str


def judge_world(world: PartageWorld, test: Callable[[], Coroutine[Any, Any, None]]) -> WorldVerdict:
    """Run a world to its end, and return the rule that it broke."""
    try:
        world.run(test)
    except InvariantError as error:
        rule, _, description = str(error).partition(": ")
        return WorldVerdict(rule, description)
    except WaitTimeoutError as error:
        return WorldVerdict("liveness", str(error))
    except Exception as error:  # of a client or of the broker: nothing else runs
        return WorldVerdict("failure", f"{type(error).__name__}: {error}")
    return WorldVerdict(None, "")

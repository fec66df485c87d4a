"""Failures of appends to the logs of group shards."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from partage.lab.world import World

_CHANGES: Final = 4
_CHANGES_WITHIN_MS: Final = 1_000
_SLOW_MS: Final = 3_000


def appends_fail(world: World, rng: Random) -> bool:
    """Let appends to the logs of group shards fail at random for a time."""
    world.failing_appends_until_ms = world.now_ms + rng.choice((500, 2_000, 4_000))
    return True


def epochs_are_lost(world: World, rng: Random) -> bool:
    """Lose the next epochs of the group with the consumer protocol, while its members change their
    subscriptions and targets are computed slowly.

    So two states of the group may have the same epoch, and a target may belong to the lost one.
    """
    members = world.live_consumer_members
    if not members:
        return False
    world.lost_epochs = rng.choice((1, 2, 3, 4))
    world.slow_actions_until_ms = world.now_ms + _SLOW_MS
    for _ in range(_CHANGES):
        member, selection = rng.choice(members), world.draw_selection(rng)
        member.call_later(rng.randrange(_CHANGES_WITHIN_MS), partial(member.subscribe, selection))
    return True


FAULTS: Final[tuple[Callable[[World, Random], bool], ...]] = (
    appends_fail,
    epochs_are_lost,
)

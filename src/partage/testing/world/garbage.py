"""Garbage collection around worlds.

A world leaves cycles of many objects. While it runs, the objects of the program are frozen, and
only the loop collects, at repeatable times. So the automatic collections of old objects, which free
what a world has left, hardly ever begin in a program that runs many worlds.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: Collect all objects if former worlds left this share of them, as Python does.
_LEFT_SHARE: Final = 0.25
#: Fewer objects than this need no collection; counting all objects takes time, too.
_LEFT_MIN: Final = 50_000


class WorldGarbage:
    """Garbage collection for the worlds of one process."""

    def __init__(self) -> None:
        self._left = 0

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze the objects of the program during a world; before, free those of former worlds.

        Afterwards nothing is frozen, also if the program has frozen objects itself: Python cannot
        unfreeze only some of them.
        """
        collects = gc.isenabled()
        gc.disable()
        try:
            self._freeze()
            yield
        finally:
            left = len(gc.get_objects())
            gc.unfreeze()
            if collects:
                gc.enable()
            self._left += left

    def _freeze(self) -> None:
        gc.collect(1)  # so that later collections of young objects find only those of the world
        gc.freeze()  # full collections find only objects of the world, too, and take less time
        if self._left > _LEFT_MIN and self._left > _LEFT_SHARE * gc.get_freeze_count():
            gc.unfreeze()
            _collect_quietly()
            gc.freeze()
            self._left = 0


def _collect_quietly() -> None:
    """Collect all objects without warnings: killed processes leave connections open."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


#: The garbage of the worlds of this process.
WORLD_GARBAGE: Final = WorldGarbage()

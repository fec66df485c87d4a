"""The kinds of worlds of the production shells."""

from __future__ import annotations

from enum import StrEnum


class WorldKind(StrEnum):
    """A kind of worlds.

    Attributes:
        CONSUMERS: Consumers with strict rules about requests, delays and callbacks.
        TOPICS: Records are deleted, topics are created again, and transactions end.
        RECIPES: Elections, pools, single writers, processors and memberships.
    """

    CONSUMERS = "consumers"
    TOPICS = "topics"
    RECIPES = "recipes"

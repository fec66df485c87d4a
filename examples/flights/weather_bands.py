"""Bands of visibility and wind speed."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

#: Miles; a station reports 10 if the visibility is at least 10 miles.
VISIBILITY_EDGES: Final = (0.5, 1.0, 3.0, 6.0, 10.0)
VISIBILITY_NAMES: Final = ("under ½", "½ to 1", "1 to 3", "3 to 6", "6 to 10", "10 and more")
#: Miles per hour.
WIND_EDGES: Final = (5.0, 10.0, 15.0, 20.0, 25.0)
WIND_NAMES: Final = ("0 to 5", "5 to 10", "10 to 15", "15 to 20", "20 to 25", "25 and more")


def band(value: float | None, edges: tuple[float, ...]) -> int | None:
    """Return the number of a band: 0 is below the first edge; an edge belongs to the upper band."""
    return None if value is None else bisect_right(edges, value)

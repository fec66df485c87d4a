"""Ticks of axes."""

from __future__ import annotations

from typing import Final

from partage.web.formats import to_datetime

_STEPS_MS: Final = tuple(
    unit * number
    for unit, numbers in (
        (1_000, (1, 2, 5, 10, 15, 30)),
        (60_000, (1, 2, 5, 10, 15, 30)),
        (3_600_000, (1, 2, 3, 6, 12)),
        (86_400_000, (1, 2, 7, 30, 365)),
    )
    for number in numbers
)

_LEADS: Final = (4, 6, 8, 10, 12, 16, 20, 24, 32)

#: Width of a letter of a chart's texts, in units of the chart.
LETTER_WIDTH: Final = 6.6


def time_ticks(from_ms: int, to_ms: int, count_max: int) -> list[tuple[int, str]]:
    """Return at most ``count_max`` round times between two times, with labels in UTC."""
    step = next((s for s in _STEPS_MS if (to_ms - from_ms) <= s * count_max), _STEPS_MS[-1])
    form = "%H:%M:%S" if step < 60_000 else "%H:%M" if step < 86_400_000 else "%d %b"
    first = -(-from_ms // step) * step
    ticks = range(first, to_ms + 1, step)[:count_max]
    return [(at, to_datetime(at).strftime(form)) for at in ticks]


def label_x(label: str, x: float, width: float) -> float:
    """Return the centre of a label near ``x`` that lies within a chart of this width."""
    half = LETTER_WIDTH * len(label) / 2
    return max(min(x, width - half), half)


def round_up(value: int) -> int:
    """Return the smallest number >= ``value`` whose quarters are round: 4, 8, 12, 60, 600."""
    size = 1
    while True:
        for lead in _LEADS:
            if lead * size >= value and lead * size % 4 == 0:
                return lead * size
        size *= 10


def short_number(value: int) -> str:
    """Return a short text for a number: ``950``, ``1.5k``, ``20M``."""
    for size, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= size:
            return f"{value / size:.1f}".removesuffix(".0") + unit
    return str(value)

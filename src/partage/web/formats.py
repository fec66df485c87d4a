"""Text forms of times, durations and numbers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlencode

ABSENT: Final = "–"
_UNITS: Final = (("day", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def to_datetime(at_ms: int) -> datetime:
    """Return a datetime for ms since the epoch, limited to the valid range."""
    return datetime.fromtimestamp(min(max(at_ms, 0), 253_402_300_799_000) / 1000, UTC)


def clock(at_ms: int) -> str:
    """Return the time of day in UTC: ``08:10:02``."""
    return to_datetime(at_ms).strftime("%H:%M:%S")


def timestamp(at_ms: int) -> str:
    """Return date and time in UTC: ``2026-11-22 08:10:02 UTC``."""
    return to_datetime(at_ms).strftime("%Y-%m-%d %H:%M:%S UTC")


def iso(at_ms: int) -> str:
    """Return the value for an HTML ``datetime`` attribute."""
    return to_datetime(at_ms).isoformat(timespec="seconds")


def age(ms: int) -> str:
    """Return an approximate age: ``14 s``, ``3 min``, ``2 h 5 min``."""
    ms = max(ms, 0)
    for index, (unit, length) in enumerate(_UNITS):
        if ms >= length:
            number, rest = divmod(ms, length)
            words = f"{number:,} {unit}{'s' if unit == 'day' and number > 1 else ''}"
            if index < 2 and rest // _UNITS[index + 1][1]:
                words += f" {rest // _UNITS[index + 1][1]} {_UNITS[index + 1][0]}"
            return words
    return "0 s"


def duration(ms: int | None) -> str:
    """Return a duration: ``120 ms``, ``3.2 s``, ``2 min 5 s``."""
    if ms is None:
        return ABSENT
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    minutes, rest = divmod(ms // 1000, 60)
    return f"{minutes:,} min {rest} s" if minutes < 60 else age(ms)


def number(value: int | None) -> str:
    """Return a number with separators: ``1,204``."""
    return ABSENT if value is None else f"{value:,}"


def count(value: int, noun: str) -> str:
    """Return a number with its noun: ``1 group``, ``1,204 groups``."""
    return f"{value:,} {noun}{'' if value == 1 else 's'}"


def group_url(name: str, **query: str) -> str:
    """Return the URL of a group's page.

    Browsers resolve ``.`` and ``..`` in a path, even if they are escaped, so these ids go into the
    query.
    """
    if name in ("", ".", ".."):
        return f"/groups/?{urlencode({'id': name, **query})}"
    return f"/groups/{quote(name, safe='')}" + (f"?{urlencode(query)}" if query else "")

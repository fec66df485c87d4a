"""Requests that are repeated until a broker, which is another process, answers finally."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from polled_conditions import eventually

Answer = TypeVar("Answer")


def repeat(ask: Callable[[], Answer], is_final: Callable[[Answer], object]) -> Answer:
    """Ask until the answer is final, or for a minute; return the last answer."""
    last: list[Answer] = []

    def is_last_final() -> object:
        last[:] = [ask()]
        return is_final(last[0])

    with suppress(AssertionError):  # the caller compares the answer
        eventually(is_last_final)
    return last[0]

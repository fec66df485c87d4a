"""Calls of a processor's tasks in blocking code; `async_support` has the asyncio ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

_T = TypeVar("_T")


def call_task(call: Callable[..., Any], *args: Any) -> None:
    """Call a method of a task.

    Raises:
        TypeError: The method returned an awaitable, which would silently do nothing.
    """
    result = call(*args)
    if result is not None and inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(
            "the task has coroutine functions, which only partage.recipes.Processor can await"
        )


def run_each(function: Callable[[_T], None], items: Sequence[_T]) -> None:
    """Call a function for all items in turn, even if one call raises.

    Raises:
        Exception: The first error, after all calls have ended.
    """
    first: Exception | None = None
    for item in items:
        try:
            function(item)
        except Exception as error:
            first = first or error
    if first is not None:
        raise first

"""Calls of a processor's tasks on asyncio; `sync_support` has the blocking ones."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

_T = TypeVar("_T")


async def call_task(call: Callable[..., Any], *args: Any) -> None:
    """Call a method of a task, and await its result if it is a coroutine function."""
    result = call(*args)
    if result is not None and inspect.isawaitable(result):
        await result


async def run_each(function: Callable[[_T], Awaitable[None]], items: Sequence[_T]) -> None:
    """Call a function for all items concurrently, even if one call raises.

    Raises:
        Exception: The first error, after all calls have ended.
    """
    if len(items) == 1:
        await function(items[0])
        return
    for error in await asyncio.gather(*map(function, items), return_exceptions=True):
        if error is not None:
            raise error

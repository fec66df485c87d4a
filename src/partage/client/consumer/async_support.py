"""Waits and listener calls of the asyncio consumer; `sync_support` has the blocking ones."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
from typing import ParamSpec, TypeVar

from partage.client.consumer.base_consumer import BaseConsumer
from partage.client.consumer.deadline import Deadline
from partage.client.consumer.listener import RebalanceListener
from partage.member.outcome import ListenerCallback
from partage.model.topic_partition import TopicPartition

_P = ParamSpec("_P")
_T = TypeVar("_T")


class AsyncConsumerBase(BaseConsumer):
    """Base of the asyncio consumer; it accepts listeners with coroutine functions."""


async def result_of(future: Future[_T]) -> _T:
    """Return the result of work on the client's event loop."""
    return await asyncio.wrap_future(future)


async def result_by(future: Future[_T], deadline: Deadline) -> _T:
    """Return the result of work; raise TimeoutError if there is none by the deadline."""
    async with asyncio.timeout(deadline.remaining_s):
        return await asyncio.wrap_future(future)


async def run_blocking(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Run a function that blocks, without blocking the caller's event loop."""
    return await asyncio.to_thread(function, *args, **kwargs)


async def wait_for_change(waiter: Future[None], deadline: Deadline) -> None:
    """Wait for a change of the engine, or until the deadline."""
    with suppress(TimeoutError):
        async with asyncio.timeout(deadline.remaining_s):
            await asyncio.wrap_future(waiter)


async def call_listener(
    listener: RebalanceListener,
    callback: ListenerCallback,
    partitions: Collection[TopicPartition],
) -> None:
    """Run a listener callback, and await its result if it is a coroutine function."""
    result = listener.call(callback, partitions)
    if inspect.isawaitable(result):
        await result

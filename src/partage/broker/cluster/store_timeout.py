"""Timeouts of client requests that wait for ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.store.zk_schema import ForeignDataError
from partage.store.zookeeper import StoreError

T = TypeVar("T")

CHANGE_TIMEOUT_S: Final = 20.0


async def with_timeout(
    change: Callable[[], Awaitable[T]], patience_s: float = CHANGE_TIMEOUT_S
) -> T | Refusal:
    """Await a change; return REQUEST_TIMED_OUT if ZooKeeper does not answer or refuses."""
    try:
        async with asyncio.timeout(patience_s):
            return await change()
    except TimeoutError:
        return Refusal(ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper did not answer in time")
    except (StoreError, ForeignDataError) as error:
        return Refusal(ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper: {error}")

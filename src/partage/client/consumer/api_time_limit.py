"""The time limit of a call that a consumer's user awaits."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from partage.client.consumer.errors import ApiTimeoutError


class ApiTimeLimit:
    """A context that cancels its body at the end of ``default_api_timeout_ms``.

    Retries begin no attempt after that time, but an attempt may wait longer for its responses.

    Args:
        what: The operation, as the subject of an error.
        timeout_ms: The longest time, in ms.

    Raises:
        ApiTimeoutError: The time has ended.
    """

    def __init__(self, what: str, timeout_ms: int) -> None:
        self._what = what
        self._timeout_ms = timeout_ms
        self._last_error: Exception | None = None
        self._limit = asyncio.timeout(timeout_ms / 1000)

    def note(self, error: Exception) -> None:
        """Note the error of an attempt, which the final error will name."""
        self._last_error = error

    async def __aenter__(self) -> Self:
        await self._limit.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError:
            raise ApiTimeoutError(self._what, self._timeout_ms, self._last_error) from None

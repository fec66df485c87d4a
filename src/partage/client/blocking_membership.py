"""The hand-written half of the blocking membership: the thread with its event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from partage.client.group.errors import NotAMemberError
from partage.client.loop_thread import LoopThread, warn_unclosed
from partage.client.membership import Membership
from partage.model.arguments import check_optional_timeout_ms, check_timeout_ms

T = TypeVar("T")


class BlockingMembership:
    """Runs a `partage.Membership` on an event loop in a thread; a context manager."""

    _member: Membership
    _thread: LoopThread
    _is_closed = False

    def _own(self, member: Membership) -> None:
        self._member = member
        self._thread = LoopThread("partage-membership", cleanup=member._clean_up)
        self._thread.call(member.start())

    def __del__(self) -> None:
        thread: LoopThread | None = getattr(self, "_thread", None)  # None in a failed constructor
        if thread is not None and not self._is_closed and thread.is_of_this_process:
            thread.abandon()
            warn_unclosed(self, "Membership")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self, timeout_ms: int = 30_000) -> None:
        """Leave the group after the listener has finished, and stop the thread. A second call does
        nothing.

        Raises:
            CalledFromLoopError: Called in a listener, which would be a deadlock.
        """
        check_timeout_ms(timeout_ms)
        self._thread.check_caller()
        if not self._is_closed:
            self._is_closed = True
            try:
                self._thread.call(self._member.close(timeout_ms))
            finally:  # Also if Ctrl-C interrupted the leave
                self._thread.stop()

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]], timeout_ms: int | None = None) -> T:
        """Run a coroutine function on the loop and return its result.

        Args:
            work: The coroutine function.
            timeout_ms: The longest time to wait; None for no limit.

        Raises:
            TimeoutError: The result did not arrive within ``timeout_ms``.
            NotAMemberError: The membership is closed.
        """
        check_optional_timeout_ms(timeout_ms)
        if self._is_closed:
            raise NotAMemberError(self._member.settings.group_id)

        async def within() -> T:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                return await work()

        return self._thread.call(within())

    def _on_loop(self, work: Callable[[], None]) -> None:
        async def done() -> None:
            work()

        self._call(done)

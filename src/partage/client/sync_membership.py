"""`Membership` for code without asyncio, on an event loop in a separate thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, Unpack

from partage.client.addresses import BootstrapServers
from partage.client.config import MembershipConfig
from partage.client.group.errors import NotAMemberError
from partage.client.group.membership_protocol import (
    AssignFunction,
    MemberAssignment,
    MembershipListener,
)
from partage.client.loop_thread import LoopThread, warn_unclosed
from partage.client.membership import Membership as AsyncMembership
from partage.model.arguments import check_optional_timeout_ms, check_timeout_ms


class Membership:
    """The blocking form of `partage.Membership`; it starts to join when it is created.

    See there for arguments and exceptions. Listeners are called in the membership's thread. It is
    thread-safe::

        with Membership("localhost:9092", "crew", "crew", {"url": url}) as member:
            print(member.assignment().state)
    """

    def __init__(
        self,
        bootstrap_servers: BootstrapServers,
        group_id: str,
        protocol_type: str,
        metadata: Any,
        *,
        protocol: str = "v0",
        assign: AssignFunction | None = None,
        listener: MembershipListener | None = None,
        rebalance_timeout_ms: int = 60_000,
        **options: Unpack[MembershipConfig],
    ) -> None:
        self._member = AsyncMembership(
            bootstrap_servers,
            group_id,
            protocol_type,
            metadata,
            protocol=protocol,
            assign=assign,
            listener=listener,
            rebalance_timeout_ms=rebalance_timeout_ms,
            **options,
        )
        self._is_closed = False
        self._thread = LoopThread("partage-membership", cleanup=self._member._clean_up)
        self._thread.call(self._member.start())

    def __del__(self) -> None:
        thread: LoopThread | None = getattr(self, "_thread", None)  # None in a failed constructor
        if thread is not None and not self._is_closed and thread.is_of_this_process:
            thread.abandon()
            warn_unclosed(self, "Membership")

    @property
    def current_assignment(self) -> MemberAssignment | None:
        """Assignment of this generation; during a rebalance the last one, None if there is none."""
        return self._member.current_assignment

    @property
    def member_id(self) -> str:
        """Member id, empty before the coordinator has assigned one."""
        return self._member.member_id

    @property
    def exclusive_until_ms(self) -> int | None:
        """See `partage.Membership.exclusive_until_ms`."""
        return self._member.exclusive_until_ms

    def assignment(self, after: int = -1, timeout_ms: int | None = None) -> MemberAssignment:
        """Wait for an assignment in a generation later than ``after``.

        Args:
            after: A generation; -1 for any assignment.
            timeout_ms: Longest time to wait; None for no limit.

        Raises:
            TimeoutError: None arrived within ``timeout_ms``.
            ClientError: Like `partage.Membership.assignment`.
        """

        check_optional_timeout_ms(timeout_ms)
        self._check()

        async def within() -> MemberAssignment:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                return await self._member.assignment(after)

        return self._thread.call(within())

    def update(self, metadata: Any, *, rejoins: bool = True) -> None:
        """Replace the metadata of this member, see `partage.Membership.update`."""
        self._on_loop(lambda: self._member.update(metadata, rejoins=rejoins))

    def rejoin(self, reason: str) -> None:
        """Request a rebalance."""
        self._on_loop(lambda: self._member.rejoin(reason))

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

    def _on_loop(self, work: Callable[[], None]) -> None:
        self._check()

        async def done() -> None:
            work()

        self._thread.call(done())

    def _check(self) -> None:
        if self._is_closed:
            raise NotAMemberError(self._member.settings.group_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

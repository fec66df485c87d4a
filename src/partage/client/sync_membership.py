"""`Membership` for code without asyncio, on an event loop in a separate thread."""

# Generated from membership.py by tools/generate_sync.py; do not edit.

from __future__ import annotations

from typing import Any, Unpack

from partage.client.addresses import BootstrapServers
from partage.client.blocking_membership import BlockingMembership
from partage.client.config import MembershipConfig
from partage.client.group.membership_protocol import (
    AssignFunction,
    MemberAssignment,
    MembershipListener,
)
from partage.client.membership import Membership as AsyncMembership


class Membership(BlockingMembership):
    """A member of a group of any protocol type, for code without asyncio.

    It starts to join when it is created, on an event loop in a thread. Any thread may use it.

    The leader, whichever member that is, calls its ``assign`` function with the members of the
    generation. Without one, every member gets the metadata of all members by member id::

        with Membership("localhost:9092", "crew", "crew", {"url": url}) as member:
            assignment = member.assignment()
            print(assignment.generation, assignment.is_leader, assignment.state)

    Args:
        bootstrap_servers: HOST:PORT, several as a list or separated by commas.
        group_id: The group.
        protocol_type: The protocol type of the group; equal in all members.
        metadata: The data about this member for the leader: any JSON value, or bytes.
        protocol: The name of the protocol.
        assign: Returns the ``state`` of each member; JSON values, or bytes if ``metadata`` is
            bytes. It runs in a thread.
        listener: Called in order, in the thread of the membership.
        rebalance_timeout_ms: The time for which the group waits for this member to rejoin.
        options: Kafka's settings in snake case; see `partage.MembershipConfig`.

    Raises:
        InvalidArgumentError: An argument or an option is invalid or does not exist, or ``metadata``
            is bytes without ``assign``.
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
        rebalance_timeout_ms: int = 60000,
        **options: Unpack[MembershipConfig],
    ) -> None:
        self._own(
            AsyncMembership(
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
        )

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
        """Time until which no other member can have this member's place; None if it has no place.

        In milliseconds on the clock ``time.CLOCK_BOOTTIME``, or ``time.CLOCK_MONOTONIC`` where that
        does not exist. It does not hold for static members: a member with the same instance id
        takes the place at once.
        """
        return self._member.exclusive_until_ms

    @property
    def metadata(self) -> Any:
        """Data about this member that the leader gets at the next join."""
        return self._member.metadata

    def assignment(self, after: int = -1, timeout_ms: int | None = None) -> MemberAssignment:
        """Wait for an assignment in a generation later than ``after``.

        Args:
            after: A generation; -1 for any assignment.
            timeout_ms: The longest time to wait; None for no limit.

        Raises:
            TimeoutError: None arrived within ``timeout_ms``.
            MemberFailedError: A fatal error removed the member from the group.
            AssignmentFailedError: The leader could not assign; raised once, and the group tries
                again.
            ClientError: No broker answers or accepts the client. Raised for as long as that holds,
                while the member retries.
            NotAMemberError: The membership is closed.
        """
        return self._call(lambda: self._member.assignment(after), timeout_ms)

    def update(self, metadata: Any, *, rejoins: bool = True) -> None:
        """Replace the metadata of this member.

        Args:
            metadata: The new data for the leader: any JSON value, or bytes.
            rejoins: True to send it now, with a rebalance; False to send it at the next join.

        Raises:
            InvalidArgumentError: The metadata has the wrong type.
            NotAMemberError: The membership is closed, and ``rejoins`` is True.
        """
        self._on_loop(lambda: self._member.update(metadata, rejoins=rejoins))

    def rejoin(self, reason: str) -> None:
        """Request a rebalance. The coordinator logs ``reason``."""
        self._on_loop(lambda: self._member.rejoin(reason))

"""Group membership for any purpose: `Membership`.

Kafka's coordinator does not interpret metadata and assignments. So its groups serve every
application that needs a list of members and a leader that decides: worker pools, elections and
others.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Final, Self, Unpack

from partage.client.addresses import BootstrapServers, parse_bootstrap_servers
from partage.client.cluster import Cluster
from partage.client.config import MembershipConfig
from partage.client.consumer.options import ConsumerOptions, parse_options
from partage.client.group.coordinator_client import CoordinatorClient
from partage.client.group.driver import Driver, now_ms
from partage.client.group.errors import NotAMemberError
from partage.client.group.lease_tracker import LeaseTracker
from partage.client.group.membership_protocol import (
    AssignFunction,
    MemberAssignment,
    MembershipListener,
    MembershipProtocol,
    MetadataCodec,
    broadcast_metadata,
)
from partage.client.loop_thread import warn_unclosed
from partage.client.options import ClientOptions
from partage.member.events import LeaveRequested, RejoinRequested, StartRequested
from partage.member.settings import MemberSettings
from partage.member.state_machine import MembershipStateMachine as Core
from partage.model.arguments import (
    INT32_MAX,
    InvalidArgumentError,
    check_function,
    check_instance,
    check_int,
    check_text,
    check_timeout_ms,
)


class Membership:
    """A member of a group of any protocol type, on asyncio, on the running loop.

    The leader, whichever member that is, calls its ``assign`` function with the members of the
    generation. Without one, every member gets the metadata of all members by member id::

        async with Membership("localhost:9092", "crew", "crew", {"url": url}) as member:
            assignment = await member.assignment()
            print(assignment.generation, assignment.is_leader, assignment.state)

    A loop that is blocked for longer than the session timeout loses its membership.

    Args:
        bootstrap_servers: HOST:PORT, several as a list or separated by commas.
        group_id: The group.
        protocol_type: The protocol type of the group; equal in all members.
        metadata: The data about this member for the leader: any JSON value, or bytes.
        protocol: The name of the protocol.
        assign: Returns the ``state`` of each member; JSON values, or bytes if ``metadata`` is
            bytes. It runs in a thread.
        listener: Called in order, see `MembershipListener`.
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
        rebalance_timeout_ms: int = 60_000,
        **options: Unpack[MembershipConfig],
    ) -> None:
        servers = parse_bootstrap_servers(bootstrap_servers)
        check_text("group_id", group_id)
        check_text("protocol_type", protocol_type)
        check_text("protocol", protocol)
        check_int("rebalance_timeout_ms", rebalance_timeout_ms, least=1, most=INT32_MAX, unit="ms")
        if assign is not None:
            check_function("assign", assign, "the GenerationMembers")
        elif isinstance(metadata, bytes):
            raise InvalidArgumentError(
                "metadata of type bytes needs an assign function that returns bytes for each member"
            )
        if listener is not None:
            check_instance("listener", listener, MembershipListener)
        of_member, client = _options(options)
        self.settings = MemberSettings(
            group_id=group_id,
            protocol_type=protocol_type,
            instance_id=of_member.group_instance_id,
            session_timeout_ms=of_member.session_timeout_ms,
            heartbeat_interval_ms=of_member.heartbeat_interval_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            request_timeout_ms=client.request_timeout_ms,
            retry_backoff_ms=client.retries.backoff_ms,
            retry_backoff_max_ms=client.retries.backoff_max_ms,
        )
        self._cluster = Cluster(servers, client)
        core = Core(self.settings)
        self._core = core
        self._leased = LeaseTracker(core, self.settings)
        self._protocol = MembershipProtocol(
            core,
            MetadataCodec(is_raw=isinstance(metadata, bytes)),
            protocol,
            metadata,
            assign or broadcast_metadata,
            listener or MembershipListener(),
        )
        self._driver: Driver | None = None
        self._is_closed = False

    #: The name in the warning about an unclosed membership; recipes set their own name.
    _name_in_warning = "Membership"

    def __del__(self) -> None:
        if getattr(self, "_driver", None) is not None and not self._is_closed:
            self._abandon()
            warn_unclosed(self, self._name_in_warning)

    # Start and close

    async def start(self) -> None:
        """Start to join; `assignment` waits for the result."""
        if self._driver is not None or self._is_closed:
            return
        coordinator = CoordinatorClient(self._cluster, self.settings.group_id)
        self._driver = Driver(
            self._leased,
            self.settings,
            coordinator,
            self._protocol.perform,
            self._protocol.on_event_handled,
            self._protocol.on_lookup_error,
        )
        self._protocol.attach(self._driver)
        self._driver.handle(StartRequested(at_ms=now_ms()))

    async def close(self, timeout_ms: int = 30_000) -> None:
        """Leave the group after the listener has finished. A second call does nothing.

        A static member does not send LeaveGroup, so it keeps its place if it returns in time
        (KIP-345).

        Raises:
            RuntimeError: A listener awaits it, which would be a deadlock.
        """
        check_timeout_ms(timeout_ms)
        if self._protocol.is_called_from_listener:
            raise RuntimeError("close() waits for the listener, so a listener must not await it")
        driver, self._driver = self._driver, None
        self._is_closed = True
        if driver is None:
            self._cluster.close()
            return
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                if not self._protocol.has_left:
                    driver.handle(
                        LeaveRequested(at_ms=now_ms(), reason="the membership was closed")
                    )
                    await self._protocol.wait_left()
                await self._protocol.wait_listener_idle()
        except TimeoutError:
            pass  # The coordinator removes the member after the session timeout
        finally:
            driver.close()
            self._cluster.close()
            self._protocol.wake()

    def _abandon(self) -> None:
        """Stop without a LeaveGroup request and without waiting; any thread may call it."""
        driver, self._driver = self._driver, None
        self._is_closed = True
        if driver is not None:
            driver.abandon(self._cluster.close)

    async def _clean_up(self) -> None:
        self._abandon()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # State

    @property
    def current_assignment(self) -> MemberAssignment | None:
        """Assignment of this generation; during a rebalance the last one, None if there is none."""
        return self._protocol.assignment

    @property
    def member_id(self) -> str:
        """Member id, empty before the coordinator has assigned one."""
        return self._core.member_id

    @property
    def exclusive_until_ms(self) -> int | None:
        """Time until which no other member can have this member's place; None if it has no place.

        In milliseconds on the clock ``time.CLOCK_BOOTTIME``, or ``time.CLOCK_MONOTONIC`` where that
        does not exist. It does not hold for static members: a member with the same instance id
        takes the place at once.
        """
        return self._leased.expires_ms

    @property
    def metadata(self) -> Any:
        """Data about this member that the leader gets at the next join."""
        return self._protocol.metadata

    async def assignment(self, after: int = -1) -> MemberAssignment:
        """Wait for an assignment in a generation later than ``after``.

        Raises:
            MemberFailedError: A fatal error removed the member from the group.
            AssignmentFailedError: The leader could not assign; raised once, and the group tries
                again.
            ClientError: No broker answers or accepts the client. Raised for as long as that holds,
                while the member retries.
            NotAMemberError: The membership is closed.
        """
        check_int("after", after, least=-1)
        while True:
            self._check()
            self._protocol.raise_errors()
            found = self._protocol.assignment
            if found is not None and found.generation > after:
                return found
            await self._protocol.wait_changed()

    async def assignments(self) -> AsyncIterator[MemberAssignment]:
        """Yield each new assignment, without end. Some may be skipped if several arrive at once."""
        last = -1
        while True:
            assignment = await self.assignment(after=last)
            last = assignment.generation
            yield assignment

    # Requests

    def update(self, metadata: Any, *, rejoins: bool = True) -> None:
        """Replace the metadata of this member.

        Args:
            metadata: The new data for the leader: any JSON value, or bytes.
            rejoins: True to send it now, with a rebalance; False to send it at the next join.

        Raises:
            InvalidArgumentError: The metadata has the wrong type.
            NotAMemberError: The membership is closed, and ``rejoins`` is True.
        """
        self._protocol.set_metadata(metadata)
        if rejoins:
            self.rejoin("the member's metadata has changed")

    def rejoin(self, reason: str) -> None:
        """Request a rebalance. The coordinator logs ``reason``."""
        check_instance("reason", reason, str)
        self._check()
        assert self._driver is not None
        self._driver.handle(RejoinRequested(at_ms=now_ms(), reason=reason))

    def _check(self) -> None:
        if self._driver is None or self._is_closed:
            raise NotAMemberError(self.settings.group_id)


#: Options of consumers that no membership can have.
_CLASSIC_ONLY: Final = {
    "group_protocol": "the leader of its group assigns, which needs the classic protocol",
    "group_remote_assignor": "the leader of its group assigns, not the broker",
}


def _options(given: Mapping[str, Any]) -> tuple[ConsumerOptions, ClientOptions]:
    """Split options into those of a member and of a client; reject consumer options."""
    known = MembershipConfig.__annotations__
    for name in given:
        if name in _CLASSIC_ONLY:
            raise InvalidArgumentError(
                f"a membership does not accept {name}: {_CLASSIC_ONLY[name]}"
            )
        if name not in known:
            near = difflib.get_close_matches(name, [*known, "rebalance_timeout_ms"], n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InvalidArgumentError(f"a membership has no option {name!r}{hint}")
    return parse_options(given)

"""Being in a group for whatever purpose: `Membership`.

Kafka's coordinator looks into nobody's metadata or assignment, so its groups serve everything that
needs to know who is there and one of them to decide: pools of workers, elections, anything.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Final, Self

from partage.client.cluster import Cluster
from partage.client.consumer.options import ConsumerOptions, option_names, parse_options
from partage.client.group.coordinator_client import CoordinatorClient
from partage.client.group.driver import Driver, now_ms
from partage.client.group.errors import GroupError
from partage.client.group.lease_tracker import LeaseTracker
from partage.client.group.membership_protocol import (
    AssignFunction,
    GenerationMember,
    GenerationMembers,
    MemberAssignment,
    MembershipListener,
    MembershipProtocol,
    MetadataCodec,
    broadcast_metadata,
)
from partage.client.options import ClientOptions
from partage.member.events import LeaveRequested, RejoinRequested, StartRequested
from partage.member.settings import MemberSettings
from partage.member.state_machine import MembershipStateMachine as Core

__all__ = [
    "GenerationMember",
    "GenerationMembers",
    "MemberAssignment",
    "Membership",
    "MembershipListener",
    "NotAMemberError",
    "broadcast_metadata",
]

_MEMBER_OPTIONS: Final = ("session_timeout_ms", "heartbeat_interval_ms", "group_instance_id")


class NotAMemberError(GroupError):
    """The membership is closed, or was not begun."""

    def __init__(self, group_id: str) -> None:
        super().__init__(
            f"the membership of group {group_id!r} is not started, or closed already; "
            "use `async with` or start()"
        )


class Membership:
    """A member of a group of any protocol type; on asyncio, on the running loop.

    ``metadata`` is what the group's leader learns of this member, and what ``assign`` gives each
    member is its ``state``: both anything that JSON can hold, or both bytes if ``metadata`` is.
    The leader, whichever member that is, calls its ``assign`` with the round's members; without
    one, everybody is given the metadata of all by member id::

        async with Membership("localhost:9092", "crew", "crew", {"url": url}) as member:
            standing = await member.standing()
            print(standing.generation, standing.is_leader, standing.state)

    ``listener`` is told in order, see `MembershipListener`. ``assign`` runs in a thread. Options
    are Kafka's in snake case: those of every client, ``session_timeout_ms``,
    ``heartbeat_interval_ms`` and ``group_instance_id``. A loop that is blocked for longer than the
    session timeout loses its place.

    Raises:
        InvalidAddressError, BadOption, InvalidSecurityOptionError: on construction.
        TypeError: an option that there is not; bytes without an ``assign``.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        group_id: str,
        protocol_type: str,
        metadata: Any,
        *,
        protocol: str = "v0",
        assign: AssignFunction | None = None,
        listener: MembershipListener | None = None,
        rebalance_timeout_ms: int = 60_000,
        **options: Any,
    ) -> None:
        if assign is None and isinstance(metadata, bytes):
            raise TypeError(
                "metadata of type bytes needs an assign function that returns bytes for each member"
            )
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
        self._cluster = Cluster(bootstrap_servers, client)
        core = Core(self.settings)
        self._core = core
        self._leased = LeaseTracker(core, self.settings)
        self._meeting = MembershipProtocol(
            core,
            MetadataCodec(is_raw=isinstance(metadata, bytes)),
            protocol,
            metadata,
            assign or broadcast_metadata,
            listener or MembershipListener(),
        )
        self._driver: Driver | None = None
        self._is_closed = False

    # Coming and going.

    async def start(self) -> None:
        """Begin to join; `standing` waits until it is done."""
        if self._driver is not None or self._is_closed:
            return
        coordinator = CoordinatorClient(self._cluster, self.settings.group_id)
        self._driver = Driver(
            self._leased,
            self.settings,
            coordinator,
            self._meeting.perform,
            self._meeting.on_event_handled,
            self._meeting.on_lookup_error,
        )
        self._meeting.attach(self._driver)
        self._driver.handle(StartRequested(at_ms=now_ms()))

    async def close(self, timeout_ms: float = 30_000) -> None:
        """Leave, once the listener is through; again does nothing.

        A static member leaves without a word, and finds its place when it comes back (KIP-345).

        Raises:
            RuntimeError: awaited in a listener, which it would wait for.
        """
        if self._meeting.is_called_from_listener:
            raise RuntimeError("close() waits for the listener, so a listener must not await it")
        driver, self._driver = self._driver, None
        self._is_closed = True
        if driver is None:
            self._cluster.close()
            return
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                if not self._meeting.has_left:
                    driver.handle(
                        LeaveRequested(at_ms=now_ms(), reason="the membership was closed")
                    )
                    await self._meeting.wait_left()
                await self._meeting.wait_listener_idle()
        except TimeoutError:
            pass  # the coordinator will notice by itself
        finally:
            driver.close()
            self._cluster.close()
            self._meeting.wake()

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

    # What is so.

    @property
    def current_assignment(self) -> MemberAssignment | None:
        """The present standing; None while there is none, in a rebalance it is the last one."""
        return self._meeting.assignment

    @property
    def member_id(self) -> str:
        """The member's id, empty until the coordinator has given it one."""
        return self._core.member_id

    @property
    def exclusive_until_ms(self) -> int | None:
        """Until when nobody else can have been given this member's place; None: it has none.

        On the clock of `partage.client.group.driver.now_ms`. Not for a static member: whoever
        comes with its instance id has its place at once.
        """
        return self._leased.expires_ms

    @property
    def metadata(self) -> Any:
        """What the leader learns of this member when it next joins."""
        return self._meeting.metadata

    async def assignment(self, after: int = -1) -> MemberAssignment:
        """Wait for a standing in a generation later than ``after``.

        Raises:
            MemberFailedError: the member is out of the group for good.
            AssignmentFailedError: the leader could not assign; raised once, it is tried again.
            ClientError: no broker answers, or none lets us in; raised again as long as that is so,
                and it is tried again.
            NotAMemberError: the membership is closed.
        """
        while True:
            self._check()
            self._meeting.raise_errors()
            found = self._meeting.assignment
            if found is not None and found.generation > after:
                return found
            await self._meeting.wait_changed()

    async def assignments(self) -> AsyncIterator[MemberAssignment]:
        """Each new standing, for ever; some may be skipped if several come at once."""
        last = -1
        while True:
            standing = await self.assignment(after=last)
            last = standing.generation
            yield standing

    # What is wanted.

    def update(self, metadata: Any, *, rejoins: bool = True) -> None:
        """Change what the leader learns of this member: at once, or when it next joins anyway."""
        self._meeting.set_metadata(metadata)
        if rejoins:
            self.rejoin("the member's metadata has changed")

    def rejoin(self, reason: str) -> None:
        """Ask for a rebalance, for a reason that the coordinator logs."""
        self._check()
        assert self._driver is not None
        self._driver.handle(RejoinRequested(at_ms=now_ms(), reason=reason))

    def _check(self) -> None:
        if self._driver is None or self._is_closed:
            raise NotAMemberError(self.settings.group_id)


def _options(given: Mapping[str, Any]) -> tuple[ConsumerOptions, ClientOptions]:
    """A member's options and the client's; nothing of a consumer's."""
    of_consumers = set(ConsumerOptions.__struct_fields__) - set(_MEMBER_OPTIONS)
    known = [name for name in option_names() if name not in of_consumers]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, [*known, "rebalance_timeout_ms"], n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"a membership has no option {name!r}{hint}")
    return parse_options(given)

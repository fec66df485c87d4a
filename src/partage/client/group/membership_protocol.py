"""The embedded protocol of a `Membership`: metadata and states, as JSON or bytes.

`MembershipProtocol` performs the actions of the member core: it provides the member's metadata,
computes the assignment on the leader, applies the member's state, and calls the listener, one call
at a time.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from partage.client.errors import ClientError
from partage.client.group.driver import Driver, now_ms
from partage.client.group.errors import AssignmentFailedError, MemberFailedError
from partage.client.loop_thread import run_in_executor
from partage.member.events import (
    AssignmentApplied,
    AssignmentComputed,
    AssignmentReleased,
    AssignorFailed,
    GroupMemberMetadata,
    JoinPrepared,
    RejoinRequested,
    SupportedProtocol,
)
from partage.member.outcome import (
    Action,
    ApplyAssignment,
    DiscardAssignment,
    LeftGroup,
    PrepareJoin,
    ReleaseAssignment,
    ReportFatalError,
    ReportProblem,
)
from partage.member.outcome import ComputeAssignment as AssignWanted
from partage.member.state_machine import MembershipStateMachine as Core
from partage.model.arguments import invalid_argument

log = logging.getLogger(__name__)


class GenerationMember(msgspec.Struct, frozen=True):
    """A member of a generation as the leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: Any


class GenerationMembers(msgspec.Struct, frozen=True):
    """The members of a generation, sorted by member id: the input of the assignment."""

    generation: int
    leader: str
    members: Sequence[GenerationMember]


class MemberAssignment(msgspec.Struct, frozen=True):
    """A member's place in a generation; ``state`` is what the leader assigned to it, or None."""

    generation: int
    member_id: str
    is_leader: bool
    state: Any


#: Returns the state of each member, by member id; the leader calls it.
AssignFunction = Callable[[GenerationMembers], Mapping[str, Any]]


def broadcast_metadata(generation_members: GenerationMembers) -> dict[str, Any]:
    """Assign to each member the metadata of all members, by member id."""
    all_of_them = {member.member_id: member.metadata for member in generation_members.members}
    return dict.fromkeys(all_of_them, all_of_them)


class MembershipListener:
    """Base class of listeners; override the methods you need, as functions or coroutine functions.

    They are called one at a time. Exceptions are logged, and the membership continues.
    """

    def on_rejoining(self, assignment: MemberAssignment | None) -> Awaitable[None] | None:
        """Called before a join: stop work that must not continue during a rebalance.

        ``assignment`` is the current assignment, None at the first join. The group waits for this
        method, at most for ``rebalance_timeout_ms``.
        """

    def on_assigned(self, assignment: MemberAssignment) -> Awaitable[None] | None:
        """Called when a generation is complete, with this member's assignment."""

    def on_leaving(self, assignment: MemberAssignment) -> Awaitable[None] | None:
        """Called before the member leaves; LeaveGroup is sent afterwards."""

    def on_lost(self, reason: str) -> Awaitable[None] | None:
        """Called after the member lost its generation; its work may already be another member's."""


#: The prefix of a state that reports a failed assignment; the leader's reason follows.
_NO_STATE: Final = "partage: no assignment: "


class MetadataCodec:
    """The encoding of metadata and states: JSON or raw bytes.

    Old coordinators cannot be told that the assignment failed. Then each member gets a state that
    reports the failure: a JSON string, or bytes with the same prefix.
    """

    def __init__(self, *, is_raw: bool) -> None:
        self._is_raw = is_raw

    def encode(self, value: Any) -> bytes:
        """Return the encoded value; raise TypeError if it cannot be encoded."""
        if not self._is_raw:
            return json.dumps(value, separators=(",", ":")).encode()
        if not isinstance(value, bytes):
            raise TypeError(f"expected bytes, because the metadata is bytes: {value!r}")
        return value

    def encode_failure(self, reason: str) -> bytes:
        """Return a state that reports a failed assignment."""
        said = _NO_STATE + reason
        return said.encode() if self._is_raw else json.dumps(said).encode()

    def decode_failure(self, state: Any) -> str | None:
        """Return the reason if a state reports a failed assignment, otherwise None."""
        said = state.decode(errors="replace") if isinstance(state, bytes) else state
        if isinstance(said, str) and said.startswith(_NO_STATE):
            return said.removeprefix(_NO_STATE)
        return None

    def decode(self, encoded: bytes, what: str) -> Any:
        """Return the decoded value; raise ValueError for invalid JSON."""
        if self._is_raw:
            return encoded
        try:
            return json.loads(encoded) if encoded else None
        except ValueError as error:
            raise ValueError(f"{what} is not valid JSON: {error}") from None


class MembershipProtocol:
    """The embedded protocol of one member."""

    def __init__(
        self,
        core: Core,
        codec: MetadataCodec,
        protocol: str,
        metadata: Any,
        assign: AssignFunction,
        listener: MembershipListener,
    ) -> None:
        self._core = core
        self._codec = codec
        self._protocol = protocol
        self._assigning = assign
        self._listener = listener
        self._listener_lock = asyncio.Lock()  # serializes the calls of the listener
        # the task in which the listener runs now
        self._listener_task: asyncio.Task[Any] | None = None
        self._era = 0  # incremented whenever pending actions become void
        # Only the last error of each kind is kept, because the user may never ask for it.
        self._error: Exception | None = None
        self._lookup_error: ClientError | None = None
        self._has_lookup_error = False
        self._failure: MemberFailedError | None = None
        self._out = asyncio.Event()
        self._changed = asyncio.Event()
        self.assignment: MemberAssignment | None = None
        self.set_metadata(metadata)

    def attach(self, driver: Driver) -> None:
        """Set the driver; call it before the first event."""
        self._driver = driver

    def set_metadata(self, metadata: Any) -> None:
        """Set the metadata for the next join; raise `InvalidArgumentError` for a wrong type."""
        try:
            self._metadata_bytes = self._codec.encode(metadata)
        except (TypeError, ValueError, RecursionError) as error:
            expected = f"a value that JSON can express, or bytes ({error})"
            raise invalid_argument("metadata", metadata, expected) from None
        self.metadata = metadata

    # Waiting.

    @property
    def has_left(self) -> bool:
        """True if the member is not in the group."""
        return self._out.is_set()

    async def wait_left(self) -> None:
        """Wait until the member has left the group."""
        await self._out.wait()

    @property
    def is_called_from_listener(self) -> bool:
        """True if the caller runs inside a listener method."""
        return self._listener_task is not None and self._listener_task is asyncio.current_task()

    async def wait_listener_idle(self) -> None:
        """Wait until all due listener calls are complete."""
        async with self._listener_lock:
            pass

    async def wait_changed(self) -> None:
        """Wait for the next change."""
        await self._changed.wait()

    def wake(self) -> None:
        """Wake all tasks that wait for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    def raise_errors(self) -> None:
        """Raise a pending error, if there is one."""
        if self._failure is not None:
            raise self._failure
        trouble, self._lookup_error = self._lookup_error, None
        if trouble is not None:
            raise trouble
        error, self._error = self._error, None
        if error is not None:
            raise error

    # Actions of the member core.

    def on_event_handled(self) -> None:
        """Do nothing after an event; the driver requires this callback."""

    def perform(self, action: Action) -> None:
        """Start an action of the member core."""
        match action:
            case PrepareJoin():
                self._driver.start_task(self._prepare(action))
            case AssignWanted():
                self._driver.start_task(self._assign(action))
            case ApplyAssignment():
                self._driver.start_task(self._adopt(action, self._era))
            case DiscardAssignment(reason=reason):
                self._end_assignment()
                self._driver.start_task(self._call(self._listener.on_lost, reason))
            case ReleaseAssignment():
                self._driver.start_task(self._release(action, self._end_assignment()))
            case ReportProblem(reason=reason):
                self._raise(AssignmentFailedError(reason))
            case ReportFatalError(error=error, reason=reason):
                self._failure = MemberFailedError(self._core.settings.group_id, error, reason)
                log.error("%s", self._failure)  # also for users who do not wait for an assignment
                self._out.set()
                self.wake()
            case LeftGroup():
                self._out.set()
                self.wake()

    def _end_assignment(self) -> MemberAssignment | None:
        """End the current assignment and return it."""
        self._era += 1
        assignment, self.assignment = self.assignment, None
        return assignment

    def on_lookup_error(self, error: ClientError | None) -> None:
        """Handle a probably permanent error of the coordinator lookup, or None after success."""
        if error is not None and not self._has_lookup_error:
            log.warning(
                "coordinator is unreachable: group=%s error=%s", self._core.settings.group_id, error
            )
        self._has_lookup_error = error is not None
        self._lookup_error = error
        self.wake()

    def _raise(self, error: Exception) -> None:
        self._error = error
        self.wake()

    async def _prepare(self, action: PrepareJoin) -> None:
        await self._call(self._listener.on_rejoining, self.assignment)
        protocols = (SupportedProtocol(self._protocol, self._metadata_bytes),)
        self._driver.handle(JoinPrepared(at_ms=now_ms(), serial=action.serial, protocols=protocols))

    async def _assign(self, action: AssignWanted) -> None:
        try:
            states = await run_in_executor(partial(self._make_states, action, self._core.member_id))
        except Exception as error:  # user code, or metadata of an incompatible member
            reason = f"{type(error).__name__}: {error}"
            group_id = self._core.settings.group_id
            log.error("assignment failed: group=%s reason=%s", group_id, reason)
            said = self._codec.encode_failure(reason)
            self._driver.handle(
                AssignorFailed(
                    at_ms=now_ms(),
                    serial=action.serial,
                    reason=reason,
                    assignments={peer.member_id: said for peer in action.members},
                )
            )
        else:
            done = AssignmentComputed(at_ms=now_ms(), serial=action.serial, assignments=states)
            self._driver.handle(done)

    def _make_states(self, action: AssignWanted, leader: str) -> dict[str, bytes]:
        """Return the members' encoded states; this runs in a thread."""
        peers = sorted(map(self._decode_member, action.members), key=lambda peer: peer.member_id)
        given = self._assigning(GenerationMembers(action.generation, leader, peers))
        if not isinstance(given, Mapping):
            raise TypeError(f"assign returned {type(given).__name__}, not a mapping of member ids")
        strangers = set(given) - {peer.member_id for peer in peers}
        if strangers:
            raise ValueError(f"assign returned states for unknown members: {sorted(strangers)}")
        return {member_id: self._codec.encode(state) for member_id, state in given.items()}

    def _decode_member(self, member: GroupMemberMetadata) -> GenerationMember:
        whose = f"the metadata of {member.member_id!r}"
        metadata = self._codec.decode(member.metadata, whose)
        return GenerationMember(member.member_id, member.instance_id, metadata)

    async def _adopt(self, action: ApplyAssignment, era: int) -> None:
        async with self._listener_lock:
            if era != self._era:
                return  # the action became void
            try:
                state = self._codec.decode(action.assignment, "this member's state")
                failure = self._codec.decode_failure(state)
            except ValueError as error:
                failure = str(error)
            if failure is not None:  # the last assignment stays, as in any rebalance
                self._raise(AssignmentFailedError(failure))
                at_ms = now_ms()
                self._driver.handle(RejoinRequested(at_ms=at_ms, reason=failure, has_backoff=True))
                self._driver.handle(AssignmentApplied(at_ms=now_ms(), serial=action.serial))
                return
            core = self._core
            assignment = MemberAssignment(action.generation, core.member_id, core.is_leader, state)
            self.assignment = assignment
            await self._call_listener(self._listener.on_assigned, assignment)
        self._driver.handle(AssignmentApplied(at_ms=now_ms(), serial=action.serial))
        self.wake()

    async def _release(
        self, action: ReleaseAssignment, assignment: MemberAssignment | None
    ) -> None:
        if action.is_lost or assignment is None:
            await self._call(self._listener.on_lost, "the member left during a rebalance")
        else:
            await self._call(self._listener.on_leaving, assignment)
        self._driver.handle(AssignmentReleased(at_ms=now_ms(), serial=action.serial))

    async def _call(self, listen: Callable[[Any], Awaitable[None] | None], what: Any) -> None:
        async with self._listener_lock:
            await self._call_listener(listen, what)

    async def _call_listener(
        self, listen: Callable[[Any], Awaitable[None] | None], what: Any
    ) -> None:
        self._listener_task = asyncio.current_task()
        try:
            waited_for = listen(what)
            if inspect.isawaitable(waited_for):
                await waited_for
        except Exception:  # user code; the assignment stays valid
            log.exception("membership listener failed: group=%s", self._core.settings.group_id)
        finally:
            self._listener_task = None

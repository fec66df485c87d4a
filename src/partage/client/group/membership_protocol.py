"""What is embedded in the group of a `Membership`: metadata and states, in JSON or bytes.

`Meeting` does what a member's core asks: it describes this member, has the leader assign, takes
the state over, and tells the listener, one call after the other.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from partage.client.errors import ClientError
from partage.client.group.driver import Driver, now_ms
from partage.client.group.errors import AssignmentFailedError, MemberFailedError
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

log = logging.getLogger(__name__)


class GenerationMember(msgspec.Struct, frozen=True):
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: Any


class GenerationMembers(msgspec.Struct, frozen=True):
    """What the leader decides about: the members of a generation, in the order of their ids."""

    generation: int
    leader: str
    members: Sequence[GenerationMember]


class MemberAssignment(msgspec.Struct, frozen=True):
    """What a member has in a generation; ``state`` is what the leader gave it, None if nothing."""

    generation: int
    member_id: str
    is_leader: bool
    state: Any


#: Gives each member its state, by member id; called by the leader.
AssignFunction = Callable[[GenerationMembers], Mapping[str, Any]]


def broadcast_metadata(meeting: GenerationMembers) -> dict[str, Any]:
    """Everybody is given the metadata of all, by member id."""
    all_of_them = {member.member_id: member.metadata for member in meeting.members}
    return dict.fromkeys(all_of_them, all_of_them)


class MembershipListener:
    """The base of listeners; override what you need, as functions or coroutine functions.

    Calls come one after the other. What one raises is logged, and the membership goes on.
    """

    def on_rejoining(self, standing: MemberAssignment | None) -> Awaitable[None] | None:
        """About to join, again if there is a standing: give up what may not be kept meanwhile.

        The group waits for it, no longer than ``rebalance_timeout_ms``.
        """

    def on_assigned(self, standing: MemberAssignment) -> Awaitable[None] | None:
        """A generation is complete, and this is the member's standing in it."""

    def on_leaving(self, standing: MemberAssignment) -> Awaitable[None] | None:
        """About to leave; the coordinator hears of it after this."""

    def on_lost(self, reason: str) -> Awaitable[None] | None:
        """Out of the generation already: what this member had may be somebody else's."""


#: What a state that is none begins with; the leader's reason follows.
_NO_STATE: Final = "partage: no assignment: "


class MetadataCodec:
    """How metadata and states become bytes: as JSON, or as they are.

    Where a coordinator cannot be told that there are no states, each member is given one that says
    so: in JSON a text, and bytes with the same beginning.
    """

    def __init__(self, *, is_raw: bool) -> None:
        self._is_raw = is_raw

    def encode(self, value: Any) -> bytes:
        """Raises TypeError for what cannot be encoded."""
        if not self._is_raw:
            return json.dumps(value, separators=(",", ":")).encode()
        if not isinstance(value, bytes):
            raise TypeError(f"expected bytes, because the metadata is bytes: {value!r}")
        return value

    def encode_failure(self, reason: str) -> bytes:
        """A state that says why there is none."""
        said = _NO_STATE + reason
        return said.encode() if self._is_raw else json.dumps(said).encode()

    def decode_failure(self, state: Any) -> str | None:
        """Why there is no state, if this says so."""
        said = state.decode(errors="replace") if isinstance(state, bytes) else state
        if isinstance(said, str) and said.startswith(_NO_STATE):
            return said.removeprefix(_NO_STATE)
        return None

    def decode(self, encoded: bytes, what: str) -> Any:
        """Raises ValueError for bytes that are no JSON."""
        if self._is_raw:
            return encoded
        try:
            return json.loads(encoded) if encoded else None
        except ValueError as error:
            raise ValueError(f"{what} is not valid JSON: {error}") from None


class MembershipProtocol:
    """One member's part in its group."""

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
        self._listener_lock = asyncio.Lock()  # one call of the listener after the other
        self._listener_task: asyncio.Task[Any] | None = None  # in which the listener is called now
        self._era = 0  # goes up whenever what was asked becomes void
        self._error: Exception | None = None  # the last one of each, to be raised once: it may be
        self._lookup_error: ClientError | None = None  # that nobody ever asks
        self._has_lookup_error = False
        self._failure: MemberFailedError | None = None
        self._out = asyncio.Event()
        self._changed = asyncio.Event()
        self.assignment: MemberAssignment | None = None
        self.set_metadata(metadata)

    def attach(self, driver: Driver) -> None:
        """Before the first event."""
        self._driver = driver

    def set_metadata(self, metadata: Any) -> None:
        """Have this as metadata from the next join on."""
        self._metadata_bytes = self._codec.encode(metadata)
        self.metadata = metadata

    # Waiting.

    @property
    def has_left(self) -> bool:
        """Whether the member is out of the group."""
        return self._out.is_set()

    async def wait_left(self) -> None:
        """Wait until the member is out of the group."""
        await self._out.wait()

    @property
    def is_called_from_listener(self) -> bool:
        """Whether it is the listener that asks."""
        return self._listener_task is not None and self._listener_task is asyncio.current_task()

    async def wait_listener_idle(self) -> None:
        """Wait until the listener is through with what it is due."""
        async with self._listener_lock:
            pass

    async def wait_changed(self) -> None:
        """Wait until something is different."""
        await self._changed.wait()

    def wake(self) -> None:
        """Have everybody who waits look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def raise_errors(self) -> None:
        """Raise what there is to be raised."""
        if self._failure is not None:
            raise self._failure
        trouble, self._lookup_error = self._lookup_error, None
        if trouble is not None:
            raise trouble
        error, self._error = self._error, None
        if error is not None:
            raise error

    # What the core asks.

    def on_event_handled(self) -> None:
        """After each event."""

    def perform(self, action: Action) -> None:
        """Begin what the core asks for."""
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
                log.error("%s", self._failure)  # also where nobody waits for a standing
                self._out.set()
                self.wake()
            case LeftGroup():
                self._out.set()
                self.wake()

    def _end_assignment(self) -> MemberAssignment | None:
        """The standing is over; what it was."""
        self._era += 1
        standing, self.assignment = self.assignment, None
        return standing

    def on_lookup_error(self, error: ClientError | None) -> None:
        """Nobody can be asked who coordinates the group, and it does not look as if it would pass;
        None: it has passed."""
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
        loop = asyncio.get_running_loop()
        try:
            states = await loop.run_in_executor(
                None, self._make_states, action, self._core.member_id
            )
        except Exception as error:  # the user's, or metadata of another make
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
        """Have the members' states made; in a thread."""
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
                return  # void by now
            try:
                state = self._codec.decode(action.assignment, "this member's state")
                failure = self._codec.decode_failure(state)
            except ValueError as error:
                failure = str(error)
            if failure is not None:  # the last standing stays, as in any rebalance
                self._raise(AssignmentFailedError(failure))
                at_ms = now_ms()
                self._driver.handle(RejoinRequested(at_ms=at_ms, reason=failure, has_backoff=True))
                self._driver.handle(AssignmentApplied(at_ms=now_ms(), serial=action.serial))
                return
            core = self._core
            standing = MemberAssignment(action.generation, core.member_id, core.is_leader, state)
            self.assignment = standing
            await self._call_listener(self._listener.on_assigned, standing)
        self._driver.handle(AssignmentApplied(at_ms=now_ms(), serial=action.serial))
        self.wake()

    async def _release(self, action: ReleaseAssignment, standing: MemberAssignment | None) -> None:
        if action.is_lost or standing is None:
            await self._call(self._listener.on_lost, "the member left during a rebalance")
        else:
            await self._call(self._listener.on_leaving, standing)
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
        except Exception:  # the user's; what was done stands
            log.exception("membership listener failed: group=%s", self._core.settings.group_id)
        finally:
            self._listener_task = None

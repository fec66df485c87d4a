"""Leader election: exactly one of several processes is active."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, Unpack

import msgspec

from partage.client.addresses import BootstrapServers
from partage.client.config import DynamicMemberConfig
from partage.client.group.errors import NotAMemberError
from partage.client.group.membership_protocol import MemberAssignment, MembershipListener
from partage.client.membership import Membership
from partage.model.arguments import (
    InvalidArgumentError,
    check_bool,
    check_function,
    check_int,
    check_json,
)
from partage.recipes.elector import Candidate, ElectionResult, elect
from partage.recipes.lease_guard import (
    cancel_and_wait,
    remaining_lease_ms,
    stop_margin_ms,
    wait_lease_expired,
    wait_lease_valid,
)

log = logging.getLogger(__name__)

PROTOCOL_TYPE: Final = "partage-election"


class Leader(msgspec.Struct, frozen=True):
    """The active member of the last generation."""

    member_id: str
    token: int
    identity: Any


class Term:
    """A period in which this process is active.

    ``token`` is a fencing token: it is greater than the token of every earlier term in all
    processes. Send it with every write, and let the storage reject a smaller token than it has
    seen.
    """

    def __init__(self, token: int, is_sure: Callable[[], bool]) -> None:
        self.token = token
        self._is_sure = is_sure
        self._ended = asyncio.Event()
        self.task: asyncio.Task[Any] | None = None
        self.watch: asyncio.Task[None] | None = None
        self.ending: asyncio.Task[None] | None = None  # it continues if the caller is cancelled

    @property
    def is_active(self) -> bool:
        """True if this process is certainly active, by the clock, even right after a suspension."""
        return not self._ended.is_set() and self._is_sure()

    @property
    def has_ended(self) -> bool:
        """True if the term has ended."""
        return self._ended.is_set()

    def end(self) -> None:
        """End the term."""
        self._ended.set()

    async def wait_ended(self) -> None:
        """Wait until the term has ended."""
        await self._ended.wait()


Work = Callable[[Term], Awaitable[object]]


class LeaderElection:
    """A participant in a leader election; on asyncio, a context manager.

    ``work`` runs while this process is active and is cancelled when its term ends. If the
    coordinator does not answer, the term ends ``stop_ms`` before the coordinator could give the
    term to another process. When ``work`` returns or raises, the process resigns and is no
    candidate until `stand`::

        async with LeaderElection("localhost:9092", "scheduler", {"url": url}, work=schedule):
            ...

    Without ``work``, wait for `wait_until_elected` and check `Term.is_active` before each step.

    Args:
        bootstrap_servers: HOST:PORT, several as a list or separated by commas.
        group_id: The group of all candidates.
        identity: Data about this process that other members see if it is active; any JSON value.
        work: A coroutine function that takes the `Term`.
        stands: True if this process is a candidate from the start.
        priority: The candidate with the highest priority wins if no member is active.
        stop_ms: Time that the work gets to stop; ``heartbeat_interval_ms`` if None.
        options: Options of `partage.Membership`, except ``group_instance_id``: a second process
            with the same instance id would replace an active one at once, and both would be active.

    Raises:
        InvalidArgumentError: An argument is invalid, or ``stop_ms`` leaves no time in a session to
            work.
        ClientError: As `Membership`.
    """

    def __init__(
        self,
        bootstrap_servers: BootstrapServers,
        group_id: str,
        identity: Any = None,
        *,
        work: Work | None = None,
        stands: bool = True,
        priority: int = 0,
        stop_ms: int | None = None,
        **options: Unpack[DynamicMemberConfig],
    ) -> None:
        if "group_instance_id" in options:
            raise InvalidArgumentError(
                "LeaderElection does not support group_instance_id: see its documentation"
            )
        if work is not None:
            check_function("work", work, "a Term")
        check_bool("stands", stands)
        priority = check_int("priority", priority, least=-(2**63), most=2**63 - 1)
        check_json("identity", identity)
        self._identity = identity
        self._work = work
        self._stands = stands
        self._priority = priority
        self._term: Term | None = None
        self._ended_token: int | None = None  # of this process's last term
        self._leader: Leader | None = None
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._membership = Membership(
            bootstrap_servers,
            group_id,
            PROTOCOL_TYPE,
            self._metadata(),
            assign=elect,
            listener=_Listener(self),
            **options,
        )
        self._membership._name_in_warning = "LeaderElection"
        self._margin_ms = stop_margin_ms(self._membership, stop_ms)
        self.failure: BaseException | None = None  # the exception of the work, if it ended a term

    # State.

    @property
    def membership(self) -> Membership:
        """The underlying membership."""
        return self._membership

    @property
    def term(self) -> Term | None:
        """This process's term; None if it is not active."""
        return self._term if self.is_leader else None

    @property
    def is_leader(self) -> bool:
        """True if this process is certainly active, by the clock."""
        return self._term is not None and self._term.is_active

    @property
    def leader(self) -> Leader | None:
        """The active member of the last generation; None if unknown or if no member is active."""
        return self._leader

    async def wait_until_elected(self) -> Term:
        """Wait until this process is active; raise as `Membership.assignment`."""
        while not (self._term is not None and self._term.is_active):
            await self._wait_changed()
        return self._term

    async def wait_for_leader(self) -> Leader:
        """Wait until a member is active and return it; raise as `Membership.assignment`."""
        while self._leader is None:
            await self._wait_changed()
        return self._leader

    async def _wait_changed(self) -> None:
        """Wait for a change in this process or in the group."""
        changed, now = self._changed, self._membership.current_assignment
        group = asyncio.ensure_future(
            self._membership.assignment(after=now.generation if now is not None else -1)
        )
        here = asyncio.ensure_future(changed.wait())
        try:
            done, _ = await asyncio.wait({group, here}, return_when=asyncio.FIRST_COMPLETED)
            if group in done:
                group.result()
        finally:
            group.cancel()
            here.cancel()

    def _notify_changed(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # Requests.

    def stand(self) -> None:
        """Become a candidate, also after `resign`."""
        self._stands = True
        self._membership.update(self._metadata())

    async def resign(self) -> None:
        """Resign if active, and be no candidate until `stand`.

        It returns when the work has stopped. If the work itself calls it, the term ends with the
        work.
        """
        self._stands = False
        term = self._term
        if term is not None and term.task is asyncio.current_task():
            return
        await self._end(term)
        self._update()

    async def __aenter__(self) -> Self:
        await self._membership.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Resign, wait until the work has stopped, and leave the group."""
        self._stands = False
        await self._membership.close()
        await self._end(self._term)
        for task in list(self._tasks):
            await cancel_and_wait(task)

    # Membership callbacks.

    def _metadata(self) -> Any:
        token = None if self._term is None else self._term.token
        candidate = Candidate(
            self._stands, self._priority, token, self._identity, self._ended_token
        )
        return msgspec.to_builtins(candidate)

    async def on_assigned(self, assignment: MemberAssignment) -> None:
        """Handle a new generation."""
        result = msgspec.convert(assignment.state, ElectionResult)
        is_ours = result.member_id == assignment.member_id
        if self._term is not None and not (is_ours and result.token == self._term.token):
            await self._end(self._term)
        self._leader = None
        if result.member_id is not None and result.token is not None:
            self._leader = Leader(result.member_id, result.token, result.identity)
        if is_ours and self._term is None:
            is_new = result.token == assignment.generation != self._ended_token
            if is_new and self._stands:
                await self._begin(assignment.generation)
            else:  # Our term has ended in the meantime: a new term needs a new token.
                self._update()
        self._notify_changed()

    async def _begin(self, token: int) -> None:
        if not await wait_lease_valid(self._membership, self._margin_ms):
            self._update()  # this starts a new election
            return
        term = Term(token, lambda: remaining_lease_ms(self._membership, self._margin_ms) > 0)
        self._term = term
        self._update(rejoins=False)
        if self._work is not None:
            term.task = asyncio.create_task(_run_work(self._work(term)))
            term.task.add_done_callback(lambda _: self._spawn(self._on_work_done(term)))
        term.watch = asyncio.create_task(self._watch_lease(term))

    async def _watch_lease(self, term: Term) -> None:
        await wait_lease_expired(self._membership, self._margin_ms)
        log.warning(
            "term ended because the coordinator did not answer in time: token=%d", term.token
        )
        self._spawn(self._on_lease_expired(term))

    async def _on_lease_expired(self, term: Term) -> None:
        await self._end(term)
        self._update()

    async def _on_work_done(self, term: Term) -> None:
        """Handle the end of the work; if no other event caused it, the term ends too."""
        task = term.task
        assert task is not None
        if self._term is not term or term.has_ended:
            return
        self.failure = None if task.cancelled() else task.exception()
        if self.failure is not None:
            log.error("work failed and ended its term: token=%d", term.token, exc_info=self.failure)
        await self.resign()

    async def _end(self, term: Term | None) -> None:
        """End a term; when this returns, no work of the term runs."""
        if term is None:
            return
        if term.ending is None:
            term.end()
            self._notify_changed()
            term.ending = asyncio.create_task(self._stop_work(term))
        await asyncio.shield(term.ending)

    async def _stop_work(self, term: Term) -> None:
        """Stop the work of a term; then another member may begin the next term."""
        await cancel_and_wait(term.watch)
        await cancel_and_wait(term.task)
        if self._term is term:
            self._term = None
            self._ended_token = term.token
            self._update(rejoins=not self._stands)

    def _update(self, *, rejoins: bool = True) -> None:
        """Send this member's state to the group, unless this process is leaving."""
        with suppress(NotAMemberError):
            self._membership.update(self._metadata(), rejoins=rejoins)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Listener(MembershipListener):
    """Passes membership events to an election."""

    def __init__(self, election: LeaderElection) -> None:
        self._election = election

    async def on_assigned(self, assignment: MemberAssignment) -> None:
        await self._election.on_assigned(assignment)

    async def on_leaving(self, assignment: MemberAssignment) -> None:
        await self._election._end(self._election._term)

    async def on_lost(self, reason: str) -> None:
        self._election._leader = None
        await self._election._end(self._election._term)


async def _run_work(work: Awaitable[object]) -> object:
    return await work

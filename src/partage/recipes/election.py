"""Exactly one of several processes is active: `LeaderElection`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from partage.client.membership import (
    MemberAssignment,
    Membership,
    MembershipListener,
    NotAMemberError,
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
    """Who is active, as of the last generation."""

    member_id: str
    token: int
    identity: Any


class Term:
    """The time for which this process is active.

    ``token`` is greater than that of every term before, in this process and all others: send it
    along with what you write, and have the place that is written to refuse a smaller one than it
    has seen.
    """

    def __init__(self, token: int, is_sure: Callable[[], bool]) -> None:
        self.token = token
        self._is_sure = is_sure
        self._ended = asyncio.Event()
        self.task: asyncio.Task[Any] | None = None
        self.watch: asyncio.Task[None] | None = None
        self.ending: asyncio.Task[None] | None = None  # goes on though nobody waits for it

    @property
    def is_active(self) -> bool:
        """Whether this process is the active one, by the clock; true right after a freeze too."""
        return not self._ended.is_set() and self._is_sure()

    @property
    def has_ended(self) -> bool:
        """Whether the term is over for good."""
        return self._ended.is_set()

    def end(self) -> None:
        """The term is over."""
        self._ended.set()

    async def wait_ended(self) -> None:
        """Wait until the term is over."""
        await self._ended.wait()


Work = Callable[[Term], Awaitable[object]]


class LeaderElection:
    """One of the processes that elect; on asyncio, a context manager.

    ``work`` runs while this process is active, and is cancelled when its term ends: before the
    coordinator can have given up on it, ``stop_ms`` earlier, so that it has time to stop. When the
    work returns or raises, the process steps down and stands no more until `stand`::

        async with LeaderElection("localhost:9092", "scheduler", {"url": url}, work=schedule):
            ...

    Without ``work``, wait for `elected` and look at `Term.is_on` before each step. ``identity`` is
    what the others learn of the active one: anything that JSON can hold. Options as `Membership`;
    there is no ``group_instance_id``: another process that takes a static member's place does so
    at once, and two would be active.

    Raises:
        ValueError: ``stop_ms`` leaves nothing of the session.
        TypeError: ``priority`` is no whole number.
        TypeError, ClientError: as `Membership`.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        group_id: str,
        identity: Any = None,
        *,
        work: Work | None = None,
        stands: bool = True,
        priority: int = 0,
        stop_ms: int | None = None,
        **options: Any,
    ) -> None:
        if "group_instance_id" in options:
            raise TypeError(
                "LeaderElection does not support group_instance_id: see its documentation"
            )
        if not isinstance(priority, int):
            raise TypeError(f"priority must be an integer, not {priority!r}")
        self._identity = identity
        self._work = work
        self._stands = stands
        self._priority = priority
        self._term: Term | None = None
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
        self._margin_ms = stop_margin_ms(self._membership, stop_ms)
        self.failure: BaseException | None = None  # what the work raised, if that ended a term

    # What is so.

    @property
    def membership(self) -> Membership:
        """The member underneath."""
        return self._membership

    @property
    def term(self) -> Term | None:
        """This process's term, if it is active."""
        return self._term if self.is_leader else None

    @property
    def is_leader(self) -> bool:
        """Whether this process is the active one, by the clock."""
        return self._term is not None and self._term.is_active

    @property
    def leader(self) -> Leader | None:
        """Who is active, as of the last generation; None while it is not known, or nobody is."""
        return self._leader

    async def wait_until_elected(self) -> Term:
        """Wait until this process is active; raises as `Membership.standing`."""
        while not (self._term is not None and self._term.is_active):
            await self._wait_changed()
        return self._term

    async def wait_for_leader(self) -> Leader:
        """Wait until somebody is active; raises as `Membership.standing`."""
        while self._leader is None:
            await self._wait_changed()
        return self._leader

    async def _wait_changed(self) -> None:
        """Wait for something to happen, here or in the group."""
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

    # What is wanted.

    def stand(self) -> None:
        """Stand for election, again if this process stepped down."""
        self._stands = True
        self._membership.update(self._metadata())

    async def resign(self) -> None:
        """Step down, if active, and stand no more until `stand`.

        Returns once the work has stopped; called from within the work, the term ends with it.
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
        """Step down, wait until the work has stopped, and leave."""
        self._stands = False
        await self._membership.close()
        await self._end(self._term)
        for task in list(self._tasks):
            await cancel_and_wait(task)

    # The group.

    def _metadata(self) -> Any:
        token = None if self._term is None else self._term.token
        candidate = Candidate(self._stands, self._priority, token, self._identity)
        return msgspec.to_builtins(candidate)

    async def on_assigned(self, standing: MemberAssignment) -> None:
        """A generation is complete."""
        result = msgspec.convert(standing.state, ElectionResult)
        is_ours = result.member_id == standing.member_id
        if self._term is not None and not (is_ours and result.token == self._term.token):
            await self._end(self._term)
        self._leader = None
        if result.member_id is not None and result.token is not None:
            self._leader = Leader(result.member_id, result.token, result.identity)
        if is_ours and self._term is None:
            if result.token == standing.generation and self._stands:
                await self._begin(standing.generation)
            else:  # a term of ours that has ended meanwhile: the next one has a token of its own
                self._update()
        self._notify_changed()

    async def _begin(self, token: int) -> None:
        if not await wait_lease_valid(self._membership, self._margin_ms):
            self._update()  # which has somebody elected anew
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
        """The work has ended; if by itself, that ends the term."""
        task = term.task
        assert task is not None
        if self._term is not term or term.has_ended:
            return
        self.failure = None if task.cancelled() else task.exception()
        if self.failure is not None:
            log.error("work failed and ended its term: token=%d", term.token, exc_info=self.failure)
        await self.resign()

    async def _end(self, term: Term | None) -> None:
        """End a term; afterwards nothing is done in its name any more."""
        if term is None:
            return
        if term.ending is None:
            term.end()
            self._notify_changed()
            term.ending = asyncio.create_task(self._stop_work(term))
        await asyncio.shield(term.ending)

    async def _stop_work(self, term: Term) -> None:
        """Stop what is done in a term's name; then somebody else may have the next one."""
        await cancel_and_wait(term.watch)
        await cancel_and_wait(term.task)
        if self._term is term:
            self._term = None
            self._update(rejoins=not self._stands)

    def _update(self, *, rejoins: bool = True) -> None:
        """Have the others learn how things are; not when this process is leaving anyway."""
        with suppress(NotAMemberError):
            self._membership.update(self._metadata(), rejoins=rejoins)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Listener(MembershipListener):
    """What the group tells an election."""

    def __init__(self, election: LeaderElection) -> None:
        self._election = election

    async def on_assigned(self, standing: MemberAssignment) -> None:
        await self._election.on_assigned(standing)

    async def on_leaving(self, standing: MemberAssignment) -> None:
        await self._election._end(self._election._term)

    async def on_lost(self, reason: str) -> None:
        self._election._leader = None
        await self._election._end(self._election._term)


async def _run_work(work: Awaitable[object]) -> object:
    return await work

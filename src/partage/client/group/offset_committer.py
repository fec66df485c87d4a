"""A consumer's commits: sent, and sent again while that may help, as if one after the other.

Kafka's own client does not try a commit again that nobody waits for, because a later one may be
stored by then. Here each may be tried again: `CommitOrder` sees to it that none undoes a later
one, and a commit belongs to the generation in which it was issued. In a later one it goes out for
partitions alone that were this member's all the while: what others had meanwhile they may have
committed further. (What a broker still does with a request whose connection is gone, no client
can know.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

from partage.bridge.member_requests import to_error_code
from partage.client.errors import BrokerResponseError, ClientError, error_name
from partage.client.group.commit_order import CommitOrder, PendingCommit
from partage.client.group.coordinator_client import CoordinatorClient
from partage.client.group.errors import CommitFailedError
from partage.client.group.offsets import FENCED_ERRORS, Offsets, commit_once
from partage.client.metadata import TopicPartition
from partage.client.options import RetryPolicy
from partage.client.retries import Retries
from partage.member.member import CommitIdentity
from partage.model.errors import ErrorCode


class CommitContext(Protocol):
    """A consumer's place in its group, as it is at this moment."""

    @property
    def identity(self) -> CommitIdentity | None:
        """In whose name a commit would be made now; None while none can be accepted."""

    @property
    def ownership_epochs(self) -> Mapping[tuple[str, int], int]:
        """What the member owns; another number for each time that it was given a partition."""

    def commit_refusal_reason(self) -> str:
        """Why no commit can be accepted, or not in the name that was asked for."""

    def on_commit_fenced(self, identity: CommitIdentity, code: ErrorCode) -> str:
        """Hear that the coordinator refused a commit in this name; the reason in words."""


class _Commit:
    """What is to be committed, and what held when it was issued."""

    def __init__(
        self, offsets: Offsets, seat: CommitContext, only_as: CommitIdentity | None
    ) -> None:
        self.offsets = offsets
        self.only_as = only_as
        self.identity = seat.identity
        self.ownership_epochs = {p: seat.ownership_epochs.get(p) for p in offsets}
        self.turn = asyncio.Event()
        self.not_owned: set[TopicPartition] = set()
        self.refused: dict[TopicPartition, int] = {}

    def not_owned_since_issue(
        self, left: Iterable[TopicPartition], seat: CommitContext
    ) -> set[TopicPartition]:
        """What of that has not been this member's all the while since a generation ago."""
        if seat.identity == self.identity:
            return set()
        then, now = self.ownership_epochs, seat.ownership_epochs
        return {p for p in left if then[p] is None or then[p] != now.get(p)}

    def check(self) -> None:
        """Raises CommitFailedError if part of it was not committed."""
        stories = [f"{p}: {error_name(code)}" for p, code in sorted(self.refused.items())]
        if self.not_owned:
            names = ", ".join(map(str, sorted(self.not_owned)))
            stories.append(
                "the group has rebalanced since the commit was issued, and this consumer did not "
                f"own {names} the whole time"
            )
        if stories:
            raise CommitFailedError(", ".join(stories), next(iter(self.refused.values()), None))


class OffsetCommitter:
    """All commits of one consumer; belongs to the loop that it is made on."""

    def __init__(
        self,
        coordinator: CoordinatorClient,
        group_id: str,
        policy: RetryPolicy,
        seat: CommitContext,
    ) -> None:
        self._coordinator = coordinator
        self._group_id = group_id
        self._policy = policy
        self._seat = seat
        self._order = CommitOrder()

    async def commit(
        self,
        offsets: Offsets,
        *,
        only_as: CommitIdentity | None = None,
        after: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Commit; returns once this or something later is stored for each partition.

        With ``only_as`` in that one's name or not at all. ``after`` is awaited before anything is
        sent; the commit has its place in the order, and its generation, from the call on.

        Raises:
            CommitFailedError: not all is committed; the message says what, and why.
            ClientError: nobody could be asked.
        """
        commit = _Commit(offsets, self._seat, only_as)
        issued = self._order.issue(offsets, commit.turn.set)
        try:
            if after is not None:
                await after()
            await self._commit_until_decided(commit, issued)
        finally:
            self._order.close(issued)
        commit.check()

    async def _commit_until_decided(self, commit: _Commit, issued: PendingCommit) -> None:
        retries = Retries(self._policy)
        while issued.undecided:
            try:
                await self._advance(commit, issued, retries)
            except ClientError as error:
                await retries.wait_or_raise(error)

    async def _advance(self, commit: _Commit, issued: PendingCommit, retries: Retries) -> None:
        """Send what is due, or wait until that may be something else."""
        commit.turn.clear()
        self._check(commit, issued)
        if not self._order.sendable(issued):
            if issued.undecided:
                await self._wait_for_turn(commit, retries)
            return
        await self._coordinator.connect()
        identity = self._check(commit, issued)  # from here to the order's hearing of it no wait
        if due := self._order.sendable(issued):
            await self._send(commit, issued, identity, due)

    def _check(self, commit: _Commit, issued: PendingCommit) -> CommitIdentity:
        """In whose name to send; of what was given away, nothing is left."""
        identity = self._seat.identity
        if identity is None or commit.only_as not in (None, identity):
            raise CommitFailedError(self._seat.commit_refusal_reason())
        gone = commit.not_owned_since_issue(issued.undecided, self._seat)
        commit.not_owned |= gone
        self._order.mark_failed(issued, gone)
        return identity

    async def _wait_for_turn(self, commit: _Commit, retries: Retries) -> None:
        try:
            async with asyncio.timeout(retries.remaining_s):
                await commit.turn.wait()
        except TimeoutError:
            raise CommitFailedError(
                "another commit of the same partitions was not answered within "
                f"default_api_timeout_ms ({self._policy.timeout_ms})"
            ) from None

    async def _send(
        self,
        commit: _Commit,
        issued: PendingCommit,
        identity: CommitIdentity,
        due: set[TopicPartition],
    ) -> None:
        offsets = {p: offset for p, offset in commit.offsets.items() if p in due}
        stored: set[TopicPartition] = set()
        self._order.mark_sent(issued, due)
        try:
            refused = await commit_once(self._coordinator, self._group_id, identity, offsets)
            stored = due - set(refused)
        finally:
            self._order.mark_answered(issued, stored)
        fence = next((code for code in refused.values() if code in FENCED_ERRORS), None)
        if fence is not None:
            raise CommitFailedError(
                self._seat.on_commit_fenced(identity, to_error_code(fence)), fence
            )
        what = f"committing offsets of group {self._group_id!r}"
        errors = {p: BrokerResponseError(code, what) for p, code in refused.items()}
        final = [p for p, error in errors.items() if not error.is_retriable]
        commit.refused |= {p: refused[p] for p in final}
        self._order.mark_failed(issued, final)
        for error in errors.values():
            if error.is_retriable:
                raise error

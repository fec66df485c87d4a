"""The commits of a consumer, with retries that preserve the order of the commits.

Kafka's client does not retry asynchronous commits, because a later one may be stored already. Here
each commit may be retried: `CommitOrder` prevents that it overwrites a later one. A commit belongs
to the generation in which it was issued. In a later generation it is sent only for partitions that
this member has owned without interruption, because another owner may have committed a later
position. In the same generation, it is not sent for partitions that were assigned again. No client
can control when a broker handles a request whose connection was closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Final, Protocol

from partage.bridge.member_requests import to_error_code
from partage.client.errors import BrokerResponseError, ClientError, error_name
from partage.client.group.commit_order import CommitOrder, PendingCommit
from partage.client.group.coordinator_client import CoordinatorClient
from partage.client.group.errors import CommitFailedError
from partage.client.group.offsets import FENCED_ERRORS, Offsets, TopicIds, commit_once
from partage.client.options import RetryPolicy
from partage.client.retries import Retries
from partage.member.member import CommitIdentity
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition

_UNKNOWN_TOPIC_ERRORS: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
)
_REPLACED: Final = "its topic was deleted and created again since the records were read"


class CommitContext(Protocol):
    """The consumer's current state in its group, as far as commits need it."""

    @property
    def identity(self) -> CommitIdentity | None:
        """The identity for a commit now; None while the coordinator would refuse commits."""

    @property
    def ownership_epochs(self) -> Mapping[TopicPartition, int]:
        """For each owned partition, a number that is new each time the partition is assigned."""

    def is_topic_replaced(self, partition: TopicPartition, topic_id: bytes) -> bool:
        """True if an owned partition belongs to another topic of the same name now."""

    def commit_refusal_reason(self) -> str:
        """Return the reason why no commit is possible, or not with the requested identity."""

    def on_commit_fenced(self, identity: CommitIdentity, code: ErrorCode) -> str:
        """Handle a commit that the coordinator refused as fenced; return the reason as text."""


class _Commit:
    """A commit, with the identity and the ownership at the time of its issue."""

    def __init__(
        self,
        offsets: Offsets,
        topic_ids: TopicIds,
        context: CommitContext,
        only_as: CommitIdentity | None,
        final_errors: frozenset[ErrorCode],
    ) -> None:
        self.offsets = offsets
        self.topic_ids = topic_ids
        self.only_as = only_as
        self.final_errors = final_errors
        self.identity = context.identity
        self.ownership_epochs = {p: context.ownership_epochs.get(p) for p in offsets}
        self.turn = asyncio.Event()
        self.not_owned: set[TopicPartition] = set()
        self.refused: dict[TopicPartition, int] = {}
        self.replaced: set[TopicPartition] = set()
        self.last_error: ClientError | None = None

    def not_owned_since_issue(
        self, left: Iterable[TopicPartition], context: CommitContext
    ) -> set[TopicPartition]:
        """Return the partitions whose ownership was interrupted since the commit was issued.

        With the same identity, partitions that are not owned may be committed, but not those that
        were assigned since. Their former owner may have committed later offsets. Or a static member
        has rejoined in the same epoch, and has read its committed offsets before this commit.
        """
        then, now = self.ownership_epochs, context.ownership_epochs
        if context.identity == self.identity:
            return {p for p in left if now.get(p, then[p]) != then[p]}
        return {p for p in left if then[p] is None or then[p] != now.get(p)}

    def check(self) -> None:
        """Raise CommitFailedError if some partitions were not committed."""
        stories = [
            f"{p}: {_REPLACED if p in self.replaced else error_name(code)}"
            for p, code in sorted(self.refused.items())
        ]
        if self.not_owned:
            names = ", ".join(map(str, sorted(self.not_owned)))
            stories.append(
                "the group has rebalanced since the commit was issued, and this consumer did not "
                f"own {names} the whole time"
            )
        if stories:
            raise CommitFailedError(", ".join(stories), next(iter(self.refused.values()), None))


class OffsetCommitter:
    """All commits of one consumer; it belongs to the event loop on which it was created."""

    def __init__(
        self,
        coordinator: CoordinatorClient,
        group_id: str,
        policy: RetryPolicy,
        context: CommitContext,
    ) -> None:
        self._coordinator = coordinator
        self._group_id = group_id
        self._policy = policy
        self._context = context
        self._order = CommitOrder()

    async def commit(
        self,
        offsets: Offsets,
        topic_ids: TopicIds = MappingProxyType({}),
        *,
        only_as: CommitIdentity | None = None,
        after: Callable[[], Awaitable[None]] | None = None,
        retries_unknown_topics: bool = True,
    ) -> None:
        """Commit offsets; return when these or later offsets of each partition are stored.

        Args:
            offsets: Offsets of the next records to read, by partition.
            topic_ids: The topics to which the offsets belong. Offsets of a topic that was deleted
                and created again are not committed.
            only_as: The only identity with which to commit; None for any.
            after: Awaited before anything is sent. The order and the generation of the commit are
                those of the call.
            retries_unknown_topics: False if a partition that the coordinator does not know fails
                at once. A coordinator may learn of a new topic late.

        Raises:
            CommitFailedError: At least one offset was not committed; the message names the
                partitions. Or the time of the policy ended; then the offsets may be stored later.
            ClientError: No coordinator answered.
        """
        final_errors = frozenset() if retries_unknown_topics else _UNKNOWN_TOPIC_ERRORS
        commit = _Commit(offsets, topic_ids, self._context, only_as, final_errors)
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
                commit.last_error = error
                await retries.wait_or_raise(error)

    async def _advance(self, commit: _Commit, issued: PendingCommit, retries: Retries) -> None:
        """Send the sendable partitions, or wait until there may be some."""
        commit.turn.clear()
        self._check(commit, issued)
        if not self._order.sendable(issued):
            if issued.undecided:
                await self._wait_for_turn(commit, retries)
            return
        async with self._time_limit(commit, retries, "no coordinator answered the commit"):
            await self._coordinator.connect()
            identity = self._check(commit, issued)  # No await from here until the order is updated.
            if due := self._order.sendable(issued):
                await self._send(commit, issued, identity, due)

    def _check(self, commit: _Commit, issued: PendingCommit) -> CommitIdentity:
        """Return the identity to send with; mark partitions that were given away as failed."""
        identity = self._context.identity
        if identity is None or commit.only_as not in (None, identity):
            raise CommitFailedError(self._context.commit_refusal_reason())
        gone = commit.not_owned_since_issue(issued.undecided, self._context)
        commit.not_owned |= gone
        self._order.mark_failed(issued, gone)
        return identity

    async def _wait_for_turn(self, commit: _Commit, retries: Retries) -> None:
        problem = "another commit of the same partitions was not answered"
        async with self._time_limit(commit, retries, problem):
            await commit.turn.wait()

    @asynccontextmanager
    async def _time_limit(
        self, commit: _Commit, retries: Retries, problem: str
    ) -> AsyncGenerator[None]:
        """Cancel what runs at the end of the time of a commit, and raise CommitFailedError."""
        limit = asyncio.timeout(retries.remaining_s)
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            reason = f"; the last error: {commit.last_error}" if commit.last_error else ""
            raise CommitFailedError(
                f"{problem} within default_api_timeout_ms ({self._policy.timeout_ms}){reason}"
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
            refused = await commit_once(
                self._coordinator, self._group_id, identity, offsets, commit.topic_ids
            )
            stored = due - set(refused)
        finally:
            self._order.mark_answered(issued, stored)
        if ErrorCode.STALE_MEMBER_EPOCH in refused.values():
            self._context.on_commit_fenced(identity, ErrorCode.STALE_MEMBER_EPOCH)
        fence = next((code for code in refused.values() if code in FENCED_ERRORS), None)
        if fence is not None:
            raise CommitFailedError(
                self._context.on_commit_fenced(identity, to_error_code(fence)), fence
            )
        what = f"committing offsets of group {self._group_id!r}"
        errors = {p: BrokerResponseError(code, what) for p, code in refused.items()}
        commit.replaced |= {
            p
            for p, code in refused.items()
            if code == ErrorCode.UNKNOWN_TOPIC_ID
            and self._context.is_topic_replaced(p, commit.topic_ids[p])
        }
        final = {
            p
            for p, error in errors.items()
            if not error.is_retriable or refused[p] in commit.final_errors or p in commit.replaced
        }
        commit.refused |= {p: refused[p] for p in final}
        self._order.mark_failed(issued, final)
        for partition, error in errors.items():
            if partition not in final:
                raise error

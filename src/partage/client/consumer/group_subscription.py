"""A consumer's subscription as the user's thread sees it: the parts that need no waiting.

The group member is a `GroupAssignment` on the client's event loop. Before a consumer delivers
records, it asks here for due callbacks, runs them in its own way, and reports them as done.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

from partage.bridge.consumer_protocol import PROTOCOL_TYPE, ConsumerProtocol
from partage.client.consumer.arguments import (
    OffsetsLike,
    SubscriptionPattern,
    TopicSelection,
    check_topics,
    to_offsets,
)
from partage.client.consumer.deadline import Deadline
from partage.client.consumer.engine import Engine
from partage.client.consumer.errors import AlreadyAssignedError, AlreadySubscribedError
from partage.client.consumer.group_assignment import GroupAssignment
from partage.client.consumer.group_protocol import server_pattern_error, settings_of_protocol
from partage.client.consumer.listener import RebalanceListener
from partage.client.group.errors import NotSubscribedError
from partage.client.group.offsets import IdentifiedOffsets, OffsetAndMetadata, Offsets
from partage.member.outcome import CallListener, ListenerCallback
from partage.member.settings import MemberSettings
from partage.model.topic_partition import TopicPartition

log = logging.getLogger(__name__)

#: The longest time for which polls wait for the commit before a revocation.
COMMIT_WAIT_MS: Final = 1_000
_UNSUBSCRIBED: Final = "unsubscribed"
_CLOSED: Final = "the consumer was closed"
_DRAINS: Final = "the consumer hands over its partitions before it leaves"


class GroupSubscription:
    """The group subscription of one consumer; its `GroupAssignment` is created on first use."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._assignment: GroupAssignment | None = None
        #: The callback before which an auto commit was started, by its serial, and the commit.
        self._commit_before: tuple[int, Future[None]] | None = None
        self.commit_deadline = Deadline(0)
        self.listener: RebalanceListener | None = None
        self._selection = TopicSelection()
        self.is_subscribed = False
        self._is_draining = False
        options = engine.options
        self._commit_interval_s = options.auto_commit_interval_ms / 1000
        self.has_auto_commit = options.enable_auto_commit
        self._commit_at_s = time.monotonic() + self._commit_interval_s
        self._pending_auto_commit: Future[None] | None = None
        self._embedding = ConsumerProtocol(options.assignors, options.client_rack)

    @property
    def assignment(self) -> GroupAssignment:
        """The group member, which also reads and commits offsets."""
        if self._assignment is None:
            self._assignment = self._engine.submit(self._make_assignment()).result()
            self._engine.assignment_source = self._assignment
        return self._assignment

    async def _make_assignment(self) -> GroupAssignment:
        options, cluster = self._engine.options, self._engine.cluster
        assert options.group_id is not None, "a group subscription needs a group_id"
        settings = MemberSettings(
            group_id=options.group_id,
            protocol_type=PROTOCOL_TYPE,
            instance_id=options.group_instance_id,
            session_timeout_ms=options.session_timeout_ms,
            heartbeat_interval_ms=options.heartbeat_interval_ms,
            rebalance_timeout_ms=options.max_poll_interval_ms,
            max_poll_interval_ms=options.max_poll_interval_ms,
            metadata_rebalance_delay_ms=options.metadata_rebalance_delay_ms,
            request_timeout_ms=cluster.options.request_timeout_ms,
            retry_backoff_ms=cluster.options.retries.backoff_ms,
            retry_backoff_max_ms=cluster.options.retries.backoff_max_ms,
        )
        settings, preferred = settings_of_protocol(
            options.group_protocol,
            settings,
            rack_id=options.client_rack,
            server_assignor=options.group_remote_assignor,
        )
        return GroupAssignment(cluster, self._engine, settings, self._embedding, preferred)

    # User requests.

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str] | SubscriptionPattern,
        listener: RebalanceListener | None,
    ) -> None:
        """Subscribe; see `BaseConsumer.subscribe`."""
        wanted = check_topics(topics)
        if not self.is_subscribed and not self._engine.is_empty():
            raise AlreadyAssignedError
        owner = self.assignment
        if wanted.regex is not None and not owner.has_server_patterns:
            raise server_pattern_error(wanted.regex)
        self.listener, self._selection = listener, wanted
        self.is_subscribed, self._is_draining = True, False
        self._engine.submit(owner.subscribe(*wanted)).result()

    def subscription(self) -> set[str]:
        """Return the subscribed topics."""
        if not self.is_subscribed:
            return set()
        return set(self._selection.names or self.assignment.topics)

    def begin_manual_assignment(self) -> None:
        """Switch to manual assignment; the group is used for its offsets only."""
        if self.is_subscribed and not self.is_drained:
            raise AlreadySubscribedError
        self.is_subscribed = self._is_draining = False
        _ = self.assignment

    def drain(self) -> None:
        """Begin to drain; see `BaseConsumer.drain`. It takes no lock."""
        self._is_draining = True
        if self.is_subscribed and self._assignment is not None:
            self._assignment.drain(_DRAINS)

    @property
    def is_drained(self) -> bool:
        """True if the member has left after `drain`."""
        return self._is_draining and (self._assignment is None or self._assignment.has_left)

    def leave(self, *, closes: bool) -> GroupAssignment | None:
        """Begin to leave; return the assignment to wait for, or None if not subscribed.

        The leave is complete when `GroupAssignment.has_left` is true.
        """
        if not self.is_subscribed or self._assignment is None:
            return None
        self.is_subscribed = False
        self._engine.submit(self._assignment.leave(_CLOSED if closes else _UNSUBSCRIBED)).result()
        return self._assignment

    # Work that is due when the user polls.

    @property
    def due_callback(self) -> CallListener | None:
        """The listener callback to run now, or None."""
        return None if self._assignment is None else self._assignment.due_callback

    def partitions_of(self, call: CallListener) -> list[TopicPartition]:
        """Return the partitions of a callback."""
        return [TopicPartition(*partition) for partition in call.partitions]

    def may_run(self, call: CallListener) -> bool:
        """True if a callback may run: before a revocation, an auto commit has to end.

        The first call starts the commit. Its end wakes the polls, which call this again. Polls
        wait for it until `commit_deadline`.
        """
        if not self.has_auto_commit or call.callback is not ListenerCallback.REVOKED:
            return True
        if self._commit_before is None or self._commit_before[0] != call.serial:
            committing = self._engine.submit(self._commit_before_revocation(call, self.positions()))
            self._commit_before = (call.serial, committing)
            self.commit_deadline = Deadline(COMMIT_WAIT_MS)
            committing.add_done_callback(self._on_commit_done)
        return self._commit_before[1].done()

    async def _commit_before_revocation(
        self, call: CallListener, positions: IdentifiedOffsets
    ) -> None:
        """Commit positions; without a listener, the revocation is complete then.

        It does not wait for the next poll: processing may take longer than the coordinator waits.
        """
        await self.assignment.auto_commit_before_revocation(positions)
        if self.listener is None:
            self.assignment.skip_callback(call)

    def _on_commit_done(self, committing: Future[None]) -> None:
        if not committing.cancelled() and (error := committing.exception()) is not None:
            log.error("auto commit before a revocation failed unexpectedly", exc_info=error)
        self._engine.wake()

    def commit_if_due(self) -> None:
        """Start an auto commit if its interval has passed and the previous one has ended.

        Call it when the user polls: then all records delivered before count as processed.
        """
        if not self.has_auto_commit or self._assignment is None:
            return
        is_under_way = (
            self._pending_auto_commit is not None and not self._pending_auto_commit.done()
        )
        if time.monotonic() >= self._commit_at_s and not is_under_way:
            self._commit_at_s = time.monotonic() + self._commit_interval_s
            self._pending_auto_commit = self._engine.submit(
                self._assignment.auto_commit(self.positions())
            )

    def commit_before_leave(self, timeout_s: float | None) -> None:
        """Make the last auto commit before a leave, if enabled, and wait for it."""
        if self.has_auto_commit and self._assignment is not None:
            committing = self._engine.submit(
                self._assignment.auto_commit_before_leave(self.positions())
            )
            with suppress(TimeoutError):
                committing.result(timeout_s)

    def positions(self) -> IdentifiedOffsets:
        """Return the positions in assigned partitions, as offsets to commit."""
        found = self._engine.identified_positions()
        return IdentifiedOffsets(
            {partition: OffsetAndMetadata(position) for partition, (position, _) in found.items()},
            {partition: topic_id for partition, (_, topic_id) in found.items() if topic_id},
        )

    # Offsets.

    def commit(self, offsets: OffsetsLike | None) -> Future[None]:
        """Start a commit of offsets; of the positions if ``offsets`` is None."""
        given = None if offsets is None else self._identified(to_offsets(offsets))
        owner = self.assignment
        if given is None and self._engine.is_empty() and not self.is_subscribed:
            raise NotSubscribedError(
                "the consumer has nothing to commit: call subscribe() or assign() first"
            )
        return self._engine.submit(owner.commit(self.positions() if given is None else given))

    def _identified(self, offsets: Offsets) -> IdentifiedOffsets:
        """Return offsets of the user, which belong to the topics that the consumer reads."""
        return IdentifiedOffsets(offsets, self._engine.topic_ids(offsets))

    def committed(self, partitions: list[TopicPartition]) -> Future[Offsets]:
        """Start to read the group's committed offsets."""
        return self._engine.submit(self._committed(self.assignment, partitions))

    async def _committed(
        self, assignment: GroupAssignment, partitions: list[TopicPartition]
    ) -> Offsets:
        async with self._engine.time_limit("the lookup of committed offsets"):
            return await assignment.committed_offsets(partitions)

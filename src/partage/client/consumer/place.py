"""A consumer's subscription as the user's thread sees it: the parts that need no waiting.

The group member is `group_assignment.GroupAssignment`, on the client's event loop. Before a
consumer delivers records, it asks here for due callbacks, runs them in its own way, and reports
them as done.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

from partage.bridge.consumer_protocol import PROTOCOL_TYPE, ConsumerProtocol
from partage.client.consumer.engine import Engine
from partage.client.consumer.errors import AlreadyAssigned, AlreadySubscribed
from partage.client.consumer.group import GroupOwner
from partage.client.consumer.listener import RebalanceListener
from partage.client.group.errors import NotSubscribed
from partage.client.group.offsets import OffsetAndMetadata, Offsets
from partage.client.metadata import TopicPartition
from partage.member.outcome import CallListener, ListenerCallback
from partage.member.settings import MemberSettings

#: Offsets to commit in the forms that users may pass.
Written = Mapping[TopicPartition | tuple[str, int], int | OffsetAndMetadata]

_UNSUBSCRIBED: Final = "unsubscribed"
_CLOSED: Final = "the consumer was closed"
_DRAINS: Final = "the consumer hands over its partitions before it leaves"


class Place:
    """The group subscription of one consumer; its `GroupAssignment` is created on first use."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._owner: GroupOwner | None = None
        self.listener: RebalanceListener | None = None
        self._wanted: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self.is_subscribed = False
        self._is_draining = False
        options = engine.options
        self._every_s = options.auto_commit_interval_ms / 1000
        self.commits_by_itself = options.enable_auto_commit
        self._commit_at_s = time.monotonic() + self._every_s
        self._embedding = ConsumerProtocol(options.assignors, options.client_rack)

    @property
    def owner(self) -> GroupOwner:
        """The member, and the group's offsets."""
        if self._owner is None:
            self._owner = self._engine.ask(self._made()).result()
            self._engine.owner = self._owner
        return self._owner

    async def _made(self) -> GroupOwner:
        options, client = self._engine.options, self._engine.cluster.options
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
            request_timeout_ms=client.request_timeout_ms,
            retry_backoff_ms=client.retries.backoff_ms,
            retry_backoff_max_ms=client.retries.backoff_max_ms,
        )
        return GroupOwner(self._engine.cluster, self._engine, settings, self._embedding)

    # User requests.

    def subscribe(
        self, topics: Iterable[str] | re.Pattern[str], listener: RebalanceListener | None
    ) -> None:
        """Subscribe; see `BaseConsumer.subscribe`."""
        wanted, pattern = subscription(topics)
        if not self.is_subscribed and not self._engine.is_idle():
            raise AlreadyAssigned
        owner = self.owner
        self.listener, self._wanted, self._pattern = listener, wanted, pattern
        self.is_subscribed, self._is_draining = True, False
        self._engine.ask(owner.subscribe(wanted, pattern)).result()

    def subscription(self) -> set[str]:
        """Return the subscribed topics."""
        if not self.is_subscribed:
            return set()
        return set(self._wanted if self._pattern is None else self.owner.topics)

    def begin_alone(self) -> None:
        """Switch to manual assignment; the group is used for its offsets only."""
        if self.is_subscribed and not self.is_drained:
            raise AlreadySubscribed
        self.is_subscribed = self._is_draining = False
        _ = self.owner

    def drain(self) -> None:
        """Begin to drain; see `BaseConsumer.drain`. It takes no lock."""
        self._is_draining = True
        if self.is_subscribed and self._owner is not None:
            self._owner.drain(_DRAINS)

    @property
    def is_drained(self) -> bool:
        """Whether all is handed over, as was asked for."""
        return self._is_draining and (self._owner is None or self._owner.is_out)

    def leave(self, *, closes: bool) -> GroupOwner | None:
        """Begin to leave; return the assignment to wait for, or None if not subscribed.

        The leave is complete when `GroupAssignment.has_left` is true.
        """
        if not self.is_subscribed or self._owner is None:
            return None
        self.is_subscribed = False
        self._engine.ask(self._owner.leave(_CLOSED if closes else _UNSUBSCRIBED)).result()
        return self._owner

    # Work that is due when the user polls.

    @property
    def due(self) -> CallListener | None:
        """The call that the listener is due."""
        return None if self._owner is None else self._owner.due

    def partitions_of(self, call: CallListener) -> list[TopicPartition]:
        """Return the partitions of a callback."""
        return [TopicPartition(*partition) for partition in call.partitions]

    def before(self, call: CallListener) -> Offsets:
        """Return the offsets to auto commit before a callback runs."""
        return (
            self.positions()
            if self.commits_by_itself and call.callback is ListenerCallback.REVOKED
            else {}
        )

    def commit_if_due(self) -> None:
        """Start an auto commit of the positions if its interval has passed.

        Call it when the user polls: then all records delivered before count as processed.
        """
        if not self.commits_by_itself or self._owner is None:
            return
        if time.monotonic() >= self._commit_at_s:
            self._commit_at_s = time.monotonic() + self._every_s
            self._engine.ask(self._owner.commit_quietly(self.positions()))

    def commit_last(self, timeout_s: float | None) -> None:
        """Make the last auto commit before a leave, if enabled, and wait for it."""
        if self.commits_by_itself and self._owner is not None:
            committing = self._engine.ask(self._owner.commit_last(self.positions()))
            with suppress(TimeoutError):
                committing.result(timeout_s)

    def positions(self) -> Offsets:
        """Return the positions in assigned partitions, as offsets to commit."""
        return {
            partition: OffsetAndMetadata(position)
            for partition, position in self._engine.positions().items()
        }

    # Offsets.

    def commit(self, offsets: Written | None) -> Future[None]:
        """Start a commit of offsets; of the positions if ``offsets`` is None."""
        owner = self.owner
        if offsets is None and self._engine.is_idle() and not self.is_subscribed:
            raise NotSubscribed(
                "the consumer has nothing to commit: call subscribe() or assign() first"
            )
        return self._engine.ask(
            owner.commit(self.positions() if offsets is None else offsets_of(offsets))
        )

    def committed(self, partitions: list[TopicPartition]) -> Future[Offsets]:
        """Start to read the group's committed offsets."""
        return self._engine.ask(self.owner.committed_offsets(partitions))


def subscription(
    topics: Iterable[str] | re.Pattern[str],
) -> tuple[frozenset[str], re.Pattern[str] | None]:
    """Return the topics, or the pattern, of a subscription.

    Raises:
        ValueError: ``topics`` is a single string, which is ambiguous, or empty.
    """
    if isinstance(topics, re.Pattern):
        return frozenset(), topics
    if isinstance(topics, str):
        raise ValueError(
            f"subscribe() takes a list, [{topics!r}], or a pattern, re.compile({topics!r})"
        )
    wanted = frozenset(topics)
    if not wanted:
        raise ValueError("subscribe() needs at least one topic; unsubscribe() leaves the group")
    return wanted, None


def offsets_of(written: Written) -> Offsets:
    """Return the offsets that a user wants to commit, in one form."""
    return {
        TopicPartition(*partition): offset
        if isinstance(offset, OffsetAndMetadata)
        else OffsetAndMetadata(offset)
        for partition, offset in written.items()
    }

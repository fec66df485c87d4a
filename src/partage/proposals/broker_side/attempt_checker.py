"""The checker of rebalances: attempts, their failures, and the assignment that they must have.

It follows the requests of a coordinator and their responses, not the machine's state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

import msgspec

from partage.model.topic_partition import TopicPartition
from partage.proposals.broker_side.events import BackoffTimer, Outcome
from partage.proposals.broker_side.purgatory import RequestKind
from partage.proposals.broker_side.records import thread_id
from partage.proposals.broker_side.settings import PushCoordinatorSettings, RebalanceMethod
from partage.proposals.broker_side.topic_count import TopicCount
from partage.proposals.machine import ConnectionId


def expected_threads(
    counts: Mapping[str, TopicCount], topics: Mapping[str, int]
) -> dict[str, set[TopicPartition]]:
    """Return the partitions of each thread of a group, by thread id.

    The sorted threads of a topic have consecutive partitions, and the first ones get the rest.

    Args:
        counts: The topics and threads of each consumer, by consumer id.
        topics: The partition count of each topic.
    """
    expected: dict[str, set[TopicPartition]] = {}
    for topic, partition_count in topics.items():
        threads = sorted(
            thread_id(name, number)
            for name, count in counts.items()
            for number in range(count.threads_of(topic))
        )
        for index, thread in enumerate(threads):
            share, rest = divmod(partition_count, len(threads))
            begin = index * share + min(index, rest)
            end = (index + 1) * share + min(index + 1, rest)
            partitions = {TopicPartition(topic, number) for number in range(begin, end)}
            if partitions:
                expected.setdefault(thread, set()).update(partitions)
    return expected


class _Request(msgspec.Struct):
    """A StopFetcher or StartFetcher request without a response."""

    attempt: int
    has_expired: bool = False


class _GroupAttempts(msgspec.Struct):
    """The attempts of a group.

    Attributes:
        current: The number of the current attempt; None if there is none.
        waiting: The consumers that have not answered the requests of its current phase.
        failures: Failed attempts since the last one that succeeded.
        is_backing_off: True if the next attempt is scheduled.
        has_given_up: True if the last rebalance failed in all attempts.
    """

    current: int | None = None
    waiting: set[ConnectionId] = msgspec.field(default_factory=set)
    failures: int = 0
    is_backing_off: bool = False
    has_given_up: bool = False


class AttemptChecker:
    """Follows the attempts of all groups.

    Args:
        settings: The settings of the coordinator.
    """

    def __init__(self, settings: PushCoordinatorSettings) -> None:
        self._settings = settings
        self._groups: dict[str, _GroupAttempts] = {}
        self._requests: dict[tuple[ConnectionId, RequestKind], deque[_Request]] = {}
        self._count = 0

    def _group(self, group_id: str) -> _GroupAttempts:
        return self._groups.setdefault(group_id, _GroupAttempts())

    @property
    def is_idle(self) -> bool:
        """True if no group has an attempt or backs off."""
        return not any(map(self.is_rebalancing, self._groups))

    def is_rebalancing(self, group_id: str) -> bool:
        """True if a group has an attempt or backs off."""
        group = self._group(group_id)
        return group.current is not None or group.is_backing_off

    def has_given_up(self, group_id: str) -> bool:
        """True if the last rebalance of a group failed in all attempts."""
        return self._group(group_id).has_given_up

    def on_requests(
        self, group_id: str, kind: RequestKind, connections: Iterable[ConnectionId]
    ) -> None:
        """Note requests to the consumers of a group, which are sent together."""
        group = self._group(group_id)
        if kind is RequestKind.STOP_FETCHER or group.current is None:
            self._count += 1
            group.current = self._count
        group.waiting = set(connections)
        group.is_backing_off = group.has_given_up = False
        for connection in group.waiting:
            self._requests.setdefault((connection, kind), deque()).append(_Request(group.current))

    def on_response(
        self,
        at_ms: int,
        group_id: str,
        connection: ConnectionId,
        kind: RequestKind,
        error_code: int,
        outcome: Outcome,
    ) -> None:
        """Check that exactly an error in the current attempt ends that attempt."""
        request = self._requests[connection, kind].popleft()
        group = self._group(group_id)
        if request.attempt != group.current or connection not in group.waiting:
            is_failed = dict(outcome.timers).get(BackoffTimer(group_id)) is not None
            is_failed |= group_id in outcome.failed_rebalances
            assert not is_failed, f"a response to an earlier attempt of {group_id} fails this one"
            return
        if error_code:
            self._check_failure(at_ms, group_id, outcome)
            return
        group.waiting.discard(connection)
        if not group.waiting and kind is RequestKind.START_FETCHER:
            group.current, group.failures = None, 0

    def on_expired(
        self,
        at_ms: int,
        group_id: str,
        connection: ConnectionId,
        kind: RequestKind,
        outcome: Outcome,
    ) -> None:
        """Check that a late response in the current attempt ends it."""
        request = next(each for each in self._requests[connection, kind] if not each.has_expired)
        request.has_expired = True
        if request.attempt == self._group(group_id).current:
            self._check_failure(at_ms, group_id, outcome)

    def _check_failure(self, at_ms: int, group_id: str, outcome: Outcome) -> None:
        group, settings = self._group(group_id), self._settings
        group.current, group.waiting = None, set()
        group.failures += 1
        has_failed = group_id in outcome.failed_rebalances
        backoff_ms = dict(outcome.timers).get(BackoffTimer(group_id))
        next_ms = at_ms + settings.rebalance_backoff_ms
        assert has_failed or backoff_ms == next_ms, f"{group_id} backs off until {backoff_ms}"
        if settings.rebalance_method is RebalanceMethod.STOP_FETCHERS:
            must_fail = group.failures > settings.rebalance_retries_max
            assert has_failed == must_fail, f"{group.failures} attempts of {group_id} failed"
        group.is_backing_off, group.has_given_up = not has_failed, has_failed
        if has_failed:
            group.failures = 0

    def on_backoff_over(self, group_id: str, *, has_begun: bool) -> None:
        """Note the end of a back-off. Without requests, no rebalance was necessary."""
        group = self._group(group_id)
        group.is_backing_off = False
        if not has_begun:
            group.failures = 0

    def on_loss(self, group_id: str, connection: ConnectionId, outcome: Outcome) -> None:
        """Note the loss of a consumer: an attempt fails, and does not count."""
        for kind in RequestKind:
            self._requests.pop((connection, kind), None)
        group = self._group(group_id)
        armed = dict(outcome.timers)
        if group.current is not None or group.is_backing_off:
            is_armed = armed.get(BackoffTimer(group_id)) is not None
            is_kept = group.is_backing_off and BackoffTimer(group_id) not in armed
            group.is_backing_off = is_armed or is_kept
        group.current, group.failures, group.waiting = None, 0, set()

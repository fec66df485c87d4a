"""The checker of a coordinator: it follows the events and outcomes of the machine.

It keeps a model of what was sent and received, and compares each outcome with it. In contrast to
`invariants` it does not read the state of the machine, so a wrong state cannot mislead it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

import msgspec

from partage.model.topic_partition import TopicPartition
from partage.proposals import machine
from partage.proposals.broker_side import events
from partage.proposals.broker_side.attempt_checker import AttemptChecker, expected_threads
from partage.proposals.broker_side.messages import (
    ClusterMetadataRequest,
    ClusterMetadataResponse,
    PartitionOffset,
    PingRequest,
    PingResponse,
    PushError,
    RegisterConsumerRequest,
    RegisterConsumerResponse,
    StartFetcherRequest,
    StartFetcherResponse,
    StopFetcherRequest,
    StopFetcherResponse,
)
from partage.proposals.broker_side.purgatory import RequestKind, WatcherTimer
from partage.proposals.broker_side.records import (
    ConsumedOffsetRecord,
    OwnerRecord,
    consumer_of,
    is_group_id,
    partition_name,
    partition_number,
)
from partage.proposals.broker_side.settings import PushCoordinatorSettings, RebalanceMethod
from partage.proposals.broker_side.topic_count import TopicCount, parse_topic_count
from partage.proposals.machine import ConnectionId
from partage.wire.types import Message

_KIND_OF_REQUEST: dict[type[Message], RequestKind] = {
    PingRequest: RequestKind.PING,
    StopFetcherRequest: RequestKind.STOP_FETCHER,
    StartFetcherRequest: RequestKind.START_FETCHER,
}
_KIND_OF_RESPONSE: dict[type[Message], RequestKind] = {
    PingResponse: RequestKind.PING,
    StopFetcherResponse: RequestKind.STOP_FETCHER,
    StartFetcherResponse: RequestKind.START_FETCHER,
}


class OpenRequest(msgspec.Struct):
    """A request without a response: when its watcher expires, and True if it has."""

    deadline_ms: int
    has_expired: bool = False


class KnownConsumer(msgspec.Struct, kw_only=True):
    """A registered consumer as the checker knows it.

    Attributes:
        id: Its id.
        group_id: Its group.
        count: Its topics and threads.
        session_timeout_ms: Its session timeout.
        next_ping_ms: When its next ping is due.
        failed_pings: Pings in a row whose watchers expired.
        waiting: Its requests without a response, by kind, the oldest first.
        owned: The partitions of its last StartFetcher request.
        is_started: True if no StopFetcher request followed that one.
        is_confirmed: True if it answered that one without an error.
    """

    id: str
    group_id: str
    count: TopicCount
    session_timeout_ms: int
    next_ping_ms: int
    failed_pings: int = 0
    waiting: dict[RequestKind, deque[OpenRequest]] = {}
    owned: frozenset[TopicPartition] = frozenset()
    is_started: bool = False
    is_confirmed: bool = False


class KnownPushGroup(msgspec.Struct, kw_only=True):
    """A group as the checker knows it.

    Attributes:
        offsets: The offsets that consumers reported for partitions that they own, or loaded ones.
        stored: The offsets in ZooKeeper.
        owners: The threads in ZooKeeper.
        sessions_ms: The session timeouts of their consumers.
        awaited: Earlier consumers that have not registered again.
        is_frozen: True if rebalancing is off.
        attempt: The consumers and topics when the current attempt began; None if there is none.
        is_backing_off: True while the next attempt is scheduled.
    """

    offsets: dict[TopicPartition, int] = {}
    stored: dict[TopicPartition, int] = {}
    owners: dict[TopicPartition, str] = {}
    sessions_ms: dict[TopicPartition, int] = {}
    awaited: set[str] = set()
    is_frozen: bool = False
    attempt: tuple[frozenset[ConnectionId], dict[str, int]] | None = None
    is_backing_off: bool = False


class PushCoordinatorChecker:
    """Follows a coordinator.

    It checks these rules:

    1. A registration gets the error of the document, or none if it is valid.
    2. Each consumer gets a ping every third of its session timeout. The ping counts those that
       failed before it.
    3. Each request has a watcher for two thirds of the session timeout, until its response. A
       response belongs to the oldest request of its kind.
    4. A consumer is closed exactly if more pings in a row failed than the maximum of retries, if it
       answers a request that it did not get, or if the coordinator rebalances by closing.
    5. Fetchers start only when all consumers of the group have stopped them. Each partition of the
       group's topics is started exactly once, in shares of threads that differ by one at most.
    6. Fetchers start from the last reported offsets, and these are stored before.
    7. The owners are recorded when all fetchers have started, and as they were assigned.
    8. Offsets are stored only as reported by owners. All of them are stored at the committer's
       interval, and when the group has lost its last consumer.
    9. A group does not rebalance while it is frozen or awaits earlier consumers. It awaits them for
       four thirds of their longest session timeout.
    10. Neither a response to a request of an earlier attempt nor its delay fails the current one.
        No event postpones the attempt after a back-off.
    11. An attempt ends at an error or a late response, and the next one follows after the back-off,
        up to the maximum of retries. Then the rebalance fails.
    12. While nothing is rebalanced, each group has the assignment for its consumers and the topics,
        and its owners in ZooKeeper with their session timeouts. A group without consumers has no
        owners.
    13. ClusterMetadata and StartFetcher have the current brokers.

    Args:
        settings: The settings of the coordinator.
    """

    def __init__(self, settings: PushCoordinatorSettings) -> None:
        self._settings = settings
        self._brokers = settings.brokers
        self._coordinator_id: int | None = None
        self._reset()

    def _reset(self) -> None:
        self._is_elected = False
        self._topics: dict[str, int] = {}
        self._consumers: dict[ConnectionId, KnownConsumer] = {}
        self._groups: dict[str, KnownPushGroup] = {}
        self._reasons: set[ConnectionId] = set()  # connections that the current event may close
        self._attempts = AttemptChecker(self._settings)
        self._ping_ms: int | None = None  # the deadline of the pings' timer

    def _group(self, group_id: str) -> KnownPushGroup:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = KnownPushGroup()
        return group

    def load(self, record: Any) -> None:
        """Note a record that the coordinator has loaded. A deleted node may be the only record."""
        if isinstance(record, OwnerRecord) and record.thread is None:
            partition = TopicPartition(record.topic, record.partition)
            group = self._group(record.group_id)
            group.owners.pop(partition, None)
            group.sessions_ms.pop(partition, None)
        else:
            self._store(record)

    def _store(self, record: Any) -> None:
        group = self._group(record.group_id)
        partition = TopicPartition(record.topic, record.partition)
        match record:
            case ConsumedOffsetRecord(offset=offset):
                group.offsets[partition] = group.stored[partition] = offset
            case OwnerRecord(thread=None):
                del group.owners[partition], group.sessions_ms[partition]
            case OwnerRecord(thread=str() as thread):
                group.owners[partition] = thread
                group.sessions_ms[partition] = record.session_timeout_ms

    def _of_group(self, group_id: str) -> dict[ConnectionId, KnownConsumer]:
        return {
            connection: each
            for connection, each in self._consumers.items()
            if each.group_id == group_id
        }

    def check(self, event: machine.Event, outcome: machine.CoordinatorOutcome[Any, Any]) -> None:
        """Check the outcome of an event.

        Raises:
            AssertionError: A rule does not hold.
        """
        assert isinstance(outcome, events.Outcome), f"unexpected {outcome}"
        self._reasons = set()
        match event:
            case machine.MessageReceived(connection=connection, message=message):
                self._on_message(event.at_ms, connection, message, outcome)
            case machine.ConnectionLost(connection=connection):
                self._remove(connection, outcome)
            case machine.TimerFired(key=WatcherTimer() as watcher):
                self._on_expired(event.at_ms, watcher, outcome)
            case machine.TimerFired(key=events.RegistrationTimer(group_id=group_id)):
                self._group(group_id).awaited.clear()
            case machine.TimerFired(key=events.BackoffTimer(group_id=group_id)):
                self._group(group_id).is_backing_off = False
            case machine.Elected(topics=topics):
                self._is_elected, self._topics = True, dict(topics)
                for group_id, group in self._groups.items():
                    group.awaited = {consumer_of(thread) for thread in group.owners.values()}
                    if group.awaited:
                        self._check_wait(event, outcome, group_id, group.sessions_ms.values())
            case machine.ClusterTopicsChanged(topics=topics):
                self._topics = dict(topics)
            case events.RebalancingSwitched(group_id=group_id, is_enabled=is_enabled):
                self._group(group_id).is_frozen = not is_enabled
            case events.BrokersChanged(brokers=brokers, coordinator_id=coordinator_id):
                self._brokers, self._coordinator_id = brokers, coordinator_id
        self._check_records(outcome)
        self._check_backoffs(outcome)
        self._check_closes(event, outcome)
        armed = Counter(
            (key.kind, key.connection, deadline_ms)
            for key, deadline_ms in outcome.timers
            if isinstance(key, WatcherTimer) and deadline_ms is not None
        )
        starts: dict[str, dict[ConnectionId, StartFetcherRequest]] = {}
        stops: dict[str, set[ConnectionId]] = {}
        for connection, message in outcome.sends:
            self._on_send(event, connection, message, armed)
            consumer = self._consumers.get(connection)
            if consumer is not None and isinstance(message, StopFetcherRequest):
                stops.setdefault(consumer.group_id, set()).add(connection)
            elif consumer is not None and isinstance(message, StartFetcherRequest):
                starts.setdefault(consumer.group_id, {})[connection] = message
        assert not +armed, f"watchers without a request: {armed}"
        if isinstance(event, machine.TimerFired) and isinstance(event.key, events.BackoffTimer):
            has_begun = event.key.group_id in stops or event.key.group_id in starts
            self._attempts.on_backoff_over(event.key.group_id, has_begun=has_begun)
        for group_id, stopped in stops.items():
            self._begin_attempt(group_id, stopped)
            self._attempts.on_requests(group_id, RequestKind.STOP_FETCHER, stopped)
        for group_id, requests in starts.items():
            self._check_assignment(group_id, requests)
            self._attempts.on_requests(group_id, RequestKind.START_FETCHER, requests)
        for group_id, group in self._groups.items():
            if not self._attempts.is_rebalancing(group_id):
                group.attempt = None
        if isinstance(event, machine.TimerFired):
            self._check_timer(event)
        self._check_ping_timer(event, outcome)
        self._check_idle(event)
        if isinstance(event, events.Resigned):
            assert not self._consumers, f"{self._consumers} stay connected"
            self._reset()

    # Messages

    def _on_message(
        self, at_ms: int, connection: ConnectionId, message: Message, outcome: events.Outcome
    ) -> None:
        answers = [sent for to, sent in outcome.sends if to == connection]
        consumer = self._consumers.get(connection)
        kind = _KIND_OF_RESPONSE.get(type(message))
        match message:
            case RegisterConsumerRequest():
                expected = self._registration_error(connection, message)
                errors = [
                    each.error_code
                    for each in answers
                    if isinstance(each, RegisterConsumerResponse)
                ]
                assert errors == [expected], f"a registration gets {errors}, not {expected}"
                if not expected:
                    self._add(at_ms, connection, message)
            case ClusterMetadataRequest():
                known = self._settings.broker_id if self._is_elected else self._coordinator_id
                error = PushError.COORDINATOR_NOT_AVAILABLE if known is None else PushError.NONE
                metadata = ClusterMetadataResponse(
                    error_code=error,
                    coordinator_id=-1 if known is None else known,
                    brokers_info=list(self._brokers),
                )
                assert answers == [metadata], f"{answers} are sent, not {metadata}"
            case _ if consumer is None or kind is None or not consumer.waiting.get(kind):
                self._reasons.add(connection)
                assert connection in outcome.closes, f"{message} was not expected"
                self._remove(connection, outcome)
            case _:
                consumer.waiting[kind].popleft()
                if kind is RequestKind.PING:
                    consumer.failed_pings = 0
                else:
                    code: int = getattr(message, "error_code", 0)
                    consumer.is_confirmed = not code and not consumer.waiting[kind]
                    self._attempts.on_response(
                        at_ms, consumer.group_id, connection, kind, code, outcome
                    )
                refused = self._report(consumer, getattr(message, "offset_info", None))
                assert outcome.refused_offsets == refused, f"{outcome.refused_offsets}: {refused}"

    def _registration_error(
        self, connection: ConnectionId, request: RegisterConsumerRequest
    ) -> PushError:
        if not self._is_elected:
            return PushError.COORDINATOR_NOT_AVAILABLE
        is_id = 1 <= len(request.consumer_id.encode()) <= 1_024
        if not is_group_id(request.group_id) or not is_id or connection in self._consumers:
            return PushError.INVALID_REGISTRATION
        if request.consumer_id in {each.id for each in self._of_group(request.group_id).values()}:
            return PushError.DUPLICATE_CONSUMER_ID
        if request.session_timeout_ms < self._settings.session_timeout_min_ms:
            return PushError.INVALID_SESSION_TIMEOUT
        try:
            parse_topic_count(request.topic_count)
        except ValueError:
            return PushError.INVALID_REGISTRATION
        is_known = request.auto_offset_rest in ("smallest", "largest")
        return PushError.NONE if is_known else PushError.INVALID_REGISTRATION

    def _add(self, at_ms: int, connection: ConnectionId, request: RegisterConsumerRequest) -> None:
        self._consumers[connection] = KnownConsumer(
            id=request.consumer_id,
            group_id=request.group_id,
            count=parse_topic_count(request.topic_count),
            session_timeout_ms=request.session_timeout_ms,
            next_ping_ms=at_ms + request.session_timeout_ms // 3,
        )
        self._group(request.group_id).awaited.discard(request.consumer_id)

    def _report(
        self, consumer: KnownConsumer, offsets: list[PartitionOffset] | None
    ) -> list[tuple[str, str, str]]:
        """Note reported offsets; return those of partitions that the consumer does not own."""
        group = self._group(consumer.group_id)
        refused = []
        for each in offsets or ():
            partition = TopicPartition(each.topic, partition_number(each.partition))
            if partition in consumer.owned and each.offset >= 0:
                group.offsets[partition] = each.offset
            else:
                refused.append((consumer.id, each.topic, each.partition))
        return refused

    # The end of consumers

    def _remove(self, connection: ConnectionId, outcome: events.Outcome) -> None:
        consumer = self._consumers.pop(connection, None)
        if consumer is not None:
            self._attempts.on_loss(consumer.group_id, connection, outcome)

    def _on_expired(self, at_ms: int, watcher: WatcherTimer, outcome: events.Outcome) -> None:
        consumer = self._consumers.get(watcher.connection)
        assert consumer is not None, f"{watcher} expires for no consumer"
        waiting = consumer.waiting.get(watcher.kind)
        assert waiting, f"{watcher} expires after the response"
        position = next((n for n, each in enumerate(waiting) if not each.has_expired), None)
        assert position is not None, f"{watcher} expires twice"
        deadline_ms = waiting[position].deadline_ms
        assert at_ms >= deadline_ms, f"{watcher} of an answered request expires: {deadline_ms}"
        waiting[position].has_expired = True
        is_stopping = bool(consumer.waiting.get(RequestKind.STOP_FETCHER))
        is_earlier = position < len(waiting) - 1 or (
            watcher.kind is RequestKind.START_FETCHER and is_stopping
        )
        if is_earlier and watcher.kind is not RequestKind.PING:
            armed = dict(outcome.timers)
            is_failed = armed.get(events.BackoffTimer(consumer.group_id)) is not None
            assert not is_failed, f"{watcher} of an earlier attempt fails the current one"
        if watcher.kind is RequestKind.PING:
            consumer.failed_pings += 1
            has_failed = consumer.failed_pings > self._settings.ping_retries_max
            is_closed = watcher.connection in outcome.closes
            assert has_failed == is_closed, f"{consumer.failed_pings} pings of {consumer.id} failed"
            if has_failed:
                self._reasons.add(watcher.connection)
        else:
            self._attempts.on_expired(
                at_ms, consumer.group_id, watcher.connection, watcher.kind, outcome
            )

    def _check_closes(self, event: machine.Event, outcome: events.Outcome) -> None:
        started = {
            connection: each for connection, each in self._consumers.items() if each.is_started
        }
        for connection in outcome.closes:
            self._on_close(event, connection, outcome)
        if isinstance(event, events.Resigned):
            return
        closed: dict[str, list[int]] = {}  # session timeouts by group
        for connection in outcome.closes:
            if connection in started and connection not in self._reasons:
                consumer = started.pop(connection)
                closed.setdefault(consumer.group_id, []).append(consumer.session_timeout_ms)
        for group_id, sessions_ms in closed.items():
            left = [each.id for each in self._of_group(group_id).values() if each.is_started]
            assert not left, f"the connections of {left} stay open"
            self._check_wait(event, outcome, group_id, sessions_ms)

    def _check_wait(
        self,
        event: machine.Event,
        outcome: events.Outcome,
        group_id: str,
        sessions_ms: Iterable[int],
    ) -> None:
        longest_ms = max(sessions_ms)
        end_ms = dict(outcome.timers).get(events.RegistrationTimer(group_id))
        expected_ms = event.at_ms + longest_ms + longest_ms // 3
        assert end_ms == expected_ms, f"{group_id} awaits consumers until {end_ms}: {expected_ms}"

    def _on_close(
        self, event: machine.Event, connection: ConnectionId, outcome: events.Outcome
    ) -> None:
        consumer = self._consumers.get(connection)
        is_closing = self._settings.rebalance_method is RebalanceMethod.CLOSE_CONNECTIONS
        is_expected = (
            connection in self._reasons or is_closing or isinstance(event, events.Resigned)
        )
        assert is_expected, f"connection {connection} was closed at {event}"
        if consumer is not None and connection not in self._reasons and is_closing:
            self._group(consumer.group_id).awaited.add(consumer.id)
        self._remove(connection, outcome)

    # Requests

    def _on_send(
        self,
        event: machine.Event,
        connection: ConnectionId,
        message: Message,
        armed: Counter[tuple[RequestKind, ConnectionId, int]],
    ) -> None:
        kind = _KIND_OF_REQUEST.get(type(message))
        if kind is None:
            return
        consumer = self._consumers.get(connection)
        assert consumer is not None, f"{message} is sent to no consumer"
        watcher = (kind, connection, event.at_ms + consumer.session_timeout_ms * 2 // 3)
        assert armed[watcher], f"{message} has no watcher of two thirds of the session"
        armed[watcher] -= 1
        match message:
            case PingRequest(num_retries=retries):
                third_ms = consumer.session_timeout_ms // 3
                assert event.at_ms >= consumer.next_ping_ms, f"{consumer.id} gets an early ping"
                assert retries == consumer.failed_pings, f"retry {retries} of {consumer.id}"
                missed = (event.at_ms - consumer.next_ping_ms) // third_ms
                consumer.next_ping_ms += third_ms * (missed + 1)
                if missed:  # the coordinator was stopped
                    consumer.next_ping_ms = min(consumer.next_ping_ms, event.at_ms + 1)
        assert getattr(message, "consumer_id", "") == consumer.id, f"{message} to {consumer.id}"
        if kind is not RequestKind.PING:
            consumer.is_started = kind is RequestKind.START_FETCHER
            consumer.is_confirmed = False
        consumer.waiting.setdefault(kind, deque()).append(OpenRequest(watcher[2]))

    def _begin_attempt(self, group_id: str, stopped: set[ConnectionId]) -> None:
        group = self._group(group_id)
        assert not group.awaited, f"{group_id} awaits {group.awaited}"
        assert group.attempt is not None or not group.is_frozen, f"{group_id} is frozen"
        consumers = self._of_group(group_id)
        assert stopped == consumers.keys(), f"{stopped} stop, of {consumers.keys()}"
        group.attempt = (frozenset(stopped), dict(self._topics))

    def _check_assignment(
        self, group_id: str, requests: dict[ConnectionId, StartFetcherRequest]
    ) -> None:
        """Check the StartFetcher requests of one group, which are sent together."""
        group = self._group(group_id)
        everyone = self._of_group(group_id)
        participants, topics = group.attempt or (frozenset(everyone), self._topics)
        consumers = {each: everyone[each] for each in participants}
        assert requests.keys() == consumers.keys(), f"{requests.keys()} start, of {consumers}"
        given: dict[str, set[TopicPartition]] = {}
        for connection, request in requests.items():
            consumer = consumers[connection]
            waiting = consumer.waiting.get(RequestKind.STOP_FETCHER)
            assert not waiting, f"{consumer.id} starts before it has stopped"
            assert request.brokers_info == list(self._brokers), f"{request} has other brokers"
            owned: set[TopicPartition] = set()
            for thread in request.ownership_info:
                assert consumer_of(thread.consumer_thread_id) == consumer.id, f"{thread}"
                of_thread = given.setdefault(thread.consumer_thread_id, set())
                for part in thread.assigned_parts:
                    partition = TopicPartition(part.topic, partition_number(part.partition))
                    name = partition_name(self._settings.broker_id, partition.partition)
                    assert part.partition == name, f"{part} is not {name}"
                    of_thread.add(partition)
                    offset = group.offsets.get(partition, -1)
                    assert part.offset == offset, f"{partition} starts at {part.offset}: {offset}"
                    assert group.stored.get(partition, -1) == offset, f"{offset} is not stored"
                owned |= of_thread
            consumer.owned = frozenset(owned)
        counts = {each.id: each.count for each in consumers.values()}
        wanted = expected_threads(counts, topics)
        assert given == wanted, f"{given} are started, not {wanted}"

    # Records and timers

    def _check_backoffs(self, outcome: events.Outcome) -> None:
        for key, deadline_ms in outcome.timers:
            if isinstance(key, events.BackoffTimer):
                group = self._group(key.group_id)
                is_postponed = deadline_ms is not None and group.is_backing_off
                assert not is_postponed, f"the next attempt of {key.group_id} is postponed"
                group.is_backing_off = deadline_ms is not None

    def _check_records(self, outcome: events.Outcome) -> None:
        for record in outcome.records:
            partition = TopicPartition(record.topic, record.partition)
            if isinstance(record, ConsumedOffsetRecord):
                known = self._group(record.group_id).offsets.get(partition)
                assert record.offset == known, f"{record.offset} is stored, not {known}"
            elif record.thread is not None:
                self._check_owner(record, partition)
            self._store(record)

    def _check_owner(self, record: OwnerRecord, partition: TopicPartition) -> None:
        consumers = self._of_group(record.group_id).values()
        for each in consumers:
            waiting = each.waiting.get(RequestKind.START_FETCHER)
            assert not waiting, f"{partition} gets an owner before {each.id} has started"
        owner = next((c for c in consumers if c.id == consumer_of(record.thread or "")), None)
        assert owner is not None, f"{record.thread} of no consumer owns {partition}"
        assert partition in owner.owned, f"{record.thread} was not assigned {partition}"
        assert record.session_timeout_ms == owner.session_timeout_ms, f"{record}"

    def _check_timer(self, event: machine.TimerFired) -> None:
        match event.key:
            case events.CommitTimer():
                for group_id, group in self._groups.items():
                    lost = group.offsets.items() - group.stored.items()
                    assert not lost, f"the committer of {group_id} leaves {lost} out"
            case events.PingTimer():
                late = [c.id for c in self._consumers.values() if c.next_ping_ms < event.at_ms]
                assert not late, f"{late} get no ping"

    def _check_ping_timer(self, event: machine.Event, outcome: events.Outcome) -> None:
        if isinstance(event, machine.TimerFired) and event.key == events.PingTimer():
            self._ping_ms = None
        self._ping_ms = dict(outcome.timers).get(events.PingTimer(), self._ping_ms)
        if self._consumers:
            next_ms = min(each.next_ping_ms for each in self._consumers.values())
            assert self._ping_ms == next_ms, f"pings are sent at {self._ping_ms}, not {next_ms}"

    def _check_idle(self, event: machine.Event) -> None:
        """Check the groups if no attempt is in progress, unless the event was about pings."""
        match event:
            case events.Resigned() | machine.MessageReceived(message=PingResponse()):
                return
            case machine.TimerFired(key=events.PingTimer() | events.CommitTimer()):
                return
        if not self._is_elected:
            return
        for group_id, group in self._groups.items():
            has_consumers = any(each.group_id == group_id for each in self._consumers.values())
            if not has_consumers and not group.awaited:
                assert not group.owners, f"{group_id} has owners and no consumers: {group.owners}"
                lost = group.offsets.items() - group.stored.items()
                assert not lost, f"{group_id} has no consumers, and {lost} is not stored"
        is_closing = self._settings.rebalance_method is RebalanceMethod.CLOSE_CONNECTIONS
        if not self._attempts.is_idle or is_closing:
            return
        for group_id, group in self._groups.items():
            may_rebalance = not group.is_frozen and not group.awaited
            if may_rebalance and not self._attempts.has_given_up(group_id):
                self._check_assigned(group_id, group)

    def _check_assigned(self, group_id: str, group: KnownPushGroup) -> None:
        consumers = self._of_group(group_id).values()
        wanted = expected_threads({each.id: each.count for each in consumers}, self._topics)
        owners: dict[str, set[TopicPartition]] = {}
        for partition, thread in group.owners.items():
            owners.setdefault(thread, set()).add(partition)
        assert owners == wanted, f"{group_id} has the owners {owners}, not {wanted}"
        sessions_ms = {each.id: each.session_timeout_ms for each in consumers}
        for partition, thread in group.owners.items():
            known_ms = group.sessions_ms[partition]
            assert known_ms == sessions_ms[consumer_of(thread)], f"{thread} has {known_ms} ms"
        for each in consumers:
            threads = [parts for thread, parts in wanted.items() if consumer_of(thread) == each.id]
            expected = frozenset().union(*threads)
            assert each.is_confirmed or not each.is_started, f"{each.id} may have started"
            owned = each.owned if each.is_started else frozenset()
            assert owned == expected, f"{each.id} reads {owned}, not {expected}"

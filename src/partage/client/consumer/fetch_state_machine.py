"""The fetch state machine of a consumer: positions, planned fetches, and effects of answers.

It is synchronous and does no I/O. The shell asks for work, does it, and reports results. There are
three kinds of work: offsets to look up (`lookups`), fetches to send (`fetches`), and records to
deliver (`collect`). All work is done under a partition's `DeliveryPermit`. A result under a revoked
permit is dropped, so a seek, a pause or the loss of a partition never waits for pending requests.

Rules for fetches. A broker has at most one pending fetch; the next one is sent while the records of
the last are delivered.

- A partition is fetched from its leader, or from the follower that the leader prefers (KIP-392).
- A partition is fetched while less than ``partition_bytes`` of it are buffered.
- A broker gets no fetch while one of its partitions has enough. Otherwise a long poll for the other
  partitions, which may be empty, would block the busy one once it is drained (KAFKA-17182).
- Buffered plus requested data stays below ``buffer_bytes``. Brokers may exceed it, because they
  send at least one batch of any size (KIP-74). Paused partitions give up their buffers first.
- Partitions that were served longest ago come first, in requests and in deliveries.
- Brokers that were asked longest ago get the room first. Otherwise a broker without new records
  could take all of it with each of its long polls.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from partage.client.consumer.errors import (
    NoOffsetForPartitionError,
    NotAssignedError,
    OffsetOutOfRangeError,
    TopicRecreatedError,
)
from partage.client.consumer.fetch_plan import (
    FetchedData,
    FetchResult,
    MayDeliver,
    OffsetLookup,
    OutOfRange,
    PartitionFetch,
    PermanentFailure,
    Placement,
    PlannedFetch,
    RecordRange,
    RetryLater,
)
from partage.client.consumer.partition_state import (
    DeliveryPermit,
    FetchState,
    ResetTarget,
    TopicPartitionState,
)
from partage.client.read_replica import ReadReplica
from partage.model.topic_partition import TopicPartition

__all__ = [
    "FetchResult",
    "FetchStateMachine",
    "FetchedData",
    "OffsetLookup",
    "OutOfRange",
    "PartitionFetch",
    "PermanentFailure",
    "Placement",
    "PlannedFetch",
    "RecordRange",
    "RetryLater",
]

log = logging.getLogger(__name__)

#: Time until the next look at the metadata of another topic than the assigned one.
_OTHER_TOPIC_RETRY_MS: Final = 500

#: Log messages when ``auto_offset_reset`` is applied, by error.
_RESET_REASONS: Final[Mapping[type, str]] = {
    OffsetOutOfRangeError: "position is out of range; applying auto_offset_reset",
    TopicRecreatedError: "topic was deleted and created again; applying auto_offset_reset",
}


class FetchStateMachine:
    """The fetch state of a consumer's partitions.

    Methods with partitions raise `NotAssignedError` for those that are not assigned.

    Args:
        policy: The start position without an offset; None to raise an error instead.
        partition_bytes: ``max_partition_fetch_bytes``.
        fetch_bytes: ``fetch_max_bytes``.
        buffer_bytes: ``buffer_bytes_max``.
        replica_lifetime_ms: ``metadata_max_age_ms``; see `ReadReplica`.

    Attributes:
        awaits_delivery: True if, since the last call of `fetches` and `lookups`, a delivery or the
            return of records may allow work that could not start then. Other deliveries need no
            check for work: each broker with data to fetch has a pending fetch, and its end is the
            next check.
    """

    def __init__(
        self,
        *,
        policy: ResetTarget | None,
        partition_bytes: int,
        fetch_bytes: int,
        buffer_bytes: int,
        replica_lifetime_ms: int,
    ) -> None:
        self._policy = policy
        self._replica_lifetime_ms = replica_lifetime_ms
        self._partition_bytes = partition_bytes
        self._fetch_bytes = fetch_bytes
        self._buffer_bytes = buffer_bytes
        self._states: dict[TopicPartition, TopicPartitionState] = {}  # least recently served first
        self._in_flight_bytes: dict[int, int] = {}  # requested bytes, by broker
        self._last_fetches: dict[int, int] = {}  # serials of the last fetches, by broker
        self._fetch_serial = 0
        self._outdated: set[TopicPartition] = set()  # see `pop_outdated`
        self.awaits_delivery = False

    # Assigned partitions.

    def __len__(self) -> int:
        return len(self._states)

    @property
    def owned(self) -> list[TopicPartition]:
        """The assigned partitions, sorted."""
        return sorted(self._states)

    @property
    def paused(self) -> list[TopicPartition]:
        """The paused partitions, sorted."""
        return sorted(p for p, state in self._states.items() if state.is_paused)

    @property
    def buffered_bytes(self) -> int:
        """Bytes fetched and not delivered yet."""
        return sum(state.buffered_bytes for state in self._states.values())

    def add_partitions(
        self,
        partitions: Iterable[TopicPartition],
        topic_ids: Mapping[TopicPartition, bytes] = MappingProxyType({}),
    ) -> None:
        """Add partitions; those that are assigned already stay unchanged.

        Args:
            partitions: The partitions.
            topic_ids: The ids of their topics, if the coordinator assigned ids. Another topic of
                the same name is not read.
        """
        for partition in partitions:
            if partition not in self._states:
                replica = ReadReplica(self._replica_lifetime_ms)
                topic_id = topic_ids.get(partition)
                self._states[partition] = TopicPartitionState(partition, replica, topic_id)

    def remove_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions and revoke their permits; ignore those that are not assigned."""
        for partition in partitions:
            state = self._states.pop(partition, None)
            if state is not None:
                state.permit.is_revoked = True

    def state(self, partition: TopicPartition) -> TopicPartitionState:
        """Return the state of a partition."""
        state = self._states.get(partition)
        if state is None:
            raise NotAssignedError([partition], len(self._states))
        return state

    def states(self, partitions: Iterable[TopicPartition]) -> list[TopicPartitionState]:
        """Return the states of partitions; `NotAssignedError` names all that are not assigned."""
        requested = list(partitions)
        missing = [partition for partition in requested if partition not in self._states]
        if missing:
            raise NotAssignedError(missing, len(self._states))
        return [self._states[partition] for partition in requested]

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset after the last delivered record; None while it is looked up."""
        state = self.state(partition)
        if state.fetch_state is not FetchState.FETCHING:
            return None
        return (
            state.position
            if state.permit.delivered_offset is None
            else state.permit.delivered_offset
        )

    def topic_id(self, partition: TopicPartition) -> bytes | None:
        """Return the id of the topic to which the position belongs.

        It is None if it is not known, or if the partition is not assigned.
        """
        state = self._states.get(partition)
        topic_id = None if state is None else state.topic_id
        return topic_id if topic_id and any(topic_id) else None

    def is_topic_replaced(self, partition: TopicPartition, topic_id: bytes) -> bool:
        """True if the partition is known to belong to another topic than the one of this id."""
        state = self._states.get(partition)
        return state is not None and (
            state.topic_id != topic_id
            or isinstance(state.position_error or state.error, TopicRecreatedError)
        )

    # User requests.

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at an offset, which need not exist yet."""
        self.state(partition).restart(FetchState.FETCHING, position=offset)

    def reset(self, partitions: Iterable[TopicPartition], to: ResetTarget) -> None:
        """Continue at an offset that must be looked up."""
        for state in self.states(partitions):
            state.restart(FetchState.AWAIT_RESET, reset=to)

    def pause(self, partitions: Iterable[TopicPartition], *, paused: bool = True) -> None:
        """Pause or resume delivery; fetched records are kept."""
        for state in self.states(partitions):
            state.is_paused = state.permit.is_paused = paused

    # Offset lookups.

    def lookups(self, placed: Container[TopicPartition], now_ms: int) -> list[OffsetLookup]:
        """Return the lookups to start; `lookup_succeeded` or `lookup_failed` must follow for each.

        ``placed`` are the partitions with a known leader: lookups by time or of an end need one.
        """
        wanted = []
        for state in self._states.values():
            if (
                state.position_error is not None
                and not state.chunks
                and state.permit.delivered_offset is None
            ):
                log.warning(
                    "%s-%d: %s", *state.partition, _RESET_REASONS[type(state.position_error)]
                )
                state.restart(FetchState.AWAIT_RESET, reset=self._policy)
            is_due = not state.is_in_flight and state.error is None and state.retry_at_ms <= now_ms
            is_placed = state.fetch_state is FetchState.INITIALIZING or state.partition in placed
            if state.fetch_state is not FetchState.FETCHING and is_due and is_placed:
                state.is_in_flight = True
                wanted.append(OffsetLookup(state.permit, state.reset))
        return wanted

    def lookup_succeeded(self, lookup: OffsetLookup, offset: int | None) -> None:
        """Handle the offset of a lookup; None means that there is no committed offset."""
        state = self._current(lookup.permit)
        if state is None:
            return
        state.is_in_flight = False
        if offset is not None:
            state.set_position(offset)
        elif self._policy is not None:
            state.restart(FetchState.AWAIT_RESET, reset=self._policy)
        else:
            state.error = NoOffsetForPartitionError(state.partition)

    def lookup_failed(self, lookup: OffsetLookup, answer: RetryLater | PermanentFailure) -> None:
        """Handle a failed lookup."""
        state = self._current(lookup.permit)
        if state is not None:
            state.is_in_flight = False
            if isinstance(answer, PermanentFailure):
                state.error = answer.error
            else:
                state.retry_at_ms, state.last_error = answer.at_ms, answer.error

    def note_failures(self, errors: Mapping[str, Exception]) -> None:
        """Note why the positions in some topics are not known yet, by topic."""
        for partition in self._states:
            if partition.topic in errors:
                self.note_lookup_failure(partition, errors[partition.topic])

    def note_lookup_failure(self, partition: TopicPartition, error: Exception) -> None:
        """Note why the position in a partition is not known yet."""
        state = self._states.get(partition)
        if state is not None and state.fetch_state is not FetchState.FETCHING:
            state.last_error = error

    # Fetches.

    @property
    def owned_topics(self) -> set[str]:
        """The topics of the assigned partitions."""
        return {partition.topic for partition in self._states}

    def topics(self) -> set[str]:
        """Return the topics whose leaders are needed."""
        return {
            p.topic for p, s in self._states.items() if s.fetch_state is not FetchState.INITIALIZING
        }

    def fetches(
        self, placements: Mapping[TopicPartition, Placement], now_ms: int
    ) -> list[PlannedFetch]:
        """Return the fetches to send now, at most one for each broker without a pending one."""
        by_broker: dict[int, list[PartitionFetch]] = {}
        satisfied: set[int] = set()
        for state in self._states.values():
            placement = placements.get(state.partition)
            if placement is None or not self._may_fetch(state, placement, now_ms):
                continue
            broker_id = self._select_broker(state, placement, now_ms)
            if broker_id is None:
                continue
            if state.buffered_bytes >= self._partition_bytes:
                satisfied.add(broker_id)
            elif state.retry_at_ms <= now_ms and broker_id not in self._in_flight_bytes:
                wanted = PartitionFetch(state.permit, state.fetch_offset, placement, broker_id)
                by_broker.setdefault(broker_id, []).append(wanted)
        fetches = []
        for broker_id in sorted(by_broker, key=lambda broker: self._last_fetches.get(broker, 0)):
            group = by_broker[broker_id]
            room = 0 if broker_id in satisfied else self._available_bytes(len(group))
            if room > 0:
                fetches.append(PlannedFetch(broker_id, tuple(group), room))
                self._in_flight_bytes[broker_id] = room
                self._fetch_serial += 1
                self._last_fetches[broker_id] = self._fetch_serial
                for one in group:
                    self._states[one.permit.partition].is_in_flight = True
        asked = self._in_flight_bytes.keys()
        self.awaits_delivery = not (by_broker.keys() | satisfied) <= asked or any(
            state.position_error is not None for state in self._states.values()
        )
        return fetches

    def pop_outdated(self) -> set[TopicPartition]:
        """Return the partitions that wait for new metadata, since the last call.

        The leader preferred a replica that the metadata lists as offline or does not list. The
        replica is dropped: with the next metadata, the partition is read from the leader. Or the
        metadata has another topic of the same name than the coordinator has assigned.
        """
        outdated, self._outdated = self._outdated, set()
        return outdated

    def partition_answered(self, wanted: PartitionFetch, answer: FetchResult, now_ms: int) -> None:
        """Handle the result of one partition of a fetch."""
        state = self._current(wanted.permit)
        if state is None:
            return
        state.is_in_flight = False
        # The buffer was given up after this fetch was sent.
        if state.fetch_offset != wanted.offset:
            return
        match answer:
            case FetchedData(part, ends, preferred_replica):
                state.is_confirmed = True
                state.read_replica.prefer(preferred_replica, wanted.placement.leadership, now_ms)
                state.log_offsets = ends
                state.retry_at_ms = 0
                if part is not None:
                    state.chunks.append(part)
                    state.buffered_bytes += part.size
                    state.fetch_offset = part.to_offset
                    if state.permit.delivered_offset is None:
                        _skip_empty_chunks(state)
            case RetryLater(at_ms, keeps_replica):
                state.retry_at_ms = at_ms
                if not keeps_replica:
                    state.read_replica.clear()
            case PermanentFailure(error):
                state.error = error
                state.read_replica.clear()
            case OutOfRange() if wanted.is_from_follower:
                # A follower may be behind its leader: only the leader knows the offsets.
                state.read_replica.clear()
                log.debug(
                    "offset is out of range on a follower, asking the leader: partition=%s "
                    "offset=%d broker=%d",
                    state.partition,
                    wanted.offset,
                    wanted.broker_id,
                )
            case OutOfRange():
                self._set_position_error(
                    state, OffsetOutOfRangeError(state.partition, state.fetch_offset)
                )

    def fetch_done(self, fetch: PlannedFetch) -> None:
        """Handle the end of a fetch, with any result."""
        self._in_flight_bytes.pop(fetch.broker_id, None)
        for wanted in fetch.partitions:
            state = self._current(wanted.permit)
            if state is not None:
                state.is_in_flight = False

    def retry_at_ms(self, now_ms: int) -> int | None:
        """Return the next retry time after ``now_ms``, or None."""
        waiting = (state.retry_at_ms for state in self._states.values())
        return min((at_ms for at_ms in waiting if at_ms > now_ms), default=None)

    # Deliveries.

    def collect(
        self,
        records_max: int | None,
        may_deliver: MayDeliver,
        *,
        parts_max: int | None = None,
    ) -> list[RecordRange]:
        """Return at most ``records_max`` records as ranges, and advance the positions past them."""
        taken: list[RecordRange] = []
        left = records_max
        for state in list(self._states.values()):
            if not state.is_deliverable or not may_deliver(state.partition):
                continue
            while _skip_empty_chunks(state):
                if (left is not None and left <= 0) or len(taken) == parts_max:
                    break
                one = _take_from_first_chunk(state, left)
                taken.append(one)
                if left is not None:
                    # A range has at most as many records as offsets; compaction only removes
                    # records.
                    left -= one.to_offset - one.from_offset
                if len(taken) == parts_max:
                    break  # a lent range may come back, so the position stays at its end
            if taken and taken[-1].permit is state.permit:
                self._states[state.partition] = self._states.pop(state.partition)
        return taken

    def put_back(self, taken: RecordRange, from_offset: int) -> None:
        """Put back the last range of a partition, or the rest of it, from an offset on.

        It has no effect if the position has changed since.
        """
        state = self._current(taken.permit)
        if state is None:
            return
        if state.position == taken.to_offset and from_offset < taken.to_offset:
            state.position = taken.chunk.from_offset = from_offset
            if not state.chunks or state.chunks[0] is not taken.chunk:
                # The data after this range may have been dropped.
                taken.chunk.to_offset = taken.to_offset
                state.chunks.appendleft(taken.chunk)
                state.buffered_bytes += taken.chunk.size
        _skip_empty_chunks(state)  # they were kept while the range was delivered

    def deliver_last(self, partition: TopicPartition) -> None:
        """Let the next `collect` begin with the other partitions."""
        state = self._states.pop(partition, None)
        if state is not None:
            self._states[partition] = state

    def set_error(self, partitions: Iterable[TopicPartition], error: Exception) -> None:
        """Set an error to raise to the user."""
        for partition in partitions:
            state = self._states.get(partition)
            if state is not None and state.error is None:
                state.error = error

    def pop_error(self, partition: TopicPartition | None = None) -> Exception | None:
        """Return and clear the next error to raise (of one partition); work is then retried."""
        for state in self._states.values() if partition is None else [self.state(partition)]:
            is_due = partition is not None or not state.is_paused
            if state.error is not None and not state.chunks and is_due:
                error, state.error = state.error, None
                return error
        return None

    def is_ready(self, may_deliver: MayDeliver) -> bool:
        """True if there are deliverable records or an error to raise."""
        return any(
            may_deliver(state.partition) if state.chunks else state.error is not None
            for state in self._states.values()
            if not state.is_paused
        )

    def _current(self, lease: DeliveryPermit) -> TopicPartitionState | None:
        state = self._states.get(lease.partition)
        return state if state is not None and state.permit is lease else None

    def _may_fetch(self, state: TopicPartitionState, placement: Placement, now_ms: int) -> bool:
        """True if the partition may be fetched; also detect a topic that was created again."""
        if state.fetch_state is not FetchState.FETCHING or state.is_paused:
            return False
        if state.error is not None or state.position_error is not None:
            return False
        if state.topic_id is None:
            state.topic_id = placement.topic_id
        elif state.topic_id != placement.topic_id and any(placement.topic_id):
            if state.assigned_id is None:
                return self._may_fetch_from_successor(state, placement)
            if state.retry_at_ms <= now_ms:  # the metadata is old, or the assignment
                self._outdated.add(state.partition)
                state.retry_at_ms = now_ms + _OTHER_TOPIC_RETRY_MS
            return False
        return not state.is_in_flight

    def _may_fetch_from_successor(self, state: TopicPartitionState, placement: Placement) -> bool:
        """True if the position may be used in another topic of the same name.

        Without a successful fetch, the former metadata may have been older than the position, which
        then belongs to the new topic.
        """
        if state.is_confirmed:
            error = TopicRecreatedError(state.partition, state.fetch_offset)
            self._set_position_error(state, error)
        elif not state.is_chosen:
            state.look_up_again()
        elif not state.is_in_flight:
            state.topic_id = placement.topic_id
            return True
        return False

    def _select_broker(
        self, state: TopicPartitionState, placement: Placement, now_ms: int
    ) -> int | None:
        """Return the broker to fetch from; None if the metadata must be refreshed before that."""
        broker_id = state.read_replica.select(placement.leadership, now_ms)
        if broker_id == placement.leadership.leader_id or broker_id in placement.online_replicas:
            return broker_id
        state.read_replica.clear()
        self._outdated.add(state.partition)
        return None

    def _set_position_error(
        self, state: TopicPartitionState, why: OffsetOutOfRangeError | TopicRecreatedError
    ) -> None:
        if self._policy is None:
            state.error = why
        else:
            state.position_error = why
            self.awaits_delivery = True

    def _available_bytes(self, partitions: int) -> int:
        """Return how many bytes a fetch of this many partitions may request."""
        taken = self.buffered_bytes + sum(self._in_flight_bytes.values())
        if taken >= self._buffer_bytes:
            for state in self._states.values():
                if state.is_paused and state.chunks:
                    taken -= state.buffered_bytes
                    state.drop_chunks()
        wanted = min(self._fetch_bytes, partitions * self._partition_bytes)
        return min(self._buffer_bytes - taken, wanted)


def _skip_empty_chunks(state: TopicPartitionState) -> bool:
    """Advance past leading chunks without records; return True if any chunk is left."""
    while state.chunks and state.chunks[0].content is None:
        state.position = state.chunks.popleft().to_offset
    return bool(state.chunks)


def _take_from_first_chunk(state: TopicPartitionState, records_max: int | None) -> RecordRange:
    """Remove and return the first chunk of a partition, or its first ``records_max`` offsets."""
    part = state.chunks[0]
    begin, end = part.from_offset, part.to_offset
    if records_max is not None and end - begin > records_max:
        end = part.from_offset = begin + records_max
    else:
        state.chunks.popleft()
        state.buffered_bytes -= part.size
    state.position = end
    return RecordRange(state.permit, part, begin, end)

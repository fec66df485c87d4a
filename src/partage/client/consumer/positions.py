"""The fetch state machine of a consumer: positions, planned fetches, and effects of answers.

It is synchronous and does no I/O. The shell asks for work, does it, and reports results. There are
three kinds of work: offsets to look up (`lookups`), fetches to send (`fetches`), and records to
deliver (`collect`). All work is done under a partition's `DeliveryPermit`. A result under a revoked
permit is dropped, so a seek, a pause or the loss of a partition never waits for pending requests.

Rules for fetches. A leader has at most one pending fetch; the next one is sent while the records of
the last are delivered.

- A partition is fetched while less than ``partition_bytes`` of it are buffered.
- A leader gets no fetch while one of its partitions has enough. Otherwise a long poll for the other
  partitions, which may be empty, would block the busy one once it is drained (KAFKA-17182).
- Buffered plus requested data stays below ``buffer_bytes``. Brokers may exceed it, because they
  send at least one batch of any size (KIP-74). Paused partitions give up their buffers first.
- Partitions that were served longest ago come first, in requests and in deliveries.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from typing import Final

from partage.client.consumer.asking import (
    Answer,
    Failed,
    Fetch,
    Got,
    Lookup,
    MayDeliver,
    OutOfRange,
    Placement,
    Taken,
    TryAgain,
    Wanted,
)
from partage.client.consumer.errors import (
    NoOffset,
    NotAssigned,
    OffsetOutOfRange,
    TopicRecreated,
)
from partage.client.consumer.state import Lease, PartitionState, Phase, ResetTo
from partage.client.metadata import TopicPartition

__all__ = [
    "Answer",
    "Failed",
    "Fetch",
    "Got",
    "Lookup",
    "OutOfRange",
    "Placement",
    "Positions",
    "Taken",
    "TryAgain",
    "Wanted",
]

log = logging.getLogger(__name__)


#: Log messages when ``auto_offset_reset`` is applied, by error.
_LOST: Final[Mapping[type, str]] = {
    OffsetOutOfRange: "position is out of range; applying auto_offset_reset",
    TopicRecreated: "topic was deleted and created again; applying auto_offset_reset",
}


class Positions:
    """The fetch state of a consumer's partitions.

    Methods with partitions raise `NotAssignedError` for those that are not assigned.

    Args:
        policy: The start position without an offset; None to raise an error instead.
        partition_bytes: ``max_partition_fetch_bytes``.
        fetch_bytes: ``fetch_max_bytes``.
        buffer_bytes: ``buffer_bytes_max``.
    """

    def __init__(
        self, *, policy: ResetTo | None, partition_bytes: int, fetch_bytes: int, buffer_bytes: int
    ) -> None:
        self._policy = policy
        self._partition_bytes = partition_bytes
        self._fetch_bytes = fetch_bytes
        self._buffer_bytes = buffer_bytes
        self._states: dict[TopicPartition, PartitionState] = {}  # least recently served first
        self._asked: dict[int, int] = {}  # requested bytes, by leader

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
        return sum(state.size for state in self._states.values())

    def own(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions; those that are assigned already stay unchanged."""
        for partition in partitions:
            if partition not in self._states:
                self._states[partition] = PartitionState(partition)

    def disown(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions and revoke their permits; ignore those that are not assigned."""
        for partition in partitions:
            state = self._states.pop(partition, None)
            if state is not None:
                state.lease.is_over = True

    def state(self, partition: TopicPartition) -> PartitionState:
        """Return the state of a partition."""
        state = self._states.get(partition)
        if state is None:
            raise NotAssigned([partition], len(self._states))
        return state

    def check(self, partitions: Iterable[TopicPartition]) -> list[PartitionState]:
        """Return the states of partitions; `NotAssignedError` names all that are not assigned."""
        asked = list(partitions)
        missing = [partition for partition in asked if partition not in self._states]
        if missing:
            raise NotAssigned(missing, len(self._states))
        return [self._states[partition] for partition in asked]

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset after the last delivered record; None while it is looked up."""
        state = self.state(partition)
        if state.phase is not Phase.READING:
            return None
        return state.position if state.lease.handed is None else state.lease.handed

    # User requests.

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at an offset, which need not exist yet."""
        self.state(partition).renew(Phase.READING, position=offset)

    def reset(self, partitions: Iterable[TopicPartition], to: ResetTo) -> None:
        """Continue at an offset that must be looked up."""
        for state in self.check(partitions):
            state.renew(Phase.RESET, reset=to)

    def pause(self, partitions: Iterable[TopicPartition], *, paused: bool = True) -> None:
        """Pause or resume delivery; fetched records are kept."""
        for state in self.check(partitions):
            state.is_paused = state.lease.is_paused = paused

    # Offset lookups.

    def lookups(self, placed: Container[TopicPartition], now_ms: int) -> list[Lookup]:
        """Return the lookups to start; `lookup_succeeded` or `lookup_failed` must follow for each.

        ``placed`` are the partitions with a known leader: lookups by time or of an end need one.
        """
        wanted = []
        for state in self._states.values():
            if state.lost is not None and not state.parts and state.lease.handed is None:
                log.warning("%s-%d: %s", *state.partition, _LOST[type(state.lost)])
                state.renew(Phase.RESET, reset=self._policy)
            is_due = not state.is_asked and state.trouble is None and state.retry_at_ms <= now_ms
            is_placed = state.phase is Phase.COMMITTED or state.partition in placed
            if state.phase is not Phase.READING and is_due and is_placed:
                state.is_asked = True
                wanted.append(Lookup(state.lease, state.reset))
        return wanted

    def found(self, lookup: Lookup, offset: int | None) -> None:
        """Handle the offset of a lookup; None means that there is no committed offset."""
        state = self._current(lookup.lease)
        if state is None:
            return
        state.is_asked = False
        if offset is not None:
            state.settle(offset)
        elif self._policy is not None:
            state.renew(Phase.RESET, reset=self._policy)
        else:
            state.trouble = NoOffset(state.partition)

    def not_found(self, lookup: Lookup, answer: TryAgain | Failed) -> None:
        """Handle a failed lookup."""
        state = self._current(lookup.lease)
        if state is not None:
            state.is_asked = False
            if isinstance(answer, Failed):
                state.trouble = answer.error
            else:
                state.retry_at_ms = answer.at_ms

    # Fetches.

    def topics(self) -> set[str]:
        """Return the topics whose leaders are needed."""
        return {p.topic for p, s in self._states.items() if s.phase is not Phase.COMMITTED}

    def fetches(self, placements: Mapping[TopicPartition, Placement], now_ms: int) -> list[Fetch]:
        """Return the fetches to send now, at most one for each leader without a pending one."""
        by_leader: dict[int, list[Wanted]] = {}
        satisfied: set[int] = set()
        for state in self._states.values():
            placement = placements.get(state.partition)
            if placement is None or not self._is_reading(state, placement):
                continue
            if state.size >= self._partition_bytes:
                satisfied.add(placement.leader_id)
            elif state.retry_at_ms <= now_ms and placement.leader_id not in self._asked:
                wanted = Wanted(state.lease, state.fetch_offset, placement)
                by_leader.setdefault(placement.leader_id, []).append(wanted)
        fetches = []
        for leader_id, group in by_leader.items():
            room = 0 if leader_id in satisfied else self._room(len(group))
            if room > 0:
                fetches.append(Fetch(leader_id, tuple(group), room))
                self._asked[leader_id] = room
                for one in group:
                    self._states[one.lease.partition].is_asked = True
        return fetches

    def answered(self, wanted: Wanted, answer: Answer) -> None:
        """Handle the result of one partition of a fetch."""
        state = self._current(wanted.lease)
        if state is None:
            return
        state.is_asked = False
        # The buffer was given up after this fetch was sent.
        if state.fetch_offset != wanted.offset:
            return
        match answer:
            case Got(part, ends):
                state.ends = ends
                state.retry_at_ms = 0
                if part is not None:
                    state.parts.append(part)
                    state.size += part.size
                    state.fetch_offset = part.to_offset
                    if state.lease.handed is None:
                        _pass_over(state)
            case TryAgain(at_ms):
                state.retry_at_ms = at_ms
            case Failed(error):
                state.trouble = error
            case OutOfRange():
                self._lose(state, OffsetOutOfRange(state.partition, state.fetch_offset))

    def done(self, fetch: Fetch) -> None:
        """Handle the end of a fetch, with any result."""
        self._asked.pop(fetch.leader_id, None)
        for wanted in fetch.wanted:
            state = self._current(wanted.lease)
            if state is not None:
                state.is_asked = False

    def retry_at_ms(self, now_ms: int) -> int | None:
        """Return the next retry time after ``now_ms``, or None."""
        waiting = (state.retry_at_ms for state in self._states.values())
        return min((at_ms for at_ms in waiting if at_ms > now_ms), default=None)

    # Deliveries.

    def take(
        self,
        records_max: int | None,
        may_deliver: MayDeliver,
        *,
        parts_max: int | None = None,
    ) -> list[Taken]:
        """Return at most ``records_max`` records as ranges, and advance the positions past them."""
        taken: list[Taken] = []
        left = records_max
        for state in list(self._states.values()):
            if not state.is_deliverable or not may_deliver(state.partition):
                continue
            while _pass_over(state):
                if (left is not None and left <= 0) or len(taken) == parts_max:
                    break
                one = _cut(state, left)
                taken.append(one)
                if left is not None:
                    # A range has at most as many records as offsets; compaction can only remove
                    # records.
                    left -= one.to_offset - one.from_offset
            if taken and taken[-1].lease is state.lease:
                self._states[state.partition] = self._states.pop(state.partition)
        return taken

    def give_back(self, taken: Taken, from_offset: int) -> None:
        """Put back the last range of a partition, or the rest of it, from an offset on.

        It has no effect if the position has changed since.
        """
        state = self._current(taken.lease)
        if state is None or state.position != taken.to_offset or from_offset >= taken.to_offset:
            return
        state.position = taken.part.from_offset = from_offset
        if not state.parts or state.parts[0] is not taken.part:
            # The data after this range may have been dropped.
            taken.part.to_offset = taken.to_offset
            state.parts.appendleft(taken.part)
            state.size += taken.part.size

    def fail(self, partitions: Iterable[TopicPartition], error: Exception) -> None:
        """Set an error to raise to the user."""
        for partition in partitions:
            state = self._states.get(partition)
            if state is not None and state.trouble is None:
                state.trouble = error

    def failure(self, partition: TopicPartition | None = None) -> Exception | None:
        """Return and clear the next error to raise, of one partition if given; work is then
        retried.
        """
        for state in self._states.values() if partition is None else [self.state(partition)]:
            if state.trouble is not None and not state.parts and not state.is_paused:
                error, state.trouble = state.trouble, None
                return error
        return None

    def is_ready(self, may_deliver: MayDeliver) -> bool:
        """True if there are deliverable records or an error to raise."""
        return any(
            may_deliver(state.partition) if state.parts else state.trouble is not None
            for state in self._states.values()
            if not state.is_paused
        )


    def _current(self, lease: Lease) -> PartitionState | None:
        state = self._states.get(lease.partition)
        return state if state is not None and state.lease is lease else None

    def _is_reading(self, state: PartitionState, placement: Placement) -> bool:
        """True if the partition may be fetched; this also detects a topic that was created again.
        """
        if state.phase is not Phase.READING or state.is_paused:
            return False
        if state.trouble is not None or state.lost is not None:
            return False
        if state.topic_id is None:
            state.topic_id = placement.topic_id
        elif state.topic_id != placement.topic_id and any(placement.topic_id):
            self._lose(state, TopicRecreated(state.partition, state.fetch_offset))
            return False
        return not state.is_asked

    def _lose(self, state: PartitionState, why: OffsetOutOfRange | TopicRecreated) -> None:
        if self._policy is None:
            state.trouble = why
        else:
            state.lost = why

    def _room(self, partitions: int) -> int:
        """Return how many bytes a fetch of this many partitions may request."""
        taken = self.buffered_bytes + sum(self._asked.values())
        if taken >= self._buffer_bytes:
            for state in self._states.values():
                if state.is_paused and state.parts:
                    taken -= state.size
                    state.drop_parts()
        wanted = min(self._fetch_bytes, partitions * self._partition_bytes)
        return min(self._buffer_bytes - taken, wanted)


def _pass_over(state: PartitionState) -> bool:
    """Advance past leading chunks without records; return True if any chunk is left."""
    while state.parts and state.parts[0].content is None:
        state.position = state.parts.popleft().to_offset
    return bool(state.parts)


def _cut(state: PartitionState, records_max: int | None) -> Taken:
    """Remove and return the first chunk of a partition, or its first ``records_max`` offsets."""
    part = state.parts[0]
    begin, end = part.from_offset, part.to_offset
    if records_max is not None and end - begin > records_max:
        end = part.from_offset = begin + records_max
    else:
        state.parts.popleft()
        state.size -= part.size
    state.position = end
    return Taken(state.lease, part, begin, end)

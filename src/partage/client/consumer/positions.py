"""The consumer's core: where each partition is, what to fetch next, what an answer changes.

Plain and synchronous: the shell asks what to do, does it, and tells what came of it. Three kinds
of work come out: offsets to look up (`lookups`), fetches (`fetches`), and records to hand out
(`take`). Everything is done under a partition's `Lease`; what comes back under one that is over
is dropped, and so no seek, pause or loss of a partition has to wait for what is on its way.

Fetching (one at a time per leader; the next is sent while the records of the last are handed
out):

- A partition is asked for while less than ``partition_bytes`` of it wait to be handed out.
- A leader is left alone while one of its partitions has enough. Otherwise a long poll for the
  others, which may have nothing, would hold up the busy one once it is drained (KAFKA-17182).
- All that waits, and all that was asked for, stays below ``buffer_bytes``, except that brokers
  send at least one batch, whatever its size (KIP-74). Paused partitions give up their room first.
- Those that were served longest ago come first in a request, and in what is handed out.
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


#: What is logged before a partition is read from where ``auto_offset_reset`` says.
_LOST: Final[Mapping[type, str]] = {
    OffsetOutOfRange: "position is out of range; applying auto_offset_reset",
    TopicRecreated: "topic was deleted and created again; applying auto_offset_reset",
}


class Positions:
    """The partitions that a consumer owns.

    ``policy`` is where to begin without an offset, None to raise instead. Methods that name
    partitions raise `NotAssigned` for those that are not owned.
    """

    def __init__(
        self, *, policy: ResetTo | None, partition_bytes: int, fetch_bytes: int, buffer_bytes: int
    ) -> None:
        self._policy = policy
        self._partition_bytes = partition_bytes
        self._fetch_bytes = fetch_bytes
        self._buffer_bytes = buffer_bytes
        self._states: dict[TopicPartition, PartitionState] = {}  # those served last at the end
        self._asked: dict[int, int] = {}  # by leader: how many bytes it may send

    # What is owned.

    def __len__(self) -> int:
        return len(self._states)

    @property
    def owned(self) -> list[TopicPartition]:
        """The partitions, in order."""
        return sorted(self._states)

    @property
    def paused(self) -> list[TopicPartition]:
        """Those that are paused, in order."""
        return sorted(p for p, state in self._states.items() if state.is_paused)

    @property
    def buffered_bytes(self) -> int:
        """What waits to be handed out."""
        return sum(state.size for state in self._states.values())

    def own(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin with these; those owned already go on as they are."""
        for partition in partitions:
            if partition not in self._states:
                self._states[partition] = PartitionState(partition)

    def disown(self, partitions: Iterable[TopicPartition]) -> None:
        """From now on nothing of these is handed out; those not owned are passed over."""
        for partition in partitions:
            state = self._states.pop(partition, None)
            if state is not None:
                state.lease.is_over = True

    def state(self, partition: TopicPartition) -> PartitionState:
        """What is known of a partition."""
        state = self._states.get(partition)
        if state is None:
            raise NotAssigned([partition], len(self._states))
        return state

    def check(self, partitions: Iterable[TopicPartition]) -> list[PartitionState]:
        """The states of all of these, or `NotAssigned` naming each that is not owned."""
        asked = list(partitions)
        missing = [partition for partition in asked if partition not in self._states]
        if missing:
            raise NotAssigned(missing, len(self._states))
        return [self._states[partition] for partition in asked]

    def position(self, partition: TopicPartition) -> int | None:
        """The offset after the last record handed out; None while it is looked for."""
        state = self.state(partition)
        if state.phase is not Phase.READING:
            return None
        return state.position if state.lease.handed is None else state.lease.handed

    # What the user asks for.

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at an offset, which need not exist yet."""
        self.state(partition).renew(Phase.READING, position=offset)

    def reset(self, partitions: Iterable[TopicPartition], to: ResetTo) -> None:
        """Go on at an offset that has to be looked up."""
        for state in self.check(partitions):
            state.renew(Phase.RESET, reset=to)

    def pause(self, partitions: Iterable[TopicPartition], *, paused: bool = True) -> None:
        """Hand out nothing of these until they are resumed; what is fetched is kept."""
        for state in self.check(partitions):
            state.is_paused = state.lease.is_paused = paused

    # Offsets to be looked up.

    def lookups(self, placed: Container[TopicPartition], now_ms: int) -> list[Lookup]:
        """What has to be looked up; each is asked for until `found` or `not_found` is told.

        Ends and times of partitions whose leader is not known have to wait: they are not
        ``placed``.
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
        """The offset of a lookup; None: nothing is committed."""
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
        """A lookup failed."""
        state = self._current(lookup.lease)
        if state is not None:
            state.is_asked = False
            if isinstance(answer, Failed):
                state.trouble = answer.error
            else:
                state.retry_at_ms = answer.at_ms

    # Records to be fetched.

    def topics(self) -> set[str]:
        """The topics whose leaders have to be known."""
        return {p.topic for p, s in self._states.items() if s.phase is not Phase.COMMITTED}

    def fetches(self, placements: Mapping[TopicPartition, Placement], now_ms: int) -> list[Fetch]:
        """The requests to send now, at most one to a leader that has none."""
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
        """What came of one partition of a fetch."""
        state = self._current(wanted.lease)
        if state is None:
            return
        state.is_asked = False
        if state.fetch_offset != wanted.offset:  # what was fetched before it was given up
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
        """A fetch is at its end, whatever came of it."""
        self._asked.pop(fetch.leader_id, None)
        for wanted in fetch.wanted:
            state = self._current(wanted.lease)
            if state is not None:
                state.is_asked = False

    def retry_at_ms(self, now_ms: int) -> int | None:
        """When the next thing that has to wait is due, if anything has to."""
        waiting = (state.retry_at_ms for state in self._states.values())
        return min((at_ms for at_ms in waiting if at_ms > now_ms), default=None)

    # Records to be handed out.

    def take(
        self,
        records_max: int | None,
        may_deliver: MayDeliver,
        *,
        parts_max: int | None = None,
    ) -> list[Taken]:
        """At most so many records, a stretch of each part; positions move behind them."""
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
                    # No stretch has more records than offsets, whatever compaction removed.
                    left -= one.to_offset - one.from_offset
            if taken and taken[-1].lease is state.lease:
                self._states[state.partition] = self._states.pop(state.partition)
        return taken

    def give_back(self, taken: Taken, from_offset: int) -> None:
        """Take back the last that was taken of a partition, or the rest of it.

        Nothing is taken back if the user has gone elsewhere meanwhile.
        """
        state = self._current(taken.lease)
        if state is None or state.position != taken.to_offset or from_offset >= taken.to_offset:
            return
        state.position = taken.part.from_offset = from_offset
        if not state.parts or state.parts[0] is not taken.part:
            taken.part.to_offset = taken.to_offset  # what follows may have been given up
            state.parts.appendleft(taken.part)
            state.size += taken.part.size

    def fail(self, partitions: Iterable[TopicPartition], error: Exception) -> None:
        """Something is wrong with these that the user has to be told."""
        for partition in partitions:
            state = self._states.get(partition)
            if state is not None and state.trouble is None:
                state.trouble = error

    def failure(self, partition: TopicPartition | None = None) -> Exception | None:
        """The next thing that the user has to be told (of one partition); it is tried again."""
        for state in self._states.values() if partition is None else [self.state(partition)]:
            if state.trouble is not None and not state.parts and not state.is_paused:
                error, state.trouble = state.trouble, None
                return error
        return None

    def is_ready(self, may_deliver: MayDeliver) -> bool:
        """Whether there is something for the user: records, or a failure."""
        return any(
            may_deliver(state.partition) if state.parts else state.trouble is not None
            for state in self._states.values()
            if not state.is_paused
        )

    # Inside.

    def _current(self, lease: Lease) -> PartitionState | None:
        state = self._states.get(lease.partition)
        return state if state is not None and state.lease is lease else None

    def _is_reading(self, state: PartitionState, placement: Placement) -> bool:
        """Whether more of a partition may be wanted; a topic made anew is noticed here."""
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
        """How many bytes may be asked for."""
        taken = self.buffered_bytes + sum(self._asked.values())
        if taken >= self._buffer_bytes:
            for state in self._states.values():
                if state.is_paused and state.parts:
                    taken -= state.size
                    state.drop_parts()
        wanted = min(self._fetch_bytes, partitions * self._partition_bytes)
        return min(self._buffer_bytes - taken, wanted)


def _pass_over(state: PartitionState) -> bool:
    """Move behind parts at the front that have no records; whether any part is left."""
    while state.parts and state.parts[0].content is None:
        state.position = state.parts.popleft().to_offset
    return bool(state.parts)


def _cut(state: PartitionState, records_max: int | None) -> Taken:
    """The first part of a partition, or so much of it as may be taken."""
    part = state.parts[0]
    begin, end = part.from_offset, part.to_offset
    if records_max is not None and end - begin > records_max:
        end = part.from_offset = begin + records_max
    else:
        state.parts.popleft()
        state.size -= part.size
    state.position = end
    return Taken(state.lease, part, begin, end)

"""Readers of each partition of a group, and the partitions without a reader."""

from __future__ import annotations

from collections.abc import Mapping

from partage.model.topic_partition import TopicPartition
from partage.pipelines.rebalances.rows import (
    MoveRow,
    OwnershipRow,
    RebalanceRow,
    StandstillRow,
)

Partitions = Mapping[str, list[int]]


class StoppedPartition:
    """A partition in a standstill; ``is_revoked`` if an assignment revoked it from an active
    reader.
    """

    def __init__(self, row: StandstillRow, *, is_revoked: bool) -> None:
        self.row = row
        self.is_revoked = is_revoked


class PartitionTracker:
    """Partitions of a group and their readers.

    A partition can have several readers, for example in a group with redundant assignment.
    """

    def __init__(self, group_id: str) -> None:
        self.generation = 0  # of the last assignment
        self.standstills: list[StandstillRow] = []
        self.moves: list[MoveRow] = []
        self.ownership: list[OwnershipRow] = []
        self._group_id = group_id
        # by partition: readers and the start of their period
        self._readers: dict[TopicPartition, dict[str, OwnershipRow]] = {}
        self._stopped: dict[TopicPartition, StoppedPartition] = {}
        self._reading: dict[str, dict[TopicPartition, None]] = {}  # partitions by reader
        self._unexplained: list[StandstillRow] = []
        #: Members that have not fetched their assignment yet: the partitions that they will read.
        self._awaited: dict[str, tuple[list[TopicPartition], RebalanceRow | None]] = {}

    def is_reading(self, member: str) -> bool:
        """True if the member reads at least one partition."""
        return bool(self._reading.get(member))

    def revoked_from(self, member: str) -> StoppedPartition | None:
        """Return an unread partition that the last assignment revoked from the member."""
        for stop in self._stopped.values():
            if stop.is_revoked and stop.row.from_member == member:
                return stop
        return None

    # End of reading.

    def keep_only(self, member: str, kept: Partitions, at: int, row: RebalanceRow) -> None:
        """End the member's reading of all partitions except ``kept``."""
        for place in list(self._reading.get(member, ())):
            if place[1] not in kept.get(place[0], ()):
                self._stop(place, member, at, row)

    def remove_member(self, member: str, at: int, row: RebalanceRow | None) -> None:
        """End the member's reading of all partitions, because it left the group."""
        self._awaited.pop(member, None)
        for place in list(self._reading.get(member, ())):
            self._stop(place, member, at, row)

    def clear(self, at: int) -> None:
        """End all reading without standstills, because the group has no members."""
        for readers in self._readers.values():
            for owned in readers.values():
                owned.to_at = at
        pointless = {id(stop.row) for stop in self._stopped.values()}
        self.standstills = [row for row in self.standstills if id(row) not in pointless]
        self._readers.clear()
        self._stopped.clear()
        self._reading.clear()
        self._unexplained.clear()
        self._awaited.clear()

    def set_cause(self, row: RebalanceRow) -> None:
        """Set the cause of the standstills that began just before this rebalance."""
        for still in self._unexplained:
            still.episode, still.cause = row.episode, row.cause
        self._unexplained.clear()

    def _stop(
        self,
        place: TopicPartition,
        member: str,
        at: int,
        row: RebalanceRow | None,
        *,
        is_revoked: bool = False,
    ) -> None:
        readers = self._readers[place]
        owned = readers.pop(member)
        at = owned.to_at = max(at, owned.from_at)
        del self._reading[member][place]
        if readers:
            return
        still = StandstillRow(
            group_id=self._group_id,
            episode=0 if row is None else row.episode,
            topic=place[0],
            partition=place[1],
            from_at=at,
            from_member=member,
            cause="" if row is None else row.cause,
        )
        if row is None:
            self._unexplained.append(still)
        self.standstills.append(still)
        self._stopped[place] = StoppedPartition(still, is_revoked=is_revoked)

    # Start of reading.

    def assign(
        self,
        given: Mapping[str, tuple[Partitions, int | None]],
        at: int,
        generation: int,
        row: RebalanceRow | None,
    ) -> None:
        """Apply an assignment.

        Args:
            given: for each member its partitions, and the time at which it received them; None if
                it has not fetched its assignment yet.
            at: time of the assignment in ms.
            generation: the generation.
            row: row of the rebalance, if known.
        """
        self.generation = generation
        self._awaited.clear()
        wanted: dict[TopicPartition, list[str]] = {}
        for member, (partitions, _) in given.items():
            for topic, numbers in partitions.items():
                for number in numbers:
                    wanted.setdefault(TopicPartition(topic, number), []).append(member)
        if row is not None:
            row.partitions = len(wanted)
        for place, readers in list(self._readers.items()):
            self._revoke(place, readers, wanted.get(place, []), given, at, row)
        for place, members in wanted.items():
            for member in members:
                if member in self._readers.get(place, {}):
                    continue
                begins = given[member][1]
                if begins is None:
                    awaited = self._awaited.setdefault(member, ([], row))
                    awaited[0].append(place)
                else:
                    self._read(place, member, begins, row)

    def _revoke(
        self,
        place: TopicPartition,
        readers: dict[str, OwnershipRow],
        wanted: list[str],
        given: Mapping[str, tuple[Partitions, int | None]],
        at: int,
        row: RebalanceRow | None,
    ) -> None:
        """End the reading of members that lose the partition; record moves to new members."""
        lost = [member for member in readers if member not in wanted]
        gained = [member for member in wanted if member not in readers]
        for member in lost:
            ends = given[member][1] if member in given else None
            self._stop(place, member, at if ends is None else ends, row, is_revoked=True)
        if place not in self._stopped:  # in a standstill, the move is recorded when it ends
            for before, after in zip(lost, gained, strict=False):
                self._move(place, before, after, at, row)

    def on_synced(self, member: str, at: int) -> None:
        """Start the reading of a member that has now fetched its assignment."""
        places, row = self._awaited.pop(member, ([], None))
        for place in places:
            self._read(place, member, at, row)

    def _read(self, place: TopicPartition, member: str, at: int, row: RebalanceRow | None) -> None:
        stop = self._stopped.pop(place, None)
        if stop is not None:
            still = stop.row
            still.to_at, still.to_member = max(at, still.from_at), member
            still.still_ms = still.to_at - still.from_at
            if row is not None:
                row.stood_still_ms += still.still_ms
            if still.from_member != member:
                self._move(place, still.from_member, member, still.to_at, row)
        owned = OwnershipRow(
            group_id=self._group_id,
            topic=place[0],
            partition=place[1],
            member=member,
            generation=self.generation,
            from_at=at,
        )
        self.ownership.append(owned)
        self._readers.setdefault(place, {})[member] = owned
        self._reading.setdefault(member, {})[place] = None

    def _move(
        self, place: TopicPartition, before: str, after: str, at: int, row: RebalanceRow | None
    ) -> None:
        if row is not None:
            row.moved += 1
        self.moves.append(
            MoveRow(
                group_id=self._group_id,
                episode=0 if row is None else row.episode,
                generation=self.generation,
                moved_at=at,
                topic=place[0],
                partition=place[1],
                from_member=before,
                to_member=after,
            )
        )

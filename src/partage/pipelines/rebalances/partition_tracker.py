"""Readers of each partition of a group, and the partitions without a reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from partage.model.topic_partition import TopicPartition
from partage.pipelines.rebalances.rows import (
    MoveRow,
    OwnershipRow,
    RebalanceRow,
    StallRow,
)

Partitions = Mapping[str, list[int]]

#: Cause of the stalls of a group without members.
NO_MEMBERS_CAUSE: Final = "no members"
#: Cause of the stalls of a static member that left for a while (consumer protocol).
ABSENCE_CAUSE: Final = "static member left for a while"
#: Causes of stalls that belong to no rebalance.
CAUSES_WITHOUT_REBALANCE: Final = frozenset({NO_MEMBERS_CAUSE, ABSENCE_CAUSE})


class StalledPartition:
    """A partition in a stall; ``is_revoked`` if an assignment revoked it from an active
    reader.
    """

    def __init__(self, row: StallRow, *, is_revoked: bool) -> None:
        self.row = row
        self.is_revoked = is_revoked


class PartitionTracker:
    """Partitions of a group and their readers.

    A partition can have several readers, for example in a group with redundant assignment.
    """

    def __init__(self, group_id: str) -> None:
        self.generation = 0  # of the last assignment
        self.stalls: list[StallRow] = []
        self.moves: list[MoveRow] = []
        self.ownership: list[OwnershipRow] = []
        self._group_id = group_id
        # by partition: readers and the start of their period
        self._readers: dict[TopicPartition, dict[str, OwnershipRow]] = {}
        self._stalled: dict[TopicPartition, StalledPartition] = {}
        self._reading: dict[str, dict[TopicPartition, None]] = {}  # partitions by reader
        self._unexplained: list[StallRow] = []
        #: Members that have not fetched their assignment yet: the partitions that they will read.
        self._awaited: dict[str, tuple[list[TopicPartition], RebalanceRow | None]] = {}

    def is_reading(self, member: str) -> bool:
        """True if the member reads at least one partition."""
        return bool(self._reading.get(member))

    def revoked_from(self, member: str) -> StalledPartition | None:
        """Return an unread partition that the last assignment revoked from the member."""
        for stalled in self._stalled.values():
            if stalled.is_revoked and stalled.row.from_member == member:
                return stalled
        return None

    # End of reading.

    def keep_only(self, member: str, kept: Partitions, at: int, row: RebalanceRow) -> None:
        """End the member's reading of all partitions except ``kept``."""
        for partition in list(self._reading.get(member, ())):
            if partition.partition not in kept.get(partition.topic, ()):
                self._stop(partition, member, at, row)

    def remove_member(self, member: str, at: int, row: RebalanceRow | None) -> None:
        """End the member's reading of all partitions, because it left the group."""
        self._awaited.pop(member, None)
        for partition in list(self._reading.get(member, ())):
            self._stop(partition, member, at, row)

    def suspend_member(self, member: str, at: int) -> None:
        """End the reading of a static member that left for a while; no rebalance follows."""
        for partition in list(self._reading.get(member, ())):
            self._stop(partition, member, at, None, cause=ABSENCE_CAUSE)

    def set_member(
        self, member: str, reads: Partitions, at: int, generation: int, row: RebalanceRow | None
    ) -> bool:
        """Set all partitions that one member reads; return True if they have changed."""
        self.generation = generation
        self._awaited.pop(member, None)
        wanted = {
            TopicPartition(topic, number) for topic, numbers in reads.items() for number in numbers
        }
        known = self._reading.get(member, {}).keys()
        lost, gained = known - wanted, wanted - known
        for partition in sorted(lost):
            self._stop(partition, member, at, row, is_revoked=True)
        for partition in sorted(gained):
            self._read(partition, member, at, row)
        return bool(lost or gained)

    @property
    def read_count(self) -> int:
        """Number of partitions that a member reads."""
        return sum(map(bool, self._readers.values()))

    def clear(self, at: int) -> None:
        """End all reading without stalls, because the next events are unknown."""
        for readers in self._readers.values():
            for owned in readers.values():
                owned.to_at = at
        unfinished = {id(stalled.row) for stalled in self._stalled.values()}
        self.stalls = [row for row in self.stalls if id(row) not in unfinished]
        self._readers.clear()
        self._stalled.clear()
        self._reading.clear()
        self._unexplained.clear()
        self._awaited.clear()

    def on_emptied(self, at: int) -> None:
        """End all stalls, and start those of a group without members."""
        for member in list(self._reading):
            self.remove_member(member, at, None)
        without_duration = set()  # of partitions whose last reader left last
        for partition, stalled in self._stalled.items():
            before = stalled.row
            if before.cause == NO_MEMBERS_CAUSE:
                continue
            before.to_at = max(at, before.from_at)
            before.stalled_ms = before.to_at - before.from_at
            if not before.stalled_ms:
                without_duration.add(id(before))
            stall = StallRow(
                group_id=self._group_id,
                episode=before.episode,
                topic=partition.topic,
                partition=partition.partition,
                from_at=before.to_at,
                from_member=before.from_member,
                cause=NO_MEMBERS_CAUSE,
            )
            self.stalls.append(stall)
            self._stalled[partition] = StalledPartition(stall, is_revoked=False)
        self.stalls = [row for row in self.stalls if id(row) not in without_duration]
        self._unexplained.clear()
        self._awaited.clear()

    def set_cause(self, row: RebalanceRow) -> None:
        """Set the cause of the stalls that began just before this rebalance."""
        for stall in self._unexplained:
            stall.episode, stall.cause = row.episode, row.cause
        self._unexplained.clear()

    def _stop(
        self,
        partition: TopicPartition,
        member: str,
        at: int,
        row: RebalanceRow | None,
        *,
        is_revoked: bool = False,
        cause: str = "",
    ) -> None:
        readers = self._readers[partition]
        owned = readers.pop(member)
        at = owned.to_at = max(at, owned.from_at)
        del self._reading[member][partition]
        if readers:
            return
        stall = StallRow(
            group_id=self._group_id,
            episode=0 if row is None else row.episode,
            topic=partition.topic,
            partition=partition.partition,
            from_at=at,
            from_member=member,
            cause=cause if row is None else row.cause,
        )
        if row is None and not cause:
            self._unexplained.append(stall)
        self.stalls.append(stall)
        self._stalled[partition] = StalledPartition(stall, is_revoked=is_revoked)

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
        for partition, readers in list(self._readers.items()):
            self._revoke(partition, readers, wanted.get(partition, []), given, at, row)
        for partition, members in wanted.items():
            for member in members:
                if member in self._readers.get(partition, {}):
                    continue
                begins = given[member][1]
                if begins is None:
                    awaited = self._awaited.setdefault(member, ([], row))
                    awaited[0].append(partition)
                else:
                    self._read(partition, member, begins, row)

    def _revoke(
        self,
        partition: TopicPartition,
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
            self._stop(partition, member, at if ends is None else ends, row, is_revoked=True)
        if partition not in self._stalled:  # in a stall, the move is recorded when it ends
            for before, after in zip(lost, gained, strict=False):
                self._move(partition, before, after, at, row)

    def on_synced(self, member: str, at: int) -> None:
        """Start the reading of a member that has now fetched its assignment."""
        partitions, row = self._awaited.pop(member, ([], None))
        for partition in partitions:
            self._read(partition, member, at, row)

    def _read(
        self, partition: TopicPartition, member: str, at: int, row: RebalanceRow | None
    ) -> None:
        stalled = self._stalled.pop(partition, None)
        if stalled is not None:
            stall = stalled.row
            stall.to_at, stall.to_member = max(at, stall.from_at), member
            stall.stalled_ms = stall.to_at - stall.from_at
            # A rebalance does not cost the time without members, and that is no move either.
            if row is not None and stall.cause not in CAUSES_WITHOUT_REBALANCE:
                row.stalled_ms += stall.stalled_ms
            if stall.cause != NO_MEMBERS_CAUSE and stall.from_member != member:
                self._move(partition, stall.from_member, member, stall.to_at, row)
        owned = OwnershipRow(
            group_id=self._group_id,
            topic=partition.topic,
            partition=partition.partition,
            member=member,
            generation=self.generation,
            from_at=at,
        )
        self.ownership.append(owned)
        self._readers.setdefault(partition, {})[member] = owned
        self._reading.setdefault(member, {})[partition] = None

    def _move(
        self, partition: TopicPartition, before: str, after: str, at: int, row: RebalanceRow | None
    ) -> None:
        if row is not None:
            row.moved += 1
        self.moves.append(
            MoveRow(
                group_id=self._group_id,
                episode=0 if row is None else row.episode,
                generation=self.generation,
                moved_at=at,
                topic=partition.topic,
                partition=partition.partition,
                from_member=before,
                to_member=after,
            )
        )

"""Who reads each partition of a group, and since when nobody does."""

from __future__ import annotations

from collections.abc import Mapping

from partage.pipelines.rebalances.rows import (
    MoveRow,
    OwnershipRow,
    RebalanceRow,
    StandstillRow,
)

Place = tuple[str, int]
Partitions = Mapping[str, list[int]]


class StoppedPartition:
    """A partition that stands still; ``is_taken`` if an assignment took it from who read on."""

    def __init__(self, row: StandstillRow, *, is_taken: bool) -> None:
        self.row = row
        self.is_revoked = is_taken


class PartitionTracker:
    """The partitions that a group reads. Several members may read one, as redundant groups do."""

    def __init__(self, group_id: str) -> None:
        self.generation = 0  # of the last assignment
        self.standstills: list[StandstillRow] = []
        self.moves: list[MoveRow] = []
        self.ownership: list[OwnershipRow] = []
        self._group_id = group_id
        self._readers: dict[Place, dict[str, OwnershipRow]] = {}  # with the time since when
        self._stopped: dict[Place, StoppedPartition] = {}
        self._reading: dict[str, dict[Place, None]] = {}  # the same, by member
        self._unexplained: list[StandstillRow] = []
        #: Who has not asked for its assignment yet: what it will read then.
        self._awaited: dict[str, tuple[list[Place], RebalanceRow | None]] = {}

    def is_reading(self, member: str) -> bool:
        """Whether the member reads any partition now."""
        return bool(self._reading.get(member))

    def revoked_from(self, member: str) -> StoppedPartition | None:
        """A partition that the last assignment took from the member, and that nobody has yet."""
        for stop in self._stopped.values():
            if stop.is_revoked and stop.row.from_member == member:
                return stop
        return None

    # Stopping.

    def keep_only(self, member: str, kept: Partitions, at: int, row: RebalanceRow) -> None:
        """The member reads on what it keeps, and has stopped reading the rest."""
        for place in list(self._reading.get(member, ())):
            if place[1] not in kept.get(place[0], ()):
                self._stop(place, member, at, row)

    def remove_member(self, member: str, at: int, row: RebalanceRow | None) -> None:
        """The member is gone."""
        self._awaited.pop(member, None)
        for place in list(self._reading.get(member, ())):
            self._stop(place, member, at, row)

    def clear(self, at: int) -> None:
        """Nobody is to read anything any more: nothing stands still by that."""
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
        """A rebalance begins: what stopped just before it did so for its cause."""
        for still in self._unexplained:
            still.episode, still.cause = row.episode, row.cause
        self._unexplained.clear()

    def _stop(
        self,
        place: Place,
        member: str,
        at: int,
        row: RebalanceRow | None,
        *,
        is_taken: bool = False,
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
        self._stopped[place] = StoppedPartition(still, is_taken=is_taken)

    # Going on.

    def assign(
        self,
        given: Mapping[str, tuple[Partitions, int | None]],
        at: int,
        generation: int,
        row: RebalanceRow | None,
    ) -> None:
        """Members have these partitions from these times on; None is for who has yet to ask."""
        self.generation = generation
        self._awaited.clear()
        wanted: dict[Place, list[str]] = {}
        for member, (partitions, _) in given.items():
            for topic, numbers in partitions.items():
                for number in numbers:
                    wanted.setdefault((topic, number), []).append(member)
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
        place: Place,
        readers: dict[str, OwnershipRow],
        wanted: list[str],
        given: Mapping[str, tuple[Partitions, int | None]],
        at: int,
        row: RebalanceRow | None,
    ) -> None:
        """Take the partition from those who are not to read it; who gets it instead moves it."""
        lost = [member for member in readers if member not in wanted]
        gained = [member for member in wanted if member not in readers]
        for member in lost:
            ends = given[member][1] if member in given else None
            self._stop(place, member, at if ends is None else ends, row, is_taken=True)
        if place not in self._stopped:  # where it stands still, it has moved when it is read again
            for before, after in zip(lost, gained, strict=False):
                self._move(place, before, after, at, row)

    def on_synced(self, member: str, at: int) -> None:
        """The member has asked for its assignment now."""
        places, row = self._awaited.pop(member, ([], None))
        for place in places:
            self._read(place, member, at, row)

    def _read(self, place: Place, member: str, at: int, row: RebalanceRow | None) -> None:
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
        self, place: Place, before: str, after: str, at: int, row: RebalanceRow | None
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

"""The rules about what readers get from topics that change, by name:

- ``content``: each record has the value that was written at its offset.
- ``aborted``: with read_committed, no record of an open or aborted transaction is read.
- ``order``: offsets grow between assignment and revocation, and so do incarnations of a topic.
- ``gap``: no record is skipped, unless it was deleted or compacted, or the position was reset to
  the end.
- ``repeat``: without faults, and with auto commits, the group reads no record twice.
- ``owner``: a partition is read by the member to which it was assigned last.
- ``reset``: an error about a position has a cause.
- ``answers``: after the faults, a consumer knows the offsets of its partitions, and they are
  committed.
- ``delivery``: after the faults, all records that exist are read, and new ones are read soon.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from partage.client.consumer.records import Record
from partage.model.topic_partition import TopicPartition
from partage.testing.topic_worlds.topic_contents import (
    PartitionContents,
    RecordState,
    TopicContents,
    place_of,
)


@dataclass
class ReadPartition:
    """A partition that a reader owns.

    Attributes:
        since_s: When it was assigned.
        incarnation: That of the last record; None before the first one.
        next_offset: The offset after the last record.
        start: The committed offset when it was assigned, in the topic of that time; None if there
            was none, or if it is not known.
    """

    since_s: float
    start: int | None = None
    topic_incarnation: int = 0
    incarnation: int | None = None
    next_offset: int = 0


@dataclass
class MemberRun:
    """One run of a reader process."""

    name: str
    owned: dict[TopicPartition, ReadPartition] = field(default_factory=dict)


class TopicRules:
    """Checks what the readers of a world get.

    Args:
        contents: The contents of the topics.
        now_s: Returns the virtual time in seconds.
        report: Called with the name of a broken rule and a description.
        committed: Returns the group's committed offset of a partition; None if there is none.
        is_committed_only: The readers have the isolation level read_committed.
        may_repeat: The group may read a record twice.
        resets_to_end: A position without a valid offset is reset to the end.
    """

    def __init__(
        self,
        contents: TopicContents,
        now_s: Callable[[], float],
        report: Callable[[str, str], None],
        committed: Callable[[TopicPartition], int | None] = lambda partition: None,
        *,
        is_committed_only: bool,
        may_repeat: bool,
        resets_to_end: bool,
    ) -> None:
        self._contents = contents
        self._now_s = now_s
        self._report = report
        self._committed = committed
        self._is_committed_only = is_committed_only
        self._may_repeat = may_repeat
        self._resets_to_end = resets_to_end
        self._runs: dict[str, MemberRun] = {}
        #: The offsets that were read, by partition and incarnation.
        self.read: dict[tuple[TopicPartition, int], set[int]] = defaultdict(set)
        self.read_count = 0
        #: False if members may be paused or cut off: a former owner may not know that it lost.
        self.knows_owners = False

    def start(self, name: str) -> MemberRun:
        """Note that a reader starts; its former run owns nothing now."""
        run = self._runs[name] = MemberRun(name)
        return run

    def end(self, name: str) -> None:
        """Note that a reader has ended."""
        self._runs.pop(name, None)

    def owned(self, topic_names: Iterable[str]) -> set[TopicPartition]:
        """Return the partitions of topics that have an owner."""
        names = set(topic_names)
        return {p for run in self._runs.values() for p in run.owned if p.topic in names}

    def on_assigned(self, run: MemberRun, partitions: Iterable[TopicPartition]) -> None:
        """Note a callback after partitions were assigned."""
        for partition in partitions:
            if partition in run.owned:
                self._report("owner", f"{run.name} gets {partition}, which it owns already")
            run.owned[partition] = ReadPartition(
                self._now_s(), self._committed(partition), self._contents.newest(partition.topic)
            )

    def on_given_up(self, run: MemberRun, partitions: Iterable[TopicPartition]) -> None:
        """Note a callback about partitions that are given up."""
        for partition in partitions:
            if run.owned.pop(partition, None) is None:
                self._report("owner", f"{run.name} gives {partition} up, which it does not own")

    def on_restarted(self, run: MemberRun, partition: TopicPartition) -> None:
        """Note that a reader seeks to the beginning."""
        run.owned[partition] = ReadPartition(run.owned[partition].since_s)

    def on_record(self, run: MemberRun, record: Record) -> None:
        """Check a record that a reader got."""
        partition = TopicPartition(record.topic, record.partition)
        where = f"{partition} {record.offset} ({record.value!r})"
        written_for, incarnation = place_of(record.value)
        if written_for != partition:
            self._report("content", f"{run.name} read {where}")
            return
        contents = self._contents.at(partition, incarnation)
        stored = contents.records.get(record.offset)
        if stored is not None and stored.value != record.value:
            self._report("content", f"{run.name} read {where}, written was {stored.value!r}")
        is_readable = stored is None or stored.state is RecordState.COMMITTED
        if self._is_committed_only and not is_readable:
            assert stored is not None
            self._report("aborted", f"{run.name} read {where}, which is {stored.state.value}")
        owned = run.owned.get(partition)
        if owned is None:
            self._report("owner", f"{run.name} read {where} without owning it")
            return
        if self.knows_owners:
            self._check_owner(run, owned, partition, where)
        self._check_order(run, owned, partition, incarnation, record.offset, where)
        read = self.read[partition, incarnation]
        if record.offset in read and not self._may_repeat:
            self._report("repeat", f"{run.name} read {where} again")
        read.add(record.offset)
        self.read_count += 1
        owned.incarnation, owned.next_offset = incarnation, record.offset + 1

    def _check_owner(
        self, run: MemberRun, owned: ReadPartition, partition: TopicPartition, where: str
    ) -> None:
        for other in self._runs.values():
            later = other.owned.get(partition)
            if later is not None and other is not run and later.since_s > owned.since_s:
                self._report("owner", f"{run.name} read {where}, which {other.name} owns")

    def _check_order(
        self,
        run: MemberRun,
        owned: ReadPartition,
        partition: TopicPartition,
        incarnation: int,
        offset: int,
        where: str,
    ) -> None:
        contents = self._contents.at(partition, incarnation)
        is_first = owned.incarnation != incarnation
        if owned.incarnation is not None and incarnation < owned.incarnation:
            self._report("order", f"{run.name} read {where} after a later incarnation")
            return
        if not is_first and offset < owned.next_offset:
            self._report("order", f"{run.name} read {where} after {owned.next_offset - 1}")
        if is_first:
            if self._resets_to_end:
                self._check_start(run, owned, contents, incarnation, offset, where)
                return
            read = self.read[partition, incarnation]
            skipped = [n for n in self._lasting(contents) if n < offset and n not in read]
        else:
            if self._resets_to_end and owned.next_offset < contents.trimmed:
                return
            skipped = [n for n in self._lasting(contents) if owned.next_offset <= n < offset]
        if skipped:
            self._report("gap", f"{run.name} read {where}, and skipped {skipped}")

    def _check_start(
        self,
        run: MemberRun,
        owned: ReadPartition,
        contents: PartitionContents,
        incarnation: int,
        offset: int,
        where: str,
    ) -> None:
        """Check that a reader begins at the committed offset.

        Without one, or in another topic, it begins at the end, if that is how it resets positions.
        """
        start = owned.start
        if start is None or incarnation != owned.topic_incarnation or start < contents.trimmed:
            return
        if skipped := [n for n in self._lasting(contents) if start <= n < offset]:
            self._report(
                "gap", f"{run.name} read {where}, and skipped {skipped} after offset {start}"
            )

    def _lasting(self, contents: PartitionContents) -> list[int]:
        """Return the offsets of records that exist and that readers must get."""
        return contents.lasting(committed_only=self._is_committed_only)

    def unread(self, topics: Iterable[str], begins: dict[TopicPartition, int]) -> list[str]:
        """Return the records that exist and that no reader has got.

        Args:
            topics: The topics that are read.
            begins: The first offset that counts in each partition; all others count from 0.
        """
        names, found = set(topics), []
        for partition in self._contents.partitions():
            if partition.topic not in names:
                continue
            read = self.read[partition, self._contents.newest(partition.topic)]
            lasting = self._lasting(self._contents.current(partition))
            begin = begins.get(partition, 0)
            found += [f"{partition} {n}" for n in lasting if n >= begin and n not in read]
        return found

    def begins(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offsets of partitions."""
        return {partition: self._contents.current(partition).deleted for partition in partitions}

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end offsets of partitions that end with a record."""
        return {partition: self._contents.current(partition).end_offset for partition in partitions}

    def reset_cause(self, run: MemberRun, partition: TopicPartition) -> str | None:
        """Return why a position can be invalid; None if it cannot."""
        owned = run.owned.get(partition)
        if owned is None or self._contents.newest(partition.topic) > 0:
            return "the topic was created again"
        if owned.next_offset < self._contents.current(partition).trimmed:
            return "records were deleted"
        return None

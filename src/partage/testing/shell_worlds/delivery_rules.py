"""The rules about what readers get, by name:

- ``content``: each record that is read has the value that was written at its offset.
- ``order``: between assignment and revocation, offsets follow each other without a gap.
- ``start``: an owner starts at the committed offset, or at the beginning if there is none.
- ``owner``: only the owner of a partition reads it, and not while it is paused.
- ``callbacks``: only partitions that are owned are revoked or lost, and only others assigned.
- ``commit``: when a commit returns, the coordinator has the position or a later one.
- ``session``: a member delivers nothing when its session has ended without a heartbeat.
- ``late_commit``: without faults, an auto commit is not much later than its interval, counted from
  the end of the last time in which the coordinator held a commit of the member back.
- ``fairness``: without faults, polls serve all partitions with fetched records in turn.
- ``fenced``: after a commit has failed because its member was removed, the member delivers nothing
  of the partitions that it had.
- ``idle``: without faults, no poll waits or is empty while records of an owned partition are
  fetched. In a rebalance one may, until the partition is assigned again; a rebalance also begins
  when a member learns of new partitions because of which it will join.
- ``fresh``: without faults, a reader that has read all gets a new record soon.
- ``repeat``: without faults and seeks, and with a commit before each revocation, no group reads a
  record twice.
- ``delivery``: after all faults, each record is read in each group that subscribes to it.

The rules of `partage.testing.world.rules` apply, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from partage.client.consumer.records import Record
from partage.model.topic_partition import TopicPartition
from partage.testing.shell_worlds.wire_watch import CommitHold, CommitTimeline

#: A process learns this much later that its session has ended.
_REACTION_S: Final = 0.2
#: The time of a new record from the writer to the reader, besides the turns of the reader.
_FRESH_S: Final = 0.4
#: The longest time in which the position of a new partition is looked up.
_POSITION_S: Final = 1.0


@dataclass
class OwnedPlace:
    """The time in which one process owns one partition.

    Attributes:
        since_s: When the listener was told.
        next_offset: The offset that must come next; None before the first record.
        is_paused: True while no record may come.
        is_reset: True from a seek to the beginning, which is looked up, to the next record.
        restarted_s: When it was told, or of the last seek.
        behind: The time since which a position is not committed, and the position.
        passed: The number of polls that did not serve it, although its records were there.
        owned_max: The most partitions that the process owned in these polls.
    """

    since_s: float
    restarted_s: float
    next_offset: int | None = None
    is_paused: bool = False
    is_reset: bool = False
    behind: tuple[float, int] | None = None
    passed: int = 0
    owned_max: int = 0


@dataclass
class ReaderRun:
    """One run of a reader process, from its start until it ends or is killed.

    Attributes:
        turn_s: The longest time between two polls, with the wait of a fetch for enough bytes, or
            for the room that fetches at other brokers take.
        is_leaving: It unsubscribes or closes. In a rebalance its partitions are lost, as in Kafka.
        has_lost: It has lost partitions while it left.
        given_up_s: When each partition that it does not own was given up.
        began_rebalance_s: When it last learned of partitions because of which it joins.
        commit_count: The number of commits of its user that run.
        commit_ended_s: When the last of them ended; before the first one, when the run began.
        leaving_since_s: When its listener was called for a leave that goes on.
        removed: The partitions that it had when an administrator removed it.
        fenced: Those that it had when it learned that.
    """

    name: str
    group: str
    session_s: float
    turn_s: float = 0.0
    is_leaving: bool = False
    has_lost: bool = False
    owned: dict[TopicPartition, OwnedPlace] = field(default_factory=dict)
    given_up_s: dict[TopicPartition, float] = field(default_factory=dict)
    began_rebalance_s: float = 0.0
    commit_count: int = 0
    commit_ended_s: float = 0.0
    leaving_since_s: float | None = None
    removed: set[TopicPartition] = field(default_factory=set)
    fenced: set[TopicPartition] = field(default_factory=set)


class DeliveryRules:
    """Checks what all readers of a world get.

    Args:
        now_s: Returns the virtual time in seconds.
        commits: The commits that the broker has acknowledged.
        report: Called with the name of a broken rule and a description.
        may_repeat: A group may read a record again, because of faults or seeks.
        may_lose: Members may lose partitions, because of faults.
        alive_s: Returns the last time at which the coordinator heard a process; None if never.
    """

    def __init__(
        self,
        now_s: Callable[[], float],
        commits: CommitTimeline,
        report: Callable[[str, str], None],
        *,
        may_repeat: bool,
        may_lose: bool = True,
        alive_s: Callable[[str], float | None] = lambda name: None,
    ) -> None:
        self._now_s = now_s
        self._commits = commits
        self._report = report
        self._may_repeat = may_repeat
        self._alive_s = alive_s
        #: False if members must not lose partitions.
        self.may_lose = may_lose
        #: True if each poll and each new record must meet the rules about fairness and delays.
        self.is_healthy = not may_lose
        #: The times of new records that a group must read soon, by their offsets.
        self._due: dict[tuple[str, TopicPartition], dict[int, float]] = {}
        #: The values of acknowledged records, and their number.
        self.written: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        self._seen: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        #: The offsets that were read, by group.
        self.read: dict[str, dict[TopicPartition, set[int]]] = defaultdict(lambda: defaultdict(set))
        self.read_count = 0
        self._runs: dict[str, ReaderRun] = {}
        #: The last time at which each group began a rebalance.
        self._rebalanced_s: dict[str, float] = {}
        #: Partitions without a last commit: they were lost when their owner left, or it failed.
        self._uncommitted: set[tuple[str, TopicPartition]] = set()

    # Writers

    def on_written(self, partition: TopicPartition, first: int, values: Collection[bytes]) -> None:
        """Note acknowledged records."""
        stored = self.written[partition]
        if self.is_healthy and first not in stored:
            self._expect_soon(partition, first)
        for offset, value in enumerate(values, start=first):
            other = stored.setdefault(offset, value)
            if other != value:
                self._report("content", f"{partition} {offset} is {other!r} and {value!r}")

    def _expect_soon(self, partition: TopicPartition, offset: int) -> None:
        """Note the time of a new record for each owner that has read all of its partitions.

        If an owner has not, its records may be delivered in any order. The position of a new
        partition must be looked up first, maybe behind a fetch.
        """
        for run in self._runs.values():
            if partition not in run.owned:
                continue
            if self._now_s() < run.owned[partition].since_s + _POSITION_S:
                continue
            read, owned = self.read[run.group], run.owned
            if run.is_leaving or any(len(read[p]) < len(self.written[p]) for p in owned):
                for each in owned:
                    self._due.pop((run.group, each), None)
            else:
                self._due[run.group, partition] = {offset: self._now_s()}

    # Readers

    def start(self, name: str, group: str, session_s: float, turn_s: float = 0.0) -> ReaderRun:
        """Note that a reader process starts; its former run owns nothing now.

        Args:
            name: The process.
            group: Its group.
            session_s: Its session timeout.
            turn_s: See `ReaderRun`.
        """
        run = self._runs[name] = ReaderRun(name, group, session_s, turn_s)
        run.commit_ended_s = self._now_s()
        return run

    def owned(self, name: str) -> dict[TopicPartition, OwnedPlace]:
        """Return the partitions that a process owns."""
        run = self._runs.get(name)
        return {} if run is None else run.owned

    def is_behind(self, name: str) -> bool:
        """True if a process has not read all records of its partitions, or reads them again."""
        run = self._runs.get(name)
        if run is None:
            return False
        read, written = self.read[run.group], self.written
        return any(
            written[p].keys() - read[p]
            or (place.next_offset is not None and place.next_offset <= max(written[p], default=-1))
            for p, place in run.owned.items()
        )

    def owner(self, group: str, partition: TopicPartition) -> str | None:
        """Return the member of a group that owns a partition, as it knows; None without one."""
        runs = (run for run in self._runs.values() if run.group == group)
        return next((run.name for run in runs if partition in run.owned), None)

    def given_up_s(self, name: str, partition: TopicPartition) -> float | None:
        """Return when a process gave a partition up; None if it owns it, or never had it."""
        run = self._runs.get(name)
        return None if run is None else run.given_up_s.get(partition)

    def commit_ended_s(self, name: str) -> float | None:
        """Return when the last commit of a user ended; None while one runs, or without a user."""
        run = self._runs.get(name)
        return None if run is None or run.commit_count else run.commit_ended_s

    def commit_hold(self, name: str) -> CommitHold | None:
        """Return the last time in which commits of a process were held back; None without one."""
        return self._commits.holds.get(name)

    def leaving_since_s(self, name: str) -> float | None:
        """Return when the listener of a consumer was called for a leave that goes on, or None."""
        run = self._runs.get(name)
        return None if run is None else run.leaving_since_s

    @contextmanager
    def committing(self, run: ReaderRun) -> Generator[None]:
        """Note that a commit of a user runs until the context ends."""
        run.commit_count += 1
        try:
            yield
        finally:
            run.commit_count -= 1
            run.commit_ended_s = self._now_s()

    def end(self, name: str) -> None:
        """Note that a reader process was killed or has ended."""
        self._runs.pop(name, None)

    def on_assigned(self, run: ReaderRun, partitions: Iterable[TopicPartition]) -> None:
        """Check the partitions of a callback, and note that the process owns them."""
        for partition in partitions:
            if partition in run.owned:
                self._report("callbacks", f"{run.name} gets {partition}, which it owns already")
            self._uncommitted.discard((run.group, partition))
            self._due.pop((run.group, partition), None)
            run.given_up_s.pop(partition, None)
            run.removed.discard(partition)
            run.fenced.discard(partition)
            run.owned[partition] = OwnedPlace(self._now_s(), self._now_s())

    def on_given_up(self, run: ReaderRun, call: str, partitions: Iterable[TopicPartition]) -> None:
        """Check the partitions of a callback, and note that the process does not own them."""
        if call == "lost" and run.is_leaving:
            run.has_lost = True
            self._uncommitted.update((run.group, partition) for partition in partitions)
        elif call == "lost" and not self.may_lose:
            self._report("callbacks", f"{run.name} lost {sorted(partitions)} without a fault")
        for partition in partitions:
            run.given_up_s[partition] = self._now_s()
            run.removed.discard(partition)
            if run.owned.pop(partition, None) is None:
                self._report("callbacks", f"{call} {partition} of {run.name}, which has not got it")

    def check_revocation(self, run: ReaderRun, since_s: float) -> None:
        """Check that partitions are revoked before the session of their owner has ended.

        A member that leaves without its coordinator revokes them, as in Kafka. So does one whose
        auto commit before the callback takes longer than the session, and is not checked.

        Args:
            run: The process.
            since_s: The time since which it has been running without a pause.
        """
        alive_s = self._alive_s(run.name)
        if alive_s is None or run.is_leaving:
            return
        end_s = max(alive_s + run.session_s, since_s)
        if self._now_s() > end_s + _REACTION_S:
            self._report("callbacks", f"{run.name} revokes partitions after its session has ended")

    def on_seek(
        self, run: ReaderRun, partition: TopicPartition, offset: int, *, is_reset: bool = False
    ) -> None:
        """Note that a process continues at an offset; ``is_reset`` if its client looks it up."""
        place = run.owned[partition]
        place.next_offset, place.is_reset, place.restarted_s = offset, is_reset, self._now_s()

    def committed(self, group: str, partition: TopicPartition) -> int | None:
        """Return the committed offset of a group; None if there is none."""
        return self._commits.committed.get((group, partition))

    def readable(self, run: ReaderRun, partition: TopicPartition) -> int:
        """Return the offset up to which the group has read all records of a partition."""
        read, offset = self.read[run.group][partition], 0
        while offset in read:
            offset += 1
        return offset

    def on_record(self, run: ReaderRun, record: Record) -> None:
        """Check a record that a process got."""
        partition = TopicPartition(record.topic, record.partition)
        offset, where = record.offset, f"{partition} {record.offset}"
        value = self._seen[partition].setdefault(offset, record.value)
        written = self.written[partition].get(offset, value)
        if not record.value == value == written:
            self._report("content", f"{run.name} read {record.value!r} at {where}, not {written!r}")
        place = run.owned.get(partition)
        if place is None:
            self._report("owner", f"{run.name} read {where} without owning it")
            return
        if self._is_expired(run):
            self._report("session", f"{run.name} read {where} after its session has ended")
        if place.is_paused:
            self._report("owner", f"{run.name} read {where} while it was paused")
        if partition in run.fenced:
            self._report("fenced", f"{run.name} read {where} after it learned that it was removed")
        for other in self._runs.values():
            owner = other.owned.get(partition) if other.group == run.group else None
            if owner is None or other is run or self._is_expired(other):
                continue
            if owner.since_s > place.since_s and partition not in run.removed:
                self._report("owner", f"{run.name} read {where}, which {other.name} owns")
        if place.next_offset is None:
            starts = self._commits.offsets_since(run.group, partition, place.since_s)
            if offset not in starts:
                self._report(
                    "start", f"{run.name} starts at {where}; committed was {sorted(starts)}"
                )
        elif offset != place.next_offset:
            self._report("order", f"{run.name} read {where} instead of {place.next_offset}")
        place.next_offset, place.is_reset = offset + 1, False
        self._check_delay(run, partition, offset)
        read = self.read[run.group][partition]
        if offset in read and not self._may_repeat:
            self._report("repeat", f"{run.name} read {where} again")
        read.add(offset)
        self.read_count += 1

    def _is_expired(self, run: ReaderRun) -> bool:
        """Return True if the session of a process has ended, of which it may not know yet.

        After a pause, it may even be told of partitions that it was assigned before.
        """
        alive_s = self._alive_s(run.name)
        return alive_s is not None and self._now_s() > alive_s + run.session_s

    def _check_delay(self, run: ReaderRun, partition: TopicPartition, offset: int) -> None:
        due = self._due.get((run.group, partition), {})
        written_s = due.pop(offset, None)
        limit_s = 2 * run.turn_s + _FRESH_S
        if written_s is not None and self._now_s() > written_s + limit_s and self.is_healthy:
            delay_s = self._now_s() - written_s
            self._report(
                "fresh", f"{run.name} got {partition} {offset} after {delay_s:.2f} s ({limit_s:g})"
            )

    def on_polled(
        self,
        run: ReaderRun,
        began_s: float,
        served: Collection[TopicPartition],
        fetched: Collection[TopicPartition],
    ) -> None:
        """Check that a poll is not empty without need, and did not pass a partition too often.

        Args:
            run: The process.
            began_s: When the poll began.
            served: The partitions of the records.
            fetched: The partitions of which it had records then.
        """
        if not served and self.is_healthy:
            self.check_wait(run, began_s, fetched)
        for partition, place in run.owned.items():
            if partition not in served and partition in fetched:
                place.passed += bool(served)
                place.owned_max = max(place.owned_max, len(run.owned))
                continue
            if partition in served and place.passed > place.owned_max + 1 and self.is_healthy:
                self._report("fairness", f"{place.passed} polls of {run.name} passed {partition}")
            place.passed = place.owned_max = 0

    def check_wait(
        self, run: ReaderRun, since_s: float, fetched: Collection[TopicPartition]
    ) -> None:
        """Check that a poll that waited or is empty could not deliver records.

        Args:
            run: The process.
            since_s: The time since which the poll has waited.
            fetched: The partitions of which it had records then.
        """
        rebalanced_s = max(self._rebalanced_s.get(run.group, 0.0), run.began_rebalance_s)
        for partition, place in run.owned.items():
            is_steady = rebalanced_s < place.since_s <= since_s
            if partition in fetched and not place.is_paused and is_steady:
                self._report("idle", f"a poll of {run.name} waits; it has fetched {partition}")

    def on_removed(self, name: str) -> None:
        """Note that an administrator removed a member, which does not know."""
        if run := self._runs.get(name):
            run.removed |= run.owned.keys()

    def on_fenced(self, run: ReaderRun, since_s: float) -> None:
        """Note that a commit failed because its member was removed.

        Args:
            run: The process.
            since_s: When the commit was called. Partitions that it got later are not affected.
        """
        run.fenced |= {p for p, place in run.owned.items() if place.since_s <= since_s}

    def on_committed(self, run: ReaderRun, offsets: dict[TopicPartition, int]) -> None:
        """Check a commit of offsets that has returned."""
        for partition, offset in offsets.items():
            if partition not in run.owned:
                continue
            self._uncommitted.discard((run.group, partition))
            stored = self._commits.committed.get((run.group, partition))
            if stored is None or stored < offset:
                self._report(
                    "commit", f"{run.name} committed {offset} of {partition}, stored is {stored}"
                )

    def on_failure(self, run: ReaderRun) -> None:
        """Note that a call failed, maybe the last commit of a process, because of a rebalance."""
        self._uncommitted.update((run.group, partition) for partition in run.owned)

    def check_behind(self, run: ReaderRun, limit_s: float) -> None:
        """Check that no position has been uncommitted for longer than a limit, in seconds.

        While a coordinator holds a commit back, it reads no later one on the same connection.
        """
        now_s = self._now_s()
        hold = self._commits.holds.get(run.name)
        held_until_s = 0.0 if hold is None else hold.until_s
        for partition, place in run.owned.items():
            stored = self._commits.committed.get((run.group, partition), 0)
            if place.next_offset is None or place.next_offset <= stored:
                place.behind = None
            elif place.behind is None or place.behind[1] <= stored:
                place.behind = now_s, place.next_offset
            elif now_s > max(place.behind[0], held_until_s) + limit_s:
                self._report(
                    "late_commit",
                    f"{run.name} read {partition} up to {place.behind[1]} "
                    f"{now_s - place.behind[0]:.1f} s ago ({limit_s:g}), committed is {stored}",
                )

    def on_rebalance(self, group: str) -> None:
        """Note that a group rebalances: commits, and so the turns of readers, may take longer."""
        self._rebalanced_s[group] = self._now_s()
        for key in [key for key in self._due if key[0] == group]:
            del self._due[key]

    def on_rejoin_due(self, name: str) -> None:
        """Note that a member learns of partitions because of which it joins: it may deliver nothing
        from now on.
        """
        if (run := self._runs.get(name)) is not None:
            run.began_rebalance_s = self._now_s()

    def begin_leave(self, run: ReaderRun) -> None:
        """Note that a consumer leaves its group."""
        run.is_leaving, run.has_lost, run.leaving_since_s = True, False, None

    def end_leave(self, run: ReaderRun) -> None:
        """Note that a consumer has left its group, or has given up to."""
        run.is_leaving, run.leaving_since_s = False, None

    def check_left(self, run: ReaderRun, offsets: Mapping[TopicPartition, int]) -> None:
        """Check that a consumer that left without faults gave its partitions up, and committed.

        Args:
            run: The process.
            offsets: Its positions before.
        """
        self.end_leave(run)
        if run.owned:
            self._report("callbacks", f"{run.name} left, but owns {sorted(run.owned)}")
        if run.has_lost:
            return
        for partition, offset in offsets.items():
            stored = self._commits.committed.get((run.group, partition), 0)
            if stored < offset:
                self._report(
                    "commit", f"{run.name} left at {offset} of {partition}, stored is {stored}"
                )

    # The end

    def check_last_commits(self, subscriptions: dict[str, set[str]]) -> None:
        """Check that the committed offsets are the ends of the partitions, when all is read.

        Args:
            subscriptions: The topics of each group.
        """
        for group, topics in subscriptions.items():
            for partition, stored in self.written.items():
                committed = self._commits.committed.get((group, partition), 0)
                is_exempt = partition.topic not in topics or (group, partition) in self._uncommitted
                if not is_exempt and committed <= max(stored, default=-1):
                    self._report(
                        "commit", f"{group} has committed {committed} of {partition} at the end"
                    )

    def unread(self, subscriptions: dict[str, set[str]]) -> dict[str, dict[TopicPartition, int]]:
        """Return the number of records that each group has not read.

        Args:
            subscriptions: The topics of each group.
        """
        found: dict[str, dict[TopicPartition, int]] = {}
        for group, topics in subscriptions.items():
            for partition, stored in self.written.items():
                missing = len(stored.keys() - self.read[group][partition])
                if partition.topic in topics and missing:
                    found.setdefault(group, {})[partition] = missing
        return found

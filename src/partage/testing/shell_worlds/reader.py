"""A reader process: one `partage.Consumer` that polls, commits, pauses and seeks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from random import Random
from typing import Final

from partage.client.consumer.consumer import Consumer
from partage.client.consumer.listener import RebalanceListener
from partage.client.consumer.records import Record, Records
from partage.client.errors import BrokersUnreachableError, ClientError
from partage.client.group.errors import CommitFailedError, MemberFailedError
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.testing.shell_worlds.delivery_rules import DeliveryRules, ReaderRun
from partage.testing.shell_worlds.scenario import NEW_TOPIC, ReaderPlan
from partage.testing.world.world import PartageWorld

ITERATION_S: Final = 1.0
_STALL_S: Final = 9.0
_STALL_SHARE: Final = 0.01
_PAUSE_SHARE: Final = 0.2
_SEEK_SHARE: Final = 0.05
_FIRST_SEEK_SHARE: Final = 0.3
_SEEK_RECORDS_MAX: Final = 5
_SEEK_BEGIN_SHARE: Final = 0.3
_UNSUBSCRIBE_SHARE: Final = 0.02
#: Beyond the interval of auto commits: polls are late, and a commit fails while a group rebalances.
_LATE_COMMIT_S: Final = 3.0
_SESSION_MS: Final = 45_000
_COMMIT_SHARE_AT_REVOKE: Final = 0.1
CLOSE_S: Final = 10.0
_CLOSED_S: Final = 1.0
_RETRY_S: Final = 0.1
#: Longer than the time from the arrival of records, or an assignment, to their delivery. The first
#: heartbeats of a generation follow each other quickly, and hide longer delays.
_IDLE_S: Final = 0.02
_CLOSE_TIMEOUT_MS: Final = 30_000
#: The time between two commits that overlap, and the tolerance of their limit.
_OVERLAP_S: Final = 0.3
#: Errors of commits whose member was removed, in whatever generation it was.
_REMOVED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})
_COMMITS_MAX: Final = 5
#: How long most partitions stay paused, in seconds.
_LONG_PAUSE_S: Final = (1.0, 8.0)
#: A buffer that may have no room for the records of another partition.
_SMALL_BUFFER: Final = 1 << 16
#: Between two turns without a wait.
_TURN_S: Final = 0.05


class Reader:
    """A process that reads topics as a member of a group.

    Args:
        name: The name of the process.
        plan: What it does.
        rules: Told about callbacks, records and commits.
        world: The world.
        rng: Draws its actions.
    """

    def __init__(
        self, name: str, plan: ReaderPlan, rules: DeliveryRules, world: PartageWorld, rng: Random
    ) -> None:
        self._name = name
        self._plan = plan
        self._rules = rules
        self._world = world
        self._rng = rng
        #: The topics that it reads.
        self.topics = plan.topics
        self.is_stopped = False
        #: True after all faults: it does not pause, seek or stall.
        self.is_calm = False
        #: It now and then takes longer than its maximum poll interval.
        self.may_stall = False
        #: False when each call must succeed.
        self.may_fail = True
        #: True if nothing keeps the consumer from closing quickly.
        self.must_close = False
        #: Returns the partitions of which its consumer has had records at a time.
        self.fetched_at: Callable[[str, float], Collection[TopicPartition]] = lambda name, at_s: ()
        self._commits: set[asyncio.Task[None]] = set()
        self._resume_s = 0.0
        #: The time of its next turn, in seconds: it does not poll meanwhile.
        self.busy_s = 0.0
        #: True while its brokers are reachable, and it knows.
        self.is_connected = False
        #: The timeout of its close.
        self.close_timeout_ms = _CLOSE_TIMEOUT_MS
        #: Called in its next turn, which then commits the same offsets twice at the same time.
        self.before_overlap: Callable[[], None] | None = None
        #: False to ask the consumer about its partitions in its next turn; then it becomes True.
        self.is_probed = True

    @property
    def is_behind(self) -> bool:
        """True if there are records that it has not read, or reads again."""
        return self._rules.is_behind(self._name)

    @property
    def owns_nothing(self) -> bool:
        """True if no partition is assigned to it."""
        return not self._rules.owned(self._name)

    async def main(self) -> None:
        """Read until ``is_stopped`` is True, with a new consumer whenever one was refused."""
        while not self.is_stopped:
            session_ms = self._plan.options.get("session_timeout_ms", _SESSION_MS)
            turn_s = _turn_s(self._plan, len(self._world.brokers))
            run = self._rules.start(self._name, self._plan.group, session_ms / 1000, turn_s)
            options = {"group_id": self._plan.group, **self._plan.options}
            consumer = Consumer(self._world.bootstrap_servers, **options)
            consumer.subscribe(self._subscription, _Listener(self, run, consumer))
            await self._read(consumer, run)
            await self._close(consumer, run)

    @property
    def _subscription(self) -> list[str] | re.Pattern[str]:
        topics = list(self._plan.topics)
        return re.compile("|".join([*topics, NEW_TOPIC])) if self._plan.has_pattern else topics

    async def _read(self, consumer: Consumer, run: ReaderRun) -> None:
        while not self.is_stopped:
            was_connected = self.is_connected
            try:
                await self._take_turn(consumer, run)
            except ClientError as error:
                self._rules.on_failure(run)
                is_connected = was_connected and isinstance(error, BrokersUnreachableError)
                if not self.may_fail or is_connected:
                    text = f"{self._name}: {type(error).__name__}: {error}"
                    self._world.break_rule("failure", text)
                await self._stay_busy(_RETRY_S)
                # the instance id of a killed member is in use until its session ends
                if isinstance(error, MemberFailedError):
                    return

    async def _close(self, consumer: Consumer, run: ReaderRun) -> None:
        if self._commits:
            await asyncio.wait(self._commits, timeout=CLOSE_S)
        if self._plan.commits == "unawaited":
            await self._commit_last(consumer, run)
        problem, offsets = "", _next_offsets(run)
        self._rules.begin_leave(run)
        try:
            async with asyncio.timeout(CLOSE_S):
                await consumer.close(self.close_timeout_ms)
        except TimeoutError:
            problem = f"did not close within {CLOSE_S:g} s"
        except ClientError as error:
            problem = f"{type(error).__name__}: {error}"
        await asyncio.sleep(_CLOSED_S)
        if count := self._world.connection_count(self._name):
            problem = problem or f"left {count} connections open"
        if problem and self.must_close:
            self._world.break_rule("close", f"{self._name}: {problem}")
        self._check_left(run, offsets)

    def _check_left(self, run: ReaderRun, offsets: dict[TopicPartition, int]) -> None:
        if self.must_close:
            commits_at_end = self._plan.commits in ("auto", "at_revoke")
            self._rules.check_left(run, offsets if commits_at_end else {})
        else:
            self._rules.end_leave(run)

    async def _stay_busy(self, least_s: float) -> None:
        """Wait without polling."""
        busy_s, self.busy_s = self.busy_s, 0.0
        await asyncio.sleep(max(least_s, busy_s))

    async def _take_turn(self, consumer: Consumer, run: ReaderRun) -> None:
        plan, rng = self._plan, self._rng
        began_s, fetched = self._world.elapsed_s, self._fetched(run)
        if plan.iterates:
            found = await self._next_records(consumer)
            self._check_wait(run, began_s)
            self._take(run, found)
        else:
            records = await consumer.poll(plan.poll_timeout_ms)
            self._check_wait(run, began_s)
            self._rules.on_polled(run, began_s, set(records.partitions), fetched)
            self._take(run, self._arrow_records(records) if plan.takes_arrow else records)
        if self.before_overlap is not None:
            self.before_overlap()
            await self._overlap_commits(consumer, run)
            self.before_overlap = None
            return  # the commit of this turn could be late, too, and the next poll too late
        await self._commit_if_due(consumer, run)
        if self.must_close and plan.commits == "auto":
            interval_s = plan.options["auto_commit_interval_ms"] / 1000
            self._rules.check_behind(run, interval_s + _LATE_COMMIT_S)
        if not self.is_probed:
            await self._probe(consumer, run)
            self.is_probed = True
        if self.is_calm:
            self._resume(consumer, run)
        else:
            await self._resubscribe(consumer, run)
            self._pause_or_seek(consumer, run)
            if self.may_stall and rng.random() < _STALL_SHARE:
                await asyncio.sleep(_STALL_S)
        # a poll without a timeout and without work would take all turns of the loop
        await self._stay_busy(plan.work_s * rng.random() + (0 if plan.poll_timeout_ms else _TURN_S))

    def _fetched(self, run: ReaderRun) -> Collection[TopicPartition]:
        is_judged = self._rules.is_healthy and run.owned
        return self.fetched_at(self._name, self._world.elapsed_s) if is_judged else ()

    def _check_wait(self, run: ReaderRun, began_s: float) -> None:
        """Check that a poll has not waited although there were records all the time."""
        since_s = self._world.elapsed_s - _IDLE_S
        if began_s < since_s and self._rules.is_healthy:
            self._rules.check_wait(run, since_s, self.fetched_at(self._name, since_s))

    async def _next_records(self, consumer: Consumer) -> list[Record]:
        try:
            async with asyncio.timeout(ITERATION_S):
                return [await anext(consumer)]
        except TimeoutError:
            return []

    def _arrow_records(self, records: Records) -> list[Record]:
        rows = records.to_arrow(("topic", "partition", "offset", "value")).to_pylist()
        return [
            Record(row["topic"], row["partition"], row["offset"], 0, 0, None, row["value"], ())
            for row in rows
        ]

    def _take(self, run: ReaderRun, records: Iterable[Record]) -> None:
        for record in records:
            self._rules.on_record(run, record)
            self._world.processed(record, group=self._plan.group)

    # Commits

    async def _commit_if_due(self, consumer: Consumer, run: ReaderRun) -> None:
        offsets = _next_offsets(run)
        if not offsets:
            return
        match self._plan.commits:
            case "after_poll":
                await self._commit(consumer, run)
            case "offsets":
                await self._commit(consumer, run, offsets)
            case "unawaited":
                self._start_commit(consumer, run, offsets)
                return
            case "at_revoke" if self.is_calm or self._rng.random() < _COMMIT_SHARE_AT_REVOKE:
                await self._commit(consumer, run)
            case _:
                return
        self._rules.on_committed(run, offsets)

    async def _commit(
        self,
        consumer: Consumer,
        run: ReaderRun,
        offsets: dict[TopicPartition, int] | None = None,
    ) -> None:
        """Commit, and tell the rules if the member was removed."""
        began_s = self._world.elapsed_s
        with self._rules.committing(run):
            try:
                await consumer.commit(offsets)
            except CommitFailedError as error:
                if error.code in _REMOVED:
                    self._rules.on_fenced(run, began_s)
                raise

    async def _overlap_commits(self, consumer: Consumer, run: ReaderRun) -> None:
        """Commit while an earlier commit of the same partitions is not answered.

        The second one waits, but not longer than the timeout of calls.
        """
        offsets = {partition: await consumer.position(partition) for partition in run.owned}
        if not offsets:
            return
        with self._rules.committing(run):
            first = asyncio.create_task(consumer.commit(offsets))
            await asyncio.sleep(_OVERLAP_S)
            began_s = self._world.elapsed_s
            with suppress(ClientError):
                await consumer.commit(offsets)
            took_s = self._world.elapsed_s - began_s
            limit_s = self._plan.options["default_api_timeout_ms"] / 1000
            if took_s > limit_s + _OVERLAP_S:
                self._world.break_rule(
                    "timeout", f"a commit of {self._name} took {took_s:.2f} s ({limit_s:g})"
                )
            with suppress(ClientError):
                await first

    def _start_commit(
        self, consumer: Consumer, run: ReaderRun, offsets: dict[TopicPartition, int]
    ) -> None:
        """Commit without waiting for the end."""

        async def commit() -> None:
            try:
                with self._rules.committing(run):
                    await consumer.commit(offsets)
            except ClientError:
                return
            if not self._plan.seeks:
                self._rules.on_committed(run, offsets)

        if len(self._commits) < _COMMITS_MAX:
            task = asyncio.create_task(commit())
            self._commits.add(task)
            task.add_done_callback(self._commits.discard)

    async def _commit_last(self, consumer: Consumer, run: ReaderRun) -> None:
        """Commit the last positions: if too many commits were under way, they had no commit yet."""
        if offsets := _next_offsets(run):
            with suppress(ClientError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._commit(consumer, run, offsets)

    async def on_revoked(self, run: ReaderRun, consumer: Consumer) -> None:
        """Commit before partitions are revoked."""
        if self._plan.commits == "at_revoke" and (offsets := _next_offsets(run)):
            try:
                with self._rules.committing(run):
                    await consumer.commit()
            except ClientError:
                return
            self._rules.on_committed(run, offsets)

    # Callbacks

    def check_revocation(self, run: ReaderRun, partitions: Collection[TopicPartition]) -> None:
        """Check a callback before partitions are revoked."""
        if self._plan.commits != "auto":
            self._rules.check_revocation(run, self._world.last_pause(self._name)[1])
        elif not self._rules.may_lose and not run.is_leaving:
            offsets = {p: n for p, n in _next_offsets(run).items() if p in partitions}
            self._rules.on_committed(run, offsets)

    def take(
        self, run: ReaderRun, consumer: Consumer, partitions: Collection[TopicPartition]
    ) -> None:
        """Note that partitions were assigned, and seek in some of them."""
        self._rules.on_assigned(run, partitions)
        for partition in sorted(partitions):
            if self._plan.seeks and not self.is_calm and self._rng.random() < _FIRST_SEEK_SHARE:
                offset = self._rng.randrange(self._rules.readable(run, partition) + 1)
                consumer.seek(partition, offset)
                self._rules.on_seek(run, partition, offset)

    async def leave_slowly(self, run: ReaderRun) -> None:
        """Take time in the listener of a consumer that leaves."""
        if run.is_leaving and self._plan.slow_leave_s:
            run.leaving_since_s = self._world.elapsed_s
            await asyncio.sleep(self._plan.slow_leave_s)

    def give_up(self, run: ReaderRun, call: str, partitions: Collection[TopicPartition]) -> None:
        """Note that partitions were revoked or lost."""
        self._rules.on_given_up(run, call, partitions)

    # Answers

    async def _probe(self, consumer: Consumer, run: ReaderRun) -> None:
        """Compare what a consumer in a stable group says with what it was told and has read."""
        self._expect("assignment", set(consumer.assignment()), set(run.owned))
        self._expect("subscription", set(consumer.subscription()), set(self.topics))
        self._expect("paused", set(consumer.paused()), set())
        owned = sorted(run.owned)
        positions = {partition: await consumer.position(partition) for partition in owned}
        read = {p: positions[p] if n is None else n for p, n in _places(run).items()}
        self._expect("position", positions, read)
        begins = await consumer.beginning_offsets(owned)
        self._expect("beginning_offsets", begins, dict.fromkeys(owned, 0))
        ends = await consumer.end_offsets(owned)
        known = {p: max(self._rules.written[p], default=-1) + 1 for p in owned}
        self._expect("end_offsets", ends, known)
        lags = {p: known[p] - positions[p] for p in owned}
        self._expect("lag", await consumer.lag(), lags)
        committed = {
            partition: None if found is None else found.offset
            for partition, found in (await consumer.committed(owned)).items()
        }
        stored = {p: self._rules.committed(run.group, p) for p in owned}
        self._expect("committed", committed, stored)

    def _expect(self, name: str, found: object, expected: object) -> None:
        if found != expected:
            self._world.break_rule(
                "answers", f"{name} of {self._name} is {found}, expected {expected}"
            )

    async def _resubscribe(self, consumer: Consumer, run: ReaderRun) -> None:
        """Leave the group and join it again with the same consumer."""
        if not self._plan.resubscribes or self._rng.random() >= _UNSUBSCRIBE_SHARE:
            return
        offsets = _next_offsets(run)
        self._rules.begin_leave(run)
        await consumer.unsubscribe()
        self._check_left(run, offsets)
        consumer.subscribe(self._subscription, _Listener(self, run, consumer))

    # Pauses and seeks

    def _pause_or_seek(self, consumer: Consumer, run: ReaderRun) -> None:
        rng, owned = self._rng, sorted(run.owned)
        if self._plan.keeps_pauses:
            self._keep_pauses(consumer, run)
        elif self._plan.pauses and rng.random() < _PAUSE_SHARE:
            paused = consumer.paused()
            if paused:
                self._resume(consumer, run)
            elif owned:
                partition = rng.choice(owned)
                consumer.pause(partition)
                run.owned[partition].is_paused = True
        if self._plan.seeks and rng.random() < _SEEK_SHARE:
            places = {p: run.owned[p].next_offset for p in owned}
            started = [p for p, offset in places.items() if offset]
            if started:
                partition = rng.choice(started)
                if rng.random() < _SEEK_BEGIN_SHARE:
                    consumer.seek_to_beginning(partition)
                    self._rules.on_seek(run, partition, 0, is_reset=True)
                    return
                offset = max(0, (places[partition] or 0) - rng.randint(0, _SEEK_RECORDS_MAX))
                consumer.seek(partition, offset)
                self._rules.on_seek(run, partition, offset)

    def _keep_pauses(self, consumer: Consumer, run: ReaderRun) -> None:
        """Pause all partitions but one for a time, so that the others fill the buffer."""
        now_s = self._world.elapsed_s
        if now_s < self._resume_s:
            return
        if consumer.paused():
            self._resume(consumer, run)
            self._resume_s = now_s + _TURN_S
            return
        owned = sorted(run.owned)
        self._rng.shuffle(owned)
        for partition in owned[1:]:
            consumer.pause(partition)
            run.owned[partition].is_paused = True
        self._resume_s = now_s + self._rng.uniform(*_LONG_PAUSE_S)

    def _resume(self, consumer: Consumer, run: ReaderRun) -> None:
        """Resume all paused partitions."""
        for partition in sorted(consumer.paused()):
            consumer.resume(partition)
            place = run.owned.get(partition)
            if place is None:  # a wait was cancelled before the consumer gave it up
                continue
            # its buffer may have been given up
            place.is_paused, place.restarted_s = False, self._world.elapsed_s


class _Listener(RebalanceListener):
    """Tells the rules about each callback."""

    def __init__(self, reader: Reader, run: ReaderRun, consumer: Consumer) -> None:
        self._reader = reader
        self._run = run
        self._consumer = consumer

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._reader.check_revocation(self._run, partitions)
        try:
            await self._reader.on_revoked(self._run, self._consumer)
            await self._reader.leave_slowly(self._run)
        finally:  # an iteration with a timeout may cancel the callback
            self._reader.give_up(self._run, "revoked", partitions)

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._reader.give_up(self._run, "lost", partitions)

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._reader.take(self._run, self._consumer, partitions)


def _turn_s(plan: ReaderPlan, brokers: int) -> float:
    """Return the time between two polls with the waits of fetches; see `ReaderRun`."""
    options = plan.options
    wait_s = options["fetch_max_wait_ms"] / 1000
    waits = (brokers if brokers > 1 else 0) + (options["fetch_min_bytes"] > 1)
    # A fetch leaves out partitions whose records fill the buffer, until it ends.
    waits += options["buffer_bytes_max"] < _SMALL_BUFFER
    return float(plan.work_s + _TURN_S + waits * wait_s)


def _places(run: ReaderRun) -> dict[TopicPartition, int | None]:
    return {p: place.next_offset for p, place in run.owned.items()}


def _next_offsets(run: ReaderRun) -> dict[TopicPartition, int]:
    """Return the positions that a commit certainly includes: those that the client knows."""
    return {
        p: place.next_offset
        for p, place in run.owned.items()
        if place.next_offset is not None and not place.is_reset
    }

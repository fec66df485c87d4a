"""A reader process: one `partage.Consumer` that polls, commits, pauses and seeks."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from random import Random
from typing import Final

from partage.client.consumer.consumer import Consumer
from partage.client.consumer.listener import RebalanceListener
from partage.client.consumer.records import Record, Records
from partage.client.errors import ClientError
from partage.client.group.errors import MemberFailedError
from partage.model.topic_partition import TopicPartition
from partage.testing.shell_worlds.delivery_rules import DeliveryRules, ReaderRun
from partage.testing.shell_worlds.scenario import ReaderPlan
from partage.testing.world.world import PartageWorld

_ITERATION_S: Final = 1.0
_STALL_S: Final = 9.0
_STALL_SHARE: Final = 0.01
_PAUSE_SHARE: Final = 0.2
_SEEK_SHARE: Final = 0.05
_FIRST_SEEK_SHARE: Final = 0.3
_SEEK_RECORDS_MAX: Final = 5
_COMMIT_SHARE_AT_REVOKE: Final = 0.1
CLOSE_S: Final = 10.0
_CLOSED_S: Final = 1.0
_RETRY_S: Final = 0.1


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
        self.is_stopped = False
        #: True after all faults: it does not pause, seek or stall.
        self.is_calm = False
        #: It now and then takes longer than its maximum poll interval.
        self.may_stall = False
        #: False when each call must succeed.
        self.may_fail = True
        #: True if nothing keeps the consumer from closing quickly.
        self.must_close = False

    async def main(self) -> None:
        """Read until ``is_stopped`` is True, with a new consumer whenever one was refused."""
        while not self.is_stopped:
            run = self._rules.start(self._name, self._plan.group)
            options = {"group_id": self._plan.group, **self._plan.options}
            consumer = Consumer(self._world.bootstrap_servers, **options)
            consumer.subscribe(list(self._plan.topics), _Listener(self, run, consumer))
            await self._read(consumer, run)
            await self._close(consumer)

    async def _read(self, consumer: Consumer, run: ReaderRun) -> None:
        while not self.is_stopped:
            try:
                await self._take_turn(consumer, run)
            except ClientError as error:
                if not self.may_fail:
                    text = f"{self._name}: {type(error).__name__}: {error}"
                    self._world.break_rule("failure", text)
                await asyncio.sleep(_RETRY_S)
                # the instance id of a killed member is in use until its session ends
                if isinstance(error, MemberFailedError):
                    return

    async def _close(self, consumer: Consumer) -> None:
        problem = ""
        try:
            async with asyncio.timeout(CLOSE_S):
                await consumer.close()
        except TimeoutError:
            problem = f"did not close within {CLOSE_S:g} s"
        except ClientError as error:
            problem = f"{type(error).__name__}: {error}"
        await asyncio.sleep(_CLOSED_S)
        if count := self._world.connection_count(self._name):
            problem = problem or f"left {count} connections open"
        if problem and self.must_close:
            self._world.break_rule("close", f"{self._name}: {problem}")

    async def _take_turn(self, consumer: Consumer, run: ReaderRun) -> None:
        plan, rng = self._plan, self._rng
        if plan.iterates:
            self._take(run, await self._next_records(consumer))
        else:
            records = await consumer.poll(plan.poll_timeout_ms)
            self._take(run, self._arrow_records(records) if plan.takes_arrow else records)
        await self._commit_if_due(consumer, run)
        if self.is_calm:
            self._resume(consumer, run)
        else:
            self._pause_or_seek(consumer, run)
            if self.may_stall and rng.random() < _STALL_SHARE:
                await asyncio.sleep(_STALL_S)
        # a poll without a timeout and without work would take all turns of the loop
        await asyncio.sleep(plan.work_s * rng.random() + (0 if plan.poll_timeout_ms else 0.05))

    async def _next_records(self, consumer: Consumer) -> list[Record]:
        try:
            async with asyncio.timeout(_ITERATION_S):
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
                await consumer.commit()
            case "offsets":
                await consumer.commit(offsets)
            case "at_revoke" if self.is_calm or self._rng.random() < _COMMIT_SHARE_AT_REVOKE:
                await consumer.commit()
            case _:
                return
        self._rules.on_committed(run, offsets)

    async def on_revoked(self, run: ReaderRun, consumer: Consumer) -> None:
        """Commit before partitions are revoked."""
        if self._plan.commits == "at_revoke" and (offsets := _next_offsets(run)):
            try:
                await consumer.commit()
            except ClientError:
                return
            self._rules.on_committed(run, offsets)

    # Callbacks

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

    def give_up(self, run: ReaderRun, call: str, partitions: Collection[TopicPartition]) -> None:
        """Note that partitions were revoked or lost."""
        self._rules.on_given_up(run, call, partitions)

    # Pauses and seeks

    def _pause_or_seek(self, consumer: Consumer, run: ReaderRun) -> None:
        rng, owned = self._rng, sorted(run.owned)
        if self._plan.pauses and rng.random() < _PAUSE_SHARE:
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
                offset = max(0, (places[partition] or 0) - rng.randint(0, _SEEK_RECORDS_MAX))
                consumer.seek(partition, offset)
                self._rules.on_seek(run, partition, offset)

    def _resume(self, consumer: Consumer, run: ReaderRun) -> None:
        """Resume all paused partitions."""
        for partition in sorted(consumer.paused()):
            consumer.resume(partition)
            run.owned[partition].is_paused = False


class _Listener(RebalanceListener):
    """Tells the rules about each callback."""

    def __init__(self, reader: Reader, run: ReaderRun, consumer: Consumer) -> None:
        self._reader = reader
        self._run = run
        self._consumer = consumer

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await self._reader.on_revoked(self._run, self._consumer)
        self._reader.give_up(self._run, "revoked", partitions)

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._reader.give_up(self._run, "lost", partitions)

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._reader.take(self._run, self._consumer, partitions)


def _next_offsets(run: ReaderRun) -> dict[TopicPartition, int]:
    return {p: place.next_offset for p, place in run.owned.items() if place.next_offset is not None}

"""A reader process: one `partage.Consumer` in a group, whose topics change."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final

from partage.assignors import Assignment, Assignor, Member, Range, Topic
from partage.client.consumer.consumer import Consumer
from partage.client.consumer.errors import (
    NoOffsetForPartitionError,
    NotAssignedError,
    OffsetOutOfRangeError,
    TopicRecreatedError,
)
from partage.client.consumer.listener import RebalanceListener
from partage.client.errors import (
    BrokerResponseError,
    BrokersUnreachableError,
    ClientError,
    UnknownTopicError,
)
from partage.client.group.errors import (
    AssignmentFailedError,
    CommitFailedError,
    MaxPollExceededError,
    MemberFailedError,
)
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.testing.topic_worlds.scenario import TopicMemberPlan
from partage.testing.topic_worlds.topic_rules import MemberRun, TopicRules
from partage.testing.world.world import PartageWorld

_POLL_MS: Final = 500
_RETRY_S: Final = 0.2
_REFUSED_S: Final = 2.0
_CLOSE_S: Final = 10.0
_ITERATED_MAX: Final = 5
#: The share of the turns in which a reader with a loop polls: its loop has records left then.
_POLL_SHARE: Final = 0.2
_PAUSE_SHARE: Final = 0.2
_RESUME_SHARE: Final = 0.1
_CHANGE_SHARE: Final = 0.05
_FAILURE_SHARE: Final = 0.5
#: Beyond its timeout, a poll may wait for a commit before partitions are revoked.
_LATE_POLL_S: Final = 2.0
#: Errors that members may get: fences, rebalances, missing topics, and brokers that were down when
#: the consumer started.
_EXPECTED: Final = (
    AssignmentFailedError,
    BrokersUnreachableError,
    CommitFailedError,
    MaxPollExceededError,
    MemberFailedError,
    UnknownTopicError,
)
#: Errors of commits in deleted topics.
_MISSING: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class FailingRange(Range):
    """The assignor `range`, which fails now and then.

    Args:
        fails: Returns True if the next assignment fails.
    """

    def __init__(self, fails: Callable[[], bool]) -> None:
        super().__init__()
        self._fails = fails

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        """Assign, or fail."""
        if self._fails():
            raise ValueError("the assignor fails")
        return super().assign(members, topics)


class TopicMember:
    """A process that reads topics as a member of a group.

    Args:
        name: The name of the process.
        group: Its group.
        plan: What it does.
        rules: Told about callbacks and records.
        world: The world.
        seed: Determines its actions.
    """

    def __init__(
        self,
        name: str,
        group: str,
        plan: TopicMemberPlan,
        rules: TopicRules,
        world: PartageWorld,
        seed: int,
    ) -> None:
        self._name = name
        self._group = group
        self._plan = plan
        self._rules = rules
        self._world = world
        self._rng = Random(f"{name} {seed}")
        self.topics: tuple[str, ...] = ("t", "u")
        self.is_stopped = False
        #: True after all faults: it keeps its topics, and its assignor works.
        self.is_calm = False
        #: False to ask the consumer about its partitions in its next turn; then it becomes True.
        self.is_probed = True

    async def main(self) -> None:
        """Read until ``is_stopped`` is True, with a new consumer whenever one was refused."""
        while not self.is_stopped:
            run = self._rules.start(self._name)
            consumer = Consumer(self._world.bootstrap_servers, **self._options())
            consumer.subscribe(self._subscription, _Listener(self._rules, run))
            await self._read(consumer, run)
            await self._drain(consumer, run)
            began_s = self._world.elapsed_s
            try:
                await consumer.close(int(_CLOSE_S * 1000))
            except ClientError as error:
                self._report(error)
            if self._world.elapsed_s > began_s + _CLOSE_S + 1 and self.is_calm:
                self._world.break_rule("close", f"{self._name} took longer than {_CLOSE_S:g} s")
            self._rules.end(self._name)
            if not self.is_stopped:
                await asyncio.sleep(_REFUSED_S)

    @property
    def _subscription(self) -> tuple[str, ...] | re.Pattern[str]:
        return re.compile("[a-z]") if self._plan.has_pattern else self.topics

    async def _drain(self, consumer: Consumer, run: MemberRun) -> None:
        """Hand the partitions over; polls return records until then."""
        if not self._plan.drains:
            return
        consumer.drain()
        end_s = self._world.elapsed_s + _CLOSE_S
        while not consumer.is_drained and self._world.elapsed_s < end_s:
            try:
                await self._take_turn(consumer, run)
            except ClientError as error:
                self._report(error)
                return

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {**self._plan.options, "group_id": self._group}
        if self._plan.has_failing_assignor:
            assignor: Assignor = FailingRange(self._assignor_fails)
            options["partition_assignment_strategy"] = [assignor]
        return options

    def _assignor_fails(self) -> bool:
        return not self.is_calm and self._rng.random() < _FAILURE_SHARE

    async def _read(self, consumer: Consumer, run: MemberRun) -> None:
        while not self.is_stopped:
            try:
                await self._take_turn(consumer, run)
            except MemberFailedError as error:
                self._report(error)
                return
            except (
                NoOffsetForPartitionError,
                OffsetOutOfRangeError,
                TopicRecreatedError,
            ) as error:
                self._restart(consumer, run, error)
            except ClientError as error:
                self._report(error)
                await asyncio.sleep(_RETRY_S)

    def _restart(
        self,
        consumer: Consumer,
        run: MemberRun,
        error: NoOffsetForPartitionError | OffsetOutOfRangeError | TopicRecreatedError,
    ) -> None:
        self._world.note(f"{self._name}: {type(error).__name__} {error}")
        is_caused = isinstance(error, NoOffsetForPartitionError) or self._rules.reset_cause(
            run, error.partition
        )
        if not is_caused:
            self._world.break_rule("reset", f"{self._name}: {error}")
        try:
            consumer.seek_to_beginning(error.partition)
        except NotAssignedError:
            return
        self._rules.on_restarted(run, error.partition)

    def _report(self, error: ClientError) -> None:
        text = f"{self._name}: {type(error).__name__}: {error}"
        self._world.note(text)
        is_of_missing_topic = isinstance(error, BrokerResponseError) and error.code in _MISSING
        if not isinstance(error, _EXPECTED) and not is_of_missing_topic:
            self._world.break_rule("failure", text)

    async def _take_turn(self, consumer: Consumer, run: MemberRun) -> None:
        began_s, was_calm = self._world.elapsed_s, self.is_calm
        if self._plan.iterates and self._rng.random() >= _POLL_SHARE:
            count = await self._take_records(consumer, run)
        else:
            records = await consumer.poll(_POLL_MS)
            count = len(records)
            for record in records:
                self._rules.on_record(run, record)
        took_s = self._world.elapsed_s - began_s
        if took_s > _POLL_MS / 1000 + _LATE_POLL_S and was_calm:
            self._world.break_rule("late", f"a poll of {self._name} took {took_s:.1f} s")
        if not self.is_probed:
            await self._probe(consumer, run)
            self.is_probed = True
        if self.is_calm and (paused := consumer.paused()):
            consumer.resume(*paused)  # a commit for a deleted topic ends when a fetch shows it
        if count and self._plan.commits_after_polls:
            await consumer.commit()
        if self._plan.pauses:
            self._pause_or_resume(consumer, run)
        may_change = self._plan.changes_topics and not (self.is_calm or self.is_stopped)
        if may_change and self._rng.random() < _CHANGE_SHARE:
            self.choose_topics(consumer, run, self._rng.choice((("t",), ("u",), ("t", "u"))))
        await asyncio.sleep(self._rng.uniform(0, self._plan.work_s))

    async def _take_records(self, consumer: Consumer, run: MemberRun) -> int:
        """Take records from a loop until it waits for some time; return their number."""
        count = 0
        with suppress(TimeoutError, StopAsyncIteration):
            async with asyncio.timeout(_POLL_MS / 1000):
                while count < _ITERATED_MAX:
                    self._rules.on_record(run, await anext(consumer))
                    count += 1
        return count

    def _pause_or_resume(self, consumer: Consumer, run: MemberRun) -> None:
        if paused := consumer.paused():
            if self._rng.random() < _RESUME_SHARE:
                consumer.resume(*paused)
        elif run.owned and not self.is_calm and self._rng.random() < _PAUSE_SHARE:
            partition = self._rng.choice(sorted(run.owned))
            with suppress(NotAssignedError):
                consumer.pause(partition)

    async def _probe(self, consumer: Consumer, run: MemberRun) -> None:
        """Compare what the consumer says about partitions with their contents, all of it read."""
        owned = sorted(run.owned)
        self._expect("assignment", sorted(consumer.assignment()), owned)
        begins, ends = self._rules.begins(owned), self._rules.ends(owned)
        self._expect("beginning_offsets", await consumer.beginning_offsets(owned), begins)
        self._expect("end_offsets", await consumer.end_offsets(owned), ends)
        positions = {partition: await consumer.position(partition) for partition in owned}
        self._expect("position", positions, ends)
        self._expect("lag", await consumer.lag(), dict.fromkeys(owned, 0))
        committed = {
            partition: None if found is None else found.offset
            for partition, found in (await consumer.committed(owned)).items()
        }
        self._expect("committed", committed, ends)

    def _expect(self, name: str, found: object, expected: object) -> None:
        if found != expected:
            text = f"{name} of {self._name} is {found}, expected {expected}"
            self._world.break_rule("answers", text)

    def choose_topics(self, consumer: Consumer, run: MemberRun, topics: tuple[str, ...]) -> None:
        """Subscribe to other topics."""
        self.topics = topics
        consumer.subscribe(topics, _Listener(self._rules, run))


class _Listener(RebalanceListener):
    """Tells the rules about the partitions of a reader."""

    def __init__(self, rules: TopicRules, run: MemberRun) -> None:
        self._rules = rules
        self._run = run

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._rules.on_assigned(self._run, partitions)

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._rules.on_given_up(self._run, partitions)

"""Work that consumer groups ask of their broker: the threads and limits of `GroupActions`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from partage.assignors.server_side import ServerSideAssignor, Uniform
from partage.bridge.topic_regex import matching_topics
from partage.broker.clock import Clock
from partage.broker.coordination import group_actions
from partage.broker.coordination.consumer_group_services import ConsumerGroupServices
from partage.broker.coordination.group_actions import ActionResult, GroupActions
from partage.broker.coordination.shard_host import ShardHost
from partage.broker.coordination.topic_images import TopicImages
from partage.broker.topics.log_manager import LogManager
from partage.broker.topics.log_writer import LogWriter
from partage.coordinator.consumer_group.actions import (
    AssignableMember,
    ComputeTarget,
    ResolveRegexes,
)
from partage.coordinator.consumer_group.events import GroupConfig, TopicImage
from partage.coordinator.consumer_group.records import ConsumerGroupRecord, ConsumerMemberRecord
from partage.coordinator.outcome import GroupEvent, GroupEventType
from partage.log.memory_disk import MemoryDisk
from partage.model.settings import BrokerSettings, ConsumerGroupSettings, GroupSettings

from .test_shard_host import HostFixture

TOPIC = TopicImage(topic_id=bytes(16), name="t", partition_count=4)


class Names:
    """Assignors by name, as `AssignorRegistry` has them; only ``uniform`` is built in."""

    def __init__(self, others: Mapping[str, ServerSideAssignor]) -> None:
        self._assignors = {"uniform": Uniform(), **others}

    def get(self, name: str) -> ServerSideAssignor:
        return self._assignors[name]

    def is_built_in(self, name: str) -> bool:
        return name == "uniform"


class Blocked:
    """An assignor that hangs until it is released."""

    name = "blocked"

    def __init__(self) -> None:
        self.release = threading.Event()

    def assign(self, members: Any, topics: Any, *, is_homogeneous: bool) -> Any:
        self.release.wait()
        return Uniform().assign(members, topics, is_homogeneous=is_homogeneous)


class Failing:
    """An assignor with a bug."""

    name = "failing"

    def assign(self, members: Any, topics: Any, *, is_homogeneous: bool) -> Any:
        raise KeyError("lost")


class Fixture:
    """The actions of a broker without a server, with its topics."""

    async def open(self, timeout_s: float = 30.0, **others: Any) -> Fixture:
        self.clock = Clock()
        disk = MemoryDisk()
        settings = BrokerSettings(offsets_partitions=1)
        writer = LogWriter(disk, sync=False, inline=True)
        self.topics = LogManager(disk, writer, self.clock, settings, self.on_fatal)
        await self.topics.open()
        self.images = TopicImages(self.topics, "rack-1")
        names: Any = Names(others)
        self.actions = GroupActions(names, self.images, self.clock, timeout_s)
        self.results = asyncio.Queue[ActionResult]()
        return self

    def on_fatal(self, error: BaseException) -> None:
        raise error

    def compute(self, assignor: str, members: int = 2) -> None:
        action = ComputeTarget(
            group_id="g",
            sequence=1,
            group_epoch=3,
            assignor=assignor,
            members={
                f"m{n}": AssignableMember(
                    member_id=f"m{n}", subscribed_topic_ids=frozenset({TOPIC.topic_id})
                )
                for n in range(members)
            },
            topics={TOPIC.topic_id: TOPIC},
            is_homogeneous=True,
        )
        self.actions.run(action, self.results.put_nowait)

    async def result(self) -> Any:
        return await asyncio.wait_for(self.results.get(), 10)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_small_group_gets_its_target_at_once() -> None:
    async def scenario() -> None:
        fixture = await Fixture().open()
        fixture.compute("uniform")
        found: Any = fixture.results.get_nowait()
        assert (found.group_id, found.group_epoch, found.error) == ("g", 3, "")
        assert sorted(len(each[TOPIC.topic_id]) for each in found.target.values()) == [2, 2]

    run(scenario())


def test_large_group_is_computed_in_a_thread() -> None:
    async def scenario() -> None:
        fixture = await Fixture().open()
        fixture.compute("uniform", members=1_000)
        assert fixture.results.empty()
        assert len((await fixture.result()).target) == 1_000

    run(scenario())


def test_failing_assignor_is_reported() -> None:
    async def scenario() -> None:
        fixture = await Fixture().open(failing=Failing())
        fixture.compute("failing")
        found = await fixture.result()
        assert (found.target, found.error) == (None, "KeyError: 'lost'")

    run(scenario())


def test_hanging_assignors_fail_at_their_limit() -> None:
    async def scenario() -> None:
        blocked = Blocked()
        fixture = await Fixture().open(timeout_s=0.05, blocked=blocked)
        for _ in range(6):  # more than there are threads: the last two wait for the first ones
            fixture.compute("blocked")
        found = [await fixture.result() for _ in range(6)]
        assert all(each.target is None for each in found)
        assert [each.error for each in found[:4]] == ["it did not end within 0.05 s"] * 4
        blocked.release.set()

    run(scenario())


def test_result_after_close_is_dropped() -> None:
    async def scenario() -> None:
        blocked = Blocked()
        fixture = await Fixture().open(blocked=blocked)
        before = set(threading.enumerate())
        fixture.compute("blocked")
        (thread,) = set(threading.enumerate()) - before
        fixture.actions.close()
        blocked.release.set()
        await asyncio.to_thread(thread.join)
        await asyncio.sleep(0)  # the turn in which the result arrives
        assert fixture.results.empty()

    run(scenario())


def test_regexes_are_matched_with_all_topics() -> None:
    async def scenario() -> None:
        fixture = await Fixture().open()
        await fixture.topics.create("orders", 1, {})
        await asyncio.sleep(0)  # the next turn of the loop
        action = ResolveRegexes(group_id="g", sequence=1, regexes=frozenset({"o.*s", "__.*"}))
        fixture.actions.run(action, fixture.results.put_nowait)
        found: Any = fixture.results.get_nowait()
        assert found.topics == {
            "o.*s": frozenset({"orders"}),
            "__.*": frozenset({"__consumer_offsets"}),
        }
        assert found.version == fixture.images.version

    run(scenario())


def test_changes_of_topics_in_one_turn_become_one_version() -> None:
    async def scenario() -> None:
        fixture = await Fixture().open()
        before = fixture.images.to_event(0)
        changes: list[int] = []
        fixture.images.on_changed = lambda: changes.append(fixture.images.version)
        await fixture.topics.create("a", 1, {})
        await asyncio.sleep(0)
        await fixture.topics.add_partitions("a", 3)
        await asyncio.sleep(0)
        await fixture.topics.create("b", 1, {})
        await fixture.topics.delete("b")
        await asyncio.sleep(0)
        after = fixture.images.to_event(0)
        assert before.topics.keys() == {"__consumer_offsets"}
        assert after.topics.keys() == {"__consumer_offsets", "a"}
        assert after.topics["a"].partition_count == 3
        assert after.topics["a"].racks == (frozenset({"rack-1"}),) * 3
        assert after.topics["__consumer_offsets"] is before.topics["__consumer_offsets"]
        assert changes == sorted(set(changes))
        assert changes[-1] == after.version > before.version

    run(scenario())


def test_hanging_assignor_gets_a_bounded_number_of_threads() -> None:
    async def scenario() -> None:
        blocked = Blocked()
        fixture = await Fixture().open(timeout_s=0.02, blocked=blocked)
        before = set(threading.enumerate())
        for _ in range(5):
            fixture.compute("blocked")
            fixture.compute("blocked")
            for _ in range(2):
                assert (await fixture.result()).target is None
        threads = set(threading.enumerate()) - before
        assert len(threads) == 4
        fixture.compute("blocked")
        found: Any = fixture.results.get_nowait()
        assert found.error == "4 earlier runs of assignor blocked have not ended"
        fixture.actions._timeout_s = 30.0  # what follows must not fail on a busy machine
        fixture.compute("uniform", members=1_000)
        assert len((await fixture.result()).target) == 1_000
        blocked.release.set()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        await asyncio.sleep(0)  # the turn in which the results arrive
        fixture.compute("blocked")
        assert len((await fixture.result()).target) == 2

    run(scenario())


def test_thread_that_cannot_start_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def scenario() -> None:
        fixture = await Fixture().open(failing=Failing())
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_thread)
            for _ in range(6):
                fixture.compute("failing")
        for _ in range(6):
            found: Any = fixture.results.get_nowait()
            assert (found.target, found.error) == (None, "can't start new thread")
        fixture.compute("failing")
        assert (await fixture.result()).error == "KeyError: 'lost'"

    run(scenario())


@pytest.mark.parametrize(
    ("regex", "is_on_loop"), [("t.*", True), ("(a?.?){800}", False)], ids=["cheap", "expensive"]
)
def test_expensive_regex_does_not_block_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, regex: str, is_on_loop: bool
) -> None:
    """An expression of eleven characters needs a second for 900 topics."""
    threads: list[threading.Thread] = []

    def match(*arguments: Any) -> Any:
        threads.append(threading.current_thread())
        return matching_topics(*arguments)

    async def scenario() -> None:
        fixture = await Fixture().open()
        names = [f"t{number:029}" for number in range(90)]
        monkeypatch.setattr(TopicImages, "names", lambda self: names)
        monkeypatch.setattr(group_actions, "matching_topics", match)
        action = ResolveRegexes(group_id="g", sequence=7, regexes=frozenset({regex}))
        fixture.actions.run(action, fixture.results.put_nowait)
        found: Any = await fixture.result()
        assert found.topics == {regex: frozenset(names)}
        assert (threads == [threading.main_thread()]) is is_on_loop

    run(scenario())


def test_threads_of_regexes_end_at_their_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the expressions of one client do not keep those of other groups from being matched."""

    async def scenario() -> None:
        fixture = await Fixture().open(timeout_s=0.01)
        is_reported = threading.Event()
        failures: list[str] = []

        def match(regexes: Any, names: Any, is_over: Callable[[], bool]) -> Any:
            is_reported.wait()
            try:
                return matching_topics(regexes, names, is_over)
            except TimeoutError as error:
                failures.append(str(error))
                raise

        names = ["t" * 249] * 100
        monkeypatch.setattr(TopicImages, "names", lambda self: names)
        monkeypatch.setattr(group_actions, "matching_topics", match)
        expensive = ResolveRegexes(group_id="g", sequence=7, regexes=frozenset({"(t?.?){800}"}))
        before = set(threading.enumerate())
        for _ in range(4):
            fixture.actions.run(expensive, fixture.results.put_nowait)
        for _ in range(4):
            found: Any = await fixture.result()
            assert found.topics is None
        threads = set(threading.enumerate()) - before
        is_reported.set()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert failures == ["the time for regular expressions is over"] * 4
        await asyncio.sleep(0)  # the turn in which the results arrive
        fixture.actions._timeout_s = 30.0  # what follows must not fail on a busy machine
        many = ResolveRegexes(
            group_id="h", sequence=8, regexes=frozenset(f"t{number}" for number in range(6))
        )
        monkeypatch.setattr(group_actions, "matching_topics", matching_topics)
        fixture.actions.run(many, fixture.results.put_nowait)
        found = await fixture.result()
        assert found.topics is not None

    run(scenario())


def test_failed_resolution_has_no_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("pattern")

    async def scenario() -> None:
        fixture = await Fixture().open()
        monkeypatch.setattr(group_actions, "matching_topics", fail)
        action = ResolveRegexes(group_id="g", sequence=7, regexes=frozenset({"o.*"}))
        fixture.actions.run(action, fixture.results.put_nowait)
        found: Any = fixture.results.get_nowait()
        assert (found.sequence, found.topics) == (7, None)

    run(scenario())


def test_sessions_of_a_loaded_shard_have_the_timeout_of_their_group() -> None:
    async def scenario() -> None:
        fixture = await Fixture().open()
        alone = await HostFixture().open()
        await alone.stored(
            ConsumerGroupRecord(group_id="g", epoch=2),
            ConsumerMemberRecord(group_id="g", member_id="m", client_id="c", client_host="/h"),
        )
        expired = asyncio.Event()

        def on_event(event: GroupEvent) -> None:
            if event.event_type is GroupEventType.EXPIRED:
                expired.set()

        configs = {"g": GroupConfig(session_timeout_ms=10)}
        services = ConsumerGroupServices(
            fixture.images, lambda: configs, lambda: 1_000, fixture.actions
        )
        settings = GroupSettings(consumer=ConsumerGroupSettings(session_timeout_min_ms=10))
        host = ShardHost("", alone.store, settings, alone.clock, on_event, services=services)
        host.load()
        await asyncio.wait_for(expired.wait(), 10)
        host.close()

    run(scenario())

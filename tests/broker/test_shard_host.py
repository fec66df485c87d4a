"""A shard's host with a log in memory: loading, with and without failures."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest

from partage.bridge import API_ADAPTERS, ApiCall
from partage.broker.clock import Clock
from partage.broker.coordination import base_shard_host, shard_host
from partage.broker.coordination.shard_host import ShardHost
from partage.broker.coordination.shard_timers import ShardTimers
from partage.broker.coordination.state_store import LocalStore
from partage.broker.net.connection import Connection
from partage.broker.net.inbound_request import InboundRequest
from partage.broker.net.repeated_request import RepeatedRequest
from partage.broker.net.shared_resources import SharedResources
from partage.broker.topics.log_manager import LogManager
from partage.broker.topics.log_writer import LogWriter
from partage.coordinator.events import TopicsDeleted
from partage.coordinator.records import (
    GroupRecord,
    GroupTombstone,
    MemberRecord,
    OffsetRecord,
    Record,
)
from partage.coordinator.shard import Shard
from partage.log.memory_disk import MemoryDisk
from partage.model.errors import ErrorCode
from partage.model.settings import BrokerSettings, ConnectionLimits, GroupSettings
from partage.store.shard_log import EncodedRecord, encode_ahead, encode_records
from partage.wire.api import Api
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from partage.wire.apis.join_group import JOIN_GROUP, JoinGroupProtocol, JoinGroupRequest
from partage.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchGroup,
    OffsetFetchGroupResult,
    OffsetFetchRequest,
)
from partage.wire.records.batch import whole_batches

from .shard_requests import BROKER_CONTEXT, ask

#: A generation whose protocol no member supports: it can be decoded but not activated.
IMPOSSIBLE = GroupRecord(
    group_id="impossible",
    protocol_type="consumer",
    generation=1,
    members=(
        MemberRecord(
            member_id="m",
            instance_id=None,
            client_id="c",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=60_000,
            session_timeout_ms=10_000,
            subscription=b"",
        ),
    ),
)


def committed(topic: str, partition: int = 0) -> OffsetRecord:
    return OffsetRecord(group_id="g", topic=topic, partition=partition, offset=5, commit_ms=0)


class HostFixture:
    """One shard with its log, without a broker."""

    async def open(self) -> HostFixture:
        self.clock = Clock()
        disk = MemoryDisk()
        writer = LogWriter(disk, sync=False, inline=True)
        settings = BrokerSettings(offsets_partitions=1)
        hosted = LogManager(disk, writer, self.clock, settings, self.is_fatal)
        await hosted.open()
        self.store = LocalStore(hosted, disk, 0)
        self.settings = GroupSettings(session_timeout_min_ms=50)
        self.host = ShardHost(
            "the shard", self.store, self.settings, self.clock, lambda notice: None
        )
        return self

    def is_fatal(self, error: BaseException) -> None:
        raise error

    async def stored(self, *records: Record) -> None:
        """Append records to the log directly."""
        done = asyncio.get_running_loop().create_future()
        now_ms = self.clock.now_ms()
        for batch in encode_records(records, now_ms):
            self.store.partition().append(batch, done.set_result, at_ms=now_ms, from_client=False)
        assert await done is ErrorCode.NONE

    async def offsets(self, group_id: str = "g") -> OffsetFetchGroupResult:
        """Return the group's offsets as a client gets them."""
        request = OffsetFetchRequest(groups=[OffsetFetchGroup(group_id=group_id, topics=None)])
        answer = await ask(self.host, OFFSET_FETCH, 9, request, self.clock.now_ms())
        result: OffsetFetchGroupResult = answer.groups[0]
        return result


class CapturingHandler(logging.Handler):
    """A log handler that waits for a line."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self._heard = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage():
            self._heard.set()

    async def heard(self) -> None:
        base_shard_host.log.addHandler(self)
        try:
            await asyncio.wait_for(self._heard.wait(), 10)
        finally:
            base_shard_host.log.removeHandler(self)


def test_load_failure_during_activation_is_retried(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request is served by a partly loaded shard, and later events are kept."""
    monkeypatch.setattr(base_shard_host, "_RELOAD_AFTER_S", 0.001)

    async def scenario() -> None:
        alone = await HostFixture().open()
        await alone.stored(committed("t"), committed("gone"), IMPOSSIBLE)
        alone.host.load()
        alone.host.handle(TopicsDeleted(at_ms=0, topics=frozenset({"gone"})))
        await CapturingHandler("loading of the shard failed, retrying").heard()
        loading = await alone.offsets()
        assert loading.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await alone.stored(GroupTombstone(group_id="impossible"))
        await asyncio.wait_for(alone.host.wait_loaded(), 10)
        loaded = await alone.offsets()
        assert loaded.error_code == ErrorCode.NONE
        assert [topic.name for topic in loaded.topics] == ["t"]
        alone.host.close()

    asyncio.run(scenario())
    caplog.clear()  # an expected failure; the fixture `no_faults` must not see it


def test_records_of_an_event_are_appended_in_one_batch() -> None:
    """The deletion of a topic removes more offsets than fit into a usual batch."""

    async def scenario() -> None:
        alone = await HostFixture().open()
        topic = "gone" * 60
        for first in (0, 1_250):
            many = range(first, first + 1_250)
            await alone.stored(*(committed(topic, partition) for partition in many))
        alone.host.load()
        await asyncio.wait_for(alone.host.wait_loaded(), 10)
        before = sum(map(len, alone.store.read(alone.store.slices())))
        alone.host.delete_topic_offsets(frozenset({topic}))
        await asyncio.wait_for(alone.host.wait_durable(), 10)
        content = b"".join(map(bytes, alone.store.read(alone.store.slices())))[before:]
        assert len(content) > 600_000
        assert len(list(whole_batches(memoryview(content)))) == 1
        alone.host.close()

    asyncio.run(scenario())


def test_large_event_is_encoded_in_several_turns_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop serves other clients between them, and later events wait for it."""

    async def scenario() -> None:
        alone = await HostFixture().open()
        await alone.stored(*(committed("large", partition) for partition in range(2_500)))
        await alone.stored(committed("small"))
        alone.host.load()
        await asyncio.wait_for(alone.host.wait_loaded(), 10)
        before = sum(map(len, alone.store.read(alone.store.slices())))
        loop, turn, encoded = asyncio.get_running_loop(), 0, Counter[int]()
        has_begun = asyncio.Event()

        def count_turn() -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(count_turn)

        def count_encoded(record: Record) -> Record | EncodedRecord:
            encoded[turn] += 1
            has_begun.set()
            return encode_ahead(record)

        monkeypatch.setattr(shard_host, "encode_ahead", count_encoded)
        count_turn()
        alone.host.delete_topic_offsets(frozenset({"large"}))
        await asyncio.wait_for(has_begun.wait(), 10)
        alone.host.delete_topic_offsets(frozenset({"small"}))
        await asyncio.wait_for(alone.host.wait_durable(), 10)
        assert sorted(encoded.values()) == [500, 1_000, 1_000]
        content = b"".join(map(bytes, alone.store.read(alone.store.slices())))[before:]
        counts = [header.record_count for _, header in whole_batches(memoryview(content))]
        assert counts == [2_500, 1]
        alone.host.close()

    asyncio.run(scenario())


def test_load_deletes_offsets_of_missing_topics() -> None:
    """The broker failed after it had deleted a topic and before the groups deleted its offsets."""

    async def scenario() -> None:
        alone = await HostFixture().open()
        await alone.stored(committed("t"), committed("gone"))
        alone.host.load(frozenset({"t", "other"}))
        await asyncio.wait_for(alone.host.wait_loaded(), 10)
        assert [topic.name for topic in (await alone.offsets()).topics] == ["t"]
        alone.host.close()
        again = ShardHost("", alone.store, GroupSettings(), alone.clock, lambda notice: None)
        again.load()
        await asyncio.wait_for(again.wait_loaded(), 10)
        alone.host = again
        assert [topic.name for topic in (await alone.offsets()).topics] == ["t"]
        again.close()

    asyncio.run(scenario())


def test_wait_durable_survives_loading_and_failures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(base_shard_host, "_RELOAD_AFTER_S", 0.001)

    async def scenario() -> None:
        alone = await HostFixture().open()
        await alone.stored(committed("t"), committed("gone"), committed("later"))
        alone.host.load()
        alone.host.handle(TopicsDeleted(at_ms=0, topics=frozenset({"gone"})))
        alone.host.unload()
        waiting = asyncio.create_task(alone.host.wait_durable())
        await asyncio.sleep(0)
        assert not waiting.done()
        alone.host.load()
        await asyncio.wait_for(waiting, 60)
        alone.host.handle(TopicsDeleted(at_ms=0, topics=frozenset({"later"})))
        alone.host.unload()  # before it was stored, so the event is handled again
        alone.host.load()
        await asyncio.wait_for(alone.host.wait_durable(), 60)
        again = ShardHost("", alone.store, GroupSettings(), alone.clock, lambda notice: None)
        again.load()
        await asyncio.wait_for(again.wait_loaded(), 60)
        alone.host.close()
        alone.host = again
        assert [topic.name for topic in (await alone.offsets()).topics] == ["t"]
        again.resign()
        await asyncio.wait_for(again.wait_durable(), 60)
        again.close()

    asyncio.run(scenario())


class Leased(LocalStore):
    """A store whose lease a test can take away."""

    is_leased = True

    def may_answer(self) -> bool:
        return self.is_leased


class Requests:
    """A host of an empty shard, and requests whose replies are recorded in order."""

    def __init__(self, alone: HostFixture) -> None:
        self.host = alone.host
        self._clock = alone.clock
        self.answered: list[tuple[str, ErrorCode]] = []
        #: Called with the name of a request that was answered.
        self.on_answered: Callable[[str], None] = lambda name: None

    def ask(self, name: str, api: Api[Any, Any], version: int, message: Any) -> None:
        call = _NamedCall(version, message, "client", "/127.0.0.1", self._clock.now_ms())
        call.name, call.requests = name, self
        (event,) = call.start(API_ADAPTERS[api.key], BROKER_CONTEXT, "fresh")
        self.host.answer(event)

    def beat(self, name: str) -> None:
        """Send a Heartbeat, which changes nothing, of a member that does not exist."""
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id=name)
        self.ask(name, HEARTBEAT, 3, request)


class _NamedCall(ApiCall[Any]):
    __slots__ = ("name", "requests")

    def respond_with_replies(self) -> None:
        self.requests.answered.append((self.name, self.replies[0].error))
        self.requests.on_answered(self.name)


async def empty_host() -> tuple[HostFixture, Requests]:
    alone = await HostFixture().open()
    alone.host.start_empty()
    return alone, Requests(alone)


UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


def test_reply_waits_until_no_other_broker_can_own_the_shard() -> None:
    async def scenario() -> None:
        alone = await HostFixture().open()
        alone.store.__class__ = Leased
        store = cast(Leased, alone.store)
        alone.host.start_empty()
        requests = Requests(alone)
        store.is_leased = False
        requests.beat("first")
        assert requests.answered == []
        store.is_leased = True
        requests.beat("second")
        assert requests.answered == [("first", UNKNOWN), ("second", UNKNOWN)]
        store.is_leased = False
        requests.beat("third")
        alone.host.resign()
        assert requests.answered[2:] == [("third", ErrorCode.NOT_COORDINATOR)]
        requests.beat("fourth")
        assert requests.answered[3:] == [("fourth", ErrorCode.NOT_COORDINATOR)]
        alone.host.close()

    asyncio.run(scenario())


def test_request_that_a_reply_starts_is_answered_after_it() -> None:
    """Else a client that pipelines requests could make the calls nest without a limit."""

    async def scenario() -> None:
        alone, requests = await empty_host()
        depth = depth_max = 0

        def start_next(name: str) -> None:
            nonlocal depth, depth_max
            depth += 1
            depth_max = max(depth_max, depth)
            if len(requests.answered) < 5:
                requests.beat(f"after {name}")
            depth -= 1

        requests.on_answered = start_next
        requests.beat("first")
        assert len(requests.answered) == 5
        assert depth_max == 1
        alone.host.close()

    asyncio.run(scenario())


def test_timer_of_a_request_without_records_is_scheduled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A JoinGroup without a member id is answered at once, and its member id expires."""
    delays_ms: list[int] = []
    monkeypatch.setattr(
        ShardTimers, "call_later", lambda self, delay_ms, call: delays_ms.append(delay_ms)
    )

    async def scenario() -> None:
        alone, requests = await empty_host()
        message = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=1_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupProtocol(name="range", metadata=b"")],
        )
        assert min(delays_ms) > 11_000  # those of an empty shard
        requests.ask("join", JOIN_GROUP, 5, message)
        assert requests.answered == [("join", ErrorCode.MEMBER_ID_REQUIRED)]
        assert 9_000 < delays_ms[-1] <= 10_000
        alone.host.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("has_offsets", [True, False], ids=["offsets", "no offsets"])
def test_removed_groups_answer_open_requests_and_leave_nothing(has_offsets: bool) -> None:
    async def scenario() -> None:
        alone = await HostFixture().open()
        if has_offsets:
            await alone.stored(committed("t"))
        alone.host.load()
        await asyncio.wait_for(alone.host.wait_loaded(), 10)
        requests = Requests(alone)
        message = JoinGroupRequest(
            group_id="joined",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=1_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupProtocol(name="range", metadata=b"")],
        )
        requests.ask("join", JOIN_GROUP, 3, message)
        assert requests.answered == [], "the initial delay of the group has begun"
        alone.host.remove_groups()
        assert requests.answered == [("join", ErrorCode.COORDINATOR_NOT_AVAILABLE)]
        assert alone.host.shard is not None
        assert not alone.host.shard.groups
        requests.beat("later")
        assert requests.answered[1:] == [("later", UNKNOWN)]
        await asyncio.wait_for(alone.host.wait_durable(), 10)
        alone.host.unload()
        alone.host.load()
        await asyncio.wait_for(alone.host.wait_loaded(), 10)
        assert (await alone.offsets()).topics == []
        assert len(requests.answered) == 2
        alone.host.close()

    asyncio.run(scenario())


def test_failure_of_a_handler_is_answered_and_reloads_the_shard(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        alone, requests = await empty_host()
        with monkeypatch.context() as patched:
            patched.setattr(Shard, "handle", lambda self, event: 1 / 0)
            requests.beat("first")
        assert requests.answered == [("first", ErrorCode.COORDINATOR_NOT_AVAILABLE)]
        await asyncio.wait_for(alone.host.wait_loaded(), 10)
        requests.beat("second")
        assert requests.answered[1:] == [("second", UNKNOWN)]
        alone.host.close()

    asyncio.run(scenario())
    assert "event handler of the shard failed: event=Heartbeat" in caplog.text
    caplog.clear()  # an expected failure; the fixture `no_faults` must not see it


def test_failure_of_a_repeated_response_closes_only_its_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(Connection):
        is_failing = False

        def on_response_ready(self) -> None:
            if self.is_failing:
                raise ZeroDivisionError
            super().on_response_ready()

    async def scenario() -> None:
        alone, requests = await empty_host()
        resources = SharedResources(ConnectionLimits(), alone.clock)
        connection = Failing(resources, on_opened=lambda _: None, on_closed=lambda _: None)
        message = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        repeated = RepeatedRequest(bytes(20), HEARTBEAT, 3, "client", message)

        def beat() -> InboundRequest:
            inbound = InboundRequest(connection, HEARTBEAT, 3, 1, "client", message, 0, repeated)
            (event,) = inbound.start(API_ADAPTERS[HEARTBEAT.key], BROKER_CONTEXT)
            alone.host.answer(event)
            return inbound

        assert beat().is_done
        connection.is_failing = True
        beat()
        assert connection._is_closing
        requests.beat("other")
        assert requests.answered == [("other", UNKNOWN)]
        alone.host.close()

    asyncio.run(scenario())
    assert "encoding of a response failed: api=Heartbeat" in caplog.text
    caplog.clear()  # an expected failure; the fixture `no_faults` must not see it

"""The topic ``__group_events``: group events, once they are durable."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from partage.broker.coordination import group_events_writer
from partage.broker.coordination import lag_sampler as lag_sampling
from partage.broker.coordination.group_coordinator import log_group_event
from partage.broker.coordination.group_events_writer import GroupEventsWriter
from partage.broker.coordination.lag_sampler import LagSampler
from partage.broker.coordination.shard_host import ShardHost
from partage.coordinator.outcome import GroupEvent, GroupEventType
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings
from partage.store.group_events import TOPIC, GroupEventRecord, LagSample, decode_event
from partage.store.shard_log import replay
from partage.testing import BrokerProcess, ThreadedBroker
from partage.wire.apis.join_group import JOIN_GROUP
from polled_conditions import eventually

from . import group_requests
from .raw_client import RawClient
from .requests import batch, create, metadata, produce
from .shard_requests import RecordingPublisher, ask
from .test_shard_host import HostFixture

DEADLINE_S = 60
SHORT_S = 0.000_123


@pytest.fixture
def told(partage_broker: ThreadedBroker) -> ThreadedBroker:
    """The broker of a test whose marker enables events."""
    return partage_broker


on = pytest.mark.partage_broker(
    {"partage.group.events.enable": "true", "partage.group.events.lag.interval.ms": "0"}
)


def read(servers: str, until: Callable[[list[GroupEventRecord]], bool]) -> list[GroupEventRecord]:
    """Read all events from the first one with confluent-kafka, until there are enough."""
    options = {"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer(options)
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    events: list[GroupEventRecord] = []
    deadline = time.monotonic() + DEADLINE_S
    try:
        while not until(events):
            assert time.monotonic() < deadline, f"only came {events}"
            message = consumer.poll(0.2)
            if message is None or message.error():
                continue
            event = decode_event(message.value())
            assert (message.key() or b"").decode() == event.group_id
            events.append(event)
    finally:
        consumer.close()
    return events


def until(event: str, count: int = 1) -> Callable[[list[GroupEventRecord]], bool]:
    return lambda events: [e.event for e in events].count(event) >= count


def named(events: Sequence[GroupEventRecord]) -> list[str]:
    return [event.event for event in events]


@on
def test_events_of_a_group_lifecycle(told: ThreadedBroker, raw: RawClient) -> None:
    joined = group_requests.join_and_sync(raw, "g")
    assert group_requests.leave(raw, "g", joined.member_id) == 0
    events = read(told.bootstrap_servers, until("emptied"))
    assert named(events) == [
        "joined",
        "rebalance started",
        "generation started",
        "assigned",
        "left",
        "rebalance started",
        "emptied",
    ]
    assert {event.group_id for event in events} == {"g"}
    assert [event.generation for event in events] == [0, 0, 1, 1, 1, 1, 2]
    assert [event.cause for event in events if event.cause] == ["member joined", "member left"]
    times = [event.at_ms for event in events]
    assert times == sorted(times)
    members = events[2].members or []
    assert [(m.member_id, m.joined_ms) for m in members] == [(joined.member_id, times[0])]
    members = events[3].members or []
    assert [(m.member_id, m.assigned_ms) for m in members] == [(joined.member_id, times[3])]


@on
def test_topic_is_internal_and_auto_created(told: ThreadedBroker, raw: RawClient) -> None:
    (topic,) = metadata(raw, TOPIC, may_create=True).topics
    assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (0, True, 1)
    configs = told.broker.log_manager.topic(TOPIC)
    assert configs is not None
    assert configs.topic.configs["retention.ms"] == str(7 * 24 * 3600 * 1000)


def test_disabled_events_create_no_topic(partage_broker: ThreadedBroker, raw: RawClient) -> None:
    assert partage_broker.broker.group_events is None
    group_requests.join_and_sync(raw, "g")
    (topic,) = metadata(raw, TOPIC, may_create=True).topics
    assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert partage_broker.broker.log_manager.topic(TOPIC) is None


@on
def test_refused_commits_are_aggregated(told: ThreadedBroker, raw: RawClient) -> None:
    create(raw, "t")
    group_requests.join_and_sync(raw, "g")
    for _ in range(30):
        assert group_requests.commit(raw, "g", "t", 5) == ErrorCode.UNKNOWN_MEMBER_ID

    def is_enough(events: list[GroupEventRecord]) -> bool:
        return sum(e.count for e in events if e.event == "commit refused") >= 30

    refused = [e for e in read(told.bootstrap_servers, is_enough) if e.event == "commit refused"]
    assert sum(event.count for event in refused) == 30
    assert {(e.reason, tuple(e.topics or ())) for e in refused} == {("UNKNOWN_MEMBER_ID", ("t",))}


@on
def test_cluster_events_have_broker_id_and_epoch(told: ThreadedBroker) -> None:
    """Repeated events are counted for one epoch only."""

    async def write() -> None:
        events = GroupEventsWriter(told.broker.log_manager, None, 7)
        for epoch in (4, 4, 6, 4, 6):
            refused = GroupEvent(
                at_ms=1,
                group_id="g",
                event_type=GroupEventType.COMMIT_REFUSED,
                generation=1,
                reason="R",
            )
            events.publish(refused, epoch)
        events.publish(LagSample(at_ms=1, group_id="g", generation=1, lag={"t": {0: 1}}), 6)
        events.count_dropped(2)
        await events.close()

    told.run(write())
    events = read(told.bootstrap_servers, until("lag"))
    assert [(e.event, e.broker_id, e.epoch, e.count) for e in events] == [
        ("dropped", 7, None, 2),
        ("commit refused", 7, 4, 3),
        ("commit refused", 7, 6, 2),
        ("lag", 7, 6, 1),
    ]


@on
def test_events_reader_causes_no_events(told: ThreadedBroker, raw: RawClient) -> None:
    """Neither by commits that are refused, nor by its lag."""
    metadata(raw, TOPIC, may_create=True)
    joined = group_requests.join_and_sync(raw, "g")
    assert group_requests.commit(raw, "g", TOPIC, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert group_requests.commit(raw, "g", TOPIC, 1, joined=joined) == 0
    assert group_requests.leave(raw, "g", joined.member_id) == 0
    events = read(told.bootstrap_servers, until("emptied"))
    assert "commit refused" not in named(events)

    async def sampled() -> list[GroupEventRecord]:
        broker = told.broker
        sampling = LagSampler(broker.coordinator.hosts, broker.log_manager, broker._clock, 0)
        await sampling.sample_once()
        grouped = GroupEvent(
            at_ms=1, group_id="last", event_type=GroupEventType.EMPTIED, generation=1
        )
        assert broker.group_events is not None
        broker.group_events.publish(grouped)
        return []

    told.run(sampled())
    assert "lag" not in named(read(told.bootstrap_servers, until("emptied", 2)))


@on
def test_lag_is_published_when_changed(told: ThreadedBroker, raw: RawClient) -> None:
    create(raw, "t", partitions=2)
    assert not produce(raw, "t", batch(*[b"x"] * 10)).error_code
    assert group_requests.commit(raw, "g", "t", 4) == 0
    broker = told.broker
    sampling = LagSampler(broker.coordinator.hosts, broker.log_manager, broker._clock, 0)
    told.run(sampling.sample_once())
    told.run(sampling.sample_once())
    assert group_requests.commit(raw, "g", "t", 10) == 0
    told.run(sampling.sample_once())
    events = read(told.bootstrap_servers, until("lag", 2))
    assert [event.lag for event in events] == [{"t": {0: 6}}, {"t": {0: 0}}]


@on
def test_lag_is_never_negative(told: ThreadedBroker, raw: RawClient) -> None:
    """A client may commit any offset."""
    create(raw, "t")
    assert group_requests.commit(raw, "g", "t", 1_000_000) == 0
    broker = told.broker
    sampling = LagSampler(broker.coordinator.hosts, broker.log_manager, broker._clock, 0)
    told.run(sampling.sample_once())
    (event,) = read(told.bootstrap_servers, until("lag"))
    assert event.lag == {"t": {0: 0}}


def pauses(monkeypatch: pytest.MonkeyPatch, of: ModuleType) -> list[float]:
    """Return the list of pauses that a module makes between slices of its work."""
    made: list[float] = []
    sleep = asyncio.sleep

    async def sleeping(delay_s: float) -> None:
        if delay_s == SHORT_S:
            made.append(delay_s)
        await sleep(delay_s)

    monkeypatch.setattr(of, "_PAUSE_S", SHORT_S)
    monkeypatch.setattr(asyncio, "sleep", sleeping)
    return made


@on
def test_large_events_do_not_block_loop(
    told: ThreadedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pauses(monkeypatch, group_events_writer)

    async def write() -> None:
        events = GroupEventsWriter(told.broker.log_manager)
        lag = {"t": dict.fromkeys(range(5_000), 10**6)}
        for number in range(50):
            events.publish(LagSample(at_ms=number, group_id="g", generation=1, lag=lag))
        assert events._task is not None
        await events._task
        assert not events.dropped

    told.run(write())
    assert len(made) >= 200
    assert len(read(told.bootstrap_servers, until("lag", 50))) == 50


@on
def test_lag_of_large_group_does_not_block_loop(
    told: ThreadedBroker, raw: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pauses(monkeypatch, lag_sampling)
    create(raw, "t")
    assert group_requests.commit(raw, "g", "t", 0) == 0
    broker = told.broker

    async def go_round() -> None:
        shard = broker.coordinator.host_of("g").shard
        assert shard is not None
        committed = shard.offsets["g"]["t", 0]
        shard.offsets["g"] |= {("t", n): committed for n in range(1, 50_000)}
        sampling = LagSampler(broker.coordinator.hosts, broker.log_manager, broker._clock, 0)
        await sampling.sample_once()

    told.run(go_round())
    assert len(made) >= 25
    (event,) = read(told.bootstrap_servers, until("lag"))
    assert event.lag == {"t": {0: 0}}


@on
def test_dropped_events_are_counted(told: ThreadedBroker, raw: RawClient) -> None:
    async def storm() -> None:
        events = GroupEventsWriter(told.broker.log_manager, weight_max=10)
        for number in range(25):
            events.publish(
                GroupEvent(
                    at_ms=number, group_id="g", event_type=GroupEventType.EMPTIED, generation=number
                )
            )
        assert events.dropped == 15
        await events.close()
        events = GroupEventsWriter(told.broker.log_manager, weight_max=0)
        events.publish(
            GroupEvent(at_ms=0, group_id="g", event_type=GroupEventType.EMPTIED, generation=0)
        )
        events._weight_max = 10
        events.publish(
            GroupEvent(at_ms=0, group_id="g", event_type=GroupEventType.EMPTIED, generation=99)
        )
        await events.close()

    told.run(storm())
    events = read(told.bootstrap_servers, lambda events: any(e.generation == 99 for e in events))
    assert [e.generation for e in events if e.event == "emptied"] == [*range(10), 99]
    assert [e.count for e in events if e.event == "dropped"] == [15, 1]


@on
def test_failed_events_partition_only_drops_events(
    told: ThreadedBroker, raw: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    group_requests.join_and_sync(raw, "before")
    read(told.bootstrap_servers, until("assigned"))
    events = told.broker.group_events
    assert events is not None
    partition = told.broker.log_manager.partition(TOPIC, 0)
    assert partition is not None
    partition.failure, partition.error = OSError("full"), ErrorCode.KAFKA_STORAGE_ERROR
    group_requests.join_and_sync(raw, "meanwhile")
    eventually(lambda: events.dropped >= 4)
    partition.failure, partition.error = None, ErrorCode.NONE
    group_requests.join_and_sync(raw, "after")
    found = read(told.bootstrap_servers, until("assigned", 2))
    assert {event.group_id for event in found} == {"before", "after", ""}
    assert [event.count for event in found if event.event == "dropped"] == [4]


def join(alone: HostFixture, group: str = "g") -> asyncio.Future[Any]:
    request = group_requests.join_request(group)
    return ask(alone.host, JOIN_GROUP, 3, request, alone.clock.now_ms(), drawn_id="1")


def test_published_events_are_durable_in_shard_log() -> None:
    """When an event is published, its generation is durable in the shard's log."""

    async def scenario() -> None:
        alone = await HostFixture().open()
        has_generation = asyncio.Event()

        def check(each: GroupEvent | LagSample) -> None:
            stored = replay(alone.store.read(alone.store.slices()), GroupSettings())
            stored.resume(0)
            group = stored.groups.get(each.group_id)
            assert each.generation == (0 if group is None else group.generation)
            if len(told.published) == 2:
                has_generation.set()

        told = RecordingPublisher(check)
        groups = GroupSettings(initial_rebalance_delay_ms=0)
        alone.host = ShardHost(
            "", alone.store, groups, alone.clock, lambda notice: None, None, told
        )
        alone.host.start_empty()
        join(alone)
        async with asyncio.timeout(DEADLINE_S):
            await has_generation.wait()
        assert told.event_types == ["joined", "rebalance started", "generation started"]
        join(alone, "other")
        assert told.event_types[3:] == ["joined", "rebalance started"]
        alone.host.expire_session("g", "client-1")
        assert len(told.published) == 5, "the record is not stored yet"
        alone.host.unload()
        assert len(told.published) == 5, "what was dropped has not happened"
        alone.host.load()
        await alone.host.wait_loaded()
        assert told.event_types[5:] == ["loaded"]
        assert set(told.epochs) == {None}
        assert not told.dropped
        alone.host.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("is_killed", [False, True])
def test_stop_writes_events_and_start_publishes_loaded(is_killed: bool) -> None:
    with BrokerProcess(overrides={"group.initial.rebalance.delay.ms": "0"}) as process:
        servers = process.bootstrap_servers
        with RawClient(servers) as raw:
            joined = group_requests.join_and_sync(raw, "g")
            if is_killed:  # a kill may lose the latest events
                read(servers, until("assigned"))
                process.kill()
            else:
                process.stop()
        process.start()
        with RawClient(servers) as raw:
            group_requests.describe_when_loaded(raw, "g")
            assert group_requests.heartbeat(raw, "g", joined) == 0
        events = read(servers, until("loaded"))
    assert named(events) == [
        "joined",
        "rebalance started",
        "generation started",
        "assigned",
        "loaded",
    ]
    loaded = events[-1]
    assert (loaded.group_id, loaded.generation, loaded.reason) == ("g", 1, "Stable")
    assert [member.member_id for member in loaded.members or []] == [joined.member_id]


@on
def test_topic_retention_can_be_changed(told: ThreadedBroker, raw: RawClient) -> None:
    metadata(raw, TOPIC, may_create=True)
    admin = AdminClient({"bootstrap.servers": told.bootstrap_servers})
    change = ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
    topic = told.broker.log_manager.topic(TOPIC)
    assert topic is not None
    assert topic.topic.configs["retention.ms"] == "3600000"


def test_failed_assignor_is_logged_as_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    log_group_event(
        GroupEvent(
            at_ms=1,
            group_id="g",
            event_type=GroupEventType.ASSIGNOR_FAILED,
            generation=4,
            reason="assignor mine: ValueError: no",
        )
    )
    assert caplog.record_tuples == [
        (
            "partage.broker.coordination.group_coordinator",
            logging.WARNING,
            "group g generation 4: assignor failed: assignor mine: ValueError: no",
        )
    ]

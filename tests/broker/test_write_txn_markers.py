"""WriteTxnMarkers: markers for several producers and partitions, and their errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from partage.broker.apis.write_txn_markers import write_txn_markers
from partage.broker.clock import Clock
from partage.broker.transactions.local_markers import LocalMarkers
from partage.log.producer_state import ProducerStateManager
from partage.model.errors import ErrorCode
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC
from partage.wire.apis.write_txn_markers import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from partage.wire.records.transaction_marker import TransactionMarkerRecord

from .transactional_world import NONE, NOW_MS, Inbound, World, batch, run
from .turn_counter import TurnCounter


class RecordedShard:
    """The host of the only group shard, which keeps what it is asked to do."""

    def __init__(self) -> None:
        self.completed: list[tuple[int, int, int, bool]] = []
        self.producer_state = ProducerStateManager()
        self.is_loaded = True

    def call_when_durable(self, done: Callable[[bool], None]) -> None:
        done(True)

    def complete_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        is_commit: bool,
        done: Callable[[ErrorCode], None],
    ) -> None:
        self.completed.append((producer_id, producer_epoch, coordinator_epoch, is_commit))
        done(ErrorCode.NOT_COORDINATOR)


def marker(
    producer_id: int = 1,
    *indexes: int,
    topic: str = "t",
    coordinator_epoch: int = 0,
    is_commit: bool = False,
    version: int = 0,
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=0,
        transaction_result=is_commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(indexes))],
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )


async def written(
    world: World, *markers: WritableTxnMarker, shard: RecordedShard | None = None
) -> list[tuple[int, str, int, ErrorCode]]:
    """Return producer, topic, partition and error of each marker."""
    request = WriteTxnMarkersRequest(markers=list(markers))
    inbound = Inbound(WRITE_TXN_MARKERS, request, 2)
    sink = LocalMarkers(world.log_manager, Clock(), [shard or RecordedShard()])
    write_txn_markers(inbound, sink)
    await inbound.answered.wait()
    return [
        (one.producer_id, topic.name, p.partition_index, ErrorCode(p.error_code))
        for one in inbound.response.markers
        for topic in one.topics
        for p in topic.partitions
    ]


@pytest.mark.parametrize("is_commit", [False, True])
def test_marker_ends_the_transaction(is_commit: bool) -> None:
    async def story(world: World) -> None:
        await world.write(batch())
        assert await written(world, marker(1, 0, 1, is_commit=is_commit)) == [
            (1, "t", 0, NONE),
            (1, "t", 1, NONE),
        ]
        assert world.log.last_stable_offset == world.log.high_watermark == 2
        aborted = world.log.aborted_transactions(0, world.log.locate(0, 1000, only_stable=True))
        assert [one.first_offset for one in aborted] == ([] if is_commit else [0])

    run(story)


def test_unknown_partition_does_not_stop_other_markers() -> None:
    async def story(world: World) -> None:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        found = await written(world, marker(1, 9, 0), marker(2, 0, topic="gone"))
        assert found == [(1, "t", 9, unknown), (1, "t", 0, NONE), (2, "gone", 0, unknown)]

    run(story)


def test_marker_that_may_not_be_written_reports_the_error() -> None:
    async def story(world: World) -> None:
        await world.write(batch())
        found = await written(world, marker(1, 0, version=2))
        assert found == [(1, "t", 0, ErrorCode.INVALID_PRODUCER_EPOCH)]
        await written(world, marker(1, 0, coordinator_epoch=5))
        found = await written(world, marker(1, 0, coordinator_epoch=4))
        assert found == [(1, "t", 0, ErrorCode.TRANSACTION_COORDINATOR_FENCED)]

    run(story)


def test_markers_of_one_producer_have_one_result() -> None:
    async def story(world: World) -> None:
        found = await written(world, marker(1, 0), marker(1, 1, 1), marker(1, 0))
        assert found == [(1, "t", 0, NONE), (1, "t", 1, NONE)]
        assert await written(world) == []

    run(story)


@pytest.mark.parametrize("is_reported", [False, True])
def test_exception_of_one_marker_does_not_stop_others(
    is_reported: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class FailingShard(RecordedShard):
        def complete_transaction(
            self, *args: Any, done: Callable[[ErrorCode], None], **options: Any
        ) -> None:
            if is_reported:
                done(NONE)
            raise RuntimeError("a bug")

    async def story(world: World) -> None:
        offsets = marker(1, 0, topic=OFFSETS_TOPIC)
        found = await written(world, offsets, marker(2, 0), shard=FailingShard())
        error = NONE if is_reported else ErrorCode.UNKNOWN_SERVER_ERROR
        assert found == [(1, OFFSETS_TOPIC, 0, error), (2, "t", 0, NONE)]

    run(story)
    assert "append of a transaction marker failed" in caplog.text
    caplog.clear()


def test_late_marker_of_the_offsets_topic_is_refused() -> None:
    """It would end a later transaction of the producer."""

    async def story(world: World) -> None:
        shard = RecordedShard()
        shard.producer_state.record_marker(
            7, 2, TransactionMarkerRecord(True, 3), offset=0, seen_ms=NOW_MS
        )
        late = marker(7, 0, topic=OFFSETS_TOPIC, coordinator_epoch=3, is_commit=True)
        found = await written(world, late, shard=shard)
        assert found == [(7, OFFSETS_TOPIC, 0, ErrorCode.INVALID_PRODUCER_EPOCH)]
        assert not shard.completed

    run(story)


def test_marker_of_the_offsets_topic_goes_to_the_group_coordinator() -> None:
    """An unavailable coordinator is reported as in Kafka."""

    async def story(world: World) -> None:
        shard = RecordedShard()
        asked = marker(7, 0, 1, topic=OFFSETS_TOPIC, coordinator_epoch=3, is_commit=True)
        found = await written(world, asked, shard=shard)
        assert found == [
            (7, OFFSETS_TOPIC, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (7, OFFSETS_TOPIC, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert shard.completed == [(7, 0, 3, True)]
        shard.is_loaded = False
        await written(world, asked, shard=shard)
        assert len(shard.completed) == 1

    run(story)


def test_many_markers_leave_turns_to_other_requests() -> None:
    async def story(world: World) -> None:
        counter = TurnCounter()
        unknown = range(10, 10 + 128 * 8)
        found = await written(world, marker(1, *unknown), marker(2, 0))
        assert len(found) == 128 * 8 + 1
        assert found[-1] == (2, "t", 0, NONE)
        assert counter.turns > 8

    run(story)


def test_response_for_many_markers_leaves_turns_to_other_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("partage.broker.apis.write_txn_markers._RESULTS_PER_TURN", 1)

    async def story(world: World) -> None:
        counter = TurnCounter()
        found = await written(world, marker(1, *range(10, 40)))
        assert [index for _, _, index, _ in found] == list(range(10, 40))
        assert counter.turns > 30

    run(story)

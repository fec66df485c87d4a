"""WriteTxnMarkers: markers for several producers and partitions, and their errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from partage.broker.apis.write_txn_markers import write_txn_markers
from partage.model.errors import ErrorCode
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC
from partage.wire.apis.write_txn_markers import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

from .transactional_world import NONE, NOW_MS, Inbound, World, batch, run


class RecordedOffsetMarkers:
    """The group coordinator's part, which keeps what it is asked to do."""

    def __init__(self) -> None:
        self.completed: list[tuple[int, int, int, int, bool]] = []

    def complete_transaction(
        self,
        shard: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        is_commit: bool,
        done: Callable[[ErrorCode], None],
    ) -> None:
        marker = shard, producer_id, producer_epoch, coordinator_epoch, is_commit
        self.completed.append(marker)
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
    world: World, *markers: WritableTxnMarker, offsets: RecordedOffsetMarkers | None = None
) -> list[tuple[int, str, int, ErrorCode]]:
    """Return producer, topic, partition and error of each marker."""
    request = WriteTxnMarkersRequest(markers=list(markers))
    inbound = Inbound(WRITE_TXN_MARKERS, request, 2)
    write_txn_markers(inbound, world.log_manager, offsets or RecordedOffsetMarkers())
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
        found = await written(world, marker(1, 0), marker(1, 1, 1))
        assert found == [(1, "t", 0, NONE), (1, "t", 1, NONE)]
        assert await written(world) == []

    run(story)


def test_late_marker_of_the_offsets_topic_is_refused() -> None:
    """It would end a later transaction of the producer."""

    async def story(world: World) -> None:
        offsets_partition = world.log_manager.partition(OFFSETS_TOPIC, 0)
        assert offsets_partition is not None
        offsets_partition.log.append_marker(
            7, 2, 3, is_commit=True, transaction_version=0, at_ms=NOW_MS
        )
        offsets = RecordedOffsetMarkers()
        late = marker(7, 0, topic=OFFSETS_TOPIC, coordinator_epoch=3, is_commit=True)
        found = await written(world, late, offsets=offsets)
        assert found == [(7, OFFSETS_TOPIC, 0, ErrorCode.INVALID_PRODUCER_EPOCH)]
        assert not offsets.completed

    run(story)


def test_marker_of_the_offsets_topic_goes_to_the_group_coordinator() -> None:
    async def story(world: World) -> None:
        offsets = RecordedOffsetMarkers()
        asked = marker(7, 0, topic=OFFSETS_TOPIC, coordinator_epoch=3, is_commit=True)
        found = await written(world, asked, offsets=offsets)
        assert found == [(7, OFFSETS_TOPIC, 0, ErrorCode.NOT_COORDINATOR)]
        assert offsets.completed == [(0, 7, 0, 3, True)]

    run(story)

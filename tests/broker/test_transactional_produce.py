"""Transactional Produce requests: admission by the coordinator, order, and errors by version."""

from __future__ import annotations

from functools import partial

import pytest

from partage.model.errors import ErrorCode
from partage.model.settings import TransactionSettings
from partage.model.topic_partition import TopicPartition
from partage.wire.records.batch import Compression
from partage.wire.records.encoder import SimpleRecord, encode_batch

from .transactional_world import NONE, NOW_MS, PLAIN, World, batch, code, outcome, run


def test_first_batch_waits_for_the_coordinator() -> None:
    async def story(world: World) -> None:
        sent = world.send(batch())
        (asked,) = world.coordinator.asked
        assert asked[:4] == ("tx", (1, 0), [TopicPartition("t", 0)], True)
        assert world.log.end_offset == 0
        asked.answer(NONE)
        assert await outcome(sent) == [(NONE, 0)]
        assert world.log.last_stable_offset == 0
        assert world.log.high_watermark == 1

    run(story)


@pytest.mark.parametrize(("version", "adds"), [(9, False), (11, False), (12, True)])
def test_leader_adds_the_partition_from_version_12_on(version: int, adds: bool) -> None:
    async def story(world: World) -> None:
        sent = world.send(batch(), version=version)
        assert world.coordinator.asked[0].adds is adds
        world.coordinator.asked[0].answer(NONE)
        assert await outcome(sent) == [(NONE, 0)]

    run(story)


def test_open_transaction_is_not_asked_again() -> None:
    async def story(world: World) -> None:
        first = world.send(batch(0))
        world.coordinator.asked[0].answer(NONE)
        assert await outcome(first) == [(NONE, 0)]
        assert await outcome(world.send(batch(1))) == [(NONE, 1)]
        assert await outcome(world.send(batch(1))) == [(NONE, 1)]  # a duplicate
        assert len(world.coordinator.asked) == 1

    run(story)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_batches_behind_an_admission_stay_in_order(codec: int) -> None:
    async def story(world: World) -> None:
        sent = [world.send(batch(sequence, compression=codec)) for sequence in range(4)]
        assert len(world.coordinator.asked) == 1
        world.coordinator.asked[0].answer(NONE)
        sent.append(world.send(batch(4, compression=codec)))
        for asked in world.coordinator.asked[1:]:  # while a thread recompresses the first batch
            asked.answer(NONE)
        found = [await outcome(one) for one in sent]
        assert found == [[(NONE, offset)] for offset in range(5)]

    run(story, compression_type="lz4")


def test_batches_behind_a_refused_admission_are_refused() -> None:
    async def story(world: World) -> None:
        sent = [world.send(batch(sequence)) for sequence in range(3)]
        world.coordinator.asked[0].answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        for one in sent:
            assert await outcome(one) == [(ErrorCode.CONCURRENT_TRANSACTIONS, -1)]
        # A batch that overtakes the refused ones would leave a gap.
        overtaking = world.send(batch(3))
        world.coordinator.asked[1].answer(NONE)
        assert await code(overtaking) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        again = world.send(batch(0))
        world.coordinator.asked[2].answer(NONE)
        assert await outcome(again) == [(NONE, 0)]

    run(story)


def test_other_producers_do_not_wait_for_an_admission() -> None:
    async def story(world: World) -> None:
        waiting = world.send(batch())
        assert await outcome(world.send(PLAIN, transactional_id=None)) == [(NONE, 0)]
        other = world.send(batch(producer=(2, 0)), transactional_id="other")
        world.coordinator.asked[1].answer(NONE)
        assert await outcome(other) == [(NONE, 1)]
        world.coordinator.asked[0].answer(NONE)
        assert await outcome(waiting) == [(NONE, 2)]

    run(story)


def test_marker_during_an_admission_refuses_the_batch() -> None:
    async def story(world: World) -> None:
        sent = world.send(batch())
        world.log.append_marker(1, 0, 0, is_commit=False, transaction_version=0, at_ms=NOW_MS)
        world.coordinator.asked[0].answer(NONE)
        assert await outcome(sent) == [(ErrorCode.INVALID_TXN_STATE, -1)]

    run(story)


@pytest.mark.parametrize("has_records", [True, False])
def test_marker_of_previous_transaction_refuses_no_batch(has_records: bool) -> None:
    """A client with transaction version 2 may send the batch before the marker is written."""

    async def story(world: World) -> None:
        if has_records:
            await world.write(batch())
        sent = world.send(batch(producer=(1, 1)))
        world.log.append_marker(1, 1, 0, is_commit=True, transaction_version=2, at_ms=NOW_MS)
        world.coordinator.asked[0].answer(NONE)
        assert await outcome(sent) == [(NONE, 1 + has_records)]

    run(story)


def test_repeated_marker_of_previous_transaction_refuses_no_batch() -> None:
    """The next coordinator of a cluster repeats the marker, which has the epoch of the batch."""

    async def story(world: World) -> None:
        await world.write(batch())
        mark_commit = partial(
            world.log.append_marker, 1, 1, is_commit=True, transaction_version=2, at_ms=NOW_MS
        )
        mark_commit(coordinator_epoch=0)
        sent = world.send(batch(producer=(1, 1)))
        mark_commit(coordinator_epoch=1)
        world.coordinator.asked[0].answer(NONE)
        assert await outcome(sent) == [(NONE, 3)]

    run(story)


def test_partition_deleted_during_an_admission_refuses_the_batch() -> None:
    async def story(world: World) -> None:
        sent = world.send(batch())
        await world.log_manager.delete("t")
        world.coordinator.asked[0].answer(NONE)
        assert await code(sent) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(story)


def test_partitions_of_a_request_are_asked_together() -> None:
    async def story(world: World) -> None:
        sent = world.send(batch(), batch())
        (asked,) = world.coordinator.asked
        both = [TopicPartition("t", 0), TopicPartition("t", 1)]
        assert asked.partitions == both
        asked.done({both[0]: NONE, both[1]: ErrorCode.INVALID_PRODUCER_ID_MAPPING})
        assert await outcome(sent) == [(NONE, 0), (ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1)]

    run(story)


@pytest.mark.parametrize(
    ("version", "error", "shown"),
    [
        (10, "TRANSACTION_ABORTABLE", "INVALID_TXN_STATE"),
        (11, "TRANSACTION_ABORTABLE", "TRANSACTION_ABORTABLE"),
        (9, "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"),
        (12, "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"),
        (11, "CONCURRENT_TRANSACTIONS", "NOT_ENOUGH_REPLICAS"),
        (12, "CONCURRENT_TRANSACTIONS", "CONCURRENT_TRANSACTIONS"),
        (9, "NOT_COORDINATOR", "NOT_ENOUGH_REPLICAS"),
        (12, "COORDINATOR_LOAD_IN_PROGRESS", "NOT_ENOUGH_REPLICAS"),
        (12, "INVALID_PRODUCER_ID_MAPPING", "INVALID_PRODUCER_ID_MAPPING"),
    ],
)
def test_error_of_the_coordinator_depends_on_the_version(
    version: int, error: str, shown: str
) -> None:
    async def story(world: World) -> None:
        sent = world.send(batch(), version=version)
        world.coordinator.asked[0].answer(ErrorCode[error])
        assert await code(sent) is ErrorCode[shown]
        assert world.log.end_offset == 0

    run(story)


def test_transactional_batch_without_transactional_id_fails_the_request() -> None:
    async def story(world: World) -> None:
        sent = world.send(PLAIN, batch(), transactional_id=None)
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert await outcome(sent) == [(refused, -1)] * 2

    run(story)


def test_batches_of_two_producers_fail_the_request() -> None:
    async def story(world: World) -> None:
        sent = world.send(batch(), batch(producer=(2, 0)))
        assert await outcome(sent) == [(ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1)] * 2

    run(story)


def test_plain_batch_with_transactional_id_is_appended() -> None:
    async def story(world: World) -> None:
        sent = world.send(PLAIN, batch())
        world.coordinator.asked[0].answer(ErrorCode.INVALID_TXN_STATE)
        assert await outcome(sent) == [(NONE, 0), (ErrorCode.INVALID_TXN_STATE, -1)]

    run(story)


def test_control_batch_of_a_client_is_refused() -> None:
    async def story(world: World) -> None:
        marker = encode_batch(
            [SimpleRecord(b"\0\0\0\1", b"\0\0\0\0\0\0")],
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
            is_control=True,
            is_transactional=True,
        )
        sent = world.send(marker)
        world.coordinator.asked[0].answer(NONE)
        assert await code(sent) is ErrorCode.INVALID_RECORD

    run(story)


def test_disabled_verification_does_not_ask_for_old_versions() -> None:
    async def story(world: World) -> None:
        assert await outcome(world.send(batch(0), version=11)) == [(NONE, 0)]
        assert not world.coordinator.asked
        added = world.send(batch(producer=(2, 0)))
        world.coordinator.asked[0].answer(NONE)
        assert await outcome(added) == [(NONE, 1)]

    run(story, TransactionSettings(is_verification_enabled=False))

"""Fetch and ListOffsets with isolation level read_committed, beside read_uncommitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from partage.log.results import Slice
from partage.model.errors import ErrorCode
from partage.wire.apis.fetch import FetchPartitionResult
from partage.wire.apis.list_offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from partage.wire.records.plain import decode_records
from partage.wire.types import Buffer

from .requests import content
from .transactional_world import NONE, NOW_MS, PLAIN, World, batch, fetched, run


def size_of(result: FetchPartitionResult) -> int:
    return len(content(result))


def aborted(result: FetchPartitionResult) -> list[tuple[int, int]] | None:
    found = result.aborted_transactions
    return None if found is None else [(one.producer_id, one.first_offset) for one in found]


def test_open_transaction_hides_later_records() -> None:
    async def story(world: World) -> None:
        await world.write(PLAIN)
        await world.write(batch())
        await world.write(PLAIN)
        committed = await fetched(world.fetch())
        everything = await fetched(world.fetch(isolation_level=0))
        for result in (committed, everything):
            assert (result.high_watermark, result.last_stable_offset) == (3, 1)
        assert size_of(committed) == len(PLAIN)
        assert size_of(everything) == 2 * len(PLAIN) + len(batch())
        assert (aborted(committed), aborted(everything)) == ([], None)
        later = await fetched(world.fetch(2))
        assert (later.error_code, size_of(later), aborted(later)) == (NONE, 0, [])

    run(story)


def test_aborted_transactions_are_in_the_response() -> None:
    async def story(world: World) -> None:
        await world.write(batch())
        await world.write(batch(producer=(2, 0)))
        await world.end((2, 0), is_commit=False)
        await world.end()
        result = await fetched(world.fetch())
        assert aborted(result) == [(2, 1)]
        assert (result.high_watermark, result.last_stable_offset) == (4, 4)
        records = decode_records(content(result), read_committed_aborted=aborted(result))
        assert [record[0] for record in records] == [0]
        assert aborted(await fetched(world.fetch(isolation_level=0))) is None

    run(story)


def test_offset_out_of_range_has_no_aborted_transactions() -> None:
    async def story(world: World) -> None:
        result = await fetched(world.fetch(9))
        assert result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert aborted(result) is None

    run(story)


def test_waiting_fetch_wakes_when_the_stable_offset_moves() -> None:
    async def story(world: World) -> None:
        await world.write(batch())
        waiting = world.fetch(min_bytes=1, max_wait_ms=60_000)
        await world.write(PLAIN)
        await world.write(batch(1))
        assert not waiting.answered.is_set()
        await world.end()
        result = await fetched(waiting)
        assert size_of(result) > 3 * len(batch())
        assert world.partition.listener_count == 0

    run(story)


def test_waiting_fetch_without_transactions_wakes_for_new_records() -> None:
    async def story(world: World) -> None:
        waiting = world.fetch(min_bytes=2 * len(PLAIN), max_wait_ms=60_000)
        await world.write(PLAIN)
        assert not waiting.answered.is_set()
        await world.write(PLAIN)
        assert size_of(await fetched(waiting)) == 2 * len(PLAIN)

    run(story)


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_list_offsets_ends_at_what_the_reader_may_see(isolation_level: int) -> None:
    async def story(world: World) -> None:
        await world.write(PLAIN)
        await world.write(batch())
        found = {
            at: (await world.list_offset(at, isolation_level=isolation_level)).offset
            for at in (LATEST, EARLIEST, NOW_MS)
        }
        assert found == {LATEST: 1 if isolation_level else 2, EARLIEST: 0, NOW_MS: 0}

    run(story)


def test_record_above_the_stable_offset_is_not_found_by_time() -> None:
    async def story(world: World) -> None:
        await world.write(batch())
        for timestamp_ms in (NOW_MS, MAX_TIMESTAMP):
            hidden = await world.list_offset(timestamp_ms)
            assert (hidden.error_code, hidden.offset, hidden.timestamp_ms) == (NONE, -1, -1)
            shown = await world.list_offset(timestamp_ms, isolation_level=0)
            assert (shown.offset, shown.timestamp_ms) == (0, NOW_MS)

    run(story)


def test_marker_counts_as_record_for_lookups_by_time() -> None:
    async def story(world: World) -> None:
        await world.end()
        assert (await world.list_offset(NOW_MS)).offset == 0
        assert (await world.list_offset(MAX_TIMESTAMP)).offset == 0

    run(story)


def test_compaction_during_cold_read_locates_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of aborted transactions must belong to the segments that were read."""

    async def story(world: World) -> None:
        await world.write(batch())
        await world.end(is_commit=False)
        read = world.reads.read_cached
        thread_reads = 0

        def read_in_thread(
            slices: Sequence[Slice], then: Callable[[list[Buffer | None]], None]
        ) -> None:
            nonlocal thread_reads
            thread_reads += 1
            contents = read(slices)
            assert contents is not None
            if thread_reads < 3:
                world.log.compaction_count += 1
                monkeypatch.setattr(world.log, "aborted_transactions", lambda *where: [])
            then(contents)

        monkeypatch.setattr(world.reads, "read_cached", lambda slices: None)
        monkeypatch.setattr(world.reads, "read_in_thread", read_in_thread)
        result = await fetched(world.fetch())
        assert (aborted(result), thread_reads) == ([], 3)
        await fetched(world.fetch(isolation_level=0))
        assert thread_reads == 4

    run(story)

"""The readers of partitions in a simulated world."""

from __future__ import annotations

from partage.model.topic_partition import TopicPartition
from partage.proposals.simulation.readers import Readers

KEPT, DELETED = TopicPartition("t", 0), TopicPartition("t", 1)


def readers_of_two() -> Readers:
    readers = Readers(records_per_s=100)
    readers.create([KEPT, DELETED], 0)
    return readers


def test_deleted_partition_counts_its_readers_from_the_deletion() -> None:
    readers = readers_of_two()
    for partition in (KEPT, DELETED):
        readers.start("a", partition, -1, 1_000)
    readers.delete([DELETED], 5_000)
    assert readers.deleted_read_ms(7_000) == 2_000  # it is still assigned
    readers.stop("a", DELETED, 8_000)
    readers.start("b", DELETED, -1, 9_000)  # a stale member assigns it again
    readers.stop("b", DELETED, 9_500)
    assert readers.deleted_read_ms(20_000) == 3_500
    assert readers.broken == []
    assert (readers.stats.moved, readers.stats.duplicates) == (0, 0)


def test_deleted_partition_needs_no_reader() -> None:
    readers = readers_of_two()
    readers.start("a", KEPT, -1, 1_000)
    assert readers.misread == {DELETED}
    readers.delete([DELETED], 5_000)
    assert (readers.misread, readers.unread) == (set(), [])
    assert readers.take(9_000).unread_partition_ms == 1_000 + 5_000
    assert readers.take(10_000).unread_partition_ms == 0


def test_partition_that_was_created_again_needs_a_reader() -> None:
    readers = readers_of_two()
    readers.delete([DELETED], 5_000)
    readers.create([DELETED], 6_000)
    assert DELETED in readers.misread
    assert DELETED in readers.unread


def test_records_below_last_position_are_duplicates() -> None:
    """100 records arrive in each second, and members keep up."""
    readers = readers_of_two()
    for offset, at_ms in ((-1, 0), (0, 1_000), (30, 1_000), (100, 1_000), (90, 2_000)):
        readers.start("a", KEPT, offset, at_ms)
        readers.stop("a", KEPT, 1_000 if at_ms < 1_000 else at_ms)
    assert readers.stats.duplicates == 100 + 70 + 0 + 10
    readers.start("a", KEPT, -1, 2_000)
    assert readers.stats.duplicates == 180 + 200
    assert (readers.stats.stopped, readers.stats.moved, readers.broken) == (5, 0, [])


def test_partition_moves_if_its_next_reader_is_another_member() -> None:
    readers = readers_of_two()
    for number, member in enumerate("aabab"):
        readers.start(member, KEPT, -1, number)
        readers.stop(member, KEPT, number)
    assert readers.take(10).moved == 3
    assert readers.take(20).moved == 0


def test_time_without_reader_is_counted_per_partition() -> None:
    readers = readers_of_two()
    readers.start("a", KEPT, -1, 1_000)
    readers.start("b", DELETED, -1, 4_000)
    readers.stop("a", KEPT, 5_000)
    assert (readers.stats.unread_partition_ms, readers.stats.changed_ms) == (5_000, 5_000)
    assert readers.unread == [KEPT]
    assert readers.take(7_000).unread_partition_ms == 7_000
    readers.start("b", KEPT, 0, 7_500)
    assert readers.take(9_000).unread_partition_ms == 500
    assert readers.misread == set()


def test_second_reader_breaks_rule_and_is_timed() -> None:
    readers = readers_of_two()
    readers.start("a", KEPT, -1, 1_000)
    readers.start("a", KEPT, -1, 1_500)  # it reads already
    assert readers.broken == []
    readers.start("b", KEPT, -1, 2_000)
    assert [each.rule for each in readers.broken] == ["one reader"]
    assert KEPT in readers.misread
    readers.stop("a", KEPT, 5_000)
    readers.stop("a", KEPT, 6_000)  # it no longer reads
    assert (readers.double_read_ms, readers.stats.stopped) == (3_000, 1)
    assert KEPT not in readers.misread


def test_read_below_committed_offset_breaks_rule() -> None:
    readers = readers_of_two()
    readers.commit(KEPT, 50)
    assert readers.commit_lag_ms(KEPT, 2_000) == 1_500
    readers.start("a", KEPT, 50, 1_000)
    readers.stop("a", KEPT, 1_000)
    assert readers.broken == []
    readers.start("a", KEPT, 49, 1_000)
    assert [each.rule for each in readers.broken] == ["commits"]


def test_commit_below_an_earlier_one_breaks_rule() -> None:
    readers = readers_of_two()
    readers.delete([DELETED], 5_000)
    for partition in (KEPT, DELETED):
        readers.commit(partition, 50)
        readers.commit(partition, 50)
    assert readers.broken == []
    readers.commit(DELETED, 49)  # no rule applies to it
    readers.commit(KEPT, 49)
    (broken,) = readers.broken
    assert (broken.rule, broken.description) == (
        "lost commits",
        "t-0 was committed at 50, and then at 49",
    )

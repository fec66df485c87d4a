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

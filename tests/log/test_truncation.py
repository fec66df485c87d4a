"""Truncation of damaged logs."""

from __future__ import annotations

import pytest

from partage.lab.environment.disk import CrashDisk
from partage.log.catalogue.topic_catalogue import CatalogueChange, TopicCatalogue, apply_change
from partage.log.errors import DamagedLogError
from partage.log.recovery.truncation import TruncationError, truncate_log
from partage.log.segments.batch_reader import check_slice

from .partition_host import DIRECTORY, TOPIC_ID, Host, batch, offsets

FIRST = f"{DIRECTORY}/00000000000000000000.log"
SIZE = len(batch(b"0" * 40))


def damaged_host() -> Host:
    disk = CrashDisk()
    change = TopicCatalogue.load(disk).create("flights", TOPIC_ID, 1, {})
    assert isinstance(change, CatalogueChange)
    apply_change(disk, change)
    host = Host(disk, segment_bytes=3 * SIZE)
    host.write(*(batch(b"%d" % n * 40) for n in range(8)))
    return host


def test_truncated_log_is_usable() -> None:
    host = damaged_host()
    disk = host.disk
    assert isinstance(disk, CrashDisk)
    second = FIRST.replace("0.log", "6.log")
    disk.damage(second, SIZE + 80)
    with pytest.raises(DamagedLogError) as caught:
        host.open()
    cuts = truncate_log(disk, caught.value.path, caught.value.position)
    assert [cut.path for cut in cuts] == [second]
    assert host.open().truncations == []
    assert host.values() == [b"%d" % n * 40 for n in range(7)]
    host.write(batch(b"more"))
    assert host.open().log.end_offset == 8


def test_earlier_kept_bytes_are_not_overwritten() -> None:
    host = damaged_host()
    host.close()
    (*_, first) = truncate_log(host.disk, FIRST, 0)
    host.open()
    host.write(batch(b"another"))
    host.close()
    (*_, second) = truncate_log(host.disk, FIRST, 0)
    assert first.kept_in == FIRST + ".torn-0"
    assert second.kept_in == FIRST + ".torn-0-2"
    assert host.disk.size(first.kept_in) == 3 * SIZE
    assert host.disk.size(second.kept_in) == len(batch(b"another"))


def test_later_segments_are_set_aside_and_kept() -> None:
    host = damaged_host()
    host.close()
    cuts = truncate_log(host.disk, FIRST, 2 * SIZE)
    assert [cut.kept_in for cut in cuts] == [
        f"{DIRECTORY}/00000000000000000006.log.torn-0",
        f"{DIRECTORY}/00000000000000000003.log.torn-0",
        f"{FIRST}.torn-{2 * SIZE}",
    ]
    host.open()
    assert host.values() == [b"0" * 40, b"1" * 40]
    assert truncate_log(host.disk, FIRST, 2 * SIZE)[0].length == 0


def test_compacted_log_keeps_records_before_truncation() -> None:
    """Its batches need not be contiguous, but each can be found."""
    host = damaged_host()
    truncate_log(host.disk, FIRST, 0)
    host = Host(host.disk, segment_bytes=4 * SIZE, cleanup_policy="compact")
    keys = [b"a", b"b", b"c", b"b", b"d", b"e", b"f"]
    host.write(*(batch((key, b"%d" % n * 40)) for n, key in enumerate(keys)))
    assert host.compact()
    assert offsets(host.records()) == [0, 2, 3, 4, 5, 6]
    truncate_log(host.disk, FIRST, host.disk.size(FIRST))
    assert host.open().truncations == []
    assert offsets(host.records()) == [0, 2]
    for offset in range(3):
        (found,) = host.log.locate(offset, 1)
        assert check_slice(found, host.fetch(offset)) is None
    host.write(batch((b"b", b"again")))
    assert host.open().log.end_offset == 4
    assert offsets(host.records()) == [0, 2, 3]


@pytest.mark.parametrize(
    ("path", "position", "why"),
    [
        (FIRST, SIZE + 1, "Truncate it at byte"),
        (FIRST, 99 * SIZE, "is outside"),
        (FIRST, -1, "is outside"),
        (FIRST + "x", 0, "does not exist"),
        ("topics.json", 0, "does not exist"),
        ("../flights-0/00000000000000000000.log", 0, "does not exist"),
        (f"other-0/{FIRST.rpartition('/')[2]}", 0, "no topic"),
    ],
)
def test_truncation_elsewhere_than_between_batches_fails(
    path: str, position: int, why: str
) -> None:
    host = damaged_host()
    host.disk.make_directory("other-0")
    host.disk.write(f"other-0/{FIRST.rpartition('/')[2]}", 0, [b"x"])
    with pytest.raises(TruncationError, match=why):
        truncate_log(host.disk, path, position)
    assert host.open().log.end_offset == 8

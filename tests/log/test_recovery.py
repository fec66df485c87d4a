"""What start-up does with files that are not as they should be."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from partage.lab.environment.disk import CrashDisk
from partage.log.disk import Disk
from partage.log.errors import DamagedLogError
from partage.log.layout import CHECKPOINT_FILE
from partage.log.memory_disk import MemoryDisk
from partage.log.recovery.segment_scan import CHUNK_BYTES

from .directory_disk import DirectoryDisk
from .partition_host import DIRECTORY, NOW_MS, Host, batch

FIRST = f"{DIRECTORY}/00000000000000000000.log"
SECOND = f"{DIRECTORY}/00000000000000000003.log"
SIZE = len(batch(b"0" * 40))


@pytest.fixture(params=["memory", "directory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return MemoryDisk() if request.param == "memory" else DirectoryDisk(tmp_path)


def values(count: int) -> list[bytes]:
    return [b"%d" % n * 40 for n in range(count)]


def host_of(disk: Disk, count: int, **configs: object) -> Host:
    """A host with so many batches of one record, three to a segment."""
    host = Host(disk, segment_bytes=3 * SIZE, **configs)
    host.write(*map(batch, values(count)))
    return host


def test_a_log_that_was_closed_is_not_scanned(disk: Disk) -> None:
    host = host_of(disk, 5)
    host.close()
    opened = host.open()
    assert (opened.scanned_bytes, opened.truncations) == (0, [])
    assert host.values() == values(5)
    assert host.log.timestamp_lookup(None)() == (0, NOW_MS)


def test_closing_what_was_not_touched_writes_nothing() -> None:
    disk = CrashDisk()
    host = Host(disk)
    assert not host.log.close().writes
    host.write(batch(b"a"))
    host.close()
    host.open()
    assert not host.log.close().writes


def test_a_log_that_was_not_closed_is_scanned_from_the_marked_segment_on(disk: Disk) -> None:
    host = host_of(disk, 5)
    opened = host.open()
    assert opened.scanned_bytes == 2 * SIZE
    assert opened.truncations == []
    assert host.values() == values(5)
    host.write(batch(b"more"))
    assert host.values() == [*values(5), b"more"]


def test_without_a_marker_everything_is_scanned(disk: Disk) -> None:
    host = host_of(disk, 5)
    disk.truncate(CHECKPOINT_FILE, 0)
    assert host.open().scanned_bytes == 5 * SIZE
    assert host.values() == values(5)


@pytest.mark.parametrize("tail", [b"\0" * 1000, b"\0" * 5])
def test_a_tail_of_zeros_is_cut_and_not_kept(disk: Disk, tail: bytes) -> None:
    host = host_of(disk, 2)
    disk.write(FIRST, 2 * SIZE, [tail])
    (cut,) = host.open().truncations
    assert (cut.path, cut.position, cut.length) == (FIRST, 2 * SIZE, len(tail))
    assert cut.kept_in is None
    assert disk.size(FIRST) == 2 * SIZE
    assert not [name for name in host.files() if "torn" in name]


@pytest.mark.parametrize("length", [1, 60, 61, SIZE - 1])
def test_a_torn_batch_is_cut_and_kept(disk: Disk, length: int) -> None:
    host = host_of(disk, 2)
    torn = batch(b"2" * 40)[:length]
    torn = b"\0\0\0\0\0\0\0\2" + torn[8:] if length > 8 else b"\1"
    disk.write(FIRST, 2 * SIZE, [torn])
    (cut,) = host.open().truncations
    assert cut.kept_in == f"{FIRST}.torn-{2 * SIZE}"
    assert disk.read(cut.kept_in, 0, 1000) == torn
    assert "cut off" in str(cut)
    host.write(batch(b"2" * 40))
    assert host.values() == values(3)
    assert host.open().truncations == []


def test_a_batch_that_was_written_but_not_acknowledged_stays(disk: Disk) -> None:
    host = host_of(disk, 1)
    (write,) = host.append(batch(values(2)[1])).writes
    disk.write(write.path, write.position, write.chunks)
    assert host.open().truncations == []
    assert host.values() == values(2)
    assert host.log.high_watermark == 2


def test_what_a_failed_sync_left_in_memory_only_is_written_again() -> None:
    """Linux takes it for clean after that, and shows it to whoever opens the log again."""
    disk = CrashDisk()
    host = host_of(disk, 1)
    host.append(batch(b"in doubt"))
    disk.failing_sync_path = FIRST
    with pytest.raises(OSError, match="Input/output error"):
        host.flush()
    host.open()
    host.append(batch(b"acknowledged"))
    host.flush(sync_marker=True)
    disk.crash(Random(1))
    host.open()
    assert host.values() == [*values(1), b"in doubt", b"acknowledged"]


def test_what_comes_after_a_hole_is_cut_even_if_it_is_sound(disk: Disk) -> None:
    host = host_of(disk, 1)
    (lost,) = host.append(batch(b"lost")).writes
    (write,) = host.append(batch(b"after")).writes
    disk.write(write.path, write.position, write.chunks)
    (cut,) = host.open().truncations
    assert (cut.position, cut.length) == (lost.position, lost.size + write.size)
    assert cut.kept_in is not None
    assert disk.read(cut.kept_in, lost.size + 16, 1000) == batch(b"after")[16:]
    assert host.values() == values(1)


def test_segments_after_a_torn_one_are_set_aside(disk: Disk) -> None:
    host = host_of(disk, 2)
    for value in (b"2" * 40, b"3" * 40, b"4" * 40):
        for write in host.append(batch(value)).writes:
            if write.path != FIRST:
                disk.write(write.path, write.position, write.chunks)
    (cut,) = host.open().truncations
    assert (cut.path, cut.kept_in) == (SECOND, SECOND + ".torn-0")
    assert host.values() == values(2)
    host.write(*map(batch, values(5)[2:]))
    assert host.values() == values(5)


def test_damage_to_what_was_acknowledged_is_refused() -> None:
    disk = CrashDisk()
    host = host_of(disk, 2)
    disk.damage(FIRST, SIZE + 70)
    with pytest.raises(DamagedLogError) as caught:
        host.open()
    assert (caught.value.path, caught.value.position) == (FIRST, SIZE)
    assert f"partage log cut {FIRST} --at {SIZE}" in str(caught.value)
    assert "checksum" in str(caught.value)
    assert disk.size(FIRST) == 2 * SIZE


def test_a_file_that_is_too_short_or_missing_is_refused(disk: Disk) -> None:
    host = host_of(disk, 2)
    disk.truncate(FIRST, SIZE)
    with pytest.raises(DamagedLogError, match="the file ends here"):
        host.open()
    disk.truncate(FIRST, SIZE + 5)
    with pytest.raises(DamagedLogError, match="cut off"):
        host.open()
    disk.remove(FIRST)
    with pytest.raises(DamagedLogError, match="the file ends here"):
        host.open()


def test_a_missing_last_segment_is_refused(disk: Disk) -> None:
    host = host_of(disk, 5)
    disk.remove(SECOND)
    with pytest.raises(DamagedLogError, match="missing"):
        host.open()


def test_nothing_is_cut_when_the_marker_cannot_be_read(disk: Disk) -> None:
    host = host_of(disk, 2)
    disk.write(FIRST, 2 * SIZE, [b"torn"])
    with pytest.raises(DamagedLogError):
        host.open(cuts_nothing=True)
    disk.truncate(FIRST, 2 * SIZE)
    assert host.open(cuts_nothing=True).truncations == []
    assert host.values() == values(2)


def test_older_damage_is_found_when_it_is_read() -> None:
    disk = CrashDisk()
    host = host_of(disk, 7, index_interval_bytes=0)
    disk.damage(FIRST, SIZE + 16)  # the format version
    host.open()
    assert host.log.locate(0, SIZE)
    with pytest.raises(DamagedLogError, match="format"):
        host.log.locate(1, SIZE)


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("length", [0, 3, None])
def test_an_index_that_is_not_right_is_made_anew(
    disk: Disk, suffix: str, length: int | None
) -> None:
    host = host_of(disk, 7, index_interval_bytes=0)
    path = FIRST.replace("log", suffix)
    content = disk.read(path, 0, 1000)
    if length is None:
        disk.remove(path)
    else:
        disk.truncate(path, length)
    host.open()
    assert host.values() == values(7)
    found = host.log.timestamp_lookup(NOW_MS)()
    assert found == (0, NOW_MS)
    if length is None:
        assert disk.read(path, 0, 1000) == content


def test_an_index_with_nonsense_in_it_is_made_anew(disk: Disk) -> None:
    host = host_of(disk, 7, index_interval_bytes=0)
    disk.write(FIRST.replace("log", "index"), 4, [b"\x7f\xff\xff\xff"])
    host.open()
    for offset in range(7):
        assert host.values()[offset] == values(7)[offset]


def test_leftovers_are_removed(disk: Disk) -> None:
    host = host_of(disk, 5)
    stray = ["00000000000000000007.index", "x.tmp", "00000000000000000000.log.cleaned"]
    for name in [*stray, "00000000000000000004.snapshot"]:
        disk.write(f"{DIRECTORY}/{name}", 0, [b"x"])
    before = set(host.files())
    host.open()
    assert before - set(host.files()) == {*stray, "00000000000000000004.snapshot"}
    assert host.values() == values(5)


def test_an_index_of_a_segment_that_was_lost_does_not_mix_with_the_next_one(disk: Disk) -> None:
    host = host_of(disk, 3, index_interval_bytes=0)
    for suffix in ("index", "timeindex"):
        disk.write(SECOND.replace("log", suffix), 0, [b"\1" * 240])
    host.open()
    host.write(*map(batch, values(7)[3:]))
    host.close()
    assert host.open().scanned_bytes == 0
    assert host.values() == values(7)
    assert host.log.apply_retention(NOW_MS) is None
    assert disk.size(SECOND.replace("log", "index")) == 2 * 8


def test_producers_are_known_again_after_a_crash(disk: Disk) -> None:
    host = host_of(disk, 0)
    payloads = [batch(b"%d" % n * 40, producer=(9, 0, n)) for n in range(8)]
    host.write(*payloads)
    for name in host.files():
        if name.endswith("snapshot"):
            disk.remove(f"{DIRECTORY}/{name}")  # and even without their snapshots
    host.open()
    assert [host.append(payload).base_offset for payload in payloads[3:]] == [3, 4, 5, 6, 7]
    assert host.log.end_offset == 8
    assert host.append(batch(b"next", producer=(9, 0, 8))).base_offset == 8


def test_what_expired_segments_tell_of_producers_is_kept() -> None:
    disk = CrashDisk()
    host = host_of(disk, 0, retention_ms=1000)
    host.write(*(batch(b"%d" % n * 40, producer=(9, 0, n)) for n in range(8)))
    step = host.log.apply_retention(NOW_MS + 5000)
    assert step is not None
    disk.write(
        step.checkpoint.path, step.checkpoint.position, step.checkpoint.chunks
    )  # and nothing else
    for _ in range(2):
        host.open()
        assert (host.log.log_start_offset, host.log.end_offset) == (8, 8)
        assert host.append(batch(b"7" * 40, producer=(9, 0, 7))).base_offset == 7
        assert not [name for name in host.files() if name.endswith(".log")]


def test_a_snapshot_spares_the_walk_over_older_segments() -> None:
    disk = CrashDisk()
    host = host_of(disk, 0)
    host.write(*(batch(b"%d" % n * 40, producer=(9, 0, n)) for n in range(8)))
    disk.damage(FIRST, 16)
    host.open()
    assert host.append(batch(b"next", producer=(9, 0, 8))).base_offset == 8


def test_batches_larger_than_a_chunk_are_scanned() -> None:
    host = Host(max_message_bytes=1 << 30, index_interval_bytes=0)
    large = bytes(CHUNK_BYTES + 1000)
    host.write(batch(b"small"), batch(large), batch(b"small"), batch(large))
    host.open()
    assert host.log.end_offset == 4
    size = host.disk.size(FIRST)
    host.disk.truncate(CHECKPOINT_FILE, 0)
    host.disk.truncate(FIRST, size - 1)
    (cut,) = host.open().truncations
    assert host.log.end_offset == 3
    assert cut.length > CHUNK_BYTES


def test_where_no_marker_is_known_a_sync_that_failed_is_made_up_for_too() -> None:
    """The file of markers is damaged, the last sync failed, the program ended: what it wrote is in
    the system's memory alone, and must be on the disk before anybody is told of it.
    """
    disk = CrashDisk()
    host = Host(disk)
    host.append(batch(b"a"))
    disk.failing_sync_path = host.writes[-1].path
    with pytest.raises(OSError, match="Input/output"):
        host.flush()
    host.open(cuts_nothing=True)
    assert host.values() == [b"a"]
    disk.crash(Random(1))
    host.open()
    assert host.values() == [b"a"]

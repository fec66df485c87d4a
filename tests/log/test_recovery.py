"""Recovery from torn, damaged, missing and leftover files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def expect_damage(path: str, position: int, reason: str) -> Iterator[None]:
    """Expect an error with this position, at which users cut the log."""
    with pytest.raises(DamagedLogError, match=reason) as caught:
        yield
    assert (caught.value.path, caught.value.position) == (path, position)
    assert f"partage log cut {path} --at {position}" in str(caught.value)


def host_of(disk: Disk, count: int, **configs: object) -> Host:
    """Return a host with ``count`` batches of one record, three per segment."""
    host = Host(disk, segment_bytes=3 * SIZE, **configs)
    host.write(*map(batch, values(count)))
    return host


def test_clean_shutdown_needs_no_scan(disk: Disk) -> None:
    host = host_of(disk, 5)
    host.close()
    opened = host.open()
    assert (opened.scanned_bytes, opened.truncations) == (0, [])
    assert host.values() == values(5)
    assert host.log.timestamp_lookup(None)() == (0, NOW_MS)


def test_close_of_unchanged_log_writes_nothing() -> None:
    disk = CrashDisk()
    host = Host(disk)
    assert not host.log.close().writes
    host.write(batch(b"a"))
    host.close()
    host.open()
    assert not host.log.close().writes


def test_unclean_shutdown_scans_from_checkpoint_segment(disk: Disk) -> None:
    host = host_of(disk, 5)
    opened = host.open()
    assert opened.scanned_bytes == 2 * SIZE
    assert opened.truncations == []
    assert host.values() == values(5)
    host.write(batch(b"more"))
    assert host.values() == [*values(5), b"more"]


def test_missing_checkpoint_scans_everything(disk: Disk) -> None:
    host = host_of(disk, 5)
    disk.truncate(CHECKPOINT_FILE, 0)
    assert host.open().scanned_bytes == 5 * SIZE
    assert host.values() == values(5)


@pytest.mark.parametrize("tail", [b"\0" * 1000, b"\0" * 5])
def test_tail_of_zeros_is_truncated_and_not_kept(disk: Disk, tail: bytes) -> None:
    host = host_of(disk, 2)
    disk.write(FIRST, 2 * SIZE, [tail])
    (cut,) = host.open().truncations
    assert (cut.path, cut.position, cut.length) == (FIRST, 2 * SIZE, len(tail))
    assert cut.kept_in is None
    assert disk.size(FIRST) == 2 * SIZE
    assert not [name for name in host.files() if "torn" in name]


@pytest.mark.parametrize("length", [1, 60, 61, SIZE - 1])
def test_torn_batch_is_truncated_and_kept(disk: Disk, length: int) -> None:
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


def test_valid_unacknowledged_batch_is_kept(disk: Disk) -> None:
    host = host_of(disk, 1)
    (write,) = host.append(batch(values(2)[1])).writes
    disk.write(write.path, write.position, write.chunks)
    assert host.open().truncations == []
    assert host.values() == values(2)
    assert host.log.high_watermark == 2


def test_tail_is_rewritten_after_failed_sync() -> None:
    """After a failed fsync, Linux marks the pages clean and shows them to the next reader."""
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


def test_valid_batches_after_hole_are_truncated(disk: Disk) -> None:
    host = host_of(disk, 1)
    (lost,) = host.append(batch(b"lost")).writes
    (write,) = host.append(batch(b"after")).writes
    disk.write(write.path, write.position, write.chunks)
    (cut,) = host.open().truncations
    assert (cut.position, cut.length) == (lost.position, lost.size + write.size)
    assert cut.kept_in is not None
    assert disk.read(cut.kept_in, lost.size + 16, 1000) == batch(b"after")[16:]
    assert host.values() == values(1)


def test_segments_after_torn_one_are_set_aside(disk: Disk) -> None:
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


def test_damage_to_acknowledged_bytes_is_refused() -> None:
    disk = CrashDisk()
    host = host_of(disk, 2)
    disk.damage(FIRST, SIZE + 70)
    with expect_damage(FIRST, SIZE, "checksum"):
        host.open()
    assert disk.size(FIRST) == 2 * SIZE


def test_short_or_missing_file_is_refused(disk: Disk) -> None:
    host = host_of(disk, 2)
    disk.truncate(FIRST, SIZE)
    with expect_damage(FIRST, SIZE, "the file ends here"):
        host.open()
    disk.truncate(FIRST, SIZE + 5)
    with expect_damage(FIRST, SIZE, "cut off"):
        host.open()
    disk.remove(FIRST)
    with expect_damage(FIRST, 0, "the file ends here"):
        host.open()


def test_missing_last_segment_is_refused(disk: Disk) -> None:
    host = host_of(disk, 5)
    disk.remove(SECOND)
    with expect_damage(SECOND, 0, "missing"):
        host.open()


def test_unreadable_checkpoint_forbids_truncation(disk: Disk) -> None:
    host = host_of(disk, 2)
    disk.write(FIRST, 2 * SIZE, [b"torn"])
    with expect_damage(FIRST, 2 * SIZE, "cut off"):
        host.open(cuts_nothing=True)
    disk.truncate(FIRST, 2 * SIZE)
    assert host.open(cuts_nothing=True).truncations == []
    assert host.values() == values(2)


def test_damage_in_old_segment_is_found_by_reads() -> None:
    disk = CrashDisk()
    host = host_of(disk, 7, index_interval_bytes=0)
    disk.damage(FIRST, SIZE + 16)  # the format version
    host.open()
    assert host.log.locate(0, SIZE)
    with expect_damage(FIRST, SIZE, "format"):
        host.log.locate(1, SIZE)


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("length", [0, 3, None])
def test_wrong_index_is_rebuilt(disk: Disk, suffix: str, length: int | None) -> None:
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


def test_index_with_random_bytes_is_rebuilt(disk: Disk) -> None:
    host = host_of(disk, 7, index_interval_bytes=0)
    disk.write(FIRST.replace("log", "index"), 4, [b"\x7f\xff\xff\xff"])
    host.open()
    for offset in range(7):
        assert host.values()[offset] == values(7)[offset]


def test_leftover_files_are_removed(disk: Disk) -> None:
    host = host_of(disk, 5)
    stray = ["00000000000000000007.index", "x.tmp", "00000000000000000000.log.cleaned"]
    for name in [*stray, "00000000000000000004.snapshot"]:
        disk.write(f"{DIRECTORY}/{name}", 0, [b"x"])
    before = set(host.files())
    host.open()
    assert before - set(host.files()) == {*stray, "00000000000000000004.snapshot"}
    assert host.values() == values(5)


def test_index_of_lost_segment_is_not_reused(disk: Disk) -> None:
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


def test_producer_state_is_recovered_after_crash(disk: Disk) -> None:
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


def test_producer_state_of_expired_segments_is_kept() -> None:
    disk = CrashDisk()
    host = host_of(disk, 0, retention_ms=1000)
    host.write(*(batch(b"%d" % n * 40, producer=(9, 0, n)) for n in range(8)))
    step = host.log.apply_retention(NOW_MS + 5000)
    assert step is not None
    disk.write(
        step.checkpoint.path, step.checkpoint.position, step.checkpoint.chunks
    )  # and no other record
    for _ in range(2):
        host.open()
        assert (host.log.log_start_offset, host.log.end_offset) == (8, 8)
        assert host.append(batch(b"7" * 40, producer=(9, 0, 7))).base_offset == 7
        assert not [name for name in host.files() if name.endswith(".log")]


def test_snapshot_avoids_reading_older_segments() -> None:
    disk = CrashDisk()
    host = host_of(disk, 0)
    host.write(*(batch(b"%d" % n * 40, producer=(9, 0, n)) for n in range(8)))
    disk.damage(FIRST, 16)
    host.open()
    assert host.append(batch(b"next", producer=(9, 0, 8))).base_offset == 8


def test_batch_larger_than_chunk_is_scanned() -> None:
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


def test_tail_is_rewritten_without_checkpoint_too() -> None:
    """The checkpoint file is damaged, the last fsync failed, and the process ended.

    Its last writes are only in the page cache. Recovery must put them on disk before any client
    sees them.
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

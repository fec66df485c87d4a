"""The checkpoint file."""

from __future__ import annotations

from partage.log.checkpoints import SLOT_SIZE, Checkpoint, CheckpointFile
from partage.log.io import perform_writes
from partage.log.layout import CHECKPOINT_FILE
from partage.log.memory_disk import MemoryDisk

A, B = bytes([1]) * 16, bytes([2]) * 16
MARKER = Checkpoint(base_offset=5, position=77, end_offset=9, log_start_offset=6)
CLEAN = Checkpoint(base_offset=2**62, position=2**31 - 1, end_offset=2**62 + 1, is_clean=True)


def test_checkpoints_after_reload_are_in_their_slots() -> None:
    disk = MemoryDisk()
    markers = CheckpointFile.load(disk, [])
    assert disk.size(CHECKPOINT_FILE) == 0
    slots = [markers.slot(A, 0), markers.slot(A, 1), markers.slot(B, 0)]
    assert [slot.number for slot in slots] == [0, 1, 2]
    perform_writes(disk, [slots[2].prepare_write(CLEAN), slots[0].prepare_write(MARKER)])
    markers = CheckpointFile.load(disk, [(A, 0), (A, 1), (B, 0)])
    assert markers.get(A, 0) == MARKER
    assert markers.get(B, 0) == CLEAN
    assert markers.get(A, 1) is None
    assert markers.slot(B, 0).number == 2
    assert markers.slot(A, 1).number == 1
    assert markers.damaged_count == 0


def test_checkpoint_latest_write_wins() -> None:
    markers = CheckpointFile.load(MemoryDisk(), [])
    slot = markers.slot(A, 0)
    slot.prepare_write(MARKER)
    assert markers.get(A, 0) == MARKER
    assert markers.slot(A, 0) is slot


def test_slot_of_deleted_topic_is_reused() -> None:
    disk = MemoryDisk()
    markers = CheckpointFile.load(disk, [])
    for topic_id in (A, B):
        perform_writes(disk, [markers.slot(topic_id, 0).prepare_write(MARKER)])
    markers.release(A, 0)
    assert markers.get(A, 0) is None
    assert markers.slot(B, 1).number == 0
    assert CheckpointFile.load(disk, [(B, 0)]).slot(A, 0).number == 0


def test_slot_fits_one_sector() -> None:
    assert 512 % SLOT_SIZE == 0


def test_damaged_slots_are_counted() -> None:
    disk = MemoryDisk()
    markers = CheckpointFile.load(disk, [])
    perform_writes(disk, [markers.slot(A, n).prepare_write(MARKER) for n in range(3)])
    disk.write(CHECKPOINT_FILE, SLOT_SIZE + 30, [b"\xff"])
    disk.truncate(CHECKPOINT_FILE, 3 * SLOT_SIZE - 1)
    markers = CheckpointFile.load(disk, [(A, 0), (A, 1), (A, 2)])
    assert markers.damaged_count == 2
    assert markers.get(A, 0) == MARKER
    assert markers.get(A, 1) is markers.get(A, 2) is None


def test_missing_file_with_partitions_counts_as_damage() -> None:
    assert CheckpointFile.load(MemoryDisk(), [(A, 0)]).damaged_count == 1

"""The file of markers."""

from __future__ import annotations

from partage.log.layout import MARKERS
from partage.log.markers import SLOT_SIZE, Marker, Markers
from partage.log.memory import MemoryDisk
from partage.log.performing import perform

A, B = bytes([1]) * 16, bytes([2]) * 16
MARKER = Marker(base_offset=5, position=77, end_offset=9, log_start_offset=6)
CLEAN = Marker(base_offset=2**62, position=2**31 - 1, end_offset=2**62 + 1, is_clean=True)


def test_markers_are_found_again_in_their_slots() -> None:
    disk = MemoryDisk()
    markers = Markers.load(disk, [])
    assert disk.size(MARKERS) == 0
    slots = [markers.slot(A, 0), markers.slot(A, 1), markers.slot(B, 0)]
    assert [slot.number for slot in slots] == [0, 1, 2]
    perform(disk, [slots[2].write(CLEAN), slots[0].write(MARKER)])
    markers = Markers.load(disk, [(A, 0), (A, 1), (B, 0)])
    assert markers.found(A, 0) == MARKER
    assert markers.found(B, 0) == CLEAN
    assert markers.found(A, 1) is None
    assert markers.slot(B, 0).number == 2
    assert markers.slot(A, 1).number == 1
    assert markers.damaged == 0


def test_the_latest_marker_is_the_one_that_counts() -> None:
    markers = Markers.load(MemoryDisk(), [])
    slot = markers.slot(A, 0)
    slot.write(MARKER)
    assert markers.found(A, 0) == MARKER
    assert markers.slot(A, 0) is slot


def test_slots_of_topics_that_are_gone_are_used_again() -> None:
    disk = MemoryDisk()
    markers = Markers.load(disk, [])
    for topic_id in (A, B):
        perform(disk, [markers.slot(topic_id, 0).write(MARKER)])
    markers.release(A, 0)
    assert markers.found(A, 0) is None
    assert markers.slot(B, 1).number == 0
    assert Markers.load(disk, [(B, 0)]).slot(A, 0).number == 0


def test_a_slot_lies_within_a_sector() -> None:
    assert 512 % SLOT_SIZE == 0


def test_damaged_slots_are_counted() -> None:
    disk = MemoryDisk()
    markers = Markers.load(disk, [])
    perform(disk, [markers.slot(A, n).write(MARKER) for n in range(3)])
    disk.write(MARKERS, SLOT_SIZE + 30, [b"\xff"])
    disk.truncate(MARKERS, 3 * SLOT_SIZE - 1)
    markers = Markers.load(disk, [(A, 0), (A, 1), (A, 2)])
    assert markers.damaged == 2
    assert markers.found(A, 0) == MARKER
    assert markers.found(A, 1) is markers.found(A, 2) is None


def test_a_missing_file_is_damage_where_there_are_partitions() -> None:
    assert Markers.load(MemoryDisk(), [(A, 0)]).damaged == 1

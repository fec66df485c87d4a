"""Injected damage is known until no copy of the damaged byte is left on the simulated disk."""

from __future__ import annotations

from random import Random

import pytest

from partage.lab.environment.disk import CrashDisk
from partage.lab.faults.brokers import checkpoints_are_damaged
from partage.lab.history import RuleViolationError
from partage.lab.runner import draw_scenario
from partage.lab.world import World
from partage.log.errors import DamagedLogError
from partage.log.layout import CHECKPOINT_FILE

OLD, NEW = b"\x01" * 64, b"\x02" * 64
FLIPPED = Random(1).randrange(64)  # the position that the fault chooses


def damaged_world() -> World:
    """Return a world whose checkpoint file has a flipped bit in a synced and an unsynced write."""
    world = World(draw_scenario(1, changes={"brokers": 1}))
    disk = world.broker.disk
    disk.write(CHECKPOINT_FILE, 0, [OLD])
    disk.sync(CHECKPOINT_FILE)
    disk.sync_directory("")
    disk.write(CHECKPOINT_FILE, 0, [NEW])
    assert checkpoints_are_damaged(world, Random(1))
    assert disk.is_damaged(CHECKPOINT_FILE, FLIPPED)
    return world


def content_of(disk: CrashDisk) -> bytes:
    return disk.read(CHECKPOINT_FILE, 0, 64)


def contents_after_power_failures(disk: CrashDisk) -> set[bytes]:
    """Return the contents that different power failures leave."""
    contents = set()
    for seed in range(30):
        copied = disk.copy()
        copied.crash(Random(seed))
        contents.add(content_of(copied))
    return contents


def test_damage_is_known_until_the_last_copy_is_overwritten() -> None:
    world = damaged_world()
    disk = world.broker.disk
    disk.write(CHECKPOINT_FILE, 0, [NEW])
    world.clear_damage()
    assert not contents_after_power_failures(disk) <= {OLD, NEW}
    assert world.damage is not None
    disk.sync(CHECKPOINT_FILE)
    world.clear_damage()
    assert contents_after_power_failures(disk) == {NEW}
    assert world.damage is None


def test_damage_in_a_write_that_was_never_synced_is_known() -> None:
    disk = CrashDisk()
    disk.write(CHECKPOINT_FILE, 0, [OLD])
    disk.sync_directory("")
    disk.damage(CHECKPOINT_FILE, FLIPPED)
    disk.write(CHECKPOINT_FILE, 0, [NEW])
    assert disk.is_damaged(CHECKPOINT_FILE, FLIPPED)
    disk.sync(CHECKPOINT_FILE)
    assert not disk.is_damaged(CHECKPOINT_FILE, FLIPPED)


def test_damage_survives_a_power_failure_in_each_copy() -> None:
    for seed in range(30):
        world = damaged_world()
        world.broker.disk.crash(Random(seed))
        assert content_of(world.broker.disk) not in (OLD, NEW)
        world.clear_damage()
        assert world.damage is not None


def test_repair_changes_only_damaged_copies() -> None:
    world = damaged_world()
    disk = world.broker.disk
    disk.write(CHECKPOINT_FILE, 0, [NEW])
    world.repair_damage(DamagedLogError(CHECKPOINT_FILE, 0, "damaged"))
    assert content_of(disk) == NEW
    assert contents_after_power_failures(disk) == {OLD, NEW}
    assert not disk.is_damaged(CHECKPOINT_FILE, FLIPPED)


def test_damaged_bytes_that_are_written_again_stay_damaged() -> None:
    world = damaged_world()
    disk = world.broker.disk
    disk.write(CHECKPOINT_FILE, 0, [content_of(disk)])
    disk.sync(CHECKPOINT_FILE)
    world.clear_damage()
    assert world.damage is not None
    world.repair_damage(DamagedLogError(CHECKPOINT_FILE, 0, "damaged"))
    assert contents_after_power_failures(disk) == {NEW}


def test_damage_in_a_removed_file_is_known_until_the_directory_is_synced() -> None:
    world = damaged_world()
    disk = world.broker.disk
    disk.remove(CHECKPOINT_FILE)
    world.clear_damage()
    assert world.damage is not None
    disk.sync_directory("")
    world.clear_damage()
    assert world.damage is None


def test_truncated_byte_is_not_damaged() -> None:
    world = damaged_world()
    disk = world.broker.disk
    disk.truncate(CHECKPOINT_FILE, 0)
    world.clear_damage()
    assert world.damage is not None
    disk.sync(CHECKPOINT_FILE)
    world.clear_damage()
    assert world.damage is None


def test_report_of_former_damage_breaks_a_rule() -> None:
    world = damaged_world()
    disk = world.broker.disk
    disk.write(CHECKPOINT_FILE, 0, [NEW])
    disk.sync(CHECKPOINT_FILE)
    with pytest.raises(RuleViolationError, match="none was injected"):
        world.repair_damage(DamagedLogError(CHECKPOINT_FILE, 0, "damaged"))

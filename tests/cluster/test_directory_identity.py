"""Data directories and clusters that match, and those that do not: nothing is written then."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from partage.broker.cluster import directory_identity
from partage.broker.cluster.directory_identity import lock_proof, verify_identity
from partage.broker.ids import RANDOM_IDS
from partage.broker.topics.data_directory import (
    DirectoryLock,
    MetaProperties,
    load_cluster_id,
    read_meta_properties,
    write_meta_properties,
)
from partage.broker.topics.real_disk import RealDisk
from partage.log.errors import DamagedFileError
from partage.log.memory_disk import MemoryDisk
from partage.store.group_events import TOPIC as EVENTS_TOPIC
from partage.store.memory import MemoryZooKeeper
from partage.store.shared_topics import SharedTopics
from partage.store.zk_schema import ForeignDataError, ZkPaths
from store.zk_fixture import made

TREE, OTHER, NOTHING = ZkPaths("/here"), ZkPaths("/there"), ZkPaths("/nothing")


class IdentityFixture:
    """A ZooKeeper with two clusters, and a directory of broker 7 of the first one."""

    def __init__(self) -> None:
        self.zoo = MemoryZooKeeper()
        self.disk = MemoryDisk()
        self.directory = self.identify(TREE, self.disk)
        self.identify(OTHER, MemoryDisk())

    def identify(self, tree: ZkPaths, disk: MemoryDisk, broker_id: int = 7) -> tuple[str, str]:
        found = asyncio.run(
            verify_identity(self.zoo.connect(), tree, disk, RANDOM_IDS, broker_id, 4, 2)
        )
        if found.is_new:
            write_meta_properties(disk, found.meta)
        return found.cluster.cluster_id, found.directory_id

    def topic(self, name: str, *brokers: int) -> None:
        async def put() -> None:
            await SharedTopics(self.zoo.connect(), TREE, 8).put(name, made("ab", *brokers), name)

        asyncio.run(put())


def test_new_directory_joins_existing_cluster() -> None:
    world = IdentityFixture()
    cluster_id, directory_id = world.identify(TREE, MemoryDisk(), 8)
    assert cluster_id == world.directory[0]
    assert directory_id != world.directory[1]


def test_known_directory_is_accepted() -> None:
    world = IdentityFixture()
    assert world.identify(TREE, world.disk) == world.directory


@pytest.mark.parametrize(
    ("tree", "broker_id", "words"),
    [
        (OTHER, 7, "but /there in ZooKeeper holds cluster"),
        (NOTHING, 7, "/nothing in ZooKeeper is empty"),
        (TREE, 8, "the data directory belongs to broker 7; correct --broker-id"),
    ],
)
def test_mismatched_directory_is_refused(tree: ZkPaths, broker_id: int, words: str) -> None:
    world = IdentityFixture()
    nodes, meta = dict(world.zoo.nodes), read_meta_properties(world.disk)
    with pytest.raises(ForeignDataError, match=words):
        world.identify(tree, world.disk, broker_id)
    assert world.zoo.nodes == nodes
    assert read_meta_properties(world.disk) == meta


def test_single_broker_directory_is_refused() -> None:
    world, disk = IdentityFixture(), MemoryDisk()
    write_meta_properties(disk, MetaProperties("some cluster"))
    with pytest.raises(ForeignDataError, match="a single broker without a cluster"):
        world.identify(TREE, disk)


def test_cluster_directory_is_refused_without_state() -> None:
    world = IdentityFixture()
    with pytest.raises(DamagedFileError, match="broker 7 of a cluster"):
        load_cluster_id(world.disk)


def test_new_directory_for_broker_with_records_is_refused() -> None:
    """However often it is tried: groups have committed offsets that it does not have."""
    world, disk = IdentityFixture(), MemoryDisk()
    for n in range(6):
        world.topic(f"t{n}", 8, 7)
    words = "broker 7 of this cluster holds partitions of t0, t1, t2, t3, t4 and 1 more"
    for _ in range(2):
        with pytest.raises(ForeignDataError, match=words):
            world.identify(TREE, disk)
        assert read_meta_properties(disk) is None
    world.identify(TREE, world.disk)


def test_new_directory_with_only_events_is_accepted() -> None:
    world = IdentityFixture()
    world.topic(EVENTS_TOPIC, 8, 7)
    world.topic("t", 8)
    assert world.identify(TREE, MemoryDisk()) != world.directory


def locked(directory: Path) -> RealDisk:
    DirectoryLock(directory).release()
    return RealDisk(directory)


def test_lock_proof_same_directory_matches(tmp_path: Path) -> None:
    proof = lock_proof(locked(tmp_path / "d"), RANDOM_IDS)
    assert lock_proof(locked(tmp_path / "d"), RANDOM_IDS) == proof
    (tmp_path / "d").rename(tmp_path / "e")
    assert lock_proof(locked(tmp_path / "e"), RANDOM_IDS) == proof


def test_lock_proof_of_copy_differs(tmp_path: Path) -> None:
    proof = lock_proof(locked(tmp_path / "d"), RANDOM_IDS)
    shutil.copytree(tmp_path / "d", tmp_path / "copy")
    assert lock_proof(locked(tmp_path / "copy"), RANDOM_IDS) != proof


def test_lock_proof_on_other_machine_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a machine without a boot id."""
    disk = locked(tmp_path / "d")
    proof = lock_proof(disk, RANDOM_IDS)
    elsewhere = tmp_path / "boot_id"
    monkeypatch.setattr(directory_identity, "_BOOT_ID", elsewhere)
    assert lock_proof(disk, RANDOM_IDS) != lock_proof(disk, RANDOM_IDS)
    elsewhere.write_text("another start\n")
    assert lock_proof(disk, RANDOM_IDS) != proof
    assert lock_proof(disk, RANDOM_IDS) == lock_proof(disk, RANDOM_IDS)

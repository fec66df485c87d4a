"""Check that the data directory and ZooKeeper belong together, before writing to either."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

import msgspec

from partage.broker.ids import IdSource
from partage.broker.topics.data_directory import LOCK_FILE, MetaProperties, read_meta_properties
from partage.broker.topics.real_disk import RealDisk
from partage.log.disk import Disk
from partage.store.bootstrap import find_cluster, find_or_create_cluster
from partage.store.group_events import TOPIC as EVENTS_TOPIC
from partage.store.shared_topics import SharedTopics
from partage.store.zk_schema import ClusterDoc, ForeignDataError, ZkPaths
from partage.store.zookeeper import Session, retry_read

_NAMED_MAX: Final = 5
#: Random id that Linux generates at each boot.
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class DirectoryIdentity(msgspec.Struct, frozen=True):
    """The cluster, and the owner of the data directory.

    With ``is_new``, the directory has no owner yet. The owner is written only after the
    registration, so that a broker whose registration was refused is still new at the next start.
    """

    cluster: ClusterDoc
    meta: MetaProperties
    directory_id: str
    is_new: bool


async def verify_identity(
    session: Session,
    paths: ZkPaths,
    disk: Disk,
    ids: IdSource,
    broker_id: int,
    shard_count: int,
    transaction_shard_count: int,
) -> DirectoryIdentity:
    """Return the identity of a matching data directory and cluster.

    A new directory joins an existing cluster, or creates one with these numbers of shards.

    Raises:
        ForeignDataError: the data directory or the ZooKeeper path belongs to another cluster or
            broker; the message says what to do.
        DamagedFileError: the directory does not say to which broker it belongs.
    """
    meta = read_meta_properties(disk)
    if meta is None:
        cluster = await find_or_create_cluster(
            session, paths, ids.fresh_cluster_id(), shard_count, transaction_shard_count
        )
        await _expect_no_records(session, paths, broker_id)
        directory_id = ids.fresh_nonce()
        meta = MetaProperties(cluster.cluster_id, broker_id, directory_id)
        return DirectoryIdentity(cluster, meta, directory_id, is_new=True)
    if isinstance(meta.broker_id, msgspec.UnsetType):
        raise ForeignDataError(
            "the data directory belongs to a single broker without a cluster; use an empty "
            "directory with "
            "--data-dir, or start the broker without --state"
        )
    found = await find_cluster(session, paths)
    if found is None:
        raise ForeignDataError(
            f"the data directory belongs to cluster {meta.cluster_id}, but {paths.root} in "
            "ZooKeeper is "
            "empty; correct --state, restore ZooKeeper, or use an empty data directory"
        )
    if found.cluster_id != meta.cluster_id:
        raise ForeignDataError(
            f"the data directory belongs to cluster {meta.cluster_id}, but {paths.root} in "
            "ZooKeeper holds "
            f"cluster {found.cluster_id}; correct --state or --data-dir"
        )
    if meta.broker_id != broker_id:
        raise ForeignDataError(
            f"the data directory belongs to broker {meta.broker_id}; correct --broker-id or "
            "--data-dir"
        )
    assert not isinstance(meta.directory_id, msgspec.UnsetType)
    return DirectoryIdentity(found, meta, meta.directory_id, is_new=False)


async def _expect_no_records(session: Session, paths: ZkPaths, broker_id: int) -> None:
    """Raise `ForeignDataError` if the cluster has assigned partitions to this broker id.

    A new directory has no records. New records from offset 0 would appear at offsets that groups
    have already committed.
    """
    topics = SharedTopics(session, paths, broker_id)
    await retry_read(session, topics.refresh)
    held = sorted(name for name, topic in topics.topics.items() if broker_id in topic.brokers)
    lost = [name for name in held if name != EVENTS_TOPIC]
    if lost:
        more = f" and {len(lost) - _NAMED_MAX} more" if len(lost) > _NAMED_MAX else ""
        raise ForeignDataError(
            f"broker {broker_id} of this cluster holds partitions of {', '.join(lost[:_NAMED_MAX])}"
            f"{more}, but this data directory is new; start it with the --data-dir that has them, "
            "or use another --broker-id for a new broker. If the records are lost, delete these "
            "topics through another broker first"
        )


def lock_proof(disk: Disk, ids: IdSource) -> str:
    """Return a proof that this process holds the lock on its data directory.

    A registration with the same proof must be from a process that has ended: two processes cannot
    hold one lock. A copy of a directory has the same id but another lock. A lock is valid on one
    machine, until it reboots.
    """
    if isinstance(disk, RealDisk):
        with contextlib.suppress(OSError):
            return f"{_BOOT_ID.read_text().strip()}:{disk.file_identity(LOCK_FILE)}"
    return ids.fresh_nonce()  # proves nothing

"""Creation of a cluster's nodes in ZooKeeper."""

from __future__ import annotations

from functools import partial

from partage.store.zk_schema import (
    FORMAT,
    ClusterDoc,
    CountDoc,
    ForeignDataError,
    ShardDoc,
    StateDoc,
    TopicsDoc,
    ZkPaths,
    decode,
    encode,
)
from partage.store.zookeeper import (
    Create,
    InDoubtError,
    Operation,
    RefusalReason,
    RefusedError,
    Session,
    SetData,
    retry_read,
)


async def find_cluster(session: Session, paths: ZkPaths) -> ClusterDoc | None:
    """Return the cluster at this path; None if the path is empty or does not exist.

    Raises:
        ForeignDataError: The path holds other data, or was written by another format version.
    """
    node = await retry_read(session, lambda: session.read(paths.cluster))
    if node is None:
        others = await retry_read(session, lambda: session.children(paths.root))
        root = await retry_read(session, lambda: session.read(paths.root))
        node = await retry_read(session, lambda: session.read(paths.cluster))
        has_data = root is not None and root.data != b""  # find_or_create_cluster leaves it empty
        if (others or has_data) and node is None:  # not created between the two reads
            what = ", ".join(others[:5]) or "data in the node itself"
            raise ForeignDataError(
                f"{paths.root} in ZooKeeper holds other data than a Partage cluster "
                f"({what}); use another path for the cluster"
            )
    if node is None:
        return None
    cluster = decode(paths.cluster, node.data, ClusterDoc)
    if cluster.partage != FORMAT:
        raise ForeignDataError(
            f"{paths.root} in ZooKeeper has format {cluster.partage}, but this version of "
            f"Partage supports {FORMAT}; use the version that wrote it"
        )
    return cluster


async def find_or_create_cluster(
    session: Session,
    paths: ZkPaths,
    cluster_id: str,
    shard_count: int,
    transaction_shard_count: int = 0,
) -> ClusterDoc:
    """Return the cluster at this path, and create it if there is none.

    All nodes are created in one transaction, so brokers that start together agree on one complete
    cluster.

    Args:
        session: The session.
        paths: The paths of the cluster.
        cluster_id: The cluster id, if the cluster is created.
        shard_count: The number of shards of groups, if the cluster is created.
        transaction_shard_count: The number of shards of transactional ids, likewise.

    Raises:
        ForeignDataError: The path holds other data.
    """
    found = await find_cluster(session, paths)
    while found is None:
        await _make_parents(session, paths.root)
        cluster = ClusterDoc(
            partage=FORMAT,
            cluster_id=cluster_id,
            shards=shard_count,
            transaction_shards=transaction_shard_count,
        )
        try:
            await session.transact(_bootstrap_operations(paths, cluster))
        except InDoubtError:
            await session.wait_connected()
        except RefusedError as refused:
            if refused.reason is not RefusalReason.EXISTS:
                raise
        found = await find_cluster(session, paths)
    return found


async def _make_parents(session: Session, path: str) -> None:
    """Create the missing nodes of the path."""
    parts = path.strip("/").split("/")
    for depth in range(1, len(parts) + 1):
        above = "/" + "/".join(parts[:depth])
        while await retry_read(session, partial(session.read, above)) is None:
            try:
                await session.transact([Create(above)])
            except InDoubtError:
                await session.wait_connected()
            except RefusedError as refused:
                if refused.reason is not RefusalReason.EXISTS:
                    raise


def _bootstrap_operations(paths: ZkPaths, cluster: ClusterDoc) -> list[Operation]:
    operations: list[Operation] = [
        Create(paths.cluster, encode(cluster)),
        Create(paths.brokers),
        Create(paths.applied),
        Create(paths.topics, encode(TopicsDoc())),
        Create(paths.tombstones),
        Create(paths.producer_ids, encode(CountDoc())),
        Create(paths.shards),
    ]
    for shard in range(cluster.shards + cluster.transaction_shards):
        operations += [
            Create(paths.shard(shard), encode(ShardDoc())),
            Create(paths.state(shard), encode(StateDoc())),
            Create(paths.log(shard)),
            Create(paths.chunks(shard)),
        ]
    return operations


async def reserve_producer_ids(session: Session, paths: ZkPaths, count: int) -> int:
    """Reserve ``count`` producer ids and return the first one."""
    while True:
        node = await retry_read(session, lambda: session.read(paths.producer_ids))
        if node is None:
            raise ForeignDataError(
                f"{paths.producer_ids} is missing in ZooKeeper; restore it, or use another path"
            )
        first = decode(paths.producer_ids, node.data, CountDoc).value
        following = SetData(paths.producer_ids, encode(CountDoc(value=first + count)), node.version)
        try:
            await session.transact([following])
        except InDoubtError:  # the ids may have been reserved: they are lost, but there are enough
            await session.wait_connected()
        except RefusedError as refused:
            if refused.reason is not RefusalReason.VERSION:
                raise
        else:
            return first

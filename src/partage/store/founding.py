"""Finding a cluster in ZooKeeper, or founding one where there is nothing."""

from __future__ import annotations

from functools import partial

from partage.store.tree import (
    FORMAT,
    ClusterDoc,
    CountDoc,
    ForeignData,
    ShardDoc,
    StateDoc,
    TopicsDoc,
    Tree,
    decode,
    encode,
)
from partage.store.zookeeper import (
    Create,
    InDoubt,
    Operation,
    Refused,
    Session,
    SetData,
    Why,
    surely,
)


async def find_cluster(session: Session, tree: Tree) -> ClusterDoc | None:
    """The cluster that lives here; None where the path is empty, or not there.

    Raises:
        ForeignData: the path holds something else, or what another version wrote.
    """
    node = await surely(session, lambda: session.read(tree.cluster))
    if node is None:
        others = await surely(session, lambda: session.children(tree.root))
        root = await surely(session, lambda: session.read(tree.root))
        node = await surely(session, lambda: session.read(tree.cluster))
        has_data = root is not None and root.data != b""  # which founding leaves empty
        if (others or has_data) and node is None:  # and not founded between the two looks
            what = ", ".join(others[:5]) or "data of the node itself"
            raise ForeignData(
                f"{tree.root} in ZooKeeper holds something else than a cluster of Partage "
                f"({what}); give the cluster a path of its own"
            )
    if node is None:
        return None
    cluster = decode(tree.cluster, node.data, ClusterDoc)
    if cluster.partage != FORMAT:
        raise ForeignData(
            f"{tree.root} in ZooKeeper has format {cluster.partage}, and this program knows "
            f"{FORMAT}; use the program that wrote it"
        )
    return cluster


async def found_cluster(
    session: Session, tree: Tree, cluster_id: str, shard_count: int
) -> ClusterDoc:
    """The cluster that lives here, founded if there is none: all of it in one transaction, so that
    there is a whole one or none, whoever else tries at the same time.

    Raises `ForeignData`.
    """
    found = await find_cluster(session, tree)
    while found is None:
        await _make_parents(session, tree.root)
        cluster = ClusterDoc(partage=FORMAT, cluster_id=cluster_id, shards=shard_count)
        try:
            await session.transact(_founding(tree, cluster))
        except InDoubt:
            await session.connected()
        except Refused as refused:
            if refused.why is not Why.EXISTS:
                raise
        found = await find_cluster(session, tree)
    return found


async def _make_parents(session: Session, path: str) -> None:
    """Make every node down to the path, as far as they are missing."""
    parts = path.strip("/").split("/")
    for depth in range(1, len(parts) + 1):
        above = "/" + "/".join(parts[:depth])
        while await surely(session, partial(session.read, above)) is None:
            try:
                await session.transact([Create(above)])
            except InDoubt:
                await session.connected()
            except Refused as refused:
                if refused.why is not Why.EXISTS:
                    raise


def _founding(tree: Tree, cluster: ClusterDoc) -> list[Operation]:
    operations: list[Operation] = [
        Create(tree.cluster, encode(cluster)),
        Create(tree.brokers),
        Create(tree.applied),
        Create(tree.topics, encode(TopicsDoc())),
        Create(tree.tombstones),
        Create(tree.producer_ids, encode(CountDoc())),
        Create(tree.shards),
    ]
    for shard in range(cluster.shards):
        operations += [
            Create(tree.shard(shard), encode(ShardDoc())),
            Create(tree.state(shard), encode(StateDoc())),
            Create(tree.log(shard)),
            Create(tree.chunks(shard)),
        ]
    return operations


async def reserve_producer_ids(session: Session, tree: Tree, count: int) -> int:
    """The first of ``count`` producer ids that nobody else is given."""
    while True:
        node = await surely(session, lambda: session.read(tree.producer_ids))
        if node is None:
            raise ForeignData(f"{tree.producer_ids} is missing in ZooKeeper")
        first = decode(tree.producer_ids, node.data, CountDoc).value
        following = SetData(tree.producer_ids, encode(CountDoc(value=first + count)), node.version)
        try:
            await session.transact([following])
        except InDoubt:  # it may have happened: then these are lost, of which there are enough
            await session.connected()
        except Refused as refused:
            if refused.why is not Why.VERSION:
                raise
        else:
            return first

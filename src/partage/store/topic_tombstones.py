"""Tombstones that reserve the name of a deleted topic until no group can hold offsets for it.

Committed offsets are stored by topic name. If a name were reused too early, a shard without an
owner, or with a broker that is behind, could show the old topic's offsets as the new one's. It
could also delete the new topic's offsets when it handles the deletion of the old one. So a deletion
leaves a node ``tombstones/ID.groups``. It is removed when no shard can have an offset of the topic:

* Every live broker has applied the deletion, so it accepts no commits for the topic. A broker that
  starts later applies all topic changes before it takes shards.
* For every shard of groups, a broker has published, in the shard's current epoch, that the shard
  holds no durable or pending offset of the topic.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from functools import partial

from partage.store.zk_schema import (
    GROUPS_SUFFIX,
    AppliedDoc,
    ClusterDoc,
    ForeignDataError,
    ShardDoc,
    TombstoneDoc,
    ZkPaths,
    decode,
    parse_number,
    parse_topic_id,
)
from partage.store.zookeeper import (
    Delete,
    InDoubtError,
    RefusalReason,
    RefusedError,
    Session,
    retry_read,
)


class TopicNameReservedError(Exception):
    """The name belongs to a deleted topic for which groups may still hold offsets; retry later."""


async def groups_tombstones(session: Session, paths: ZkPaths) -> Mapping[str, TombstoneDoc]:
    """Return the deleted topics for which groups may hold offsets, by topic id.

    Raises:
        ForeignDataError: A node was not written by Partage.
        SessionEndedError: The session ended.
    """
    names = await retry_read(session, lambda: session.children(paths.tombstones))
    ids = [parse_topic_id(paths.tombstones, name) for name in names if name.endswith(GROUPS_SUFFIX)]
    node_paths = [paths.groups_tombstone(topic_id) for topic_id in ids]
    nodes = await retry_read(session, lambda: session.read_all(node_paths)) if node_paths else []
    return {
        topic_id: decode(path, node.data, TombstoneDoc)
        for topic_id, path, node in zip(ids, node_paths, nodes, strict=True)
        if node is not None
    }


async def remove_obsolete(session: Session, paths: ZkPaths) -> set[str]:
    """Remove the tombstones of topics for which no shard can hold an offset.

    Returns:
        The topic names that are still reserved.

    Raises:
        ForeignDataError: A node was not written by Partage.
        RefusedError: ZooKeeper refused the removal.
        SessionEndedError: The session ended.
    """
    left = dict(await groups_tombstones(session, paths))
    if not left:
        return set()
    # The order of these reads matters. A broker that registers after the list of live brokers was
    # read applies the deletions before it takes shards. If a published epoch is outdated, the
    # shard's new owner has applied them.
    up = await _child_numbers(session, paths.brokers)
    applied_docs = await _applied_docs(session, paths, up)
    epochs = await _epochs(session, paths)
    for topic_id, grave in list(left.items()):
        if _is_obsolete(grave.version, up, applied_docs, epochs):
            # if the node still exists, the next call removes it
            with contextlib.suppress(InDoubtError):
                await _remove(session, paths.groups_tombstone(topic_id))
                del left[topic_id]
    return {grave.name for grave in left.values()}


def _is_obsolete(
    version: int,
    up: Collection[int],
    applied_docs: Mapping[int, AppliedDoc],
    epochs: Mapping[int, int | None],
) -> bool:
    words = {broker: word for broker, word in applied_docs.items() if word.forgot >= version}
    return words.keys() >= set(up) and all(
        epoch == 0 or any(word.shards.get(shard) == epoch for word in words.values())
        for shard, epoch in epochs.items()
    )


async def _child_numbers(session: Session, parent: str) -> list[int]:
    names = await retry_read(session, partial(session.children, parent))
    return [parse_number(parent, name) for name in names]


async def _applied_docs(
    session: Session, paths: ZkPaths, up: Collection[int]
) -> dict[int, AppliedDoc]:
    brokers = sorted({*up, *await _child_numbers(session, paths.applied)})
    node_paths = [paths.applied_by(broker) for broker in brokers]
    nodes = await retry_read(session, lambda: session.read_all(node_paths))
    return {
        broker: decode(path, node.data, AppliedDoc)
        for broker, path, node in zip(brokers, node_paths, nodes, strict=True)
        if node is not None
    }


async def _epochs(session: Session, paths: ZkPaths) -> dict[int, int | None]:
    """Return the epoch of each shard of groups; 0 if the shard never had an owner."""
    cluster = await retry_read(session, lambda: session.read(paths.cluster))
    if cluster is None:
        raise ForeignDataError(
            f"{paths.cluster} is missing in ZooKeeper; restore it, or use another path"
        )
    shards = range(decode(paths.cluster, cluster.data, ClusterDoc).shards)
    node_paths = [paths.shard(shard) for shard in shards]
    nodes = await retry_read(session, lambda: session.read_all(node_paths))
    return {
        shard: None if node is None else decode(path, node.data, ShardDoc).epoch
        for shard, path, node in zip(shards, node_paths, nodes, strict=True)
    }


async def _remove(session: Session, path: str) -> None:
    try:
        await session.transact([Delete(path)])
    except RefusedError as refused:
        if refused.reason is not RefusalReason.MISSING:
            raise

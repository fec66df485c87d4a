"""Names of deleted topics that groups may still have offsets of: nothing is made under them yet.

What a group has committed is kept by name. A shard that nobody has for a while, or whose broker is
behind, would have its offsets of a topic show up as those of another topic of that name; or forget
what was committed of that other topic, when it comes to forget the former. So a deletion leaves a
grave, ``tombstones/ID.groups``, which goes when no shard can have an offset of that topic any more:

* every broker that is up has followed the deletion, so it takes no commits for the topic; who comes
  later follows it before it has a shard;
* and of every shard a broker has told, in the epoch that the shard is in, that it holds nothing of
  the topic that is durable, or may become so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from functools import partial

from partage.store.tree import (
    GRAVE,
    AppliedDoc,
    ShardDoc,
    TombstoneDoc,
    Tree,
    buried,
    decode,
    numbered,
)
from partage.store.zookeeper import Delete, InDoubt, Refused, Session, Why, surely


class Unforgotten(Exception):  # noqa: N818 - named after what is wrong
    """A topic of this name was deleted, and groups may still have offsets of it: ask again."""


async def graves(session: Session, tree: Tree) -> Mapping[str, TombstoneDoc]:
    """The deleted topics that groups may have offsets of, by their ids.

    Raises `ForeignData` and `SessionOver`.
    """
    names = await surely(session, lambda: session.children(tree.tombstones))
    ids = [buried(tree.tombstones, name) for name in names if name.endswith(GRAVE)]
    paths = [tree.grave(topic_id) for topic_id in ids]
    nodes = await surely(session, lambda: session.read_all(paths)) if paths else []
    return {
        topic_id: decode(path, node.data, TombstoneDoc)
        for topic_id, path, node in zip(ids, paths, nodes, strict=True)
        if node is not None
    }


async def release(session: Session, tree: Tree) -> set[str]:
    """Remove the graves of topics that no shard can have an offset of; the names of the others.

    Raises `ForeignData`, `Refused` and `SessionOver`.
    """
    left = dict(await graves(session, tree))
    if not left:
        return set()
    # In this order, and after the graves: who comes after it was read who is up comes after the
    # deletions, and an epoch that was told of before it was read is over only if somebody took the
    # shard who has followed them.
    up = await _numbers(session, tree.brokers)
    told = await _told(session, tree, up)
    epochs = await _epochs(session, tree)
    for topic_id, grave in list(left.items()):
        if _is_forgotten(grave.version, up, told, epochs):
            with contextlib.suppress(InDoubt):  # if it is there still, it is met again
                await _remove(session, tree.grave(topic_id))
                del left[topic_id]
    return {grave.name for grave in left.values()}


def _is_forgotten(
    version: int,
    up: Collection[int],
    told: Mapping[int, AppliedDoc],
    epochs: Mapping[int, int | None],
) -> bool:
    words = {broker: word for broker, word in told.items() if word.forgot >= version}
    return words.keys() >= set(up) and all(
        epoch == 0 or any(word.shards.get(shard) == epoch for word in words.values())
        for shard, epoch in epochs.items()
    )


async def _numbers(session: Session, parent: str) -> list[int]:
    names = await surely(session, partial(session.children, parent))
    return [numbered(parent, name) for name in names]


async def _told(session: Session, tree: Tree, up: Collection[int]) -> dict[int, AppliedDoc]:
    brokers = sorted({*up, *await _numbers(session, tree.applied)})
    paths = [tree.applied_by(broker) for broker in brokers]
    nodes = await surely(session, lambda: session.read_all(paths))
    return {
        broker: decode(path, node.data, AppliedDoc)
        for broker, path, node in zip(brokers, paths, nodes, strict=True)
        if node is not None
    }


async def _epochs(session: Session, tree: Tree) -> dict[int, int | None]:
    """Of each shard, 0 where nobody ever had it."""
    shards = await _numbers(session, tree.shards)
    paths = [tree.shard(shard) for shard in shards]
    nodes = await surely(session, lambda: session.read_all(paths))
    return {
        shard: None if node is None else decode(path, node.data, ShardDoc).epoch
        for shard, path, node in zip(shards, paths, nodes, strict=True)
    }


async def _remove(session: Session, path: str) -> None:
    try:
        await session.transact([Delete(path)])
    except Refused as refused:
        if refused.why is not Why.MISSING:
            raise

"""The committed offset of a partition with replicas: the lowest position of all replicas.

Pure functions. Each member commits for its partitions and writes its own position and generation
into the metadata of the commit. It takes the positions of the other replicas from the last commit.
So the committed offset is the minimum of all replicas, whichever member commits. It is for
monitoring; no replica reads it. Two concurrent commits may overwrite each other's metadata; the
next commits repair this.
"""

from __future__ import annotations

from typing import Final

import msgspec

#: Generation and position of each replica, by the name of the member's index store.
ReplicaPositions = dict[str, tuple[int, int]]

#: Kafka limits metadata to 4096 characters by default (offset.metadata.max.bytes).
_REPLICAS_MAX: Final = 64


def decode_metadata(metadata: str) -> ReplicaPositions:
    """Decode the metadata of a commit; return nothing if it has another format."""
    try:
        return msgspec.json.decode(metadata, type=ReplicaPositions)
    except (msgspec.DecodeError, UnicodeError):
        return {}


def encode_commit(said: ReplicaPositions) -> tuple[int, str]:
    """Return the offset to commit and its metadata; keep the lowest of many replicas."""
    least = sorted(said.items(), key=lambda each: each[1][1])[:_REPLICAS_MAX]
    return least[0][1][1], msgspec.json.encode(dict(least)).decode()


def merge_position(
    before: ReplicaPositions, name: str, generation: int, position: int, *, hears_others: bool
) -> ReplicaPositions:
    """Return the replica positions after this member's update.

    Replicas of earlier generations may not exist any longer. They count while ``hears_others`` is
    true: for the time after a rebalance in which existing replicas commit.
    """
    kept = {
        other: said
        for other, said in before.items()
        if other != name and (hears_others or said[0] >= generation)
    }
    return {**kept, name: (generation, position)}

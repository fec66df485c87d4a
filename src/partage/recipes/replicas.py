"""The offset that a group shows for a partition with replicas: the least that any of them has.

Pure. Each member commits for the partitions it has, and writes into the commit's metadata how far
it is itself and in which generation. It takes the others' positions out of what was committed last,
so that whoever commits, the offset is everybody's minimum. It is for show: no replica reads it.
Two that commit at the same moment may undo each other's word; the next commits make up for it.
"""

from __future__ import annotations

from typing import Final

import msgspec

#: By the name of a member's indexes: the generation it said it in, and its position.
ReplicaPositions = dict[str, tuple[int, int]]

#: Kafka's bound is 4096 characters (offset.metadata.max.bytes).
_REPLICAS_MAX: Final = 64


def decode_metadata(metadata: str) -> ReplicaPositions:
    """What a commit's metadata says; nothing if somebody else wrote it."""
    try:
        return msgspec.json.decode(metadata, type=ReplicaPositions)
    except (msgspec.DecodeError, UnicodeError):
        return {}


def encode_commit(said: ReplicaPositions) -> tuple[int, str]:
    """The offset to commit, and its metadata. Of very many replicas those that are least far."""
    least = sorted(said.items(), key=lambda each: each[1][1])[:_REPLICAS_MAX]
    return least[0][1][1], msgspec.json.encode(dict(least)).decode()


def merge_position(
    before: ReplicaPositions, name: str, generation: int, position: int, *, hears_others: bool
) -> ReplicaPositions:
    """What is known after this member has said how far it is.

    Others of earlier generations may be gone. They count while ``hears_others``: for so long after
    a rebalance as those that are still there may take to speak up.
    """
    kept = {
        other: said
        for other, said in before.items()
        if other != name and (hears_others or said[0] >= generation)
    }
    return {**kept, name: (generation, position)}

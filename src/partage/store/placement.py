"""Who gets which shards, and which partitions: as even as can be, moving as little as can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def place_shards(owners: Mapping[int, int | None], brokers: Sequence[int]) -> dict[int, int]:
    """The broker that each shard should have, given who has it and who is up.

    Numbers differ by one at most; of the brokers with the same number of shards the one with the
    smaller id comes first, so that all who see the same decide the same. Empty without brokers.
    """
    if not brokers:
        return {}
    order = sorted(brokers)
    least, more = divmod(len(owners), len(order))
    kept: dict[int, list[int]] = {broker: [] for broker in order}
    for shard in sorted(owners):
        owner = owners[shard]
        if owner in kept:
            kept[owner].append(shard)
    # Those who have most may have the one that is left over.
    ranked = sorted(order, key=lambda broker: (-len(kept[broker]), broker))
    room = {broker: least + (rank < more) for rank, broker in enumerate(ranked)}
    placed = {shard: broker for broker in order for shard in kept[broker][: room[broker]]}
    free = [broker for broker in order for _ in range(room[broker] - len(kept[broker]))]
    homeless = [shard for shard in sorted(owners) if shard not in placed]
    return placed | dict(zip(homeless, free, strict=True))


def place_partitions(
    count: int, brokers: Sequence[int], held: Mapping[int, int]
) -> tuple[int, ...]:
    """The broker of each of ``count`` new partitions: in turn, beginning with who holds least.

    ``held`` is how many partitions each broker holds already.
    """
    order = sorted(brokers, key=lambda broker: (held.get(broker, 0), broker))
    return tuple(order[index % len(order)] for index in range(count))

"""Balanced placement of shards and partitions on brokers, with as few moves as possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def place_shards(owners: Mapping[int, int | None], brokers: Sequence[int]) -> dict[int, int]:
    """Return the broker that each shard should have.

    The numbers of shards differ by at most one. Of brokers with equal numbers, the one with the
    smaller id comes first, so all brokers compute the same result from the same input.

    Args:
        owners: The current owner of each shard; None without a live owner.
        brokers: The live brokers.

    Returns:
        The broker of each shard; empty without brokers.
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
    # The remainder goes to the brokers with the most shards, to avoid moves.
    ranked = sorted(order, key=lambda broker: (-len(kept[broker]), broker))
    room = {broker: least + (rank < more) for rank, broker in enumerate(ranked)}
    placed = {shard: broker for broker in order for shard in kept[broker][: room[broker]]}
    free = [broker for broker in order for _ in range(room[broker] - len(kept[broker]))]
    homeless = [shard for shard in sorted(owners) if shard not in placed]
    return placed | dict(zip(homeless, free, strict=True))


def place_partitions(
    count: int, brokers: Sequence[int], held: Mapping[int, int]
) -> tuple[int, ...]:
    """Return the broker of each of ``count`` new partitions, in turn, starting with the least
    loaded.

    Args:
        count: The number of new partitions.
        brokers: The live brokers.
        held: The number of partitions that each broker holds already.
    """
    order = sorted(brokers, key=lambda broker: (held.get(broker, 0), broker))
    return tuple(order[index % len(order)] for index in range(count))

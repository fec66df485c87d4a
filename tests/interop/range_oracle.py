"""What range has to give, computed on its own from Kafka's definition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def range_assignment(
    subscriptions: Mapping[str, Iterable[str]], partitions: Mapping[str, int]
) -> dict[str, set[tuple[str, int]]]:
    """Members and the topics of each, topics and their sizes: what each member is to own.

    Topic by topic: the members that subscribe to it, in the order of their ids, get consecutive
    partitions; the first ones get one more where it does not come out even.
    """
    owned: dict[str, set[tuple[str, int]]] = {member: set() for member in subscriptions}
    for topic, size in partitions.items():
        members = sorted(name for name, topics in subscriptions.items() if topic in topics)
        if not members:
            continue
        share, more = divmod(size, len(members))
        first = 0
        for place, member in enumerate(members):
            count = share + (place < more)
            owned[member] |= {(topic, number) for number in range(first, first + count)}
            first += count
    return owned

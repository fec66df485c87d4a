"""Expected result of the range assignor, computed independently from Kafka's definition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def range_assignment(
    subscriptions: Mapping[str, Iterable[str]], partitions: Mapping[str, int]
) -> dict[str, set[tuple[str, int]]]:
    """Return the partitions of each member, from subscriptions by member and sizes by topic.

    For each topic, its subscribers in the order of their ids get consecutive partitions. If the
    division has a remainder, the first members get one partition more.
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

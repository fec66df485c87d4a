"""Write an assignor: members get the partitions that they prefer, if no other member does.

A member may prefer a partition because it has a warm cache for it. Start a broker with a topic,
then run two members in two terminals:

    pip install 'partage[cli]'
    partage broker --ephemeral  # in a separate terminal
    partage topics create --topic flights --partitions 4
    python examples/own_assignor.py 127.0.0.1:9092 flights tower 0 1
    python examples/own_assignor.py 127.0.0.1:9092 flights tower 2 3

The first member gets all partitions at first. When the second one joins, the first one gives up
partitions 2 and 3 only, and keeps reading 0 and 1 meanwhile. Ctrl-C leaves the group.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from partage.assignors import Assignment, Assignor, Member, RebalanceProtocol, Topic, hold_back
from partage.sync import Consumer, RebalanceListener, TopicPartition


class Preferred(Assignor):
    """Gives members the partitions that they prefer, and spreads the others evenly.

    Args:
        partitions: The partition numbers that this member prefers.
    """

    name = "preferred"
    rebalance_protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self, partitions: Iterable[int] = ()) -> None:
        self.partitions = sorted(partitions)

    def user_data(
        self, topics: Iterable[str], owned: Mapping[str, Sequence[int]], generation: int
    ) -> bytes:
        """Return the preferences; the leader finds them in `Member.user_data`."""
        return json.dumps(self.partitions).encode()

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        """Run in the leader; no other member calls it."""
        preferences = {m.member_id: set(json.loads(m.user_data or b"[]")) for m in members}
        assignment: dict[str, dict[str, list[int]]] = {m.member_id: {} for m in members}
        for name, topic in sorted(topics.items()):
            loads = {
                m.member_id: 0
                for m in sorted(members, key=lambda member: member.sort_key)
                if name in m.topics
            }
            if not loads:
                continue
            for partition in range(topic.partition_count):
                fans = [member for member in loads if partition in preferences[member]]
                owner = min(fans or loads, key=loads.__getitem__)
                loads[owner] += 1
                assignment[owner].setdefault(name, []).append(partition)
        return hold_back(members, assignment)


class Printer(RebalanceListener):
    """Prints changes of the assignment."""

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Print the new partitions."""
        if partitions:
            print("assigned:", *sorted(each.partition for each in partitions), flush=True)

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Print the partitions that move to another member."""
        print("revoked:", *sorted(each.partition for each in partitions), flush=True)


def main(servers: str, topic: str, group: str, *preferred: str) -> None:
    """Read the topic in a group whose members all use the assignor."""
    assignor = Preferred(map(int, preferred))
    with Consumer(servers, group_id=group, partition_assignment_strategy=[assignor]) as consumer:
        consumer.subscribe([topic], Printer())
        for record in consumer:
            print(f"partition {record.partition}: {(record.value or b'').decode()}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("usage: python examples/own_assignor.py SERVERS TOPIC GROUP [PARTITION...]")
    with suppress(KeyboardInterrupt):
        main(*sys.argv[1:])

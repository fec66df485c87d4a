"""Names of the topics and groups in a world."""

from __future__ import annotations

from typing import Final, NamedTuple


class GroupGeneration(NamedTuple):
    """A generation of a group."""

    group_id: str
    generation: int


GROUPS: Final = ("g", "h")
#: A group with offsets that never has members.
MEMBERLESS_GROUP: Final = "simple"
#: The group whose members speak the consumer protocol.
CONSUMER_GROUP: Final = "k"
#: The client id of rogue requests to that group.
ROGUE_MEMBER: Final = "rogue-02"
#: The topic sets that consumers subscribe to.
SUBSCRIPTIONS: Final = (frozenset({"t"}), frozenset({"u"}), frozenset({"t", "u"}))
#: A topic without readers, for which offsets are committed.
UNREAD_TOPIC: Final = "x"
#: The topic that transactional producers write to.
OUTPUT_TOPIC: Final = "o"
OUTPUT_PARTITIONS: Final = 3
#: The topic that they read, and the group of the offsets in their transactions.
INPUT_TOPIC: Final = "t"
TRANSACTIONAL_GROUP: Final = "copy"
#: The group whose members consume, transform and produce (KIP-447).
LOOP_GROUP: Final = "flow"


def broker_name(broker_id: int) -> str:
    """Return the name of a broker as a client of ZooKeeper and of other brokers."""
    return f"broker {broker_id}"

"""The consumer's protocol inside the group's: subscriptions and assignments as bytes.

Pure: what a member says of itself for each assignor it offers, what the leader makes of all that,
and what a member reads out of its assignment. Kafka's formats (KIP-429, 792, 881), so that members
of any make may share a group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from partage.assignors import Assignment as Shares
from partage.assignors import (
    Assignor,
    BadAssignment,
    RebalanceProtocol,
    Topic,
    check_assignment,
    offered,
    rebalance_protocol,
)
from partage.assignors import Member as Subscriber
from partage.member.events import GroupMember, Protocol
from partage.wire.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from partage.wire.primitives import Malformed

PROTOCOL_TYPE: Final = "consumer"

#: What begins the user data of an assignment that is none: the leader's reason follows.
_NO_ASSIGNMENT: Final = b"partage: no assignment: "

_NOTHING: Final = Assignment(assigned_partitions=[])


class LeaderFailed(Exception):  # noqa: N818 - as the name says, it was the leader
    """The leader could not assign; the message is its reason."""


class Assigning(msgspec.Struct, frozen=True):
    """What the leader knows when it assigns: the members' subscriptions, and which assignor."""

    assignor: Assignor
    members: tuple[Subscriber, ...]

    @property
    def topics(self) -> frozenset[str]:
        """Every topic that somebody wants, whether the leader itself does or not."""
        return frozenset(topic for member in self.members for topic in member.topics)


class Embedding:
    """The assignors of one consumer, and the bytes they travel in.

    Raises:
        AssignorsDisagree: the assignors cannot be offered together.
    """

    def __init__(self, assignors: Sequence[Assignor], rack: str | None = None) -> None:
        self._offered = offered(assignors)
        self._rack = rack
        self.rebalance_protocol: RebalanceProtocol = rebalance_protocol(assignors)

    def describe(
        self, topics: Iterable[str], owned: Iterable[tuple[str, int]], generation: int
    ) -> tuple[Protocol, ...]:
        """The subscription for every assignor, the preferred one first."""
        names, held = sorted(topics), _by_topic(owned)
        return tuple(
            Protocol(
                name,
                encode_subscription(
                    Subscription(
                        topics=names,
                        user_data=assignor.user_data(names, held, generation),
                        owned_partitions=_listed(held),
                        generation_id=generation,
                        rack_id=self._rack,
                    )
                ),
            )
            for name, assignor in self._offered.items()
        )

    def assigning(self, protocol: str, members: Iterable[GroupMember]) -> Assigning:
        """The members as the chosen assignor is to see them.

        Raises:
            Malformed: a member's metadata is no subscription; the message says whose.
        """
        return Assigning(self._offered[protocol], tuple(map(_subscriber, members)))

    def assigned(self, assigning: Assigning, topics: Mapping[str, Topic]) -> dict[str, bytes]:
        """Have the assignor assign; everybody's assignment, by member id.

        Raises:
            BadAssignment: what it gave cannot be handed out.
            Exception: whatever the assignor raised.
        """
        shares = assigning.assignor.assign(assigning.members, topics)
        self._check(assigning, topics, shares)
        return {
            member.member_id: encode_assignment(
                Assignment(assigned_partitions=_listed(shares.get(member.member_id, {})))
            )
            for member in assigning.members
        }

    def _check(self, assigning: Assigning, topics: Mapping[str, Topic], shares: Shares) -> None:
        if not isinstance(shares, Mapping):
            raise BadAssignment(f"{assigning.assignor.name} gave {type(shares).__name__}, no dict")
        assignor = assigning.assignor
        check_assignment(
            assignor.understand(assigning.members),
            topics,
            shares,
            replicas=assignor.replicas,
            # Whatever we are ourselves: an eager leader may assign to cooperative members, in the
            # second bounce of an upgrade from one to the other (KIP-429).
            cooperative=RebalanceProtocol.COOPERATIVE in assignor.rebalance_protocols,
        )

    def failed(self, members: Iterable[GroupMember], reason: str) -> dict[str, bytes]:
        """What everybody is given where the coordinator cannot be told that there is nothing.

        Members of ours find the reason in it (`adopted`). Others see an assignment of no
        partitions, and may go on; Java's would end at an assignment of no bytes.
        """
        user_data = _NO_ASSIGNMENT + reason.encode()
        written = encode_assignment(Assignment(assigned_partitions=[], user_data=user_data))
        return {member.member_id: written for member in members}

    def adopted(self, protocol: str, assignment: bytes, generation: int) -> list[tuple[str, int]]:
        """Read an assignment, and let the assignor know of it.

        Raises:
            LeaderFailed: there is none.
            Malformed: the bytes are no assignment.
        """
        said = decode_assignment(assignment) if assignment else _NOTHING
        user_data = bytes(said.user_data or b"")
        if user_data.startswith(_NO_ASSIGNMENT):
            raise LeaderFailed(user_data.removeprefix(_NO_ASSIGNMENT).decode(errors="replace"))
        share = {topic.topic: list(topic.partitions) for topic in said.assigned_partitions}
        self._offered[protocol].on_assignment(share, generation)
        return [(topic, number) for topic, of in share.items() for number in of]


def _subscriber(member: GroupMember) -> Subscriber:
    try:
        said = decode_subscription(member.metadata)
    except Malformed as error:
        raise Malformed(f"the subscription of {member.member_id!r}: {error}") from None
    return Subscriber(
        member_id=member.member_id,
        instance_id=member.instance_id,
        topics=tuple(said.topics),
        owned={held.topic: tuple(held.partitions) for held in said.owned_partitions},
        generation=said.generation_id,
        rack=said.rack_id,
        user_data=bytes(said.user_data or b""),
    )


def _by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return by_topic


def _listed(by_topic: Mapping[str, Sequence[int]]) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic=topic, partitions=sorted(by_topic[topic]))
        for topic in sorted(by_topic)
        if by_topic[topic]
    ]

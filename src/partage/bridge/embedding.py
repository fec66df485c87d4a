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
    hold_back,
    offered,
    rebalance_protocol,
)
from partage.assignors import Member as Subscriber
from partage.bridge import probing
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
    """What the leader knows when it assigns: the members' subscriptions, and which assignor.

    Of an assignor that probes for versions: ``left_out`` are members that have none in common with
    the leader; some are ``ahead`` that can speak its version and do not yet.
    """

    assignor: Assignor
    members: tuple[Subscriber, ...]
    left_out: tuple[str, ...] = ()
    ahead: bool = False

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
                        user_data=_written(assignor, assignor.user_data(names, held, generation)),
                        owned_partitions=_listed(held),
                        generation_id=generation,
                        rack_id=self._rack,
                    )
                ),
                # What it can read, whatever it writes: the leader is chosen by that.
                assignor.versions[0] if assignor.probing else -1,
            )
            for name, assignor in self._offered.items()
        )

    def assigning(self, protocol: str, members: Iterable[GroupMember]) -> Assigning:
        """The members as the chosen assignor is to see them.

        Raises:
            Malformed: a member's metadata is no subscription; the message says whose.
        """
        assignor = self._offered[protocol]
        subscribers = tuple(map(_subscriber, members))
        if assignor.probing:
            return _probed(assignor.at(assignor.versions[0]), subscribers)
        return Assigning(
            assignor,
            tuple(msgspec.structs.replace(s, version=assignor.version) for s in subscribers),
        )

    def assigned(self, assigning: Assigning, topics: Mapping[str, Topic]) -> dict[str, bytes]:
        """Have the assignor assign; everybody's assignment, by member id.

        Raises:
            BadAssignment: what it gave cannot be handed out.
            Exception: whatever the assignor raised.
        """
        assignor, members = assigning.assignor, assigning.members
        if assigning.ahead:  # all keep what they have while those join again
            shares: Shares = hold_back(members, {m.member_id: m.owned for m in members})
        else:
            shares = assignor.assign(members, topics)
            self._check(assigning, topics, shares)
        return {
            member_id: encode_assignment(
                Assignment(
                    assigned_partitions=_listed(shares.get(member_id, {})),
                    user_data=_written(assignor, None),
                )
            )
            for member_id in (*(member.member_id for member in members), *assigning.left_out)
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

    def heed(self, protocol: str, assignment: bytes) -> str | None:
        """Speak the version that the leader reads; why to join again, if that is another.

        Raises:
            NoVersionInCommon: there is none.
            Malformed: the bytes are no assignment.
        """
        assignor = self._offered[protocol]
        if not assignor.probing or not assignment:
            return None
        leader = probing.read(bytes(decode_assignment(assignment).user_data or b""))
        if leader is None:
            return None
        version = probing.spoken(assignor.versions, leader)
        if version == assignor.version:
            return None
        self._offered[protocol] = assignor.at(version)
        return f"the leader reads {protocol} of version {leader.version} and older"

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


def _written(assignor: Assignor, user_data: bytes | None) -> bytes | None:
    """User data as it travels: marked with its version, by those who probe for that."""
    if not assignor.probing:
        return user_data
    return probing.marked(assignor.versions, assignor.version, user_data or b"")


def _probed(assignor: Assignor, subscribers: Iterable[Subscriber]) -> Assigning:
    """Who can be understood, and who could if it spoke an older version."""
    newest, oldest = assignor.versions[0], assignor.versions[-1]
    members, left_out, ahead = [], [], False
    for subscriber in subscribers:
        said = probing.read(subscriber.user_data)
        if said is None:
            members.append(subscriber)
        elif oldest <= said.version <= newest or said.oldest <= newest < said.version:
            ahead = ahead or said.version > newest
            members.append(
                msgspec.structs.replace(subscriber, user_data=said.user_data, version=said.version)
            )
        else:
            left_out.append(subscriber.member_id)
    return Assigning(assignor, tuple(members), tuple(left_out), ahead)


def _subscriber(member: GroupMember) -> Subscriber:
    try:
        said = decode_subscription(member.metadata)
    except Malformed as error:
        raise Malformed(
            f"what {member.member_id!r} says of itself is no consumer's subscription ({error}); "
            "end that member, or give it another group"
        ) from None
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

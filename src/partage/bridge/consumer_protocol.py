"""The consumer protocol that is embedded in the group protocol: subscriptions and assignments as
bytes.

It has no I/O. It builds a member's subscription for each of its assignors, runs the leader's
assignor, and reads a member's assignment. The formats are Kafka's (KIP-429, KIP-792, KIP-881), so
clients of any implementation can share a group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from partage.assignors import Assignment as Shares
from partage.assignors import (
    Assignor,
    InvalidAssignmentError,
    RebalanceProtocol,
    Topic,
    check_assignment,
    hold_back,
    protocols_by_name,
    rebalance_protocol,
)
from partage.assignors import Member as Subscriber
from partage.bridge import version_probe
from partage.member.events import GroupMemberMetadata, SupportedProtocol
from partage.model.topic_partition import TopicPartition
from partage.wire.consumer_protocol import (
    Assignment,
    ConsumerTopicPartitions,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from partage.wire.primitives import MalformedError

PROTOCOL_TYPE: Final = "consumer"

#: Prefix of the user data of an assignment that reports a failure; the leader's reason follows.
_NO_ASSIGNMENT: Final = b"partage: no assignment: "

_NOTHING: Final = Assignment(assigned_partitions=[])


class LeaderAssignmentError(Exception):
    """The leader could not assign; the message is its reason."""


class AssignmentInput(msgspec.Struct, frozen=True):
    """The input of an assignment: the members' subscriptions and the selected assignor.

    With version probing, ``excluded_members`` have no version in common with the leader.
    ``has_newer_members`` is True if a member wrote a newer version than the leader reads, but can
    also write an older one.
    """

    assignor: Assignor
    members: tuple[Subscriber, ...]
    excluded_members: tuple[str, ...] = ()
    has_newer_members: bool = False

    @property
    def topics(self) -> frozenset[str]:
        """Every topic that a member subscribes to, whether or not the leader does."""
        return frozenset(topic for member in self.members for topic in member.topics)


class ConsumerProtocol:
    """The assignors of one consumer, with the encoding of their subscriptions and assignments.

    Raises:
        IncompatibleAssignorsError: The assignors cannot be offered together.
    """

    def __init__(self, assignors: Sequence[Assignor], rack: str | None = None) -> None:
        self._assignors = protocols_by_name(assignors)
        self._rack = rack
        self.rebalance_protocol: RebalanceProtocol = rebalance_protocol(assignors)

    def build_protocols(
        self, topics: Iterable[str], owned: Iterable[TopicPartition], generation: int
    ) -> tuple[SupportedProtocol, ...]:
        """Return the subscription for each assignor, the preferred assignor first.

        Args:
            topics: The topics to subscribe to.
            owned: The partitions that the member owns (KIP-429).
            generation: The generation in which it owns them (KIP-792).
        """
        names, held = sorted(topics), _by_topic(owned)
        return tuple(
            SupportedProtocol(
                name,
                encode_subscription(
                    Subscription(
                        topics=names,
                        user_data=_with_version(
                            assignor, assignor.user_data(names, held, generation)
                        ),
                        owned_partitions=_listed(held),
                        generation_id=generation,
                        rack_id=self._rack,
                    )
                ),
                # The newest version that it can read, whatever it writes: the coordinator selects
                # the leader by it.
                assignor.versions[0] if assignor.has_version_probing else -1,
            )
            for name, assignor in self._assignors.items()
        )

    def decode_members(
        self, protocol: str, members: Iterable[GroupMemberMetadata]
    ) -> AssignmentInput:
        """Decode the members' metadata for the selected assignor.

        Raises:
            Malformed: A member's metadata is no subscription; the message names the member.
        """
        assignor = self._assignors[protocol]
        subscribers = tuple(map(_subscriber, members))
        if assignor.has_version_probing:
            return _probe_versions(assignor.at_version(assignor.versions[0]), subscribers)
        return AssignmentInput(
            assignor,
            tuple(msgspec.structs.replace(s, version=assignor.version) for s in subscribers),
        )

    def assign(self, assigning: AssignmentInput, topics: Mapping[str, Topic]) -> dict[str, bytes]:
        """Run the assignor and encode each member's assignment.

        Returns:
            The encoded assignments by member id.

        Raises:
            InvalidAssignmentError: The assignor's result is invalid.
            Exception: Any exception of the assignor.
        """
        assignor, members = assigning.assignor, assigning.members
        # members keep their partitions until the newer ones rejoin with an older version
        if assigning.has_newer_members:
            shares: Shares = hold_back(members, {m.member_id: m.owned for m in members})
        else:
            shares = assignor.assign(members, topics)
            self._check(assigning, topics, shares)
        return {
            member_id: encode_assignment(
                Assignment(
                    assigned_partitions=_listed(shares.get(member_id, {})),
                    user_data=_with_version(assignor, None),
                )
            )
            for member_id in (
                *(member.member_id for member in members),
                *assigning.excluded_members,
            )
        }

    def _check(
        self, assigning: AssignmentInput, topics: Mapping[str, Topic], shares: Shares
    ) -> None:
        if not isinstance(shares, Mapping):
            raise InvalidAssignmentError(
                f"{assigning.assignor.name} returned {type(shares).__name__}, expected a dict"
            )
        assignor = assigning.assignor
        check_assignment(
            assignor.with_user_data(assigning.members),
            topics,
            shares,
            replicas=assignor.replicas,
            # This does not depend on our own mode: an eager leader may assign to cooperative
            # members, in the second rolling bounce of an upgrade (KIP-429).
            cooperative=RebalanceProtocol.COOPERATIVE in assignor.rebalance_protocols,
        )

    def encode_failure(
        self, members: Iterable[GroupMemberMetadata], reason: str
    ) -> dict[str, bytes]:
        """Encode a failure for a coordinator that does not understand assignment errors.

        Partage members find the reason in it (`apply_assignment`). Other clients see an assignment
        of no partitions and may continue. An assignment of no bytes would make the Java client
        fail.
        """
        user_data = _NO_ASSIGNMENT + reason.encode()
        written = encode_assignment(Assignment(assigned_partitions=[], user_data=user_data))
        return {member.member_id: written for member in members}

    def negotiate_version(self, protocol: str, assignment: bytes) -> str | None:
        """Switch to a version that the leader reads.

        Returns:
            The reason to rejoin if the version changed, else None.

        Raises:
            NoCommonVersionError: No version is common to both.
            Malformed: The bytes are no assignment.
        """
        assignor = self._assignors[protocol]
        if not assignor.has_version_probing or not assignment:
            return None
        leader = version_probe.decode_user_data(
            bytes(decode_assignment(assignment).user_data or b"")
        )
        if leader is None:
            return None
        version = version_probe.choose_version(assignor.versions, leader)
        if version == assignor.version:
            return None
        self._assignors[protocol] = assignor.at_version(version)
        return f"the leader reads {protocol} up to version {leader.version}"

    def apply_assignment(
        self, protocol: str, assignment: bytes, generation: int
    ) -> list[TopicPartition]:
        """Decode an assignment and pass it to the assignor.

        Returns:
            The assigned partitions.

        Raises:
            LeaderAssignmentError: The leader could not assign.
            Malformed: The bytes are no assignment.
        """
        said = decode_assignment(assignment) if assignment else _NOTHING
        user_data = bytes(said.user_data or b"")
        if user_data.startswith(_NO_ASSIGNMENT):
            raise LeaderAssignmentError(
                user_data.removeprefix(_NO_ASSIGNMENT).decode(errors="replace")
            )
        share = {topic.topic: list(topic.partitions) for topic in said.assigned_partitions}
        self._assignors[protocol].on_assignment(share, generation)
        return [TopicPartition(topic, number) for topic, of in share.items() for number in of]


def _with_version(assignor: Assignor, user_data: bytes | None) -> bytes | None:
    """Return the user data to send; assignors with version probing prefix it with the version."""
    if not assignor.has_version_probing:
        return user_data
    return version_probe.encode_user_data(assignor.versions, assignor.version, user_data or b"")


def _probe_versions(assignor: Assignor, subscribers: Iterable[Subscriber]) -> AssignmentInput:
    """Split the members into those with a version in common and the excluded ones."""
    newest, oldest = assignor.versions[0], assignor.versions[-1]
    members, left_out, ahead = [], [], False
    for subscriber in subscribers:
        said = version_probe.decode_user_data(subscriber.user_data)
        if said is None:
            members.append(subscriber)
        elif oldest <= said.version <= newest or said.oldest <= newest < said.version:
            ahead = ahead or said.version > newest
            members.append(
                msgspec.structs.replace(subscriber, user_data=said.user_data, version=said.version)
            )
        else:
            left_out.append(subscriber.member_id)
    return AssignmentInput(assignor, tuple(members), tuple(left_out), ahead)


def _subscriber(member: GroupMemberMetadata) -> Subscriber:
    try:
        said = decode_subscription(member.metadata)
    except MalformedError as error:
        raise MalformedError(
            f"metadata of member {member.member_id!r} is no consumer subscription ({error}); "
            "stop that member, or move it to another group"
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


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return by_topic


def _listed(by_topic: Mapping[str, Sequence[int]]) -> list[ConsumerTopicPartitions]:
    return [
        ConsumerTopicPartitions(topic=topic, partitions=sorted(by_topic[topic]))
        for topic in sorted(by_topic)
        if by_topic[topic]
    ]

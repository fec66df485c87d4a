"""The member of the design with a single assignor.

A member that gets the metadata of all members computes the assignment outside of the state machine
(`ComputeShares`), because an assignor may take long or fail. The coordinator sends a failure to all
members, and each raises it to its user.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from partage.assignors.base import Assignor
from partage.assignors.group_view import Member
from partage.bridge.member_requests import to_error_code
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.proposals.assignment import Shares
from partage.proposals.join_group.member import DesignMember, DesignMemberState, Outcome
from partage.proposals.join_group.settings import DesignMemberSettings
from partage.proposals.machine import Action, Event, FetchMetadata, MetadataFetched
from partage.proposals.single_assignor.messages import (
    AssignedTopic,
    DefaultMetadata,
    DefaultState,
    Joined,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinPhase,
    MemberWithMetadata,
    SyncedMember,
    Synchronize,
    Synchronized,
)
from partage.proposals.topic_pattern import TopicPattern
from partage.wire import codec
from partage.wire.primitives import MalformedError
from partage.wire.types import Message

_METADATA_VERSION = "default"


class SingleAssignorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The member's assignor and metadata.

    Attributes:
        assignor: The assignor that this member runs if it is the synchronizer.
        pattern: A pattern of topics; the member's topics are ignored then.
        metadata_version: The version that the coordinator compares, if it chooses by version.
        sends_timeout: True if the request says how long the coordinator shall wait for this member.
        user_data: Further metadata for the assignor.
    """

    assignor: Assignor
    pattern: TopicPattern | None = None
    metadata_version: int = 0
    sends_timeout: bool = True
    user_data: bytes = b""


class ComputeShares(Action, frozen=True, gc=False, kw_only=True):
    """Compute the shares of all members; then `SharesComputed`, or `ShareComputationFailed`.

    ``number`` counts the computations of the member.
    """

    number: int
    assignor: Assignor
    members: tuple[Member, ...]
    topics: dict[str, int]


class SharesComputed(Event, frozen=True, gc=False, kw_only=True):
    """The shares of all members, from the `ComputeShares` of the same number."""

    number: int
    shares: Shares


class ShareComputationFailed(Event, frozen=True, gc=False, kw_only=True):
    """The assignor raised in the `ComputeShares` of this number."""

    number: int


class SingleAssignorMember(DesignMember):
    """A member that assigns for the whole group if the coordinator chooses it."""

    def __init__(
        self, settings: DesignMemberSettings, topics: frozenset[str], options: SingleAssignorOptions
    ) -> None:
        super().__init__(settings, topics, options.pattern)
        self.options = options
        #: The ids of all members of the generation.
        self.group_members: tuple[str, ...] = ()
        self._to_assign: list[MemberWithMetadata] = []  # while the metadata is fetched
        self._computation_number = 0  # of the current or last one
        # The subscriptions of all members, if this member has assigned in the generation.
        self._group_topics: frozenset[str] = frozenset()
        self._group_patterns: tuple[TopicPattern, ...] = ()

    def handle(self, event: Event) -> Outcome:
        """Handle an event and return its effects."""
        match event:
            case SharesComputed(number=number, shares=shares):
                outcome = Outcome(event.at_ms)
                if number == self._computation_number:
                    self._send_synchronized(outcome, ErrorCode.NONE, shares)
                return outcome
            case ShareComputationFailed(number=number):
                outcome = Outcome(event.at_ms)
                if number == self._computation_number:
                    self._send_synchronized(outcome, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, {})
                return outcome
        outcome = super().handle(event)
        if isinstance(event, MetadataFetched):
            self._on_metadata_fetched(outcome)
        return outcome

    def _join_request(self) -> Message:
        self._group_topics, self._group_patterns = frozenset(), ()
        options = self.options
        metadata = DefaultMetadata(
            version=_METADATA_VERSION,
            topics=[] if self.pattern is not None else sorted(self.topics),
            topic_pattern="" if self.pattern is None else self.pattern.text,
            user_data=options.user_data,
        )
        return JoinGroupRequest(
            group_id=self.settings.group_id,
            protocol_type="consumer",
            join=JoinPhase(
                session_timeout=self.settings.session_timeout_ms,
                synchronize_timeout=(
                    self.settings.synchronize_timeout_ms if options.sends_timeout else 0
                ),
                metadata_version=options.metadata_version,
                member_id=self.member_id,
                member_metadata=_encode(metadata),
            ),
        )

    def _on_join_response(self, outcome: Outcome, response: Any) -> None:
        assert isinstance(response, JoinGroupResponse), f"unexpected response {response}"
        error = to_error_code(response.error_code)
        match error:
            case ErrorCode.NONE:
                self.member_id = response.member_id
                self.generation = response.group_generation_id
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
                self._proceed(outcome)
                return
            case ErrorCode.REQUEST_TIMED_OUT:
                # Under another id, the coordinator would wait for this one.
                self.member_id = response.member_id
                self._proceed(outcome)
                return
            case ErrorCode.REBALANCE_IN_PROGRESS | ErrorCode.ILLEGAL_GENERATION:
                self._proceed(outcome)
                return
            case _:
                self._fail_request(outcome, error)
                return
        match response:
            case JoinGroupResponse(synchronize=Synchronize(members=members)):
                self._on_chosen(outcome, members)
            case JoinGroupResponse(joined=Joined() as joined):
                self.group_members = tuple(joined.group_members)
                self._on_joined(outcome, joined.synced_member_state)
            case _:
                self._fail_request(outcome, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _on_chosen(self, outcome: Outcome, members: list[MemberWithMetadata]) -> None:
        """Fetch the metadata of all topics: other members may subscribe to other topics."""
        self.state = DesignMemberState.SYNCHRONIZING
        self._computation_number += 1
        self._to_assign = members
        outcome.act(FetchMetadata())

    def _on_metadata_fetched(self, outcome: Outcome) -> None:
        members, self._to_assign = self._to_assign, []
        if self.state is not DesignMemberState.SYNCHRONIZING or not members:
            return
        patterns: dict[str, TopicPattern] = {}
        try:
            described = tuple(self._describe(each, patterns) for each in members)
        except (MalformedError, ValueError):  # ValueError: an unsupported pattern or version
            self._send_synchronized(outcome, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, {})
            return
        self._group_topics = frozenset().union(*(each.topics for each in described))
        self._group_patterns = tuple(patterns.values())
        outcome.act(
            ComputeShares(
                number=self._computation_number,
                assignor=self.options.assignor,
                members=described,
                topics=dict(self.metadata),
            )
        )

    def _describe(self, member: MemberWithMetadata, patterns: dict[str, TopicPattern]) -> Member:
        """Return a member with its topics; ``patterns`` are the known ones, by their text.

        Raises:
            MalformedError: The metadata is malformed.
            ValueError: The pattern is not supported, or the metadata has another version.
        """
        metadata: Any = _decode(DefaultMetadata, member.member_metadata)
        if metadata.version != _METADATA_VERSION:
            raise ValueError(f"metadata of {member.member_id} has version {metadata.version!r}")
        topics = metadata.topics
        if text := metadata.topic_pattern:
            pattern = patterns.get(text)
            if pattern is None:
                pattern = patterns[text] = TopicPattern(text)
            topics = [name for name in self.metadata if pattern.matches(name)]
        return Member(
            member_id=member.member_id, topics=tuple(sorted(topics)), user_data=metadata.user_data
        )

    def _watched_topics(self, metadata: Mapping[str, int]) -> frozenset[str]:
        """Return the topics of the subscription, and those that this member has assigned.

        Other members do not notice a change that they knew before this member did.
        """
        own = super()._watched_topics(metadata) | self._group_topics
        if not self._group_patterns:
            return own
        return own.union(
            name
            for name in metadata
            if any(pattern.matches(name) for pattern in self._group_patterns)
        )

    def _send_synchronized(self, outcome: Outcome, error: ErrorCode, shares: Shares) -> None:
        """Send the assignment, unless the connection was lost since the member was chosen."""
        if self.state is not DesignMemberState.SYNCHRONIZING or self._in_flight is not None:
            return
        self._send(
            outcome,
            JoinGroupRequest(
                group_id=self.settings.group_id,
                protocol_type="consumer",
                synchronized=Synchronized(
                    error_code=error,
                    generation_id=self.generation,
                    member_id=self.member_id,
                    members=[
                        SyncedMember(member_id=member_id, synced_member_state=_encode_share(share))
                        for member_id, share in shares.items()
                    ],
                ),
            ),
        )

    def _on_joined(self, outcome: Outcome, state: bytes) -> None:
        try:
            decoded: Any = _decode(DefaultState, state) if state else DefaultState(assignment=[])
        except MalformedError as error:
            self._fail(outcome, f"the assignment is malformed: {error}")
            return
        self._start(
            outcome,
            (TopicPartition(each.topic, p) for each in decoded.assignment for p in each.partitions),
        )


def _encode_share(share: frozenset[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(share):
        by_topic.setdefault(topic, []).append(partition)
    return _encode(
        DefaultState(
            assignment=[
                AssignedTopic(topic=topic, partitions=partitions)
                for topic, partitions in by_topic.items()
            ]
        )
    )


def _encode(message: Message) -> bytes:
    return b"".join(codec.encoder(type(message), 0, False)(message))


def _decode(cls: type[Message], encoded: bytes) -> Message:
    message: Message
    message, _ = codec.decoder(cls, 0, False)(encoded, 0)
    return message

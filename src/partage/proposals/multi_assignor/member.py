"""The member of the design with many assignors.

The member checks the hashes of all members before it uses the result. With a different view of the
topics it would compute another assignment than they do. It then fetches metadata again and rejoins.
"""

from __future__ import annotations

import zlib
from collections import Counter
from typing import Any

import msgspec

from partage.assignors.base import Assignor
from partage.assignors.group_view import Member
from partage.bridge.member_requests import to_error_code
from partage.model.errors import ErrorCode
from partage.proposals.join_group.member import DesignMember as MemberBase
from partage.proposals.join_group.member import DesignMemberState, Outcome, Timer
from partage.proposals.join_group.settings import DesignMemberSettings
from partage.proposals.multi_assignor.computation import (
    GroupComputation,
    MetadataCompression,
    active_subscription,
)
from partage.proposals.multi_assignor.messages import (
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
)
from partage.proposals.multi_assignor.metadata import (
    HashedMetadata,
    SubscriptionMetadata,
    encode_metadata,
    hash_subscription,
    hash_topics,
)
from partage.proposals.topic_pattern import TopicPattern
from partage.wire.primitives import MalformedError
from partage.wire.types import Message


class MultiAssignorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The variants of the design, and the member's assignors.

    Attributes:
        assignors: The assignors in order of preference, each a protocol. The coordinator selects
            one that all members have, so a group changes to another without a stop.
        pattern: A pattern of topics; the member's topics are ignored then.
        hashes_subscription: True if members send a hash of their subscription instead of it. Only
            the largest sub-group with one subscription is active then.
        compression: The part of the metadata that is compressed.
        checks_metadata: False for an assignor whose result does not depend on agreement.
        coordinator_metadata_after: After this many disagreements in a row, the member fetches all
            metadata from the coordinator, from then on; None if it never does.
        user_data: Further metadata for the assignor.
    """

    assignors: tuple[Assignor, ...]
    pattern: TopicPattern | None = None
    hashes_subscription: bool = False
    compression: MetadataCompression = MetadataCompression.NONE
    checks_metadata: bool = True
    coordinator_metadata_after: int | None = None
    user_data: bytes = b""


class MultiAssignorMember(MemberBase):
    """A member that computes the assignment of the whole group and takes its own part."""

    def __init__(
        self,
        settings: DesignMemberSettings,
        topics: frozenset[str],
        options: MultiAssignorOptions,
        computation: GroupComputation | None = None,
    ) -> None:
        super().__init__(settings, topics, options.pattern)
        self.options = options
        #: Disagreements about topics since the last assignment.
        self.disagreements = 0
        #: True if another subscription is active and this member waits without partitions.
        self.is_idle = False
        self._has_lasting_disagreement = False  # at any time until now
        self._computation = GroupComputation() if computation is None else computation
        self._assignor = options.assignors[0]  # of the current generation

    @property
    def fetches_from_coordinator(self) -> bool:
        """True after a lasting disagreement.

        A refresh from another broker could bring the disagreement back, and a rebalance with it.
        """
        return self._has_lasting_disagreement

    # Metadata

    def _metadata_hash(self, topics: frozenset[str], *, is_pattern: bool) -> bytes:
        """Return the hash of this member's view of the topics of a subscription.

        With a pattern it covers all topics of the cluster: a topic that one member does not know
        yet may match.
        """
        return hash_topics(self.metadata, self.metadata if is_pattern else topics)

    @property
    def _subscription_hash(self) -> bytes:
        text = None if self.pattern is None else self.pattern.text
        return hash_subscription(self.subscribed_topics, text)

    def _join_request(self) -> Message:
        topics, options, pattern = self.subscribed_topics, self.options, self.pattern
        metadata_hash = self._metadata_hash(topics, is_pattern=pattern is not None)
        metadata: Message
        if options.hashes_subscription:
            metadata = HashedMetadata(
                subscription_hash=self._subscription_hash, metadata_hash=metadata_hash
            )
        else:
            metadata = SubscriptionMetadata(
                topics=[] if pattern is not None else sorted(topics),
                topic_pattern=None if pattern is None else pattern.text,
                metadata_hash=metadata_hash,
                user_data=options.user_data,
            )
        encoded = encode_metadata(
            metadata, compresses=options.compression is MetadataCompression.MEMBER
        )
        return JoinGroupRequest(
            group_id=self.settings.group_id,
            session_timeout=self.settings.session_timeout_ms,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupProtocol(name=each.protocol_name, metadata=encoded)
                for each in options.assignors
            ],
        )

    # Response

    def _on_join_response(self, outcome: Outcome, response: Any) -> None:
        assert isinstance(response, JoinGroupResponse), f"unexpected response {response}"
        error = to_error_code(response.error_code)
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
            self._proceed(outcome)
            return
        if error:
            self._fail_request(outcome, error)
            return
        self.member_id, self.generation = response.member_id, response.generation_id
        selected = [
            each for each in self.options.assignors if each.protocol_name == response.protocol_name
        ]
        if not selected:
            self._fail(outcome, f"no assignor has the protocol {response.protocol_name!r}")
            return
        self._assignor = selected[0]
        try:
            if self.options.hashes_subscription:
                self._start_in_sub_group(outcome, response)
            else:
                self._start_in_group(outcome, response)
        except (MalformedError, ValueError, zlib.error) as fault:
            # ValueError: a pattern that is not supported. Without its metadata, this member cannot
            # know what the sender assigns to itself.
            self._fail(outcome, f"the metadata of a member is malformed: {fault}")

    def _start_in_group(self, outcome: Outcome, response: JoinGroupResponse) -> None:
        group = self._computation.subscriptions(
            response, self.metadata, is_compressed=self._is_compressed
        )
        agrees = all(
            self._metadata_hash(view.topics, is_pattern=view.is_pattern) == view.metadata_hash
            for view in group.views
        )
        if agrees or not self.options.checks_metadata:
            self._start_with(outcome, group.members)
        else:
            self._disagree(outcome)

    def _start_in_sub_group(self, outcome: Outcome, response: JoinGroupResponse) -> None:
        decoded = self._computation.hashes(response, is_compressed=self._is_compressed)
        active = active_subscription(Counter(each.subscription_hash for each in decoded.values()))
        topics = self.subscribed_topics
        self.is_idle = active != self._subscription_hash
        if self.is_idle:
            self.disagreements = 0
            self._start(outcome, ())
            return
        sub_group = {
            name: each for name, each in decoded.items() if each.subscription_hash == active
        }
        mine = self._metadata_hash(topics, is_pattern=self.pattern is not None)
        if self.options.checks_metadata and any(
            each.metadata_hash != mine for each in sub_group.values()
        ):
            self._disagree(outcome)
            return
        wanted = tuple(sorted(topics))
        self._start_with(
            outcome, tuple(Member(member_id=name, topics=wanted) for name in sub_group)
        )

    @property
    def _is_compressed(self) -> bool:
        return self.options.compression is MetadataCompression.MEMBER

    def _start_with(self, outcome: Outcome, members: tuple[Member, ...]) -> None:
        self.disagreements = 0
        shares = self._computation.assign(self._assignor, members, self.metadata)
        self._start(outcome, shares.get(self.member_id, frozenset()))

    def _disagree(self, outcome: Outcome) -> None:
        """Fetch metadata again and rejoin: another member has another view of the topics.

        While that does not help, the member waits before it does it again.
        """
        self.disagreements += 1
        self._has_metadata = False
        limit = self.options.coordinator_metadata_after
        if limit is not None and self.disagreements >= limit:
            self._has_lasting_disagreement = True
        if self.disagreements == 1:
            self._proceed(outcome)
        else:
            self.state = DesignMemberState.FETCHING_METADATA
            outcome.arm_timer(Timer.RETRY, self.settings.retry_backoff_ms)

"""A state machine for Hypothesis: any order of responses, timers, losses and stops at a member of
the design with many assignors.
"""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize

from partage.assignors import RoundRobin
from partage.model.errors import ErrorCode
from partage.proposals import machine
from partage.proposals.join_group.member import DesignMemberState
from partage.proposals.multi_assignor import messages as multi
from partage.proposals.multi_assignor.member import MultiAssignorMember, MultiAssignorOptions
from partage.proposals.multi_assignor.metadata import (
    HashedMetadata,
    SubscriptionMetadata,
    decode_metadata,
    encode_metadata,
    hash_subscription,
)

from .coordinator_properties import walk_lengths, walk_seeds
from .member_properties import JoinGroupMemberMachine

#: The members beside this one with its subscription and with another one, by the choice. Members
#: send hashes of their subscriptions.
SUB_GROUPS = {1: (0, 1), 2: (0, 2), 3: (1, 1)}
#: Hashes of other subscriptions: before that of this member, and after it.
OTHER_HASHES = (b"\0" * 16, b"\xff" * 16)


class MultiMemberMachine(JoinGroupMemberMachine):
    """The member of the design with many assignors."""

    join_request = multi.JoinGroupRequest
    inner: MultiAssignorMember

    def __init__(self) -> None:
        super().__init__()
        #: The hash of each view of subscribed topics that was sent.
        self.view_hashes: dict[tuple[tuple[str, int], ...], bytes] = {}

    @initialize(
        hashes_subscription=st.booleans(),
        choice=st.sampled_from((*range(10), 6, 6)),
        steps=st.sampled_from((1, 3, 3, 5)),
        seed=walk_seeds,
        length=walk_lengths,
    )
    def start(
        self, hashes_subscription: bool, choice: int, steps: int, seed: int, length: int
    ) -> None:
        self.hashes_subscription = hashes_subscription
        options = MultiAssignorOptions(
            assignors=(RoundRobin(),),
            hashes_subscription=hashes_subscription,
            coordinator_metadata_after=2,
            user_data=b"rack",
        )
        self.begin(MultiAssignorMember(self.settings, self.subscription, options))
        self.walk(seed, length)
        self.proceed(choice, steps)

    def perform(self, action: machine.Action) -> None:
        super().perform(action)
        if isinstance(action, machine.Send) and isinstance(action.message, self.join_request):
            self.check_view()

    def check_view(self) -> None:
        """Check that members with another view of the subscribed topics can notice it."""
        topics = self.known_topics
        view = tuple((topic, topics.get(topic, 0)) for topic in sorted(self.subscription))
        metadata_hash = bytes(self.joined().metadata_hash)
        assert self.view_hashes.setdefault(view, metadata_hash) == metadata_hash, "two hashes"
        same = [each for each, other in self.view_hashes.items() if other == metadata_hash]
        assert same == [view], f"the views {same} have one hash"

    def joined(self) -> Any:
        join: Any = self.last_join
        kind = HashedMetadata if self.hashes_subscription else SubscriptionMetadata
        metadata: Any = decode_metadata(kind, join.protocols[0].metadata)
        return metadata

    def joined_topics(self) -> frozenset[str]:
        joined = self.joined()
        if not self.hashes_subscription:
            assert joined.user_data == b"rack", "the user data is missing"
            return frozenset(joined.topics)
        assert joined.subscription_hash == hash_subscription(self.subscription)
        return self.subscription

    def answer_join(self, request: multi.JoinGroupRequest, choice: int) -> None:
        """Answer with a generation: alone, with a member of the same view, or of another one."""
        error = {
            7: ErrorCode.UNKNOWN_MEMBER_ID,
            8: ErrorCode.NOT_COORDINATOR,
            9: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        }.get(choice, ErrorCode.NONE)
        self.generation += not error
        member_id = request.member_id or f"member-{len(self.sent)}"
        metadata = bytes(request.protocols[0].metadata)
        members = [multi.JoinGroupMember(member_id=member_id, metadata=metadata)]
        if choice in (4, 5):
            members.append(multi.JoinGroupMember(member_id="other", metadata=metadata))
        if choice == 6:
            view = msgspec.structs.replace(self.joined(), metadata_hash=b"another")
            members.append(multi.JoinGroupMember(member_id="other", metadata=encode_metadata(view)))
        is_active = is_current = True
        if self.hashes_subscription and choice in SUB_GROUPS:
            same, others = SUB_GROUPS[choice]
            own_hash = bytes(self.joined().subscription_hash)
            other_hash = OTHER_HASHES[self.generation % 2]
            is_current = own_hash == hash_subscription(self.subscription)
            view = msgspec.structs.replace(self.joined(), subscription_hash=other_hash)
            metadata_of_others = [metadata] * same + [encode_metadata(view)] * others
            members += [
                multi.JoinGroupMember(member_id=f"other-{number}", metadata=each)
                for number, each in enumerate(metadata_of_others)
            ]
            # The larger sub-group is active, or the one with the smaller hash.
            is_active = (-1 - same, own_hash) < (-others, other_hash)
        if not error:
            self.has_other_reader = choice in (4, 5) or len(members) > 2 or not is_active
        self.hear(
            multi.JoinGroupResponse(
                error_code=error,
                generation_id=-1 if error else self.generation,
                protocol_name="" if error else request.protocols[0].name,
                member_id=request.member_id if error else member_id,
                members=[] if error else members,
            )
        )
        if choice == 6:
            assert not self.member.owned, "members with other metadata assign differently"
        if self.hashes_subscription and is_current and self.inner.state is DesignMemberState.STABLE:
            assert self.inner.is_idle is not is_active, f"idle: {self.inner.is_idle}"

"""Groups with the classic protocol whose leader assigns the partitions of a real topic.

With the eager protocol, a member joins without partitions. With the cooperative one it keeps them,
gives up those that its assignment lacks, and then joins again (KIP-429).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bench.load import Address, connect
from bench.members import Group, Member, form, wait_for_coordinator
from partage.assignors import Assignor, Topic
from partage.bridge.consumer_protocol import ConsumerProtocol
from partage.member.events import GroupMemberMetadata
from partage.model.rebalance_protocol import RebalanceProtocol
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.join_group import JoinGroupProtocol, JoinGroupResponse
from partage.wire.apis.sync_group import SyncGroupAssignment

#: Short, so that all members soon learn of a rebalance while the group forms.
_FORMING_INTERVAL_S = 0.2


class TopicGroup(Group):
    """The members of a group that share a topic.

    Args:
        make_assignor: Returns a new assignor; each member has one.
    """

    def __init__(
        self,
        group_id: str,
        topic: str,
        partitions: int,
        make_assignor: Callable[[], Assignor],
        *,
        heartbeat_interval_s: float,
        session_ms: int = 60_000,
    ) -> None:
        super().__init__(group_id, heartbeat_interval_s=heartbeat_interval_s, session_ms=session_ms)
        self._topic = topic
        self._partitions = partitions
        self._make_assignor = make_assignor
        self._embeddings: dict[Member, ConsumerProtocol] = {}
        self._owned: dict[Member, frozenset[TopicPartition]] = {}

    def _embedding_of(self, member: Member) -> ConsumerProtocol:
        if member not in self._embeddings:
            self._embeddings[member] = ConsumerProtocol([self._make_assignor()])
        return self._embeddings[member]

    def protocols(self, member: Member) -> list[JoinGroupProtocol]:
        """Return the subscription of a member, with its partitions if it keeps them."""
        embedding = self._embedding_of(member)
        if embedding.rebalance_protocol is RebalanceProtocol.EAGER:
            self._owned.pop(member, None)
        owned = self._owned.get(member, frozenset())
        offered = embedding.build_protocols([self._topic], owned, member.generation)
        return [JoinGroupProtocol(name=each.name, metadata=each.metadata) for each in offered]

    def assignments(self, joined: JoinGroupResponse) -> list[SyncGroupAssignment]:
        """Return the assignments of the leader; an empty list for other members."""
        if not joined.members:
            return []
        leader = next(each for each in self.members if each.member_id == joined.member_id)
        embedding = self._embedding_of(leader)
        members = [
            GroupMemberMetadata(member_id=each.member_id, metadata=bytes(each.metadata))
            for each in joined.members
        ]
        assigning = embedding.decode_members(joined.protocol_name or "", members)
        topics = {self._topic: Topic(name=self._topic, partition_count=self._partitions)}
        return [
            SyncGroupAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in embedding.assign(assigning, topics).items()
        ]

    def accept(self, member: Member, protocol: str, assignment: bytes) -> bool:
        """Accept the assignment of a member; return True if it has given up partitions."""
        embedding = self._embedding_of(member)
        assigned = embedding.apply_assignment(protocol, assignment, member.generation)
        revoked = self._owned.get(member, frozenset()) - set(assigned)
        self._owned[member] = frozenset(assigned)
        return bool(revoked)

    @property
    def is_complete(self) -> bool:
        """True if all wanted members are in this generation and own all partitions."""
        owned = sum(len(self._owned.get(each, ())) for each in self.members)
        return super().is_complete and owned == self._partitions

    def spread_heartbeats(self) -> None:
        """Distribute the heartbeats of the members evenly over the interval."""
        for number, member in enumerate(self.members):
            member.schedule_heartbeat(self.heartbeat_interval_s * number / len(self.members))


async def form_topic_group(address: Address, group: TopicGroup, size: int) -> None:
    """Connect the members of a group, and return when they are stable and own all partitions."""
    await wait_for_coordinator(address, group.group_id)
    interval_s, group.heartbeat_interval_s = group.heartbeat_interval_s, _FORMING_INTERVAL_S
    group.members = [Member(group, caller) for caller in await connect(address, size)]
    await form(group)
    group.heartbeat_interval_s = interval_s
    await asyncio.sleep(2 * _FORMING_INTERVAL_S)  # until each member has used the new interval
    group.spread_heartbeats()

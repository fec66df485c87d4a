"""A classic group: its members, its last stored generation, and its state."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from partage.coordinator.events import Protocol
from partage.coordinator.group_base import GroupBase, GroupType, SubscribedTopics
from partage.coordinator.member import Member, record_size
from partage.coordinator.records import (
    GroupRecord,
    GroupTombstone,
    MemberRecord,
    OffsetRecord,
    Record,
)
from partage.coordinator.states import PREDECESSORS, GroupState
from partage.model.errors import ErrorCode


class InitialDelay(msgspec.Struct):
    """The initial rebalance delay of an empty group (KIP-134); a new member may prolong it."""

    delay_ms: int
    remaining_ms: int
    has_new_member: bool = False


class Group(GroupBase):
    """One classic group. Only ``record`` is durable; the members' requests rebuild the rest.

    The attributes are redundant on purpose, so that no check iterates over all members without
    need:

    - ``members`` is in the order in which the members joined.
    - ``joined_count`` counts the members that are parked in a Join, ``joined_static_count`` the
      static ones among them.
    - ``pending_members`` are the ids that were handed out and not used in a Join yet (KIP-394).
    - ``pending_sync_members`` are the members that have not sent SyncGroup in this generation.
    """

    __slots__ = (
        "assignments",
        "initial_delay",
        "is_sync_resumed",
        "joined_count",
        "joined_static_count",
        "leader",
        "members",
        "pending_members",
        "pending_sync_members",
        "protocol_counts",
        "protocol_type",
        "record",
        "record_bytes",
        "state",
        "static_members",
    )

    type = GroupType.CLASSIC

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.state = GroupState.EMPTY
        self.record = GroupRecord(group_id=group_id)
        self.assignments: dict[str, bytes] = {}
        # An OrderedDict finds its first key in constant time. A dict skips the slots of removed
        # keys, and the next leader is looked up each time the leader leaves.
        self.members: OrderedDict[str, Member] = OrderedDict()
        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.pending_members: dict[str, None] = {}
        self.pending_sync_members: dict[str, None] = {}
        self.protocol_counts: dict[str, int] = {}  # protocol name -> number of members that list it
        self.joined_count = 0
        self.joined_static_count = 0
        self.record_bytes = 0  # of all members together
        self.leader: str | None = None
        self.protocol_type: str | None = None
        self.initial_delay: InitialDelay | None = None
        self.is_sync_resumed = False  # loaded while the sync was awaited

    # Durable state.

    @property
    def generation(self) -> int:
        """The number of the last generation that was started; 0 before the first."""
        return self.record.generation

    @property
    def protocol(self) -> str | None:
        """The protocol that was selected for the last generation."""
        return self.record.protocol

    @property
    def classic_state(self) -> GroupState:
        """The state."""
        return self.state

    @property
    def state_name(self) -> str:
        """The name of its state."""
        return self.state

    @property
    def protocol_type_name(self) -> str:
        """The protocol type; empty if it never had members."""
        return self.protocol_type or ""

    @property
    def members_by_id(self) -> Mapping[str, Member]:
        """Its members by id."""
        return self.members

    def topics_in_use(self, subscribed_topics: SubscribedTopics) -> frozenset[str] | None:
        """Return the topics that the members of a consumer group subscribe to; None if unknown."""
        if self.protocol_type != "consumer" or self.protocol is None:
            return frozenset() if self.state is GroupState.EMPTY else None
        topics: set[str] = set()
        for member in self.members.values():
            subscribed = subscribed_topics(member.metadata(self.protocol))
            if subscribed is None:
                return None
            topics |= subscribed
        return frozenset(topics)

    def retention_start_ms(self, offset: OffsetRecord, in_use: frozenset[str] | None) -> int | None:
        """Return the time from which the retention of an offset counts (KIP-211)."""
        if self.protocol_type is None:
            return offset.commit_ms
        if self.state is GroupState.EMPTY:
            return max(self.record.since_ms, offset.commit_ms)
        is_unused = in_use is not None and offset.topic not in in_use
        return offset.commit_ms if self.state is GroupState.STABLE and is_unused else None

    def tombstones(self) -> list[Record]:
        """Return the tombstone of the group."""
        return [GroupTombstone(group_id=self.id)]

    def apply(self, saved: GroupRecord) -> None:
        """Apply a stored generation, both live and while loading."""
        self.record = saved
        self.assignments = {m.member_id: m.assignment for m in saved.members}

    def snapshot(
        self,
        *,
        at_ms: int,
        generation: int,
        protocol: str | None,
        awaiting_sync: bool,
        assignments: dict[str, bytes],
    ) -> GroupRecord:
        """Return the record of the current members."""
        return GroupRecord(
            group_id=self.id,
            protocol_type=self.protocol_type,
            generation=generation,
            protocol=protocol,
            leader=self.leader,
            since_ms=at_ms,
            awaiting_sync=awaiting_sync,
            members=tuple(
                member.to_record(protocol, assignments.get(member.id, b""))
                for member in self.members.values()
            ),
        )

    def resume(self) -> None:
        """Restore the members of the last record, after loading."""
        saved = self.record
        self.protocol_type = saved.protocol_type
        for kept in saved.members:
            self.add(self._restored(kept))
        if not self.members:
            return
        if saved.leader in self.members:
            self.leader = saved.leader
        self.is_sync_resumed = saved.awaiting_sync
        if saved.awaiting_sync:
            self.state = GroupState.COMPLETING_REBALANCE
            self.pending_sync_members = dict.fromkeys(self.members)
        else:
            self.state = GroupState.STABLE

    def _restored(self, kept: MemberRecord) -> Member:
        assert self.record.protocol is not None, f"group {self.id} has members but no protocol"
        return Member(
            group_id=self.id,
            member_id=kept.member_id,
            instance_id=kept.instance_id,
            client_id=kept.client_id,
            client_host=kept.client_host,
            session_timeout_ms=kept.session_timeout_ms,
            rebalance_timeout_ms=kept.rebalance_timeout_ms,
            protocols=(Protocol(self.record.protocol, kept.subscription),),
        )

    # State machine.

    def transition_to(self, state: GroupState) -> None:
        """Change the state. No other code changes it."""
        allowed = PREDECESSORS[state]
        assert self.state in allowed, f"group {self.id} cannot change from {self.state} to {state}"
        self.state = state

    # Members.

    def add(self, member: Member) -> None:
        """Add a member; the first one becomes the leader."""
        assert member.id not in self.members, f"{member.id} is already in group {self.id}"
        if self.leader is None:
            self.leader = member.id
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.id
        self.members[member.id] = member
        self.pending_members.pop(member.id, None)
        self._count(member, +1)

    def remove(self, member: Member) -> None:
        """Remove a member that has no parked request."""
        assert not member.is_parked, f"{member.id} is removed from group {self.id} while parked"
        del self.members[member.id]
        self.pending_sync_members.pop(member.id, None)
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        self._count(member, -1)
        if self.leader == member.id:
            self.leader = next(iter(self.members), None)

    def replace_static_member(self, member: Member, member_id: str) -> Member:
        """Replace a static member's id, and keep it as the leader if it was (KIP-345)."""
        assert member.instance_id is not None
        assert not member.is_parked, f"{member.id} is replaced while parked"
        renamed = Member(
            group_id=self.id,
            member_id=member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            session_timeout_ms=member.session_timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            protocols=member.protocols,
        )
        del self.members[member.id]
        self.members[member_id] = renamed
        self.record_bytes += renamed.record_bytes - member.record_bytes
        self.static_members[member.instance_id] = member_id
        if member.id in self.pending_sync_members:
            del self.pending_sync_members[member.id]
            self.pending_sync_members[member_id] = None
        if self.leader == member.id:
            self.leader = member_id
        return renamed

    def update_protocols(self, member: Member, protocols: tuple[Protocol, ...]) -> None:
        """Set the protocols that the member lists."""
        self._count(member, -1)
        member.protocols = protocols
        member.record_bytes = record_size(
            member.id, member.instance_id, member.client_id, protocols
        )
        self._count(member, +1)

    def _count(self, member: Member, by: int) -> None:
        self.record_bytes += by * member.record_bytes
        for name in member.protocol_names():
            count = self.protocol_counts.get(name, 0) + by
            if count:
                self.protocol_counts[name] = count
            else:
                del self.protocol_counts[name]

    def validate_member(self, member_id: str, instance_id: str | None) -> Member | ErrorCode:
        """Return the member that a request is from.

        Returns:
            The member, or the error: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member
            holds the instance id.
        """
        if instance_id is not None:
            holder = self.static_members.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        member = self.members.get(member_id)
        return ErrorCode.UNKNOWN_MEMBER_ID if member is None else member

    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of the members.

        It is 0 without members: the coordinator does not wait for pending members alone.
        """
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    # Join phase.

    def count_joined(self, member: Member, by: int) -> None:
        """Count a member as parked in a Join (``by`` is +1) or as no longer parked (-1)."""
        self.joined_count += by
        if member.is_static:
            self.joined_static_count += by

    @property
    def next_generation_size(self) -> int:
        """Number of members that the next generation has so far.

        Members that have joined count, and so do static members, which stay even if they are
        absent.
        """
        return self.joined_count + len(self.static_members) - self.joined_static_count

    @property
    def has_all_joined(self) -> bool:
        """True if every member is parked in a Join and no pending member is left."""
        return self.joined_count == len(self.members) and not self.pending_members

    def elect_leader(self) -> bool:
        """Replace the leader by a member that rejoined, if the leader did not.

        Returns:
            True if there is a leader that rejoined.
        """
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.join_ticket is not None:
            return True
        for member in self.members.values():
            if member.join_ticket is not None:
                self.leader = member.id
                return True
        return False

    def elect_newest_version(self, protocol: str) -> None:
        """Give the lead to a member with the highest version of the protocol (KIP-429).

        Newer code reads what older code wrote. The leader keeps the lead if its version is among
        the highest, or if no member states one. Only members that have joined can lead.
        """
        joined = [m for m in self.members.values() if m.join_ticket is not None]
        highest = max(member.version(protocol) for member in joined)
        if self.members[self.leader or ""].version(protocol) < highest:
            self.leader = next(m.id for m in joined if m.version(protocol) == highest)

    # Protocols.

    def supports_protocols(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        """True if a member with these protocols could be in one generation with the current
        members.
        """
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        everyone = len(self.members)
        return any(self.protocol_counts.get(p.name, 0) == everyone for p in protocols)

    def select_protocol(self) -> str:
        """Return the protocol that all members support and most prefer.

        The order of the leader's protocols decides a tie.
        """
        everyone = len(self.members)
        candidates = {name for name, count in self.protocol_counts.items() if count == everyone}
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next(p.name for p in member.protocols if p.name in candidates)
            votes[choice] = votes.get(choice, 0) + 1
        most = max(votes.values())
        # the leader lists all candidates, as every member does
        leader = self.members[self.leader or ""]
        return next(p.name for p in leader.protocols if votes.get(p.name) == most)

"""A consumer group whose last members use the classic protocol becomes a classic group.

The classic group continues with the epoch as its generation, and with the partitions that each
member may still read. All records of the change are in one batch, so a coordinator that takes over
sees one group or the other.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from partage.coordinator import rebalance
from partage.coordinator.consumer_group.catalogue import Catalogue
from partage.coordinator.consumer_group.embedded_protocol import CONSUMER_PROTOCOL_TYPE
from partage.coordinator.consumer_group.group import ConsumerGroup
from partage.coordinator.consumer_group.member import ConsumerMember
from partage.coordinator.consumer_group.parked_requests import refuse_parked
from partage.coordinator.consumer_group.partitions import PartitionSet
from partage.coordinator.event_context import EventContext
from partage.coordinator.events import Protocol
from partage.coordinator.group import Group
from partage.coordinator.member import Member
from partage.coordinator.outcome import GroupEventType, RebalanceCause
from partage.model.errors import ErrorCode
from partage.model.settings import MigrationPolicy

_ALLOWING = (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


def may_downgrade(
    context: EventContext,
    group: ConsumerGroup,
    leaving: Collection[ConsumerMember],
    *,
    joining: int = 0,
) -> bool:
    """True if the group becomes a classic group when some members leave.

    All other members use the classic protocol, there are some, and a classic group has room for
    them.

    Args:
        context: Context of the current event.
        group: The group.
        leaving: The members that leave.
        joining: The number of members with the classic protocol that replace them.
    """
    remaining = len(group.members) - len(leaving)
    classic = group.classic_count - sum(member.is_classic for member in leaving)
    return (
        remaining == classic
        and remaining + joining > 0
        and context.settings.consumer.migration_policy in _ALLOWING
        and remaining + joining <= context.settings.members_max
        and _to_classic_group(group, leaving).record_bytes <= context.settings.group_bytes_max
    )


def downgrade(
    context: EventContext,
    group: ConsumerGroup,
    catalogue: Catalogue,
    leaving: Collection[ConsumerMember],
    *,
    reason: str,
) -> Group:
    """Replace the group by a classic group of the members that stay.

    Args:
        context: Context of the current event.
        group: The group; `may_downgrade` allows the change.
        catalogue: The values of the shard.
        leaving: The members that do not stay.
        reason: The cause, for group events.

    Returns:
        The classic group, which rebalances: so its members learn of the change, and of the leader.
    """
    for member in group.members.values():
        error = ErrorCode.REBALANCE_IN_PROGRESS
        if member in leaving:
            error = ErrorCode.UNKNOWN_MEMBER_ID
            context.cancel_timer(member.session_timer)
        refuse_parked(context, group, member, error)
        context.cancel_timer(member.rebalance_timer)
    following = _to_classic_group(group, leaving)
    protocol = following.select_protocol()
    encode = catalogue.embedded.encode_assignment
    record = following.snapshot(
        at_ms=context.at_ms,
        generation=group.epoch,
        protocol=protocol,
        awaiting_sync=False,
        assignments={
            member.id: encode(
                catalogue.to_topic_partitions(_held(group.members[member.id])),
                member.metadata(protocol),
            )
            for member in following.members.values()
        },
    )
    context.emit(group, GroupEventType.DOWNGRADED, reason=reason)
    for tombstone in group.tombstones():
        context.write(tombstone)
    # Without a leader: a coordinator that loads it starts the join phase that follows here.
    context.write(msgspec.structs.replace(record, leader=None))
    classic = catalogue.groups[group.id]
    assert isinstance(classic, Group)
    classic.resume()
    for restored in classic.members.values():
        classic.update_protocols(restored, following.members[restored.id].protocols)
        context.restart_session(restored)
    rebalance.start_rebalance(context, classic, RebalanceCause.DOWNGRADED, reason)
    return classic


def _held(member: ConsumerMember) -> PartitionSet:
    """Return the partitions that are assigned to a member, or that it must still give up."""
    current = member.assignment
    return {
        topic_id: tuple(
            sorted(
                {
                    *current.assigned.get(topic_id, ()),
                    *current.pending_revocation.get(topic_id, ()),
                }
            )
        )
        for topic_id in (*current.assigned, *current.pending_revocation)
    }


def _to_classic_group(group: ConsumerGroup, leaving: Collection[ConsumerMember]) -> Group:
    """Return a classic group of the members that stay, which is not yet stored."""
    classic = Group(group.id)
    classic.protocol_type = CONSUMER_PROTOCOL_TYPE
    for member in group.members.values():
        if member not in leaving:
            classic.add(_to_classic_member(group, member))
    return classic


def _to_classic_member(group: ConsumerGroup, member: ConsumerMember) -> Member:
    record = member.subscription
    assert record.classic is not None, f"{member.id} does not use the classic protocol"
    return Member(
        group_id=group.id,
        member_id=member.id,
        instance_id=record.instance_id,
        client_id=record.client_id,
        client_host=record.client_host,
        session_timeout_ms=record.classic.session_timeout_ms,
        rebalance_timeout_ms=record.rebalance_timeout_ms,
        protocols=tuple(Protocol(each.name, each.metadata) for each in record.classic.protocols),
    )

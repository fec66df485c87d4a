"""Mutants of groups that change their type, and of their members with the classic protocol."""

from __future__ import annotations

from typing import Any, Final

from .mutant import Mutant

_C = "partage.coordinator.consumer_group"

#: The worlds in which these mutants are searched for: groups with members of both protocols.
_WORLDS: Final[dict[str, Any]] = {
    "brokers": 1,
    "members": 1,
    "consumer_members": 2,
    "classic_members": 2,
}


def _mutant(name: str, module: str, original: str, replacement: str) -> Mutant:
    return Mutant(name, f"{_C}.{module}", original, replacement, _WORLDS)


_UPGRADE_MUTANTS: Final = (
    _mutant(
        "an upgrade ignores the policy",
        "upgrade",
        "if context.settings.consumer.migration_policy not in _ALLOWING:",
        "if context.settings.consumer.migration_policy is MigrationPolicy.DISABLED:",
    ),
    _mutant(
        "an upgrade takes over the last assignment while a leader assigns",
        "upgrade",
        "    if group.record.awaiting_sync:\n        return _owned(subscriptions)\n",
        "",
    ),
    _mutant(
        "the oldest claim of a partition decides in an upgrade",
        "upgrade",
        "if known is None or known[0] < subscription.generation:",
        "if known is None or known[0] > subscription.generation:",
    ),
    _mutant(
        "an upgrade gives partitions that members still read to others",
        "upgrade",
        "        revoked = catalogue.to_partition_set(revoked_topics)\n",
        "        revoked = {}\n",
    ),
    _mutant(
        "an upgrade keeps partitions of topics without subscription",
        "upgrade",
        "for topic, numbers in held.items() if topic in topics}",
        "for topic, numbers in held.items()}",
    ),
    _mutant(
        "a JoinGroup that waits gets no response in an upgrade",
        "upgrade",
        "        rebalance.reply_to_join(context, group, member, refused)\n",
        "        assert refused\n",
    ),
    _mutant(
        "a SyncGroup that waits gets no response in an upgrade",
        "upgrade",
        "    rebalance.abort_sync(context, group)\n",
        "",
    ),
    _mutant(
        "the epoch of an upgraded group begins at its first one",
        "upgrade",
        "    epoch = max(group.generation, FIRST_EPOCH)\n",
        "    epoch = FIRST_EPOCH\n",
    ),
    _mutant(
        "the members of an upgraded group have no session",
        "upgrade",
        "        context.arm_timer(member.session_timer, member.session_timeout_ms)\n",
        "        pass\n",
    ),
    _mutant(
        "the join timer survives an upgrade",
        "upgrade",
        "    context.cancel_timer(JoinTimer(group.id))\n",
        "",
    ),
    _mutant(
        "the classic group stays in the log after an upgrade",
        "upgrade",
        "    for tombstone in group.tombstones():\n        context.write(tombstone)\n",
        "    del catalogue.groups[group.id]\n",
    ),
)

_DOWNGRADE_MUTANTS: Final = (
    _mutant(
        "a downgrade ignores the policy",
        "downgrade",
        "        and context.settings.consumer.migration_policy in _ALLOWING\n",
        "",
    ),
    _mutant(
        "a group is downgraded although a consumer stays",
        "downgrade",
        "        remaining == classic\n",
        "        remaining <= classic + 1\n",
    ),
    _mutant(
        "a downgrade ignores the size of a classic group",
        "downgrade",
        "        and remaining + joining <= context.settings.members_max\n",
        "",
    ),
    _mutant(
        "a downgrade forgets partitions that members still read",
        "downgrade",
        "                    *current.pending_revocation.get(topic_id, ()),\n",
        "",
    ),
    _mutant(
        "the generation of a downgraded group lags by one",
        "downgrade",
        "        generation=group.epoch,\n",
        "        generation=group.epoch - 1,\n",
    ),
    _mutant(
        "a downgraded group does not rebalance",
        "downgrade",
        "    rebalance.start_rebalance(context, classic, RebalanceCause.DOWNGRADED, reason)\n",
        "    assert RebalanceCause\n",
    ),
    _mutant(
        "a member that leaves is in the downgraded group",
        "downgrade",
        "        if member not in leaving:\n            classic.add(",
        "        if member.is_classic or member not in leaving:\n            classic.add(",
    ),
    _mutant(
        "a request that waits gets no response in a downgrade",
        "downgrade",
        "        refuse_parked(context, group, member, error)\n",
        "        assert error\n",
    ),
    _mutant(
        "the members of a downgraded group have no session",
        "downgrade",
        "        context.restart_session(restored)\n",
        "",
    ),
)

_CLASSIC_MEMBER_MUTANTS: Final = (
    _mutant(
        "a JoinGroup reports no partitions of a classic member",
        "classic_members",
        "        owned=catalogue.to_partition_set(subscription.owned),\n",
        "        owned={},\n",
    ),
    _mutant(
        "a SyncGroup returns the target of a classic member",
        "classic_members",
        "to_partition_set(member.assignment.assigned))\n",
        "group.target_of(member, catalogue))\n",
    ),
    _mutant(
        "a SyncGroup returns partitions that a classic member must give up",
        "classic_members",
        "to_partition_set(member.assignment.assigned))\n",
        "to_partition_set({**member.assignment.assigned, "
        "**member.assignment.pending_revocation}))\n",
    ),
    _mutant(
        "a Heartbeat of any generation is accepted from a classic member",
        "classic_members",
        "    return member if event.generation == member.epoch else ErrorCode.ILLEGAL_GENERATION\n",
        "    return member\n",
    ),
    _mutant(
        "a classic member does not learn of a new target",
        "classic_members",
        "    if member.epoch < group.assignment_epoch or _is_revoking(member):\n"
        "        return True\n",
        "    if _is_revoking(member):\n        return True\n",
    ),
    _mutant(
        "a classic member is not told to give up partitions",
        "classic_members",
        "    if member.epoch < group.assignment_epoch or _is_revoking(member):\n"
        "        return True\n",
        "    if member.epoch < group.assignment_epoch:\n        return True\n",
    ),
    _mutant(
        "a classic member does not learn that its partitions are free",
        "classic_members",
        "    return all(\n        group.holder(topic_id, partition) in (None, member.id)\n",
        "    return False and all(\n"
        "        group.holder(topic_id, partition) in (None, member.id)\n",
    ),
    _mutant(
        "a classic member joins again while its partitions are not free",
        "classic_members",
        "        group.holder(topic_id, partition) in (None, member.id)\n",
        "        group.holder(topic_id, partition) or member.id\n",
    ),
    _mutant(
        "a Heartbeat does not extend the session of a classic member",
        "classic_members",
        "    _restart_session(context, group, catalogue, member)\n    error = ErrorCode.NONE\n",
        "    error = ErrorCode.NONE\n",
    ),
    _mutant(
        "a classic member that waits may never join again",
        "classic_members",
        "        if not member.awaits_request and not group.is_parked(member.id):\n",
        "        if member.awaits_request and not group.is_parked(member.id):\n",
    ),
    _mutant(
        "the disabled policy admits a classic member",
        "classic_members",
        "    if settings.migration_policy is MigrationPolicy.DISABLED:\n",
        "    if settings.migration_policy is None:\n",
    ),
    _mutant(
        "a static member that replaces the last consumer keeps the consumer group",
        "classic_members",
        "    if is_downgrade:\n        _join_and_downgrade(",
        "    if is_downgrade and not replaced:\n        _join_and_downgrade(",
    ),
    _mutant(
        "a classic member that replaces a consumer keeps its rebalance timer",
        "classic_members",
        "        context.cancel_timer(group.members[member_id].rebalance_timer)\n",
        "        pass\n",
    ),
)

MIGRATION_MUTANTS: Final = _UPGRADE_MUTANTS + _DOWNGRADE_MUTANTS + _CLASSIC_MEMBER_MUTANTS

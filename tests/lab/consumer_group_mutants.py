"""Mutants of groups with the consumer protocol: epochs, targets, reconciliation, records."""

from __future__ import annotations

from typing import Any, Final

from .mutant import Mutant

_C = "partage.coordinator.consumer_group"
_F = "partage.store.consumer_group_formats"

#: The worlds in which these mutants are searched for: one classic member, and three of the group.
_WORLDS: Final[dict[str, Any]] = {"brokers": 1, "members": 1, "consumer_members": 3}


def _mutant(name: str, module: str, original: str, replacement: str) -> Mutant:
    return Mutant(name, module, original, replacement, _WORLDS)


_FENCE_MUTANTS: Final = (
    _mutant(
        "a heartbeat with a greater epoch is accepted",
        f"{_C}.heartbeat",
        "if event.member_epoch > assignment.member_epoch:",
        "if event.member_epoch > assignment.member_epoch + 1_000_000:",
    ),
    _mutant(
        "a heartbeat with any older epoch is accepted",
        f"{_C}.heartbeat",
        "        event.member_epoch != assignment.previous_member_epoch\n"
        "        or not is_subset(event.owned, assignment.assigned)\n",
        "        not is_subset(event.owned, assignment.assigned)\n",
    ),
    _mutant(
        "a heartbeat with the previous epoch is refused",
        f"{_C}.heartbeat",
        "        event.member_epoch != assignment.previous_member_epoch\n"
        "        or not is_subset(event.owned, assignment.assigned)\n",
        "        True\n",
    ),
    _mutant(
        "the previous epoch may report partitions that are not assigned",
        f"{_C}.heartbeat",
        "        or not is_subset(event.owned, assignment.assigned)\n",
        "",
    ),
    _mutant(
        "a heartbeat without partitions is a subset",
        f"{_C}.reconciliation",
        "    if owned is None:\n        return False\n",
        "    if owned is None:\n        return True\n",
    ),
    _mutant(
        "a static member replaces one that did not leave",
        f"{_C}.heartbeat",
        "        held_by = group.static_members.get(event.instance_id)\n        if is_joining:",
        "        held_by = None\n        if is_joining:",
    ),
    _mutant(
        "a heartbeat with the instance id of another member is accepted",
        f"{_C}.heartbeat",
        "    if held_by != member_id:\n        return heartbeat_error(\n"
        "            ErrorCode.FENCED_INSTANCE_ID,",
        "    if not held_by:\n        return heartbeat_error(\n"
        "            ErrorCode.FENCED_INSTANCE_ID,",
    ),
    _mutant(
        "a consumer group may exceed its size by one",
        f"{_C}.heartbeat",
        "len(group.members) < settings.members_max\n",
        "len(group.members) <= settings.members_max\n",
    ),
    _mutant(
        "a member of a full group cannot join again",
        f"{_C}.heartbeat",
        "        or member_id in group.members\n",
        "",
    ),
    _mutant(
        "a static member cannot return to a full group",
        f"{_C}.heartbeat",
        "        or instance_id in group.static_members\n",
        "",
    ),
)

_EPOCH_MUTANTS: Final = (
    _mutant(
        "a change of the subscription keeps the epoch of the group",
        f"{_C}.progress",
        "has_other_topics = new.subscribed_topics != topics or (",
        "has_other_topics = (",
    ),
    _mutant(
        "another preferred assignor keeps the epoch of the group",
        f"{_C}.progress",
        "if not has_other_topics and not has_other_assignor:",
        "if not has_other_topics:",
    ),
    _mutant(
        "a new regex raises the epoch of the group at once",
        f"{_C}.progress",
        "new.subscribed_regex != regex and is_known_regex\n",
        "new.subscribed_regex != regex\n",
    ),
    _mutant(
        "a change to a known regex keeps the epoch of the group",
        f"{_C}.progress",
        "new.subscribed_regex != regex and is_known_regex\n",
        "False\n",
    ),
    _mutant(
        "changed topics keep the epoch of the group",
        f"{_C}.membership",
        "if because is None and metadata_hash == group.record.metadata_hash:",
        "if because is None:",
    ),
    _mutant(
        "the epoch of a group grows at each check of its topics",
        f"{_C}.membership",
        "if because is None and metadata_hash == group.record.metadata_hash:",
        "if because is None and not metadata_hash:",
    ),
    _mutant(
        "the epoch of a group grows by two",
        f"{_C}.membership",
        "epoch=group.epoch + 1, metadata_hash",
        "epoch=group.epoch + 2, metadata_hash",
    ),
    _mutant(
        "the loss of a member keeps the epoch of the group",
        f"{_C}.membership",
        "    bump_epoch(context, group, catalogue, EpochCause(cause, member_id))\n",
        "    if group.is_empty:\n"
        "        bump_epoch(context, group, catalogue, EpochCause(cause, member_id))\n",
    ),
    _mutant(
        "the hash of topics ignores the number of partitions",
        f"{_C}.catalogue",
        "(topic.topic_id, name, topic.partition_count, [sorted",
        "(topic.topic_id, name, [sorted",
    ),
    _mutant(
        "the hash of topics ignores the topic id",
        f"{_C}.catalogue",
        "(topic.topic_id, name, topic.partition_count, [sorted",
        "(name, topic.partition_count, [sorted",
    ),
    _mutant(
        "the digest of a changed topic is not computed again",
        f"{_C}.catalogue",
        "if known is not None and known[0] == topic:",
        "if known is not None:",
    ),
    _mutant(
        "topic ids are not looked up again after a change",
        f"{_C}.catalogue",
        "        self._by_id = None\n        for name in",
        "        for name in",
    ),
    _mutant(
        "an empty group keeps an older target epoch",
        f"{_C}.membership",
        "        context.write(TargetAssignmentRecord(group_id=group.id, "
        "assignment_epoch=group.epoch))\n",
        "",
    ),
)

_TARGET_MUTANTS: Final = (
    _mutant(
        "no target is computed",
        f"{_C}.heartbeat",
        "if group.epoch <= group.assignment_epoch or group.computation is not None:",
        "if group.assignment_epoch > 1 or group.computation is not None:",
    ),
    _mutant(
        "a target gets the newest epoch, not that of its computation",
        f"{_C}.target",
        "            assignment_epoch=event.group_epoch,\n",
        "            assignment_epoch=group.epoch,\n",
    ),
    _mutant(
        "a failed assignor is not called again",
        f"{_C}.heartbeat",
        "    group.computation = None\n    if event.target is None:",
        "    if event.target is not None:\n        group.computation = None\n"
        "    if event.target is None:",
    ),
    _mutant(
        "a target is stored without the members' parts",
        f"{_C}.target",
        "        if target is not member.target and target != member.target:\n",
        "        if target and not member.target:\n",
    ),
    _mutant(
        "a member without a part of the target keeps its old part",
        f"{_C}.target",
        "        if target is not member.target and target != member.target:\n",
        "        if target and target is not member.target and target != member.target:\n",
    ),
    _mutant(
        "the result of an earlier computation is stored",
        f"{_C}.heartbeat",
        "if computation is None or computation.action.sequence != event.sequence:",
        "if computation is None:",
    ),
    _mutant(
        "heartbeats that wait for a target get no response after a failure",
        f"{_C}.heartbeat",
        "    for parked in computation.parked:\n        _finish(",
        "    for parked in computation.parked if event.target is not None else ():\n"
        "        _finish(",
    ),
    _mutant(
        "a returning static member loses its part of a computation",
        f"{_C}.heartbeat",
        "    if computed_id is not None:\n        computed_ids[member_id] = computed_id\n",
        "",
    ),
    _mutant(
        "a returning static member loses its target",
        f"{_C}.heartbeat",
        "member_id=member_id, partitions=target))\n    context.write(\n        Member",
        "member_id=member_id, partitions={}))\n    context.write(\n        Member",
    ),
    _mutant(
        "a returning static member loses its assignment in a consumer group",
        f"{_C}.heartbeat",
        "            state=assignment.state,\n            assigned=assignment.assigned,\n",
        "            state=assignment.state,\n",
    ),
    _mutant(
        "the session of a member that waits for a target runs",
        f"{_C}.heartbeat",
        "        context.cancel_timer(member.session_timer)\n",
        "",
    ),
    _mutant(
        "votes for an assignor are not counted",
        f"{_C}.group",
        "return next(name for count, name in counts if count == most)",
        "return next(name for count, name in counts if count == most or True)",
    ),
    _mutant(
        "an assignor sees the topics of one subscription only",
        f"{_C}.group",
        "            topics[topic_id] = topic\n",
        "            topics = {topic_id: topic}\n",
    ),
)

_RECONCILIATION_MUTANTS: Final = (
    _mutant(
        "a partition is taken while another member holds it",
        f"{_C}.reconciliation",
        "if holder(topic_id, partition) in (None, current.member_id):",
        "if holder(topic_id, partition) is not current:",
    ),
    _mutant(
        "partitions pending revocation count as free",
        f"{_C}.group",
        "    def _hold(self, member: ConsumerMember) -> None:\n"
        "        held: EpochedPartitions\n"
        "        for held in (member.assignment.assigned, member.assignment.pending_revocation):",
        "    def _hold(self, member: ConsumerMember) -> None:\n"
        "        held: EpochedPartitions\n"
        "        for held in (member.assignment.assigned,):",
    ),
    _mutant(
        "a revocation needs no confirmation",
        f"{_C}.reconciliation",
        "            if _owns_any(owned, current.pending_revocation):\n"
        "                return current\n",
        "",
    ),
    _mutant(
        "a heartbeat without partitions confirms a revocation",
        f"{_C}.reconciliation",
        "    if owned is None:\n        return bool(partitions)\n",
        "    if owned is None:\n        return False\n",
    ),
    _mutant(
        "partitions are taken from a member at once",
        f"{_C}.reconciliation",
        "    if revoked and _owns_any(owned, revoked):\n",
        "    if revoked and owned is None:\n",
    ),
    _mutant(
        "a member keeps partitions that are not in its target",
        f"{_C}.reconciliation",
        "part = kept if partition in wanted else revoked",
        "part = kept if wanted is not None else revoked",
    ),
    _mutant(
        "partitions to revoke remain assigned",
        f"{_C}.reconciliation",
        "            assigned=kept,\n            pending_revocation=revoked,\n",
        "            assigned=current.assigned,\n            pending_revocation={},\n",
    ),
    _mutant(
        "a member moves to the target epoch before it has revoked",
        f"{_C}.reconciliation",
        "            current,\n            member_epoch=epoch,\n",
        "            current,\n            member_epoch=target_epoch,\n",
    ),
    _mutant(
        "a member stays in its epoch after it has revoked",
        f"{_C}.reconciliation",
        "            epoch = min(current.member_epoch + 1, target_epoch)\n",
        "            epoch = current.member_epoch\n",
    ),
    _mutant(
        "the previous epoch of a member is not stored",
        f"{_C}.reconciliation",
        "        member_epoch=target_epoch,\n        previous_member_epoch=current.member_epoch,",
        "        member_epoch=target_epoch,\n"
        "        previous_member_epoch=current.previous_member_epoch,",
    ),
    _mutant(
        "a member that waits for partitions counts as stable",
        f"{_C}.reconciliation",
        "        if is_blocked\n        else ReconciliationState.STABLE,",
        "        if is_blocked and not assigned\n        else ReconciliationState.STABLE,",
    ),
    _mutant(
        "a stable member ignores a new subscription",
        f"{_C}.reconciliation",
        "if current.member_epoch == target_epoch and not has_subscription_changed:",
        "if current.member_epoch == target_epoch:",
    ),
    _mutant(
        "kept partitions get a new assignment epoch",
        f"{_C}.reconciliation",
        "part.setdefault(topic_id, {})[partition] = assigned_epoch",
        "part.setdefault(topic_id, {})[partition] = epoch",
    ),
    _mutant(
        "new partitions get the old assignment epoch",
        f"{_C}.reconciliation",
        "assigned.setdefault(topic_id, {})[partition] = target_epoch",
        "assigned.setdefault(topic_id, {})[partition] = current.member_epoch",
    ),
    _mutant(
        "a parked heartbeat reports for a later assignment",
        f"{_C}.heartbeat",
        "owned = parked.owned if before is parked.assignment else None",
        "owned = parked.owned",
    ),
    _mutant(
        "a changed assignment is not sent",
        f"{_C}.heartbeat",
        "        after is not before and _partitions(after) != _partitions(before)\n",
        "        after is not before and len(_partitions(after)) > len(_partitions(before))\n",
    ),
    _mutant(
        "a full heartbeat gets no assignment",
        f"{_C}.heartbeat",
        "return event.member_epoch == 0 or is_complete",
        "return event.member_epoch == 0",
    ),
    _mutant(
        "the response has the epoch before the reconciliation",
        f"{_C}.heartbeat",
        "            member_epoch=after.member_epoch,\n            heartbeat_interval_ms",
        "            member_epoch=before.member_epoch,\n            heartbeat_interval_ms",
    ),
    _mutant(
        "the response has the target, not the assignment",
        f"{_C}.heartbeat",
        "assignment=to_partition_set(after.assigned) if must_tell",
        "assignment=member.target if must_tell",
    ),
)

_TIMER_MUTANTS: Final = (
    _mutant(
        "a consumer heartbeat does not extend the session",
        f"{_C}.heartbeat",
        "    if not group.is_parked(member.id):  # it repeats",
        "    if member.epoch == 0:  # it repeats",
    ),
    _mutant(
        "members that revoke have no deadline",
        f"{_C}.heartbeat",
        "        context.arm_timer(member.rebalance_timer, max(timeout_ms, 0))\n",
        "        context.cancel_timer(member.rebalance_timer)\n",
    ),
    _mutant(
        "the deadline of a revocation goes on after it",
        f"{_C}.heartbeat",
        "        context.arm_timer(member.rebalance_timer, max(timeout_ms, 0))\n"
        "    else:\n        context.cancel_timer(member.rebalance_timer)\n",
        "        context.arm_timer(member.rebalance_timer, max(timeout_ms, 0))\n",
    ),
    _mutant(
        "the deadline of a revocation is half as long",
        f"{_C}.heartbeat",
        "context.arm_timer(member.rebalance_timer, max(timeout_ms, 0))",
        "context.arm_timer(member.rebalance_timer, max(timeout_ms, 0) // 2)",
    ),
    _mutant(
        "the deadline of a revocation is the session timeout",
        f"{_C}.heartbeat",
        "        timeout_ms = member.subscription.rebalance_timeout_ms\n        context.arm",
        "        timeout_ms = 60_000\n        context.arm",
    ),
    _mutant(
        "consumer sessions do not start after a load",
        f"{_C}.requests",
        "        context.arm_timer(member.session_timer, timeout_ms)\n        if member",
        "        if member",
    ),
    _mutant(
        "deadlines of revocations do not start after a load",
        f"{_C}.requests",
        "            context.arm_timer(member.rebalance_timer, delay_ms)\n",
        "            pass\n",
    ),
    _mutant(
        "a static member that left for a while never expires",
        f"{_C}.requests",
        "        context.arm_timer(member.session_timer, timeout_ms)\n        if member",
        "        if member.epoch != -2:\n"
        "            context.arm_timer(member.session_timer, timeout_ms)\n        if member",
    ),
    _mutant(
        "the session timeout of consumers is too short",
        f"{_C}.catalogue",
        "            return settings.session_timeout_ms\n",
        "            return settings.session_timeout_ms - 500\n",
    ),
)

_LEAVE_MUTANTS: Final = (
    _mutant(
        "a static member that leaves for a while is removed",
        f"{_C}.leave",
        "if event.instance_id is not None and event.member_epoch == STATIC_LEAVE_EPOCH:\n"
        "        _leave",
        "if event.instance_id is None and event.member_epoch == STATIC_LEAVE_EPOCH:\n"
        "        _leave",
    ),
    _mutant(
        "a removed member keeps its assignment record",
        f"{_C}.membership",
        "    context.write(MemberAssignmentTombstone(group_id=group.id, member_id=member.id))\n",
        "",
    ),
    _mutant(
        "a removed member keeps its target record",
        f"{_C}.membership",
        "    context.write(MemberTargetTombstone(group_id=group.id, member_id=member.id))\n",
        "",
    ),
    _mutant(
        "heartbeats of a removed member wait forever",
        f"{_C}.membership",
        "    refuse_parked(context, group, member)\n    if group.computation",
        "    if group.computation",
    ),
    _mutant(
        "an administrator cannot remove a static member by its instance id",
        f"{_C}.requests",
        "        member_id = held_by\n",
        "        pass\n",
    ),
    _mutant(
        "partitions of a removed member stay held",
        f"{_C}.group",
        "        if member is not None:\n            self._release(member)\n",
        "        if member is not None:\n",
    ),
)

_REGEX_MUTANTS: Final = (
    _mutant(
        "topics of a regex are not matched again",
        f"{_C}.regexes",
        "        if 0 <= since_ms < interval_ms:  # negative",
        "        if since_ms < 1 << 50:  # negative",
    ),
    _mutant(
        "topics are matched at each heartbeat",
        f"{_C}.regexes",
        "    group.regexes_resolved_ms = context.at_ms\n",
        "",
    ),
    _mutant(
        "changed topics of a regex keep the epoch of the group",
        f"{_C}.regexes",
        "because = EpochCause(RebalanceCause.REGEX_CHANGED) if has_changed else None",
        "because = None",
    ),
    _mutant(
        "a failed match is never repeated",
        f"{_C}.regexes",
        "    group.resolution = None\n    if event.topics is None:",
        "    if event.topics is not None:\n        group.resolution = None\n"
        "    if event.topics is None:",
    ),
    _mutant(
        "a match of an unused regex is stored",
        f"{_C}.regexes",
        "if regex not in group.subscribed_regexes or (known",
        "if (known",
    ),
    _mutant(
        "an unused regex stays stored",
        f"{_C}.membership",
        "        context.write(RegularExpressionTombstone(group_id=group.id, regex=regex))\n",
        "        pass\n",
    ),
    _mutant(
        "topic ids of a regex are kept after a new match",
        f"{_C}.group",
        "                self.regexes[record.regex] = record\n"
        "                self._topic_ids.clear()\n",
        "                self.regexes[record.regex] = record\n",
    ),
    _mutant(
        "topic ids of subscriptions are kept after a change of topics",
        f"{_C}.group",
        "        if self._topic_ids_version != catalogue.version:\n"
        "            self._topic_ids.clear()\n",
        "        if self._topic_ids_version != catalogue.version:\n",
    ),
)

_COMMIT_MUTANTS: Final = (
    _mutant(
        "a commit with an older epoch is accepted for any partition",
        f"{_C}.offsets",
        "if since is not None and since <= epoch:",
        "if since is None or since <= epoch:",
    ),
    _mutant(
        "a commit with an older epoch is accepted for new partitions",
        f"{_C}.offsets",
        "if since is not None and since <= epoch:",
        "if since is not None:",
    ),
    _mutant(
        "a commit with an older epoch is always stale",
        f"{_C}.offsets",
        "if since is not None and since <= epoch:",
        "if since is not None and since < 0:",
    ),
    _mutant(
        "a partition that is being revoked cannot be committed",
        f"{_C}.offsets",
        "for held in (assignment.assigned, assignment.pending_revocation):",
        "for held in (assignment.assigned,):",
    ),
    _mutant(
        "a commit with a greater epoch is accepted",
        f"{_C}.offsets",
        "    elif event.generation > member.epoch:\n",
        "    elif event.generation > member.epoch + 1_000:\n",
    ),
    _mutant(
        "a commit without an epoch is accepted by a group with members",
        f"{_C}.offsets",
        "    if event.generation < 0 and group.is_empty:",
        "    if event.generation < 0:",
    ),
    _mutant(
        "a commit of an unknown member is accepted",
        f"{_C}.offsets",
        "    if member is None:\n        error = ErrorCode.UNKNOWN_MEMBER_ID\n    elif",
        "    if member is None:\n        return (ErrorCode.NONE,) * len(event.offsets)\n    elif",
    ),
)

_RECORD_MUTANTS: Final = (
    _mutant(
        "assignment epochs are not stored",
        _F,
        "assignment_epochs=list(epochs.values()),",
        "assignment_epochs=None,",
    ),
    _mutant(
        "the previous epoch is stored as the current one",
        _F,
        "previous_member_epoch=record.previous_member_epoch",
        "previous_member_epoch=record.member_epoch",
    ),
    _mutant(
        "partitions pending revocation are not stored",
        _F,
        "partitions_pending_revocation=_assigned(record.pending_revocation),",
        "partitions_pending_revocation=[],",
    ),
    _mutant(
        "the instance id of a member is not stored",
        _F,
        "instance_id=record.instance_id",
        "instance_id=None",
    ),
    _mutant(
        "the regex of a member is not stored",
        _F,
        "subscribed_topic_regex=record.subscribed_regex",
        "subscribed_topic_regex=None",
    ),
    _mutant(
        "the rebalance timeout of a member is not stored",
        _F,
        "rebalance_timeout_ms=record.rebalance_timeout_ms",
        "rebalance_timeout_ms=-1",
    ),
)

CONSUMER_GROUP_MUTANTS: Final = (
    *_FENCE_MUTANTS,
    *_EPOCH_MUTANTS,
    *_TARGET_MUTANTS,
    *_RECONCILIATION_MUTANTS,
    *_TIMER_MUTANTS,
    *_LEAVE_MUTANTS,
    *_REGEX_MUTANTS,
    *_COMMIT_MUTANTS,
    *_RECORD_MUTANTS,
)

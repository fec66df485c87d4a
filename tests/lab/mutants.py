"""Mutants: bugs that are planted by replacing a few words of the source code.

``original`` must occur exactly once in the module, so that a test detects a mutant that no longer
matches the code.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

from .cluster_mutants import CLUSTER_MUTANTS
from .compaction_mutants import COMPACTION_MUTANTS
from .consumer_group_mutants import CONSUMER_GROUP_MUTANTS
from .consumer_independent_mutants import CONSUMER_INDEPENDENT_MUTANTS
from .consumer_member_mutants import CONSUMER_MEMBER_MUTANTS
from .migration_mutants import MIGRATION_MUTANTS
from .mutant import Mutant
from .shell_mutants import SHELL_MUTANTS
from .storage_mutants import STORAGE_MUTANTS
from .transaction_mutants import TRANSACTION_MUTANTS

_C, _M, _L = "partage.coordinator", "partage.member", "partage.log"

_CLASSIC_GROUP_MUTANTS: Final = (
    # Coordinator: accepted requests
    Mutant(
        "a Heartbeat of any generation is accepted",
        f"{_C}.heartbeat",
        "if event.generation != group.record.generation:",
        "if event.generation > group.record.generation:",
    ),
    Mutant(
        "a Heartbeat does not extend the session",
        f"{_C}.heartbeat",
        "    return reply, member\n",
        "    return reply, None\n",
    ),
    Mutant(
        "an OffsetCommit of any generation is accepted",
        f"{_C}.commit",
        "if member.is_new or event.generation != group.generation:",
        "if member.is_new:",
    ),
    Mutant(
        "a commit without a generation is accepted by an active group",
        "partage.coordinator.response_table",
        "        _A.COMMIT,\n        _A.COMMIT,\n        _A.UNKNOWN_MEMBER,\n"
        "        _A.UNKNOWN_MEMBER,\n        _A.UNKNOWN_MEMBER,\n",
        "        _A.COMMIT,\n        _A.COMMIT,\n        _A.UNKNOWN_MEMBER,\n"
        "        _A.UNKNOWN_MEMBER,\n        _A.COMMIT,\n",
    ),
    Mutant(
        "a replaced static member gets UNKNOWN_MEMBER_ID",
        f"{_C}.group",
        "return ErrorCode.FENCED_INSTANCE_ID",
        "return ErrorCode.UNKNOWN_MEMBER_ID",
    ),
    Mutant(
        "a SyncGroup of any generation is accepted",
        f"{_C}.sync",
        "    if event.generation != group.generation:\n        return ErrorCode.ILLEGAL_GENERATION\n",
        "",
    ),
    Mutant(
        "a follower's SyncGroup sets the assignment",
        f"{_C}.sync",
        "row = RequestCase.SYNC_LEADER if member.id == group.leader else RequestCase.SYNC_FOLLOWER",
        "row = RequestCase.SYNC_LEADER",
    ),
    Mutant(
        "the maximum group size is exceeded by one",
        f"{_C}.join",
        "                return group.next_generation_size < members_max\n",
        "                return group.next_generation_size <= members_max\n",
    ),
    Mutant(
        "a group with members can be deleted",
        f"{_C}.admin",
        "if group is None or answer in RESPONSE_ERRORS:",
        "if group is None:",
    ),
    # Coordinator: rebalances
    Mutant(
        "a new generation keeps the previous number",
        f"{_C}.rebalance",
        "generation=group.generation + 1,\n            protocol=protocol,",
        "generation=max(1, group.generation),\n            protocol=protocol,",
    ),
    Mutant(
        "an empty group keeps its generation",
        f"{_C}.rebalance",
        "generation=group.generation + 1,\n            protocol=None,",
        "generation=group.generation,\n            protocol=None,",
    ),
    Mutant(
        "members that do not rejoin stay in the group",
        f"{_C}.rebalance",
        "if m.join_ticket is None and not m.is_static]",
        "if m.join_ticket is None and not m.is_static and m.is_new]",
    ),
    Mutant(
        "the loss of a member of a Stable group starts no rebalance",
        f"{_C}.rebalance",
        "if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):\n"
        "        start_rebalance(",
        "if group.state is GroupState.COMPLETING_REBALANCE:\n        start_rebalance(",
    ),
    Mutant(
        "a parked member's session timer runs",
        f"{_C}.rebalance",
        "    if not member.is_new:\n        context.cancel_timer(member.session_timer)\n",
        "",
    ),
    Mutant(
        "a member that awaits its assignment has a session timer",
        f"{_C}.rebalance",
        "    member.sync_ticket = ticket\n    context.cancel_timer(member.session_timer)",
        "    member.sync_ticket = ticket",
    ),
    Mutant(
        "the sync phase has no timeout",
        f"{_C}.rebalance",
        "    context.arm_timer(SyncTimer(group.id), group.rebalance_timeout_ms())\n    context.emit(",
        "    context.emit(",
    ),
    Mutant(
        "a removed pending member keeps its timer",
        f"{_C}.rebalance",
        "    context.cancel_timer(Member.session_timer_key(group.id, member_id))\n",
        "",
    ),
    Mutant(
        "a parked SyncGroup gets no response when a rebalance starts",
        f"{_C}.rebalance",
        "        abort_sync(context, group)\n    context.cancel_timer(SyncTimer",
        "        pass\n    context.cancel_timer(SyncTimer",
    ),
    Mutant(
        "a protocol that a member does not support is chosen",
        f"{_C}.group",
        "candidates = {name for name, count in self.protocol_counts.items() if count == everyone}",
        "candidates = set(self.protocol_counts)",
    ),
    Mutant(
        "a returning static member loses its assignment",
        f"{_C}.join",
        'assignments[member.id] = assignments.pop(old.id, b"")',
        'assignments.pop(old.id, b"")',
    ),
    Mutant(
        "a LeaveGroup starts no rebalance",
        f"{_C}.leave",
        "    gone.append(member_id)\n",
        "",
    ),
    Mutant(
        "the leader's assignment is applied but not stored",
        f"{_C}.sync",
        "    context.write(\n        group.snapshot(",
        "    group.apply(\n        group.snapshot(",
    ),
    # Coordinator: offsets
    Mutant(
        "one partition of a commit is acknowledged but not stored",
        f"{_C}.commit",
        "        if isinstance(event, Commit):\n            context.write(record)\n",
        "        if isinstance(event, Commit):\n"
        "            if wanted.partition != 1:\n                context.write(record)\n",
    ),
    Mutant(
        "offsets of an active group expire",
        f"{_C}.group",
        "return offset.commit_ms if self.state is GroupState.STABLE and is_unused else None",
        "return offset.commit_ms",
    ),
    Mutant(
        "OffsetFetch returns no offsets instead of an error during a load",
        "partage.coordinator.unavailable_replies",
        "        case FetchOffsets():\n            return FetchOffsetsReply(error=error)",
        "        case FetchOffsets():\n"
        "            return FetchOffsetsReply(offsets=(None,) * len(event.partitions or ()))",
    ),
    # Coordinator: loading
    Mutant(
        "a group that awaited its SyncGroup is loaded as Stable",
        f"{_C}.group",
        "        if saved.awaiting_sync:\n            self.state",
        "        if saved.awaiting_sync and not self.members:\n            self.state",
    ),
    Mutant(
        "members have no session after a load",
        f"{_C}.shard",
        "            for member in group.members.values():\n"
        "                context.restart_session(member)\n",
        "",
    ),
    Mutant(
        "the sync phase has no timeout after a load",
        f"{_C}.shard",
        "            if group.is_sync_resumed:\n",
        "            if group.is_sync_resumed and not group.members:\n",
    ),
    # Driver and timers
    Mutant(
        "replies are sent before their records are durable",
        "partage.runtime.shard_driver",
        "        if self._durable == self._applied:\n            self.ready += outcome.replies",
        "        if True:\n            self.ready += outcome.replies",
    ),
    Mutant(
        "the first durable record releases all replies",
        "partage.runtime.shard_driver",
        "while self._deferred_replies and self._deferred_replies[0][0] <= mark:",
        "while self._deferred_replies:",
    ),
    Mutant(
        "timers of a dropped shard fire in its successor",
        "partage.runtime.shard_driver",
        "        self.timers = TimerQueue()\n        self._deferred_replies.clear()",
        "        self._deferred_replies.clear()",
    ),
    Mutant(
        "a pause of the broker counts against members",
        "partage.runtime.stall_grace",
        "if stood_ms <= _STALL_MS:",
        "if stood_ms <= 1_000_000:",
    ),
    Mutant(
        "timers fire without a valid lease",
        "partage.runtime.timer_scheduler",
        "if self._shell.may_fire():",
        "if self._grace is not None:",
    ),
    Mutant(
        "the second of two pauses counts against members",
        "partage.runtime.stall_grace",
        "            self._limit_ms = self._grace_began_ms\n",
        "            pass\n",
    ),
    Mutant(
        "a LeaveGroup of a replaced member removes its successor",
        f"{_C}.leave",
        "    if not member_id and leaver.instance_id is not None:",
        "    if leaver.instance_id is not None:",
    ),
    Mutant(
        "offsets of deleted topics stay",
        f"{_C}.shard",
        "                if topic not in event.topics:\n",
        "                if topic:\n",
    ),
    Mutant(
        "a reloaded shard is not notified again of deleted topics",
        "partage.runtime.shard_driver",
        "        self._deferred_events.extendleft(event for _, event in reversed(self._undurable_events))\n",
        "",
    ),
    Mutant(
        "retention always starts at the commit",
        f"{_C}.group",
        "max(self.record.since_ms, offset.commit_ms)",
        "offset.commit_ms",
    ),
    Mutant(
        "every group is full with two members",
        f"{_C}.join",
        "members_max = context.settings.members_max\n",
        "members_max = min(2, context.settings.members_max)\n",
    ),
    Mutant(
        "an unknown member gets FENCED_INSTANCE_ID",
        f"{_C}.group",
        "        return ErrorCode.UNKNOWN_MEMBER_ID if member is None else member\n",
        "        return ErrorCode.FENCED_INSTANCE_ID if member is None else member\n",
    ),
    Mutant(
        "an OffsetCommit does not extend the session",
        f"{_C}.commit",
        "            context.restart_session(member)\n",
        "",
    ),
    Mutant(
        "an OffsetFetch of all offsets omits one",
        f"{_C}.shard",
        "tuple(committed.values())",
        "tuple(committed.values())[:-1]",
    ),
    Mutant(
        "OffsetDelete succeeds without deleting",
        f"{_C}.commit",
        "        if (topic, partition) in committed:",
        "        if not committed:",
    ),
    Mutant(
        "offsets of a deleted group stay",
        f"{_C}.admin",
        "    for topic, partition in list(committed):\n"
        "        context.write(OffsetTombstone(group_id=group.id, topic=topic, partition=partition))\n",
        "",
    ),
    # Member
    Mutant(
        "a cooperative member revokes nothing",
        f"{_M}.ownership",
        "return self.owned - target",
        "return _NOTHING",
    ),
    Mutant(
        "an eager member joins without revoking",
        f"{_M}.ownership",
        "case PreparingJoin() if self.rebalance_protocol is RebalanceProtocol.EAGER:",
        "case PreparingJoin() if self.rebalance_protocol is None:",
    ),
    Mutant(
        "a member delivers after its session expired",
        f"{_M}.ownership",
        "            or membership.link.is_session_expired\n",
        "",
    ),
    Mutant(
        "lost partitions stay owned",
        f"{_M}.ownership",
        "                self.has_lost_partitions = bool(self.owned)",
        "                self.has_lost_partitions = False",
    ),
    Mutant(
        "revoked partitions stay owned",
        f"{_M}.ownership",
        "            self.owned -= frozenset(told.partitions)",
        "            pass",
    ),
    Mutant(
        "a member does not rejoin after revoking",
        f"{_M}.ownership",
        "            self._forward(outcome, RejoinRequested(at_ms=at_ms, reason=reason))\n"
        "        # After a session",
        "        # After a session",
    ),
    Mutant(
        "REBALANCE_IN_PROGRESS is ignored",
        f"{_M}.reactions",
        "    CoordinatorRequest.HEARTBEAT: {\n"
        "        _E.NONE: _R.CONTINUE,\n"
        "        _E.REBALANCE_IN_PROGRESS: _R.REBALANCE,",
        "    CoordinatorRequest.HEARTBEAT: {\n"
        "        _E.NONE: _R.CONTINUE,\n"
        "        _E.REBALANCE_IN_PROGRESS: _R.CONTINUE,",
    ),
    Mutant(
        "an unknown member keeps its member id",
        f"{_M}.reactions",
        "        _E.UNKNOWN_MEMBER_ID: _R.LOSE_MEMBERSHIP,\n"
        "        _E.FENCED_INSTANCE_ID: _R.FAIL,  # KIP-345",
        "        _E.UNKNOWN_MEMBER_ID: _R.REJOIN,\n"
        "        _E.FENCED_INSTANCE_ID: _R.FAIL,  # KIP-345",
    ),
    Mutant(
        "a lost coordinator is not looked up again",
        "partage.member.heartbeat",
        "        member.link.clear_coordinator()\n"
        "        member.continue_without_coordinator(context)",
        "        member.link.clear_coordinator()",
    ),
    # Bugs that the simulator found in the code, planted again
    Mutant(
        "a failed sync is not repaired at a start without a checkpoint",
        "partage.log.recovery.partition_recovery",
        "                position = max(position, segment.size - room)\n"
        "                room -= segment.size - position\n",
        "                continue\n",
    ),
    Mutant(
        "a JoinGroup v0 times out before the coordinator can respond",
        "partage.member.rebalance",
        "max(settings.rebalance_timeout_ms, settings.session_timeout_ms)",
        "settings.rebalance_timeout_ms",
    ),
    Mutant(
        "retention of an empty group ignores new commits",
        f"{_C}.group",
        "max(self.record.since_ms, offset.commit_ms)",
        "self.record.since_ms",
    ),
)

#: All mutants by the title of their list.
MUTANT_LISTS: Final = {
    "classic groups, their members, brokers": _CLASSIC_GROUP_MUTANTS,
    "logs and formats": STORAGE_MUTANTS,
    "clusters": CLUSTER_MUTANTS,
    "transactions": TRANSACTION_MUTANTS,
    "compaction": COMPACTION_MUTANTS,
    "groups with the consumer protocol": CONSUMER_GROUP_MUTANTS,
    "members with the consumer protocol": CONSUMER_MEMBER_MUTANTS,
    "consumer protocol, written independently": CONSUMER_INDEPENDENT_MUTANTS,
    "groups that change their type": MIGRATION_MUTANTS,
    "shells around the coordinators": SHELL_MUTANTS,
}
MUTANTS: Final = tuple(chain.from_iterable(MUTANT_LISTS.values()))

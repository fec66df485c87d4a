"""Bugs that we plant: each a few words of our own code put differently.

``words`` must stand in the module exactly once, so that a change of the code that makes a mutant
void is noticed.
"""

from __future__ import annotations

from .cluster_mutants import CLUSTER_MUTANTS
from .mutant import Mutant
from .storage_mutants import STORAGE_MUTANTS

_C, _M, _L = "partage.coordinator", "partage.member", "partage.log"

MUTANTS = (
    # The coordinator: who is accepted.
    Mutant(
        "heartbeats of any generation are accepted",
        f"{_C}.heartbeat",
        "if event.generation != group.record.generation:",
        "if event.generation > group.record.generation:",
    ),
    Mutant(
        "a heartbeat does not prolong the session",
        f"{_C}.heartbeat",
        "    context.restart_session(member)\n",
        "",
    ),
    Mutant(
        "commits of any generation are accepted",
        f"{_C}.commit",
        "if member.is_new or event.generation != group.generation:",
        "if member.is_new:",
    ),
    Mutant(
        "a commit from outside is accepted into a group at work",
        "partage.coordinator.responses",
        "        _A.COMMIT,\n        _A.COMMIT,\n        _A.UNKNOWN_MEMBER,\n"
        "        _A.UNKNOWN_MEMBER,\n        _A.UNKNOWN_MEMBER,\n",
        "        _A.COMMIT,\n        _A.COMMIT,\n        _A.UNKNOWN_MEMBER,\n"
        "        _A.UNKNOWN_MEMBER,\n        _A.COMMIT,\n",
    ),
    Mutant(
        "a member that was replaced is not fenced but unknown",
        f"{_C}.group",
        "return ErrorCode.FENCED_INSTANCE_ID",
        "return ErrorCode.UNKNOWN_MEMBER_ID",
    ),
    Mutant(
        "the assignment of any generation is taken",
        f"{_C}.sync",
        "    if event.generation != group.generation:\n        return ErrorCode.ILLEGAL_GENERATION\n",
        "",
    ),
    Mutant(
        "anybody's SyncGroup assigns",
        f"{_C}.sync",
        "row = RequestCase.SYNC_LEADER if member.id == group.leader else RequestCase.SYNC_FOLLOWER",
        "row = RequestCase.SYNC_LEADER",
    ),
    Mutant(
        "the group has room for one more",
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
    # The coordinator: rebalances.
    Mutant(
        "a generation has the number of the one before",
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
        "members that do not join stay",
        f"{_C}.rebalance",
        "if m.join_ticket is None and not m.is_static]",
        "if m.join_ticket is None and not m.is_static and m.is_new]",
    ),
    Mutant(
        "nobody rebalances when a member goes",
        f"{_C}.rebalance",
        "if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):\n"
        "        start_rebalance(",
        "if group.state is GroupState.COMPLETING_REBALANCE:\n        start_rebalance(",
    ),
    Mutant(
        "a parked member's session goes on",
        f"{_C}.rebalance",
        "    if not member.is_new:\n        context.cancel(member.session_timer)\n",
        "",
    ),
    Mutant(
        "a member that waits for its assignment keeps a session",
        f"{_C}.rebalance",
        "    member.sync_ticket = ticket\n    context.cancel(member.session_timer)",
        "    member.sync_ticket = ticket",
    ),
    Mutant(
        "nobody is missed in the sync phase",
        f"{_C}.rebalance",
        "    context.arm(SyncTimer(group.id), group.rebalance_timeout_ms())\n    context.emit(",
        "    context.emit(",
    ),
    Mutant(
        "a pending member that is forgotten keeps its timer",
        f"{_C}.rebalance",
        "    context.cancel(Member.session_timer_key(group.id, member_id))\n",
        "",
    ),
    Mutant(
        "who waits in a sync is not told that it is over",
        f"{_C}.rebalance",
        "        abort_sync(context, group)\n    context.cancel(SyncTimer",
        "        pass\n    context.cancel(SyncTimer",
    ),
    Mutant(
        "any protocol may be chosen",
        f"{_C}.group",
        "candidates = {name for name, count in self.protocol_counts.items() if count == everyone}",
        "candidates = set(self.protocol_counts)",
    ),
    Mutant(
        "a static member that returns loses its assignment",
        f"{_C}.join",
        'assignments[member.id] = assignments.pop(old.id, b"")',
        'assignments.pop(old.id, b"")',
    ),
    Mutant(
        "a member that leaves does not start a rebalance",
        f"{_C}.leave",
        "    gone.append(member_id)\n",
        "",
    ),
    Mutant(
        "the leader's assignment is applied and not stored",
        f"{_C}.sync",
        "    context.write(\n        group.snapshot(",
        "    group.apply(\n        group.snapshot(",
    ),
    # The coordinator: offsets.
    Mutant(
        "one partition of a commit is acknowledged and not stored",
        f"{_C}.commit",
        "        errors.append(ErrorCode.NONE)\n        context.write(\n            OffsetRecord(",
        "        errors.append(ErrorCode.NONE)\n"
        "        if wanted.partition == 1:\n"
        "            continue\n"
        "        context.write(\n"
        "            OffsetRecord(",
    ),
    Mutant(
        "offsets expire while their group is at work",
        f"{_C}.admin",
        "    else:\n        return False\n    if offset.expire_ms",
        "    else:\n        since_ms = offset.commit_ms\n    if offset.expire_ms",
    ),
    Mutant(
        "while it loads the coordinator knows no offsets, and says so without an error",
        "partage.coordinator.error_replies",
        "        case FetchOffsets():\n            return FetchOffsetsReply(error=error)",
        "        case FetchOffsets():\n"
        "            return FetchOffsetsReply(offsets=(None,) * len(event.partitions or ()))",
    ),
    # The coordinator: loading.
    Mutant(
        "a group that awaited its sync is loaded as stable",
        f"{_C}.group",
        "        if saved.awaiting_sync:\n            self.state",
        "        if saved.awaiting_sync and not self.members:\n            self.state",
    ),
    Mutant(
        "after loading members have no session",
        f"{_C}.shard",
        "            for member in group.members.values():\n"
        "                context.restart_session(member)\n",
        "",
    ),
    Mutant(
        "after loading nobody is missed in the sync phase",
        f"{_C}.shard",
        "            if group.is_sync_resumed:\n",
        "            if group.is_sync_resumed and not group.members:\n",
    ),
    # The driver.
    Mutant(
        "replies leave before they are durable",
        "partage.runtime.driver",
        "        if self._durable == self._applied:\n            self.ready += outcome.replies",
        "        if True:\n            self.ready += outcome.replies",
    ),
    Mutant(
        "what is durable first lets all replies leave",
        "partage.runtime.driver",
        "while self._deferred_replies and self._deferred_replies[0][0] <= mark:",
        "while self._deferred_replies:",
    ),
    Mutant(
        "timers of a core that was dropped fire in the next one",
        "partage.runtime.driver",
        "        self.timers = TimerQueue()\n        self._deferred_replies.clear()",
        "        self._deferred_replies.clear()",
    ),
    Mutant(
        "a standstill of the broker counts against members",
        "partage.runtime.stall_grace",
        "if stood_ms <= _STALL_MS:",
        "if stood_ms <= 1_000_000:",
    ),
    Mutant(
        "timers fire while nobody can be answered",
        "partage.runtime.timer_scheduler",
        "if not self._shell.may_fire():",
        "if self._grace is None:",
    ),
    Mutant(
        "of two standstills the second counts against members",
        "partage.runtime.stall_grace",
        "            self._limit_ms = self._grace_began_ms\n",
        "            pass\n",
    ),
    Mutant(
        "a leave in a replaced member's name removes its successor",
        f"{_C}.leave",
        "    if not member_id and leaver.instance_id is not None:",
        "    if leaver.instance_id is not None:",
    ),
    Mutant(
        "offsets of deleted topics stay",
        f"{_C}.shard",
        "for topic, partition in [at for at in committed if at[0] in event.topics]:",
        "for topic, partition in []:",
    ),
    Mutant(
        "a shard that failed is not told again of deleted topics",
        "partage.runtime.driver",
        "        self._deferred_events.extendleft(event for _, event in reversed(self._undurable_events))\n",
        "",
    ),
    Mutant(
        "retention counts from the commit, however long members stay",
        f"{_C}.admin",
        "max(group.record.since_ms, offset.commit_ms)",
        "offset.commit_ms",
    ),
    Mutant(
        "no group has room for a third member",
        f"{_C}.join",
        "members_max = context.settings.members_max\n",
        "members_max = min(2, context.settings.members_max)\n",
    ),
    Mutant(
        "who is unknown is told that it is fenced",
        f"{_C}.group",
        "        return ErrorCode.UNKNOWN_MEMBER_ID if member is None else member\n",
        "        return ErrorCode.FENCED_INSTANCE_ID if member is None else member\n",
    ),
    Mutant(
        "a commit does not prolong a session",
        f"{_C}.commit",
        "            context.restart_session(member)\n",
        "",
    ),
    Mutant(
        "of all that is committed one is not shown",
        f"{_C}.shard",
        "tuple(committed.values())",
        "tuple(committed.values())[:-1]",
    ),
    Mutant(
        "OffsetDelete does nothing, and says that it has",
        f"{_C}.commit",
        "        if (topic, partition) in committed:",
        "        if not committed:",
    ),
    Mutant(
        "a deleted group's offsets stay",
        f"{_C}.admin",
        "    for topic, partition in list(committed):\n"
        "        context.write(OffsetTombstone(group_id=group.id, topic=topic, partition=partition))\n",
        "",
    ),
    # The member.
    Mutant(
        "a cooperative member gives nothing up",
        f"{_M}.ownership",
        "return self.owned - target",
        "return _NOTHING",
    ),
    Mutant(
        "an eager member joins with what it owns",
        f"{_M}.ownership",
        "case PreparingJoin() if self.rebalance_protocol is RebalanceProtocol.EAGER:",
        "case PreparingJoin() if self.rebalance_protocol is None:",
    ),
    Mutant(
        "a zombie delivers",
        f"{_M}.ownership",
        "            or membership.link.is_session_expired\n",
        "",
    ),
    Mutant(
        "what is lost stays owned",
        f"{_M}.ownership",
        "                self.has_lost_partitions = bool(self.owned)",
        "                self.has_lost_partitions = False",
    ),
    Mutant(
        "what was revoked stays owned",
        f"{_M}.ownership",
        "            self.owned -= frozenset(told.partitions)",
        "            pass",
    ),
    Mutant(
        "a member does not join again after it has revoked",
        f"{_M}.ownership",
        "            self._forward(outcome, RejoinRequested(at_ms=at_ms, reason=reason))\n"
        "        self._call_listener(outcome, ListenerCallback.REVOKED, partitions)",
        "        self._call_listener(outcome, ListenerCallback.REVOKED, partitions)",
    ),
    Mutant(
        "a rebalance is taken no note of",
        f"{_M}.reactions",
        "    CoordinatorRequest.HEARTBEAT: {\n"
        "        _E.NONE: _R.CONTINUE,\n"
        "        _E.REBALANCE_IN_PROGRESS: _R.REBALANCE,",
        "    CoordinatorRequest.HEARTBEAT: {\n"
        "        _E.NONE: _R.CONTINUE,\n"
        "        _E.REBALANCE_IN_PROGRESS: _R.CONTINUE,",
    ),
    Mutant(
        "an unknown member goes on under its id",
        f"{_M}.reactions",
        "        _E.UNKNOWN_MEMBER_ID: _R.LOSE_MEMBERSHIP,\n"
        "        _E.FENCED_INSTANCE_ID: _R.FAIL,  # KIP-345",
        "        _E.UNKNOWN_MEMBER_ID: _R.REJOIN,\n"
        "        _E.FENCED_INSTANCE_ID: _R.FAIL,  # KIP-345",
    ),
    Mutant(
        "a lost coordinator is not looked for",
        "partage.member.heartbeat",
        "        member.link.clear_coordinator()\n"
        "        member.continue_without_coordinator(context)",
        "        member.link.clear_coordinator()",
    ),
    # What the laboratory found in our own code, put back.
    Mutant(
        "a sync that failed is not made up for where no marker is known",
        "partage.log.recovery.partition_recovery",
        "                position = max(position, segment.size - room)\n"
        "                room -= segment.size - position\n",
        "                continue\n",
    ),
    Mutant(
        "a join is given up before the oldest version can answer it",
        "partage.member.rebalance",
        "max(settings.rebalance_timeout_ms, settings.session_timeout_ms)",
        "settings.rebalance_timeout_ms",
    ),
    Mutant(
        "what is committed to an empty group goes with what it had",
        f"{_C}.admin",
        "max(group.record.since_ms, offset.commit_ms)",
        "group.record.since_ms",
    ),
    *STORAGE_MUTANTS,
    *CLUSTER_MUTANTS,
)

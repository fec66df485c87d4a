"""Mutants of the machines of the proposals; see `lab.mutants`.

They were chosen by reading the code line by line.
"""

from __future__ import annotations

from lab.mutant import Mutant

_B, _J = "partage.proposals.broker_side", "partage.proposals.join_group"
_M, _S = "partage.proposals.multi_assignor", "partage.proposals.single_assignor"

MUTANTS = (
    # The first design: registry and pings
    Mutant(
        "a lost connection removes no consumer",
        f"{_B}.coordinator",
        "                if consumer is not None:\n                    self._remove(outcome, consumer)\n",  # noqa: E501
        "                pass\n",
    ),
    Mutant(
        "a duplicate consumer id is accepted",
        f"{_B}.coordinator",
        "if known is not None and request.consumer_id in known.consumers:",
        "if False:",
    ),
    Mutant(
        "the minimum session timeout is exclusive",
        f"{_B}.coordinator",
        "if request.session_timeout_ms < self.settings.session_timeout_min_ms:",
        "if request.session_timeout_ms <= self.settings.session_timeout_min_ms:",
    ),
    Mutant(
        "an answered ping does not reset the failed ones",
        f"{_B}.coordinator",
        "                    consumer.failed_pings = 0\n",
        "",
    ),
    Mutant(
        "the first failed ping ends a consumer",
        f"{_B}.coordinator",
        "if consumer.failed_pings > self.settings.ping_retries_max:",
        "if consumer.failed_pings > 0:",
    ),
    Mutant(
        "a consumer fails one ping too late",
        f"{_B}.coordinator",
        "if consumer.failed_pings > self.settings.ping_retries_max:",
        "if consumer.failed_pings > self.settings.ping_retries_max + 1:",
    ),
    Mutant(
        "an unexpected response is ignored",
        f"{_B}.coordinator",
        "            self._fail(outcome, consumer)\n            return None\n",
        "            return None\n",
    ),
    Mutant(
        "a watcher outlives its response",
        f"{_B}.coordinator",
        "        outcome.cancel_timer(watcher)\n        return watcher\n",
        "        return watcher\n",
    ),
    Mutant(
        "pings come every half of the session timeout",
        f"{_B}.registry",
        "return self.session_timeout_ms // 3\n",
        "return self.session_timeout_ms // 2\n",
    ),
    Mutant(
        "a response may take the whole session timeout",
        f"{_B}.registry",
        "return self.session_timeout_ms * 2 // 3",
        "return self.session_timeout_ms",
    ),
    Mutant(
        "a removed consumer is still scheduled",
        f"{_B}.coordinator",
        "        self.scheduler.remove(consumer.connection)\n",
        "",
    ),
    Mutant(
        "an earlier ping does not move the timer",
        f"{_B}.coordinator",
        "if next_ms is not None and next_ms != self._ping_timer_ms:",
        "if next_ms is not None and self._ping_timer_ms is None:",
    ),
    # The first design: offsets and committer
    Mutant(
        "offsets of partitions that are not owned are recorded",
        f"{_B}.coordinator",
        "if partition not in consumer.owned or each.offset < 0:",
        "if each.offset < 0:",
    ),
    Mutant(
        "offsets are recorded only the first time",
        f"{_B}.coordinator",
        "elif group.offsets.get(partition) != each.offset:",
        "elif partition not in group.offsets:",
    ),
    Mutant(
        "the committer commits the first group only",
        f"{_B}.coordinator",
        "                    self._commit(outcome, group)\n"
        "                outcome.arm_timer(CommitTimer(), self.settings.offset_commit_interval_ms)\n",  # noqa: E501
        "                    self._commit(outcome, group)\n                    break\n"
        "                outcome.arm_timer(CommitTimer(), self.settings.offset_commit_interval_ms)\n",  # noqa: E501
    ),
    Mutant(
        "the committer runs once",
        f"{_B}.coordinator",
        "                    self._commit(outcome, group)\n"
        "                outcome.arm_timer(CommitTimer(), self.settings.offset_commit_interval_ms)\n",  # noqa: E501
        "                    self._commit(outcome, group)\n",
    ),
    Mutant(
        "a rebalance does not commit",
        f"{_B}.rebalance",
        '        """Commit the offsets and start the fetchers (steps 4.3 and 4.4)."""\n'
        "        self._commit(outcome, group)\n",
        '        """Commit the offsets and start the fetchers (steps 4.3 and 4.4)."""\n',
    ),
    Mutant(
        "a group whose consumers have left is not committed",
        f"{_B}.coordinator",
        '        """End the subscriptions of a group without consumers, and delete its owners."""\n'
        "        self._commit(outcome, group)\n",
        '        """End the subscriptions of a group without consumers, and delete its owners."""\n',  # noqa: E501
    ),
    Mutant(
        "the offsets of StopFetcher responses are dropped",
        f"{_B}.coordinator",
        "                    self._record_offsets(outcome, consumer, message.offset_info)\n"
        "                    self._on_answered(",
        "                    self._on_answered(",
    ),
    # The first design: rebalances
    Mutant(
        "fetchers start after the first StopFetcher response",
        f"{_B}.rebalance",
        "        del group.waiting[consumer.connection]\n",
        "        group.waiting.clear()\n",
    ),
    Mutant(
        "an old response counts for the next attempt",
        f"{_B}.rebalance",
        "        if group.waiting.get(consumer.connection) != watcher:\n            return\n",
        "        if consumer.connection not in group.waiting:\n            return\n",
    ),
    Mutant(
        "a rebalance begins while earlier consumers are awaited",
        f"{_B}.registry",
        "return not self.awaited and (self.is_closing or not self.is_frozen)",
        "return self.is_closing or not self.is_frozen",
    ),
    Mutant(
        "a frozen group rebalances",
        f"{_B}.registry",
        "return not self.awaited and (self.is_closing or not self.is_frozen)",
        "return not self.awaited",
    ),
    Mutant(
        "a request during a rebalance is forgotten",
        f"{_B}.rebalance",
        "if group.is_pending or not group.consumers:",
        "if group.is_pending or not group.consumers or group.phase is not RebalancePhase.IDLE:",
    ),
    Mutant(
        "the rebalance bit stays set",
        f"{_B}.rebalance",
        "                group.is_pending = False\n                if self._begin",
        "                if self._begin",
    ),
    Mutant(
        "a lost consumer does not end the attempt",
        f"{_B}.rebalance",
        "            group.failed_attempts = 0\n            self._back_off(outcome, group)\n",
        "            pass\n",
    ),
    Mutant(
        "a late response fails no attempt",
        f"{_B}.rebalance",
        "        if group.waiting.get(consumer.connection) == watcher:\n"
        "            self._fail_attempt(outcome, group)\n",
        "        pass\n",
    ),
    Mutant(
        "the expiry of an earlier attempt fails the current one",
        f"{_B}.rebalance",
        "        if group.waiting.get(consumer.connection) == watcher:\n"
        "            self._fail_attempt(outcome, group)\n",
        "        if consumer.connection in group.waiting:\n"
        "            self._fail_attempt(outcome, group)\n",
    ),
    Mutant(
        "a lost consumer repeats the back-off",
        f"{_B}.rebalance",
        "        if group.phase is not RebalancePhase.BACKING_OFF:\n",
        "        if True:\n",
    ),
    Mutant(
        "a group without consumers keeps its rebalance bit",
        f"{_B}.coordinator",
        "            group.is_pending = False\n            self._delete_owners",
        "            self._delete_owners",
    ),
    Mutant(
        "a group that awaits closed consumers is never cleared",
        f"{_B}.rebalance",
        "            self._enqueue_if_due(outcome, group)\n        else:\n"
        "            self._clear(outcome, group)\n",
        "            self._enqueue_if_due(outcome, group)\n",
    ),
    Mutant(
        "an attempt fails without a back-off",
        f"{_B}.rebalance",
        "outcome.arm_timer(BackoffTimer(group.id), self.settings.rebalance_backoff_ms)",
        "outcome.arm_timer(BackoffTimer(group.id), 0)",
    ),
    Mutant(
        "one attempt more than the maximum of retries",
        f"{_B}.rebalance",
        "if group.failed_attempts > self.settings.rebalance_retries_max:",
        "if group.failed_attempts > self.settings.rebalance_retries_max + 1:",
    ),
    Mutant(
        "the owners of removed partitions stay",
        f"{_B}.rebalance",
        "        for partition in [each for each in group.owners if each not in group.plan]:\n"
        "            self._write_owner(outcome, group, partition, None)\n",
        "",
    ),
    Mutant(
        "a changed owner is not recorded",
        f"{_B}.rebalance",
        "if group.owners.get(partition) != record:",
        "if thread is None or partition not in group.owners:",
    ),
    Mutant(
        "an owner has no session timeout",
        f"{_B}.rebalance",
        "0 if thread is None else group.consumers[consumer_of(thread)].session_timeout_ms",
        "0",
    ),
    Mutant(
        "a new coordinator waits for no owner",
        f"{_B}.rebalance",
        "        if awaited:\n            self._wait_for",
        "        if False:\n            self._wait_for",
    ),
    Mutant(
        "a new coordinator waits for one session timeout only",
        f"{_B}.rebalance",
        "timeout_ms + timeout_ms // 3)",
        "timeout_ms)",
    ),
    Mutant(
        "the first threads get no partition of the rest",
        f"{_B}.registry",
        "for _ in range(share + (index < rest)):",
        "for _ in range(share + (index < rest - 1)):",
    ),
    Mutant(
        "threads share partitions in the order of registration",
        f"{_B}.registry",
        "sorted_threads[counts] = sorted(",
        "sorted_threads[counts] = list(",
    ),
    Mutant(
        "a new topic is not added to wildcard groups",
        f"{_B}.coordinator",
        "                    self._subscribe(group, topic)\n        affected",
        "                    pass\n        affected",
    ),
    # The first design: the consumer
    Mutant(
        "a consumer reads on without a connection",
        f"{_B}.consumer",
        "    def _on_disconnected(self, outcome: Outcome) -> None:\n"
        "        self._give_up_partitions(outcome)\n",
        "    def _on_disconnected(self, outcome: Outcome) -> None:\n",
    ),
    Mutant(
        "a stall is not noticed",
        f"{_B}.consumer",
        "return is_stalled or (is_registered and at_ms >= self._silence_end_ms)",
        "return is_registered and at_ms >= self._silence_end_ms",
    ),
    Mutant(
        "a silent coordinator is not suspected",
        f"{_B}.consumer",
        "return is_stalled or (is_registered and at_ms >= self._silence_end_ms)",
        "return is_stalled",
    ),
    Mutant(
        "a shutdown does not wait for the ping after its offsets",
        f"{_B}.consumer",
        "                self._has_reported_end = True\n",
        "                self._close(outcome)\n",
    ),
    Mutant(
        "a consumer that shuts down reads again",
        f"{_B}.consumer",
        "if offsets and not self._is_closing:",
        "if offsets:",
    ),
    Mutant(
        "a consumer that shuts down keeps the partitions of StartFetcher",
        f"{_B}.consumer",
        "frozenset() if self._is_closing else frozenset(offsets)",
        "frozenset(offsets)",
    ),
    Mutant(
        "the next broker is always the first",
        f"{_B}.consumer",
        "        self._next_broker += 1\n",
        "",
    ),
    Mutant(
        "stopped fetchers keep their out-of-range offsets",
        f"{_B}.consumer",
        "reset = self._out_of_range & offsets.keys()",
        "reset = self._out_of_range - offsets.keys()",
    ),
    # JoinGroup: the coordinator
    Mutant(
        "a generation keeps its number",
        f"{_J}.coordinator",
        "generation=group.generation + 1",
        "generation=max(1, group.generation)",
    ),
    Mutant(
        "members that did not join stay",
        f"{_J}.coordinator",
        "        self._drop_absent(outcome, group)\n        if not group.members:\n",
        "        if not group.members:\n",
    ),
    Mutant(
        "a Heartbeat does not extend the session",
        f"{_J}.coordinator",
        "        self._restart_session(outcome, group, member)\n        return (\n",
        "        return (\n",
    ),
    Mutant(
        "a commit does not extend the session",
        f"{_J}.coordinator",
        "            self._restart_session(outcome, self.groups[request.group_id], member)\n",
        "",
    ),
    Mutant(
        "a request of an earlier generation is accepted",
        f"{_J}.coordinator",
        "if generation != group.generation:",
        "if generation > group.generation:",
    ),
    Mutant(
        "a parked member's session runs",
        f"{_J}.coordinator",
        "        outcome.cancel_timer(MemberSessionTimer(group.id, member.id))\n"
        "        self._end_join_phase_if_complete(outcome, group)\n",
        "        self._end_join_phase_if_complete(outcome, group)\n",
    ),
    Mutant(
        "a lost member starts no rebalance",
        f"{_J}.coordinator",
        "        if group.state is not DesignGroupState.JOINING or not group.members:\n"
        "            self._start_join_phase_or_empty(outcome, group)\n",
        "        if not group.members:\n"
        "            self._start_join_phase_or_empty(outcome, group)\n",
    ),
    Mutant(
        "a join phase lasts as long as the shortest session",
        f"{_J}.coordinator",
        "timeout_ms = max(member.session_timeout_ms",
        "timeout_ms = min(member.session_timeout_ms",
    ),
    Mutant(
        "the join phase waits for no members of the last generation",
        f"{_J}.coordinator",
        "if group.has_all_joined and not group.is_delayed:",
        "if not group.is_delayed:",
    ),
    Mutant(
        "a lost connection keeps its parked request",
        f"{_J}.coordinator",
        "            group.unpark(group.members[member_id])\n",
        "            pass\n",
    ),
    Mutant(
        "an empty group keeps its protocol type",
        f"{_J}.coordinator",
        '        group.protocol_type = ""\n',
        "",
    ),
    Mutant(
        "a session timeout above the maximum is accepted",
        f"{_J}.coordinator",
        "settings.session_timeout_min_ms <= session_timeout_ms <= settings.session_timeout_max_ms",
        "settings.session_timeout_min_ms <= session_timeout_ms",
    ),
    Mutant(
        "a request that was parked earlier counts as the first of its phase",
        f"{_J}.coordinator",
        "        group.state = DesignGroupState.JOINING\n        group.synchronizer = None\n",
        "        group.state = DesignGroupState.JOINING\n        group.synchronizer = None\n"
        "        group.join_count = 0\n",
    ),
    # JoinGroup: the member
    Mutant(
        "a member reads on after its session",
        f"{_J}.member",
        "return bool(self.owned) and at_ms >= self._session_end_ms",
        "return False",
    ),
    Mutant(
        "the session counts from the response",
        f"{_J}.member",
        "self._set_session_end(outcome, self._sent_ms + self.settings.session_timeout_ms)",
        "self._set_session_end(outcome, outcome.at_ms + self.settings.session_timeout_ms)",
    ),
    Mutant(
        "a member joins without a commit",
        f"{_J}.member",
        "        elif self.owned:\n"
        "            self._commit_or(outcome, DesignMemberState.COMMITTING)\n",
        "        elif self.owned:\n            self._stop_reading(outcome)\n"
        "            self.owned = frozenset()\n            self._join(outcome)\n",
    ),
    Mutant(
        "a member leaves without a commit",
        f"{_J}.member",
        "        if self._is_leaving:\n"
        "            self._commit_or(outcome, DesignMemberState.LEAVING)\n"
        "        elif self._must_rejoin:\n",
        "        if self._is_leaving:\n            self._stop_reading(outcome)\n"
        "            self.state = DesignMemberState.LEAVING\n"
        "            self._send_leave(outcome)\n"
        "        elif self._must_rejoin:\n",
    ),
    Mutant(
        "a member reads while it joins again",
        f"{_J}.member",
        "        if self.state is DesignMemberState.STABLE and self._in_flight is None:\n"
        "            self._stop_reading(outcome)\n            self._proceed(outcome)\n",
        "        if self.state is DesignMemberState.STABLE and self._in_flight is None:\n"
        "            self._proceed(outcome)\n",
    ),
    Mutant(
        "REBALANCE_IN_PROGRESS is ignored",
        f"{_J}.member",
        "            case ErrorCode.REBALANCE_IN_PROGRESS:\n                self._rejoin(outcome)\n",  # noqa: E501
        "            case ErrorCode.REBALANCE_IN_PROGRESS:\n                self._after_request(outcome)\n",  # noqa: E501
    ),
    Mutant(
        "an unknown member keeps its id",
        f"{_J}.member",
        "                if error is ErrorCode.UNKNOWN_MEMBER_ID:\n"
        '                    self.member_id = ""\n                self._lose(outcome)\n',
        "                self._lose(outcome)\n",
    ),
    Mutant(
        "metadata that changed during a rebalance is ignored",
        f"{_J}.member",
        "        if before != {name: topics.get(name) for name in self._watched_topics(topics)}:\n",
        "        if self.owned and before != {\n"
        "            name: topics.get(name) for name in self._watched_topics(topics)\n        }:\n",
    ),
    # Many assignors
    Mutant(
        "a protocol that a member does not support is accepted",
        f"{_M}.coordinator",
        "group.protocol_counts.get(each.name, 0) - _lists(known, each.name) == others",
        "group.protocol_counts.get(each.name, 0) - _lists(known, each.name) <= others",
    ),
    Mutant(
        "replaced protocols are counted",
        f"{_M}.coordinator",
        "group.protocol_counts.get(name, 0) + by",
        "group.protocol_counts.get(name, 0) + max(by, 0)",
    ),
    Mutant(
        "a member with other metadata agrees",
        f"{_M}.member",
        "        agrees = all(\n",
        "        agrees = any(\n",
    ),
    Mutant(
        "the hash does not cover partition counts",
        f"{_M}.metadata",
        r'digest.update(f"{name}\0{topics.get(name, 0)}\0".encode())',
        r'digest.update(f"{name}\0".encode())',
    ),
    Mutant(
        "the smallest sub-group is active",
        f"{_M}.computation",
        "(-counts[each], each)",
        "(counts[each], each)",
    ),
    Mutant(
        "each member sees its own sub-group as active in a tie",
        f"{_M}.computation",
        "min(counts, key=lambda each: (-counts[each], each))",
        "max(counts, key=lambda each: counts[each])",
    ),
    Mutant(
        "a disagreement fetches no metadata",
        f"{_M}.member",
        "        self.disagreements += 1\n        self._has_metadata = False\n",
        "        self.disagreements += 1\n",
    ),
    # One assignor
    Mutant(
        "any member may assign",
        f"{_S}.coordinator",
        "if group.state is not DesignGroupState.SYNCHRONIZING or group.synchronizer != member.id:",
        "if group.state is not DesignGroupState.SYNCHRONIZING:",
    ),
    Mutant(
        "the timeout of the request is ignored",
        f"{_S}.coordinator",
        "join.synchronize_timeout or self.settings.synchronize_timeout_ms",
        "self.settings.synchronize_timeout_ms",
    ),
    Mutant(
        "the synchronizer's own request stays parked",
        f"{_S}.coordinator",
        "        outcome.cancel_timer(SynchronizeTimer(group.id))\n        self._park(",
        "        self._park(",
    ),
    Mutant(
        "an error of the synchronizer goes to it alone",
        f"{_S}.coordinator",
        "        for member in list(group.members.values()):\n            if member.is_parked:\n"
        "                response = JoinGroupResponse(\n",
        "        for member in [group.members[group.synchronizer or '']]:\n"
        "            if member.is_parked:\n                response = JoinGroupResponse(\n",
    ),
    Mutant(
        "the first member to join assigns",
        f"{_S}.coordinator",
        "return max(members, key=lambda member: member.join_order)",
        "return min(members, key=lambda member: member.join_order)",
    ),
    Mutant(
        "the oldest member assigns",
        f"{_S}.coordinator",
        "return max(members, key=lambda member: member.number)",
        "return min(members, key=lambda member: member.number)",
    ),
    Mutant(
        "the lowest metadata version assigns",
        f"{_S}.coordinator",
        "return max(members, key=_metadata_version)",
        "return min(members, key=_metadata_version)",
    ),
    Mutant(
        "a late synchronizer stays a member",
        f"{_S}.coordinator",
        "            self._forget(outcome, group, group.members[group.synchronizer])\n",
        "",
    ),
    Mutant(
        "a member without an assignment is not started",
        f"{_S}.coordinator",
        '                        synced_member_state=states.get(member.id, b""), group_members=ids\n',  # noqa: E501
        '                        synced_member_state=states.get(group.synchronizer or "", b""),\n'
        "                        group_members=ids,\n",
    ),
    Mutant(
        "an assignor's failure is not sent",
        f"{_S}.member",
        "                    self._send_synchronized(outcome, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, {})\n"  # noqa: E501
        "                return outcome\n",
        "                    pass\n                return outcome\n",
    ),
    Mutant(
        "the synchronizer assigns from old metadata",
        f"{_S}.member",
        "        self._to_assign = members\n        outcome.act(FetchMetadata())\n",
        "        self._to_assign = members\n        self._on_metadata_fetched(outcome)\n",
    ),
    # Patterns of topics
    Mutant(
        "a wildcard consumer reads the topics that do not match",
        f"{_B}.topic_count",
        "return self.pattern_threads if is_match is not self.is_excluding else 0",
        "return self.pattern_threads if is_match is self.is_excluding else 0",
    ),
    Mutant(
        "a wildcard group is forgotten with its first consumer",
        f"{_B}.coordinator",
        "            self.wildcard_groups.add(group.id)\n",
        "            if not group.consumers:\n                self.wildcard_groups.add(group.id)\n",
    ),
    Mutant(
        "a pattern watches no topics",
        f"{_J}.member",
        "return frozenset(name for name in metadata if pattern.matches(name))",
        "return frozenset()",
    ),
    Mutant(
        "a pattern matches topics that begin with it",
        f"{_M}.computation",
        "names = [name for name in topics if pattern.matches(name)]",
        "names = [name for name in topics if name.startswith(text[:1])]",
    ),
    Mutant(
        "the hash of a pattern covers no topics",
        f"{_M}.member",
        "self.metadata if is_pattern else topics",
        "() if is_pattern else topics",
    ),
    Mutant(
        "the synchronizer assigns all topics to a pattern",
        f"{_S}.member",
        "topics = [name for name in self.metadata if pattern.matches(name)]",
        "topics = list(self.metadata)",
    ),
    Mutant(
        "the synchronizer ignores new topics of the patterns of others",
        f"{_S}.member",
        "        if not self._group_patterns:\n",
        "        if True:\n",
    ),
    Mutant(
        "a member of the product matches its pattern only once",
        "partage.proposals.product.member",
        "if self._match_topics(topics):",
        "if False:",
    ),
    Mutant(
        "a coordinator of the product matches patterns only once",
        "partage.proposals.product.coordinator",
        "        self._topic_names = list(counts)\n",
        "        self._topic_names = self._topic_names or list(counts)\n",
    ),
    Mutant(
        "a member leaves in a rebalance without a commit",
        "partage.proposals.product.member",
        "(not self._reading or self._core.commit_identity is not None)",
        "True",
    ),
)

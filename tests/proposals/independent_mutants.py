"""Mutants that were planted independently of the tests and of `mutants`; see `lab.mutants`.

The first 34 are a sample of 150 bugs that were written from the sources alone: wrong timers,
forgotten state, missing checks, wrong orders, and fields that are not sent. The other mutants are
in modules that the sample does not reach.
"""

from __future__ import annotations

from lab.mutant import Mutant

_B, _J = "partage.proposals.broker_side", "partage.proposals.join_group"
_M, _S = "partage.proposals.multi_assignor", "partage.proposals.single_assignor"
_T, _C = "partage.proposals.two_phase", "partage.proposals.consumer_protocol"

INDEPENDENT_MUTANTS = (
    Mutant(
        "a consumer id is unique in the cluster, not in its group",
        f"{_B}.coordinator",
        "if known is not None and request.consumer_id in known.consumers:",
        "if request.consumer_id in {each.id for each in self.consumers.values()}:",
    ),
    Mutant(
        "a coordinator that resigned still commits",
        f"{_B}.coordinator",
        "        outcome.cancel_timer(CommitTimer())\n",
        "",
    ),
    Mutant(
        "only the first affected group rebalances",
        f"{_B}.coordinator",
        "for group_id in sorted(affected):\n",
        "for group_id in sorted(affected)[:1]:\n",
    ),
    Mutant(
        "freezing one group freezes all",
        f"{_B}.coordinator",
        "        group.is_frozen = not event.is_enabled\n",
        "        for each in self.groups.values():\n"
        "            each.is_frozen = not event.is_enabled\n",
    ),
    Mutant(
        "BrokersChanged keeps the old brokers",
        f"{_B}.coordinator",
        "self.brokers, self.coordinator_id = event.brokers, event.coordinator_id",
        "self.coordinator_id = event.coordinator_id",
    ),
    Mutant(
        "ClusterMetadata names this broker without an election",
        f"{_B}.coordinator",
        "known = self.settings.broker_id if self.is_elected else self.coordinator_id",
        "known = self.settings.broker_id",
    ),
    Mutant(
        "a late ping postpones all later ones",
        f"{_B}.coordinator",
        "begin_ms = max(at_ms, outcome.at_ms - consumer.ping_interval_ms + 1)",
        "begin_ms = outcome.at_ms",
    ),
    Mutant(
        "offsets never go back",
        f"{_B}.coordinator",
        "elif group.offsets.get(partition) != each.offset:",
        "elif group.offsets.get(partition, -1) < each.offset:",
    ),
    Mutant(
        "a refused offset hides the later ones",
        f"{_B}.coordinator",
        "outcome.refused_offsets.append((consumer.id, each.topic, each.partition))\n",
        "outcome.refused_offsets.append((consumer.id, each.topic, each.partition))\n"
        "                break\n",
    ),
    Mutant(
        "late StartFetcher responses count as failed pings",
        f"{_B}.coordinator",
        "if watcher.kind is not RequestKind.PING:",
        "if watcher.kind is RequestKind.STOP_FETCHER:",
    ),
    Mutant(
        "a coordinator waits for the owners of one group only",
        f"{_B}.coordinator",
        "            self._await_owners(outcome, group)\n",
        "            self._await_owners(outcome, group)\n            break\n",
    ),
    Mutant(
        "the wait for registrations uses the shortest session",
        f"{_B}.rebalance",
        "timeout_ms = max(awaited.values())",
        "timeout_ms = min(awaited.values())",
    ),
    Mutant(
        "partition strings have the broker 0",
        f"{_B}.rebalance",
        "partition=partition_name(self.settings.broker_id, partition.partition)",
        "partition=partition_name(0, partition.partition)",
    ),
    Mutant(
        "an error of a fetcher is ignored",
        f"{_B}.rebalance",
        "        if error_code:\n"
        "            self._fail_attempt(outcome, group)\n"
        "            return\n",
        "",
    ),
    Mutant(
        "the next rebalance after a failure has no retries",
        f"{_B}.rebalance",
        "        group.failed_attempts = 0\n        self._end_attempt(group)\n",
        "        self._end_attempt(group)\n",
    ),
    Mutant(
        "owners in ZooKeeper are not compared",
        f"{_B}.registry",
        "if {each: record.thread for each, record in self.owners.items()} != self.plan:",
        "if False:",
    ),
    Mutant(
        "consumers are not asked if ZooKeeper has the plan",
        f"{_B}.registry",
        "        return any(\n            (consumer.is_started",
        "        return False and any(\n            (consumer.is_started",
    ),
    Mutant(
        "the last threads get the rest",
        f"{_B}.registry",
        "(index < rest)",
        "(index >= len(threads) - rest)",
    ),
    Mutant(
        "a response satisfies the newest request",
        f"{_B}.purgatory",
        "return waiting.popleft() if waiting else None",
        "return waiting.pop() if waiting else None",
    ),
    Mutant(
        "the user's brokers are forgotten",
        f"{_B}.consumer",
        "        for each in self.settings.bootstrap_brokers:\n"
        "            found.setdefault((each.host, each.port), each)\n",
        "",
    ),
    Mutant(
        "a registration always commits",
        f"{_B}.consumer",
        "                auto_commit=settings.auto_commit,\n",
        "                auto_commit=True,\n",
    ),
    Mutant(
        "an out-of-range partition is reset at each start",
        f"{_B}.consumer",
        "        self._out_of_range = frozenset()\n        self._is_reading = True\n",
        "        self._is_reading = True\n",
    ),
    Mutant(
        "failed fetchers do not register again",
        f"{_B}.consumer",
        "        elif self._have_fetchers_failed and not self._is_closing:\n"
        "            self._reconnect(outcome)\n",
        "",
    ),
    Mutant(
        "metadata with an error is used",
        f"{_B}.consumer",
        "if response.error_code or coordinator is None:",
        "if coordinator is None:",
    ),
    Mutant(
        "a lost connection ends a later request",
        f"{_J}.coordinator",
        "            del self._parked[member.connection]\n",
        "            pass\n",
    ),
    Mutant(
        "the minimum session timeout is refused",
        f"{_J}.coordinator",
        "settings.session_timeout_min_ms <= session_timeout_ms <=",
        "settings.session_timeout_min_ms < session_timeout_ms <=",
    ),
    Mutant(
        "a member commits once",
        f"{_J}.member",
        "                outcome.arm_timer(Timer.COMMIT, self.settings.commit_interval_ms)\n"
        "                if",
        "                if",
    ),
    Mutant(
        "a member that reconnects sends no heartbeat at once",
        f"{_J}.member",
        "            self._schedule_timers(outcome)\n"
        "            self._heartbeat(outcome)\n"
        "        elif",
        "            self._schedule_timers(outcome)\n        elif",
    ),
    Mutant(
        "a rebalance uses old metadata",
        f"{_J}.member",
        "        self._has_metadata = has_new_metadata\n",
        "",
    ),
    Mutant(
        "an accepted commit does not extend the session",
        f"{_J}.member",
        "            elif not error and self.state is DesignMemberState.STABLE:\n"
        "                self._extend_session(outcome)\n",
        "",
    ),
    Mutant(
        "a leave while joining waits for the response",
        f"{_J}.member",
        "            case DesignMemberState.JOINING | DesignMemberState.SYNCHRONIZING:\n"
        "                # The parked request blocks its connection: leave over another one.\n"
        "                outcome.act(Disconnect())\n"
        "                self._connect(outcome)\n",
        "",
    ),
    Mutant(
        "user data is not sent",
        f"{_M}.member",
        "                user_data=options.user_data,\n",
        "",
    ),
    Mutant(
        "a timeout forgets the member id",
        f"{_S}.coordinator",
        "error_response(ErrorCode.REQUEST_TIMED_OUT, member.id)",
        'error_response(ErrorCode.REQUEST_TIMED_OUT, "")',
    ),
    Mutant(
        "a member of the product commits once",
        "partage.proposals.product.member",
        "        result.arm_timer(_COMMIT_TIMER, self._commit_interval_ms)\n"
        "        if self._reading",
        "        if self._reading",
    ),
    Mutant(
        "a broker that loses the election never tries again",
        f"{_B}.elector",
        "                return [WatchNode(path=COORDINATOR_PATH)]\n",
        "                return []\n",
    ),
    Mutant(
        "the winner of the election does not watch its node",
        f"{_B}.elector",
        "return [StartCoordinator(), WatchNode(path=COORDINATOR_PATH)]",
        "return [StartCoordinator()]",
    ),
    Mutant(
        "a coordinator whose session expired continues",
        f"{_B}.elector",
        "                actions = self._resign()\n",
        "                actions: list[Action] = []\n",
    ),
    Mutant(
        "a broker with an expired session waits for its answer",
        f"{_B}.elector",
        "                self.state = ElectorState.DISCONNECTED\n",
        "",
    ),
    Mutant(
        "an answer of an earlier session elects the broker",
        f"{_B}.elector",
        "case NodeCreated() if self.state is ElectorState.ELECTING:",
        "case NodeCreated():",
    ),
    Mutant(
        "a free handler takes a group of a blocked task first",
        f"{_B}.handlers",
        "self.queue.append(self.blocked.popleft())",
        "self.queue.appendleft(self.blocked.popleft())",
    ),
    Mutant(
        "tasks beyond the queue are dropped",
        f"{_B}.handlers",
        "else self.blocked).append(group_id)",
        "else deque()).append(group_id)",
    ),
    Mutant(
        "a handler takes a task while it is busy",
        f"{_B}.handlers",
        "if self.current is not None or not self.queue:",
        "if not self.queue:",
    ),
    Mutant(
        "a group has a task for each request",
        f"{_B}.handlers",
        "            self._queued.add(group_id)\n",
        "",
    ),
    Mutant(
        "a ping is not due at its time",
        f"{_B}.scheduler",
        "is not None and at_ms <= now_ms:",
        "is not None and at_ms < now_ms:",
    ),
    Mutant(
        "a removed consumer is pinged",
        f"{_B}.scheduler",
        "        self._scheduled.pop(connection, None)\n",
        "        pass\n",
    ),
    Mutant(
        "only one ping is sent at a time",
        f"{_B}.scheduler",
        "            due.append((connection, at_ms))\n",
        "            due.append((connection, at_ms))\n            break\n",
    ),
    Mutant(
        "a resync is not stored",
        f"{_T}.resync",
        "        outcome.records.append(record)\n",
        "",
    ),
    Mutant(
        "members are not told of a resync",
        f"{_T}.resync",
        "                    response.error_code = RESYNC_NEEDED\n",
        "                    pass\n",
    ),
    Mutant(
        "a member that synchronized is told again",
        f"{_T}.resync",
        "                self._members_with_assignment(request).add(request.member_id)\n",
        "                pass\n",
    ),
    Mutant(
        "members that had synchronized miss the resync",
        f"{_T}.resync",
        "        self._synced[group.id] = (group.generation, set())\n",
        "        pass\n",
    ),
    Mutant(
        "a resync is taken for a rebalance",
        f"{_T}.resync",
        "                message = msgspec.structs.replace(message, error_code=ErrorCode.NONE)\n",
        "                message = msgspec.structs.replace(\n"
        "                    message, error_code=ErrorCode.REBALANCE_IN_PROGRESS\n"
        "                )\n",
    ),
    Mutant(
        "a lost response to a resync is not repeated",
        f"{_T}.resync",
        "            self._is_response_lost = True\n",
        "",
    ),
    Mutant(
        "a leader whose resync was lost does not assign again",
        f"{_T}.resync",
        "                self._leader_topics = {}  # unknown: assign again at the next refresh\n",
        "                pass\n",
    ),
    Mutant(
        "a member resyncs while it joins",
        f"{_T}.resync",
        "            core.membership.state is MemberState.STABLE\n            and core.step",
        "            core.step",
    ),
    Mutant(
        "a new assignment of an earlier generation is applied",
        f"{_T}.resync",
        "if generation != core.membership.generation or frozenset",
        "if frozenset",
    ),
    Mutant(
        "the smallest partition count is used",
        f"{_T}.reported_counts",
        "largest[topic] = max(count, largest.get(topic, 0))",
        "largest[topic] = min(count, largest.get(topic, count))",
    ),
    Mutant(
        "the leader ignores its own counts",
        f"{_T}.reported_counts",
        "largest_counts([counts, *reports])",
        "largest_counts(reports)",
    ),
    Mutant(
        "a member joins without its counts",
        f"{_T}.reported_counts",
        "        if has_changed or self._is_starting:\n",
        "        if has_changed:\n",
    ),
    Mutant(
        "the leader notices no new partitions",
        f"{_T}.member",
        "if self._leader_topics and counts != self._leader_topics:",
        "if self._leader_topics and counts.keys() != self._leader_topics.keys():",
    ),
    Mutant(
        "a parked member leaves over the same connection",
        f"{_T}.member",
        "                self._clear_waiting(result)\n"
        "                result.act(machine.Disconnect())\n"
        "                result.act(machine.Connect())\n",
        "                result.act(machine.Connect())\n",
    ),
    Mutant(
        "topic ids are never resolved",
        f"{_C}.member",
        "                result.act(machine.FetchMetadata())\n",
        "                pass\n",
    ),
    Mutant(
        "all members of the simulation have one id",
        f"{_C}.member",
        'lambda: f"{name}-{next(numbers):022}"[:36]',
        'lambda: f"member-{next(numbers):022}"[:36]',
    ),
    Mutant(
        "the name of only one topic is known",
        f"{_C}.member",
        "names = {topic_id(name): name for name in counts}",
        "names = {topic_id(name): name for name in sorted(counts)[:1]}",
    ),
    Mutant(
        "no assignment of a resync is taken",
        f"{_T}.resync",
        "        self._new_assignment = membership.generation, tuple(partitions)\n",
        "",
    ),
    Mutant(
        "a member keeps the partitions that a resync takes from it",
        f"{_T}.resync",
        "frozenset(partitions) == core.owned:",
        "frozenset(partitions) <= core.owned:",
    ),
)

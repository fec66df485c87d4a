"""Mutants of members with the consumer protocol: sessions, reports, callbacks, leaves."""

from __future__ import annotations

from typing import Any, Final

from .mutant import Mutant

_M = "partage.member.consumer_group"

#: The worlds in which these mutants are searched for: one classic member, and three of the group.
_WORLDS: Final[dict[str, Any]] = {"brokers": 1, "members": 1, "consumer_members": 3}


def _mutant(name: str, module: str, original: str, replacement: str) -> Mutant:
    return Mutant(name, module, original, replacement, _WORLDS)


CONSUMER_MEMBER_MUTANTS: Final = (
    _mutant(
        "partitions are delivered after the session of the member expired",
        f"{_M}.membership",
        "if not self.is_in_group or self.link.is_session_expired or self.has_lost_partitions:",
        "if not self.is_in_group or self.has_lost_partitions:",
    ),
    _mutant(
        "the session of a heartbeat counts from its response",
        f"{_M}.member",
        "            sent.sent_ms + settings.session_timeout_ms,\n",
        "            context.at_ms + settings.session_timeout_ms,\n",
    ),
    _mutant(
        "a member that must revoke trusts its whole session",
        f"{_M}.member",
        "            self._clean_ms + settings.rebalance_timeout_ms,\n",
        "            sent.sent_ms + settings.session_timeout_ms,\n",
    ),
    _mutant(
        "partitions that leave the assignment are delivered until they are revoked",
        f"{_M}.membership",
        "for partition in self.owned - self.partitions_to_revoke()\n",
        "for partition in self.owned\n",
    ),
    _mutant(
        "the partitions of an open callback are delivered",
        f"{_M}.membership",
        "            if partition not in in_callback\n            and (",
        "            if (",
    ),
    _mutant(
        "a member adds new partitions before it revokes old ones",
        f"{_M}.member",
        "        if to_revoke := self.partitions_to_revoke():\n",
        "        if (to_revoke := self.partitions_to_revoke()) and not self.partitions_to_add():\n",
    ),
    _mutant(
        "a revocation is confirmed while its callback runs",
        f"{_M}.member",
        "(topic_id, number) for (_, number), topic_id in self.owned_ids.items()}",
        "(topic_id, each[1]) for each, topic_id in self.owned_ids.items()"
        " if each not in self.partitions_to_revoke()}",
    ),
    _mutant(
        "a full heartbeat omits the assigned partitions",
        f"{_M}.member",
        "            reported |= self.assignment or frozenset()\n",
        "            reported |= frozenset()\n",
    ),
    _mutant(
        "a lost connection does not repeat all fields",
        f"{_M}.member",
        "        self.in_flight = None\n        self.is_full_heartbeat_needed = True\n",
        "        self.in_flight = None\n",
    ),
    _mutant(
        "a change of the subscription during a heartbeat is not sent",
        f"{_M}.member",
        "        if sent.subscription != (self.topics, self.regex):\n",
        "        if sent.subscription is None:\n",
    ),
    _mutant(
        "a removed member keeps its epoch",
        f"{_M}.member",
        "        self.leave_epoch(context)\n"
        "        self.has_lost_partitions = bool(self.owned_ids)\n"
        "        self.transition_to(context, _S.FENCED)\n",
        "        self.has_lost_partitions = bool(self.owned_ids)\n"
        "        self.transition_to(context, _S.FENCED)\n",
    ),
    _mutant(
        "a removed member keeps its lost partitions",
        f"{_M}.state_machine",
        "    if call.callback is not ListenerCallback.ASSIGNED:\n",
        "    if call.callback is ListenerCallback.REVOKED:\n",
    ),
    _mutant(
        "a member that leaves sends no heartbeat",
        f"{_M}.membership",
        "return has_left_epoch and self.may_be_member and",
        "return has_left_epoch and self.may_be_member is None and",
    ),
    _mutant(
        "a member that drains keeps its static partitions",
        f"{_M}.membership",
        "        if sends:\n            return LEAVE_EPOCH\n",
        "",
    ),
    _mutant(
        "a late poll does not leave the group",
        f"{_M}.state_machine",
        "            _on_poll_timeout(member, context)\n",
        "            pass\n",
    ),
    _mutant(
        "names of topics are not sought again",
        f"{_M}.state_machine",
        "            member.resolve_topic_ids(context)\n",
        "            pass\n",
    ),
    _mutant(
        "a stale epoch of a commit is ignored",
        f"{_M}.reactions",
        "        _E.STALE_MEMBER_EPOCH: _R.CHECK,\n",
        "        _E.STALE_MEMBER_EPOCH: _R.IGNORE,\n",
    ),
    _mutant(
        "an unknown member joins again at once with its old epoch",
        f"{_M}.reactions",
        "        _E.UNKNOWN_MEMBER_ID: _R.LOSE_MEMBERSHIP,\n",
        "        _E.UNKNOWN_MEMBER_ID: _R.RETRY,\n",
    ),
    _mutant(
        "a returning static member keeps the regex of its former process",
        f"{_M}.member",
        "self.may_have_regex or (self.is_static and self.epoch == JOIN_EPOCH)",
        "self.may_have_regex",
    ),
    _mutant(
        "a regex of a heartbeat without response is not removed",
        f"{_M}.member",
        "        self.may_have_regex = may_have_regex or regex is not None\n",
        "",
    ),
    _mutant(
        "a repeated heartbeat keeps the report of one that waits",
        "partage.coordinator.consumer_group.heartbeat",
        "        group.drop_parked_reports(member.id)\n",
        "        pass\n",
    ),
    _mutant(
        "a heartbeat that its member has given up changes the assignment",
        "partage.coordinator.consumer_group.heartbeat",
        "        has_subscription_changed |= group.outdate_parked(member.id)\n",
        "        assert group.members\n",
    ),
    _mutant(
        "a heartbeat is sent after half of the interval",
        f"{_M}.member",
        "sent.sent_ms + interval_ms)",
        "sent.sent_ms + interval_ms // 2)",
    ),
    _mutant(
        "each heartbeat has all fields",
        f"{_M}.member",
        "        self.is_full_heartbeat_needed = self.is_subscription_refused = False\n",
        "        self.is_subscription_refused = False\n",
    ),
    _mutant(
        "an acknowledgement that a new assignment replaced is sent without partitions",
        f"{_M}.member",
        "                self.is_heartbeat_due = False  # the acknowledgement",
        "                pass  # the acknowledgement",
    ),
    _mutant(
        "a response repeats an assignment that did not change",
        "partage.coordinator.consumer_group.heartbeat",
        "assignment=to_partition_set(after.assigned) if must_tell else None,",
        "assignment=to_partition_set(after.assigned),",
    ),
)

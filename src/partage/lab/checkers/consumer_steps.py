"""Rule ``consumer-steps``: members move to their target in the steps that KIP-848 defines.

- A member that must give up partitions keeps its epoch. If it must then give up other partitions,
  too, its epoch grows by one, but not above that of the target. In all other states it has the
  epoch of the target. The previous epoch of a member is that before its step.
- A member that takes over an instance id gets the target and the assignment of the former member.
- A change of the subscription raises the epoch of the group, unless it is a regular expression
  whose topics are not known yet. So does a change of the assignor that most members prefer. The
  epoch grows only for these reasons, for a member that joins or is removed, for other topics, and
  after an upgrade.
- A member whose heartbeat changes its topics has no partitions of other topics.
- A target covers the subscribed topics, as far as they existed before its epoch. It gives each
  member only partitions of topics to which the member subscribed in the target's epoch.
- After a member has left, or an administrator has removed it, it is not in the group. A static
  member that leaves for a while stays.

The coordinator learns of changed topics late after a pause. So for a while, the rule does not judge
reasons and the coverage of targets. After a load it does not judge reasons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from partage.lab.checkers.consumer_group_log import (
    LogChangeKey,
    LoggedGroup,
    LoggedMember,
    LoggedPartition,
)
from partage.lab.checkers.consumer_group_states import ConsumerGroupStates
from partage.lab.history import (
    ConsumerTopicsChanged,
    History,
    ResponseSent,
    RuleViolationError,
    ShardLoaded,
    StallEnded,
)
from partage.lab.names import CONSUMER_GROUP, ROGUE_MEMBER
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings
from partage.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from partage.wire.apis.leave_group import (
    LeaveGroupMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
)

_UNREVOKED: Final = 1
_LEAVE, _STATIC_LEAVE = -1, -2
_GROUP, _MEMBER, _TARGET, _ASSIGNMENT, _REGEX = 3, 5, 6, 8, 16
#: The coordinator knows a topic after this time, if it is not paused.
_TOPIC_DELAY_MS: Final = 5_000

#: A topic: its id, its number of partitions, and the time of its last change.
_Topic = tuple[bytes, int, int]


class ConsumerStepsChecker:
    """Compares the records of each append with the group before it."""

    def __init__(
        self, history: History, states: ConsumerGroupStates, settings: GroupSettings
    ) -> None:
        self._states = states
        self._assignors = settings.consumer.assignors
        self._before: LoggedGroup | None = None  # the append under way; None without one
        self._topics: dict[str, _Topic] = {}
        self._topic_names: dict[bytes, str] = {}  # of all topics so far
        # the topics of each member, by the epoch of the group
        self._subscribed: dict[int, dict[str, set[str]]] = {}
        self._topics_at_epoch: dict[str, _Topic] = {}  # those that had not changed for a while
        self._changed_ms = 0  # the last change of any topic
        self._loaded_ms = 0  # the last load
        self._paused_ms = 0  # the end of the last pause
        self._epoch_ms = 0  # the last record of an epoch
        self._has_reason = False  # something since that record may be a reason for the next epoch
        self._removed: LoggedMember | None = None  # the member that was removed last
        self._are_topics_known = True  # by all brokers
        states.on_record(self._on_record)
        states.on_append_end(self._on_append_end)
        history.subscribe(ConsumerTopicsChanged, self._on_topics)
        history.subscribe(ShardLoaded, self._on_load)
        history.subscribe(StallEnded, self._on_pause)
        history.subscribe(ResponseSent, self._on_response)

    def _on_topics(self, entry: ConsumerTopicsChanged) -> None:
        found: dict[str, _Topic] = {}
        for name, topic_id, count in entry.topics:
            known = self._topics.get(name)
            is_same = known is not None and known[:2] == (topic_id, count)
            is_old = known is not None and is_same and self._are_topics_known and entry.is_known
            found[name] = known if known and is_old else (topic_id, count, entry.at_ms)
            self._topic_names[topic_id] = name
        if found != self._topics:
            self._changed_ms = entry.at_ms
        self._topics, self._are_topics_known = found, entry.is_known

    def _on_load(self, entry: ShardLoaded) -> None:
        """Forget what a lost append has told."""
        self._has_reason = True
        self._subscribed.clear()
        if self._states.appended.epoch is not None:
            self._note_subscriptions(self._states.appended)
        self._loaded_ms = entry.at_ms

    def _on_pause(self, entry: StallEnded) -> None:
        self._paused_ms = entry.at_ms

    # Records

    def _on_record(
        self, at_ms: int, key: LogChangeKey, before: LoggedGroup, after: LoggedGroup
    ) -> None:
        if self._before is None:
            self._before = before
        if after.epoch is None:
            if before.epoch is not None:  # the group is removed
                self._before = None
            return  # an upgrade writes the epoch last
        self._has_reason |= self._is_reason(key, before, after)
        if key.is_tombstone:
            if key.type == _ASSIGNMENT:
                self._removed = before.members.get(key.name)
        elif key.type == _GROUP:
            self._on_epoch(at_ms, before, after)
            self._note_subscriptions(after)
        elif key.type == _TARGET:
            self._check_target(after)
            self._check_coverage(after)
        elif key.type == _ASSIGNMENT:
            old, new = before.members.get(key.name), after.members[key.name]
            if new.epoch == 0:
                _check_takeover(key.name, self._removed, new)
            elif old is not None and old.is_stored and old.epoch >= 0 and new.epoch > 0:
                _check_step(key.name, old, new, after.target_epoch)

    def _is_reason(self, key: LogChangeKey, before: LoggedGroup, after: LoggedGroup) -> bool:
        """True if a record is a reason for a new epoch."""
        if key.type == _REGEX:
            return before.regexes.get(key.name) != after.regexes.get(key.name)
        if key.type != _MEMBER:
            return False
        if key.is_tombstone or self._preferred_assignor(before) != self._preferred_assignor(after):
            return True
        old, new = before.members.get(key.name, LoggedMember()), after.members[key.name]
        is_matched = new.regex is None or new.regex in after.regexes
        return new.topics != old.topics or (new.regex != old.regex and is_matched)

    def _on_epoch(self, at_ms: int, before: LoggedGroup, after: LoggedGroup) -> None:
        """Check that a new epoch has a reason since the last one; note the known topics."""
        was_paused = self._paused_ms > at_ms - _TOPIC_DELAY_MS
        is_disturbed = was_paused or self._loaded_ms > at_ms - _TOPIC_DELAY_MS
        may_have_other_topics = self._changed_ms >= self._epoch_ms - _TOPIC_DELAY_MS
        may_have_other_topics = may_have_other_topics or not self._are_topics_known
        has_reason = self._has_reason or is_disturbed or may_have_other_topics
        if before.epoch is not None and not has_reason:
            _break(f"the group moves from {before.epoch} to {after.epoch} without a reason")
        is_upgrade = before.epoch is None and self._states.replaced is not None
        self._has_reason, self._epoch_ms = is_upgrade or is_disturbed, at_ms
        self._topics_at_epoch = {
            name: topic
            for name, topic in self._topics.items()
            if topic[2] <= at_ms - _TOPIC_DELAY_MS and self._are_topics_known and not was_paused
        }

    def _note_subscriptions(self, group: LoggedGroup) -> None:
        """Note the topics of the members in the current epoch.

        The topics of a new regular expression are not known yet, and it changes no epoch.
        """
        assert group.epoch is not None, "the group exists"
        self._subscribed[group.epoch] = {
            name: _names(group, member)
            for name, member in group.stored_members().items()
            if member.regex is None or member.regex in group.regexes
        }

    def _check_target(self, group: LoggedGroup) -> None:
        subscribed = self._subscribed.get(group.target_epoch, {})
        for name, member in group.stored_members().items():
            known = {self._topic_names.get(topic_id) for topic_id, _ in member.target}
            given = {topic for topic in known if topic is not None}
            if name in subscribed and not given <= subscribed[name]:
                foreign = sorted(given - subscribed[name])
                _break(f"the target of {group.target_epoch} gives {foreign} to {name}: {member}")

    def _check_coverage(self, group: LoggedGroup) -> None:
        if group.target_epoch != group.epoch:
            return
        members = group.stored_members().values()
        subscribed = {name for member in members for name in _names(group, member)}
        covered = {place for member in members for place in member.target}
        for name in sorted(subscribed):
            topic = self._topics_at_epoch.get(name)
            if topic is None or self._topics.get(name) != topic:
                continue
            missing = {(topic[0], index) for index in range(topic[1])} - covered
            if missing:
                _break(f"the target of {group.epoch} lacks {len(missing)} partitions of {name}")

    def _on_append_end(self) -> None:
        before, after = self._before, self._states.appended
        self._before = None
        if after.epoch is not None:
            self._note_subscriptions(after)
        if before is None or before.epoch is None or after.epoch is None:
            return
        instances = {
            member.instance_id: (name, member)
            for name, member in after.stored_members().items()
            if member.instance_id is not None
        }
        for name, old in before.stored_members().items():
            new_name, new = name, after.stored_members().get(name)
            if old.instance_id is not None and old.epoch == _STATIC_LEAVE:
                new_name, new = instances.get(old.instance_id, (name, None))
            if new is None or after.epoch != before.epoch:
                continue
            is_matched = new.regex is None or new.regex in before.regexes.keys() & after.regexes
            if new.topics != old.topics or (new.regex != old.regex and is_matched):
                wanted = f"{new.topics} and {new.regex}"
                _break(f"{new_name} subscribes to {wanted} in the same epoch {after.epoch}")
        preferred = self._preferred_assignor(after)
        if preferred != self._preferred_assignor(before) and after.epoch == before.epoch:
            _break(f"most members prefer {preferred} in the same epoch {after.epoch}")

    def _preferred_assignor(self, group: LoggedGroup) -> str:
        """Return the assignor that most members prefer; the order of the setting decides a tie."""
        votes = Counter(member.assignor for member in group.stored_members().values())
        return max(self._assignors, key=lambda name: votes[name])

    # Responses

    def _on_response(self, entry: ResponseSent) -> None:
        request, response = entry.request.message, entry.message
        if isinstance(request, LeaveGroupRequest) and request.group_id == CONSUMER_GROUP:
            assert isinstance(response, LeaveGroupResponse)
            self._check_removals(request, response, self._states.possible(entry))
        if not isinstance(request, ConsumerGroupHeartbeatRequest):
            return
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if response.error_code:
            return
        groups, name = self._states.possible(entry), request.member_id
        if request.member_epoch == _LEAVE:
            _expect(groups, lambda group: name not in group.stored_members(), f"{name} stays")
        elif request.member_epoch == _STATIC_LEAVE:
            _expect(
                groups,
                lambda group: name in group.members and group.members[name].epoch == _STATIC_LEAVE,
                f"{name} has not left for a while",
            )
        elif request.subscribed_topic_names is not None:
            topics = tuple(sorted(set(request.subscribed_topic_names)))
            changed = [
                group
                for group in groups
                if name in group.members and group.members[name].topics == topics
            ]
            # Otherwise an earlier heartbeat with these topics may wait for a target, or a later one
            # has changed the topics again.
            is_new = groups[0] not in changed and groups[-1] in changed
            if is_new and entry.request.client != ROGUE_MEMBER:
                _expect(
                    changed,
                    lambda group: not self._unsubscribed(group, group.members[name]),
                    f"{name} has partitions of topics other than {topics}",
                )

    def _check_removals(
        self, request: LeaveGroupRequest, response: LeaveGroupResponse, groups: list[LoggedGroup]
    ) -> None:
        if any(group.epoch is None for group in groups):
            return  # the group may have been a classic one
        for asked, result in zip(request.members, response.members, strict=False):
            if result.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
                is_missing = partial(_lacks_member, member=asked)
                _expect(groups, is_missing, f"after LeaveGroup {asked} is in the group")

    def _unsubscribed(self, group: LoggedGroup, member: LoggedMember) -> set[LoggedPartition]:
        """Return the assigned partitions of topics that a member certainly does not want.

        A member that must give up partitions gets its next assignment only afterwards.
        """
        if member.state == _UNREVOKED:
            return set()
        names = _names(group, member)
        foreign = {topic[0] for name, topic in self._topics.items() if name not in names}
        return {place for place in member.assigned if place[0] in foreign}


def _check_takeover(name: str, old: LoggedMember | None, new: LoggedMember) -> None:
    """Check a member that takes over the instance id of another one: it begins with epoch 0."""
    if old is None or old.instance_id != new.instance_id:
        _break(f"{name} begins with epoch 0, but takes over no instance id")
    elif new.target != old.target:
        _break(f"{name} takes over {old.instance_id} without its target")
    elif (new.assigned, new.pending) != (old.assigned, old.pending):
        _break(f"{name} takes over {old.instance_id} without its assignment: {old}")


def _check_step(name: str, old: LoggedMember, new: LoggedMember, target_epoch: int) -> None:
    expected = target_epoch
    if new.state == _UNREVOKED:
        expected = min(old.epoch + (old.state == _UNREVOKED), target_epoch)
    if new.epoch != expected:
        _break(f"{name} moves from {old.epoch} to {new.epoch}, not to {expected}: {new}")
    if new.previous_epoch != old.epoch:
        _break(f"{name} has the previous epoch {new.previous_epoch}, not {old.epoch}")


def _lacks_member(group: LoggedGroup, member: LeaveGroupMember) -> bool:
    """True if the group lacks the member that a LeaveGroup names by its id or instance id."""
    members = group.stored_members()
    if member.group_instance_id is None:
        return member.member_id not in members
    return not any(
        each.instance_id == member.group_instance_id and member.member_id in ("", name)
        for name, each in members.items()
    )


def _names(group: LoggedGroup, member: LoggedMember) -> set[str]:
    """Return the names of the topics that a member subscribes to."""
    return {*member.topics, *group.regexes.get(member.regex or "", ())}


def _expect(
    groups: list[LoggedGroup], holds: Callable[[LoggedGroup], bool], description: str
) -> None:
    if not any(holds(group) for group in groups):
        _break(description)


def _break(description: str) -> None:
    raise RuleViolationError("consumer-steps", description)

"""Rules about epochs of the group with the consumer protocol.

- ``consumer-epochs``: the epoch of the group grows by one, and that of its target follows it. The
  epoch of a member never runs backwards, except when it leaves for a while or joins again, and is
  never above the target. A response shows a durable epoch.
- ``consumer-fence``: a heartbeat is accepted only from a member in its epoch, or in the previous
  one if it reports no partition that it does not have. It is rejected only if that is not so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from partage.lab.checkers.consumer_group_log import (
    LogChangeKey,
    LoggedGroup,
    LoggedMember,
    LoggedPartition,
)
from partage.lab.checkers.consumer_group_states import ConsumerGroupStates
from partage.lab.history import History, ResponseSent, RuleViolationError
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings
from partage.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupTopicPartitions,
)

_LEAVE, _STATIC_LEAVE = -1, -2
_FIRST_EPOCHS: Final = (1, 2)
_GROUP, _TARGET, _ASSIGNMENT = 3, 6, 8


class ConsumerEpochsChecker:
    """Checks epochs in the log and in responses to heartbeats."""

    def __init__(
        self, history: History, states: ConsumerGroupStates, settings: GroupSettings
    ) -> None:
        self._states = states
        self._members_max = settings.consumer.members_max
        self._interval_ms = settings.consumer.heartbeat_interval_ms
        self._shown: dict[str, int] = {}  # the epoch in the last response to each member
        states.on_record(self._on_record)
        history.subscribe(ResponseSent, self._on_response)

    # The log

    def _on_record(
        self, at_ms: int, key: LogChangeKey, before: LoggedGroup, after: LoggedGroup
    ) -> None:
        if key.type == _GROUP and after.epoch is not None:
            expected = self._first_epochs() if before.epoch is None else (before.epoch + 1,)
            if after.epoch not in expected:
                _break("consumer-epochs", f"the group moves from {before.epoch} to {after.epoch}")
        elif key.type == _GROUP and before.stored_members():
            _break("consumer-epochs", f"the group is removed with {list(before.members)}")
        elif key.type == _TARGET and not key.is_tombstone and after.epoch is not None:
            if not before.target_epoch <= after.target_epoch <= after.epoch:
                steps = f"from {before.target_epoch} to {after.target_epoch} of {after.epoch}"
                _break("consumer-epochs", f"the target moves {steps}")
        elif key.type == _ASSIGNMENT and not key.is_tombstone:
            self._check_member(before, after, key.name)

    def _first_epochs(self) -> tuple[int, ...]:
        """Return the possible epochs of a new group; that of an upgraded one is its generation."""
        replaced = self._states.replaced
        return _FIRST_EPOCHS if replaced is None else (*_FIRST_EPOCHS, replaced.generation)

    def _check_member(self, before: LoggedGroup, after: LoggedGroup, name: str) -> None:
        old, new = before.members.get(name), after.members[name]
        is_forward = old is None or new.epoch >= old.epoch or new.epoch == _STATIC_LEAVE
        target_epoch = new.epoch if after.epoch is None else after.target_epoch  # in an upgrade
        if not is_forward or new.epoch > target_epoch or new.epoch < _STATIC_LEAVE:
            moved = f"{name} moves from {old and old.epoch} to {new.epoch}"
            _break("consumer-epochs", f"{moved} with the target of {after.target_epoch}")
        if (
            old is not None
            and new.epoch > 0
            and after.epoch is not None
            and new.previous_epoch
            not in (
                old.epoch,
                old.previous_epoch,
            )
        ):
            _break("consumer-epochs", f"{name}: {new.previous_epoch} is not before {new.epoch}")

    # Responses

    def _on_response(self, entry: ResponseSent) -> None:
        request, response = entry.request.message, entry.message
        if not isinstance(request, ConsumerGroupHeartbeatRequest):
            return
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        groups = self._states.possible(entry)
        match response.error_code:
            case ErrorCode.NONE if request.member_epoch >= 0:
                self._check_success(request, response, groups)
            case ErrorCode.NONE:
                if response.member_epoch != request.member_epoch:
                    _break("consumer-epochs", f"{request} got epoch {response.member_epoch}")
                self._expect(groups, request, lambda group: request.member_id in group.members)
            case ErrorCode.FENCED_MEMBER_EPOCH:
                self._expect(groups, request, lambda group: not _is_current(group, request))
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self._expect(groups, request, lambda group: _is_unknown(group, request))
            case ErrorCode.UNRELEASED_INSTANCE_ID:
                self._expect(groups, request, lambda group: _is_instance_taken(group, request))
            case ErrorCode.FENCED_INSTANCE_ID:
                self._expect(groups, request, lambda group: _is_instance_of_other(group, request))
            case ErrorCode.GROUP_ID_NOT_FOUND:
                self._expect(groups, request, lambda group: group.epoch is None)
            case ErrorCode.GROUP_MAX_SIZE_REACHED:
                self._expect(groups, request, lambda group: self._is_full(group, request))

    def _is_full(self, group: LoggedGroup, request: ConsumerGroupHeartbeatRequest) -> bool:
        members = group.stored_members()
        if group.epoch is None and self._states.has_classic_members:
            return True
        is_known = request.member_id in members or _has_instance(group, request)
        return len(members) >= self._members_max and not is_known

    def _expect(
        self,
        groups: list[LoggedGroup],
        request: ConsumerGroupHeartbeatRequest,
        holds: Callable[[LoggedGroup], bool],
    ) -> None:
        if not any(holds(group) for group in groups):
            _break("consumer-fence", f"{request} does not fit {_brief(groups, request.member_id)}")

    def _check_success(
        self,
        request: ConsumerGroupHeartbeatRequest,
        response: ConsumerGroupHeartbeatResponse,
        groups: list[LoggedGroup],
    ) -> None:
        name, epoch = request.member_id, response.member_epoch
        if response.member_id != name:
            _break("consumer-epochs", f"{request} got the member id {response.member_id}")
        if response.heartbeat_interval_ms != self._interval_ms:
            _break("consumer-epochs", f"{name}: interval {response.heartbeat_interval_ms} ms")
        if not any(
            name in group.members and group.members[name].epoch == epoch for group in groups
        ):
            found = _brief(groups, name)
            _break("consumer-epochs", f"{name} got epoch {epoch}, which is not durable: {found}")
        if request.member_epoch > 0:
            self._expect(groups, request, lambda group: _is_current(group, request))
            self._expect(groups, request, lambda group: not _is_instance_of_other(group, request))
            if epoch < self._shown.get(name, 0):
                _break("consumer-epochs", f"{name} moves back from {self._shown[name]} to {epoch}")
        else:
            self._expect(groups, request, lambda group: not _is_instance_taken(group, request))
            self._expect(groups, request, lambda group: not self._is_full(group, request))
        if len(groups[-1].stored_members()) > self._members_max:
            _break("consumer-fence", f"the group has {len(groups[-1].members)} members")
        self._shown[name] = epoch


def reported_partitions(
    topics: Iterable[ConsumerGroupTopicPartitions] | None,
) -> frozenset[LoggedPartition] | None:
    """Return the partitions of a heartbeat, or None if it reports none."""
    if topics is None:
        return None
    return frozenset((topic.topic_id, index) for topic in topics for index in topic.partitions)


def _is_current(group: LoggedGroup, request: ConsumerGroupHeartbeatRequest) -> bool:
    """True if the epoch of the request is one that the group must accept."""
    member = group.members.get(request.member_id)
    if member is None or not member.is_stored:
        return False
    if request.member_epoch in (0, member.epoch):
        return True
    owned = reported_partitions(request.topic_partitions)
    is_previous = request.member_epoch == member.previous_epoch < member.epoch
    return is_previous and owned is not None and owned <= frozenset(member.assigned)


def _instance_holder(
    group: LoggedGroup, request: ConsumerGroupHeartbeatRequest
) -> tuple[str, LoggedMember] | None:
    for name, member in group.stored_members().items():
        if request.instance_id is not None and member.instance_id == request.instance_id:
            return name, member
    return None


def _has_instance(group: LoggedGroup, request: ConsumerGroupHeartbeatRequest) -> bool:
    return _instance_holder(group, request) is not None


def _is_unknown(group: LoggedGroup, request: ConsumerGroupHeartbeatRequest) -> bool:
    member = group.stored_members().get(request.member_id)
    has_left = member is not None and member.epoch == _STATIC_LEAVE
    is_lost = request.instance_id is not None and not _has_instance(group, request)
    return member is None or has_left or is_lost


def _is_instance_taken(group: LoggedGroup, request: ConsumerGroupHeartbeatRequest) -> bool:
    holder = _instance_holder(group, request)
    if holder is None or holder[0] == request.member_id:
        return False
    return holder[1].epoch != _STATIC_LEAVE and not holder[1].is_classic


def _is_instance_of_other(group: LoggedGroup, request: ConsumerGroupHeartbeatRequest) -> bool:
    holder = _instance_holder(group, request)
    return holder is not None and holder[0] != request.member_id


def _brief(groups: list[LoggedGroup], name: str) -> str:
    """Return the last states of a member, for a message."""
    return " / ".join(f"{group.epoch}: {group.members.get(name)}" for group in groups[-3:])


def _break(rule: str, description: str) -> None:
    raise RuleViolationError(rule, description)

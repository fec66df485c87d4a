"""Rule ``consumer-fence`` for Heartbeat and SyncGroup of classic members in a consumer group.

- They are accepted only from a member in its epoch, and rejected only if that is not so.
- A Heartbeat succeeds only if the member has nothing to do. It gets REBALANCE_IN_PROGRESS while it
  is behind the target, must give up partitions, or waits for partitions that are all free.
- A SyncGroup succeeds only for a member that is at the target, or that must give up partitions.
"""

from __future__ import annotations

from collections.abc import Callable

from partage.lab.checkers.consumer_group_log import LoggedGroup, LoggedMember
from partage.lab.checkers.consumer_group_states import ConsumerGroupStates
from partage.lab.history import History, ResponseSent, RuleViolationError
from partage.lab.names import CONSUMER_GROUP
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings
from partage.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from partage.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse

_UNREVOKED, _UNRELEASED = 1, 2


class ConsumerClassicMembersChecker:
    """Compares each result with the states in which its request may have been handled."""

    def __init__(
        self, history: History, states: ConsumerGroupStates, settings: GroupSettings
    ) -> None:
        self._states = states
        history.subscribe(ResponseSent, self._on_response)

    def _on_response(self, entry: ResponseSent) -> None:
        request, response = entry.request.message, entry.message
        if not isinstance(request, HeartbeatRequest | SyncGroupRequest):
            return
        assert isinstance(response, HeartbeatResponse | SyncGroupResponse)
        if request.group_id != CONSUMER_GROUP or not entry.request.is_loaded:
            return
        groups = self._states.possible(entry)
        if any(group.epoch is None for group in groups):
            return  # it may be a classic group
        name, generation = request.member_id, request.generation_id

        def expect(holds: Callable[[LoggedGroup, LoggedMember | None], bool]) -> None:
            found = [(group, _classic(group, name)) for group in groups]
            if not any(holds(*each) for each in found):
                code = ErrorCode(response.error_code).name
                brief = " / ".join(f"{g.epoch}, target {g.target_epoch}: {m}" for g, m in found)
                raise RuleViolationError("consumer-fence", f"{request} got {code} from {brief}")

        is_heartbeat = isinstance(request, HeartbeatRequest)
        match response.error_code:
            case ErrorCode.NONE if is_heartbeat:
                expect(lambda g, m: _is_at(m, generation) and not _must_join(g, m))
            case ErrorCode.NONE:
                expect(lambda g, m: _is_at(m, generation) and _has_assignment(g, m))
            case ErrorCode.REBALANCE_IN_PROGRESS:
                expect(lambda g, m: _is_at(m, generation))
            case ErrorCode.ILLEGAL_GENERATION:
                expect(lambda g, m: m is not None and m.epoch != generation)
            case ErrorCode.UNKNOWN_MEMBER_ID if request.group_instance_id is None:
                expect(lambda g, m: m is None)


def _classic(group: LoggedGroup, name: str) -> LoggedMember | None:
    member = group.stored_members().get(name)
    return member if member is not None and member.is_classic else None


def _is_at(member: LoggedMember | None, epoch: int) -> bool:
    return member is not None and member.epoch == epoch


def _has_assignment(group: LoggedGroup, member: LoggedMember | None) -> bool:
    assert member is not None
    return member.epoch >= group.target_epoch or member.state == _UNREVOKED


def _must_join(group: LoggedGroup, member: LoggedMember | None) -> bool:
    assert member is not None
    if member.epoch < group.target_epoch or member.state == _UNREVOKED:
        return True
    if member.state != _UNRELEASED:
        return False
    others = [each.held for each in group.members.values() if each is not member]
    return not any(member.target & held for held in others)

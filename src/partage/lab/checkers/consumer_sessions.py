"""Rule ``consumer-session``: the deadlines of members with the consumer protocol are kept.

- No member is removed within its session timeout after an accepted heartbeat, or while a heartbeat
  that arrived in time is unread.
- No member is removed for partitions that it did not give up within its rebalance timeout.
- On a single broker, a member that is silent for longer is removed, and so is one that must give up
  partitions, after at most the grace period that follows pauses of the broker.
- No member is removed without a reason: a leave request, a deadline, an administrator, or a static
  member that returns.
"""

from __future__ import annotations

from typing import Any, Final

from partage.coordinator.outcome import SESSION_EXPIRED_REASON
from partage.coordinator.records import GroupRecord
from partage.lab.checkers.consumer_group_log import LogChangeKey, LoggedGroup, LoggedMember
from partage.lab.checkers.consumer_group_states import ConsumerGroupStates
from partage.lab.history import (
    BrokerDied,
    History,
    LogWriteFailed,
    MemberExpired,
    RequestReceived,
    ResponseSent,
    RuleViolationError,
    ShardAcquired,
    ShardLoaded,
    StallEnded,
)
from partage.lab.names import CONSUMER_GROUP
from partage.model.settings import GroupSettings
from partage.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from partage.wire.apis.join_group import JoinGroupRequest
from partage.wire.apis.leave_group import LeaveGroupRequest

_MEMBER, _ASSIGNMENT = 5, 8
_UNREVOKED = 1
_STATIC_LEAVE = -2
_SLACK_MS: Final = 1_500
_GRACE_MAX_MS: Final = 10_000


class ConsumerSessionsChecker:
    """Tracks the last sign of life of each member, and since when it must give up partitions."""

    def __init__(
        self, history: History, states: ConsumerGroupStates, settings: GroupSettings
    ) -> None:
        self._states = states
        self._session_ms = settings.consumer.session_timeout_ms
        self._alive_ms: dict[str, int] = {}  # arrival of the last accepted heartbeat
        self._answered_ms: dict[str, int] = {}  # the response to it
        self._revoking_ms: dict[str, int] = {}
        self._expired: dict[str, MemberExpired] = {}
        self._open: dict[int, str] = {}  # heartbeats without a response
        self._reasons: set[str] = set()  # members that may be removed
        self._joins_ms: dict[str, int] = {}  # the last join of each static member
        self._removed: list[str] = []  # without a known reason, by the current append
        self._is_downgraded = False  # by the current append
        self._has_admin_request = False
        self._quiet_ms = 0  # from then on the broker was neither paused nor loading
        self._is_cluster = False
        self._is_loaded = False
        states.on_record(self._on_record)
        states.on_downgrade(self._on_downgrade)
        states.on_append_end(self._on_append_end)
        history.subscribe(RequestReceived, self._on_request)
        history.subscribe(ResponseSent, self._on_response)
        history.subscribe(MemberExpired, self._on_expired)
        history.subscribe(StallEnded, self._on_stall)
        history.subscribe(ShardLoaded, self._on_loaded)
        history.subscribe(ShardAcquired, self._on_acquired)
        for kind in (BrokerDied, LogWriteFailed):
            history.subscribe(kind, self._on_unloaded)

    def _on_acquired(self, entry: ShardAcquired) -> None:
        self._is_cluster = True

    def _on_stall(self, entry: StallEnded) -> None:
        grace_ms = min(entry.at_ms - entry.began_ms, _GRACE_MAX_MS)
        self._quiet_ms = max(self._quiet_ms, entry.at_ms + grace_ms)

    def _on_loaded(self, entry: ShardLoaded) -> None:
        if not (self._states.has_group(entry.shard) and self._states.may_own(entry.broker)):
            return
        self._quiet_ms = max(self._quiet_ms, entry.at_ms)
        self._open.clear()
        self._is_loaded = True
        # The record that begins or ends a revocation may be lost with its append.
        self._revoking_ms = {
            name: self._revoking_ms.get(name, entry.at_ms)
            for name, member in self._states.appended.stored_members().items()
            if member.state == _UNREVOKED and member.epoch > 0
        }

    def _on_unloaded(self, entry: BrokerDied | LogWriteFailed) -> None:
        if isinstance(entry, BrokerDied) or self._states.has_group(entry.shard):
            self._is_loaded = False

    def _on_request(self, entry: RequestReceived) -> None:
        request: Any = entry.message
        if isinstance(request, LeaveGroupRequest) and request.group_id == CONSUMER_GROUP:
            self._has_admin_request = True
        if isinstance(request, JoinGroupRequest) and request.group_id == CONSUMER_GROUP:
            self._note_instance(request.group_instance_id, entry.at_ms)
        if not isinstance(request, ConsumerGroupHeartbeatRequest):
            return
        name = request.member_id
        self._open[entry.serial] = name
        if request.member_epoch < 0:
            self._reasons.add(name)
        if request.instance_id is not None and request.member_epoch == 0:
            self._reasons.add(name)
            self._note_instance(request.instance_id, entry.at_ms)
        expired = self._expired.get(name)
        is_sign_of_life = request.member_epoch >= 0
        if expired is not None and expired.broker == entry.broker and is_sign_of_life:
            unread_ms = expired.at_ms - entry.arrived_ms
            if 0 < unread_ms < self._session_ms:
                _break(
                    f"{name} was expired while its heartbeat of {unread_ms} ms before was unread"
                )

    def _note_instance(self, instance_id: str | None, at_ms: int) -> None:
        """Note that a static member joins, which may replace another one."""
        if instance_id is None:
            return
        self._joins_ms[instance_id] = at_ms
        self._reasons |= {
            name
            for group in (self._states.appended, self._states.durable[-1])
            for name, member in group.members.items()
            if member.instance_id == instance_id
        }

    def _on_response(self, entry: ResponseSent) -> None:
        self._open.pop(entry.request.serial, None)
        request, response = entry.request.message, entry.message
        if not isinstance(request, ConsumerGroupHeartbeatRequest):
            return
        if request.member_epoch >= 0 and not getattr(response, "error_code", 0):
            self._alive_ms[request.member_id] = entry.request.at_ms
            self._answered_ms[request.member_id] = entry.at_ms
            if request.member_epoch == 0:
                self._expired.pop(request.member_id, None)
        elif request.member_epoch == _STATIC_LEAVE:  # it may have waited for a target
            self._answered_ms[request.member_id] = entry.at_ms
        if self._is_loaded and not self._is_cluster:
            self._check_late(entry.at_ms)

    def _on_record(
        self, at_ms: int, key: LogChangeKey, before: LoggedGroup, after: LoggedGroup
    ) -> None:
        if key.type == _ASSIGNMENT and not key.is_tombstone:
            member = after.members[key.name]
            self._revoking_ms.pop(key.name, None)
            if member.state == _UNREVOKED and member.epoch > 0:
                self._revoking_ms[key.name] = at_ms
        elif key.type == _MEMBER and key.name not in after.members:
            removed = before.members.get(key.name, LoggedMember())
            # a member that the same request made a member of an upgraded group
            is_replaced = self._joins_ms.get(removed.instance_id or "") == at_ms
            has_reason = is_replaced or self._has_reason(key.name)
            if not self._is_cluster and removed.is_stored and not has_reason:
                self._removed.append(key.name)
            self._reasons.discard(key.name)

    def _on_append_end(self) -> None:
        """Check removed members. A downgrade removes all, and it is known only at its end."""
        removed, self._removed = self._removed, []
        if removed and not self._is_downgraded:
            _break(f"{removed[0]} was removed without a reason")
        self._is_downgraded = False

    def _on_downgrade(self, group: LoggedGroup, classic: GroupRecord) -> None:
        self._is_downgraded = True

    def _has_reason(self, name: str) -> bool:
        return name in self._reasons or name in self._expired or self._has_admin_request

    def _on_expired(self, entry: MemberExpired) -> None:
        if entry.group_id != CONSUMER_GROUP:
            return
        name = entry.member_id
        self._expired[name] = entry
        self._reasons.add(name)
        states = self._states
        member = states.appended.members.get(name) or states.durable[-1].members.get(name)
        if member is None or member.is_classic:
            return  # rule `session-expiry` has the sessions of the classic protocol
        if entry.reason == SESSION_EXPIRED_REASON:
            silent_ms = entry.at_ms - max(self._alive_ms.get(name, 0), self._states.loaded_ms)
            if silent_ms < self._session_ms:
                _break(f"{name} was expired after {silent_ms} of {self._session_ms} ms")
            return
        since_ms = max(self._revoking_ms.get(name, 0), self._states.loaded_ms)
        if not self._revoking_ms.get(name) or entry.at_ms - since_ms < member.rebalance_timeout_ms:
            timeout_ms = member.rebalance_timeout_ms
            _break(f"{name} was removed {entry.at_ms - since_ms} of {timeout_ms} ms after {member}")

    def _check_late(self, at_ms: int) -> None:
        """Check that no member exists whose deadlines have passed."""
        waiting = set(self._open.values())
        for name, member in self._states.durable[-1].stored_members().items():
            if member.is_classic or name in waiting:
                continue
            if name not in self._states.appended.members:
                continue
            since_ms = max(self._answered_ms.get(name, at_ms), self._quiet_ms)
            if at_ms - since_ms > self._session_ms + _SLACK_MS:
                _break(f"{name} is a member {at_ms - since_ms} ms after its last heartbeat")
            since_ms = max(self._revoking_ms.get(name, at_ms), self._quiet_ms)
            if at_ms - since_ms > member.rebalance_timeout_ms + _SLACK_MS:
                _break(f"{name} keeps partitions {at_ms - since_ms} ms after it must give them up")


def _break(description: str) -> None:
    raise RuleViolationError("consumer-session", description)

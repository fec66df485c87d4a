"""Rule ``consumer-member``: a member with the consumer protocol is careful, prompt and truthful.

The other rules judge what its user happens to do, and what the coordinator makes of its requests.
This rule judges what the member allows and tells, at each moment:

- It allows no deliveries beyond a session after it sent its last accepted heartbeat, none after the
  coordinator removed it for missing a deadline, none outside its last assignment, and none after a
  response that ends its membership. A paused process delivers nothing.
- While a report of its partitions is under way, it owns no partition outside the report.
- After a heartbeat was accepted, the next one follows within the interval, unless the connection is
  lost. It follows at once if the subscription has changed meanwhile.
- The stored subscription is the one that the user had when the accepted heartbeat was sent.
- After UNKNOWN_MEMBER_ID or FENCED_MEMBER_EPOCH the next heartbeat joins.
- A member that leaves sends a heartbeat with the epoch for a leave for a while, or for good.

The stored subscription and removals are not compared for members whose requests arrived late or
from a rogue client.
"""

from __future__ import annotations

from typing import Final

from partage.lab.checkers.consumer_group_log import LoggedPartition
from partage.lab.checkers.consumer_group_states import ConsumerGroupStates
from partage.lab.history import (
    History,
    MemberAssignmentReceived,
    MemberDisconnected,
    MemberExpired,
    MemberHeartbeatAnswered,
    MemberHeartbeatSent,
    MemberLeaveRequested,
    MemberLeft,
    MemberMayDeliver,
    MemberOwnershipChanged,
    RequestReceived,
    ResponseSent,
    RuleViolationError,
    StallEnded,
)
from partage.lab.names import CONSUMER_GROUP, ROGUE_MEMBER
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings
from partage.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

#: Errors after which a member is still in the group, as far as it knows.
_RETRIABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_REMOVED: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
_NOTHING: Final[frozenset[LoggedPartition]] = frozenset()


class _Process:
    """The known state of one process."""

    def __init__(self) -> None:
        self.member_id = ""
        self.allowed = _NOTHING  # the partitions that it may deliver
        self.until_ms: int | None = None  # the end of the session that it may rely on
        self.assigned = _NOTHING  # the last assignment that it received
        self.owned = _NOTHING
        self.in_flight: MemberHeartbeatSent | None = None
        self.is_accepted = False  # the last heartbeat
        self.error = ErrorCode.NONE  # of the last heartbeat
        self.next_ms: int | None = None  # the latest time of the next heartbeat
        self.wanted_leave: int | None = None  # the epoch of the leave that its user requested


class ConsumerMembersChecker:
    """Follows what each process with a member allows, owns, sends and receives."""

    def __init__(
        self, history: History, states: ConsumerGroupStates, settings: GroupSettings
    ) -> None:
        self._states = states
        self._session_ms = settings.consumer.session_timeout_ms
        self._interval_ms = settings.consumer.heartbeat_interval_ms
        self._rebalance_ms: dict[str, int] = {}  # the rebalance timeout of each client
        self._processes: dict[str, _Process] = {}
        self._expired: dict[str, MemberExpired] = {}
        self._impersonated: set[str] = set()
        self._connections: dict[str, int] = {}  # the newest of each client
        history.subscribe(RequestReceived, self._on_request)
        history.subscribe(ResponseSent, self._on_response)
        history.subscribe(MemberExpired, self._on_expired)
        history.subscribe(StallEnded, self._on_stall)
        history.subscribe(MemberAssignmentReceived, self._on_received)
        history.subscribe(MemberHeartbeatSent, self._on_sent)
        history.subscribe(MemberHeartbeatAnswered, self._on_answered)
        history.subscribe(MemberDisconnected, self._on_disconnected)
        history.subscribe(MemberMayDeliver, self._on_allowed)
        history.subscribe(MemberOwnershipChanged, self._on_owned)
        history.subscribe(MemberLeaveRequested, self._on_leave_requested)
        history.subscribe(MemberLeft, self._on_left)

    def _of(self, name: str) -> _Process:
        return self._processes.setdefault(name, _Process())

    # The coordinator

    def _on_request(self, entry: RequestReceived) -> None:
        request = entry.message
        if not isinstance(request, ConsumerGroupHeartbeatRequest):
            return
        newest = self._connections.get(entry.client, -1)
        self._connections[entry.client] = max(entry.connection, newest)
        if entry.connection < newest or entry.client == ROGUE_MEMBER:
            self._impersonated.add(request.member_id)
        if request.rebalance_timeout_ms != -1:
            self._rebalance_ms[entry.client] = request.rebalance_timeout_ms

    def _on_response(self, entry: ResponseSent) -> None:
        request = entry.request.message
        is_accepted = not getattr(entry.message, "error_code", 0)
        if isinstance(request, ConsumerGroupHeartbeatRequest) and is_accepted:
            self._expired.pop(request.member_id, None)

    def _on_expired(self, entry: MemberExpired) -> None:
        if entry.group_id == CONSUMER_GROUP:
            self._expired[entry.member_id] = entry

    def _on_stall(self, entry: StallEnded) -> None:
        """Let all processes be paused from the beginning of a stall until their next event."""
        if entry.broker is None:
            for name, process in self._processes.items():
                self._check_allowed(name, process, entry.began_ms)
                process.allowed, process.next_ms = _NOTHING, None

    # What a process allows

    def _on_allowed(self, entry: MemberMayDeliver) -> None:
        process = self._of(entry.process)
        self._check_allowed(entry.process, process, entry.at_ms)
        process.member_id = entry.member_id
        process.allowed = frozenset(entry.partitions)
        if entry.is_paused:
            process.next_ms = None
        if foreign := process.allowed - process.assigned:
            _break(f"{entry.process} allows {_text(foreign)}, which it must give up")
        if process.allowed and process.error and process.error not in _RETRIABLE:
            _break(f"{entry.process} allows {_text(process.allowed)} after {process.error.name}")

    def _check_allowed(self, name: str, process: _Process, at_ms: int) -> None:
        """Check what a process has allowed until now."""
        if not process.allowed:
            return
        if process.until_ms is not None and at_ms > process.until_ms:
            _break(f"{name} relies on its session for {at_ms - process.until_ms} ms too long")
        expired = self._expired.get(process.member_id)
        is_known = process.member_id not in self._impersonated
        if expired is not None and is_known and at_ms > expired.at_ms:
            late_ms = at_ms - expired.at_ms
            _break(f"{name} allows deliveries {late_ms} ms after its removal: {expired.reason}")

    # What it owns and reports

    def _on_received(self, entry: MemberAssignmentReceived) -> None:
        self._of(entry.process).assigned = frozenset(entry.partitions)

    def _on_owned(self, entry: MemberOwnershipChanged) -> None:
        process = self._of(entry.process)
        process.owned = frozenset(entry.partitions)
        self._check_report(entry.process, process)

    def _check_report(self, name: str, process: _Process) -> None:
        sent = process.in_flight
        if sent is None or sent.owned is None:
            return
        if hidden := process.owned - frozenset(sent.owned):
            _break(f"{name} owns {_text(hidden)}, which its report under way lacks")

    # Heartbeats

    def _on_sent(self, entry: MemberHeartbeatSent) -> None:
        name, process = entry.process, self._of(entry.process)
        if entry.epoch < 0:
            if process.wanted_leave is not None and entry.epoch != process.wanted_leave:
                _break(f"{name} leaves with epoch {entry.epoch} and not {process.wanted_leave}")
            process.is_accepted, process.in_flight, process.next_ms = False, None, None
            return
        if process.error in _REMOVED and entry.epoch > 0:
            _break(f"{name} sends epoch {entry.epoch} after {process.error.name}")
        if process.next_ms is not None and entry.at_ms > process.next_ms and entry.epoch > 0:
            _break(f"{name} sends a heartbeat {entry.at_ms - process.next_ms} ms too late")
        if entry.epoch == 0:
            process.wanted_leave = None
        process.in_flight, process.next_ms, process.is_accepted = entry, None, False
        self._check_report(name, process)

    def _on_answered(self, entry: MemberHeartbeatAnswered) -> None:
        process = self._of(entry.process)
        sent = process.in_flight
        if sent is None or sent.serial != entry.serial:
            return
        process.in_flight = None
        process.error = ErrorCode(entry.error_code)
        process.is_accepted = process.error is ErrorCode.NONE
        if not process.is_accepted:
            return
        self._check_allowed(entry.process, process, entry.at_ms)
        process.member_id = entry.member_id
        until_ms = sent.at_ms + self._session_ms
        process.until_ms = max(process.until_ms or until_ms, until_ms)
        process.next_ms = self._next_heartbeat_ms(entry, sent)
        self._check_subscription(entry, sent)

    def _on_disconnected(self, entry: MemberDisconnected) -> None:
        self._of(entry.process).next_ms = None  # it backs off first

    def _next_heartbeat_ms(self, entry: MemberHeartbeatAnswered, sent: MemberHeartbeatSent) -> int:
        if (entry.topics, entry.regex) != (sent.topics, sent.regex):
            return entry.at_ms
        rebalance_ms = self._rebalance_ms.get(entry.process, self._session_ms)
        interval_ms = min(self._interval_ms, min(self._session_ms, rebalance_ms) // 3)
        return max(entry.at_ms, sent.at_ms + interval_ms)

    def _check_subscription(
        self, entry: MemberHeartbeatAnswered, sent: MemberHeartbeatSent
    ) -> None:
        stored = self._states.durable[-1].stored_members().get(entry.member_id)
        if stored is None or stored.is_classic or entry.member_id in self._impersonated:
            return
        if (stored.topics, stored.regex) != (sent.topics, sent.regex):
            _break(f"{entry.process} subscribes to {sent.topics} {sent.regex}, stored is {stored}")

    # Leaves

    def _on_leave_requested(self, entry: MemberLeaveRequested) -> None:
        process = self._of(entry.process)
        if process.wanted_leave is None:
            process.wanted_leave = entry.epoch

    def _on_left(self, entry: MemberLeft) -> None:
        process = self._of(entry.process)
        if process.is_accepted and entry.has_coordinator:
            _break(f"{entry.process} has left without a request")
        process.is_accepted, process.wanted_leave, process.next_ms = False, None, None


def _text(partitions: frozenset[LoggedPartition]) -> str:
    return " ".join(f"{topic_id.hex()[:4]}-{index}" for topic_id, index in sorted(partitions))


def _break(description: str) -> None:
    raise RuleViolationError("consumer-member", description)

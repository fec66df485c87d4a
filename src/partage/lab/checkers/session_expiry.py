"""Rule ``session-expiry``: no live member is expired.

- A member whose heartbeat, commit, join or sync was accepted within its session timeout is not
  expired.
- The same holds if its heartbeat reached the broker's machine in time: a pause of the broker does
  not count against members.
- After a pause, members may have paused too. A member whose session ended meanwhile gets as much
  extra time as the broker was late, up to 10 s.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from partage.coordinator.outcome import SESSION_EXPIRED_REASON
from partage.coordinator.records import GroupRecord, GroupTombstone
from partage.lab.checkers.ledger import Ledger
from partage.lab.history import (
    History,
    MemberExpired,
    RecordsAppended,
    RequestReceived,
    ResponseSent,
    RuleViolationError,
    ShardLoaded,
    StallEnded,
)
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings
from partage.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from partage.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from partage.wire.apis.offset_commit import OffsetCommitResponse
from partage.wire.apis.sync_group import SyncGroupResponse

_LATE_MS: Final = 200  # lateness that needs no pause
_GRACE_MAX_MS: Final = 10_000
_Place = tuple[str, str]


class _Stall(NamedTuple):
    """A pause, and the end of the grace period after earlier pauses."""

    began_ms: int
    ended_ms: int
    earlier_grace_until_ms: int


class SessionExpiryChecker:
    """Tracks each member's last sign of life and its session timeout."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._ledger = ledger
        self._sessions: dict[_Place, int] = {}
        self._alive_ms: dict[_Place, int] = {}
        # time of the last response, from which the session counts
        self._last_response_ms: dict[_Place, int] = {}
        # the last pause of each broker, and of the machine (None)
        self._stalls: dict[int | None, _Stall] = {}
        self._grace_until_ms = 0
        self._generation_begins: dict[
            str, tuple[int, int]
        ] = {}  # generation and start time of each group
        ledger.on_appended(self._write)
        # sessions start again when a broker loads their shard
        self._loaded_ms: dict[tuple[int, int], int] = {}
        self._expired: dict[_Place, MemberExpired] = {}
        history.subscribe(RequestReceived, self._on_request)
        history.subscribe(ResponseSent, self._on_response)
        history.subscribe(MemberExpired, self._on_expired)
        history.subscribe(StallEnded, self._on_stall)
        history.subscribe(ShardLoaded, self._load)

    def _on_stall(self, entry: StallEnded) -> None:
        stall = _Stall(entry.began_ms, entry.at_ms, self._grace_until_ms)
        self._stalls[entry.broker] = stall
        grace_ms = min(entry.at_ms - entry.began_ms, _GRACE_MAX_MS)
        self._grace_until_ms = max(self._grace_until_ms, entry.at_ms + grace_ms)

    def _write(self, entry: RecordsAppended) -> None:
        for record in entry.records:
            if isinstance(record, GroupTombstone):  # an upgrade starts all sessions again
                self._generation_begins[record.group_id] = (-1, entry.at_ms)
            if isinstance(record, GroupRecord) and record.awaiting_sync:
                self._generation_begins[record.group_id] = (record.generation, entry.at_ms)

    def _load(self, entry: ShardLoaded) -> None:
        self._loaded_ms[entry.broker, entry.shard] = entry.at_ms

    def _on_response(self, entry: ResponseSent) -> None:
        asked: Any = entry.request.message
        match entry.message:
            case JoinGroupResponse(error_code=0) as message:
                assert isinstance(asked, JoinGroupRequest)
                place = (asked.group_id, message.member_id)
                self._sessions[place] = asked.session_timeout_ms
                self._expired.pop(place, None)
                self._record_life(place, entry)
                # The session does not count while the join is parked.
                generation, generation_began_ms = self._generation_begins.get(
                    asked.group_id, (-1, 0)
                )
                if generation == message.generation_id:
                    self._alive_ms[place] = max(generation_began_ms, entry.request.at_ms)
            case SyncGroupResponse(error_code=code):
                if code == ErrorCode.NONE:
                    self._record_life((asked.group_id, asked.member_id), entry)
                else:  # a known member's session was extended
                    self._last_response_ms[asked.group_id, asked.member_id] = entry.at_ms
            case HeartbeatResponse(error_code=code):
                if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
                    self._record_life((asked.group_id, asked.member_id), entry)
            case OffsetCommitResponse(topics=topics):
                place = (asked.group_id, asked.member_id)
                self._last_response_ms[place] = entry.at_ms  # whatever the result
                # in a consumer group, commits are no sign of life
                is_classic = self._ledger.is_classic_since(asked.group_id, entry.request.at_ms)
                if is_classic and any(
                    not result.error_code for topic in topics for result in topic.partitions
                ):
                    self._record_life(place, entry)

    def _record_life(self, place: _Place, entry: ResponseSent) -> None:
        self._alive_ms[place] = entry.request.at_ms
        self._last_response_ms[place] = entry.at_ms

    def _on_expired(self, entry: MemberExpired) -> None:
        place = (entry.group_id, entry.member_id)
        session_ms = self._sessions.get(place)
        if entry.reason != SESSION_EXPIRED_REASON or session_ms is None:
            return
        self._expired[place] = entry
        if entry.at_ms - self._alive_ms.get(place, 0) < session_ms:
            silent_ms = entry.at_ms - self._alive_ms[place]
            raise RuleViolationError(
                "session-expiry", f"{place} was expired after {silent_ms} of {session_ms} ms"
            )
        # The end of the session is known only within bounds: a response may have been delayed.
        shard = self._ledger.shard_of(entry.group_id)
        loaded_ms = self._loaded_ms.get((entry.broker, shard), 0)
        earliest_ms = max(self._alive_ms.get(place, 0), loaded_ms) + session_ms
        _, generation_began_ms = self._generation_begins.get(entry.group_id, (-1, 0))
        due_ms = (
            max(self._last_response_ms.get(place, 0), loaded_ms, generation_began_ms) + session_ms
        )
        for stall in (self._stalls.get(None), self._stalls.get(entry.broker)):
            if stall is not None and stall.began_ms <= earliest_ms:
                _check_grace(place, entry, stall, due_ms)

    def _on_request(self, entry: RequestReceived) -> None:
        message = entry.message
        if not isinstance(message, HeartbeatRequest):
            return
        place = (message.group_id, message.member_id)
        expired = self._expired.get(place)
        if expired is None or expired.broker != entry.broker:
            return
        expired_ms = expired.at_ms
        if entry.arrived_ms >= expired_ms:
            return
        if expired_ms - entry.arrived_ms < self._sessions[place]:
            raise RuleViolationError(
                "session-expiry",
                f"{place} was expired while its heartbeat of "
                f"{expired_ms - entry.arrived_ms} ms before was unread",
            )


def _check_grace(place: _Place, entry: MemberExpired, stall: _Stall, due_ms: int) -> None:
    late_ms = stall.ended_ms - max(due_ms, stall.earlier_grace_until_ms)
    grace_ms = entry.at_ms - stall.ended_ms
    if late_ms > _LATE_MS and grace_ms < min(late_ms, _GRACE_MAX_MS):
        raise RuleViolationError(
            "session-expiry",
            f"{place} was expired {grace_ms} ms after a pause that ended {late_ms} ms late",
        )

"""Rule ``expiry``: no live member is expired.

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
from partage.coordinator.records import GroupRecord
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
_RESTS_MAX_MS: Final = 10_000
_Place = tuple[str, str]


class _Stall(NamedTuple):
    """A pause, and the end of the grace period after earlier pauses."""

    since_ms: int
    until_ms: int
    rested_ms: int


class SessionExpiryChecker:
    """Tracks each member's last sign of life and its session timeout."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._sessions: dict[_Place, int] = {}
        self._alive_ms: dict[_Place, int] = {}
        # time of the last response, from which the session counts
        self._heard_ms: dict[_Place, int] = {}
        # the last pause of each broker, and of the machine (None)
        self._stills: dict[int | None, _Stall] = {}
        self._rests_until_ms = 0
        self._begun: dict[str, tuple[int, int]] = {}  # generation and start time of each group
        ledger.on_appended(self._write)
        self._loaded_ms = 0  # sessions start again at a load
        self._expired: dict[_Place, MemberExpired] = {}
        history.subscribe(RequestReceived, self._ask)
        history.subscribe(ResponseSent, self._answer)
        history.subscribe(MemberExpired, self._expire)
        history.subscribe(StallEnded, self._stand_still)
        history.subscribe(ShardLoaded, self._load)

    def _stand_still(self, entry: StallEnded) -> None:
        still = _Stall(entry.began_ms, entry.at_ms, self._rests_until_ms)
        self._stills[entry.broker] = still
        rests_ms = min(entry.at_ms - entry.began_ms, _RESTS_MAX_MS)
        self._rests_until_ms = max(self._rests_until_ms, entry.at_ms + rests_ms)

    def _write(self, entry: RecordsAppended) -> None:
        for record in entry.records:
            if isinstance(record, GroupRecord) and record.awaiting_sync:
                self._begun[record.group_id] = (record.generation, entry.at_ms)

    def _load(self, entry: ShardLoaded) -> None:
        self._loaded_ms = entry.at_ms

    def _answer(self, entry: ResponseSent) -> None:
        asked: Any = entry.request.message
        match entry.message:
            case JoinGroupResponse(error_code=0) as message:
                assert isinstance(asked, JoinGroupRequest)
                place = (asked.group_id, message.member_id)
                self._sessions[place] = asked.session_timeout_ms
                self._expired.pop(place, None)
                self._live(place, entry)
                # The session does not count while the join is parked.
                generation, begun_ms = self._begun.get(asked.group_id, (-1, 0))
                if generation == message.generation_id:
                    self._alive_ms[place] = max(begun_ms, entry.request.at_ms)
            case SyncGroupResponse(error_code=code):
                if code == ErrorCode.NONE:
                    self._live((asked.group_id, asked.member_id), entry)
                else:  # a known member's session was extended
                    self._heard_ms[asked.group_id, asked.member_id] = entry.at_ms
            case HeartbeatResponse(error_code=code):
                if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
                    self._live((asked.group_id, asked.member_id), entry)
            case OffsetCommitResponse(topics=topics):
                place = (asked.group_id, asked.member_id)
                self._heard_ms[place] = entry.at_ms  # whatever the result
                if any(not result.error_code for topic in topics for result in topic.partitions):
                    self._live(place, entry)

    def _live(self, place: _Place, entry: ResponseSent) -> None:
        self._alive_ms[place] = entry.request.at_ms
        self._heard_ms[place] = entry.at_ms

    def _expire(self, entry: MemberExpired) -> None:
        place = (entry.group_id, entry.member_id)
        session_ms = self._sessions.get(place)
        if entry.reason != SESSION_EXPIRED_REASON or session_ms is None:
            return
        self._expired[place] = entry
        if entry.at_ms - self._alive_ms.get(place, 0) < session_ms:
            silent_ms = entry.at_ms - self._alive_ms[place]
            raise RuleViolationError(
                "expiry", f"{place} was expired after {silent_ms} of {session_ms} ms"
            )
        # The end of the session is known only within bounds: a response may have been delayed.
        earliest_ms = max(self._alive_ms.get(place, 0), self._loaded_ms) + session_ms
        _, begun_ms = self._begun.get(entry.group_id, (-1, 0))
        due_ms = max(self._heard_ms.get(place, 0), self._loaded_ms, begun_ms) + session_ms
        for still in (self._stills.get(None), self._stills.get(entry.broker)):
            if still is not None and still.since_ms <= earliest_ms:
                _judge_rest(place, entry, still, due_ms)

    def _ask(self, entry: RequestReceived) -> None:
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
                "expiry",
                f"{place} was expired while its heartbeat of "
                f"{expired_ms - entry.arrived_ms} ms before was unread",
            )


def _judge_rest(place: _Place, entry: MemberExpired, still: _Stall, due_ms: int) -> None:
    late_ms = still.until_ms - max(due_ms, still.rested_ms)
    rested_ms = entry.at_ms - still.until_ms
    if late_ms > _LATE_MS and rested_ms < min(late_ms, _RESTS_MAX_MS):
        raise RuleViolationError(
            "expiry",
            f"{place} was expired {rested_ms} ms after a pause that ended {late_ms} ms late",
        )

"""``expiry``: nobody who is alive is taken for dead.

A member whose heartbeat, commit, join or sync was accepted within its session timeout is not
expired, and neither is one whose heartbeat had reached that broker's machine by then: that the
broker itself stood still counts against nobody.
"""

from __future__ import annotations

from typing import Any, Final

from partage.lab.checkers.ledger import Ledger
from partage.lab.history import Answered, Asked, Expired, History, Violation
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings
from partage.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from partage.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from partage.wire.apis.sync_group import SyncGroupResponse

_REASON: Final = "no heartbeat within its session timeout"
_Place = tuple[str, str]


class Expiry:
    """Remembers each member's last sign of life, and how long its session is."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._sessions: dict[_Place, int] = {}
        self._alive_ms: dict[_Place, int] = {}
        self._expired: dict[_Place, Expired] = {}
        history.listen(Asked, self._ask)
        history.listen(Answered, self._answer)
        history.listen(Expired, self._expire)

    def _answer(self, entry: Answered) -> None:
        asked: Any = entry.asked.message
        match entry.message:
            case JoinGroupResponse(error_code=0) as message:
                assert isinstance(asked, JoinGroupRequest)
                place = (asked.group_id, message.member_id)
                self._sessions[place] = asked.session_timeout_ms
                self._expired.pop(place, None)
                self._alive_ms[place] = entry.asked.at_ms
            case SyncGroupResponse(error_code=0):
                self._alive_ms[asked.group_id, asked.member_id] = entry.asked.at_ms
            case HeartbeatResponse(error_code=code):
                if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
                    self._alive_ms[asked.group_id, asked.member_id] = entry.asked.at_ms

    def _expire(self, entry: Expired) -> None:
        place = (entry.group_id, entry.member_id)
        session_ms = self._sessions.get(place)
        if entry.reason != _REASON or session_ms is None:
            return
        self._expired[place] = entry
        if entry.at_ms - self._alive_ms.get(place, 0) < session_ms:
            silent_ms = entry.at_ms - self._alive_ms[place]
            raise Violation("expiry", f"{place} is expired after {silent_ms} of {session_ms} ms")

    def _ask(self, entry: Asked) -> None:
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
            raise Violation(
                "expiry",
                f"{place} is expired while its heartbeat of "
                f"{expired_ms - entry.arrived_ms} ms before lies unread",
            )

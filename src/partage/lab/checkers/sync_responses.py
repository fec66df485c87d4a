"""Rule ``sync-responses``: a member gets one assignment in each generation, as the leader sent it.

The assignment in a response is durable: in the group's newest record or in an earlier one. The
return of a static member stores the group again with another member id (KIP-345).
"""

from __future__ import annotations

from partage.coordinator.records import GroupRecord
from partage.lab.checkers.ledger import Ledger
from partage.lab.history import History, RequestReceived, ResponseSent, RuleViolationError
from partage.lab.offset_log import LogChange
from partage.model.settings import GroupSettings
from partage.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse

_Place = tuple[str, int, str]


class SyncResponsesChecker:
    """Tracks the assignments that leaders sent and members received."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._ledger = ledger
        self._sent: dict[_Place, list[dict[str, bytes]]] = {}
        self._received: dict[_Place, bytes] = {}
        self._stored: dict[_Place, bytes] = {}
        history.subscribe(RequestReceived, self._on_request)
        history.subscribe(ResponseSent, self._on_response)
        ledger.on_durable(self._store)
        ledger.on_assigned(self._assign)

    def _on_request(self, entry: RequestReceived) -> None:
        message = entry.message
        if isinstance(message, SyncGroupRequest):
            place = (message.group_id, message.generation_id, message.member_id)
            sent = {a.member_id: bytes(a.assignment) for a in message.assignments}
            self._sent.setdefault(place, []).append(sent)

    def _store(self, record: LogChange) -> None:
        if isinstance(record, GroupRecord) and not record.awaiting_sync:
            for m in record.members:
                self._stored[record.group_id, record.generation, m.member_id] = m.assignment

    def _assign(self, record: GroupRecord) -> None:
        leader = record.leader or ""
        sent = self._sent.get((record.group_id, record.generation, leader), [])
        stored = {m.member_id: m.assignment for m in record.members}
        if not any(
            all(one.get(member_id, b"") == share for member_id, share in stored.items())
            for one in sent
        ):
            raise RuleViolationError(
                "sync-responses", f"{stored} is not the assignment that {leader} sent"
            )

    def _on_response(self, entry: ResponseSent) -> None:
        message, asked = entry.message, entry.request.message
        if not isinstance(message, SyncGroupResponse) or message.error_code:
            return
        assert isinstance(asked, SyncGroupRequest)
        if not self._ledger.is_classic_since(asked.group_id, entry.request.at_ms):
            return
        place = (asked.group_id, asked.generation_id, asked.member_id)
        share = bytes(message.assignment)
        if self._received.setdefault(place, share) != share:
            raise RuleViolationError(
                "sync-responses", f"{place} received {self._received[place]!r}, then {share!r}"
            )
        if self._stored.get(place) != share:
            raise RuleViolationError(
                "sync-responses", f"{place} received {share!r}, which is not stored"
            )

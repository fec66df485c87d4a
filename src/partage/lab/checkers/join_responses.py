"""Rule ``join-responses``: a JoinGroup response shows a durable generation.

The leader gets all members, and a follower gets none. A dynamic member that does not join again is
in no later generation.
"""

from __future__ import annotations

from partage.coordinator.records import GroupRecord
from partage.lab.checkers.ledger import Ledger
from partage.lab.history import (
    History,
    RecordsAppended,
    RequestReceived,
    ResponseSent,
    RuleViolationError,
)
from partage.lab.names import GroupGeneration
from partage.lab.offset_log import LogChange
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings
from partage.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse


class JoinResponsesChecker:
    """Compares each successful JoinGroup response with the durable group."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._ledger = ledger
        self._saved: dict[GroupGeneration, list[GroupRecord]] = {}
        self._asked: dict[str, dict[str, int]] = {}
        self._members: dict[str, set[str]] = {}
        history.subscribe(ResponseSent, self._on_response)
        history.subscribe(RequestReceived, self._on_request)
        ledger.on_durable(self._store)
        ledger.on_appended(self._write)

    def _on_request(self, entry: RequestReceived) -> None:
        message = entry.message
        if isinstance(message, JoinGroupRequest):
            self._asked.setdefault(message.group_id, {})[message.member_id] = entry.at_ms

    def _write(self, entry: RecordsAppended) -> None:
        for record in entry.records:
            if isinstance(record, GroupRecord):
                self._check_members(record, entry.at_ms)

    def _check_members(self, record: GroupRecord, at_ms: int) -> None:
        """Check that all old dynamic members of a new generation joined again."""
        before = self._members.get(record.group_id, set())
        self._members[record.group_id] = {m.member_id for m in record.members}
        if not record.awaiting_sync:
            return
        joined = self._asked.pop(record.group_id, {})
        # Within one millisecond the order is unknown: these joins may be for the next generation.
        self._asked[record.group_id] = {who: ms for who, ms in joined.items() if ms == at_ms}
        for member in record.members:
            is_new = member.member_id not in before
            if not is_new and member.instance_id is None and member.member_id not in joined:
                raise RuleViolationError(
                    "join-responses", f"{member.member_id} did not join {record}"
                )

    def _store(self, record: LogChange) -> None:
        if isinstance(record, GroupRecord):
            generation = GroupGeneration(record.group_id, record.generation)
            self._saved.setdefault(generation, []).append(record)

    def _on_response(self, entry: ResponseSent) -> None:
        message, asked = entry.message, entry.request.message
        if not isinstance(message, JoinGroupResponse):
            return
        assert isinstance(asked, JoinGroupRequest)
        if message.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            if not message.member_id:
                raise RuleViolationError(
                    "join-responses", f"MEMBER_ID_REQUIRED without a member id for {asked}"
                )
            return
        if message.error_code:
            return
        if not self._ledger.is_classic_since(asked.group_id, entry.request.at_ms):
            return
        generation = GroupGeneration(asked.group_id, message.generation_id)
        saved = self._saved.get(generation, [])
        with_it = [s for s in saved if any(m.member_id == message.member_id for m in s.members)]
        if not with_it:
            raise RuleViolationError("join-responses", f"the generation is not durable: {message}")
        # A static member that returns with an old API version may get its predecessor as leader.
        is_back = asked.group_instance_id is not None and not asked.member_id
        if not is_back and not any(s.leader == message.leader for s in with_it):
            raise RuleViolationError(
                "join-responses", f"the leader differs: {message}, stored {with_it[-1]}"
            )
        if message.protocol_name != with_it[-1].protocol:
            raise RuleViolationError(
                "join-responses", f"the protocol differs: {message}, stored {with_it[-1]}"
            )
        self._judge_members(message, with_it)

    def _judge_members(self, message: JoinGroupResponse, saved: list[GroupRecord]) -> None:
        received = [(m.member_id, bytes(m.metadata)) for m in message.members]
        if message.leader != message.member_id:
            if received:
                raise RuleViolationError(
                    "join-responses", f"a follower received the members: {message}"
                )
            return
        if received not in [[(m.member_id, m.subscription) for m in s.members] for s in saved]:
            raise RuleViolationError(
                "join-responses",
                f"the leader received {received}, which are not the members of {saved[-1]}",
            )

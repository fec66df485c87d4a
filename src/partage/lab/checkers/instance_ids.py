"""Rule ``instance-ids``: only the latest member with an instance id is valid.

Earlier members with this id are fenced. After its successor received a response, a replaced member
must not succeed with a Heartbeat, SyncGroup, JoinGroup, OffsetCommit or LeaveGroup. A commit
without a generation belongs to no member, whatever member id it has; rule ``generation-fence``
checks it.
"""

from __future__ import annotations

from typing import Any

from partage.lab.checkers.ledger import Ledger
from partage.lab.history import History, ResponseSent, RuleViolationError
from partage.model.settings import GroupSettings
from partage.wire.apis.heartbeat import HeartbeatResponse
from partage.wire.apis.join_group import JoinGroupResponse
from partage.wire.apis.leave_group import LeaveGroupResponse
from partage.wire.apis.offset_commit import OffsetCommitResponse
from partage.wire.apis.sync_group import SyncGroupResponse


class InstanceIdsChecker:
    """Tracks the member of each instance id, and when earlier members were fenced."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._holders: dict[tuple[str, str], str] = {}
        self._fenced: dict[tuple[str, str], int] = {}
        history.subscribe(ResponseSent, self._on_response)

    def _on_response(self, entry: ResponseSent) -> None:
        asked: Any = entry.request.message
        match entry.message:
            case JoinGroupResponse(error_code=0) as message:
                self._judge(asked.group_id, message.member_id, entry)
                if asked.group_instance_id is not None:
                    self._hold(asked.group_id, asked.group_instance_id, message.member_id, entry)
            case SyncGroupResponse(error_code=0):
                self._judge(asked.group_id, asked.member_id, entry)
            case HeartbeatResponse(error_code=0) if entry.request.is_loaded:
                self._judge(asked.group_id, asked.member_id, entry)
            case OffsetCommitResponse() as message if asked.generation_id_or_member_epoch >= 0:
                if any(not p.error_code for topic in message.topics for p in topic.partitions):
                    self._judge(asked.group_id, asked.member_id, entry)

            case LeaveGroupResponse(error_code=0, members=results):
                for named, result in zip(asked.members, results, strict=True):
                    if named.group_instance_id and named.member_id and not result.error_code:
                        self._judge(asked.group_id, named.member_id, entry)

    def _hold(self, group_id: str, instance_id: str, member_id: str, entry: ResponseSent) -> None:
        before = self._holders.get((group_id, instance_id))
        self._holders[group_id, instance_id] = member_id
        if before is not None and before != member_id:
            self._fenced[group_id, before] = entry.at_ms

    def _judge(self, group_id: str, member_id: str, entry: ResponseSent) -> None:
        since_ms = self._fenced.get((group_id, member_id))
        if since_ms is not None and entry.request.at_ms > since_ms:
            raise RuleViolationError(
                "instance-ids",
                f"{member_id} was replaced, but its request was accepted: {entry.request}",
            )

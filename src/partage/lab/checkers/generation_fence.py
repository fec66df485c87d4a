"""Rule ``generation-fence``: heartbeats and commits are accepted only from members of the current
generation.

- A commit without a generation is accepted only into a group without members.
- A commit in a transaction is accepted without a generation, or from a member of the current one
  (KIP-447).
- A member of the current generation never gets ILLEGAL_GENERATION.
- A member without an instance id never gets FENCED_INSTANCE_ID.

UNKNOWN_MEMBER_ID is not checked: a removal is not stored at once. The group with the consumer
protocol has separate rules (`consumer_epochs`, `consumer_commits`), except while it is a classic
group.
"""

from __future__ import annotations

from collections.abc import Set

from partage.coordinator.records import GroupRecord
from partage.lab.checkers.ledger import Ledger
from partage.lab.history import History, RequestReceived, ResponseSent, RuleViolationError
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings
from partage.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from partage.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from partage.wire.apis.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse


class GenerationFenceChecker:
    """Compares accepted requests with the stored members."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._ledger = ledger
        self._marks: dict[int, int] = {}
        history.subscribe(RequestReceived, self._on_request)
        history.subscribe(ResponseSent, self._on_response)

    def _on_request(self, entry: RequestReceived) -> None:
        message = entry.message
        if isinstance(message, HeartbeatRequest | OffsetCommitRequest | TxnOffsetCommitRequest):
            self._marks[entry.serial] = self._ledger.version_count(message.group_id)

    def _on_response(self, entry: ResponseSent) -> None:
        message, asked = entry.message, entry.request.message
        if entry.request.serial not in self._marks:
            return
        group_id = getattr(asked, "group_id", "")
        if not self._ledger.is_classic_since(group_id, entry.request.at_ms):
            del self._marks[entry.request.serial]
            return
        match asked, message:
            case HeartbeatRequest(), HeartbeatResponse():
                mark = self._marks.pop(entry.request.serial)
                # While it loads, the broker accepts all heartbeats. Sessions start after the load.
                if entry.request.is_loaded:
                    if message.error_code == ErrorCode.NONE:
                        generation = asked.generation_id
                        self._expect_member(asked.group_id, generation, asked.member_id, mark)
                    self._judge_refusal(asked, asked.generation_id, {message.error_code}, mark)
            case OffsetCommitRequest(), OffsetCommitResponse():
                mark = self._marks.pop(entry.request.serial)
                codes = {p.error_code for topic in message.topics for p in topic.partitions}
                if ErrorCode.NONE in codes:
                    _expect_loaded(entry.request)
                    self._judge_commit(asked, mark)
                if entry.request.is_loaded:
                    self._judge_refusal(asked, asked.generation_id_or_member_epoch, codes, mark)
            case TxnOffsetCommitRequest(), TxnOffsetCommitResponse():
                mark = self._marks.pop(entry.request.serial)
                codes = {p.error_code for topic in message.topics for p in topic.partitions}
                if ErrorCode.NONE in codes:
                    _expect_loaded(entry.request)
                    if asked.generation_id >= 0:
                        generation = asked.generation_id
                        self._expect_member(asked.group_id, generation, asked.member_id, mark)
                if entry.request.is_loaded:
                    self._judge_refusal(asked, asked.generation_id, codes, mark)

    def _judge_commit(self, asked: OffsetCommitRequest, mark: int) -> None:
        generation = asked.generation_id_or_member_epoch
        groups = self._ledger.versions_since(asked.group_id, mark)
        if generation >= 0:
            self._expect_member(asked.group_id, generation, asked.member_id, mark)
        elif groups and all(g is not None and g.members for g in groups):
            raise RuleViolationError(
                "generation-fence", f"{asked} was accepted into a group with members"
            )

    def _judge_refusal(
        self,
        asked: HeartbeatRequest | OffsetCommitRequest | TxnOffsetCommitRequest,
        generation: int,
        codes: Set[int],
        mark: int,
    ) -> None:
        """Check the errors: ILLEGAL_GENERATION and FENCED_INSTANCE_ID."""
        groups = self._ledger.versions_since(asked.group_id, mark)
        if ErrorCode.ILLEGAL_GENERATION in codes and all(
            group is not None and _has(group, generation, asked.member_id) for group in groups
        ):
            raise RuleViolationError(
                "generation-fence", f"{asked} was rejected with ILLEGAL_GENERATION by {groups[-1]}"
            )
        if ErrorCode.FENCED_INSTANCE_ID in codes and asked.group_instance_id is None:
            raise RuleViolationError(
                "generation-fence", f"{asked} was fenced, but has no instance id"
            )

    def _expect_member(self, group_id: str, generation: int, member_id: str, mark: int) -> None:
        for group in self._ledger.versions_since(group_id, mark):
            if group is not None and _has(group, generation, member_id):
                return
        latest = self._ledger.latest(group_id)
        raise RuleViolationError(
            "generation-fence", f"{member_id} of generation {generation} was accepted into {latest}"
        )


def _expect_loaded(request: RequestReceived) -> None:
    if not request.is_loaded:
        raise RuleViolationError(
            "generation-fence", f"accepted while the shard was not loaded: {request.message}"
        )


def _has(group: GroupRecord, generation: int, member_id: str) -> bool:
    return group.generation == generation and member_id in [m.member_id for m in group.members]

"""``fencing``: heartbeats and commits are accepted from members of the generation, and no others.

A commit that names no generation counts where the group has no members. A refusal names a reason
that is true: a member of the present generation is not told that it is none.
"""

from __future__ import annotations

from partage.coordinator.records import GroupSaved
from partage.lab.checkers.ledger import Ledger
from partage.lab.history import Answered, Asked, History, Violation
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings
from partage.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from partage.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse


class Fencing:
    """Compares who is accepted with who is stored."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._ledger = ledger
        self._marks: dict[int, int] = {}
        history.listen(Asked, self._ask)
        history.listen(Answered, self._answer)

    def _ask(self, entry: Asked) -> None:
        message = entry.message
        if isinstance(message, HeartbeatRequest | OffsetCommitRequest):
            self._marks[entry.serial] = self._ledger.mark(message.group_id)

    def _answer(self, entry: Answered) -> None:
        message, asked = entry.message, entry.asked.message
        match asked, message:
            case HeartbeatRequest(), HeartbeatResponse():
                mark = self._marks.pop(entry.asked.serial)
                # While it loads the broker says that all is well, and counts sessions from then on.
                if entry.asked.is_loaded and message.error_code == ErrorCode.NONE:
                    self._expect_member(asked.group_id, asked.generation_id, asked.member_id, mark)
            case OffsetCommitRequest(), OffsetCommitResponse():
                mark = self._marks.pop(entry.asked.serial)
                codes = [p.error_code for topic in message.topics for p in topic.partitions]
                if ErrorCode.NONE in codes:
                    if not entry.asked.is_loaded:
                        raise Violation("fencing", f"accepted while nothing was loaded: {asked}")
                    self._judge_commit(asked, mark)

    def _judge_commit(self, asked: OffsetCommitRequest, mark: int) -> None:
        generation = asked.generation_id_or_member_epoch
        groups = self._ledger.since(asked.group_id, mark)
        if generation >= 0:
            self._expect_member(asked.group_id, generation, asked.member_id, mark)
        elif groups and all(g is not None and g.members for g in groups):
            raise Violation("fencing", f"{asked} was accepted into a group with members")

    def _expect_member(self, group_id: str, generation: int, member_id: str, mark: int) -> None:
        for group in self._ledger.since(group_id, mark):
            if group is not None and _has(group, generation, member_id):
                return
        latest = self._ledger.latest(group_id)
        raise Violation(
            "fencing", f"{member_id} of generation {generation} was accepted into {latest}"
        )


def _has(group: GroupSaved, generation: int, member_id: str) -> bool:
    return group.generation == generation and member_id in [m.member_id for m in group.members]

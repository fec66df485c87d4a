"""``commits``: committed offsets are durable, change by commits alone, and come from somewhere.

A partition of an OffsetCommit is answered with no error exactly if it is stored. What was
acknowledged, or something later, is what every OffsetFetch after it shows; none shows what a crash
could still take back, or a value that nobody committed. Offsets go only when somebody deletes them
or their topic, or their retention is over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from partage.coordinator.records import GroupSaved, OffsetCommitted, OffsetRemoved, Record
from partage.lab.checkers.ledger import Ledger
from partage.lab.history import Answered, Asked, History, TopicGone, Violation, Written
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings
from partage.wire.apis.delete_groups import DeleteGroupsRequest
from partage.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from partage.wire.apis.offset_delete import OffsetDeleteRequest
from partage.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from partage.wire.consumer_protocol import decode_subscription

_Key = tuple[str, str, int]
_Value = tuple[int, str]
#: Refusals after which nothing may be stored; after others it may be, and nobody knows.
_REFUSED: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)


class Commits:
    """Remembers every offset that was stored, and which of them were acknowledged."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._ledger = ledger
        self._retention_ms = settings.offsets_retention_ms
        self._stored: dict[_Key, list[OffsetCommitted | None]] = defaultdict(list)
        self._written: dict[_Key, list[OffsetCommitted]] = defaultdict(list)
        self._acknowledged: dict[_Key, int] = {}
        self._floors: dict[int, dict[_Key, int]] = {}
        self._asked: dict[int, list[OffsetCommitRequest]] = defaultdict(list)
        self._deleted_ms = -1
        self._gone_ms: dict[str, int] = {}  # topics, and when they were deleted last
        history.listen(Asked, self._ask)
        history.listen(Answered, self._answer)
        history.listen(TopicGone, self._go)
        ledger.when_stored(self._store)
        ledger.when_written(self._write)
        ledger.when_lost(self._lose)

    def _ask(self, entry: Asked) -> None:
        match entry.message:
            case OffsetCommitRequest() as message:
                self._asked[entry.at_ms].append(message)
            case OffsetFetchRequest():
                self._floors[entry.serial] = dict(self._acknowledged)
            case OffsetDeleteRequest() | DeleteGroupsRequest():
                self._deleted_ms = entry.at_ms

    def _go(self, entry: TopicGone) -> None:
        self._gone_ms[entry.topic] = entry.at_ms

    def _write(self, entry: Written) -> None:
        for record in entry.records:
            if isinstance(record, OffsetCommitted):
                if not self._is_asked(record):
                    raise Violation("commits", f"nobody asked for {record}")
                key = (record.group_id, record.topic, record.partition)
                self._written[key].append(record)
            elif isinstance(record, OffsetRemoved):
                self._judge_removal(record, entry.at_ms)

    def _is_asked(self, record: OffsetCommitted) -> bool:
        wanted = (record.topic, record.partition, record.offset, record.metadata)
        return any(
            message.group_id == record.group_id and wanted in list(_offsets(message))
            for message in self._asked[record.commit_ms]
        )

    def _judge_removal(self, record: OffsetRemoved, at_ms: int) -> None:
        key = (record.group_id, record.topic, record.partition)
        last = self._written[key][-1] if self._written[key] else None
        if at_ms == self._deleted_ms or self._went_with_its_topic(key, last):
            return
        group = self._ledger.latest(record.group_id)
        if group is not None and not group.awaiting_sync and record.topic in _topics(group):
            raise Violation("commits", f"{last} went, and its group is at work on it")
        if last is None or at_ms - last.commit_ms < self._retention_ms:
            raise Violation("commits", f"{last} went before its time, and nobody deleted it")

    def _went_with_its_topic(self, key: _Key, last: OffsetCommitted | None) -> bool:
        """What is committed later stays, if that is acknowledged."""
        gone_ms = self._gone_ms.get(key[1])
        if last is None or gone_ms is None:
            return False
        at = self._acknowledged.get(key)
        is_acknowledged = at is not None and last in self._stored[key][at:]
        return last.commit_ms <= gone_ms or not is_acknowledged

    def _lose(self, record: Record) -> None:
        """What was written and is lost is not there to expire."""
        if isinstance(record, OffsetCommitted):
            self._written[record.group_id, record.topic, record.partition].remove(record)

    def _store(self, record: Record) -> None:
        match record:
            case OffsetCommitted():
                self._stored[record.group_id, record.topic, record.partition].append(record)
            case OffsetRemoved():
                self._stored[record.group_id, record.topic, record.partition].append(None)

    # Answers.

    def _answer(self, entry: Answered) -> None:
        match entry.asked.message, entry.message:
            case OffsetCommitRequest() as asked, OffsetCommitResponse() as message:
                codes = {
                    (topic.name, p.partition_index): p.error_code
                    for topic in message.topics
                    for p in topic.partitions
                }
                for topic, index, offset, metadata in _offsets(asked):
                    key, value = (asked.group_id, topic, index), (offset, metadata)
                    self._judge_answer(key, value, codes.get((topic, index)), entry.asked.at_ms)
            case OffsetFetchRequest() as fetched, OffsetFetchResponse() as shown:
                floors = self._floors.pop(entry.asked.serial)
                self._judge_fetch(fetched, shown, floors)

    def _judge_answer(self, key: _Key, value: _Value, code: int | None, at_ms: int) -> None:
        if code is None:
            raise Violation("commits", f"{key} was committed, and is not answered")
        if code == ErrorCode.NONE:
            at = self._last_index(key, value, at_ms)
            if at is None:
                raise Violation("commits", f"{key} {value} is acknowledged, and not durable")
            self._acknowledged[key] = max(at, self._acknowledged.get(key, 0))
        elif code in _REFUSED:
            same = [w for w in self._written[key] if w.commit_ms == at_ms]
            asked = [m for m in self._asked[at_ms] if m.group_id == key[0]]
            if len(asked) == 1 and any((w.offset, w.metadata) == value for w in same):
                raise Violation("commits", f"{key} {value} is refused with {code}, and stored")

    def _last_index(self, key: _Key, value: _Value, at_ms: int) -> int | None:
        stored = self._stored[key]
        for at in range(len(stored) - 1, -1, -1):
            kept = stored[at]
            if (
                kept is not None
                and kept.commit_ms == at_ms
                and (kept.offset, kept.metadata) == value
            ):
                return at
        return None

    def _judge_fetch(
        self,
        asked: OffsetFetchRequest,
        message: OffsetFetchResponse,
        floors: dict[_Key, int],
    ) -> None:
        results: list[tuple[str, Any]] = [
            (group.group_id, group.topics) for group in message.groups if not group.error_code
        ]
        if not message.groups and not message.error_code:
            results = [(asked.group_id, message.topics)]
        for group_id, topics in results:
            for topic in topics:
                for p in topic.partitions:
                    if not p.error_code:
                        key = (group_id, topic.name, p.partition_index)
                        shown = (p.committed_offset, p.metadata or "")
                        self._judge_shown(key, shown, floors.get(key))

    def _judge_shown(self, key: _Key, shown: _Value, floor: int | None) -> None:
        allowed = [
            (-1, "") if kept is None else (kept.offset, kept.metadata)
            for kept in self._stored[key][floor or 0 :]
        ]
        if shown == (-1, "") and floor is None:
            return
        if shown not in allowed:
            raise Violation("commits", f"{key} shows {shown}, which is none of {allowed[-5:]}")


def _topics(group: GroupSaved) -> set[str]:
    """What the members of a group subscribe to."""
    return {topic for m in group.members for topic in decode_subscription(m.subscription).topics}


def _offsets(message: OffsetCommitRequest) -> Iterator[tuple[str, int, int, str]]:
    for topic in message.topics:
        for p in topic.partitions:
            yield topic.name, p.partition_index, p.committed_offset, p.committed_metadata or ""

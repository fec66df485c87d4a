"""Rule ``commits``: committed offsets are durable and change only by commits, deletions and expiry.

- A partition of an OffsetCommit succeeds exactly if its offset is stored.
- Every OffsetFetch shows the acknowledged offset, or a later one. It never shows an offset that a
  crash can still lose, that no client committed, or that is older than one shown before.
- Offsets are removed when a client deletes them, their topic is deleted, or their retention
  expires, and at no other time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, Final

from partage.coordinator.records import (
    GroupRecord,
    GroupTombstone,
    OffsetRecord,
    OffsetTombstone,
)
from partage.lab.checkers.ledger import Ledger
from partage.lab.history import (
    BrokerDied,
    History,
    RecordsAppended,
    RequestReceived,
    ResponseSent,
    RuleViolationError,
    ShardAcquired,
    ShardResigned,
    TopicDeleted,
    TopicDeletionApplied,
)
from partage.lab.offset_log import LogChange, PendingOffset
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings
from partage.wire.apis.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from partage.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from partage.wire.apis.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from partage.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from partage.wire.apis.txn_offset_commit import TxnOffsetCommitRequest
from partage.wire.consumer_protocol import decode_subscription

_Key = tuple[str, str, int]
_Value = tuple[int, str]
_CommitRequest = OffsetCommitRequest | TxnOffsetCommitRequest
_NONE: Final = (-1, "")  # no committed offset
#: Errors that guarantee that nothing was stored. After other errors the offset may be stored.
_REFUSED: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class CommitsChecker:
    """Tracks every stored offset, and which of them were acknowledged."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._ledger = ledger
        self._retention_ms = settings.offsets_retention_ms
        self._stored: dict[_Key, list[OffsetRecord | None]] = defaultdict(list)
        self._written: dict[_Key, list[OffsetRecord]] = defaultdict(list)
        self._pending: set[_Key] = set()  # with an offset in a transaction so far
        self._acknowledged: dict[_Key, int] = {}
        self._floors: dict[int, dict[_Key, int]] = {}
        # by the time on the broker's clock, which the records have; with the time in the history
        self._asked: dict[int, list[tuple[int, _CommitRequest]]] = defaultdict(list)
        self._deleting = _DeletionRequests()
        self._gone_ms: dict[str, int] = {}  # time of the last deletion, by topic
        # by broker and topic: time of notification, time of deletion
        self._forgotten: dict[tuple[int, str], tuple[int, int]] = {}
        history.subscribe(RequestReceived, self._on_request)
        history.subscribe(ResponseSent, self._on_response)
        history.subscribe(TopicDeleted, self._go)
        history.subscribe(TopicDeletionApplied, self._forget)
        for kind in (BrokerDied, ShardResigned, ShardAcquired):
            history.subscribe(kind, self._change_hands)
        ledger.on_durable(self._store)
        ledger.on_appended(self._write)
        ledger.on_lost(self._lose)

    def _on_request(self, entry: RequestReceived) -> None:
        match entry.message:
            case OffsetCommitRequest() | TxnOffsetCommitRequest() as message:
                self._asked[entry.broker_ms].append((entry.at_ms, message))
            case OffsetFetchRequest():
                self._floors[entry.serial] = dict(self._acknowledged)
            case OffsetDeleteRequest() | DeleteGroupsRequest() as message:
                self._deleting.ask(entry.at_ms, message)

    def _go(self, entry: TopicDeleted) -> None:
        self._gone_ms[entry.topic] = entry.at_ms

    def _forget(self, entry: TopicDeletionApplied) -> None:
        gone_ms = self._gone_ms[entry.topic]
        self._forgotten[entry.broker, entry.topic] = (entry.at_ms, gone_ms)

    def _change_hands(self, entry: BrokerDied | ShardResigned | ShardAcquired) -> None:
        """Forget the notifications: the next owner may not know of earlier topic deletions."""
        self._forgotten.clear()

    def _write(self, entry: RecordsAppended) -> None:
        groups = (GroupRecord, GroupTombstone)
        later = Counter(each.group_id for each in entry.records if isinstance(each, groups))
        for record in entry.records:
            if isinstance(record, groups):
                later[record.group_id] -= 1
            elif isinstance(record, OffsetRecord):
                if self._asked_ms(record) is None:
                    raise RuleViolationError("commits", f"no request matches {record}")
                key = (record.group_id, record.topic, record.partition)
                self._written[key].append(record)
            elif isinstance(record, PendingOffset):
                self._write_pending(record)
            elif isinstance(record, OffsetTombstone):
                self._judge_removal(record, entry, later[record.group_id])

    def _write_pending(self, record: PendingOffset) -> None:
        offset = record.offset
        if offset is not None:
            self._pending.add((offset.group_id, offset.topic, offset.partition))
            if self._asked_ms(offset) is None:
                raise RuleViolationError("commits", f"no request matches {record}")

    def _asked_ms(self, record: OffsetRecord) -> int | None:
        """Return the time in the history of the commit of an offset; None if there was none."""
        wanted = (record.topic, record.partition, record.offset, record.metadata)
        found = (
            at_ms
            for at_ms, message in self._asked[record.commit_ms]
            if message.group_id == record.group_id and wanted in list(_offsets(message))
        )
        return next(found, None)

    def _judge_removal(self, record: OffsetTombstone, entry: RecordsAppended, later: int) -> None:
        """Check the removal of an offset.

        Args:
            record: The removal.
            entry: The append. Offsets expire by the clock of its broker, as in Kafka.
            later: Number of group records of the same group that follow in the same append.
        """
        key = (record.group_id, record.topic, record.partition)
        last = self._written[key][-1] if self._written[key] else None
        if self._deleting.is_asked(entry.at_ms, key) or self._went_with_its_topic(key, last):
            return
        # the offset may have been removed with the group
        group = None
        if self._ledger.is_classic_since(record.group_id, entry.at_ms):
            group = self._ledger.last_existing(record.group_id, later)
        since_ms = 0
        if group is not None and group.members:
            if group.awaiting_sync or record.topic in _topics(group):
                raise RuleViolationError(
                    "commits", f"{last} was removed while its group uses the topic"
                )
        elif group is not None and group.protocol_type is not None:
            since_ms = group.since_ms  # retention starts when the group becomes empty (KIP-211)
        if last is None or entry.broker_ms - max(last.commit_ms, since_ms) < self._retention_ms:
            raise RuleViolationError(
                "commits", f"{last} was removed before its retention ended, without a deletion"
            )

    def _went_with_its_topic(self, key: _Key, last: OffsetRecord | None) -> bool:
        """Return True if the offset was removed because its topic was deleted.

        An acknowledged offset that was committed after the deletion must stay.
        """
        gone_ms = self._gone_ms.get(key[1])
        if last is None or gone_ms is None:
            return gone_ms is not None and key in self._pending
        at = self._acknowledged.get(key)
        is_acknowledged = at is not None and last in self._stored[key][: at + 1]
        return self._committed_before(last, gone_ms + 1) or not is_acknowledged

    def _committed_before(self, record: OffsetRecord, at_ms: int) -> bool:
        """Return True if an offset was committed before a time in the history."""
        asked_ms = self._asked_ms(record)
        return asked_ms is not None and asked_ms < at_ms

    def _lose(self, record: LogChange) -> None:
        """Forget an offset that was appended but lost."""
        if isinstance(record, OffsetRecord):
            self._written[record.group_id, record.topic, record.partition].remove(record)

    def _store(self, record: LogChange) -> None:
        match record:
            case OffsetRecord():
                self._stored[record.group_id, record.topic, record.partition].append(record)
            case OffsetTombstone():
                self._stored[record.group_id, record.topic, record.partition].append(None)

    # Responses

    def _on_response(self, entry: ResponseSent) -> None:
        match entry.request.message, entry.message:
            case OffsetCommitRequest() as asked, OffsetCommitResponse() as message:
                codes = {
                    (topic.name, p.partition_index): p.error_code
                    for topic in message.topics
                    for p in topic.partitions
                }
                for topic, index, offset, metadata in _offsets(asked):
                    key, value = (asked.group_id, topic, index), (offset, metadata)
                    self._check_response(key, value, codes.get((topic, index)), entry.request)
            case OffsetFetchRequest() as fetched, OffsetFetchResponse() as shown:
                floors = self._floors.pop(entry.request.serial)
                self._judge_fetch(fetched, shown, floors, entry.request)
            case OffsetDeleteRequest() as deleting, OffsetDeleteResponse(error_code=0) as done:
                for deleted in done.topics:
                    for p in deleted.partitions:
                        if not p.error_code:
                            key = (deleting.group_id, deleted.name, p.partition_index)
                            self._expect_gone(key, entry.request.at_ms)
            case DeleteGroupsRequest(), DeleteGroupsResponse() as done:
                for result in done.results:
                    if not result.error_code:
                        for key in [key for key in self._stored if key[0] == result.group_id]:
                            self._expect_gone(key, entry.request.at_ms)

    def _expect_gone(self, key: _Key, asked_ms: int) -> None:
        last = self._stored[key][-1] if self._stored[key] else None
        if last is not None and self._committed_before(last, asked_ms):
            raise RuleViolationError(
                "commits", f"the deletion of {key} was acknowledged, but {last} exists"
            )

    def _check_response(
        self, key: _Key, value: _Value, code: int | None, request: RequestReceived
    ) -> None:
        at_ms = request.broker_ms
        if code is None:
            raise RuleViolationError(
                "commits", f"{key} was committed but is missing in the response"
            )
        if code == ErrorCode.NONE:
            at = self._last_index(key, value, at_ms)
            if at is None:
                raise RuleViolationError(
                    "commits", f"{key} {value} was acknowledged but is not durable"
                )
            self._acknowledged[key] = max(at, self._acknowledged.get(key, 0))
        elif code in _REFUSED:
            same = [w for w in self._written[key] if w.commit_ms == at_ms]
            asked = [m for _, m in self._asked[at_ms] if m.group_id == key[0]]
            if len(asked) == 1 and any((w.offset, w.metadata) == value for w in same):
                raise RuleViolationError(
                    "commits", f"{key} {value} was rejected with {code} but stored"
                )

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
        read: RequestReceived,
    ) -> None:
        results: list[tuple[str, Any]] = [
            (group.group_id, group.topics) for group in message.groups if not group.error_code
        ]
        if not message.groups and not message.error_code:
            results = [(asked.group_id, message.topics)]
        wants_all = {group.group_id for group in asked.groups if group.topics is None}
        if not asked.groups and asked.topics is None:
            wants_all.add(asked.group_id)
        for group_id, topics in results:
            shown = {
                (group_id, topic.name, p.partition_index): (p.committed_offset, p.metadata or "")
                for topic in topics
                for p in topic.partitions
                if not p.error_code
            }
            if group_id in wants_all:
                left_out = [key for key in floors if key[0] == group_id and key not in shown]
                shown |= dict.fromkeys(left_out, _NONE)
            for key, value in shown.items():
                self._judge_shown(key, value, floors.get(key), read)

    def _judge_shown(
        self, key: _Key, shown: _Value, floor: int | None, read: RequestReceived
    ) -> None:
        if shown == _NONE and floor is None:
            return
        stored = self._stored[key]
        for at in range(floor or 0, len(stored)):
            kept = stored[at]
            if shown == (_NONE if kept is None else (kept.offset, kept.metadata)):
                break
        else:
            allowed = stored[floor or 0 :][-5:]
            raise RuleViolationError(
                "commits", f"{key} was fetched as {shown}; allowed are {allowed}"
            )
        if kept is None:
            return
        # Later fetches must not show an earlier offset.
        self._acknowledged[key] = max(at, self._acknowledged.get(key, 0))
        heard_ms, gone_ms = self._forgotten.get((read.broker, key[1]), (read.at_ms, 0))
        if read.at_ms > heard_ms and self._committed_before(kept, gone_ms):
            raise RuleViolationError(
                "commits", f"{key} was fetched as {kept}, but its topic was deleted at {gone_ms}"
            )


class _DeletionRequests:
    """The deletions requested in the current millisecond."""

    def __init__(self) -> None:
        self._at_ms = -1
        self._wanted: set[str | _Key] = set()  # group ids and offset keys

    def ask(self, at_ms: int, message: OffsetDeleteRequest | DeleteGroupsRequest) -> None:
        if at_ms != self._at_ms:
            self._at_ms, self._wanted = at_ms, set()
        if isinstance(message, DeleteGroupsRequest):
            self._wanted.update(message.groups_names)
            return
        self._wanted.update(
            (message.group_id, topic.name, p.partition_index)
            for topic in message.topics
            for p in topic.partitions
        )

    def is_asked(self, at_ms: int, key: _Key) -> bool:
        return at_ms == self._at_ms and not self._wanted.isdisjoint({key, key[0]})


def _topics(group: GroupRecord) -> set[str]:
    """Return the topics that the members of a group subscribe to."""
    return {topic for m in group.members for topic in decode_subscription(m.subscription).topics}


def _offsets(message: _CommitRequest) -> Iterator[tuple[str, int, int, str]]:
    for topic in message.topics:
        for p in topic.partitions:
            yield topic.name, p.partition_index, p.committed_offset, p.committed_metadata or ""

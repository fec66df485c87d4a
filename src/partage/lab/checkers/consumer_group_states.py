"""The states of the group with the consumer protocol, on which its rules depend.

`appended` follows the coordinator's memory: each record that was appended. `durable` has each state
since the start, up to the last durable record. A response shows a state between the one that was
durable when its request arrived and the one that is durable when the response leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from partage.coordinator.records import GroupRecord, GroupTombstone
from partage.lab.checkers.consumer_group_log import (
    LogChangeKey,
    LoggedGroup,
    LoggedPartition,
    apply_record,
    parse_key,
)
from partage.lab.checkers.ledger import Ledger
from partage.lab.history import (
    ConsumerTopicsChanged,
    History,
    RecordsAppended,
    RequestReceived,
    ResponseSent,
    ShardLoaded,
)
from partage.lab.names import CONSUMER_GROUP
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from partage.wire.apis.heartbeat import HeartbeatRequest
from partage.wire.apis.join_group import JoinGroupRequest
from partage.wire.apis.leave_group import LeaveGroupRequest
from partage.wire.apis.offset_commit import OffsetCommitRequest
from partage.wire.apis.sync_group import SyncGroupRequest

#: Receives an appended record: the time, its key, and the group before and after it.
RecordListener = Callable[[int, LogChangeKey, LoggedGroup, LoggedGroup], None]
#: Receives a consumer group, and the classic group that replaces it.
DowngradeListener = Callable[[LoggedGroup, GroupRecord], None]


class ConsumerGroupStates:
    """The appended state, and all durable states."""

    def __init__(self, history: History, ledger: Ledger) -> None:
        self.appended = LoggedGroup()
        self.durable: list[LoggedGroup] = [LoggedGroup()]
        #: The number of durable states when each open request arrived.
        self._marks: dict[int, int] = {}
        self._ledger = ledger
        self._listeners: list[RecordListener] = []
        self._downgrade_listeners: list[DowngradeListener] = []
        self._append_end_listeners: list[Callable[[], None]] = []
        #: The classic group that the consumer group replaced, while its records are appended.
        self.replaced: GroupRecord | None = None
        #: True if a member with the classic protocol has joined: the group may be a classic group,
        #: perhaps before its first record.
        self.has_classic_members = False
        self._classic: GroupRecord | None = None
        self._intact = LoggedGroup()  # after the last record that is no tombstone
        self._topic_ids: dict[str, bytes] = {}  # of existing topics that were never deleted
        self._seen_ids: dict[str, bytes] = {}
        self.loaded_ms = 0
        self._partition_counts: dict[bytes, int] = {}
        self._changed_topics: set[bytes] = set()  # since all brokers knew all topics
        self._are_topics_known = True
        self._shard: int | None = None  # of the group; None before its first record
        ledger.on_appended(self._append)
        ledger.on_durable_pair(self._store)
        history.subscribe(ShardLoaded, self._load)
        history.subscribe(RequestReceived, self._on_request)
        history.subscribe(ConsumerTopicsChanged, self._on_topics)

    def on_record(self, listener: RecordListener) -> None:
        """Call ``listener`` with each appended record of the group."""
        self._listeners.append(listener)

    def on_downgrade(self, listener: DowngradeListener) -> None:
        """Call ``listener`` when a classic group with members replaces the consumer group."""
        self._downgrade_listeners.append(listener)

    def on_append_end(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after all records of an append that has records of the group."""
        self._append_end_listeners.append(listener)

    def to_ids(self, partitions: Iterable[TopicPartition]) -> frozenset[LoggedPartition]:
        """Return partitions with the ids of their topics, without those of deleted topics.

        A topic does not count either if it was deleted once: its name has several ids.
        """
        ids = self._topic_ids
        return frozenset((ids[name], index) for name, index in partitions if name in ids)

    def with_current_ids(self, partitions: Iterable[LoggedPartition]) -> frozenset[LoggedPartition]:
        """Return the partitions of those topics that `to_ids` returns."""
        ids = frozenset(self._topic_ids.values())
        return frozenset(each for each in partitions if each[0] in ids)

    def possible(self, entry: ResponseSent) -> list[LoggedGroup]:
        """Return the states in which the request of a response may have been handled."""
        return self.durable[self._marks.get(entry.request.serial, 1) - 1 :]

    @property
    def unknown_topics(self) -> frozenset[bytes]:
        """The ids of topics that a broker may not know yet."""
        return frozenset() if self._are_topics_known else frozenset(self._changed_topics)

    def has_group(self, shard: int) -> bool:
        """Return True if a shard has the group, or may have it before the first record."""
        return self._shard is None or shard == self._shard

    def may_own(self, broker: int) -> bool:
        """Return True if a broker may own the group."""
        return self._ledger.may_own(broker, CONSUMER_GROUP)

    def _on_request(self, entry: RequestReceived) -> None:
        message: Any = entry.message
        if isinstance(message, JoinGroupRequest) and message.group_id == CONSUMER_GROUP:
            self.has_classic_members = True
        kinds = (
            ConsumerGroupHeartbeatRequest
            | OffsetCommitRequest
            | SyncGroupRequest
            | HeartbeatRequest
            | LeaveGroupRequest
        )
        if isinstance(message, kinds):
            self._marks[entry.serial] = len(self.durable)

    def _append(self, entry: RecordsAppended) -> None:
        is_about_group = False
        for pair, record in zip(entry.pairs, entry.records, strict=True):
            key = parse_key(*pair)
            if isinstance(record, GroupRecord | GroupTombstone):
                if record.group_id == CONSUMER_GROUP:
                    self._append_classic(record)
            elif key is not None and key.group_id == CONSUMER_GROUP:
                is_about_group = True
                self._shard = entry.shard
                before, self.appended = self.appended, apply_record(self.appended, key, pair[1])
                for listener in self._listeners:
                    listener(entry.at_ms, key, before, self.appended)
                if pair[1] is not None:
                    self._intact = self.appended
                if self.appended.epoch is not None:
                    self.replaced = None
        for end_listener in self._append_end_listeners if is_about_group else ():
            end_listener()

    def _append_classic(self, record: GroupRecord | GroupTombstone) -> None:
        before = self._classic
        self._classic = record if isinstance(record, GroupRecord) else None
        if isinstance(record, GroupTombstone):
            self.replaced = before
            return
        if before is None and record.members and not record.awaiting_sync:
            for listener in self._downgrade_listeners:
                listener(self._intact, record)

    def _on_topics(self, entry: ConsumerTopicsChanged) -> None:
        if self._are_topics_known:
            self._changed_topics.clear()
        self._are_topics_known = entry.is_known
        for _, topic_id, count in entry.topics:
            if self._partition_counts.get(topic_id) != count:
                self._partition_counts[topic_id] = count
                self._changed_topics.add(topic_id)
        newest = {name: topic_id for name, topic_id, _ in entry.topics}
        for name, topic_id in self._seen_ids.items():
            if newest.get(name) != topic_id:
                self._topic_ids.pop(name, None)
        for name, topic_id in newest.items():
            if name not in self._seen_ids:
                self._seen_ids[name] = self._topic_ids[name] = topic_id

    def _store(self, pair: tuple[bytes, bytes | None]) -> None:
        key = parse_key(*pair)
        if key is not None and key.group_id == CONSUMER_GROUP:
            self.durable.append(apply_record(self.durable[-1], key, pair[1]))

    def _load(self, entry: ShardLoaded) -> None:
        """Forget appended records that were lost. The ledger has applied those that survived."""
        if self.has_group(entry.shard) and self.may_own(entry.broker):
            self.appended = self._intact = self.durable[-1]
            self._classic = self._ledger.durable_groups.get(CONSUMER_GROUP)
            self.replaced = None
            self.loaded_ms = entry.at_ms

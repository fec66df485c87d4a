"""Builder of histories, for tests of the checkers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from partage.coordinator.records import GroupRecord, MemberRecord, OffsetRecord
from partage.lab import history
from partage.lab.checkers import attach_checkers
from partage.lab.history import History
from partage.model.settings import GroupSettings
from partage.store.record_formats import encode_record
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from partage.wire.apis.join_group import JOIN_GROUP, JoinGroupRequest
from partage.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitPartition,
    OffsetCommitPartitionResult,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetCommitTopicResult,
)
from partage.wire.apis.sync_group import (
    SYNC_GROUP,
    SyncGroupAssignment,
    SyncGroupRequest,
)
from partage.wire.consumer_protocol import (
    Assignment,
    ConsumerTopicPartitions,
    Subscription,
    encode_assignment,
    encode_subscription,
)


def share(*indexes: int) -> bytes:
    partitions = [ConsumerTopicPartitions(topic="t", partitions=list(indexes))]
    return encode_assignment(Assignment(assigned_partitions=partitions))


def claim(*indexes: int, generation: int = -1) -> bytes:
    owned = [ConsumerTopicPartitions(topic="t", partitions=list(indexes))] if indexes else []
    said = Subscription(topics=["t"], owned_partitions=owned, generation_id=generation)
    return encode_subscription(said)


def member(name: str, assignment: bytes = b"", said: bytes | None = None) -> MemberRecord:
    return MemberRecord(
        member_id=name,
        instance_id=None,
        client_id=name,
        client_host="/",
        rebalance_timeout_ms=6_000,
        session_timeout_ms=6_000,
        subscription=claim() if said is None else said,
        assignment=assignment,
    )


def group(generation: int, *members: MemberRecord, awaiting: bool = False) -> GroupRecord:
    return GroupRecord(
        group_id="g",
        protocol_type="consumer",
        generation=generation,
        protocol="cooperative-sticky" if members else None,
        leader=members[0].member_id if members else None,
        since_ms=0,
        awaiting_sync=awaiting,
        members=members,
    )


class HistoryBuilder:
    """Builds a history with one entry per millisecond."""

    def __init__(self, watching: Callable[[History, GroupSettings], Any] = attach_checkers) -> None:
        self.history = History()
        watching(self.history, GroupSettings(members_max=2))
        self.at_ms = 0

    def append(self, kind: type[history.HistoryEntry], **fields: Any) -> Any:
        self.at_ms += 1
        if "broker_ms" in kind.__struct_fields__:
            fields.setdefault("broker_ms", self.at_ms)
        entry = kind(at_ms=self.at_ms, **fields)
        self.history.append(entry)
        return entry

    def append_records(self, *records: Any, durable: bool = True) -> None:
        pairs = tuple(map(encode_record, records))
        self.append(history.RecordsAppended, records=records, pairs=pairs)
        if durable:
            self.append(history.RecordsDurable, count=len(records))

    def receive_request(self, api: Any, message: Any, **fields: Any) -> history.RequestReceived:
        known = {"arrived_ms": self.at_ms, "is_loaded": True, "serial": self.at_ms, "client": "c"}
        known |= {"connection": 1, **fields}
        return self.append(
            history.RequestReceived,
            api_key=api.key,
            version=api.by_name_max,
            message=message,
            **known,
        )

    def send_response(self, asked: history.RequestReceived, message: Any) -> None:
        self.append(history.ResponseSent, request=asked, message=message)

    def generation(self, number: int, *members: MemberRecord, awaits: bool = False) -> None:
        """Append a complete rebalance: joins, generation, and assignment.

        With ``awaits``, the assignment is still missing at the end.
        """
        for one in members:
            self.receive_request(JOIN_GROUP, join(one.member_id))
        self.append_records(group(number, *members, awaiting=True))
        if awaits:
            return
        self.receive_request(SYNC_GROUP, sync(number, members[0].member_id, list(members)))
        self.append_records(group(number, *members))


def join(member_id: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=6_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[],
    )


def sync(generation: int, member_id: str, members: list[MemberRecord]) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id="g",
        generation_id=generation,
        member_id=member_id,
        assignments=[
            SyncGroupAssignment(member_id=one.member_id, assignment=one.assignment)
            for one in members
        ],
    )


def heartbeat(
    builder: HistoryBuilder, member_id: str, generation: int, *, code: int = 0, **fields: Any
) -> None:
    message = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
    asked = builder.receive_request(HEARTBEAT, message, **fields)
    builder.send_response(asked, HeartbeatResponse(error_code=code))


def commit(
    builder: HistoryBuilder,
    *,
    writes: bool = True,
    responds: bool = True,
    code: int = 0,
    generation: int = 1,
    offset: int = 5,
) -> None:
    at_ms = builder.at_ms + 1
    partition = OffsetCommitPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    message = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id="a",
        topics=[OffsetCommitTopic(name="t", partitions=[partition])],
    )
    asked = builder.receive_request(OFFSET_COMMIT, message)
    if writes:
        builder.append_records(
            OffsetRecord(group_id="g", topic="t", partition=0, offset=offset, commit_ms=at_ms)
        )
    if not responds:
        return
    result = OffsetCommitPartitionResult(partition_index=0, error_code=code)
    topics = [OffsetCommitTopicResult(name="t", partitions=[result])]
    builder.send_response(asked, OffsetCommitResponse(topics=topics))

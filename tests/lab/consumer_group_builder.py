"""Builds histories of a group with the consumer protocol, for the rules of the simulator."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from partage.coordinator.consumer_group.records import (
    ConsumerGroupRecord,
    ConsumerMemberRecord,
    ConsumerMemberTombstone,
    MemberAssignmentRecord,
    MemberAssignmentTombstone,
    MemberTargetRecord,
    MemberTargetTombstone,
    ReconciliationState,
    TargetAssignmentRecord,
)
from partage.lab import history
from partage.lab.checkers import attach_checkers
from partage.lab.history import RuleViolationError
from partage.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupTopicPartitions,
)
from partage.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitPartition,
    OffsetCommitPartitionResult,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetCommitTopicResult,
)

from .history_builder import HistoryBuilder

T = b"t" * 16
INTERVAL_MS = 5_000  # the default
REBALANCE_MS = 12_000
STABLE, UNREVOKED = ReconciliationState.STABLE, ReconciliationState.UNREVOKED_PARTITIONS


def group_record(epoch: int) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(group_id="k", epoch=epoch)


def member_record(name: str, **fields: Any) -> ConsumerMemberRecord:
    known = {"client_id": name, "client_host": "/", "subscribed_topics": ("t",)}
    return ConsumerMemberRecord(group_id="k", member_id=name, **known | fields)


def target(name: str, *indexes: int) -> MemberTargetRecord:
    return MemberTargetRecord(group_id="k", member_id=name, partitions={T: indexes})


def target_epoch(epoch: int) -> TargetAssignmentRecord:
    return TargetAssignmentRecord(group_id="k", assignment_epoch=epoch)


def assignment(
    name: str,
    epoch: int,
    assigned: dict[int, int],
    *,
    previous: int = 0,
    pending: dict[int, int] | None = None,
    state: ReconciliationState = STABLE,
) -> MemberAssignmentRecord:
    return MemberAssignmentRecord(
        group_id="k",
        member_id=name,
        member_epoch=epoch,
        previous_member_epoch=previous,
        state=state,
        assigned={T: assigned} if assigned else {},
        pending_revocation={T: pending} if pending else {},
    )


class GroupBuilder(HistoryBuilder):
    """Builds a history of group "k"; the topic has two partitions."""

    def __init__(self) -> None:
        super().__init__(partial(attach_checkers, has_consumer_group=True))
        self.append(history.ConsumerTopicsChanged, topics=(("t", T, 2),))

    def heartbeat(
        self,
        name: str,
        epoch: int,
        shown: int,
        *,
        owned: tuple[int, ...] | None = None,
        assigned: tuple[int, ...] | None = None,
        records: tuple[Any, ...] = (),
        code: int = 0,
        connection: int = 1,
        is_full: bool = False,
        instance_id: str | None = None,
    ) -> None:
        """Append a heartbeat, the records that it causes, and its response."""
        message = ConsumerGroupHeartbeatRequest(
            group_id="k",
            member_id=name,
            member_epoch=epoch,
            instance_id=instance_id,
            rebalance_timeout_ms=REBALANCE_MS if is_full or epoch == 0 else -1,
            topic_partitions=topics(owned),
        )
        asked = self.receive_request(
            CONSUMER_GROUP_HEARTBEAT, message, client=name, connection=connection
        )
        if records:
            self.append_records(*records)
        found = topics(assigned)
        response = ConsumerGroupHeartbeatResponse(
            error_code=code,
            member_id=name,
            member_epoch=shown,
            heartbeat_interval_ms=INTERVAL_MS,
            assignment=None if found is None else ConsumerGroupAssignment(topic_partitions=found),
        )
        self.send_response(asked, response)

    def join(self, name: str, epoch: int, *indexes: int) -> None:
        """Append a complete join: the member gets the partitions at once."""
        self.heartbeat(
            name,
            0,
            epoch,
            owned=(),
            assigned=indexes,
            records=(
                member_record(name),
                group_record(epoch),
                target(name, *indexes),
                target_epoch(epoch),
                assignment(name, epoch, dict.fromkeys(indexes, epoch)),
            ),
        )

    def owns(self, name: str, *indexes: int, has_received: bool = True) -> None:
        if has_received:
            self.receives(name, *indexes)
        self.append(
            history.MemberOwnershipChanged,
            process=name,
            group_id="k",
            member_id=name,
            epoch=2,
            partitions=tuple((T, index) for index in indexes),
        )

    def receives(self, name: str, *indexes: int) -> None:
        partitions = tuple((T, index) for index in indexes)
        self.append(history.MemberAssignmentReceived, process=name, partitions=partitions)

    def sends_heartbeat(self, name: str, after_ms: int, *, reports_change: bool = False) -> None:
        self.at_ms += after_ms - 1
        self.append(history.MemberHeartbeatSent, process=name, reports_change=reports_change)

    def delivers(self, name: str, *indexes: int) -> None:
        self.append(
            history.MemberDelivered,
            process=name,
            member_id=name,
            epoch=2,
            partitions=tuple((T, index) for index in indexes),
        )

    def commit(self, name: str, epoch: int, code: int) -> None:
        partition = OffsetCommitPartition(
            partition_index=0, committed_offset=5, committed_metadata=""
        )
        message = OffsetCommitRequest(
            group_id="k",
            generation_id_or_member_epoch=epoch,
            member_id=name,
            topics=[OffsetCommitTopic(name="t", partitions=[partition])],
        )
        asked = self.receive_request(OFFSET_COMMIT, message, client=name)
        result = OffsetCommitPartitionResult(partition_index=0, error_code=code)
        found = [OffsetCommitTopicResult(name="t", partitions=[result])]
        self.send_response(asked, OffsetCommitResponse(topics=found))


def topics(indexes: tuple[int, ...] | None) -> list[ConsumerGroupTopicPartitions] | None:
    if indexes is None:
        return None
    found = [ConsumerGroupTopicPartitions(topic_id=T, partitions=list(indexes))]
    return found if indexes else []


def removal(name: str) -> tuple[Any, ...]:
    of_member = {"group_id": "k", "member_id": name}
    return (
        MemberAssignmentTombstone(**of_member),
        MemberTargetTombstone(**of_member),
        ConsumerMemberTombstone(**of_member),
    )


def hand_over(built: GroupBuilder, *, reported: tuple[int, ...] | None = (0,)) -> None:
    """Let "a" give up partition 1, with this report, and "b" get it."""
    built.heartbeat(
        "b",
        0,
        3,
        owned=(),
        assigned=(),
        records=(
            member_record("b"),
            group_record(3),
            target("a", 0),
            target("b", 1),
            target_epoch(3),
            assignment("b", 3, {}, state=ReconciliationState.UNRELEASED_PARTITIONS),
        ),
    )
    revoking = assignment("a", 2, {0: 2}, previous=2, pending={1: 2}, state=UNREVOKED)
    built.heartbeat("a", 2, 2, assigned=(0,), records=(revoking,))
    given_up = assignment("a", 3, {0: 2}, previous=2)
    built.heartbeat("a", 2, 3, owned=reported, records=(given_up,))
    taken = assignment("b", 3, {1: 3}, previous=3)
    built.heartbeat("b", 3, 3, assigned=(1,), records=(taken,))


def expect(rule: str) -> Any:
    return pytest.raises(RuleViolationError, match=f"^{rule}:")

"""Each rule about groups that change their type rejects a history that breaks it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from partage.coordinator.consumer_group.records import (
    ClassicMemberRecord,
    ConsumerGroupRecord,
    ConsumerGroupTombstone,
    ConsumerMemberRecord,
    ConsumerMemberTombstone,
    MemberAssignmentRecord,
    MemberAssignmentTombstone,
    MemberTargetRecord,
    MemberTargetTombstone,
    ReconciliationState,
    TargetAssignmentRecord,
    TargetAssignmentTombstone,
)
from partage.coordinator.records import GroupRecord, GroupTombstone
from partage.lab import history
from partage.lab.checkers import attach_checkers
from partage.lab.history import History, RuleViolationError
from partage.model.errors import ErrorCode
from partage.model.settings import ConsumerGroupSettings, GroupSettings, MigrationPolicy
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from partage.wire.apis.join_group import JOIN_GROUP, JoinGroupProtocol, JoinGroupRequest
from partage.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupMember, LeaveGroupRequest
from partage.wire.apis.sync_group import (
    SYNC_GROUP,
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)

from .history_builder import HistoryBuilder, claim, group, member, share

T = b"t" * 16


class MigrationBuilder(HistoryBuilder):
    """Builds a history of group "k" with its classic member "c"; the topic has two partitions."""

    def __init__(self, policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL) -> None:
        consumer = ConsumerGroupSettings(migration_policy=policy)

        def attach(seen: History, settings: GroupSettings) -> None:
            settings = msgspec.structs.replace(settings, consumer=consumer)
            attach_checkers(seen, settings, has_consumer_group=True)

        super().__init__(attach)
        self.append(history.ConsumerTopicsChanged, topics=(("t", T, 2),))

    def classic(self, generation: int, *indexes: int) -> GroupRecord:
        """Return a classic group of "c", which has these partitions."""
        record = group(generation, member("c", share(*indexes)))
        return msgspec.structs.replace(record, group_id="k")

    def start_classic(self, *indexes: int) -> None:
        """Append generation 1 of the classic group."""
        assigned = self.classic(1, *indexes)
        self.append_records(msgspec.structs.replace(assigned, awaiting_sync=True))
        request = SyncGroupRequest(
            group_id="k",
            generation_id=1,
            member_id="c",
            assignments=[SyncGroupAssignment(member_id="c", assignment=share(*indexes))],
        )
        self.receive_request(SYNC_GROUP, request)
        self.append_records(assigned)

    def upgrade(self, *indexes: int, epoch: int = 1) -> None:
        """Append an upgrade: "c" has these partitions, and "a" joins without any."""
        self.append_records(
            GroupTombstone(group_id="k"),
            *stored("c", epoch, indexes, is_classic=True),
            *stored("a", epoch, (), is_classic=False),
            TargetAssignmentRecord(group_id="k", assignment_epoch=epoch),
            ConsumerGroupRecord(group_id="k", epoch=epoch),
        )

    def downgrade(self, record: GroupRecord) -> None:
        """Append a downgrade in which "a" leaves."""
        self.append_records(
            *(MemberAssignmentTombstone(group_id="k", member_id=name) for name in "ca"),
            *(MemberTargetTombstone(group_id="k", member_id=name) for name in "ca"),
            TargetAssignmentTombstone(group_id="k"),
            *(ConsumerMemberTombstone(group_id="k", member_id=name) for name in "ca"),
            ConsumerGroupTombstone(group_id="k"),
            record,
        )

    def joins(self, *owned: int) -> None:
        """Append a JoinGroup of "c", which reports its partitions."""
        message = JoinGroupRequest(
            group_id="k",
            session_timeout_ms=6_000,
            member_id="c",
            protocol_type="consumer",
            protocols=[JoinGroupProtocol(name="range", metadata=claim(*owned))],
        )
        self.receive_request(JOIN_GROUP, message)

    def syncs(self, epoch: int, *indexes: int) -> None:
        """Append a SyncGroup of "c", which gets these partitions."""
        request = SyncGroupRequest(group_id="k", generation_id=epoch, member_id="c", assignments=[])
        asked = self.receive_request(SYNC_GROUP, request)
        self.send_response(asked, SyncGroupResponse(error_code=0, assignment=share(*indexes)))

    def owns(self, generation: int, *indexes: int) -> None:
        """Append that the process of "c" owns these partitions."""
        self.append(
            history.OwnershipChanged,
            process="c",
            group_id="k",
            member_id="c",
            generation=generation,
            partitions=tuple(TopicPartition("t", index) for index in indexes),
        )

    def consumer_owns(self, *indexes: int) -> None:
        """Append that the process of "a" owns these partitions."""
        partitions = tuple((T, index) for index in indexes)
        self.append(history.MemberAssignmentReceived, process="a", partitions=partitions)
        self.append(
            history.MemberOwnershipChanged,
            process="a",
            group_id="k",
            member_id="a",
            epoch=1,
            partitions=partitions,
        )


def stored(
    name: str, epoch: int, indexes: Iterable[int], *, is_classic: bool
) -> tuple[ConsumerMemberRecord, MemberTargetRecord, MemberAssignmentRecord]:
    """Return the records of a member that has its target."""
    classic = ClassicMemberRecord(session_timeout_ms=6_000, protocols=()) if is_classic else None
    held = dict.fromkeys(indexes, epoch)
    return (
        ConsumerMemberRecord(
            group_id="k",
            member_id=name,
            client_id=name,
            client_host="/",
            subscribed_topics=("t",),
            classic=classic,
        ),
        MemberTargetRecord(
            group_id="k", member_id=name, partitions={T: tuple(held)} if held else {}
        ),
        MemberAssignmentRecord(
            group_id="k",
            member_id=name,
            member_epoch=epoch,
            previous_member_epoch=epoch,
            state=ReconciliationState.STABLE,
            assigned={T: held} if held else {},
            pending_revocation={},
        ),
    )


def upgraded(policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL) -> MigrationBuilder:
    """Return the history of an upgraded group, in which "c" has both partitions."""
    builder = MigrationBuilder(policy)
    builder.start_classic(0, 1)
    builder.upgrade(0, 1)
    return builder


def assert_rejected(rule: str, text: str, act: Any, *arguments: Any) -> None:
    with pytest.raises(RuleViolationError, match=text) as caught:
        act(*arguments)
    assert caught.value.rule == rule


def test_upgrade_and_downgrade_of_a_group_break_no_rule() -> None:
    builder = upgraded()
    builder.joins(0, 1)
    builder.syncs(1, 0, 1)
    builder.owns(1, 0, 1)
    builder.downgrade(builder.classic(1, 0, 1))


@pytest.mark.parametrize("policy", [MigrationPolicy.DOWNGRADE, MigrationPolicy.DISABLED])
def test_upgrade_that_the_policy_forbids_is_rejected(policy: MigrationPolicy) -> None:
    assert_rejected("group-migrations", "forbids the upgrade", upgraded, policy)


@pytest.mark.parametrize("policy", [MigrationPolicy.UPGRADE])
def test_downgrade_that_the_policy_forbids_is_rejected(policy: MigrationPolicy) -> None:
    builder = upgraded(policy)
    record = builder.classic(1, 0, 1)
    assert_rejected("group-migrations", "forbids the downgrade", builder.downgrade, record)


def test_upgrade_that_loses_partitions_of_a_member_is_rejected() -> None:
    builder = MigrationBuilder()
    builder.start_classic(0, 1)
    assert_rejected("group-migrations", "changes the partitions", builder.upgrade, 0)


def test_upgrade_to_another_epoch_than_the_generation_is_rejected() -> None:
    builder = MigrationBuilder()
    builder.start_classic(0)
    with pytest.raises(RuleViolationError, match="becomes epoch 2"):
        builder.upgrade(0, epoch=2)


def test_downgrade_that_loses_partitions_of_a_member_is_rejected() -> None:
    builder = upgraded()
    record = builder.classic(1, 0)
    assert_rejected("group-migrations", "changes the partitions", builder.downgrade, record)


def test_downgrade_to_another_generation_than_the_epoch_is_rejected() -> None:
    builder = upgraded()
    record = builder.classic(4, 0, 1)
    assert_rejected("group-migrations", "epoch 1 becomes", builder.downgrade, record)


def test_downgrade_with_a_member_of_the_consumer_protocol_is_rejected() -> None:
    builder = upgraded()
    record = msgspec.structs.replace(group(1, member("a")), group_id="k")
    assert_rejected("group-migrations", "not use the classic", builder.downgrade, record)


def test_consumer_group_with_only_classic_members_is_rejected() -> None:
    builder = upgraded()
    removal = (
        MemberAssignmentTombstone(group_id="k", member_id="a"),
        MemberTargetTombstone(group_id="k", member_id="a"),
        ConsumerMemberTombstone(group_id="k", member_id="a"),
        ConsumerGroupRecord(group_id="k", epoch=2),
    )
    leaving = LeaveGroupRequest(group_id="k", members=[LeaveGroupMember(member_id="a")])
    builder.receive_request(LEAVE_GROUP, leaving)
    assert_rejected("group-migrations", "only members with the", builder.append_records, *removal)


def test_sync_response_with_other_partitions_than_stored_is_rejected() -> None:
    builder = upgraded()
    assert_rejected("consumer-responses", "stored is", builder.syncs, 1, 0)


def test_partition_with_owners_of_both_protocols_is_rejected() -> None:
    builder = upgraded()
    builder.owns(1, 0, 1)
    assert_rejected("consumer-ownership", "is owned by", builder.consumer_owns, 1)


def test_classic_member_that_delivers_a_partition_of_another_is_rejected() -> None:
    builder = MigrationBuilder()
    builder.start_classic(0)
    builder.upgrade(0)
    builder.append_records(
        ConsumerGroupRecord(group_id="k", epoch=2),
        MemberTargetRecord(group_id="k", member_id="a", partitions={T: (1,)}),
        TargetAssignmentRecord(group_id="k", assignment_epoch=2),
        msgspec.structs.replace(stored("a", 2, (1,), is_classic=False)[2], previous_member_epoch=1),
    )
    builder.owns(1, 0, 1)
    delivered = {"process": "c", "group_id": "k", "partition": TopicPartition("t", 1)}
    with pytest.raises(RuleViolationError, match="which a has"):
        builder.append(history.RecordsDelivered, **delivered, records=((0, b"0"),))


HEARTBEAT_RULE = "consumer-fence"


def beats(builder: MigrationBuilder, generation: int, code: int, name: str = "c") -> None:
    """Append a Heartbeat of a member, and the response."""
    request = HeartbeatRequest(group_id="k", generation_id=generation, member_id=name)
    asked = builder.receive_request(HEARTBEAT, request)
    builder.send_response(asked, HeartbeatResponse(error_code=code))


@pytest.mark.parametrize(
    ("name", "generation", "code"),
    [
        ("c", 2, ErrorCode.NONE),
        ("c", 2, ErrorCode.REBALANCE_IN_PROGRESS),
        ("c", 1, ErrorCode.ILLEGAL_GENERATION),
        ("c", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 1, ErrorCode.NONE),
    ],
)
def test_wrong_result_of_a_classic_heartbeat_is_rejected(
    name: str, generation: int, code: int
) -> None:
    builder = upgraded()
    beats(builder, 1, ErrorCode.NONE)
    beats(builder, 1, ErrorCode.NONE)
    beats(builder, 2, ErrorCode.ILLEGAL_GENERATION)
    beats(builder, 1, ErrorCode.UNKNOWN_MEMBER_ID, "x")
    assert_rejected(HEARTBEAT_RULE, "HeartbeatRequest", beats, builder, generation, code, name)


def test_classic_member_must_learn_of_a_new_target() -> None:
    builder = upgraded()
    builder.append_records(
        ConsumerGroupRecord(group_id="k", epoch=2),
        TargetAssignmentRecord(group_id="k", assignment_epoch=2),
    )
    beats(builder, 1, ErrorCode.REBALANCE_IN_PROGRESS)
    assert_rejected(HEARTBEAT_RULE, "got NONE", beats, builder, 1, ErrorCode.NONE)


def test_classic_member_must_learn_that_its_partitions_are_free() -> None:
    builder = MigrationBuilder()
    builder.start_classic(0)
    builder.upgrade(0)
    _, taken, held = stored("a", 1, (1,), is_classic=False)
    builder.append_records(taken, held)
    _, target, assignment = stored("c", 1, (0, 1), is_classic=True)
    state = ReconciliationState.UNRELEASED_PARTITIONS
    waiting = msgspec.structs.replace(assignment, assigned={T: {0: 1}}, state=state)
    builder.append_records(msgspec.structs.replace(taken, partitions={}), target, waiting)
    beats(builder, 1, ErrorCode.NONE)
    report = ConsumerGroupHeartbeatRequest(
        group_id="k", member_id="a", member_epoch=1, topic_partitions=[]
    )
    builder.receive_request(CONSUMER_GROUP_HEARTBEAT, report, client="a")
    builder.append_records(msgspec.structs.replace(held, assigned={}))
    beats(builder, 1, ErrorCode.REBALANCE_IN_PROGRESS)
    assert_rejected(HEARTBEAT_RULE, "got NONE", beats, builder, 1, ErrorCode.NONE)


def test_sync_of_a_classic_member_behind_the_target_is_rejected() -> None:
    builder = upgraded()
    builder.append_records(
        ConsumerGroupRecord(group_id="k", epoch=2),
        TargetAssignmentRecord(group_id="k", assignment_epoch=2),
    )
    assert_rejected(HEARTBEAT_RULE, "SyncGroupRequest", builder.syncs, 1, 0, 1)

"""Members of a group that consume, transform and produce in transactions (KIP-447).

Each process has a separate transactional id, and reads the partitions that the group assigned to
it. Its TxnOffsetCommit has the generation and the member id with which it read. So a member that
was paused, or joins again meanwhile, commits nothing for partitions that now belong to another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from partage.lab.clients.transactional_producer import TransactionalProducer
from partage.lab.context import WorldContext
from partage.lab.names import INPUT_TOPIC, LOOP_GROUP
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from partage.wire.apis.join_group import JOIN_GROUP, JoinGroupProtocol, JoinGroupRequest
from partage.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupMember, LeaveGroupRequest
from partage.wire.apis.sync_group import SYNC_GROUP, SyncGroupAssignment, SyncGroupRequest
from partage.wire.apis.txn_offset_commit import TXN_OFFSET_COMMIT
from partage.wire.consumer_protocol import (
    Assignment,
    ConsumerTopicPartitions,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)

#: The numbers of these processes follow those of other transactional producers.
FIRST_LOOP_NUMBER: Final = 100
#: The first version of TxnOffsetCommit with a generation and a member id.
_GROUP_METADATA_VERSION: Final = 3
_PROTOCOL: Final = "range"
_MEMBERSHIP_LANE: Final = 10
_BACK_OFF_MS: Final = 200
_REJOIN_SHARE: Final = 0.1
_SLOW_SHARE: Final = 0.15
_ATTEMPTS_TO_LEAVE: Final = 5


class LoopMembership:
    """The membership of a process in one generation.

    ``positions`` has the next offsets of the partitions. A later generation has other ones, because
    another member may have read the partitions meanwhile.
    """

    def __init__(
        self, member_id: str, generation: int, partitions: tuple[TopicPartition, ...]
    ) -> None:
        self.member_id = member_id
        self.generation = generation
        self.partitions = partitions
        self.positions: dict[TopicPartition, int] = {}


class GroupLoop(TransactionalProducer):
    """A transactional producer that is a member of the group `LOOP_GROUP`."""

    group_id = LOOP_GROUP

    def __init__(self, world: WorldContext, number: int, life: int) -> None:
        self._member_id = ""
        self._membership: LoopMembership | None = None
        #: The membership with which the transaction under way has read.
        self._read_as: LoopMembership | None = None
        super().__init__(world, number, life)
        self._is_loop = True
        self.spawn(self._stay_in_group())

    def _draw_versions(self) -> Mapping[int, int]:
        versions = dict(super()._draw_versions())
        commit = TXN_OFFSET_COMMIT.key
        return versions | {commit: max(versions[commit], _GROUP_METADATA_VERSION)}

    # Transactions

    async def _read_input(self) -> list[int]:
        """Return the offsets of the next records of an assigned partition."""
        self._read_as = membership = self._membership
        if membership is None or not membership.partitions:
            return []
        self._positions = membership.positions
        self._input = self.rng.choice(membership.partitions)
        offsets = await super()._read_input()
        if self.rng.random() < _SLOW_SHARE:  # processing that a rebalance may overtake
            await self.sleep(self.rng.choice((300, 2_000, 5_000)))
        return offsets

    def _group_metadata(self) -> Mapping[str, Any]:
        if self._read_as is None:
            return {}
        return {
            "generation_id": self._read_as.generation,
            "member_id": self._read_as.member_id,
        }

    # The group

    async def _stay_in_group(self) -> None:
        """Join, and send heartbeats until the next rebalance; leave when the process stops."""
        self.is_in_group = True
        while not self._ends():
            if await self._join():
                await self._send_heartbeats()
            else:
                self.forget_coordinators()
                await self.sleep(_BACK_OFF_MS)
        await self._leave()
        self.is_in_group = False

    def _ends(self) -> bool:
        return self._is_stopped or self.is_idle

    async def _join(self) -> bool:
        """Join the next generation. Return False after an error."""
        options = self.world.options
        metadata = encode_subscription(Subscription(topics=[INPUT_TOPIC]))
        joined = await self.request(
            JOIN_GROUP,
            JoinGroupRequest(
                group_id=LOOP_GROUP,
                session_timeout_ms=options.session_timeout_ms,
                rebalance_timeout_ms=options.rebalance_timeout_ms,
                member_id=self._member_id,
                protocol_type="consumer",
                protocols=[JoinGroupProtocol(name=_PROTOCOL, metadata=metadata)],
            ),
            _MEMBERSHIP_LANE,
        )
        if joined is None or joined.error_code:
            if joined is not None and joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = joined.member_id
            elif joined is not None and joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._lose_membership()
            return False
        self._member_id = joined.member_id
        assignments = self._assign(joined) if joined.leader == joined.member_id else []
        synced = await self.request(
            SYNC_GROUP,
            SyncGroupRequest(
                group_id=LOOP_GROUP,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                protocol_type="consumer",
                protocol_name=_PROTOCOL,
                assignments=assignments,
            ),
            _MEMBERSHIP_LANE,
        )
        if synced is None or synced.error_code:
            if synced is not None and synced.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._lose_membership()
            return False
        assigned = decode_assignment(synced.assignment).assigned_partitions
        self._membership = LoopMembership(
            joined.member_id,
            joined.generation_id,
            tuple(
                TopicPartition(each.topic, index) for each in assigned for index in each.partitions
            ),
        )
        return True

    def _assign(self, joined: Any) -> list[SyncGroupAssignment]:
        """Return an assignment of the input partitions to all members, in turn."""
        member_ids = [each.member_id for each in joined.members]
        self.rng.shuffle(member_ids)
        count = self.world.partition_counts[INPUT_TOPIC]
        return [
            SyncGroupAssignment(
                member_id=member_id,
                assignment=encode_assignment(
                    Assignment(
                        assigned_partitions=[
                            ConsumerTopicPartitions(
                                topic=INPUT_TOPIC,
                                partitions=list(range(number, count, len(member_ids))),
                            )
                        ]
                    )
                ),
            )
            for number, member_id in enumerate(member_ids)
        ]

    async def _send_heartbeats(self) -> None:
        """Send heartbeats until the next rebalance; now and then, the process begins one."""
        membership = self._membership
        assert membership is not None, "the process has joined"
        while not self._ends():
            await self.sleep(self.world.options.heartbeat_interval_ms)
            request = HeartbeatRequest(
                group_id=LOOP_GROUP,
                generation_id=membership.generation,
                member_id=membership.member_id,
            )
            response = await self.request(HEARTBEAT, request, _MEMBERSHIP_LANE)
            match None if response is None else response.error_code:
                case ErrorCode.REBALANCE_IN_PROGRESS | ErrorCode.ILLEGAL_GENERATION:
                    return
                case ErrorCode.UNKNOWN_MEMBER_ID:
                    self._lose_membership()
                    return
                case ErrorCode.NOT_COORDINATOR | ErrorCode.COORDINATOR_NOT_AVAILABLE:
                    self.forget_coordinators()
            if self.rng.random() < _REJOIN_SHARE:
                return

    def _lose_membership(self) -> None:
        self._member_id = ""
        self._membership = None

    async def _leave(self) -> None:
        """Leave the group; the session of a member that cannot leave expires."""
        self._membership = None
        for _ in range(_ATTEMPTS_TO_LEAVE if self._member_id else 0):
            request = LeaveGroupRequest(
                group_id=LOOP_GROUP,
                member_id=self._member_id,
                members=[LeaveGroupMember(member_id=self._member_id)],
            )
            response = await self.request(LEAVE_GROUP, request, _MEMBERSHIP_LANE)
            if response is not None and not response.error_code:
                return
            self.forget_coordinators()
            await self.sleep(_BACK_OFF_MS)

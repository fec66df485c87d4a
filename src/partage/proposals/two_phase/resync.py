"""The resync of the accepted document: new topic metadata changes the assignment, not the members.

The document: "Topic metadata changes which have no impact on subscriptions cause resync. The leader
computes the new assignment and sends SyncGroup." Kafka did not build this; its leader joins again.
The document leaves open how the other members learn of it. Here the response to their next
heartbeat has a separate error, and they send SyncGroup.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import msgspec

from partage.coordinator.states import GroupState
from partage.member import outcome
from partage.member.events import AssignmentDecoded
from partage.member.outcome import ListenerCallback
from partage.member.outcome import Outcome as CoreOutcome
from partage.member.ownership import ApplyingAssignment, Ownership
from partage.member.states import MemberState
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.proposals.machine import ConnectionId
from partage.proposals.product.coordinator import Outcome as CoordinatorOutcome
from partage.proposals.product.member import Outcome
from partage.proposals.two_phase.coordinator import TwoPhaseCoordinator
from partage.proposals.two_phase.member import TwoPhaseMember
from partage.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from partage.wire.apis.sync_group import (
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)

#: The error of a heartbeat: the leader has assigned again in this generation. No Kafka release has
#: this number.
RESYNC_NEEDED: Final = 1_000


class ResyncCoordinator(TwoPhaseCoordinator):
    """Accepts a new assignment from the leader of a stable group, in the same generation."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        #: The generation and the members that have its last assignment, by group. It is not
        #: stored: after a failover, all members synchronize again.
        self._synced: dict[str, tuple[int, set[str]]] = {}

    def _handle_message(
        self, outcome: CoordinatorOutcome, connection: ConnectionId, message: Any, draw: int
    ) -> None:
        if isinstance(message, SyncGroupRequest) and message.assignments:
            self._store_resync(outcome, message)
        super()._handle_message(outcome, connection, message, draw)

    def _store_resync(self, outcome: CoordinatorOutcome, request: SyncGroupRequest) -> None:
        """Replace the assignment of a stable group. The response follows as to any SyncGroup."""
        group = self.shard.classic_group(request.group_id)
        if (
            group is None
            or group.state is not GroupState.STABLE
            or group.leader != request.member_id
            or group.generation != request.generation_id
            or group.protocol_type != request.protocol_type
            or group.protocol != request.protocol_name
        ):
            return
        record = group.snapshot(
            at_ms=outcome.at_ms,
            generation=group.generation,
            protocol=group.protocol,
            awaiting_sync=False,
            assignments={each.member_id: bytes(each.assignment) for each in request.assignments},
        )
        self.shard.apply(record)
        outcome.records.append(record)
        self._synced[group.id] = (group.generation, set())

    def _respond(self, outcome: CoordinatorOutcome, call: Any) -> None:
        super()._respond(outcome, call)
        request, response = call.message, outcome.sends[-1][1]
        match response:
            case SyncGroupResponse(error_code=ErrorCode.NONE):
                self._members_with_assignment(request).add(request.member_id)
            case HeartbeatResponse(error_code=ErrorCode.NONE):
                group = self.shard.classic_group(request.group_id)
                is_synced = request.member_id in self._members_with_assignment(request)
                if group is not None and group.state is GroupState.STABLE and not is_synced:
                    response.error_code = RESYNC_NEEDED

    def _members_with_assignment(self, request: SyncGroupRequest | HeartbeatRequest) -> set[str]:
        generation, members = self._synced.get(request.group_id, (-1, set[str]()))
        if generation != request.generation_id:
            members = set()
            self._synced[request.group_id] = (request.generation_id, members)
        return members


class ResyncOwnership(Ownership):
    """Takes a new assignment while the member is stable."""

    def replace_assignment(self, partitions: tuple[TopicPartition, ...], at_ms: int) -> CoreOutcome:
        """Give up the partitions that are not in the new assignment; then own the others."""
        serial = self.membership.link.next_serial()
        self.step = ApplyingAssignment(serial)
        return self.handle(AssignmentDecoded(at_ms=at_ms, serial=serial, partitions=partitions))

    def _revoke(
        self, outcome: CoreOutcome, partitions: frozenset[TopicPartition], at_ms: int
    ) -> None:
        """Give up partitions. A resync needs no further rebalance: all is assigned already."""
        self._call_listener(outcome, ListenerCallback.REVOKED, partitions)


class _PendingResync(msgspec.Struct, frozen=True):
    """A SyncGroup request without a response; ``counts`` are those of a leader's assignment."""

    generation: int
    counts: dict[str, int] | None


class ResyncMember(TwoPhaseMember):
    """Assigns again, as the leader, or fetches its new assignment without a new join."""

    core_class: ClassVar[type[Ownership]] = ResyncOwnership

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._last_compute: outcome.ComputeAssignment | None = None
        self._pending: _PendingResync | None = None
        # True if a response was lost. The coordinator does not announce the resync again.
        self._is_response_lost = False
        # The generation and partitions of a new assignment, to apply when the member is idle.
        self._new_assignment: tuple[int, tuple[TopicPartition, ...]] | None = None

    @property
    def is_stable(self) -> bool:
        """True if the member reads its partitions, or has left."""
        is_resyncing = (
            self._pending is not None or self._new_assignment is not None or self._is_response_lost
        )
        return super().is_stable and (self._is_left or not is_resyncing)

    @property
    def _is_idle(self) -> bool:
        core = self._core
        return (
            core.membership.state is MemberState.STABLE
            and core.step is None
            and core.open_callback is None
        )

    def _perform(self, result: Outcome, action: outcome.Action) -> None:
        match action:
            case outcome.ComputeAssignment():
                self._last_compute = action
            case outcome.SendJoin():  # its response has a new generation
                self._is_response_lost = False
        super()._perform(result, action)

    def _clear_waiting(self, result: Outcome) -> None:
        if self._pending is not None:
            self._is_response_lost = True
            if self._pending.counts is not None:
                self._leader_topics = {}  # unknown: assign again at the next refresh
        self._pending = None
        super()._clear_waiting(result)

    def _on_metadata_refreshed(self, result: Outcome, counts: dict[str, int]) -> None:
        """Assign again without a join, if this member leads the stable group."""
        compute, membership = self._last_compute, self._core.membership
        if (
            compute is None
            or compute.generation != membership.generation
            or not membership.is_leader
            or not self._is_idle
            or counts == self._leader_topics
        ):
            return
        self._sync(result, counts, self._assign(compute, counts))

    def _sync(
        self, result: Outcome, counts: dict[str, int] | None, assignments: dict[str, bytes]
    ) -> None:
        if not self._is_found or self._pending is not None:
            return
        membership = self._core.membership
        self._is_response_lost = False
        self._pending = _PendingResync(membership.generation, counts)
        result.send(
            SyncGroupRequest(
                group_id=membership.settings.group_id,
                generation_id=membership.generation,
                member_id=membership.member_id,
                protocol_type=membership.settings.protocol_type,
                protocol_name=membership.protocol,
                assignments=[
                    SyncGroupAssignment(member_id=member_id, assignment=assignment)
                    for member_id, assignment in assignments.items()
                ],
            )
        )

    def _on_response(self, result: Outcome, message: Any) -> None:
        match message:
            case HeartbeatResponse(error_code=error) if error == RESYNC_NEEDED or (
                not error and self._is_response_lost
            ):
                if self._is_idle and self._new_assignment is None:
                    self._sync(result, None, {})
                message = msgspec.structs.replace(message, error_code=ErrorCode.NONE)
            case SyncGroupResponse() if self._pending is not None:
                self._on_resynced(self._pending, message)
                self._apply_new_assignment(result)
                return
        super()._on_response(result, message)
        self._apply_new_assignment(result)

    def _on_resynced(self, pending: _PendingResync, response: SyncGroupResponse) -> None:
        """Keep the new assignment. After an error, the next heartbeat starts what is necessary."""
        self._pending = None
        membership = self._core.membership
        if response.error_code or pending.generation != membership.generation:
            return
        if pending.counts is not None:
            self._leader_topics = pending.counts
        partitions = self._protocol.apply_assignment(
            membership.protocol or "", bytes(response.assignment), membership.generation
        )
        self._new_assignment = membership.generation, tuple(partitions)

    def _apply_new_assignment(self, result: Outcome) -> None:
        core: Any = self._core
        if self._new_assignment is None or not self._is_idle:
            return
        generation, partitions = self._new_assignment
        self._new_assignment = None
        if generation != core.membership.generation or frozenset(partitions) == core.owned:
            return
        self._perform_all(result, core.replace_assignment(partitions, result.at_ms))
        self._fetch_offsets(result)

"""The design with a single assignor: its coordinator and its member, event by event."""

from __future__ import annotations

from typing import Any

import pytest

from partage.assignors import RoundRobin
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.proposals import machine
from partage.proposals.assignment import assign_partitions
from partage.proposals.join_group.group import (
    DesignGroupState,
    ExpirationTimer,
    JoinPhaseTimer,
    MemberSessionTimer,
    SynchronizeTimer,
)
from partage.proposals.join_group.member import DesignMemberState, Timer
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.machine import ConnectionId
from partage.proposals.single_assignor.coordinator import (
    SingleAssignorCoordinator,
    SynchronizerChoice,
    TimeoutReaction,
)
from partage.proposals.single_assignor.member import (
    ComputeShares,
    ShareComputationFailed,
    SharesComputed,
    SingleAssignorMember,
    SingleAssignorOptions,
)
from partage.proposals.single_assignor.messages import (
    JOIN_GROUP,
    DefaultMetadata,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinPhase,
    SyncedMember,
    Synchronized,
)
from partage.wire import codec
from partage.wire.apis.offset_fetch import OffsetFetchResponse
from partage.wire.types import Message


def join_request(member_id: str = "", *, version: int = 0, timeout_ms: int = 0) -> Message:
    return JoinGroupRequest(
        group_id="g",
        protocol_type="consumer",
        join=JoinPhase(
            session_timeout=10_000,
            synchronize_timeout=timeout_ms,
            metadata_version=version,
            member_id=member_id,
            member_metadata=b"m",
        ),
    )


def synchronized(
    member_id: str, generation: int, error: int = 0, **states: bytes
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        protocol_type="consumer",
        synchronized=Synchronized(
            error_code=error,
            generation_id=generation,
            member_id=member_id,
            members=[
                SyncedMember(member_id=name.replace("_", "-"), synced_member_state=state)
                for name, state in states.items()
            ],
        ),
    )


class Harness:
    """A coordinator with three members that have joined and wait for the synchronizer."""

    def __init__(self, draw: int = 0, **options: Any) -> None:
        self.coordinator = SingleAssignorCoordinator(CoordinatorSettings(), **options)
        self.now_ms = 0
        self.timers: dict[Any, int] = {}
        self._count = 0
        for connection in (1, 2, 3):
            self.send(connection, join_request(version=2 if connection == 2 else 1))
        ((self.synchronizer, response),) = self.fire(JoinPhaseTimer("g"), draw)
        self.id = response.member_id
        self.group = self.coordinator.groups["g"]
        assert response.group_generation_id == 1
        assert [each.member_metadata for each in response.synchronize.members] == [b"m"] * 3

    def send(self, connection: int, message: Message) -> list[tuple[int, Any]]:
        self._count += 1
        return self._handle(
            machine.MessageReceived(
                at_ms=self.now_ms,
                connection=ConnectionId(connection),
                message=message,
                draw=self._count,
            )
        )

    def fire(self, key: Any, draw: int = 0) -> list[tuple[int, Any]]:
        self.now_ms = self.timers.pop(key)
        return self._handle(machine.TimerFired(at_ms=self.now_ms, key=key, draw=draw))

    def _handle(self, event: machine.Event) -> list[tuple[int, Any]]:
        outcome = self.coordinator.handle(event)
        for key, deadline_ms in outcome.timers:
            if deadline_ms is None:
                self.timers.pop(key, None)
            else:
                self.timers[key] = deadline_ms
        return list(outcome.sends)


class TestCoordinator:
    def test_assignment_is_sent_to_all_members_with_the_ids_of_all(self) -> None:
        harness = Harness()
        ids = list(harness.group.members)
        request = synchronized(harness.id, 1)
        assert request.synchronized is not None
        request.synchronized.members = [
            SyncedMember(member_id=each, synced_member_state=each.encode()) for each in ids
        ]
        sends = harness.send(harness.synchronizer, request)
        assert sorted(to for to, _ in sends) == [1, 2, 3]
        for _, response in sends:
            assert response.joined.synced_member_state == response.member_id.encode()
            assert response.joined.group_members == ids
        assert harness.group.state is DesignGroupState.STABLE

    @pytest.mark.parametrize(
        ("choice", "draw", "connection"),
        [
            (SynchronizerChoice.RANDOM, 0, 1),
            (SynchronizerChoice.RANDOM, 4, 2),
            (SynchronizerChoice.NEWEST, 0, 3),
            (SynchronizerChoice.LAST_TO_JOIN, 0, 3),
            (SynchronizerChoice.HIGHEST_VERSION, 0, 2),
        ],
    )
    def test_synchronizer_is_chosen_as_configured(
        self, choice: SynchronizerChoice, draw: int, connection: int
    ) -> None:
        assert Harness(draw, choice=choice).synchronizer == connection

    def test_last_to_join_differs_from_newest_after_a_rejoin(self) -> None:
        chosen = {}
        for choice in (SynchronizerChoice.NEWEST, SynchronizerChoice.LAST_TO_JOIN):
            harness = Harness(choice=choice)
            harness.send(harness.synchronizer, synchronized(harness.id, 1))
            first, second, third = harness.group.members
            harness.send(3, join_request(third))
            harness.send(2, join_request(second))
            ((chosen[choice], _),) = harness.send(1, join_request(first))
        assert chosen == {SynchronizerChoice.NEWEST: 3, SynchronizerChoice.LAST_TO_JOIN: 1}

    def test_error_of_the_synchronizer_reaches_all_members_and_ends_the_group(self) -> None:
        harness = Harness()
        sends = harness.send(
            harness.synchronizer,
            synchronized(harness.id, 1, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        )
        assert {(to, each.error_code) for to, each in sends} == {
            (to, ErrorCode.INCONSISTENT_GROUP_PROTOCOL) for to in (1, 2, 3)
        }
        assert harness.group.state is DesignGroupState.EMPTY
        assert set(harness.timers) == {ExpirationTimer("g")}

    def test_late_synchronizer_fails_the_generation_for_all_waiting_members(self) -> None:
        harness = Harness()
        assert harness.timers[SynchronizeTimer("g")] == harness.now_ms + 10_000
        sends = harness.fire(SynchronizeTimer("g"))
        assert {(to, each.error_code) for to, each in sends} == {
            (2, ErrorCode.REQUEST_TIMED_OUT),
            (3, ErrorCode.REQUEST_TIMED_OUT),
        }
        ((_, response),) = harness.send(harness.synchronizer, synchronized(harness.id, 1))
        assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS

    def test_late_synchronizer_is_replaced_if_configured(self) -> None:
        harness = Harness(reaction=TimeoutReaction.NEXT_SYNCHRONIZER)
        ((to, response),) = harness.fire(SynchronizeTimer("g"))
        assert to == 2
        assert len(response.synchronize.members) == 2
        ((_, late),) = harness.send(harness.synchronizer, synchronized(harness.id, 1))
        assert late.error_code == ErrorCode.UNKNOWN_MEMBER_ID

    def test_timeout_of_the_request_replaces_that_of_the_coordinator(self) -> None:
        harness = Harness()
        harness.send(harness.synchronizer, synchronized(harness.id, 1))
        for connection, member_id in zip((1, 2, 3), list(harness.group.members), strict=True):
            harness.send(connection, join_request(member_id, timeout_ms=60_000))
        assert harness.timers[SynchronizeTimer("g")] == harness.now_ms + 60_000

    def test_expired_synchronizer_is_replaced_in_a_new_generation(self) -> None:
        harness = Harness()
        harness.timers[MemberSessionTimer("g", harness.id)] = harness.now_ms + 1
        ((_, response),) = harness.fire(MemberSessionTimer("g", harness.id))
        assert response.group_generation_id == 2
        assert len(response.synchronize.members) == 2

    @pytest.mark.parametrize(
        ("member", "generation", "error"),
        [
            ("other", 1, ErrorCode.REBALANCE_IN_PROGRESS),
            ("own", 0, ErrorCode.ILLEGAL_GENERATION),
            ("unknown", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ],
    )
    def test_assignment_of_a_wrong_member_or_generation_is_refused(
        self, member: str, generation: int, error: ErrorCode
    ) -> None:
        harness = Harness()
        other = next(each for each in harness.group.members if each != harness.id)
        member_id = {"own": harness.id, "other": other}.get(member, member)
        ((_, response),) = harness.send(9, synchronized(member_id, generation))
        assert response.error_code == error
        assert harness.group.state is DesignGroupState.SYNCHRONIZING

    def test_request_without_a_phase_is_refused(self) -> None:
        harness = Harness()
        ((_, response),) = harness.send(9, JoinGroupRequest(group_id="g", protocol_type="consumer"))
        assert response.error_code == ErrorCode.INVALID_REQUEST


def run_pair() -> tuple[SingleAssignorMember, SingleAssignorMember, Harness]:
    """Return two members that have joined; the first was chosen to assign."""
    harness = Harness.__new__(Harness)
    harness.coordinator = SingleAssignorCoordinator(CoordinatorSettings())
    harness.now_ms, harness.timers, harness._count = 0, {}, 0
    members = []
    for connection in (1, 2):
        member = SingleAssignorMember(
            DesignMemberSettings(group_id="g"),
            frozenset({"t"}),
            SingleAssignorOptions(assignor=RoundRobin()),
        )
        member.handle(machine.Started(at_ms=0))
        member.handle(machine.Connected(at_ms=0))
        outcome = member.handle(machine.MetadataFetched(at_ms=0, topics={"t": 3}))
        (send,) = outcome.actions
        assert isinstance(send, machine.Send)
        encoded = b"".join(JOIN_GROUP.encode_request(0, send.message))
        harness.send(connection, JOIN_GROUP.decode_request(0, encoded))
        members.append(member)
    ((to, response),) = harness.fire(JoinPhaseTimer("g"))
    assert to == 1
    members[0].handle(machine.ResponseReceived(at_ms=0, message=response))
    return members[0], members[1], harness


@pytest.mark.parametrize(
    ("error", "member_id"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, ""),
        (ErrorCode.REQUEST_TIMED_OUT, "assigned"),
        (ErrorCode.REBALANCE_IN_PROGRESS, "own"),
        (ErrorCode.ILLEGAL_GENERATION, "own"),
    ],
)
def test_member_joins_again_at_once_after_an_error(error: ErrorCode, member_id: str) -> None:
    options = SingleAssignorOptions(assignor=RoundRobin())
    member = SingleAssignorMember(DesignMemberSettings(group_id="g"), frozenset({"t"}), options)
    member.member_id = "own"
    member.handle(machine.Started(at_ms=0))
    member.handle(machine.Connected(at_ms=0))
    member.handle(machine.MetadataFetched(at_ms=0, topics={"t": 3}))
    response = JoinGroupResponse(error_code=error, group_generation_id=-1, member_id="assigned")
    outcome = member.handle(machine.ResponseReceived(at_ms=0, message=response))
    (send,) = outcome.actions
    assert isinstance(send, machine.Send)
    assert isinstance(send.message, JoinGroupRequest)
    assert send.message.join is not None
    assert send.message.join.member_id == member_id


def shares_computed(compute: ComputeShares) -> SharesComputed:
    """Return the result of a computation."""
    shares = assign_partitions(compute.assignor, compute.members, compute.topics)
    return SharesComputed(at_ms=0, number=compute.number, shares=shares)


class TestMember:
    @pytest.mark.parametrize("has_failed", [False, True])
    def test_late_computation_is_not_sent_for_a_newer_generation(self, has_failed: bool) -> None:
        chosen, _, harness = run_pair()
        (late,) = chosen.handle(machine.MetadataFetched(at_ms=0, topics={"t": 4})).actions
        assert isinstance(late, ComputeShares)
        chosen.handle(machine.Disconnected(at_ms=0))
        harness.coordinator.handle(machine.ConnectionLost(at_ms=0, connection=ConnectionId(1)))
        harness._count = 3  # the next draw chooses the first member again
        chosen.handle(machine.TimerFired(at_ms=100, key=Timer.RETRY))
        (send,) = chosen.handle(machine.Connected(at_ms=100)).actions
        assert isinstance(send, machine.Send)
        ((to, response),) = harness.send(3, send.message)
        assert (to, response.group_generation_id) == (3, 2)
        chosen.handle(machine.ResponseReceived(at_ms=100, message=response))
        (current,) = chosen.handle(machine.MetadataFetched(at_ms=100, topics={"t": 5})).actions
        assert isinstance(current, ComputeShares)
        event = (
            ShareComputationFailed(at_ms=0, number=late.number)
            if has_failed
            else shares_computed(late)
        )
        assert chosen.handle(event).actions == []
        (send,) = chosen.handle(shares_computed(current)).actions
        assert isinstance(send, machine.Send)

    def test_chosen_member_assigns_for_all_with_fresh_metadata(self) -> None:
        chosen, other, harness = run_pair()
        assert chosen.state is DesignMemberState.SYNCHRONIZING
        outcome = chosen.handle(machine.MetadataFetched(at_ms=0, topics={"t": 4}))
        (compute,) = outcome.actions
        assert isinstance(compute, ComputeShares)
        outcome = chosen.handle(shares_computed(compute))
        (send,) = outcome.actions
        assert isinstance(send, machine.Send)
        for to, response in harness.send(1, send.message):
            (chosen, other)[to - 1].handle(machine.ResponseReceived(at_ms=0, message=response))
        assert len(chosen.owned) == len(other.owned) == 2
        assert chosen.owned | other.owned == {TopicPartition("t", each) for each in range(4)}
        assert set(chosen.group_members) == {chosen.member_id, other.member_id}

    def test_failed_assignor_stops_all_members_with_an_error(self) -> None:
        chosen, other, harness = run_pair()
        (compute,) = chosen.handle(machine.MetadataFetched(at_ms=0, topics={"t": 4})).actions
        assert isinstance(compute, ComputeShares)
        (send,) = chosen.handle(ShareComputationFailed(at_ms=0, number=compute.number)).actions
        assert isinstance(send, machine.Send)
        for to, response in harness.send(1, send.message):
            member = (chosen, other)[to - 1]
            actions = member.handle(machine.ResponseReceived(at_ms=0, message=response)).actions
            assert machine.ReportError(reason="INCONSISTENT_GROUP_PROTOCOL") in actions
            assert member.state is DesignMemberState.STOPPED

    @pytest.mark.parametrize(
        "metadata",
        [
            b"\0",
            b"".join(
                codec.encoder(DefaultMetadata, 0, False)(
                    DefaultMetadata(version="default", topics=[], topic_pattern="(")
                )
            ),
            b"".join(
                codec.encoder(DefaultMetadata, 0, False)(
                    DefaultMetadata(version="another", topics=["t"], topic_pattern="")
                )
            ),
        ],
    )
    def test_unusable_metadata_of_another_member_fails_the_assignment(
        self, metadata: bytes
    ) -> None:
        chosen, _, _ = run_pair()
        chosen._to_assign[1].member_metadata = metadata
        (send,) = chosen.handle(machine.MetadataFetched(at_ms=0, topics={"t": 4})).actions
        assert isinstance(send, machine.Send)
        assert isinstance(send.message, JoinGroupRequest)
        assert send.message.synchronized is not None
        assert send.message.synchronized.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    @pytest.mark.parametrize(
        ("names", "pattern", "changed", "is_watched"),
        [
            (["u"], "", {"u": 2}, True),
            (["u"], "", {"w": 2}, False),
            ([], "[uv].*", {"u": 2}, True),
            ([], "[uv].*", {"v1": 1}, True),
            ([], "[uv].*", {"w": 2}, False),
        ],
    )
    def test_topic_of_another_member_that_changed_starts_a_rebalance(
        self, names: list[str], pattern: str, changed: dict[str, int], is_watched: bool
    ) -> None:
        """The other member may have known the change when the chosen member did not."""
        chosen, _, harness = run_pair()
        encoded = codec.encoder(DefaultMetadata, 0, False)(
            DefaultMetadata(version="default", topics=names, topic_pattern=pattern)
        )
        chosen._to_assign[1].member_metadata = b"".join(encoded)
        topics = {"t": 4, "u": 1, "w": 1}
        (compute,) = chosen.handle(machine.MetadataFetched(at_ms=0, topics=topics)).actions
        assert isinstance(compute, ComputeShares)
        (send,) = chosen.handle(shares_computed(compute)).actions
        assert isinstance(send, machine.Send)
        response = next(each for to, each in harness.send(1, send.message) if to == 1)
        chosen.handle(machine.ResponseReceived(at_ms=0, message=response))
        chosen.handle(machine.ResponseReceived(at_ms=0, message=OffsetFetchResponse(topics=[])))
        chosen.handle(machine.PartitionCountsChanged(at_ms=1, topics={**topics, **changed}))
        assert chosen.is_stable is not is_watched

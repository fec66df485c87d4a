"""The frames of the designs with JoinGroup: sizes, round trips and damaged frames."""

from __future__ import annotations

import struct

import pytest

from partage.proposals.designs.catalog import find_design
from partage.proposals.join_group.frames import CoordinatorFrames, MemberFrames, ProtocolVersions
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.multi_assignor import messages as multi
from partage.proposals.simulation.design import Design, MemberTemplate
from partage.proposals.simulation.message_sizes import SHARED_APIS
from partage.proposals.simulation.world import DesignWorld, WorldOptions
from partage.proposals.single_assignor import messages as single
from partage.proposals.two_phase.apis import APIS
from partage.wire.api import AnyApi
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from partage.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from partage.wire.primitives import MalformedError
from partage.wire.types import Message

MULTI = ProtocolVersions((*SHARED_APIS, (multi.JOIN_GROUP, 0)))
SINGLE = ProtocolVersions((*SHARED_APIS, (single.JOIN_GROUP, 0)))
TWO_PHASE = ProtocolVersions(APIS, in_flight_max=5)
VERSIONS = {
    "multi-assignor": MULTI,
    "multi-assignor-hashes": MULTI,
    "multi-assignor-compressed": MULTI,
    "multi-assignor-compressed-group": MULTI,
    "single-assignor": SINGLE,
    "two-phase-eager": TWO_PHASE,
}
HEARTBEAT_REQUEST = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")


def join_bytes(frame: list[bytes | bytearray | memoryview]) -> bytes:
    return b"".join(frame)


def pair(versions: ProtocolVersions = MULTI) -> tuple[MemberFrames, CoordinatorFrames]:
    return MemberFrames(versions), CoordinatorFrames(versions)


class RecordingWorld(DesignWorld):
    """A world that keeps all messages with the sizes that the simulator counts."""

    def __init__(self, design: Design) -> None:
        self.counted: list[tuple[Message, int]] = []
        super().__init__(design, WorldOptions(topics={"t": 6}), seed=1)

    def count_message(self, message: Message) -> None:
        super().count_message(message)
        self.counted.append((message, self.design.message_size(message)))


@pytest.mark.parametrize("name", VERSIONS)
def test_frames_of_a_simulated_group_have_the_simulated_sizes(name: str) -> None:
    world = RecordingWorld(
        find_design(name)(
            CoordinatorSettings(initial_rebalance_delay_ms=100),
            DesignMemberSettings(group_id="g", commit_interval_ms=500),
        )
    )
    members = [
        world.start_member(MemberTemplate(name=n, topics=frozenset({"t"}), metadata_bytes=300))
        for n in "abc"
    ]
    assert world.run_until_stable(20_000)
    world.run(5_000)
    world.stop_member(members[0])
    assert world.run_until_settled(60_000)

    requests: dict[AnyApi, Message] = {}
    by_response = {
        api.response: api
        for api, _ in (*SHARED_APIS, *APIS, (multi.JOIN_GROUP, 0), (single.JOIN_GROUP, 0))
    }
    for message, size in world.counted:
        member, coordinator = pair(VERSIONS[name])
        api = by_response.get(type(message))
        if api is None:
            sent = join_bytes(member.encode(message))
            again, _ = pair(VERSIONS[name])  # a message may have fields of other versions
            assert join_bytes(again.encode(coordinator.decode(sent))) == sent
            requests[VERSIONS[name].of_request(message)[0]] = message
        else:
            coordinator.decode(join_bytes(member.encode(requests[api])))
            sent = join_bytes(coordinator.encode(message))
            assert member.decode(sent) == message
        assert len(sent) == size, message
    assert len(requests) == len(VERSIONS[name]), "not every request was sent"


def test_coordinator_answers_with_the_correlation_id_of_the_request() -> None:
    member, coordinator = pair()
    for _ in range(2):
        coordinator.decode(join_bytes(member.encode(HEARTBEAT_REQUEST)))
        answer = join_bytes(coordinator.encode(HeartbeatResponse(error_code=27)))
        assert member.decode(answer) == HeartbeatResponse(error_code=27)
    assert answer.hex() == "0000000600000001001b"


def test_responses_to_requests_in_flight_are_matched_by_type_and_correlation_id() -> None:
    member, coordinator = pair(ProtocolVersions(SHARED_APIS, in_flight_max=2))
    leave = LeaveGroupRequest(group_id="g", member_id="m")
    coordinator.decode(join_bytes(member.encode(leave)))
    coordinator.decode(join_bytes(member.encode(HEARTBEAT_REQUEST)))
    for response in (HeartbeatResponse(error_code=27), LeaveGroupResponse(error_code=25)):
        assert member.decode(join_bytes(coordinator.encode(response))) == response


def test_second_request_before_the_response_is_malformed() -> None:
    member, coordinator = pair()
    frame = join_bytes(member.encode(HEARTBEAT_REQUEST))
    coordinator.decode(frame)
    with pytest.raises(MalformedError, match="before the response to Heartbeat"):
        coordinator.decode(frame)


@pytest.mark.parametrize(
    ("key", "version", "fault"),
    [(0, 0, "no request with the API key 0"), (12, 1, "Heartbeat has version 0, not 1")],
)
def test_request_of_another_protocol_is_malformed(key: int, version: int, fault: str) -> None:
    member, coordinator = pair()
    frame = bytearray(join_bytes(member.encode(HEARTBEAT_REQUEST)))
    frame[4:8] = struct.pack(">hh", key, version)
    with pytest.raises(MalformedError, match=fault):
        coordinator.decode(frame)


@pytest.mark.parametrize("cut", [1, 3, 10])
def test_request_that_ends_early_is_malformed(cut: int) -> None:
    member, coordinator = pair()
    content = join_bytes(member.encode(HEARTBEAT_REQUEST))[4:-cut]
    with pytest.raises(MalformedError):
        coordinator.decode(struct.pack(">i", len(content)) + content)


def test_request_with_bytes_after_its_end_is_malformed() -> None:
    member, coordinator = pair()
    content = join_bytes(member.encode(HEARTBEAT_REQUEST))[4:] + b"x"
    with pytest.raises(MalformedError, match="1 bytes left after Heartbeat"):
        coordinator.decode(struct.pack(">i", len(content)) + content)


@pytest.mark.parametrize("frame", [b"", b"\0\0", b"\0\0\0\x05abcd", b"\xff\xff\xff\xffabcd"])
def test_frame_with_a_wrong_length_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedError):
        CoordinatorFrames(MULTI).decode(frame)
    with pytest.raises(MalformedError):
        MemberFrames(MULTI).decode(frame)


def test_response_without_a_request_is_malformed() -> None:
    member, coordinator = pair()
    coordinator.decode(join_bytes(member.encode(HEARTBEAT_REQUEST)))
    answer = join_bytes(coordinator.encode(HeartbeatResponse(error_code=0)))
    member.decode(answer)
    with pytest.raises(MalformedError, match="no request waits for the correlation id 0"):
        member.decode(answer)


def test_response_to_another_request_is_malformed() -> None:
    member, _ = pair()
    member.encode(HEARTBEAT_REQUEST)
    body = HEARTBEAT.encode_response(0, HeartbeatResponse(error_code=0))
    frame = struct.pack(">ii", 6, 7) + join_bytes(body)
    with pytest.raises(MalformedError, match="no request waits for the correlation id 7"):
        member.decode(frame)


def test_request_of_a_large_group_is_within_the_limits() -> None:
    states = [
        single.SyncedMember(member_id=f"member-{n:016x}", synced_member_state=bytes(40))
        for n in range(5_000)
    ]
    request = single.JoinGroupRequest(
        group_id="g",
        protocol_type="consumer",
        synchronized=single.Synchronized(
            error_code=0, generation_id=1, member_id="m", members=states
        ),
    )
    member, coordinator = pair(SINGLE)
    assert coordinator.decode(join_bytes(member.encode(request))) == request

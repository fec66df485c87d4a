"""The list of APIs, their headers, and messages encoded by hand."""

from __future__ import annotations

import struct

import kio.index
import pytest

from partage.wire.api import AnyApi
from partage.wire.apis import APIS
from partage.wire.apis.api_versions import API_VERSIONS, ApiVersionRange, ApiVersionsResponse
from partage.wire.apis.fetch import FETCH
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from partage.wire.apis.join_group import JOIN_GROUP, JoinGroupProtocol, JoinGroupRequest
from partage.wire.apis.sync_group import (
    SYNC_GROUP,
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)

from .random_messages import CASES, Case
from .test_oracles import ORACLES, covered_cases

#: Versions that Kafka's definitions have and Partage does not support yet. That of Produce
#: identifies topics by id.
NOT_YET = {
    ("Produce", 13),
    ("Fetch", 18),
    ("ListOffsets", 11),
    ("InitProducerId", 6),
}

#: Messages that an implementation does not know.
WITHOUT_ORACLE: dict[str, set[str]] = {
    "kio": set(),
    "kafka-python": {
        f"ConsumerGroup{name}-v{version}-{side}"
        for name in ("Heartbeat", "Describe")
        for version in (0, 1)
        for side in ("request", "response")
    },
}


def kafka_versions(key: int) -> set[int]:
    """Return the versions of an API in Kafka's definitions, from the schemas of kio."""

    def is_defined(version: int) -> bool:
        try:
            kio.index.load_request_schema(key, version)
        except (kio.index.UnknownAPIKey, kio.index.UnknownEntity):
            return False
        return True

    return set(filter(is_defined, range(32)))


def test_supported_versions_equal_kafka_definitions() -> None:
    defined = {(api.name, version) for api in APIS.values() for version in kafka_versions(api.key)}
    supported = {
        (api.name, version)
        for api in APIS.values()
        for version in range(api.version_min, api.version_max + 1)
    }
    assert supported == defined - NOT_YET
    assert defined >= NOT_YET


def test_apis_are_ordered_by_key() -> None:
    assert list(APIS) == sorted(APIS)
    assert all(key == api.key for key, api in APIS.items())


def test_messages_without_oracle() -> None:
    without = {
        name: {str(case) for case in CASES if case not in covered_cases(name)} for name in ORACLES
    }
    assert without == WITHOUT_ORACLE


@pytest.mark.parametrize("name", ORACLES)
def test_flexible_versions_equal_oracles(name: str) -> None:
    for case in covered_cases(name):
        assert ORACLES[name].flexible(case) == case.flexible, case


def test_supported_versions() -> None:
    assert HEARTBEAT.supports(0)
    assert HEARTBEAT.supports(4)
    assert not HEARTBEAT.supports(5)
    assert not FETCH.supports(3)
    assert repr(FETCH) == "Fetch(1) v4-17"


@pytest.mark.parametrize(
    ("api", "version", "is_flexible", "response_header"),
    [
        (HEARTBEAT, 3, False, 0),
        (HEARTBEAT, 4, True, 1),
        (API_VERSIONS, 2, False, 0),
        (API_VERSIONS, 3, True, 0),  # KIP-511
        (APIS[17], 1, False, 0),
        (APIS[60], 0, True, 1),
    ],
)
def test_header_versions(
    api: AnyApi, version: int, is_flexible: bool, response_header: int
) -> None:
    assert api.is_flexible(version) is is_flexible
    assert api.response_header_version(version) == response_header


def test_heartbeat_encoding_by_hand() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=3, member_id="m-1")
    v0 = b"\x00\x01g" + b"\x00\x00\x00\x03" + b"\x00\x03m-1"
    v3 = v0 + b"\xff\xff"
    v4 = b"\x02g" + b"\x00\x00\x00\x03" + b"\x04m-1" + b"\x00" + b"\x00"
    for version, frame in ((0, v0), (3, v3), (4, v4)):
        assert b"".join(HEARTBEAT.encode_request(version, request)) == frame
        assert HEARTBEAT.decode_request(version, frame) == request
    response = HeartbeatResponse(error_code=27)
    assert b"".join(HEARTBEAT.encode_response(0, response)) == b"\x00\x1b"
    assert b"".join(HEARTBEAT.encode_response(4, response)) == bytes(4) + b"\x00\x1b" + b"\x00"


def test_join_group_encoding_by_hand() -> None:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupProtocol(name="range", metadata=b"\x00\x01")],
    )
    v1 = struct.pack(">h1sii", 1, b"g", 45_000, 300_000) + b"\x00\x00" + b"\x00\x08consumer"
    v1 += struct.pack(">ih5si2s", 1, 5, b"range", 2, b"\x00\x01")
    assert b"".join(JOIN_GROUP.encode_request(1, request)) == v1
    assert JOIN_GROUP.decode_request(1, v1) == request


def test_unknown_api_versions_version_is_answered_in_v0() -> None:
    answer = ApiVersionsResponse(
        error_code=35,
        api_keys=[ApiVersionRange(api_key=18, min_version=0, max_version=4)],
    )
    frame = b"\x00\x23" + b"\x00\x00\x00\x01" + b"\x00\x12\x00\x00\x00\x04"
    assert b"".join(API_VERSIONS.encode_response(0, answer)) == frame


class TestProtocolVersion:
    """The tagged field of JoinGroup that is an extension of Partage."""

    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=1,
        member_id="m",
        protocol_type="consumer",
        protocols=[
            JoinGroupProtocol(name="a", metadata=b"", protocol_version=2),
            JoinGroupProtocol(name="b", metadata=b""),
        ],
    )

    @pytest.mark.parametrize("version", [6, 9])
    def test_field_is_encoded_from_v6_on(self, version: int) -> None:
        frame = b"".join(JOIN_GROUP.encode_request(version, self.request))
        assert b"\x02a\x01" + b"\x01" + b"\x91\x4e" + b"\x02" + b"\x00\x02" in frame
        assert b"\x02b\x01" + b"\x00" in frame, "no byte where none is stated"
        assert JOIN_GROUP.decode_request(version, frame).protocols == self.request.protocols

    def test_field_is_omitted_before_v6(self) -> None:
        frame = b"".join(JOIN_GROUP.encode_request(5, self.request))
        stated = [p.protocol_version for p in JOIN_GROUP.decode_request(5, frame).protocols]
        assert stated == [-1, -1]

    def test_other_implementations_skip_field(self) -> None:
        oracle = ORACLES["kafka-python"]
        frame = b"".join(JOIN_GROUP.encode_request(7, self.request))
        read = oracle.decode(Case(JOIN_GROUP, 7, "request"), frame)
        assert [protocol["name"] for protocol in read["protocols"]] == ["a", "b"]


class TestAssignmentError:
    """The tagged field of SyncGroup that is an extension of Partage."""

    request = SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id="m",
        assignments=[SyncGroupAssignment(member_id="m", assignment=b"")],
        assignment_error="ValueError: no",
    )
    response = SyncGroupResponse(error_code=0, assignment=b"a", assignment_error="ValueError: no")

    @pytest.mark.parametrize("version", [4, 5])
    def test_field_is_encoded_from_v4_on(self, version: int) -> None:
        frame = b"".join(SYNC_GROUP.encode_request(version, self.request))
        assert frame.endswith(b"\x01" + b"\x91\x4e" + b"\x0f" + b"\x0f" + b"ValueError: no")
        assert SYNC_GROUP.decode_request(version, frame) == self.request
        frame = b"".join(SYNC_GROUP.encode_response(version, self.response))
        assert SYNC_GROUP.decode_response(version, frame) == self.response

    def test_field_is_omitted_before_v4(self) -> None:
        frame = b"".join(SYNC_GROUP.encode_request(3, self.request))
        assert SYNC_GROUP.decode_request(3, frame).assignment_error is None

    def test_unset_field_takes_no_byte(self) -> None:
        with_error = b"".join(SYNC_GROUP.encode_response(5, self.response))
        response = SyncGroupResponse(error_code=0, assignment=b"a")
        without = b"".join(SYNC_GROUP.encode_response(5, response))
        assert without == with_error[: len(without) - 1] + b"\x00"

    @pytest.mark.parametrize("version", [4, 5])
    def test_other_implementations_skip_field(self, version: int) -> None:
        oracle = ORACLES["kafka-python"]  # kio raises KeyError for any unknown tag
        request = b"".join(SYNC_GROUP.encode_request(version, self.request))
        read = oracle.decode(Case(SYNC_GROUP, version, "request"), request)
        assert read["assignments"] == [{"member_id": "m", "assignment": b""}]
        response = b"".join(SYNC_GROUP.encode_response(version, self.response))
        read = oracle.decode(Case(SYNC_GROUP, version, "response"), response)
        assert read["assignment"] == b"a"

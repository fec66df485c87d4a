"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: all fields of each version, both directions."""

from __future__ import annotations

import msgspec
import pytest

from partage.bridge.api_adapter import ApiAdapter, ApiCall
from partage.bridge.consumer_group_describe import CONSUMER_GROUP_DESCRIBE_ADAPTER
from partage.bridge.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT_ADAPTER
from partage.coordinator.consumer_group.events import (
    ConsumerGroupHeartbeat,
    DescribeConsumerGroup,
)
from partage.coordinator.consumer_group.replies import (
    ConsumerGroupHeartbeatReply,
    DescribeConsumerGroupReply,
    DescribedConsumerMember,
    DescribedTopicPartitions,
)
from partage.coordinator.consumer_group.states import ConsumerGroupState
from partage.model.errors import ErrorCode
from partage.wire.apis.common import GROUP_OPERATIONS, OPERATIONS_OMITTED
from partage.wire.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupMemberAssignment,
    ConsumerGroupMemberTopic,
    DescribedConsumerGroup,
    DescribedConsumerGroupMember,
)
from partage.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupTopicPartitions,
)

from .bridge_calls import FRESH_ID, NOW_MS, SURROUNDINGS, complete

HEARTBEAT: ApiAdapter = CONSUMER_GROUP_HEARTBEAT_ADAPTER
DESCRIBE: ApiAdapter = CONSUMER_GROUP_DESCRIBE_ADAPTER
T, U = b"t" * 16, b"u" * 16

every_version = pytest.mark.parametrize("version", [0, 1])


def start(adapter, version, request):
    api = adapter.api
    message = api.decode_request(version, b"".join(api.encode_request(version, request)))
    call = ApiCall(version, message, "client", "/127.0.0.1", NOW_MS)
    return call, call.start(adapter, SURROUNDINGS, FRESH_ID)


def heartbeat_event(version, **fields):
    request = ConsumerGroupHeartbeatRequest(
        **{"group_id": "g", "member_id": "m", "member_epoch": 5, **fields}
    )
    (event,) = start(HEARTBEAT, version, request)[1]
    return msgspec.structs.replace(event, reply_to=None)


def expected_event(version, **fields):
    return ConsumerGroupHeartbeat(
        at_ms=NOW_MS,
        reply_to=None,
        **{
            "group_id": "g",
            "member_id": "m",
            "generated_member_id": FRESH_ID,
            "may_generate_id": version == 0,
            "member_epoch": 5,
            "client_id": "client",
            "client_host": "/127.0.0.1",
            **fields,
        },
    )


def partitions(topic_id, *numbers):
    return ConsumerGroupTopicPartitions(topic_id=topic_id, partitions=list(numbers))


@every_version
def test_heartbeat_without_changes_has_no_fields(version):
    assert heartbeat_event(version) == expected_event(version)


@every_version
def test_heartbeat_event_has_all_fields(version):
    """The owned partitions are a sorted set, whatever the client sends."""
    event = heartbeat_event(
        version,
        member_epoch=-2,
        instance_id="i",
        rack_id="r",
        rebalance_timeout_ms=7,
        subscribed_topic_names=["u", "t", "u"],
        subscribed_topic_regex="v.*" if version else None,
        server_assignor="range",
        topic_partitions=[partitions(U, 3, 1), partitions(T), partitions(U, 1, 0)],
    )
    assert event == expected_event(
        version,
        member_epoch=-2,
        instance_id="i",
        rack_id="r",
        rebalance_timeout_ms=7,
        subscribed_topics=("t", "u"),
        subscribed_regex="v.*" if version else None,
        server_assignor="range",
        owned={U: (0, 1, 3)},
    )


@every_version
def test_heartbeat_empty_lists_are_not_null(version):
    event = heartbeat_event(version, subscribed_topic_names=[], topic_partitions=[])
    assert event == expected_event(version, subscribed_topics=(), owned={})


def test_heartbeat_invalid_regex_has_reason():
    event = heartbeat_event(1, subscribed_topic_regex="(")
    assert event.regex_error == "missing closing )"


def test_heartbeat_empty_regex_is_valid():
    """It removes the regex."""
    event = heartbeat_event(1, subscribed_topic_regex="")
    assert (event.subscribed_regex, event.regex_error) == ("", None)


def heartbeat_response(version, reply):
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=5)
    return complete(*start(HEARTBEAT, version, request), [reply])


@every_version
def test_heartbeat_response_has_all_fields(version):
    reply = ConsumerGroupHeartbeatReply(
        member_id="m", member_epoch=6, heartbeat_interval_ms=5_000, assignment={T: (0, 2)}
    )
    assert heartbeat_response(version, reply) == ConsumerGroupHeartbeatResponse(
        error_code=0,
        member_id="m",
        member_epoch=6,
        heartbeat_interval_ms=5_000,
        assignment=ConsumerGroupAssignment(topic_partitions=[partitions(T, 0, 2)]),
    )


@every_version
@pytest.mark.parametrize("assignment", [None, {}])
def test_heartbeat_response_empty_assignment_is_not_null(version, assignment):
    reply = ConsumerGroupHeartbeatReply(member_id="m", member_epoch=6, assignment=assignment)
    response = heartbeat_response(version, reply)
    empty = ConsumerGroupAssignment(topic_partitions=[])
    assert response.assignment == (None if assignment is None else empty)


@every_version
def test_heartbeat_response_error_has_message(version):
    reply = ConsumerGroupHeartbeatReply(error=ErrorCode.FENCED_MEMBER_EPOCH, error_message="fenced")
    assert heartbeat_response(version, reply) == ConsumerGroupHeartbeatResponse(
        error_code=110, error_message="fenced"
    )


@every_version
def test_describe_has_one_event_for_each_group(version):
    _, events = start(DESCRIBE, version, ConsumerGroupDescribeRequest(group_ids=["b", "a", "b"]))
    assert [msgspec.structs.replace(event, reply_to=None) for event in events] == [
        DescribeConsumerGroup(at_ms=NOW_MS, reply_to=None, group_id=group) for group in ("b", "a")
    ]


def described_member(**fields):
    return DescribedConsumerMember(
        **{
            "member_id": "m",
            "instance_id": None,
            "rack_id": None,
            "member_epoch": 5,
            "client_id": "c",
            "client_host": "/127.0.0.1",
            "subscribed_topics": ("t",),
            "subscribed_regex": None,
            "assignment": (),
            "target_assignment": (),
            **fields,
        }
    )


@every_version
@pytest.mark.parametrize("with_operations", [False, True])
def test_describe_response_has_all_fields(version, with_operations):
    reply = DescribeConsumerGroupReply(
        group_id="g",
        state=ConsumerGroupState.RECONCILING,
        group_epoch=7,
        assignment_epoch=6,
        assignor="uniform",
        members=(
            described_member(
                instance_id="i",
                rack_id="r",
                subscribed_regex="x.*",
                assignment=(DescribedTopicPartitions(topic_id=T, topic="t", partitions=(1, 2)),),
                target_assignment=(
                    DescribedTopicPartitions(topic_id=U, topic="u", partitions=(0,)),
                ),
            ),
            described_member(member_id="old", is_classic=True),
        ),
    )
    request = ConsumerGroupDescribeRequest(
        group_ids=["g"], include_authorized_operations=with_operations
    )
    (group,) = complete(*start(DESCRIBE, version, request), [reply]).groups
    nothing = ConsumerGroupMemberAssignment(topic_partitions=[])

    def assignment(topic_id, name, *numbers):
        topic = ConsumerGroupMemberTopic(
            topic_id=topic_id, topic_name=name, partitions=list(numbers)
        )
        return ConsumerGroupMemberAssignment(topic_partitions=[topic])

    assert group == DescribedConsumerGroup(
        error_code=0,
        group_id="g",
        group_state="Reconciling",
        group_epoch=7,
        assignment_epoch=6,
        assignor_name="uniform",
        members=[
            DescribedConsumerGroupMember(
                member_id="m",
                instance_id="i",
                rack_id="r",
                member_epoch=5,
                client_id="c",
                client_host="/127.0.0.1",
                subscribed_topic_names=["t"],
                subscribed_topic_regex="x.*",
                assignment=assignment(T, "t", 1, 2),
                target_assignment=assignment(U, "u", 0),
                member_type=1 if version else -1,
            ),
            DescribedConsumerGroupMember(
                member_id="old",
                member_epoch=5,
                client_id="c",
                client_host="/127.0.0.1",
                subscribed_topic_names=["t"],
                subscribed_topic_regex="",  # as Kafka, not null
                assignment=nothing,
                target_assignment=nothing,
                member_type=0 if version else -1,
            ),
        ],
        authorized_operations=GROUP_OPERATIONS if with_operations else OPERATIONS_OMITTED,
    )


@every_version
def test_describe_response_error_has_no_state(version):
    """Kafka sends no authorized operations with an error either."""
    reply = DescribeConsumerGroupReply(
        error=ErrorCode.GROUP_ID_NOT_FOUND, error_message="Group g not found.", group_id="g"
    )
    request = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=True)
    (group,) = complete(*start(DESCRIBE, version, request), [reply]).groups
    assert group == DescribedConsumerGroup(
        error_code=69, error_message="Group g not found.", group_id="g"
    )

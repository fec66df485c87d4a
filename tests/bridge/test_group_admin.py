"""DescribeGroups, ListGroups and DeleteGroups: the fields of each version, in both directions."""

from __future__ import annotations

import msgspec
import pytest

from partage.coordinator.events import DeleteGroup, DescribeGroup, ListGroups
from partage.coordinator.replies import (
    DeleteGroupReply,
    DescribedMember,
    DescribeGroupReply,
    GroupOverview,
    ListGroupsReply,
)
from partage.coordinator.states import GroupState
from partage.model.errors import ErrorCode
from partage.wire.apis.common import GROUP_OPERATIONS, OPERATIONS_OMITTED
from partage.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from partage.wire.apis.describe_groups import (
    DESCRIBE_GROUPS,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
)
from partage.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest

from .bridge_calls import NOW_MS, SHARDS, new_shard, response_to, serve, start_call, versions

every_describe = pytest.mark.parametrize("version", versions(DESCRIBE_GROUPS))
every_list = pytest.mark.parametrize("version", versions(LIST_GROUPS))
every_delete = pytest.mark.parametrize("version", versions(DELETE_GROUPS))


# DescribeGroups.


@every_describe
def test_describe_groups_events(version: int) -> None:
    """One event for each distinct group, in the order of the request."""
    _, events = start_call(
        DESCRIBE_GROUPS, version, DescribeGroupsRequest(groups=["b", "a", "b", ""])
    )
    assert [msgspec.structs.replace(event, reply_to=None) for event in events] == [
        DescribeGroup(
            at_ms=NOW_MS, reply_to=None, group_id=group, knows_group_not_found=version >= 6
        )
        for group in ("b", "a", "")
    ]


@every_describe
def test_describe_groups_all_fields(version: int) -> None:
    reply = DescribeGroupReply(
        group_id="g",
        state=GroupState.STABLE,
        protocol_type="consumer",
        protocol="range",
        members=(
            DescribedMember(
                member_id="m",
                instance_id="i",
                client_id="c",
                client_host="/127.0.0.1",
                metadata=b"\x00m",
                assignment=b"\x00a",
            ),
        ),
    )
    request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    (group,) = response_to(DESCRIBE_GROUPS, version, request, reply).groups
    assert group == DescribedGroup(
        error_code=0,
        group_id="g",
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=[
            DescribedGroupMember(
                member_id="m",
                group_instance_id="i" if version >= 4 else None,
                client_id="c",
                client_host="/127.0.0.1",
                member_metadata=b"\x00m",
                member_assignment=b"\x00a",
            )
        ],
        authorized_operations=GROUP_OPERATIONS if version >= 3 else OPERATIONS_OMITTED,
    )


@every_describe
def test_describe_groups_missing_group_is_dead(version: int) -> None:
    """Newer clients also get GROUP_ID_NOT_FOUND (KIP-1043)."""
    request = DescribeGroupsRequest(groups=["g"])
    (group,) = serve(new_shard(), DESCRIBE_GROUPS, version, request).groups
    assert (group.group_id, group.group_state, group.members) == ("g", "Dead", [])
    assert group.error_code == (69 if version >= 6 else 0)
    assert group.error_message == ("Group g not found." if version >= 6 else None)


def test_describe_groups_message_of_state_machine_is_sent() -> None:
    message = "Group g is not a classic group."
    reply = DescribeGroupReply(
        error=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message, group_id="g"
    )
    (group,) = response_to(DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=["g"]), reply).groups
    assert (group.error_code, group.group_state, group.error_message) == (69, "Dead", message)


@every_describe
def test_describe_groups_error_has_no_state(version: int) -> None:
    reply = DescribeGroupReply(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, group_id="g")
    request = DescribeGroupsRequest(groups=["g"])
    (group,) = response_to(DESCRIBE_GROUPS, version, request, reply).groups
    assert (group.error_code, group.group_state, group.error_message) == (14, "", None)


@every_describe
def test_describe_groups_without_groups_is_empty(version: int) -> None:
    call, events = start_call(DESCRIBE_GROUPS, version, DescribeGroupsRequest(groups=[]))
    assert events == []
    assert DESCRIBE_GROUPS.decode_response(version, b"".join(call.encode_response())).groups == []


# ListGroups.

LISTED = [
    GroupOverview(group_id=f"g{n}", protocol_type="consumer", state=GroupState.EMPTY)
    for n in range(3)
]


@every_list
def test_list_groups_asks_every_shard(version: int) -> None:
    """Filters ignore case; versions without filters list every group."""
    request = ListGroupsRequest(states_filter=["Stable", "EMPTY"], types_filter=["Classic"])
    _, events = start_call(LIST_GROUPS, version, request)
    expected = ListGroups(
        at_ms=NOW_MS,
        reply_to=None,
        states=frozenset({"stable", "empty"} if version >= 4 else ()),
        types=frozenset({"classic"} if version >= 5 else ()),
    )
    assert [msgspec.structs.replace(e, reply_to=None) for e in events] == [expected] * SHARDS


@every_list
def test_list_groups_joins_all_shards(version: int) -> None:
    one, two, three = LISTED
    replies = (
        ListGroupsReply(groups=(one, two)),
        ListGroupsReply(),
        ListGroupsReply(groups=(three,)),
    )
    response = response_to(LIST_GROUPS, version, ListGroupsRequest(), *replies)
    assert response.error_code == 0
    assert [
        (g.group_id, g.protocol_type, g.group_state, g.group_type) for g in response.groups
    ] == [
        (
            group.group_id,
            "consumer",
            "Empty" if version >= 4 else "",
            "classic" if version >= 5 else "",
        )
        for group in LISTED
    ]


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_list_groups_has_type_of_group(kind: str) -> None:
    group = GroupOverview(group_id="g", protocol_type="consumer", state="Stable", type=kind)
    replies = (ListGroupsReply(groups=(group,)), ListGroupsReply(), ListGroupsReply())
    (listed,) = response_to(LIST_GROUPS, 5, ListGroupsRequest(), *replies).groups
    assert listed.group_type == kind


@every_list
def test_list_groups_with_loading_shard_fails(version: int) -> None:
    """A shard of another broker is no error: that broker lists it."""
    loading = ListGroupsReply(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    elsewhere = ListGroupsReply(error=ErrorCode.NOT_COORDINATOR)
    full = ListGroupsReply(groups=(LISTED[0],))
    response = response_to(LIST_GROUPS, version, ListGroupsRequest(), full, loading, elsewhere)
    assert (response.error_code, response.groups) == (14, [])
    response = response_to(LIST_GROUPS, version, ListGroupsRequest(), elsewhere, full, full)
    assert (response.error_code, len(response.groups)) == (0, 2)


# DeleteGroups.


@every_delete
def test_delete_groups_result_for_each_group(version: int) -> None:
    """Each group once: a second deletion would find it missing."""
    request = DeleteGroupsRequest(groups_names=["b", "a", "b", ""])
    _, events = start_call(DELETE_GROUPS, version, request)
    assert [msgspec.structs.replace(event, reply_to=None) for event in events] == [
        DeleteGroup(at_ms=NOW_MS, reply_to=None, group_id=group) for group in ("b", "a", "")
    ]
    errors = (ErrorCode.NONE, ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND)
    replies = [DeleteGroupReply(error=error) for error in errors]
    results = response_to(DELETE_GROUPS, version, request, *replies).results
    assert [(r.group_id, r.error_code) for r in results] == [("b", 0), ("a", 68), ("", 69)]

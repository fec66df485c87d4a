"""Group requests over the wire, and the work of the broker around its coordinator."""

from __future__ import annotations

import asyncio

import pytest

from partage.bridge import API_ADAPTERS, ApiCall
from partage.bridge.api_adapter import BrokerContext
from partage.broker.broker import Broker
from partage.log.memory_disk import MemoryDisk
from partage.model.errors import ErrorCode
from partage.model.settings import BrokerSettings
from partage.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from partage.wire.apis.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from partage.wire.apis.join_group import JOIN_GROUP, JoinGroupProtocol
from partage.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupMember, LeaveGroupRequest
from partage.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest
from partage.wire.apis.offset_commit import OFFSET_COMMIT
from partage.wire.apis.offset_fetch import OFFSET_FETCH, OffsetFetchGroup, OffsetFetchRequest
from partage.wire.apis.sync_group import SYNC_GROUP
from polled_conditions import eventually

from .group_requests import (
    commit,
    commit_errors,
    commit_request,
    describe_group,
    fetch_offsets,
    heartbeat,
    join,
    join_and_sync,
    join_request,
    leave,
    sync,
    sync_request,
)
from .raw_client import RawClient
from .requests import create


@pytest.fixture
def other(broker):
    with RawClient(broker.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def topic(raw):
    create(raw, "t", 3)
    return "t"


def test_two_members_rebalance_and_one_leaves(raw, other):
    first = join_and_sync(raw, "g")
    second = other.request(JOIN_GROUP, join_request("g"))
    other.send(JOIN_GROUP, join_request("g", second.member_id))
    eventually(lambda: heartbeat(raw, "g", first) == ErrorCode.REBALANCE_IN_PROGRESS)
    leader = join(raw, "g", first.member_id)
    follower = other.receive()
    assert leader.generation_id == follower.generation_id == 2
    assert {m.member_id for m in leader.members} == {leader.member_id, follower.member_id}
    assert follower.members == []
    other.send(SYNC_GROUP, sync_request("g", follower, {}))
    assert other.is_silent()
    shares = {leader.member_id: b"one", follower.member_id: b"two"}
    assert sync(raw, "g", leader, shares) == b"one"
    assert other.receive().assignment == b"two"
    group = describe_group(raw, "g")
    assert (group.group_state, group.protocol_data) == ("Stable", "p")
    assert {m.member_assignment for m in group.members} == {b"one", b"two"}
    assert {m.client_host for m in group.members} == {"/127.0.0.1"}
    assert leave(other, "g", follower.member_id) == 0
    assert heartbeat(raw, "g", leader) == ErrorCode.REBALANCE_IN_PROGRESS
    assert join(raw, "g", leader.member_id).generation_id == 3


def test_expired_member_triggers_rebalance(broker, raw):
    mine = join_and_sync(raw, "g")
    with RawClient(broker.bootstrap_servers) as dying:
        theirs = dying.request(JOIN_GROUP, join_request("g", session_timeout_ms=1000))
        options = {"session_timeout_ms": 1000, "rebalance_timeout_ms": 1000}
        dying.send(JOIN_GROUP, join_request("g", theirs.member_id, **options))
        again = join(raw, "g", mine.member_id)
        dying.receive()
        sync(raw, "g", again, {again.member_id: b"all"})
    eventually(lambda: heartbeat(raw, "g", again) == ErrorCode.REBALANCE_IN_PROGRESS)
    assert [m.member_id for m in join(raw, "g", again.member_id).members] == [mine.member_id]


def test_offsets_of_group_with_members(raw, topic):
    joined = join_and_sync(raw, "g")
    assert commit(raw, "g", topic, 5, joined=joined) == 0
    assert fetch_offsets(raw, "g") == {("t", 0): 5}
    assert fetch_offsets(raw, "g", {"t": [0, 1], "u": [0]}) == {
        ("t", 0): 5,
        ("t", 1): -1,
        ("u", 0): -1,
    }
    assert commit(raw, "g", topic, 6) == ErrorCode.UNKNOWN_MEMBER_ID
    joined.generation_id += 1
    assert commit(raw, "g", topic, 6, joined=joined) == ErrorCode.ILLEGAL_GENERATION
    assert fetch_offsets(raw, "g") == {("t", 0): 5}


def test_commit_unknown_partition_is_refused(raw, topic):
    answer = raw.request(OFFSET_COMMIT, commit_request("g", topic, {0: 1, 3: 1, -1: 1, 2: 5}))
    assert commit_errors(answer) == [0, 3, 3, 0]
    assert commit(raw, "g", "nothing", 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetch_offsets(raw, "g") == {("t", 0): 1, ("t", 2): 5}


def test_delete_group_deletes_offsets(raw, topic):
    commit(raw, "g", topic, 5)
    joined = join_and_sync(raw, "busy")
    request = DeleteGroupsRequest(groups_names=["g", "busy", "nothing"])
    results = raw.request(DELETE_GROUPS, request).results
    assert [(r.group_id, r.error_code) for r in results] == [
        ("g", 0),
        ("busy", 68),
        ("nothing", 69),
    ]
    assert fetch_offsets(raw, "g") == {}
    assert heartbeat(raw, "busy", joined) == 0


def test_list_groups_covers_all_shards(raw, topic):
    names = [f"group-{n}" for n in range(30)]
    for name in names:
        commit(raw, name, topic, 1)
    join_and_sync(raw, "live")
    listed = raw.request(LIST_GROUPS, ListGroupsRequest()).groups
    assert sorted(g.group_id for g in listed) == sorted([*names, "live"])
    (only,) = raw.request(LIST_GROUPS, ListGroupsRequest(states_filter=["STABLE"])).groups
    assert (only.group_id, only.group_state, only.group_type) == ("live", "Stable", "classic")


def test_describe_many_groups(raw, topic):
    for n in range(20):
        commit(raw, f"g{n}", topic, n)
    groups = [OffsetFetchGroup(group_id=f"g{n}", topics=None) for n in range(21)]
    answer = raw.request(OFFSET_FETCH, OffsetFetchRequest(groups=groups))
    found = [[p.committed_offset for t in g.topics for p in t.partitions] for g in answer.groups]
    assert found == [[n] for n in range(20)] + [[]]


@pytest.mark.parametrize("version", [3, 5, 6])
def test_describe_groups_authorized_operations(raw, topic, version):
    """KIP-430: without an authorizer a client may do everything with a group."""
    join(raw, "g")
    for is_included in (True, False):
        request = DescribeGroupsRequest(
            groups=["g", "missing"], include_authorized_operations=is_included
        )
        known, missing = raw.request(DESCRIBE_GROUPS, request, version).groups
        assert known.authorized_operations == (3400 if is_included else -(2**31))
        has_error = version >= 6
        assert bool(missing.error_code) == has_error
        is_reported = is_included and not has_error
        assert missing.authorized_operations == (3400 if is_reported else -(2**31))


def test_describe_duplicate_group_is_answered_once(raw, topic):
    """Otherwise a small request could produce a response of megabytes."""
    commit(raw, "g", topic, 1)
    described = raw.request(
        DESCRIBE_GROUPS, DescribeGroupsRequest(groups=["g"] * 3000 + ["h"])
    ).groups
    assert [g.group_id for g in described] == ["g", "h"]
    groups = [OffsetFetchGroup(group_id="g", topics=None)] * 3000
    assert len(raw.request(OFFSET_FETCH, OffsetFetchRequest(groups=groups)).groups) == 1
    results = raw.request(DELETE_GROUPS, DeleteGroupsRequest(groups_names=["g"] * 3000)).results
    assert [(r.group_id, r.error_code) for r in results] == [("g", 0)]


class Heard(ApiCall):
    """A request whose response is discarded."""

    body = None

    def respond_with_replies(self):
        self.body = b"".join(self.encode_response())


def test_describe_many_groups_does_not_block_loop():
    """They are handled in slices, and other requests are served in between."""
    names = [f"g{n}" for n in range(10_000)]

    async def story():
        broker = await Broker.start(MemoryDisk(), BrokerSettings(), host="127.0.0.1", port=0)
        coordinator = broker.coordinator
        around = BrokerContext(shard_count=coordinator.shard_count, has_partition=lambda *_: True)
        call = Heard(6, DescribeGroupsRequest(groups=names), "c", "/host", 0)
        coordinator.handle(call, call.start(API_ADAPTERS[DESCRIBE_GROUPS.key], around))
        turns = 0
        while call.body is None:
            await asyncio.sleep(0)
            turns += 1
        await broker.stop()
        answer = DESCRIBE_GROUPS.decode_response(6, call.body)
        assert [group.group_id for group in answer.groups] == names
        assert turns > 30

    asyncio.run(story())


@pytest.mark.parametrize("timeout_ms", [-1, 0, 99, 1_800_001, 2**31 - 1])
def test_join_session_timeout_out_of_range_is_refused(raw, timeout_ms):
    answer = raw.request(JOIN_GROUP, join_request("g", session_timeout_ms=timeout_ms))
    assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


@pytest.mark.parametrize("timeout_ms", [-1, 0, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("version", [0, 1, 9])
def test_join_any_rebalance_timeout_is_accepted(raw, timeout_ms, version):
    joined = raw.request(JOIN_GROUP, join_request("g", rebalance_timeout_ms=timeout_ms), version)
    if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        request = join_request("g", joined.member_id, rebalance_timeout_ms=timeout_ms)
        joined = raw.request(JOIN_GROUP, request, version)
    assert joined.error_code == 0
    assert leave(raw, "g", joined.member_id) in (0, 25)  # 25: the member had no time to sync
    join_and_sync(raw, "g")


def test_empty_group_id(raw, topic):
    invalid = ErrorCode.INVALID_GROUP_ID
    joined = join_and_sync(raw, "g")
    assert raw.request(JOIN_GROUP, join_request("")).error_code == invalid
    assert raw.request(SYNC_GROUP, sync_request("", joined, {})).error_code == invalid
    assert heartbeat(raw, "", joined) == invalid
    leaving = LeaveGroupRequest(group_id="", members=[LeaveGroupMember(member_id="m")])
    assert raw.request(LEAVE_GROUP, leaving).error_code == invalid
    assert raw.request(DELETE_GROUPS, DeleteGroupsRequest(groups_names=[""])).results[0].error_code
    assert commit(raw, "", topic, 1) == 0  # as in Kafka, for old clients without groups
    assert fetch_offsets(raw, "") == {("t", 0): 1}


@pytest.mark.parametrize("size", [1_000, 32_767])
def test_names_of_maximum_length(broker, topic, size):
    """Names of the maximum length of the protocol must fit into the stored records."""
    with RawClient(broker.bootstrap_servers, client_id="c" * size) as raw:
        group = "g" * size
        options = {
            "protocol_type": "y" * size,
            "protocols": [JoinGroupProtocol(name="p" * size, metadata=b"m" * 100_000)],
        }
        joined = join_and_sync(raw, group, **options)
        assert len(joined.member_id) < 300
        assert describe_group(raw, group).members[0].client_id == "c" * size
        assert commit(raw, group, topic, 5, joined=joined) == 0
        assert leave(raw, group, joined.member_id) == 0
        static = join_and_sync(raw, group, group_instance_id="i" * size, **options)
        assert static.generation_id > joined.generation_id
        assert fetch_offsets(raw, group) == {("t", 0): 5}


def test_names_in_any_script(raw, topic):
    for group in ("größe", "群組", "\N{GRINNING FACE}", "a\0b", " "):
        joined = join_and_sync(raw, group, group_instance_id=group)
        assert commit(raw, group, topic, 1, joined=joined) == 0
        assert describe_group(raw, group).members[0].group_instance_id == group


def test_commit_metadata_limit(raw, topic):
    assert commit(raw, "g", topic, 1, metadata="x" * 4096) == 0
    assert commit(raw, "g", topic, 2, metadata="x" * 4097) == 12
    assert fetch_offsets(raw, "g") == {("t", 0): 1}


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("retention_ms", [-1, 0, 60_000, 2**62, 2**63 - 1])
def test_commit_any_retention_is_accepted(raw, topic, version, retention_ms):
    request = commit_request("g", topic, {0: 7})
    request.retention_time_ms = retention_ms
    assert commit_errors(raw.request(OFFSET_COMMIT, request, version)) == [0]
    assert fetch_offsets(raw, "g") == {("t", 0): 7}


@pytest.mark.parametrize("offset", [0, 2**63 - 1, -1, -(2**63)])
def test_commit_any_offset_is_accepted(raw, topic, offset):
    """As in Kafka, committed offsets are not validated."""
    assert commit(raw, "g", topic, offset) == 0
    assert fetch_offsets(raw, "g", {"t": [0]}) == {("t", 0): offset}


@pytest.mark.partage_broker({"group.max.size": "1"})
def test_join_full_group_is_refused(raw, other):
    joined = join_and_sync(raw, "g")
    assert (
        other.request(JOIN_GROUP, join_request("g")).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    )
    assert heartbeat(raw, "g", joined) == 0
    join_and_sync(other, "g2")
    assert leave(raw, "g", joined.member_id) == 0
    join_and_sync(other, "g")

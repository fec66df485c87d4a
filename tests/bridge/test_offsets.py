"""OffsetCommit, OffsetFetch and OffsetDelete: the fields of each version, in both directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from partage.coordinator.events import (
    Commit,
    DeleteOffsets,
    FetchOffsets,
    OffsetToCommit,
    TransactionalCommit,
)
from partage.coordinator.records import OffsetRecord
from partage.coordinator.replies import CommitReply, DeleteOffsetsReply, FetchOffsetsReply
from partage.coordinator.shard import Shard
from partage.model.errors import ErrorCode
from partage.wire.api import AnyApi
from partage.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from partage.wire.apis.offset_delete import (
    OFFSET_DELETE,
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopic,
)
from partage.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
)
from partage.wire.apis.txn_offset_commit import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)
from partage.wire.primitives import MalformedError
from partage.wire.types import ZERO_UUID, Message

from .bridge_calls import (
    NOW_MS,
    event_of,
    id_of,
    name_of,
    new_shard,
    response_to,
    serve,
    start_call,
    versions,
)

every_commit = pytest.mark.parametrize("version", versions(OFFSET_COMMIT))
every_fetch = pytest.mark.parametrize("version", versions(OFFSET_FETCH))
NONE = ErrorCode.NONE


# OffsetCommit.


def committing(offsets: Mapping[tuple[str, int], int], **options: Any) -> OffsetCommitRequest:
    request = OffsetCommitRequest(
        group_id="g",
        member_id="",
        topics=[
            OffsetCommitTopic(
                name=topic,
                topic_id=id_of(topic),
                partitions=[
                    OffsetCommitPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=4,
                        committed_metadata="note",
                    )
                ],
            )
            for (topic, partition), offset in offsets.items()
        ],
    )
    return msgspec.structs.replace(request, **options)


def errors_of(response: Any) -> list[int]:
    return [p.error_code for topic in response.topics for p in topic.partitions]


@every_commit
def test_commit_event(version: int) -> None:
    request = committing(
        {("t", 2): 7},
        generation_id_or_member_epoch=3,
        member_id="m",
        group_instance_id="i",
        retention_time_ms=5_000,
    )
    event = event_of(OFFSET_COMMIT, version, request)
    assert msgspec.structs.replace(event, reply_to=None) == Commit(
        at_ms=NOW_MS,
        reply_to=None,
        group_id="g",
        generation=3,
        member_id="m",
        instance_id="i" if version >= 7 else None,
        offsets=(
            OffsetToCommit(
                topic="t",
                partition=2,
                offset=7,
                leader_epoch=4 if version >= 6 else -1,
                metadata="note",
            ),
        ),
        retention_ms=5_000 if version <= 4 else None,
        knows_group_not_found=version >= 9,
    )


@every_commit
def test_commit_error_for_each_partition(version: int) -> None:
    """Unknown partitions get an error in their place; the coordinator gets the others."""
    request = committing({("t", 0): 1, ("x", 0): 1, ("t", 3): 1, ("u", 0): 1, ("t", -1): 1})
    _, (event,) = start_call(OFFSET_COMMIT, version, request)
    assert [(o.topic, o.partition) for o in event.offsets] == [("t", 0), ("u", 0)]
    reply = CommitReply(errors=(ErrorCode.OFFSET_METADATA_TOO_LARGE, NONE))
    response = response_to(OFFSET_COMMIT, version, request, reply)
    assert [name_of(topic) for topic in response.topics] == ["t", "x", "t", "u", "t"]
    assert errors_of(response) == [12, 100 if version >= 10 else 3, 3, 0, 3]


@every_commit
def test_commit_of_unknown_partitions_has_no_event(version: int) -> None:
    call, events = start_call(OFFSET_COMMIT, version, committing({("x", 0): 1, ("t", 9): 1}))
    assert events == []
    response = OFFSET_COMMIT.decode_response(version, b"".join(call.encode_response()))
    assert errors_of(response) == [100 if version >= 10 else 3, 3]


def test_commit_without_topics_keeps_member_alive() -> None:
    event = event_of(OFFSET_COMMIT, 9, committing({}, member_id="m"))
    assert (event.member_id, event.offsets) == ("m", ())
    assert response_to(OFFSET_COMMIT, 9, committing({}), CommitReply(errors=())).topics == []


@every_commit
def test_commit_null_metadata_is_empty(version: int) -> None:
    request = committing({("t", 0): 1})
    request.topics[0].partitions[0].committed_metadata = None
    assert event_of(OFFSET_COMMIT, version, request).offsets[0].metadata == ""


@pytest.mark.parametrize(
    ("asked_ms", "retention_ms"),
    [(-1, None), (-(2**63), None), (0, 0), (2**62, 2**62), (2**63 - 1, 2**62)],
)
def test_commit_retention_is_bounded(asked_ms: int, retention_ms: int | None) -> None:
    request = committing({("t", 0): 1}, retention_time_ms=asked_ms)
    assert event_of(OFFSET_COMMIT, 2, request).retention_ms == retention_ms


@every_commit
def test_commit_generation_of_missing_group_rejected(version: int) -> None:
    """Older clients do not know GROUP_ID_NOT_FOUND."""
    request = committing({("t", 0): 1}, generation_id_or_member_epoch=1, member_id="m")
    response = serve(new_shard(), OFFSET_COMMIT, version, request)
    assert errors_of(response) == [69 if version >= 9 else 22]


# OffsetFetch.


def with_offsets(**groups: Mapping[tuple[str, int], int]) -> Shard:
    shard = new_shard()
    for group, offsets in groups.items():
        for (topic, partition), offset in offsets.items():
            shard.apply(
                OffsetRecord(
                    group_id=group,
                    topic=topic,
                    partition=partition,
                    offset=offset,
                    leader_epoch=6,
                    metadata="note",
                    commit_ms=NOW_MS,
                )
            )
    return shard


def fetching(
    version: int, groups: Mapping[str, Mapping[str, Sequence[int]] | None]
) -> OffsetFetchRequest:
    """Return the request in the form of the version: one group at the top level, or several."""
    wanted = [
        OffsetFetchGroup(
            group_id=group,
            topics=None
            if topics is None
            else [
                OffsetFetchTopic(name=t, topic_id=id_of(t), partition_indexes=list(p))
                for t, p in topics.items()
            ],
        )
        for group, topics in groups.items()
    ]
    if version >= 8:
        return OffsetFetchRequest(groups=wanted)
    (group,) = wanted
    return OffsetFetchRequest(group_id=group.group_id, topics=group.topics)


def found(version: int, response: OffsetFetchResponse) -> list[dict[tuple[str, int], int]]:
    """Return the offsets of a response by group, wherever the version has them."""
    if version >= 8:
        assert (response.topics, response.error_code) == ([], 0)
        topics_of = [group.topics for group in response.groups]
    else:
        assert response.groups == []
        topics_of = [response.topics]
    return [
        {
            (name_of(topic), p.partition_index): p.committed_offset
            for topic in t
            for p in topic.partitions
        }
        for t in topics_of
    ]


@every_fetch
def test_offset_fetch_response(version: int) -> None:
    shard = with_offsets(g={("t", 0): 5, ("u", 0): 7}, h={("t", 1): 9})
    request = fetching(version, {"g": {"t": [0, 1], "x": [0]}})
    response = serve(shard, OFFSET_FETCH, version, request)
    assert found(version, response) == [{("t", 0): 5, ("t", 1): -1, ("x", 0): -1}]
    topics = response.groups[0].topics if version >= 8 else response.topics
    there, missing = topics[0].partitions
    epoch = 6 if version >= 5 else -1
    assert (there.committed_leader_epoch, there.metadata, there.error_code) == (epoch, "note", 0)
    assert (missing.committed_leader_epoch, missing.metadata, missing.error_code) == (-1, "", 0)


@every_fetch
def test_offset_fetch_all_offsets_of_group(version: int) -> None:
    """From v2 on null stands for all topics; an empty list stands for none."""
    shard = with_offsets(g={("t", 0): 5, ("u", 0): 7, ("t", 1): 9}, h={("t", 1): 9})
    if version >= 2:
        response = serve(shard, OFFSET_FETCH, version, fetching(version, {"g": None}))
        assert found(version, response) == [{("t", 0): 5, ("t", 1): 9, ("u", 0): 7}]
    response = serve(shard, OFFSET_FETCH, version, fetching(version, {"g": {}}))
    assert found(version, response) == [{}]
    response = serve(shard, OFFSET_FETCH, version, fetching(version, {"nobody": {"t": [0]}}))
    assert found(version, response) == [{("t", 0): -1}]


def test_offset_fetch_v1_requires_topics() -> None:
    nothing_named = b"\x00\x01g\xff\xff\xff\xff"
    assert OFFSET_FETCH.decode_request(2, nothing_named).topics is None
    with pytest.raises(MalformedError):
        OFFSET_FETCH.decode_request(1, nothing_named)


@pytest.mark.parametrize("version", [8, 9, 10])
def test_offset_fetch_groups_in_request_order(version: int) -> None:
    shard = with_offsets(g={("t", 0): 5}, h={("t", 0): 6, ("u", 0): 7})
    request = fetching(version, {"h": None, "nobody": None, "g": {"t": [0]}})
    response = serve(shard, OFFSET_FETCH, version, request)
    assert [group.group_id for group in response.groups] == ["h", "nobody", "g"]
    assert found(version, response) == [{("t", 0): 6, ("u", 0): 7}, {}, {("t", 0): 5}]


@every_fetch
def test_offset_fetch_group_error_at_top_level(version: int) -> None:
    """v1 has errors of partitions only."""
    request = fetching(version, {"g": {"t": [0, 1], "u": [0]}})
    reply = FetchOffsetsReply(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    response = response_to(OFFSET_FETCH, version, request, reply)
    if version == 1:
        assert errors_of(response) == [14, 14, 14]
        assert found(version, response) == [{("t", 0): -1, ("t", 1): -1, ("u", 0): -1}]
    else:
        (group,) = response.groups if version >= 8 else [response]
        assert (group.error_code, group.topics) == (14, [])


@pytest.mark.parametrize("version", [8, 9, 10])
def test_offset_fetch_error_of_one_group_keeps_others(version: int) -> None:
    request = fetching(version, {"g": {"t": [0]}, "h": {"t": [0]}})
    replies = (
        FetchOffsetsReply(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        FetchOffsetsReply(offsets=(None,)),
    )
    response = response_to(OFFSET_FETCH, version, request, *replies)
    assert [group.error_code for group in response.groups] == [14, 0]
    assert found(version, response) == [{}, {("t", 0): -1}]


@pytest.mark.parametrize("version", [8, 9, 10])
def test_offset_fetch_duplicate_group_answered_once(version: int) -> None:
    group = OffsetFetchGroup(group_id="g", topics=None)
    _, events = start_call(OFFSET_FETCH, version, OffsetFetchRequest(groups=[group] * 100))
    assert len(events) == 1
    shard = with_offsets(g={("t", 0): 5})
    response = serve(shard, OFFSET_FETCH, version, OffsetFetchRequest(groups=[group] * 100))
    assert found(version, response) == [{("t", 0): 5}]


@every_fetch
def test_offset_fetch_duplicate_topic_merged(version: int) -> None:
    topics = [
        OffsetFetchTopic(name="t", topic_id=id_of("t"), partition_indexes=[p]) for p in (0, 1, 0)
    ]
    groups = [OffsetFetchGroup(group_id="g", topics=topics)]
    request = OffsetFetchRequest(group_id="g", topics=topics, groups=groups)
    response = serve(with_offsets(g={("t", 0): 5}), OFFSET_FETCH, version, request)
    (topic,) = response.groups[0].topics if version >= 8 else response.topics
    assert [(p.partition_index, p.committed_offset) for p in topic.partitions] == [
        (0, 5),
        (1, -1),
        (0, 5),
    ]


@pytest.mark.parametrize("version", [7, 8, 9, 10])
def test_offset_fetch_require_stable_reaches_group(version: int) -> None:
    request = fetching(version, {"g": {"t": [0]}})
    request.require_stable = True
    event = event_of(OFFSET_FETCH, version, request)
    assert msgspec.structs.replace(event, reply_to=None) == FetchOffsets(
        at_ms=NOW_MS,
        reply_to=None,
        group_id="g",
        partitions=(("t", 0),),
        requires_stable=True,
    )


@pytest.mark.parametrize("member_id", ["m", "", None])
@pytest.mark.parametrize("version", [8, 9, 10])
def test_offset_fetch_member_epoch_reaches_group(version: int, member_id: str | None) -> None:
    """A member of a consumer group sends them from v9 on (KIP-848)."""
    group = OffsetFetchGroup(group_id="g", topics=None, member_id=member_id, member_epoch=3)
    event = event_of(OFFSET_FETCH, version, OffsetFetchRequest(groups=[group]))
    expected = (member_id, 3) if version >= 9 else (None, -1)
    assert (event.member_id, event.member_epoch) == expected


@pytest.mark.parametrize("version", [7, 8, 9, 10])
def test_offset_fetch_of_pending_offsets_reports_them_by_partition(version: int) -> None:
    request = fetching(version, {"g": {"t": [0, 1]}})
    request.require_stable = True
    committed = OffsetRecord(group_id="g", topic="t", partition=1, offset=5, commit_ms=NOW_MS)
    reply = FetchOffsetsReply(offsets=(committed, committed), unstable=frozenset({("t", 0)}))
    response = response_to(OFFSET_FETCH, version, request, reply)
    (topic,) = response.topics if version < 8 else response.groups[0].topics
    assert [(p.committed_offset, p.error_code) for p in topic.partitions] == [
        (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT),
        (5, ErrorCode.NONE),
    ]


def test_offset_fetch_of_unknown_ids_reports_them_last() -> None:
    """The coordinator still gets the others, even none, because it checks the member."""
    shard = with_offsets(g={("t", 0): 5})
    request = fetching(10, {"g": {"x": [0, 1], "t": [0]}})
    (group,) = serve(shard, OFFSET_FETCH, 10, request).groups
    assert [
        (name_of(topic), [(p.committed_offset, p.error_code) for p in topic.partitions])
        for topic in group.topics
    ] == [("t", [(5, 0)]), ("x", [(-1, 100), (-1, 100)])]
    event = event_of(OFFSET_FETCH, 10, fetching(10, {"g": {"x": [0]}}))
    assert event.partitions == ()


def test_offset_fetch_of_all_offsets_omits_topics_without_id() -> None:
    """Such as a topic that is being deleted."""
    shard = with_offsets(g={("t", 0): 5, ("deleted", 0): 6, ("u", 0): 7})
    response = serve(shard, OFFSET_FETCH, 10, fetching(10, {"g": None}))
    assert found(10, response) == [{("t", 0): 5, ("u", 0): 7}]


@pytest.mark.parametrize("api", [OFFSET_COMMIT, OFFSET_FETCH], ids=repr)
def test_zero_id_is_unknown(api: AnyApi) -> None:
    """A client sends it for a topic whose id it does not know."""
    wanted = [OffsetFetchTopic(partition_indexes=[0])]
    requests: dict[AnyApi, Message] = {
        OFFSET_COMMIT: committing({("t", 0): 1}),
        OFFSET_FETCH: OffsetFetchRequest(groups=[OffsetFetchGroup(group_id="g", topics=wanted)]),
    }
    request: Any = requests[api]
    if api is OFFSET_COMMIT:
        request.topics[0].topic_id = ZERO_UUID
    response = serve(new_shard(), api, 10, request)
    (owner,) = response.groups if api is OFFSET_FETCH else (response,)
    assert errors_of(owner) == [100]


# TxnOffsetCommit.


def committing_in_transaction(*partitions: tuple[str, int]) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=7,
        producer_epoch=3,
        generation_id=4,
        member_id="m",
        group_instance_id="i",
        topics=[
            TxnOffsetCommitTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitPartition(
                        partition_index=partition,
                        committed_offset=9,
                        committed_leader_epoch=2,
                        committed_metadata=None,
                    )
                ],
            )
            for topic, partition in partitions
        ],
    )


@pytest.mark.parametrize("version", versions(TXN_OFFSET_COMMIT))
def test_txn_offset_commit_event(version: int) -> None:
    event = event_of(TXN_OFFSET_COMMIT, version, committing_in_transaction(("t", 0)))
    has_member = version >= 3
    assert msgspec.structs.replace(event, reply_to=None) == TransactionalCommit(
        at_ms=NOW_MS,
        reply_to=None,
        group_id="g",
        producer_id=7,
        producer_epoch=3,
        generation=4 if has_member else -1,
        member_id="m" if has_member else "",
        instance_id="i" if has_member else None,
        offsets=(
            OffsetToCommit(
                topic="t", partition=0, offset=9, leader_epoch=2 if version >= 2 else -1
            ),
        ),
    )


def test_txn_offset_commit_to_missing_partition_rejected() -> None:
    request = committing_in_transaction(("t", 0), ("gone", 0))
    reply = CommitReply(errors=(ErrorCode.NONE,))
    response = response_to(TXN_OFFSET_COMMIT, 3, request, reply)
    assert [(t.name, [p.error_code for p in t.partitions]) for t in response.topics] == [
        ("t", [ErrorCode.NONE]),
        ("gone", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
    ]


def test_txn_offset_commit_stale_epoch_is_illegal_generation() -> None:
    """Producers up to v5 do not know STALE_MEMBER_EPOCH."""
    request = committing_in_transaction(("t", 0), ("u", 0))
    reply = CommitReply(errors=(ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.NONE))
    assert errors_of(response_to(TXN_OFFSET_COMMIT, 5, request, reply)) == [22, 0]


# OffsetDelete.


def deleting(*partitions: tuple[str, int]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteTopic(
                name=topic, partitions=[OffsetDeletePartition(partition_index=partition)]
            )
            for topic, partition in partitions
        ],
    )


def test_offset_delete_event() -> None:
    event = event_of(OFFSET_DELETE, 0, deleting(("t", 1), ("u", 0)))
    assert msgspec.structs.replace(event, reply_to=None) == DeleteOffsets(
        at_ms=NOW_MS, reply_to=None, group_id="g", partitions=(("t", 1), ("u", 0))
    )


def test_offset_delete_error_for_each_partition() -> None:
    """Unknown partitions get an error, even if their offsets were removed."""
    request = deleting(("t", 1), ("x", 0), ("u", 0))
    in_use = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    response = response_to(
        OFFSET_DELETE, 0, request, DeleteOffsetsReply(errors=(NONE, NONE, in_use))
    )
    assert response.error_code == 0
    assert [topic.name for topic in response.topics] == ["t", "x", "u"]
    assert errors_of(response) == [0, 3, 86]


def test_offset_delete_removes_offsets_of_missing_topics() -> None:
    shard = with_offsets(g={("x", 0): 5, ("t", 0): 6})
    assert errors_of(serve(shard, OFFSET_DELETE, 0, deleting(("x", 0)))) == [3]
    assert shard.offsets["g"].keys() == {("t", 0)}


def test_offset_delete_group_error_at_top_level() -> None:
    response = serve(new_shard(), OFFSET_DELETE, 0, deleting(("t", 1), ("u", 0)))
    assert response == OffsetDeleteResponse(error_code=69, topics=[])

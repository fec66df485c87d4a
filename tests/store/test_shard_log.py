"""A shard and its log: records to batches, and batches to a shard."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.scenario_runner import ScenarioRunner
from coordinator.test_scenarios import SCENARIOS, played
from partage.coordinator.consumer_group.group import ConsumerGroup
from partage.coordinator.consumer_group.records import ConsumerGroupRecord, MemberAssignmentRecord
from partage.coordinator.invariants import durable_state
from partage.coordinator.records import (
    GroupRecord,
    GroupTombstone,
    OffsetRecord,
    OffsetTombstone,
    Record,
    TransactionalOffsetRecord,
    TransactionMarker,
)
from partage.coordinator.shard import Shard
from partage.model.settings import GroupSettings
from partage.store.log_merge import merge
from partage.store.record_formats import encode_record
from partage.store.shard_log import (
    encode_records,
    find_shard,
    replay,
    shard_of,
    subscribed_topics,
)
from partage.wire.consumer_protocol import (
    ConsumerTopicPartitions,
    Subscription,
    encode_subscription,
)
from partage.wire.primitives import MalformedError
from partage.wire.records.batch import parse_header
from partage.wire.records.decoder import decode_pairs, decode_records
from partage.wire.records.encoder import SimpleRecord as StoredRecord
from partage.wire.records.encoder import encode_batch
from partage.wire.records.transaction_marker import decode_marker

from .record_strategies import AT_MS, markers, records, transactional_offsets

SETTINGS = GroupSettings()


def offset(at: int, *, partition: int = 0, metadata: str = "") -> OffsetRecord:
    return OffsetRecord(
        group_id="g",
        topic="t",
        partition=partition,
        offset=at,
        metadata=metadata,
        commit_ms=AT_MS,
    )


def live(history: Iterable[Record]) -> Shard:
    shard = Shard(SETTINGS, subscribed_topics)
    for record in history:
        shard.apply(record)
    return shard


def blobs(*pairs: tuple[bytes | None, bytes | None]) -> list[bytes]:
    return [encode_batch([StoredRecord(key, value) for key, value in pairs])]


# Shard of a group.


@pytest.mark.parametrize(
    ("group_id", "of_50", "of_7"),
    [
        ("", 0, 0),
        ("g", 3, 5),
        ("my-group", 12, 1),
        ("größe", 7, 6),
        ("群組", 24, 1),
        ("\N{GRINNING FACE}", 49, 2),
        ("connect-cluster", 13, 5),
        ("polygenelubricants", 0, 0),  # its hash is the number without an absolute value
    ],
)
def test_shard_of_group_equals_kafka(group_id: str, of_50: int, of_7: int) -> None:
    assert shard_of(group_id, 50) == of_50
    assert shard_of(group_id, 7) == of_7
    assert shard_of(group_id, 1) == 0


def test_find_shard_long_and_repeated_ids_equal_shard_of() -> None:
    """The counts of shards of groups and of transactional ids may differ."""
    for name in ("", "a", "a" * 256, "a" * 257, "ü" * 300):
        for count in (50, 7, 50):
            assert find_shard(name, count) == shard_of(name, count)


# Batches.


def test_records_encoded_in_order_with_timestamp() -> None:
    history = [offset(1), offset(2), GroupTombstone(group_id="g")]
    (batch,) = encode_records(history, AT_MS)
    expected = [(n, AT_MS, *encode_record(record), ()) for n, record in enumerate(history)]
    assert decode_records(batch) == expected


@given(records, st.integers(1, 200))
def test_single_record_has_the_bytes_of_a_batch_of_several(record: Record, size: int) -> None:
    """A list of one commit has a shorter path; an iterator always has the usual one."""
    short = encode_records([record], 1_000, size, event_ends=[1])
    assert short == encode_records(iter([record]), 1_000, size, event_ends=[1])


@given(st.lists(st.integers(0, 60), min_size=1, max_size=9), st.integers(1, 1_500))
def test_commits_have_the_batches_of_any_records(sizes: list[int], batch_bytes: int) -> None:
    """A list of commits has a shorter path; an iterator always has the usual one."""
    history = [offset(n, metadata="x" * size) for n, size in enumerate(sizes)]
    ends = [*range(2, len(history), 2), len(history)]
    short = encode_records(history, 1_000, batch_bytes, event_ends=ends)
    assert short == encode_records(iter(history), 1_000, batch_bytes, event_ends=ends)


def test_many_records_split_into_batches() -> None:
    """Each batch begins below half a megabyte, and none is empty."""
    history = [offset(n, partition=n, metadata="x" * 4_000) for n in range(500)]
    batches = encode_records(history, AT_MS)
    assert len(batches) == 4
    assert all(len(batch) < 600_000 for batch in batches)
    assert durable_state(replay(batches, SETTINGS)) == durable_state(live(history))
    assert encode_records([], AT_MS) == []


# Replay.


@given(st.lists(records, max_size=12), st.lists(st.integers(1, 5), max_size=6))
def test_replay_restores_live_state(history: list[Record], sizes: list[int]) -> None:
    """The grouping of records into batches does not matter."""
    batches: list[bytes] = []
    rest = list(history)
    for size in sizes:
        batches += encode_records(rest[:size], AT_MS)
        del rest[:size]
    batches += encode_records(rest, AT_MS)
    assert durable_state(replay(batches, SETTINGS)) == durable_state(live(history))


@given(
    st.lists(records | transactional_offsets | transactional_offsets | markers, max_size=20),
    st.lists(st.integers(1, 5), max_size=6),
)
def test_replay_of_transactions_restores_live_state(
    history: list[Record], sizes: list[int]
) -> None:
    """A record of a group's tombstone removes nothing but the group, so none is in the history."""
    history = [record for record in history if not isinstance(record, GroupTombstone)]
    batches: list[bytes] = []
    rest = list(history)
    for size in sizes:
        batches += encode_records(rest[:size], AT_MS)
        del rest[:size]
    batches += encode_records(rest, AT_MS)
    assert durable_state(replay(batches, SETTINGS)) == durable_state(live(history))
    assert durable_state(replay([b"".join(batches)], SETTINGS)) == durable_state(live(history))


few_offsets = st.builds(offset, st.integers(0, 9), partition=st.integers(0, 1))
few_records: st.SearchStrategy[Record] = st.one_of(
    few_offsets,
    st.builds(
        OffsetTombstone, group_id=st.just("g"), topic=st.just("t"), partition=st.integers(0, 1)
    ),
    st.builds(
        TransactionalOffsetRecord,
        producer_id=st.integers(1, 3),
        producer_epoch=st.just(0),
        offset=few_offsets,
    ),
    markers,
)


@given(
    st.lists(few_records, max_size=20), st.integers(0, 20), st.lists(st.integers(1, 5), max_size=6)
)
def test_merge_of_transactions_keeps_state(
    history: list[Record], older: int, sizes: list[int]
) -> None:
    """All batches are merged, or only those after older ones that are kept."""
    kept = encode_records(history[:older], AT_MS)
    batches: list[bytes] = []
    rest = history[older:]
    for size in sizes:
        batches += encode_records(rest[:size], AT_MS)
        del rest[:size]
    batches += encode_records(rest, AT_MS)
    expected = durable_state(live(history))
    whole = merge([*kept, *batches], keeps_removals=False)
    assert durable_state(replay(whole, SETTINGS)) == expected
    part = merge(batches, keeps_removals=True)
    assert durable_state(replay([*kept, *part], SETTINGS)) == expected
    again = merge([b"".join([*kept, *part])], keeps_removals=False)
    assert durable_state(replay(again, SETTINGS)) == expected


def test_merge_keeps_order_of_two_open_transactions() -> None:
    """The transaction whose offset was written last wins, in whatever order they end."""
    history: list[Record] = [
        TransactionalOffsetRecord(producer_id=2, producer_epoch=0, offset=offset(1)),
        TransactionalOffsetRecord(producer_id=1, producer_epoch=0, offset=offset(2)),
    ]
    for order in ((1, 2), (2, 1)):
        ends: list[Record] = [
            TransactionMarker(
                producer_id=each, producer_epoch=0, coordinator_epoch=1, is_commit=True
            )
            for each in order
        ]
        for merged_ends in (0, 1):
            merged = merge(
                encode_records([*history, *ends[:merged_ends]], AT_MS), keeps_removals=False
            )
            shard = replay([*merged, *encode_records(ends[merged_ends:], AT_MS)], SETTINGS)
            assert shard.offsets["g"]["t", 0].offset == 2


def test_partition_with_two_owners_between_keys_of_merged_log() -> None:
    """A member gave up a partition, another one got it, and the log was merged after each step."""

    def current(member_id: str, epoch: int, **partitions: Any) -> MemberAssignmentRecord:
        return MemberAssignmentRecord(
            group_id="k",
            member_id=member_id,
            member_epoch=epoch,
            previous_member_epoch=epoch,
            **partitions,
        )

    topic_id = bytes(16)
    end = TransactionMarker(producer_id=1, producer_epoch=0, coordinator_epoch=1, is_commit=True)
    earlier: list[Record] = [
        ConsumerGroupRecord(group_id="k", epoch=1),
        current("first", 1, pending_revocation={topic_id: {0: 1}}),
        end,
    ]
    later: list[Record] = [
        current("second", 2),
        current("first", 2),
        current("second", 2, assigned={topic_id: {0: 2}}),
        end,
    ]
    base = merge(encode_records(earlier, AT_MS), keeps_removals=False)
    merged = merge(encode_records(later, AT_MS), keeps_removals=True)
    group = replay([*base, *merged], SETTINGS).groups["k"]
    assert isinstance(group, ConsumerGroup)
    assert group.holders == {topic_id: {0: "second"}}


def test_merge_drops_markers_after_a_day() -> None:
    def marker(producer_id: int) -> TransactionMarker:
        return TransactionMarker(
            producer_id=producer_id, producer_epoch=4, coordinator_epoch=3, is_commit=True
        )

    day_ms = 86_400_000
    old, new = encode_records([marker(1)], AT_MS), encode_records([marker(2)], AT_MS + day_ms)
    merged = merge([*old, *old, *new, *new], keeps_removals=False)
    assert [parse_header(each).producer_id for each in merged] == [2]
    merged = merge([*old, *new], keeps_removals=True)
    assert [parse_header(each).producer_id for each in merged] == [1, 2]


def test_merge_after_a_wrong_clock_keeps_new_markers() -> None:
    def marker(producer_id: int) -> TransactionMarker:
        return TransactionMarker(
            producer_id=producer_id, producer_epoch=4, coordinator_epoch=3, is_commit=True
        )

    year_ms = 365 * 86_400_000
    wrong = encode_records([marker(1)], AT_MS + year_ms)
    for _ in range(2):
        right = encode_records([marker(2)], AT_MS)
        wrong = merge([*wrong, *right], keeps_removals=False)
        assert [parse_header(each).producer_id for each in wrong] == [1, 2]


def test_merge_of_incomplete_batch_fails() -> None:
    (batch,) = encode_records(
        [TransactionMarker(producer_id=1, producer_epoch=0, coordinator_epoch=0, is_commit=True)],
        AT_MS,
    )
    with pytest.raises(MalformedError, match="not complete"):
        merge([batch[:-1]], keeps_removals=False)


def test_transactions_are_batches_of_their_producers() -> None:
    """As in Kafka: transactional batches without sequence, and control batches."""
    pending = [
        TransactionalOffsetRecord(producer_id=producer_id, producer_epoch=3, offset=offset(at))
        for producer_id, at in ((7, 1), (7, 2), (8, 3))
    ]
    commit, abort = (
        TransactionMarker(
            producer_id=producer_id, producer_epoch=3, coordinator_epoch=5, is_commit=is_commit
        )
        for producer_id, is_commit in ((7, True), (8, False))
    )
    batches = encode_records([offset(0), *pending, commit, abort, offset(4)], AT_MS)
    headers = [parse_header(batch) for batch in batches]
    assert [
        (h.producer_id, h.producer_epoch, h.is_transactional, h.is_control, h.record_count)
        for h in headers
    ] == [
        (-1, -1, False, False, 1),
        (7, 3, True, False, 2),
        (8, 3, True, False, 1),
        (7, 3, True, True, 1),
        (8, 3, True, True, 1),
        (-1, -1, False, False, 1),
    ]
    assert {header.base_sequence for header in headers} == {-1}
    assert decode_marker(headers[3], batches[3]) == (True, 5)
    assert decode_marker(headers[4], batches[4]) == (False, 5)


def test_damaged_marker_reported() -> None:
    marker = TransactionMarker(producer_id=7, producer_epoch=3, coordinator_epoch=5, is_commit=True)
    (batch,) = encode_records([marker], AT_MS)
    with pytest.raises(MalformedError, match="checksum"):
        replay([batch[:-2] + b"\xff" + batch[-1:]], SETTINGS)


@given(st.lists(records, max_size=12), st.integers(0, 12))
def test_replay_of_compacted_log_restores_state(history: list[Record], clean_up_to: int) -> None:
    """Compaction keeps only the last record of each key."""
    last: dict[bytes, Record] = {}
    for record in history[:clean_up_to]:
        key, _ = encode_record(record)
        last.pop(key, None)
        last[key] = record
    compacted = [*last.values(), *history[clean_up_to:]]
    again = replay(encode_records(compacted, AT_MS), SETTINGS)
    assert durable_state(again) == durable_state(live(history))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_replay_of_scenarios_restores_state(path: Path) -> None:
    """All scenarios, up to their end."""
    story = ScenarioRunner()
    played(path.read_text(), story)
    shard = story.harness.shard
    again = replay(encode_records(story.harness.log.durable, AT_MS), story.harness.settings)
    assert durable_state(again) == durable_state(shard)
    again.resume(story.harness.now_ms)
    for group in shard.groups.values():
        if group.members and group.record.members:
            assert list(again.groups[group.id].members) == [
                m.member_id for m in group.record.members
            ]


def test_group_with_offsets_only_is_restored() -> None:
    shard = replay(encode_records([offset(5)], AT_MS), SETTINGS)
    assert shard.groups["g"].protocol_type is None
    assert shard.offsets["g"]["t", 0].offset == 5


def test_replay_applies_tombstones() -> None:
    history = [
        GroupRecord(group_id="g", generation=1),
        offset(5),
        OffsetTombstone(group_id="g", topic="t", partition=0),
        GroupTombstone(group_id="g"),
    ]
    shard = replay(encode_records(history, AT_MS), SETTINGS)
    assert (shard.groups, shard.offsets) == ({}, {})
    shard = replay(encode_records([*history, offset(6)], AT_MS), SETTINGS)
    assert shard.offsets["g"]["t", 0].offset == 6


# Other records in the topic.


def test_unknown_record_types_are_ignored() -> None:
    """Records without a key are ignored too; the records around them are read."""
    key, value = encode_record(offset(5))
    foreign = (b"\x00\x0a\x00\x01g", b"\x00\x00\x00\x00\x00\x07")
    shard = replay(blobs(foreign, (key, value), (None, b"no key"), (None, None)), SETTINGS)
    assert shard.offsets["g"]["t", 0].offset == 5
    assert shard.groups.keys() == {"g"}


@pytest.mark.parametrize(
    "pair",
    [
        (b"", b"\x00\x03"),
        (b"\x00", b"\x00\x03"),
        (b"\x00\x01\x00\x09g", b"\x00\x03"),
        (encode_record(offset(5))[0], b"\x00\x09"),
        (encode_record(offset(5))[0], b""),
    ],
)
def test_unreadable_record_fails_load(pair: tuple[bytes, bytes]) -> None:
    """Otherwise a group would be lost; unless a later record replaces the unreadable one."""
    with pytest.raises(MalformedError):
        replay(blobs(pair), SETTINGS)
    mended = replay(blobs(pair, (pair[0], None)), SETTINGS)
    assert (mended.groups, mended.offsets) == ({}, {})


def test_damaged_batch_fails_load() -> None:
    (batch,) = encode_records([offset(5)], AT_MS)
    damaged = bytearray(batch)
    damaged[-1] ^= 1
    with pytest.raises(MalformedError):
        replay([bytes(damaged)], SETTINGS)
    assert len(list(decode_pairs([batch]))) == 1


# Subscriptions.

OWNED = [ConsumerTopicPartitions(topic="old", partitions=[0, 1])]


@pytest.mark.parametrize("version", range(4))
def test_subscribed_topics_of_subscription(version: int) -> None:
    subscription = Subscription(topics=["t", "u"], user_data=b"\x00", owned_partitions=OWNED)
    encoded = encode_subscription(subscription, version)
    assert subscribed_topics(encoded) == {"t", "u"}
    assert subscribed_topics(encoded + b"of tomorrow") == {"t", "u"}


@pytest.mark.parametrize("version", [-1, 1, 2, 3, 4, 32_767])
def test_subscribed_topics_ignores_stated_version(version: int) -> None:
    """Some clients write another version before the fields of version 0."""
    first = encode_subscription(Subscription(topics=["t"]), 0)
    assert subscribed_topics(version.to_bytes(2, "big", signed=True) + first[2:]) == {"t"}


@pytest.mark.parametrize("metadata", [b"", b"\x00", b"\x00\x00", b"worker 7", b"\x00\x00\xff" * 9])
def test_subscribed_topics_of_other_metadata_is_none(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None

"""Records of all types: examples, and Hypothesis strategies."""

from __future__ import annotations

from hypothesis import strategies as st

from partage.coordinator.records import (
    GroupRecord,
    GroupTombstone,
    MemberRecord,
    OffsetRecord,
    OffsetTombstone,
    TransactionalOffsetRecord,
    TransactionMarker,
)

AT_MS = 1_700_000_000_123

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
counts = st.integers(0, 2**31 - 1)
texts = st.text(max_size=8)
names = st.text(min_size=1, max_size=8)
blobs = st.binary(max_size=20)
#: Few values, so that records share keys.
groups = st.sampled_from(("", "g", "größe"))
topics = st.sampled_from(("t", "u"))
partitions = st.integers(0, 2)

saved_members = st.builds(
    MemberRecord,
    member_id=texts,
    instance_id=st.none() | texts,
    client_id=texts,
    client_host=texts,
    rebalance_timeout_ms=counts,
    session_timeout_ms=counts,
    subscription=blobs,
    assignment=blobs,
)
saved_groups = st.builds(
    GroupRecord,
    group_id=groups,
    protocol_type=st.none() | names,
    generation=int32,
    protocol=st.none() | texts,
    leader=st.none() | texts,
    since_ms=int64,
    awaiting_sync=st.booleans(),
    members=st.lists(saved_members, max_size=3).map(tuple),
)
removed_groups = st.builds(GroupTombstone, group_id=groups)
committed_offsets = st.builds(
    OffsetRecord,
    group_id=groups,
    topic=topics,
    partition=partitions,
    offset=int64,
    leader_epoch=int32,
    metadata=texts,
    commit_ms=int64,
)
#: From clients without leader epochs.
expiring_offsets = st.builds(
    OffsetRecord,
    group_id=groups,
    topic=topics,
    partition=partitions,
    offset=int64,
    metadata=texts,
    commit_ms=int64,
    expire_ms=st.integers(0, 2**63 - 1),
)
removed_offsets = st.builds(OffsetTombstone, group_id=groups, topic=topics, partition=partitions)
records = st.one_of(
    saved_groups, removed_groups, committed_offsets, expiring_offsets, removed_offsets
)
#: The records of transactions: pending offsets, and the markers that end them.
transactional_offsets = st.builds(
    TransactionalOffsetRecord,
    producer_id=st.integers(1, 2),
    producer_epoch=st.just(0),
    offset=committed_offsets | expiring_offsets,
)
markers = st.builds(
    TransactionMarker,
    producer_id=st.integers(1, 2),
    producer_epoch=st.just(0),
    coordinator_epoch=st.integers(0, 5),
    is_commit=st.booleans(),
)

"""Fetches from followers (KIP-392): which broker the fetch state machine asks."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from partage.client.consumer.errors import OffsetOutOfRangeError
from partage.client.consumer.fetch_state_machine import (
    FetchedData,
    OutOfRange,
    PermanentFailure,
    Placement,
    RetryLater,
)
from partage.client.consumer.partition_state import TO_EARLIEST, FetchedChunk
from partage.client.errors import NoLeaderError
from partage.client.metadata import LeaderAndEpoch

from .fetch_fixtures import LIFETIME_MS, A, B, made, yes

LEADER, FOLLOWER, OTHER = 1, 2, 3
HERE = Placement(LeaderAndEpoch(LEADER, 5), b"t" * 16, (LEADER, FOLLOWER, OTHER))
PREFERS_FOLLOWER = FetchedData(preferred_replica=FOLLOWER)


def fetch(positions, answer, *, now_ms=0, placement=HERE):
    """Give one answer to the only due fetch; return the broker that is asked."""
    (one,) = positions.fetches({A: placement}, now_ms)
    (wanted,) = one.partitions
    assert wanted.broker_id == one.broker_id
    positions.partition_answered(wanted, answer, now_ms)
    positions.fetch_done(one)
    return one.broker_id


def at_follower(**options):
    """Return a fetch state machine whose only partition is read from the follower."""
    positions = made(A, **options)
    assert fetch(positions, PREFERS_FOLLOWER) == LEADER
    return positions


def test_preferred_replica_is_fetched_next():
    positions = at_follower()
    data = FetchedData(FetchedChunk(0, 5, 10, "records"))
    assert fetch(positions, data) == FOLLOWER
    assert fetch(positions, FetchedData()) == FOLLOWER
    (taken,) = positions.collect(None, yes)
    assert (taken.from_offset, taken.to_offset) == (0, 5)


def test_preferred_replica_expires_after_metadata_max_age():
    positions = at_follower()
    assert fetch(positions, FetchedData(), now_ms=LIFETIME_MS) == FOLLOWER
    assert fetch(positions, PREFERS_FOLLOWER, now_ms=LIFETIME_MS + 1) == LEADER
    assert fetch(positions, FetchedData(), now_ms=2 * LIFETIME_MS + 1) == FOLLOWER
    assert fetch(positions, FetchedData(), now_ms=2 * LIFETIME_MS + 2) == LEADER


@pytest.mark.parametrize("leadership", [(LEADER, 6), (OTHER, 5)], ids=["epoch", "leader"])
def test_new_leadership_drops_preferred_replica(leadership):
    positions = at_follower()
    moved = Placement(LeaderAndEpoch(*leadership), HERE.topic_id, HERE.online_replicas)
    assert fetch(positions, FetchedData(), placement=moved) == leadership[0]
    assert fetch(positions, FetchedData(), placement=moved) == leadership[0]


@pytest.mark.parametrize(
    "failure", [RetryLater(0), PermanentFailure(NoLeaderError(A))], ids=["retry", "permanent"]
)
def test_failure_of_follower_returns_to_leader(failure):
    positions = at_follower()
    assert fetch(positions, failure) == FOLLOWER
    positions.pop_error()
    assert fetch(positions, FetchedData()) == LEADER


def test_unknown_leader_epoch_keeps_preferred_replica():
    positions = at_follower()
    assert fetch(positions, RetryLater(0, keeps_replica=True)) == FOLLOWER
    assert fetch(positions, FetchedData()) == FOLLOWER


@pytest.mark.parametrize("policy", [TO_EARLIEST, None], ids=["reset", "none"])
def test_out_of_range_on_follower_asks_leader_first(policy):
    positions = at_follower(policy=policy, at=7)
    assert fetch(positions, OutOfRange()) == FOLLOWER
    assert positions.lookups({A: HERE}, 0) == []
    assert positions.pop_error() is None
    assert positions.position(A) == 7
    assert fetch(positions, OutOfRange()) == LEADER
    if policy is None:
        assert isinstance(positions.pop_error(), OffsetOutOfRangeError)
    else:
        assert len(positions.lookups({A: HERE}, 0)) == 1


def test_offline_replica_waits_for_new_metadata():
    positions = at_follower()
    offline = Placement(HERE.leadership, HERE.topic_id, (LEADER, OTHER))
    assert positions.fetches({A: offline}, 0) == []
    assert positions.pop_outdated() == {A}
    assert positions.pop_outdated() == set()
    assert fetch(positions, FetchedData(), placement=offline) == LEADER


def test_seek_and_reset_keep_preferred_replica():
    positions = at_follower()
    positions.seek(A, 9)
    assert fetch(positions, FetchedData()) == FOLLOWER
    positions.reset([A], TO_EARLIEST)
    positions.lookup_succeeded(*positions.lookups({A: HERE}, 0), 0)
    assert fetch(positions, FetchedData()) == FOLLOWER


def test_reassigned_partition_begins_at_leader():
    positions = at_follower()
    positions.remove_partitions([A])
    positions.add_partitions([A])
    positions.seek(A, 0)
    assert fetch(positions, FetchedData()) == LEADER


def test_preferred_replica_belongs_to_one_partition():
    positions = made(A, B)
    both = {A: HERE, B: HERE}
    (one,) = positions.fetches(both, 0)
    first, second = one.partitions
    positions.partition_answered(first, PREFERS_FOLLOWER, 0)
    positions.partition_answered(second, FetchedData(), 0)
    positions.fetch_done(one)
    asked = {
        each.broker_id: [wanted.permit.partition for wanted in each.partitions]
        for each in positions.fetches(both, 0)
    }
    assert asked == {FOLLOWER: [A], LEADER: [B]}


def test_buffered_partition_holds_its_follower_back():
    positions = made(A, B, partition_bytes=10)
    led = Placement(LeaderAndEpoch(FOLLOWER, 0), b"t" * 16, (LEADER, FOLLOWER))
    both = {A: HERE, B: led}
    out = {one.broker_id: one for one in positions.fetches(both, 0)}
    positions.partition_answered(out[LEADER].partitions[0], PREFERS_FOLLOWER, 0)
    positions.fetch_done(out[LEADER])
    assert positions.fetches(both, 0) == []  # the follower has a pending fetch
    positions.partition_answered(out[FOLLOWER].partitions[0], FetchedData(), 0)
    positions.fetch_done(out[FOLLOWER])
    (one,) = positions.fetches(both, 0)
    assert [wanted.permit.partition for wanted in one.partitions] == [A, B]
    full = FetchedData(FetchedChunk(0, 1, 10, "records"))
    positions.partition_answered(one.partitions[0], full, 0)
    positions.fetch_done(one)
    assert positions.fetches(both, 0) == []  # A is buffered (KAFKA-17182)
    positions.collect(None, yes)
    assert len(positions.fetches(both, 0)) == 1


class ReplicaSelection(RuleBasedStateMachine):
    """Random leaders, metadata and answers: the broker of each fetch follows a simple model."""

    def __init__(self):
        super().__init__()
        self.positions = made(A, at=0)
        self.placement = HERE
        self.now_ms = 0
        self.next_offset = 0
        #: The preferred replica with the leadership that named it and the end of its lifetime.
        self.preferred = None
        self.pending = None

    brokers = st.sampled_from([LEADER, FOLLOWER, OTHER])

    @rule(leader_id=brokers, epoch=st.integers(5, 6), online=st.sets(brokers))
    def refresh_metadata(self, leader_id, epoch, online):
        leadership = LeaderAndEpoch(leader_id, epoch)
        self.placement = Placement(leadership, HERE.topic_id, tuple(online))

    @rule(ms=st.integers(0, 2 * LIFETIME_MS))
    def wait(self, ms):
        self.now_ms += ms

    @precondition(lambda self: self.pending is None)
    @rule()
    def fetch(self):
        fetches = self.positions.fetches({A: self.placement}, self.now_ms)
        outdated = self.positions.pop_outdated()
        leadership = self.placement.leadership
        if self.preferred is not None:
            _, named_by, expires_at_ms = self.preferred
            if named_by != leadership or self.now_ms > expires_at_ms:
                self.preferred = None
        expected = leadership.leader_id if self.preferred is None else self.preferred[0]
        if expected != leadership.leader_id and expected not in self.placement.online_replicas:
            self.preferred = None
            assert not fetches
            assert outdated == {A}
            return
        assert not outdated
        (one,) = fetches
        (wanted,) = one.partitions
        assert (one.broker_id, wanted.broker_id) == (expected, expected)
        assert wanted.is_from_follower == (expected != leadership.leader_id)
        assert wanted.offset == self.next_offset
        self.pending = one

    def finish(self, answer):
        one, self.pending = self.pending, None
        (wanted,) = one.partitions
        self.positions.partition_answered(wanted, answer, self.now_ms)
        self.positions.fetch_done(one)
        return wanted

    @precondition(lambda self: self.pending)
    @rule(count=st.integers(0, 3))
    def receive_records(self, count):
        end = self.next_offset + count
        chunk = FetchedChunk(self.next_offset, end, 1, "records") if count else None
        self.finish(FetchedData(chunk))
        self.next_offset = end
        for taken in self.positions.collect(None, yes):
            assert taken.to_offset == end

    @precondition(lambda self: self.pending and not self.pending.partitions[0].is_from_follower)
    @rule(replica_id=brokers)
    def receive_preference(self, replica_id):
        wanted = self.finish(FetchedData(preferred_replica=replica_id))
        if self.preferred is None or self.preferred[0] != replica_id:
            expires_at_ms = self.now_ms + LIFETIME_MS
            self.preferred = (replica_id, wanted.placement.leadership, expires_at_ms)

    @precondition(lambda self: self.pending)
    @rule(keeps_replica=st.booleans())
    def fail(self, keeps_replica):
        self.finish(RetryLater(self.now_ms, keeps_replica))
        if not keeps_replica:
            self.preferred = None

    @precondition(lambda self: self.pending and self.pending.partitions[0].is_from_follower)
    @rule()
    def refuse_offset_at_follower(self):
        self.finish(OutOfRange())
        self.preferred = None
        assert self.positions.lookups({A: self.placement}, self.now_ms) == []
        assert self.positions.position(A) == self.next_offset

    @rule(offset=st.integers(0, 100))
    def seek(self, offset):
        self.positions.seek(A, offset)
        self.next_offset = offset
        if self.pending is not None:
            self.positions.fetch_done(self.pending)
            self.pending = None


TestReplicaSelection = ReplicaSelection.TestCase
TestReplicaSelection.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)

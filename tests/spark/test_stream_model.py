"""A model of queries that share a group: no record is lost in any order of events.

A query is a planner with a checkpoint. The group consists of owners, a generation and committed
offsets. Queries plan, finish, lose their partitions, crash and restart in any order.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from partage.client import TopicPartition
from partage.spark.stream.offset import (
    INITIAL_OFFSET,
    QueryIdentity,
    StreamOffset,
    decode_offset,
    encode_offset,
)
from partage.spark.stream.planner import Planner
from partage.spark.stream.trigger_limits import TriggerLimits

PARTITIONS = [TopicPartition("t", n) for n in range(2)]
queries = st.integers(0, 1)


class Query:
    """A query; its checkpoint survives its process."""

    def __init__(self):
        self.kept = encode_offset(INITIAL_OFFSET)  # end of the last written batch
        self.logged = None  # end of the batch in progress
        self.restart()

    def restart(self):
        self.planner = Planner()
        self.owned = {}  # ownership id by partition
        self.to_give_up = set()
        self.knows_generation = False


class Sharing(RuleBasedStateMachine):
    """Partitions move as between cooperative members; no record is lost or duplicated."""

    is_harmless = True

    def __init__(self):
        super().__init__()
        self.ends = dict.fromkeys(PARTITIONS, 0)
        self.committed = {}
        self.queries = [Query() for _ in range(2)]
        self.rows = Counter()  # write count of each record
        self.tenure = 0

    @initialize()
    def begin(self):
        for partition in PARTITIONS:
            self.give(partition, 0)

    def owner(self, partition):
        return next((q for q in self.queries if partition in q.owned), None)

    def give(self, partition, to):
        self.tenure += 1
        self.queries[to].owned[partition] = self.tenure

    # Environment.

    @rule(partition=st.sampled_from(PARTITIONS), count=st.integers(1, 3))
    def records_come(self, partition, count):
        self.ends[partition] += count

    @rule(partition=st.sampled_from(PARTITIONS), to=queries)
    def a_rebalance_wants_to_move(self, partition, to):
        """Cooperative rebalance: the owner keeps the partition until the end of its batch."""
        owner = self.owner(partition)
        if owner is None:
            self.give(partition, to)
        else:
            owner.to_give_up.add(partition)

    @rule(partition=st.sampled_from(PARTITIONS), to=queries)
    def a_partition_moves(self, partition, to):
        """Request a revocation, let the owner finish its batch, and reassign the partition."""
        self.a_rebalance_wants_to_move(partition, to)
        for which, query in enumerate(self.queries):
            if partition in query.to_give_up:
                self.a_query_plans(which, None)
                self.give(partition, to)

    # Queries.

    @rule(which=queries)
    def a_query_reads_on(self, which):
        """Run one batch to its end."""
        self.a_query_plans(which, None)
        self.a_query_plans(which, None)

    @rule(which=queries, limit=st.none() | st.integers(1, 4))
    def a_query_plans(self, which, limit):
        """Call latestOffset: the batch in progress is written."""
        query = self.queries[which]
        if query.logged is not None:
            self.a_batch_is_written(query)
        planner = query.planner
        planner.complete_batch(decode_offset(query.kept))
        planner.update_owned(query.owned)
        self.commit(planner)
        for partition in query.to_give_up & query.owned.keys():
            del query.owned[partition]
        query.to_give_up.clear()
        planner.update_owned(query.owned)
        for partition in planner.without_position:
            planner.set_first_position(partition, self.committed.get(partition), 0)
        self.commit(planner)
        ends = {partition: self.ends[partition] for partition in query.owned}
        if planner.is_batch_due(ends, TriggerLimits(), 0):
            end = planner.plan(ends, TriggerLimits(records_max=limit), 0, QueryIdentity(), {})
            assert limit is None or sum(one.size for one in end.ranges_to_read) <= limit
            query.logged = encode_offset(end)

    def commit(self, planner):
        due = planner.offsets_to_commit()
        for partition, offset in due.items():
            assert offset > self.committed.get(partition, -1), "the group would go back"
            self.committed[partition] = offset
        planner.record_commit(due)

    def a_batch_is_written(self, query):
        end: StreamOffset = decode_offset(query.logged)
        for partition, first, last in end.ranges_to_read:
            assert 0 <= first < last <= self.ends[partition]
            self.rows.update((partition, offset) for offset in range(first, last))
        query.kept, query.logged = query.logged, None

    # Invariants.

    @invariant()
    def what_is_committed_is_written(self):
        for partition, offset in self.committed.items():
            assert offset <= self.ends[partition]
            missing = [o for o in range(offset) if not self.rows[partition, o]]
            assert not missing, f"{partition}: {missing} of {offset} were left out"

    @invariant()
    def nothing_is_doubled_where_all_went_well(self):
        if self.is_harmless:
            assert all(times == 1 for times in self.rows.values())

    def teardown(self):
        """Let the owner of each partition read to its end, and check the result."""
        for which in [0, 1, 0, 1]:
            self.a_query_plans(which, None)
        for partition in PARTITIONS:
            if self.owner(partition) is not None:
                assert self.committed.get(partition, 0) == self.ends[partition]
        self.what_is_committed_is_written()


class Suffering(Sharing):
    """The same model with members that expire, are killed, or leave in the middle of a batch."""

    is_harmless = False

    @rule(partition=st.sampled_from(PARTITIONS), to=queries)
    def a_member_is_thrown_out(self, partition, to):
        """The member expires: others get its partitions, and it may rejoin."""
        owner = self.owner(partition)
        if owner is not None:
            for each in list(owner.owned):
                del owner.owned[each]
                self.give(each, to)
            owner.to_give_up.clear()

    @rule(which=queries)
    def a_batch_fails_halfway(self, which):
        """The rows are written, but Spark does not record it and repeats the batch."""
        query = self.queries[which]
        if query.logged is not None:
            for partition, first, last in decode_offset(query.logged).ranges_to_read:
                self.rows.update((partition, offset) for offset in range(first, last))

    @rule(which=queries)
    def a_query_is_killed_and_comes_back(self, which):
        query = self.queries[which]
        owned = list(query.owned)
        query.restart()
        for partition in owned:
            self.give(partition, which)

    @rule(which=queries, to=queries)
    def a_query_leaves(self, which, to):
        """The checkpoint stays; a batch in progress is repeated after the restart."""
        query = self.queries[which]
        owned = list(query.owned)
        query.restart()
        for partition in owned:
            self.give(partition, to)


for model in (Sharing, Suffering):
    model.TestCase.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
TestSharing = Sharing.TestCase
TestSuffering = Suffering.TestCase


def test_returning_owner_never_decreases_commits():
    """The partition moves away and back while the first query's batch is in progress."""
    world, partition = Suffering(), PARTITIONS[0]
    world.begin()
    world.records_come(partition, 3)
    world.a_query_plans(0, None)
    world.a_member_is_thrown_out(partition, 1)
    world.records_come(partition, 3)
    world.a_query_reads_on(1)
    world.a_member_is_thrown_out(partition, 0)
    world.a_query_plans(0, None)
    assert world.committed[partition] == 6
    world.teardown()

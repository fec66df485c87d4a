"""The tasks of a processor, and the order of their records."""

from __future__ import annotations

import pytest

from assignors import group_strategies
from partage.assignors import CoPartitioningError, Member, check_assignment
from partage.client.consumer import Record
from partage.model.topic_partition import TopicPartition
from partage.recipes import Task, TaskId
from partage.recipes.base_processor import clear_committed, offsets_to_commit
from partage.recipes.tasks import (
    ProcessorAssignor,
    TaskSet,
    check_partition_counts,
    validate_topics,
)

JOINED = ("a", "b")


class Idle(Task):
    def __init__(self, task_id):
        self.id = task_id

    def process(self, record):
        pass


def tp(written):
    topic, _, number = written.rpartition("-")
    return TopicPartition(topic, int(number))


def tps(written):
    return {tp(word) for word in written.split()}


class Polled:
    """The result of a poll: ``Batch`` and ``Records`` with the attributes that tasks use."""

    def __init__(self, **times):
        self.batches = [Part(tp(name.replace("_", "-")), at) for name, at in times.items()]


class Part:
    def __init__(self, partition, times):
        self.topic_partition = partition
        self.next_offset = len(times) + 5  # the last records were compacted away
        self._records = [
            Record(*partition, offset, at, 0, None, None, ()) for offset, at in enumerate(times)
        ]

    def records(self):
        return self._records


def test_task_starts_when_all_partitions_are_assigned():
    tasks = TaskSet(JOINED, Idle)
    tasks.add_partitions(tps("a-0 a-1 b-1 c-0"))
    assert [str(task_id) for task_id in tasks.ids] == ["a+b-1", "c-0"]
    assert tasks.incomplete == tps("a-0")
    assert tasks.complete == tps("a-1 b-1 c-0")
    tasks.add_partitions(tps("b-0"))
    assert tasks.ids[0] == TaskId(JOINED, 0)
    assert tasks.incomplete == set()


def test_task_ends_with_first_removed_partition():
    made = []
    tasks = TaskSet(JOINED, lambda task_id: made.append(Idle(task_id)) or made[-1])
    tasks.add_partitions(tps("a-0 b-0 c-0 c-1"))
    ended = tasks.remove_partitions(tps("b-0 c-1"))
    assert [str(slot.id) for slot in ended] == ["a+b-0", "c-1"]
    assert tasks.incomplete == tps("a-0")
    assert [str(task_id) for task_id in tasks.ids] == ["c-0"]
    assert tasks.remove_partitions(tps("a-0")) == []
    tasks.add_partitions(tps("a-0 b-0"))
    assert [str(idle.id) for idle in made] == ["a+b-0", "c-0", "c-1", "a+b-0"]


def test_records_are_merged_by_time_and_offset():
    tasks = TaskSet(JOINED, Idle)
    tasks.add_partitions(tps("a-0 b-0 c-0"))
    work = tasks.split_records(Polled(a_0=[1, 5, 3], b_0=[2, 4, 9], c_0=[7]))
    assert [str(each.slot.id) for each in work] == ["a+b-0", "c-0"]
    order = [(record.topic, record.offset) for record in work[0].records]
    assert order == [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2)]


def test_only_offsets_of_healthy_tasks_are_committed():
    tasks = TaskSet(JOINED, Idle)
    tasks.add_partitions(tps("a-0 b-0 c-0"))
    joined, other = tasks.split_records(Polled(a_0=[1, 3], c_0=[2]))
    other.mark_done()
    joined.slot.mark_done(next(joined.records))
    slots = tasks.states
    assert offsets_to_commit(slots) == {tp("a-0"): 1, tp("c-0"): 6}
    joined.slot.has_failed = True
    offsets = offsets_to_commit(slots)
    assert offsets == {tp("c-0"): 6}
    joined.mark_done()
    joined.slot.has_failed = False
    clear_committed(slots, offsets)
    assert offsets_to_commit(slots) == {tp("a-0"): 7}


@pytest.mark.parametrize(
    ("joined", "topics", "why"),
    [
        ("ab", [], "joined='ab': expected a list"),
        (["a", "b"], "c", "topics='c': expected a list"),
        (["a"], [], "at least two topics, not 1"),
        (["a", "a"], [], "at least two topics, not 1"),
        (["a", "b"], ["c", "b"], "in both joined and topics: b"),
    ],
)
def test_invalid_topics_raise(joined, topics, why):
    with pytest.raises(ValueError, match=why):
        validate_topics(joined, topics)


def test_different_partition_counts_raise():
    check_partition_counts({"a": 4, "b": 4})
    with pytest.raises(CoPartitioningError, match="a has 4, b has 6"):
        check_partition_counts({"a": 4, "b": 6})


class TestJoining:
    topics = group_strategies.named(
        group_strategies.topic("a", 6),
        group_strategies.topic("b", 6),
        group_strategies.topic("c", 5),
    )

    def members(self, *names, joined=JOINED):
        said = ProcessorAssignor(*joined).user_data((), {}, -1)
        return [Member(member_id=name, topics=("a", "b", "c"), user_data=said) for name in names]

    def test_joined_topics_together_others_round_robin(self):
        members = self.members("m1", "m2")
        given_out = ProcessorAssignor(*JOINED).assign(members, self.topics)
        check_assignment(members, self.topics, given_out)
        assert given_out == {
            "m1": {"a": [0, 2, 4], "b": [0, 2, 4], "c": [0, 2, 4]},
            "m2": {"a": [1, 3, 5], "b": [1, 3, 5], "c": [1, 3]},
        }

    @pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
    def test_other_topics_are_balanced(self, count):
        members = self.members(*(f"m{number}" for number in range(count)))
        for _ in range(3):
            given_out = ProcessorAssignor(*JOINED).assign(members, self.topics)
            members = group_strategies.owning(members, given_out)
            shares = [len(its.get("c", ())) for its in given_out.values()]
            assert max(shares) - min(shares) <= 1
            assert all(its.get("a") == its.get("b") for its in given_out.values())

    def test_different_joined_topics_raise(self):
        members = self.members("m1") + self.members("m2", joined=("a", "c"))
        with pytest.raises(CoPartitioningError, match="m2 joins a, c, other members join a, b"):
            ProcessorAssignor(*JOINED).assign(members, self.topics)

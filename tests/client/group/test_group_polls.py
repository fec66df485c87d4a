"""The half of a group member that runs in the user's thread, without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from partage.client.consumer.group_polls import GroupPolls, ownership_changes
from partage.client.group.errors import MaxPollExceededError, SubscriptionRefusedError
from partage.member.outcome import Problem
from partage.member.settings import MemberSettings
from partage.model.topic_partition import TopicPartition


@pytest.fixture
def polls() -> Iterator[GroupPolls]:
    """Polls of a subscribed consumer."""
    loop = asyncio.new_event_loop()
    settings = MemberSettings(group_id="g", protocol_type="consumer")
    made = GroupPolls(settings, loop, lambda event: None)
    made.is_member = True
    yield made
    loop.close()


def test_polls_raise_only_the_last_error_of_each_problem(polls: GroupPolls) -> None:
    for number in range(1_000):
        refused = SubscriptionRefusedError(f"refusal {number}")
        polls.errors[Problem.SUBSCRIPTION_REFUSED] = refused
    polls.errors[Problem.POLL_TIMEOUT] = MaxPollExceededError("late")
    raised = []
    for _ in range(2):
        with pytest.raises((SubscriptionRefusedError, MaxPollExceededError)) as caught:
            polls.on_poll(has_partitions=True)
        raised.append(str(caught.value))
    polls.on_poll(has_partitions=True)
    assert len(raised) == 2
    assert any("refusal 999" in each for each in raised)
    assert any("late" in each for each in raised)


@pytest.mark.parametrize("is_in_poll", [False, True])
def test_wait_for_a_commit_counts_as_poll(polls: GroupPolls, is_in_poll: bool) -> None:
    """Else the interval may end while a poll waits for a commit, before it delivers records."""
    if is_in_poll:
        polls.on_poll(has_partitions=True)
    polls.poll_ended_ms -= 60_000
    polls.on_commit_wait()
    assert polls.is_polling is is_in_poll
    assert polls.ms_since_poll < 60_000


def test_partition_of_a_recreated_topic_is_removed_and_added() -> None:
    first, second = TopicPartition("t", 0), TopicPartition("u", 0)
    before = {first: b"1", second: b"2"}
    assert ownership_changes(before, before) == ([], [])
    assert ownership_changes(before, before | {first: b"3"}) == ([first], [first])
    assert ownership_changes(before, {second: b"2"}) == ([first], [])
    assert ownership_changes({}, before) == ([], [first, second])

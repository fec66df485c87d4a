"""The tables of the consumer group protocol are complete, and the page shows them."""

from __future__ import annotations

from partage.member.consumer_group.reactions import (
    CONSUMER_REACTIONS,
    DEFAULT_CONSUMER_REACTIONS,
    ConsumerGroupRequest,
    HeartbeatReaction,
)
from partage.member.consumer_group.states import (
    CONSUMER_STATE_MEANINGS,
    CONSUMER_STATE_PREDECESSORS,
    ConsumerMemberState,
)
from partage.member.consumer_group.timers import CONSUMER_TIMERS
from partage.member.timers import MemberTimer


def test_tables_cover_states_requests_and_timers() -> None:
    assert CONSUMER_STATE_MEANINGS.keys() == set(ConsumerMemberState)
    assert all(CONSUMER_STATE_PREDECESSORS[state] for state in ConsumerMemberState)
    assert (
        CONSUMER_REACTIONS.keys() == DEFAULT_CONSUMER_REACTIONS.keys() == set(ConsumerGroupRequest)
    )
    assert {facts.key for facts in CONSUMER_TIMERS} == set(MemberTimer)


def test_tables_use_every_reaction() -> None:
    named = {each for row in CONSUMER_REACTIONS.values() for each in row.values()}
    assert named | set(DEFAULT_CONSUMER_REACTIONS.values()) == set(HeartbeatReaction)

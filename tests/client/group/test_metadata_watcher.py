"""Topics that are created while a group is subscribed to them."""

from __future__ import annotations

import pytest

from client.confluent_admin import create_topic
from partage.model.topic_partition import TopicPartition

from .test_group_members import Told, until


@pytest.mark.parametrize("topics", [["late"], ["t", "late"]])
def test_topic_created_after_join_is_assigned_soon(topics, topic, servers, member_of):
    """The refresh interval does not matter: the first refresh was before the assignment."""
    member, heard = member_of(metadata_max_age_ms=3_600_000), Told()
    member.subscribe(topics, heard)
    until(lambda: heard.calls, member)
    create_topic(servers, "late", 2)
    late = {TopicPartition("late", 0), TopicPartition("late", 1)}
    until(lambda: late <= member.assignment(), member, within_s=90)

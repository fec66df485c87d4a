"""Topics that are created while a group is subscribed to them."""

from __future__ import annotations

import pytest

from client.confluent_admin import create_topic
from partage.client import BrokerResponseError
from partage.model.topic_partition import TopicPartition
from partage.sync import Consumer

from .conftest import PARTITIONS
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


@pytest.mark.parametrize("topics", [["t", "bad name!"], ["bad name!"]])
def test_invalid_topic_is_reported_and_valid_topics_are_assigned(topics, topic, servers):
    """With the consumer protocol; with the classic one, the leader reports it."""
    errors, wanted = [], {("t", n) for n in range(PARTITIONS)} if "t" in topics else set()
    with Consumer(servers, group_id="g", group_protocol="consumer") as member:
        member.subscribe(topics)

        def poll():
            try:
                member.poll(50)
            except BrokerResponseError as error:
                errors.append(str(error))
            return errors and member.assignment() == wanted

        until(poll)
    assert len(errors) == 1
    assert "topic 'bad name!'" in errors[0]

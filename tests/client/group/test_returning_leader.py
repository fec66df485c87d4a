"""A static leader that returns keeps the assignment, but not if it has become incomplete."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from ..confluent_admin import create_topic
from .conftest import PARTITIONS
from .test_group_members import Told, shared, until

pytestmark = pytest.mark.timeout(600)


def add_partitions(servers, topic, count):
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(30)


def test_partitions_added_while_the_leader_was_away_are_assigned(member_of, servers, topic):
    options = {"metadata_max_age_ms": 300_000}
    leader = member_of(group_instance_id="a", **options)
    leader.subscribe([topic])
    until(lambda: shared(leader), leader)
    other = member_of(group_instance_id="b", **options)
    other.subscribe([topic])
    until(lambda: shared(leader, other) and other.assignment(), leader, other)
    leader.close()
    add_partitions(servers, topic, PARTITIONS + 2)
    again = member_of(group_instance_id="a", **options)
    again.subscribe([topic])
    until(lambda: len(again.assignment()) + len(other.assignment()) == PARTITIONS + 2, again, other)


def test_leader_without_partitions_finds_those_of_a_new_topic(member_of, servers):
    """It has no offsets to look up, so that it is not connected to the coordinator for them."""
    options = {"group_instance_id": "a", "metadata_max_age_ms": 300_000}
    leader = member_of(**options)
    heard = Told()
    leader.subscribe(["late"], heard)
    until(lambda: heard.calls, leader)
    assert not leader.assignment()
    leader.close()
    create_topic(servers, "late", 2)
    again = member_of(**options)
    again.subscribe(["late"])
    until(lambda: len(again.assignment()) == 2, again)


def test_leader_that_may_not_describe_the_group_keeps_the_assignment(
    member_of, partage_broker, topic
):
    leader = member_of(group_instance_id="a")
    leader.subscribe([topic])
    until(lambda: shared(leader), leader)
    leader.close()
    partage_broker.faults.fail("DescribeGroups", "GROUP_AUTHORIZATION_FAILED")
    again, heard = member_of(group_instance_id="a"), Told()
    again.subscribe([topic], heard)
    until(lambda: shared(again) and not partage_broker.faults.pending, again)
    assert [call for call, _ in heard.calls] == ["assigned"]

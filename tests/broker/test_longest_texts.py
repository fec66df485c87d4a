"""Requests whose texts have the maximum length: an error that repeats them must fit as well."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from partage.wire.apis import APIS
from partage.wire.apis.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from partage.wire.apis.elect_leaders import ELECT_LEADERS, ElectLeadersRequest, ElectLeadersTopic
from partage.wire.codec.layout import TEXT_MAX, FieldLayout
from partage.wire.types import ArrayKind, FieldKind, FixedKind, StringKind
from wire.random_messages import MessageFactory

from .raw_client import RawClient


class LongestTexts(MessageFactory):
    """Creates messages with one element in each array, the longest texts, and small numbers."""

    def value(self, field: FieldLayout, version: int, flexible: bool) -> Any:
        if isinstance(field.kind, ArrayKind):
            if field.struct is None:
                assert field.element is not None
                return [self.scalar(field.element, field.name)]
            return [self.message(field.struct, version, flexible)]
        if field.struct is not None:
            return self.message(field.struct, version, flexible)
        return self.scalar(field.kind, field.name)

    def scalar(self, kind: FieldKind, name: str) -> Any:
        if isinstance(kind, StringKind):
            return "x" * TEXT_MAX
        return super().scalar(kind, name)

    def number(self, kind: FixedKind, name: str) -> int:
        return 1


@pytest.mark.parametrize("api", APIS.values(), ids=repr)
def test_request_with_longest_texts_gets_response(broker, api):
    for version in (api.version_min, api.version_max):
        factory = LongestTexts(Random(1))
        request = factory.message(api.request, version, api.is_flexible(version))
        with RawClient(broker.bootstrap_servers) as client:
            assert client.request(api, request, version) is not None


def test_long_unknown_topic_name_is_not_repeated_for_each_partition(raw):
    """Otherwise a request of 40 KB gets a response of 60 MB."""
    name, indexes = "x" * 30_000, range(2_000)
    moved = [ReassignablePartition(partition_index=index, replicas=None) for index in indexes]
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=name, partitions=moved)]
    )
    raw.send(ALTER_PARTITION_REASSIGNMENTS, request)
    assert len(raw.receive_frame()) < 1_000_000
    elected = ElectLeadersTopic(topic=name, partitions=list(indexes))
    raw.send(ELECT_LEADERS, ElectLeadersRequest(topic_partitions=[elected]))
    assert len(raw.receive_frame()) < 1_000_000

"""Metadata (API key 3): brokers, topics and partition leaders.

v1 racks, controller, internal topics; v2 cluster id (KIP-78); v3 throttle time; v4 flag to create
missing topics; v5 offline replicas (KIP-112); v7 leader epoch (KIP-320); v8 authorized operations
(KIP-430); v9 flexible; v10 topic ids (KIP-516); v11 no cluster operations (KIP-700); v12 requests
by topic id; v13 error for the whole request (KIP-1102).
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import Api
from partage.wire.apis.common import OPERATIONS_OMITTED
from partage.wire.types import (
    ZERO_UUID,
    Array,
    Bool,
    Int16,
    Int32,
    Message,
    Nullable,
    NullableArray,
    NullableString,
    Since,
    String,
    Until,
    Uuid,
)


class MetadataRequestTopic(Message):
    """A topic given by name, or from v12 on by id with a null name."""

    topic_id: Annotated[Uuid, Since(10)] = ZERO_UUID
    name: Annotated[NullableString, Nullable(10)]


class MetadataRequest(Message):
    """The topics to describe. ``topics`` None means all topics; in v0 an empty list does."""

    topics: Annotated[NullableArray[MetadataRequestTopic], Nullable(1)]
    allow_auto_topic_creation: Annotated[Bool, Since(4)] = True
    include_cluster_authorized_operations: Annotated[Bool, Since(8), Until(10)] = False
    include_topic_authorized_operations: Annotated[Bool, Since(8)] = False


class MetadataBroker(Message):
    """A broker and its address."""

    node_id: Int32
    host: String
    port: Int32
    rack: Annotated[NullableString, Since(1)] = None


class MetadataPartition(Message):
    """The leader (-1 if there is none) and the replicas of a partition."""

    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Annotated[Int32, Since(7)] = -1
    replica_nodes: Array[Int32]
    isr_nodes: Array[Int32]
    offline_replicas: Annotated[Array[Int32], Since(5)] = []


class MetadataTopic(Message):
    """A topic and its partitions. From v12 on, a topic requested by id may have no name."""

    error_code: Int16
    name: Annotated[NullableString, Nullable(12)]
    topic_id: Annotated[Uuid, Since(10)] = ZERO_UUID
    is_internal: Annotated[Bool, Since(1)] = False
    partitions: Array[MetadataPartition]
    topic_authorized_operations: Annotated[Int32, Since(8)] = OPERATIONS_OMITTED


class MetadataResponse(Message):
    """The cluster as known to the answering broker."""

    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    brokers: Array[MetadataBroker]
    cluster_id: Annotated[NullableString, Since(2)] = None
    controller_id: Annotated[Int32, Since(1)] = -1
    topics: Array[MetadataTopic]
    cluster_authorized_operations: Annotated[Int32, Since(8), Until(10)] = OPERATIONS_OMITTED
    error_code: Annotated[Int16, Since(13)] = 0


METADATA = Api(3, "Metadata", MetadataRequest, MetadataResponse, versions=(0, 13), flexible=9)

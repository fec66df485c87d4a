"""Metadata (3): the brokers, the topics and who leads their partitions.

v1 racks, controller, internal topics; v2 cluster id (KIP-78); v3 throttle time; v4 whether to
create missing topics; v5 offline replicas (KIP-112); v7 leader epoch (KIP-320); v8 authorized
operations (KIP-430); v9 flexible; v10 topic ids (KIP-516); v11 without the cluster's operations
(KIP-700); v12 asks by topic id; v13 an error of the whole request (KIP-1102).
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
    """A topic by its name, or from v12 on by its id with no name."""

    topic_id: Annotated[Uuid, Since(10)] = ZERO_UUID
    name: Annotated[NullableString, Nullable(10)]


class MetadataRequest(Message):
    """Which topics to describe; all of them if ``topics`` is None, in v0 if it is empty."""

    topics: Annotated[NullableArray[MetadataRequestTopic], Nullable(1)]
    allow_auto_topic_creation: Annotated[Bool, Since(4)] = True
    include_cluster_authorized_operations: Annotated[Bool, Since(8), Until(10)] = False
    include_topic_authorized_operations: Annotated[Bool, Since(8)] = False


class MetadataBroker(Message):
    """A broker and where it is reached."""

    node_id: Int32
    host: String
    port: Int32
    rack: Annotated[NullableString, Since(1)] = None


class MetadataPartition(Message):
    """Who leads a partition (-1: nobody) and who follows."""

    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Annotated[Int32, Since(7)] = -1
    replica_nodes: Array[Int32]
    isr_nodes: Array[Int32]
    offline_replicas: Annotated[Array[Int32], Since(5)] = []


class MetadataTopic(Message):
    """A topic and its partitions; from v12 on one that was asked for by id may have no name."""

    error_code: Int16
    name: Annotated[NullableString, Nullable(12)]
    topic_id: Annotated[Uuid, Since(10)] = ZERO_UUID
    is_internal: Annotated[Bool, Since(1)] = False
    partitions: Array[MetadataPartition]
    topic_authorized_operations: Annotated[Int32, Since(8)] = OPERATIONS_OMITTED


class MetadataResponse(Message):
    """The cluster as the broker that answers sees it."""

    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    brokers: Array[MetadataBroker]
    cluster_id: Annotated[NullableString, Since(2)] = None
    controller_id: Annotated[Int32, Since(1)] = -1
    topics: Array[MetadataTopic]
    cluster_authorized_operations: Annotated[Int32, Since(8), Until(10)] = OPERATIONS_OMITTED
    error_code: Annotated[Int16, Since(13)] = 0


METADATA = Api(3, "Metadata", MetadataRequest, MetadataResponse, versions=(0, 13), flexible=9)

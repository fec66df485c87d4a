"""JoinGroup (API key 11): the first phase of a rebalance.

v1 rebalance timeout; v2 throttle time; v4 two-step join (KIP-394); v5 static members (KIP-345); v6
flexible; v7 protocol type in the response (KIP-559); v8 reason (KIP-800); v9 skip_assignment
(KIP-814).

``protocol_version`` is an extension of Partage, based on KIP-429's remarks about version probing.
It is a tagged field of each protocol in the request, from v6 on. The coordinator selects a member
with the highest version as leader, because newer code can read metadata of older code. Clients and
brokers that do not know the tag skip it.
"""

from __future__ import annotations

from typing import Annotated, Final

from partage.wire.api import Api
from partage.wire.types import (
    Array,
    Bool,
    Bytes,
    Int16,
    Int32,
    Message,
    Nullable,
    NullableString,
    Since,
    String,
    Tagged,
)

#: Far above the tags that Kafka assigns, as in SyncGroup.
PROTOCOL_VERSION_TAG: Final = 10_001


class JoinGroupProtocol(Message):
    """A protocol that the member supports, with its metadata.

    ``protocol_version`` is the member's version of the protocol, -1 if unknown.
    """

    name: String
    metadata: Bytes
    protocol_version: Annotated[Int16, Tagged(PROTOCOL_VERSION_TAG, since=6)] = -1


class JoinGroupRequest(Message):
    """A member's request to join the next generation."""

    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Annotated[Int32, Since(1)] = -1
    member_id: String
    group_instance_id: Annotated[NullableString, Since(5)] = None
    protocol_type: String
    protocols: Array[JoinGroupProtocol]
    reason: Annotated[NullableString, Since(8)] = None


class JoinGroupMember(Message):
    """A member of the generation. Only the leader receives the list of members."""

    member_id: String
    group_instance_id: Annotated[NullableString, Since(5)] = None
    metadata: Bytes


class JoinGroupResponse(Message):
    """The generation that the member has joined. ``members`` is empty except for the leader."""

    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    error_code: Int16
    generation_id: Int32 = -1
    protocol_type: Annotated[NullableString, Since(7)] = None
    protocol_name: Annotated[NullableString, Nullable(7)]
    leader: String
    skip_assignment: Annotated[Bool, Since(9)] = False
    member_id: String
    members: Array[JoinGroupMember]


JOIN_GROUP = Api(11, "JoinGroup", JoinGroupRequest, JoinGroupResponse, versions=(0, 9), flexible=6)

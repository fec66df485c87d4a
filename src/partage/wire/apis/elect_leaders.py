"""ElectLeaders (API key 43): preferred or unclean elections of partition leaders.

v1 unclean elections (KIP-460); v2 flexible.
"""

from __future__ import annotations

from typing import Annotated, Final

from partage.wire.api import Api
from partage.wire.types import (
    Array,
    Int8,
    Int16,
    Int32,
    Message,
    NullableArray,
    NullableString,
    Since,
    String,
)

#: The election types.
PREFERRED: Final = 0
UNCLEAN: Final = 1


class ElectLeadersTopic(Message):
    """A topic and its partitions to elect leaders for."""

    topic: String
    partitions: Array[Int32]


class ElectLeadersRequest(Message):
    """The partitions; ``topic_partitions`` None requests all."""

    election_type: Annotated[Int8, Since(1)] = PREFERRED
    topic_partitions: NullableArray[ElectLeadersTopic]
    timeout_ms: Int32 = 60_000


class LeaderElectionPartition(Message):
    """The result for a partition."""

    partition_id: Int32
    error_code: Int16
    error_message: NullableString


class LeaderElectionTopic(Message):
    """The results for the partitions of a topic."""

    topic: String
    partition_result: Array[LeaderElectionPartition]


class ElectLeadersResponse(Message):
    """The results. If all partitions were requested, those without an election are omitted."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(1)] = 0
    replica_election_results: Array[LeaderElectionTopic]


ELECT_LEADERS = Api(
    43,
    "ElectLeaders",
    ElectLeadersRequest,
    ElectLeadersResponse,
    versions=(0, 2),
    flexible=2,
)

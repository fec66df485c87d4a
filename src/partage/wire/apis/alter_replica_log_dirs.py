"""AlterReplicaLogDirs (API key 34): moves replicas between the log directories of a broker.

v2 flexible.
"""

from __future__ import annotations

from partage.wire.api import Api
from partage.wire.types import Array, Int16, Int32, Message, String


class AlterReplicaLogDirTopic(Message):
    """A topic and its partitions to move."""

    name: String
    partitions: Array[Int32]


class AlterReplicaLogDir(Message):
    """The absolute path of a log directory, and the partitions to move to it."""

    path: String
    topics: Array[AlterReplicaLogDirTopic]


class AlterReplicaLogDirsRequest(Message):
    """The moves."""

    dirs: Array[AlterReplicaLogDir]


class AlterReplicaLogDirPartitionResult(Message):
    """The result for a partition."""

    partition_index: Int32
    error_code: Int16


class AlterReplicaLogDirTopicResult(Message):
    """The results for the partitions of a topic."""

    topic_name: String
    partitions: Array[AlterReplicaLogDirPartitionResult]


class AlterReplicaLogDirsResponse(Message):
    """The results."""

    throttle_time_ms: Int32 = 0
    results: Array[AlterReplicaLogDirTopicResult]


ALTER_REPLICA_LOG_DIRS = Api(
    34,
    "AlterReplicaLogDirs",
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    versions=(1, 2),
    flexible=2,
)

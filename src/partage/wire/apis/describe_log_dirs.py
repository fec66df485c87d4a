"""DescribeLogDirs (API key 35): the log directories of a broker, and the size of each partition.

v2 flexible; v3 top-level error; v4 space of the volume (KIP-827); v5 cordoned directories
(KIP-1066).
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import Api
from partage.wire.types import (
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    NullableArray,
    Since,
    String,
)


class DescribableLogDirTopic(Message):
    """A topic and its requested partitions."""

    topic: String
    partitions: Array[Int32]


class DescribeLogDirsRequest(Message):
    """The partitions; ``topics`` None requests all."""

    topics: NullableArray[DescribableLogDirTopic]


class DescribeLogDirsPartition(Message):
    """A partition in a log directory, with its size in bytes."""

    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool


class DescribeLogDirsTopic(Message):
    """A topic and its partitions in a log directory."""

    name: String
    partitions: Array[DescribeLogDirsPartition]


class DescribeLogDirsResult(Message):
    """A log directory. -1 is an unknown number of bytes."""

    error_code: Int16
    log_dir: String
    topics: Array[DescribeLogDirsTopic]
    total_bytes: Annotated[Int64, Since(4)] = -1
    usable_bytes: Annotated[Int64, Since(4)] = -1
    is_cordoned: Annotated[Bool, Since(5)] = False


class DescribeLogDirsResponse(Message):
    """The log directories of the broker."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(3)] = 0
    results: Array[DescribeLogDirsResult]


DESCRIBE_LOG_DIRS = Api(
    35,
    "DescribeLogDirs",
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    versions=(1, 5),
    flexible=2,
)

"""The consumer: `Consumer` for asyncio and `sync_consumer.Consumer` for blocking code.

Both derive from `base_consumer.BaseConsumer` and use one `engine`, whose event loop runs in a
background thread. `fetch_state_machine` decides what to fetch and does no I/O; `fetcher` does the
I/O. `assignment_source` is the interface to a consumer group. `records` holds the types that users
receive.
"""

from __future__ import annotations

from partage.client.consumer.consumer import Consumer
from partage.client.consumer.errors import (
    AlreadyAssignedError,
    AlreadySubscribedError,
    ApiTimeoutError,
    ConsumerClosedError,
    ConsumerError,
    DeserializationError,
    InvalidOptionError,
    NoOffsetForPartitionError,
    NotAssignedError,
    NothingAssignedError,
    OffsetOutOfRangeError,
    PositionTimeoutError,
    ReadTimeoutError,
    TopicRecreatedError,
    UnknownOptionError,
)
from partage.client.consumer.listener import RebalanceListener
from partage.client.consumer.records import COLUMNS, Batch, Record, Records
from partage.client.group.errors import (
    AssignmentFailedError,
    CommitFailedError,
    GroupError,
    MaxPollExceededError,
    MemberFailedError,
    MissingGroupIdError,
    NotSubscribedError,
)
from partage.client.group.offsets import OffsetAndMetadata

__all__ = [
    "COLUMNS",
    "AlreadyAssignedError",
    "AlreadySubscribedError",
    "ApiTimeoutError",
    "AssignmentFailedError",
    "Batch",
    "CommitFailedError",
    "Consumer",
    "ConsumerClosedError",
    "ConsumerError",
    "DeserializationError",
    "GroupError",
    "InvalidOptionError",
    "MaxPollExceededError",
    "MemberFailedError",
    "MissingGroupIdError",
    "NoOffsetForPartitionError",
    "NotAssignedError",
    "NotSubscribedError",
    "NothingAssignedError",
    "OffsetAndMetadata",
    "OffsetOutOfRangeError",
    "PositionTimeoutError",
    "ReadTimeoutError",
    "RebalanceListener",
    "Record",
    "Records",
    "TopicRecreatedError",
    "UnknownOptionError",
]

"""The consumer: `Consumer` for asyncio and `sync_consumer.Consumer` for blocking code.

Both derive from `base_consumer.BaseConsumer` and use one `engine`, whose event loop runs in a
background thread. `fetch_state_machine` decides what to fetch and does no I/O; `fetcher` does the
I/O. `assignment_source` is the interface to a consumer group. `records` holds the types that users
receive.
"""

from __future__ import annotations

from partage.client.consumer.consumer import Consumer
from partage.client.consumer.errors import (
    AlreadyAssigned,
    AlreadySubscribed,
    BadOption,
    ConsumerClosed,
    ConsumerError,
    NoOffset,
    NotAssigned,
    NothingAssigned,
    OffsetOutOfRange,
    ReadTimedOut,
    TopicRecreated,
    UnknownOption,
)
from partage.client.consumer.listener import RebalanceListener
from partage.client.consumer.records import COLUMNS, Batch, Record, Records
from partage.client.group.errors import (
    AssignmentFailed,
    CommitFailed,
    GroupError,
    MemberFailed,
    NoGroup,
    NotSubscribed,
    TooSlow,
)
from partage.client.group.offsets import OffsetAndMetadata

__all__ = [
    "COLUMNS",
    "AlreadyAssigned",
    "AlreadySubscribed",
    "AssignmentFailed",
    "BadOption",
    "Batch",
    "CommitFailed",
    "Consumer",
    "ConsumerClosed",
    "ConsumerError",
    "GroupError",
    "MemberFailed",
    "NoGroup",
    "NoOffset",
    "NotAssigned",
    "NotSubscribed",
    "NothingAssigned",
    "OffsetAndMetadata",
    "OffsetOutOfRange",
    "ReadTimedOut",
    "RebalanceListener",
    "Record",
    "Records",
    "TooSlow",
    "TopicRecreated",
    "UnknownOption",
]

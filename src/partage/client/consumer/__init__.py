"""The consumer: `Consumer` for asyncio and `blocking.Consumer` for code without it.

Both are faces (`face`) of one `engine`, whose loop runs in a thread of ours. What decides is in
`positions`, which does no I/O; `fetcher` does what it asks for. `owners` is where a group comes
in, `records` what users get.
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

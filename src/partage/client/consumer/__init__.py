"""The consumer: `Consumer` for asyncio and `blocking.Consumer` for code without it.

Both are faces (`face`) of one `engine`, whose loop runs in a thread of ours. What decides is in
`positions`, which does no I/O; `fetcher` does what it asks for. `owners` is where a group comes
in, `records` what users get.
"""

from __future__ import annotations

from partage.client.consumer.consumer import Consumer
from partage.client.consumer.errors import (
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
from partage.client.consumer.records import COLUMNS, Batch, Record, Records

__all__ = [
    "COLUMNS",
    "BadOption",
    "Batch",
    "Consumer",
    "ConsumerClosed",
    "ConsumerError",
    "NoOffset",
    "NotAssigned",
    "NothingAssigned",
    "OffsetOutOfRange",
    "ReadTimedOut",
    "Record",
    "Records",
    "TopicRecreated",
    "UnknownOption",
]

"""The errors of a client.

``is_retriable`` is True if the same call may succeed later. The client retries such errors within
its `RetryPolicy` before it raises them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from partage.model.addresses import Address
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition

#: Error codes after which the client refreshes the metadata and sends the request again.
_RETRIABLE: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,  # In a response: the request was damaged in transit
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # Some brokers may not know a new topic yet
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,  # A transaction is in progress
        ErrorCode.STALE_MEMBER_EPOCH,  # The next heartbeat brings the current epoch
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.REBOOTSTRAP_REQUIRED,  # The client uses the bootstrap addresses again
    }
)


def error_name(code: int) -> str:
    """Return the name of an error code, or its number if it is unknown."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


class ClientError(Exception):
    """The base class of all errors of the client."""

    is_retriable: bool = False


class ConnectError(ClientError):
    """A broker could not be reached, or does not use Kafka's protocol."""

    is_retriable = True

    def __init__(self, address: Address, why: str) -> None:
        super().__init__(f"{address}: {why}")
        self.address = address
        self.reason = why


class BrokersUnreachableError(ClientError):
    """No broker answers. The message lists the addresses that were tried, with reasons.

    It is retriable only if a broker has answered before: otherwise the addresses may be wrong.
    """

    def __init__(self, attempts: Sequence[ConnectError], *, is_retriable: bool = False) -> None:
        tried = "; ".join(str(attempt) for attempt in attempts)
        super().__init__(
            f"no broker can be reached ({tried}). Is one running there? "
            "bootstrap.servers takes HOST:PORT, several separated by commas"
        )
        self.attempts = tuple(attempts)
        self.is_retriable = is_retriable


class ConnectionLostError(ClientError):
    """A connection closed before the response arrived."""

    is_retriable = True

    def __init__(self, address: Address, why: str) -> None:
        super().__init__(f"the connection to {address} was lost: {why}")
        self.address = address


class RequestTimeoutError(ClientError):
    """A broker did not respond in time; its connection is closed."""

    is_retriable = True

    def __init__(self, address: Address, api: str, timeout_ms: int) -> None:
        super().__init__(f"{address} did not answer {api} within {timeout_ms} ms")
        self.address = address


class InvalidResponseError(ClientError):
    """A broker sent an invalid response; its connection is closed."""

    def __init__(self, address: Address, why: str) -> None:
        super().__init__(f"{address} sent a response that cannot be decoded: {why}")
        self.address = address


class UnsupportedApiError(ClientError):
    """The broker and the client have no common version of an API."""

    def __init__(self, address: Address, api: str, ours: str, theirs: str) -> None:
        super().__init__(f"{address} supports {api} {theirs}; this client supports {ours}")
        self.address = address


class BrokerResponseError(ClientError):
    """A broker responded with an error code; ``code`` is the number."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"{what}: {error_name(code)}")
        self.code = code
        self.is_retriable = code in _RETRIABLE


class UnknownTopicError(ClientError):
    """The topic does not exist. ``suggestion`` is a topic with a similar name, or None."""

    def __init__(self, topic: str, suggestion: str | None = None) -> None:
        hint = f"; did you mean {suggestion!r}?" if suggestion else ""
        super().__init__(f"there is no topic {topic!r}{hint}")
        self.topic = topic
        self.suggestion = suggestion


class UnknownPartitionError(ClientError):
    """The topic does not have this partition."""

    def __init__(self, partition: TopicPartition, count: int) -> None:
        super().__init__(
            f"there is no partition {partition}: topic {partition.topic!r} has {count}, "
            f"numbered from 0 to {count - 1}"
        )
        self.partition = partition


class NoLeaderError(ClientError):
    """The partition has no leader at present."""

    is_retriable = True

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"partition {partition} has no leader")
        self.partition = partition


class RecordsUnavailableError(ClientError):
    """An offset is outside the partition's range, ``earliest`` (inclusive) to ``latest``
    (exclusive).
    """

    def __init__(self, partition: TopicPartition, offset: int, earliest: int, latest: int) -> None:
        if offset < earliest:
            why = "was deleted, by retention or DeleteRecords"
        else:
            why = (
                "does not exist: the partition ends before it "
                "(was the topic recreated or truncated?)"
            )
        super().__init__(
            f"offset {offset} of {partition} {why}; it holds offsets {earliest} to {latest - 1}"
            if latest > earliest
            else f"offset {offset} of {partition} {why}; it is empty, its next offset is {latest}"
        )
        self.partition = partition
        self.offset = offset
        self.earliest = earliest
        self.latest = latest


class NoProgressError(ClientError):
    """Expected records did not arrive in time, and no broker reported an error."""

    is_retriable = True

    def __init__(self, partition: TopicPartition, offset: int, to_offset: int, ms: int) -> None:
        super().__init__(
            f"no record of {partition} was received for {ms} ms at offset {offset}, "
            f"reading up to offset {to_offset - 1}"
        )
        self.partition = partition
        self.offset = offset


class BatchTooLargeError(ClientError):
    """A record batch exceeds the largest response that the client accepts."""

    def __init__(self, partition: TopicPartition, offset: int, size: int, size_max: int) -> None:
        super().__init__(
            f"the record batch of {partition} at offset {offset} has {size} bytes; "
            f"the maximum is {size_max} (see response_bytes_max)"
        )


class CorruptRecordsError(ClientError):
    """Record data is corrupt, for example a checksum or a length is wrong.

    Attributes:
        partition: The partition.
        offset: The offset at which the read failed.
        next_offset: The offset after the corrupt batch; None if it is unknown.
    """

    def __init__(
        self, partition: TopicPartition, offset: int, why: str, next_offset: int | None = None
    ) -> None:
        after = "a later offset" if next_offset is None else f"offset {next_offset}"
        super().__init__(
            f"the records of {partition} are corrupt at offset {offset}: {why}. To skip the "
            f"corrupt batch, continue at {after}, for example with seek()"
        )
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset


#: The reason in a `CorruptRecordsError` after the broker's error CORRUPT_MESSAGE.
CORRUPT_ON_BROKER: Final = (
    "the broker found a damaged batch in its log (CORRUPT_MESSAGE), and logged its place"
)

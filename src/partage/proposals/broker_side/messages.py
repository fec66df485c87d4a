"""The messages of the design, with the names of the document's fields.

The counts of the document, such as ``num_brokers``, are the lengths of the lists that follow them.
"""

from __future__ import annotations

from enum import IntEnum

from partage.wire.types import Message


class RequestType(IntEnum):
    """The value of ``request_type_id``. The document gives no numbers; Kafka 0.7 uses 0 to 4."""

    CLUSTER_METADATA = 5
    REGISTER_CONSUMER = 6
    PING = 7
    STOP_FETCHER = 8
    START_FETCHER = 9


class PushError(IntEnum):
    """The error codes. The document gives no numbers; Kafka 0.7 uses -1 to 4."""

    UNKNOWN = -1
    NONE = 0
    COORDINATOR_NOT_AVAILABLE = 5
    DUPLICATE_CONSUMER_ID = 6
    INVALID_SESSION_TIMEOUT = 7
    INVALID_REGISTRATION = 8
    FETCHER_FAILED = 9


class BrokerAddress(Message):
    """``broker_struct``."""

    id: int
    host: str
    port: int


class PartitionOffset(Message):
    """``offset_struct`` and ``partition_struct``: the partition string has the broker's id."""

    topic: str
    partition: str
    offset: int


class ThreadOwnership(Message):
    """``ownership_struct``: the partitions of one thread of a consumer."""

    consumer_thread_id: str
    assigned_parts: list[PartitionOffset]


class ClusterMetadataRequest(Message):
    """Asks any broker for the brokers and the coordinator."""


class ClusterMetadataResponse(Message):
    """The brokers and the coordinator."""

    error_code: int = 0
    coordinator_id: int
    brokers_info: list[BrokerAddress]


class RegisterConsumerRequest(Message):
    """Registers a consumer at the coordinator.

    ``auto_offset_rest`` has the document's spelling. It is "smallest" or "largest".
    """

    group_id: str
    consumer_id: str
    topic_count: str
    auto_commit: bool
    auto_offset_rest: str
    session_timeout_ms: int


class RegisterConsumerResponse(Message):
    """Accepts or refuses a registration."""

    error_code: int = 0


class PingRequest(Message):
    """Checks if a consumer is alive. ``num_retries`` counts the failed pings before this one."""

    consumer_id: str
    num_retries: int


class PingResponse(Message):
    """The answer to a ping. ``offset_info`` is None if the consumer does not commit."""

    error_code: int = 0
    consumer_id: str
    offset_info: list[PartitionOffset] | None = None


class StopFetcherRequest(Message):
    """Tells a consumer to stop its fetchers."""

    consumer_id: str


class StopFetcherResponse(Message):
    """The fetchers have stopped. ``offset_info`` is None if the consumer does not commit."""

    error_code: int = 0
    consumer_id: str
    offset_info: list[PartitionOffset] | None = None


class StartFetcherRequest(Message):
    """Gives a consumer its partitions with offsets, and the current brokers."""

    consumer_id: str
    ownership_info: list[ThreadOwnership]
    brokers_info: list[BrokerAddress]


class StartFetcherResponse(Message):
    """The fetchers have started."""

    error_code: int = 0
    consumer_id: str

"""A client of Kafka's protocol, on asyncio.

`Cluster` knows the brokers and the partition leaders. `list_offsets` looks up partition ends and
offsets by time, and `fetch_range` reads a range of one partition. `LoopThread` runs them for code
without asyncio. `partage.client.arrow` turns records into Arrow; only that module imports pyarrow.
"""

from __future__ import annotations

from partage.client.addresses import InvalidAddressError, parse_bootstrap_servers
from partage.client.cluster import Cluster
from partage.client.errors import (
    BatchTooLargeError,
    BrokerResponseError,
    BrokersUnreachableError,
    ClientError,
    ConnectError,
    ConnectionLostError,
    CorruptRecordsError,
    InvalidResponseError,
    NoLeaderError,
    NoProgressError,
    RecordsUnavailableError,
    RequestTimeoutError,
    UnknownPartitionError,
    UnknownTopicError,
    UnsupportedApiError,
)
from partage.client.loop_thread import LoopThread
from partage.client.metadata import TopicMetadata
from partage.client.offsets import EARLIEST, LATEST, OffsetAndTimestamp, list_offsets
from partage.client.options import ClientOptions, RetryPolicy
from partage.client.range_fetch import FetchedRange, FetchOptions, decode_fetched, fetch_range
from partage.client.security.errors import (
    AuthenticationFailedError,
    AuthenticationRequiredError,
    BrokerProofError,
    CertificateHostMismatchError,
    ClientCertificateRejectedError,
    SecurityError,
    TlsNegotiationError,
    TokenRejectedError,
    TokenUnavailableError,
    UnsupportedMechanismError,
    UntrustedCertificateError,
    WrongSecurityProtocolError,
)
from partage.client.security.options import (
    InvalidSecurityOptionError,
    SecurityOptions,
    parse_security_options,
)
from partage.client.security.tokens import Token
from partage.model.addresses import Address
from partage.model.topic_partition import TopicPartition

__all__ = [
    "EARLIEST",
    "LATEST",
    "Address",
    "AuthenticationFailedError",
    "AuthenticationRequiredError",
    "BatchTooLargeError",
    "BrokerProofError",
    "BrokerResponseError",
    "BrokersUnreachableError",
    "CertificateHostMismatchError",
    "ClientCertificateRejectedError",
    "ClientError",
    "ClientOptions",
    "Cluster",
    "ConnectError",
    "ConnectionLostError",
    "CorruptRecordsError",
    "FetchOptions",
    "FetchedRange",
    "InvalidAddressError",
    "InvalidResponseError",
    "InvalidSecurityOptionError",
    "LoopThread",
    "NoLeaderError",
    "NoProgressError",
    "OffsetAndTimestamp",
    "RecordsUnavailableError",
    "RequestTimeoutError",
    "RetryPolicy",
    "SecurityError",
    "SecurityOptions",
    "TlsNegotiationError",
    "Token",
    "TokenRejectedError",
    "TokenUnavailableError",
    "TopicMetadata",
    "TopicPartition",
    "UnknownPartitionError",
    "UnknownTopicError",
    "UnsupportedApiError",
    "UnsupportedMechanismError",
    "UntrustedCertificateError",
    "WrongSecurityProtocolError",
    "decode_fetched",
    "fetch_range",
    "list_offsets",
    "parse_bootstrap_servers",
    "parse_security_options",
]

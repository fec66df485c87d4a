"""Floor 4: a client of Kafka's protocol, on asyncio.

`Cluster` knows the brokers and who leads what, `list_offsets` finds where partitions begin and
end, `fetch_range` reads a range of one. `LoopThread` runs them for code that is not asynchronous.
Records become Arrow in `partage.client.arrow`, which alone imports pyarrow.
"""

from __future__ import annotations

from partage.client.addresses import Address, BadAddress, parse_servers
from partage.client.cluster import Cluster
from partage.client.errors import (
    BadResponse,
    BatchTooLarge,
    BrokersUnreachable,
    CannotConnect,
    ClientError,
    ConnectionLost,
    CorruptRecords,
    NoLeader,
    NoProgress,
    RecordsGone,
    RequestRefused,
    RequestTimedOut,
    UnknownPartition,
    UnknownTopic,
    UnsupportedApi,
)
from partage.client.fetching import Fetched, FetchOptions, decoded, fetch_range
from partage.client.loop_thread import LoopThread
from partage.client.offsets import EARLIEST, LATEST, OffsetFound, list_offsets
from partage.client.options import ClientOptions, RetryPolicy
from partage.client.security.errors import (
    AuthenticationFailed,
    AuthenticationRequired,
    BrokerNotProven,
    CertificateForAnotherHost,
    ClientCertificateRefused,
    SecurityError,
    TlsRefused,
    TokenRefused,
    TokenUnavailable,
    UnknownMechanism,
    UntrustedCertificate,
    WrongSecurityProtocol,
)
from partage.client.security.options import (
    BadSecurityOption,
    SecurityOptions,
    security_options,
)
from partage.client.security.tokens import Token
from partage.client.topics import Topic, TopicPartition

__all__ = [
    "EARLIEST",
    "LATEST",
    "Address",
    "AuthenticationFailed",
    "AuthenticationRequired",
    "BadAddress",
    "BadResponse",
    "BadSecurityOption",
    "BatchTooLarge",
    "BrokerNotProven",
    "BrokersUnreachable",
    "CannotConnect",
    "CertificateForAnotherHost",
    "ClientCertificateRefused",
    "ClientError",
    "ClientOptions",
    "Cluster",
    "ConnectionLost",
    "CorruptRecords",
    "FetchOptions",
    "Fetched",
    "LoopThread",
    "NoLeader",
    "NoProgress",
    "OffsetFound",
    "RecordsGone",
    "RequestRefused",
    "RequestTimedOut",
    "RetryPolicy",
    "SecurityError",
    "SecurityOptions",
    "TlsRefused",
    "Token",
    "TokenRefused",
    "TokenUnavailable",
    "Topic",
    "TopicPartition",
    "UnknownMechanism",
    "UnknownPartition",
    "UnknownTopic",
    "UnsupportedApi",
    "UntrustedCertificate",
    "WrongSecurityProtocol",
    "decoded",
    "fetch_range",
    "list_offsets",
    "parse_servers",
    "security_options",
]

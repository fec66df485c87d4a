"""All public exceptions.

**Base class.** Every failure of a client, consumer or membership is a `ClientError`. Its
``is_retriable`` is True if the same call may succeed later.

**Arguments.** `InvalidArgumentError` is the base class: `InvalidAddressError`,
`UnknownOptionError`, `InvalidOptionError`, `InvalidSecurityOptionError`. Such a call can never
work, and nothing was done.

**Brokers and connections.** `BrokersUnreachableError`, `ConnectError`, `ConnectionLostError`,
`RequestTimeoutError`, `InvalidResponseError`, `UnsupportedApiError`, and for a broker's error code
`BrokerResponseError`.

**TLS and SASL.** `SecurityError` is the base class: `WrongSecurityProtocolError`,
`UntrustedCertificateError`, `CertificateHostMismatchError`, `ClientCertificateRejectedError`,
`TlsNegotiationError`, `AuthenticationRequiredError`, `UnsupportedMechanismError`,
`AuthenticationFailedError`, `TokenRejectedError`, `BrokerProofError`, `TokenUnavailableError`.

**Topics and records.** `UnknownTopicError`, `UnknownPartitionError`, `NoLeaderError`,
`CorruptRecordsError`, `BatchTooLargeError`, `RecordsUnavailableError`, `NoProgressError`.

**Consumers.** `ConsumerError` is the base class: `NotAssignedError`, `NothingAssignedError`,
`AlreadyAssignedError`, `AlreadySubscribedError`, `NoOffsetForPartitionError`,
`OffsetOutOfRangeError`, `TopicRecreatedError`, `PositionTimeoutError`, `ApiTimeoutError`,
`DeserializationError`, `ReadTimeoutError`, `ConsumerClosedError`.

**Groups.** `GroupError` is the base class: `CommitFailedError`, `MaxPollExceededError`,
`AssignmentFailedError`, `MemberFailedError`, `MissingGroupIdError`, `NotSubscribedError`,
`NotAMemberError`, `SubscriptionRefusedError`. A blocking call in a listener's thread raises
`CalledFromLoopError`.

**Recipes.** `CalledFromWorkError`: a blocking recipe cannot wait for the work that calls it.

**Assignors.** `IncompatibleAssignorsError`, `InvalidAssignmentError`, `CoPartitioningError`.

**Search indexes.** `SearchIndexError` is the base class: `DirectoryInUseError`, `IndexFileError`,
`NoSearchIndexError`, `InvalidQueryError`, `FullTextSearchUnavailableError`.
"""

from __future__ import annotations

from partage.assignors import (
    CoPartitioningError,
    IncompatibleAssignorsError,
    InvalidAssignmentError,
)
from partage.client.addresses import InvalidAddressError
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
from partage.client.group.errors import (
    AssignmentFailedError,
    CommitFailedError,
    GroupError,
    MaxPollExceededError,
    MemberFailedError,
    MissingGroupIdError,
    NotAMemberError,
    NotSubscribedError,
    SubscriptionRefusedError,
)
from partage.client.loop_thread import CalledFromLoopError
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
from partage.client.security.options import InvalidSecurityOptionError
from partage.model.arguments import InvalidArgumentError
from partage.recipes.errors import (
    CalledFromWorkError,
    DirectoryInUseError,
    FullTextSearchUnavailableError,
    IndexFileError,
    InvalidQueryError,
    NoSearchIndexError,
    SearchIndexError,
)

__all__ = [
    "AlreadyAssignedError",
    "AlreadySubscribedError",
    "ApiTimeoutError",
    "AssignmentFailedError",
    "AuthenticationFailedError",
    "AuthenticationRequiredError",
    "BatchTooLargeError",
    "BrokerProofError",
    "BrokerResponseError",
    "BrokersUnreachableError",
    "CalledFromLoopError",
    "CalledFromWorkError",
    "CertificateHostMismatchError",
    "ClientCertificateRejectedError",
    "ClientError",
    "CoPartitioningError",
    "CommitFailedError",
    "ConnectError",
    "ConnectionLostError",
    "ConsumerClosedError",
    "ConsumerError",
    "CorruptRecordsError",
    "DeserializationError",
    "DirectoryInUseError",
    "FullTextSearchUnavailableError",
    "GroupError",
    "IncompatibleAssignorsError",
    "IndexFileError",
    "InvalidAddressError",
    "InvalidArgumentError",
    "InvalidAssignmentError",
    "InvalidOptionError",
    "InvalidQueryError",
    "InvalidResponseError",
    "InvalidSecurityOptionError",
    "MaxPollExceededError",
    "MemberFailedError",
    "MissingGroupIdError",
    "NoLeaderError",
    "NoOffsetForPartitionError",
    "NoProgressError",
    "NoSearchIndexError",
    "NotAMemberError",
    "NotAssignedError",
    "NotSubscribedError",
    "NothingAssignedError",
    "OffsetOutOfRangeError",
    "PositionTimeoutError",
    "ReadTimeoutError",
    "RecordsUnavailableError",
    "RequestTimeoutError",
    "SearchIndexError",
    "SecurityError",
    "SubscriptionRefusedError",
    "TlsNegotiationError",
    "TokenRejectedError",
    "TokenUnavailableError",
    "TopicRecreatedError",
    "UnknownOptionError",
    "UnknownPartitionError",
    "UnknownTopicError",
    "UnsupportedApiError",
    "UnsupportedMechanismError",
    "UntrustedCertificateError",
    "WrongSecurityProtocolError",
]

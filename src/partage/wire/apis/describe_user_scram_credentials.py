"""DescribeUserScramCredentials (API key 50): the users with SCRAM credentials (KIP-554).

Flexible in all versions.
"""

from __future__ import annotations

from partage.wire.api import Api
from partage.wire.types import (
    Array,
    Int8,
    Int16,
    Int32,
    Message,
    NullableArray,
    NullableString,
    String,
)


class ScramUserName(Message):
    """A user of the request."""

    name: String


class DescribeUserScramCredentialsRequest(Message):
    """The users; None or an empty list requests all."""

    users: NullableArray[ScramUserName]


class ScramCredentialInfo(Message):
    """A mechanism and its number of iterations."""

    mechanism: Int8
    iterations: Int32


class DescribeUserScramCredentialsResult(Message):
    """The credentials of a user."""

    user: String
    error_code: Int16
    error_message: NullableString
    credential_infos: Array[ScramCredentialInfo]


class DescribeUserScramCredentialsResponse(Message):
    """The credentials of the requested users."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: NullableString
    results: Array[DescribeUserScramCredentialsResult]


DESCRIBE_USER_SCRAM_CREDENTIALS = Api(
    50,
    "DescribeUserScramCredentials",
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    versions=(0, 0),
    flexible=0,
)

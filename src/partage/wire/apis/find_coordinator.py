"""FindCoordinator (API key 10): the broker that coordinates a group or a transactional id.

v1 key type (KIP-98), throttle time, error message; v3 flexible; v4 several keys (KIP-699); v5
TRANSACTION_ABORTABLE (KIP-890); v6 share groups (KIP-932).
"""

from __future__ import annotations

from typing import Annotated, Final

from partage.wire.api import Api
from partage.wire.types import (
    Array,
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    Since,
    String,
    Until,
)

#: Values of ``key_type``.
GROUP: Final = 0
TRANSACTION: Final = 1  # v1
SHARE: Final = 2  # v6


class FindCoordinatorRequest(Message):
    """The keys to look up: ``key`` up to v3, ``coordinator_keys`` from v4 on."""

    key: Annotated[String, Until(3)] = ""
    key_type: Annotated[Int8, Since(1)] = GROUP
    coordinator_keys: Annotated[Array[String], Since(4)] = []


class FindCoordinatorResult(Message):
    """The coordinator of one key."""

    key: String
    node_id: Int32
    host: String
    port: Int32
    error_code: Int16
    error_message: NullableString = None


class FindCoordinatorResponse(Message):
    """The coordinators: one in separate fields up to v3, several from v4 on."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Annotated[Int16, Until(3)] = 0
    error_message: Annotated[NullableString, Since(1), Until(3)] = None
    node_id: Annotated[Int32, Until(3)] = 0
    host: Annotated[String, Until(3)] = ""
    port: Annotated[Int32, Until(3)] = 0
    coordinators: Annotated[Array[FindCoordinatorResult], Since(4)] = []


FIND_COORDINATOR = Api(
    10,
    "FindCoordinator",
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    versions=(0, 6),
    flexible=3,
)

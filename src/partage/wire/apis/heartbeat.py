"""Heartbeat (API key 12): keeps a member's session alive and signals rebalances.

v1 throttle time; v3 static members (KIP-345); v4 flexible.
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import Api
from partage.wire.types import Int16, Int32, Message, NullableString, Since, String


class HeartbeatRequest(Message):
    """A member's heartbeat, sent every heartbeat interval."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: Annotated[NullableString, Since(3)] = None


class HeartbeatResponse(Message):
    """The result. REBALANCE_IN_PROGRESS asks the member to rejoin."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16


HEARTBEAT = Api(12, "Heartbeat", HeartbeatRequest, HeartbeatResponse, versions=(0, 4), flexible=4)

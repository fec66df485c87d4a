"""What several messages have in common."""

from __future__ import annotations

from typing import Final

from partage.wire.types import Int32, Message, NullableString, String

#: In place of a bit set of authorized operations that nobody asked for (KIP-430).
OPERATIONS_OMITTED: Final = -(2**31)


class CurrentLeader(Message):
    """The leader that a partition has now, for a client that asked another broker (KIP-951)."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class NodeEndpoint(Message):
    """Where a broker named in a `CurrentLeader` is reached."""

    node_id: Int32
    host: String
    port: Int32
    rack: NullableString = None

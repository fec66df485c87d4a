"""Structures and constants that several messages share."""

from __future__ import annotations

from typing import Final

from partage.wire.types import Int32, Message, NullableString, String

#: Value of a set of authorized operations that was not requested (KIP-430).
OPERATIONS_OMITTED: Final = -(2**31)


class CurrentLeader(Message):
    """The current leader of a partition, for a client that asked another broker (KIP-951)."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class NodeEndpoint(Message):
    """The address of a broker named in a `CurrentLeader`."""

    node_id: Int32
    host: String
    port: Int32
    rack: NullableString = None

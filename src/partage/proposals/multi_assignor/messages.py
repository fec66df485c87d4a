"""JoinGroup of the design with many assignors.

The fields are those of the document. The response has the metadata of all members, for every
member. `MemberMetadataList` may be compressed as a whole, which is one of the document's ways to
reduce its size.
"""

from __future__ import annotations

from typing import Final

from partage.wire.api import Api
from partage.wire.types import Array, Bytes, Int16, Int32, Message, String


class JoinGroupProtocol(Message):
    """A protocol that the member supports, with the member's metadata for it."""

    name: String
    metadata: Bytes


class JoinGroupRequest(Message):
    """A member's request to join; ``member_id`` is empty in its first request."""

    group_id: String
    session_timeout: Int32
    member_id: String
    protocol_type: String
    protocols: Array[JoinGroupProtocol]


class JoinGroupMember(Message):
    """A member of the generation, with its metadata for the group's protocol."""

    member_id: String
    metadata: Bytes


class JoinGroupResponse(Message):
    """The generation. ``members`` is empty if ``compressed_members`` has them."""

    error_code: Int16
    generation_id: Int32
    protocol_name: String
    member_id: String
    members: Array[JoinGroupMember]
    compressed_members: Bytes = b""


class MemberMetadataList(Message):
    """The content of ``compressed_members``, before compression."""

    members: Array[JoinGroupMember]


#: The proposal changes the request of this API key. No Kafka release has these formats.
JOIN_GROUP: Final = Api(
    11, "JoinGroup", JoinGroupRequest, JoinGroupResponse, versions=(0, 0), flexible=None
)

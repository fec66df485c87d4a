"""JoinGroup of the design with a single assignor.

The document gives request and response two alternatives, the phases. Here a nullable structure
stands for each alternative, and exactly one of the two is set.
"""

from __future__ import annotations

from typing import Annotated, Final

from partage.wire.api import Api
from partage.wire.types import Array, Bytes, Int16, Int32, Message, Nullable, String


class JoinPhase(Message):
    """The phase in which a member joins.

    ``synchronize_timeout`` is how long the coordinator shall wait if it chooses this member; the
    document adds it against a race, 0 leaves it out. ``metadata_version`` is the version of the
    metadata, for the choice of the synchronizer.
    """

    session_timeout: Int32
    synchronize_timeout: Int32
    metadata_version: Int16
    member_id: String
    member_metadata: Bytes


class SyncedMember(Message):
    """The state (the assignment) of one member."""

    member_id: String
    synced_member_state: Bytes


class Synchronized(Message):
    """The phase in which the synchronizer sends the state of all members, or an error."""

    error_code: Int16
    generation_id: Int32
    member_id: String
    members: Array[SyncedMember]


class JoinGroupRequest(Message):
    """A request in one of two phases."""

    group_id: String
    protocol_type: String
    join: Annotated[JoinPhase | None, Nullable(0)] = None
    synchronized: Annotated[Synchronized | None, Nullable(0)] = None


class MemberWithMetadata(Message):
    """A member with its metadata, for the synchronizer."""

    member_id: String
    member_metadata: Bytes


class Synchronize(Message):
    """The phase in which the synchronizer computes the state of all members."""

    members: Array[MemberWithMetadata]


class Joined(Message):
    """The final phase: the member's state, and the ids of all members."""

    synced_member_state: Bytes
    group_members: Array[String]


class JoinGroupResponse(Message):
    """A response in one of two phases; neither of them if ``error_code`` is set."""

    error_code: Int16
    group_generation_id: Int32
    member_id: String
    synchronize: Annotated[Synchronize | None, Nullable(0)] = None
    joined: Annotated[Joined | None, Nullable(0)] = None


class DefaultMetadata(Message):
    """The metadata of the assignors shipped with the document's consumer.

    ``version`` is "default". ``user_data`` is not in the document; see `SubscriptionMetadata` of
    the other design.
    """

    version: String
    topics: Array[String]
    topic_pattern: String
    user_data: Bytes = b""


class AssignedTopic(Message):
    """The assigned partitions of one topic."""

    topic: String
    partitions: Array[Int32]


class DefaultState(Message):
    """A member's state: its assigned partitions."""

    assignment: Array[AssignedTopic]


#: The proposal changes the request of this API key. No Kafka release has these formats.
JOIN_GROUP: Final = Api(
    11, "JoinGroup", JoinGroupRequest, JoinGroupResponse, versions=(0, 0), flexible=None
)

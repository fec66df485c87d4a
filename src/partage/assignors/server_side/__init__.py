"""Assignors that run in the broker, for groups with the consumer group protocol (KIP-848).

They compute the target assignment of a group from its members, its topics and the previous target.
``uniform`` and ``range`` are Kafka's. ``adapter`` runs any `Assignor` of members in the broker.
"""

from partage.assignors.server_side.adapter import AssignorAdapter
from partage.assignors.server_side.base import (
    ServerSideAssignor,
    SubscribedMember,
    SubscribedTopic,
    TargetAssignment,
)
from partage.assignors.server_side.ranges import ServerSideRange
from partage.assignors.server_side.uniform import Uniform
from partage.assignors.server_side.validation import check_target

__all__ = [
    "AssignorAdapter",
    "ServerSideAssignor",
    "ServerSideRange",
    "SubscribedMember",
    "SubscribedTopic",
    "TargetAssignment",
    "Uniform",
    "check_target",
]

"""Assignors: pure functions from members and topics to an assignment, without I/O.

``base`` defines the interface. To write an assignor you need it, ``cooperation`` if the assignor is
cooperative, and ``validation``, which checks every assignment. Each assignor has its own module;
the sticky ones build on ``sticky_balancer``.
"""

from partage.assignors.base import Assignor
from partage.assignors.canary import Canary
from partage.assignors.consistent import ConsistentHashing
from partage.assignors.cooperation import hold_back
from partage.assignors.copartitioned import CoPartitioned, CoPartitioningError
from partage.assignors.explanation import PartitionReason, explain_assignment
from partage.assignors.group_view import NO_GENERATION, Assignment, Member, Topic
from partage.assignors.lag import LagBased
from partage.assignors.offered_protocols import (
    IncompatibleAssignorsError,
    protocols_by_name,
    rebalance_protocol,
)
from partage.assignors.rackaware import RackAware
from partage.assignors.ranges import Range
from partage.assignors.redundant import Redundant
from partage.assignors.roundrobin import RoundRobin
from partage.assignors.sticky import CooperativeSticky, Sticky
from partage.assignors.validation import InvalidAssignmentError, check_assignment
from partage.assignors.weighted import Weighted
from partage.model.rebalance_protocol import RebalanceProtocol

__all__ = [
    "NO_GENERATION",
    "Assignment",
    "Assignor",
    "Canary",
    "CoPartitioned",
    "CoPartitioningError",
    "ConsistentHashing",
    "CooperativeSticky",
    "IncompatibleAssignorsError",
    "InvalidAssignmentError",
    "LagBased",
    "Member",
    "PartitionReason",
    "RackAware",
    "Range",
    "RebalanceProtocol",
    "Redundant",
    "RoundRobin",
    "Sticky",
    "Topic",
    "Weighted",
    "check_assignment",
    "explain_assignment",
    "hold_back",
    "protocols_by_name",
    "rebalance_protocol",
]

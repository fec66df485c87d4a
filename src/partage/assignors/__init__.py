"""Floor 1: assignors, pure functions from members and topics to who gets what.

``base`` is the interface, and all that one of your own needs, with ``cooperation`` for cooperative
ones and ``checking`` for what every assignment has to hold. Each assignor is a file; the sticky
ones build on ``balancing``.
"""

from partage.assignors.base import (
    NO_GENERATION,
    Assignment,
    Assignor,
    Member,
    RebalanceProtocol,
    Topic,
)
from partage.assignors.canary import Canary
from partage.assignors.checking import BadAssignment, check_assignment
from partage.assignors.consistent import ConsistentHashing
from partage.assignors.cooperation import hold_back
from partage.assignors.copartitioned import CoPartitioned, NotCoPartitioned
from partage.assignors.explaining import Reason, reasons
from partage.assignors.lag import LagBased
from partage.assignors.offering import AssignorsDisagree, offered, rebalance_protocol
from partage.assignors.rackaware import RackAware
from partage.assignors.ranges import Range
from partage.assignors.redundant import Redundant
from partage.assignors.roundrobin import RoundRobin
from partage.assignors.sticky import CooperativeSticky, Sticky
from partage.assignors.weighted import Weighted

__all__ = [
    "NO_GENERATION",
    "Assignment",
    "Assignor",
    "AssignorsDisagree",
    "BadAssignment",
    "Canary",
    "CoPartitioned",
    "ConsistentHashing",
    "CooperativeSticky",
    "LagBased",
    "Member",
    "NotCoPartitioned",
    "RackAware",
    "Range",
    "Reason",
    "RebalanceProtocol",
    "Redundant",
    "RoundRobin",
    "Sticky",
    "Topic",
    "Weighted",
    "check_assignment",
    "hold_back",
    "offered",
    "reasons",
    "rebalance_protocol",
]

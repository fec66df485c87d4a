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
from partage.assignors.checking import BadAssignment, check_assignment
from partage.assignors.cooperation import hold_back
from partage.assignors.explaining import Reason, reasons
from partage.assignors.ranges import Range
from partage.assignors.roundrobin import RoundRobin
from partage.assignors.sticky import CooperativeSticky, Sticky

__all__ = [
    "NO_GENERATION",
    "Assignment",
    "Assignor",
    "BadAssignment",
    "CooperativeSticky",
    "Member",
    "Range",
    "Reason",
    "RebalanceProtocol",
    "RoundRobin",
    "Sticky",
    "Topic",
    "check_assignment",
    "hold_back",
    "reasons",
]

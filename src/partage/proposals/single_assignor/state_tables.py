"""The state tables of the design with a single assignor."""

from __future__ import annotations

from typing import Final

from partage.proposals.join_group.group import DesignGroupState
from partage.proposals.join_group.member import DesignMemberState
from partage.proposals.join_group.state_tables import (
    JOIN_ERROR_TRANSITIONS,
    MEMBER_TRANSITIONS,
    group_transitions,
)
from partage.proposals.single_assignor.coordinator import SingleAssignorCoordinator
from partage.proposals.state_table import StateTransition

_G = DesignGroupState
_M = DesignMemberState

#: The transitions of a group. The coordinator fails a generation whose synchronizer is too late.
SINGLE_GROUP_TRANSITIONS: Final = (
    *group_transitions(SingleAssignorCoordinator.next_state),
    StateTransition(
        (_G.SYNCHRONIZING,),
        "JoinGroup",
        _G.STABLE,
        ("JoinGroup response",),
        "the synchronizer sends the shares",
    ),
    StateTransition(
        (_G.SYNCHRONIZING,),
        "JoinGroup",
        _G.EMPTY,
        ("JoinGroup error",),
        "the synchronizer sends an error, which all members get",
    ),
    StateTransition(
        (_G.SYNCHRONIZING,),
        "synchronize timer",
        _G.JOINING,
        ("JoinGroup error",),
        "all members have to join again",
    ),
)

#: The transitions of a member.
SINGLE_MEMBER_TRANSITIONS: Final = (
    *MEMBER_TRANSITIONS,
    *JOIN_ERROR_TRANSITIONS,
    StateTransition(
        (_M.JOINING, _M.SYNCHRONIZING),
        "JoinGroup error",
        _M.FETCHING_METADATA,
        ("fetches metadata",),
        "it may join again, and its metadata is old",
    ),
    StateTransition(
        (_M.JOINING, _M.SYNCHRONIZING),
        "JoinGroup response",
        _M.STABLE,
        ("OffsetFetch",),
        "with its share",
    ),
    StateTransition(
        (_M.JOINING,),
        "JoinGroup response",
        _M.SYNCHRONIZING,
        ("fetches metadata",),
        "with all metadata: the member is the synchronizer",
    ),
    StateTransition((_M.SYNCHRONIZING,), "metadata fetched", None, ("computes all shares",)),
    StateTransition(
        (_M.SYNCHRONIZING,), ("shares computed", "assignor failed"), None, ("JoinGroup",)
    ),
)

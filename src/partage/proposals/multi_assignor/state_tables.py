"""The state tables of the design with many assignors."""

from __future__ import annotations

from typing import Final

from partage.proposals.join_group.member import DesignMemberState
from partage.proposals.join_group.state_tables import (
    JOIN_ERROR_TRANSITIONS,
    MEMBER_TRANSITIONS,
    group_transitions,
)
from partage.proposals.multi_assignor.coordinator import MultiAssignorCoordinator
from partage.proposals.state_table import StateTransition, without_states

#: The states that only the design with a single assignor has.
_OTHER_DESIGN: Final = frozenset({DesignMemberState.SYNCHRONIZING})

#: The transitions of a group.
MULTI_GROUP_TRANSITIONS: Final = group_transitions(MultiAssignorCoordinator.next_state)

#: The transitions of a member.
MULTI_MEMBER_TRANSITIONS: Final = (
    *without_states((*MEMBER_TRANSITIONS, *JOIN_ERROR_TRANSITIONS), _OTHER_DESIGN),
    StateTransition(
        (DesignMemberState.JOINING,),
        "JoinGroup response",
        DesignMemberState.STABLE,
        ("OffsetFetch",),
        "all members have the same view of the topics; it computes its share",
    ),
    StateTransition(
        (DesignMemberState.JOINING,),
        "JoinGroup response",
        DesignMemberState.FETCHING_METADATA,
        ("fetches metadata",),
        "a member has another view of the topics; if again, the member first waits",
    ),
    StateTransition(
        (DesignMemberState.FETCHING_METADATA,),
        "retry timer",
        None,
        ("fetches metadata",),
        "members had different views repeatedly",
    ),
)

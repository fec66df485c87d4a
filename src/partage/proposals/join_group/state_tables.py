"""The state tables that the designs with JoinGroup share."""

from __future__ import annotations

from typing import Final

from partage.proposals.join_group.group import DesignGroupState
from partage.proposals.join_group.member import DesignMemberState
from partage.proposals.state_table import SESSION_OVER, StateTransition

_G = DesignGroupState
_GENERATION: Final = ("stores generation", "JoinGroup response")
_LEFT: Final = "LeaveGroup response"


def group_transitions(next_state: DesignGroupState) -> tuple[StateTransition, ...]:
    """Return the transitions of a group, except those that concern the synchronizer.

    Args:
        next_state: The state after a join phase.
    """
    phases = (_G.STABLE,) if next_state is _G.STABLE else (_G.SYNCHRONIZING, _G.STABLE)
    joined = (_G.JOINING, *phases)
    states = (_G.EMPTY, *joined)
    #: The states in which members wait for the responses to their JoinGroup requests.
    parked = tuple(each for each in joined if each is not _G.STABLE)
    return (
        StateTransition(
            (_G.EMPTY, *phases), "JoinGroup", _G.JOINING, condition="the request is parked"
        ),
        StateTransition(
            joined,
            "JoinGroup",
            next_state,
            _GENERATION,
            "all members have joined now",
        ),
        StateTransition(states, "JoinGroup refused", None, ("JoinGroup error",)),
        StateTransition(
            (_G.JOINING,),
            "join phase timer",
            next_state,
            _GENERATION,
            "members that have not joined are removed",
        ),
        StateTransition(
            (_G.JOINING,), "join phase timer", _G.EMPTY, condition="no member has joined"
        ),
        StateTransition(phases, "LeaveGroup", _G.JOINING, (_LEFT,), "other members remain"),
        StateTransition(
            (_G.JOINING,), "LeaveGroup", None, (_LEFT,), "other members have not joined"
        ),
        StateTransition(
            parked,
            "LeaveGroup",
            next_state,
            (_LEFT, *_GENERATION),
            "all other members have joined",
        ),
        StateTransition(joined, "LeaveGroup", _G.EMPTY, (_LEFT,), "it was the last member"),
        StateTransition(states, "LeaveGroup refused", None, ("LeaveGroup error",)),
        StateTransition(
            phases, "member session timer", _G.JOINING, condition="other members remain"
        ),
        StateTransition(
            parked,
            "member session timer",
            next_state,
            _GENERATION,
            "all other members have joined",
        ),
        StateTransition(
            joined, "member session timer", _G.EMPTY, condition="it was the last member"
        ),
        StateTransition((_G.STABLE,), "Heartbeat", None, ("Heartbeat response",)),
        StateTransition(
            states,
            "Heartbeat refused",
            None,
            ("Heartbeat error",),
            "unknown member, another generation, or a rebalance",
        ),
        StateTransition(
            joined,
            "OffsetCommit",
            None,
            ("stores committed offset", "OffsetCommit response"),
            "of a member of the current generation",
        ),
        StateTransition(states, "OffsetCommit refused", None, ("OffsetCommit error",)),
        StateTransition(states, "OffsetFetch", None, ("OffsetFetch response",)),
        StateTransition(
            (_G.EMPTY,),
            "expiration timer",
            None,
            ("stores group removed",),
            "the group had no members for the retention time of its offsets",
        ),
    )


_M = DesignMemberState
_STOP: Final = "stops reading"
_FETCH: Final = ("fetches metadata",)
_COMMITTED: Final = ("OffsetCommit response", "OffsetCommit error")
_RECONNECT: Final = ("disconnects", "connects")
_CLOSED: Final = "the user has closed it"
_RESPONSES: Final = ("OffsetFetch response", "OffsetCommit response", "Heartbeat response")
#: The states in which a member may own partitions.
_OWNING: Final = (_M.CONNECTING, _M.FETCHING_METADATA, _M.COMMITTING, _M.STABLE, _M.LEAVING)

#: The transitions of a member, except those that depend on the JoinGroup response.
MEMBER_TRANSITIONS: Final = (
    StateTransition((_M.INITIAL,), "the user starts it", _M.CONNECTING, ("connects",)),
    StateTransition((_M.CONNECTING,), "retry timer", None, ("connects",)),
    StateTransition(
        (_M.CONNECTING,), "connected", _M.FETCHING_METADATA, (_STOP, *_FETCH), "it has no metadata"
    ),
    StateTransition((_M.CONNECTING,), "connected", _M.JOINING, ("JoinGroup",), "it has metadata"),
    StateTransition(
        (_M.CONNECTING,),
        "connected",
        _M.COMMITTING,
        (_STOP, "OffsetCommit"),
        "it has metadata and owns partitions",
    ),
    StateTransition(
        (_M.CONNECTING,),
        "connected",
        _M.STABLE,
        ("Heartbeat",),
        "it owns partitions, and its session is not over",
    ),
    StateTransition(
        (_M.CONNECTING,),
        "connected",
        _M.LEAVING,
        (_STOP, "OffsetCommit", "LeaveGroup"),
        _CLOSED,
    ),
    StateTransition(
        (_M.FETCHING_METADATA,),
        "metadata fetched",
        _M.JOINING,
        ("JoinGroup",),
        "it owns no partitions",
    ),
    StateTransition(
        (_M.FETCHING_METADATA,),
        "metadata fetched",
        _M.COMMITTING,
        (_STOP, "OffsetCommit"),
        "it owns partitions",
    ),
    StateTransition(
        (_M.FETCHING_METADATA,),
        "metadata fetched",
        _M.LEAVING,
        (_STOP, "OffsetCommit", "LeaveGroup"),
        _CLOSED,
    ),
    StateTransition((_M.COMMITTING,), _COMMITTED, _M.JOINING, ("JoinGroup",)),
    StateTransition((_M.COMMITTING,), _COMMITTED, _M.LEAVING, ("LeaveGroup",), _CLOSED),
    StateTransition((_M.STABLE,), "OffsetFetch response", None, ("reads",)),
    StateTransition((_M.STABLE,), "heartbeat timer", None, ("Heartbeat",)),
    StateTransition((_M.STABLE,), "commit timer", None, ("OffsetCommit",)),
    StateTransition((_M.STABLE,), "OffsetCommit response", None, ("Heartbeat",), "one is due"),
    StateTransition(
        (_M.STABLE,),
        (*_RESPONSES, "Heartbeat error"),
        _M.FETCHING_METADATA,
        ("reads", _STOP, *_FETCH),
        "the group rebalances, or the member has to",
    ),
    StateTransition(
        (_M.STABLE,),
        (*_RESPONSES, "Heartbeat error", "the user closes it"),
        _M.LEAVING,
        ("reads", _STOP, "OffsetCommit", "LeaveGroup"),
        "the user closes or has closed it",
    ),
    StateTransition(
        (_M.STABLE,),
        "Heartbeat error",
        _M.JOINING,
        (_STOP, "JoinGroup"),
        "unknown member or another generation: it gives up its partitions",
    ),
    StateTransition((_M.STABLE,), "other subscription", _M.FETCHING_METADATA, (_STOP, *_FETCH)),
    StateTransition(
        (_M.STABLE,),
        "topics changed",
        _M.COMMITTING,
        (_STOP, "OffsetCommit"),
        "a subscribed topic changed",
    ),
    StateTransition((_M.LEAVING,), _COMMITTED, None, ("LeaveGroup",)),
    StateTransition(
        (_M.LEAVING,), ("LeaveGroup response", "LeaveGroup error"), _M.STOPPED, ("disconnects",)
    ),
    StateTransition(
        tuple(
            each
            for each in DesignMemberState
            if each not in (_M.INITIAL, _M.CONNECTING, _M.STOPPED)
        ),
        "connection lost",
        _M.CONNECTING,
        condition="it connects again when the retry timer fires",
    ),
    StateTransition(
        (_M.JOINING, _M.SYNCHRONIZING, _M.STABLE, _M.LEAVING),
        "request timer",
        _M.CONNECTING,
        ("disconnects",),
        "a response is missing, and it owns no partitions",
    ),
    StateTransition(
        _OWNING,
        SESSION_OVER,
        _M.CONNECTING,
        (_STOP, *_RECONNECT),
        "it gives up its partitions",
    ),
    StateTransition(
        _OWNING,
        SESSION_OVER,
        _M.STOPPED,
        (_STOP, *_RECONNECT),
        "the user closes it",
    ),
    StateTransition((_M.CONNECTING,), "the user closes it", _M.STOPPED, (_STOP, "disconnects")),
    StateTransition(
        (_M.JOINING, _M.SYNCHRONIZING),
        "the user closes it",
        _M.CONNECTING,
        _RECONNECT,
        "the parked request blocks its connection",
    ),
)

#: The reaction to an error in the response to JoinGroup.
JOIN_ERROR_TRANSITIONS: Final = (
    StateTransition(
        (_M.JOINING, _M.SYNCHRONIZING),
        "JoinGroup error",
        _M.JOINING,
        ("JoinGroup",),
        "it may join again",
    ),
    StateTransition(
        (_M.JOINING, _M.SYNCHRONIZING),
        "JoinGroup error",
        _M.STOPPED,
        ("raises an error", "disconnects"),
        "joining again would not help",
    ),
)

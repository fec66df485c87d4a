"""Coverage of worlds: each event by the state of the group or consumer that handled it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from partage.coordinator.consumer_group import events as consumer_group_events
from partage.coordinator.consumer_group.group import ConsumerGroup
from partage.coordinator.events import (
    Commit,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    Event,
    FetchOffsets,
    GroupRequest,
    Heartbeat,
    Join,
    Leave,
    ListGroups,
    Sync,
    TimerFired,
    TopicsDeleted,
)
from partage.coordinator.shard import Shard
from partage.coordinator.states import GroupState
from partage.coordinator.timers import (
    ExpiryTimer,
    JoinTimer,
    RebalanceTimer,
    SessionTimer,
    SyncTimer,
)
from partage.lab.environment.disk import WRITE_LOST, WRITE_TORN
from partage.lab.environment.zookeeper import (
    APPEND_REFUSED,
    SESSION_EXPIRED,
    TRANSACTION_IN_DOUBT,
)
from partage.member import events as member_events
from partage.member.states import MemberState

#: Coverage states of a group that has no `GroupState`: the group does not exist or the shard has no
#: groups; the shard is loading; another broker owns the shard.
NO_GROUP: Final = "none"
LOADING: Final = "loading"
ELSEWHERE: Final = "elsewhere"

#: ZooKeeper rejected a log entry of a broker that no longer owns the shard.
WRITE_FENCED: Final = "a_write_is_fenced"

#: An append to the log of a group shard failed.
APPEND_FAILED: Final = "an_append_fails"

#: Consequences of faults. They are counted when they occur; they cannot be planned.
FAULT_CONSEQUENCES: Final = (
    WRITE_LOST,
    WRITE_TORN,
    SESSION_EXPIRED,
    TRANSACTION_IN_DOUBT,
    WRITE_FENCED,
    APPEND_REFUSED,
    APPEND_FAILED,
)

_CONSUMER_GROUP_EVENTS: Final = (
    consumer_group_events.ConsumerGroupHeartbeat,
    consumer_group_events.DescribeConsumerGroup,
    consumer_group_events.GroupConfigsChanged,
    consumer_group_events.RegexesResolved,
    consumer_group_events.TargetComputed,
    consumer_group_events.TopicsChanged,
    RebalanceTimer,
)

#: In the order of a group's life. A Dead group is removed, so there is no such state here.
GROUP_STATES: Final[tuple[str, ...]] = (
    NO_GROUP,
    GroupState.EMPTY,
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.STABLE,
    LOADING,
    ELSEWHERE,
)
_LOADED: Final = GROUP_STATES[:-2]

#: The states in which each event can find a group. A timer runs only in some states.
POSSIBLE_STATES: Final[Mapping[str, tuple[str, ...]]] = {
    **{
        kind.__name__: GROUP_STATES
        for kind in (
            *(Join, Sync, Heartbeat, Leave, Commit, FetchOffsets),
            *(DescribeGroup, ListGroups, DeleteGroup, DeleteOffsets, TopicsDeleted),
        )
    },
    SessionTimer.__name__: _LOADED[1:],
    JoinTimer.__name__: (GroupState.PREPARING_REBALANCE,),
    SyncTimer.__name__: (GroupState.COMPLETING_REBALANCE, GroupState.STABLE),
    ExpiryTimer.__name__: _LOADED,
}


def group_coverage_keys(shard: Shard | None, absence: str, event: Event) -> Iterator[str]:
    """Yield "state event" for each group that an event concerns.

    Some events concern all groups of the shard. Groups with the consumer protocol do not
    count: they have no state that selects a handler.

    Args:
        shard: The loaded shard, or None.
        absence: The state to report if there is no shard (`LOADING` or `ELSEWHERE`).
        event: The event that the shard is about to handle.
    """
    about = event.key if isinstance(event, TimerFired) else event
    if isinstance(about, _CONSUMER_GROUP_EVENTS):
        return
    name = type(about).__name__
    if shard is None:
        yield f"{absence} {name}"
    elif isinstance(about, GroupRequest | SessionTimer | JoinTimer | SyncTimer):
        group = shard.groups.get(about.group_id)
        if not isinstance(group, ConsumerGroup):
            yield f"{NO_GROUP if group is None else group.state_name} {name}"
    elif not shard.groups:
        yield f"{NO_GROUP} {name}"
    else:
        for group in shard.classic_groups().values():
            yield f"{group.state_name} {name}"


def consumer_coverage_key(state: MemberState, event: member_events.Event) -> str:
    """Return "state event" for a consumer's event. Timers are named by their purpose."""
    if isinstance(event, member_events.TimerFired):
        return f"{state} {event.key.title()}Timer"
    return f"{state} {type(event).__name__}"


def uncovered_events(keys: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Return each event with the possible group states that were not covered.

    Args:
        keys: Keys from `group_coverage_keys`.
    """
    seen = set(keys)
    missing = (
        (event, [state for state in states if f"{state} {event}" not in seen])
        for event, states in POSSIBLE_STATES.items()
    )
    return [(event, states) for event, states in missing if states]

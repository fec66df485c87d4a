"""What worlds have met: every event by the state of the group, or the consumer, that it came to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

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
from partage.coordinator.timers import ExpiryTimer, JoinTimer, SessionTimer, SyncTimer
from partage.lab.nature.disk import LOST, TORN
from partage.lab.nature.zookeeper import EXPIRED, IN_DOUBT
from partage.member import events as member_events
from partage.member.states import MemberState

#: What a coordinator may say of a group that is in no state: there is none of that name, nor any
#: in the shard; the shard is being loaded; it is another broker's.
NONE: Final = "none"
LOADING: Final = "loading"
ELSEWHERE: Final = "elsewhere"

#: An entry of who has a shard no longer was refused by ZooKeeper.
FENCED: Final = "a_write_is_fenced"

#: What comes of faults, and is to be met as they are.
CONSEQUENCES: Final = (LOST, TORN, EXPIRED, IN_DOUBT, FENCED)

#: In the order of a group's life. One that is Dead is no more.
STATES: Final[tuple[str, ...]] = (
    NONE,
    GroupState.EMPTY,
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.STABLE,
    LOADING,
    ELSEWHERE,
)
_LOADED: Final = STATES[:-2]

#: Each event with the states that it can find a group in. A timer only runs in some.
POSSIBLE: Final[Mapping[str, tuple[str, ...]]] = {
    **{
        kind.__name__: STATES
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


def met_by_groups(shard: Shard | None, absence: str, event: Event) -> Iterator[str]:
    """State and event, of each group that an event is about: all of a shard's for some.

    ``absence`` is why there is no shard, where there is none.
    """
    about = event.key if isinstance(event, TimerFired) else event
    name = type(about).__name__
    if shard is None:
        yield f"{absence} {name}"
    elif isinstance(about, GroupRequest | SessionTimer | JoinTimer | SyncTimer):
        group = shard.groups.get(about.group_id)
        yield f"{NONE if group is None else group.state} {name}"
    elif not shard.groups:
        yield f"{NONE} {name}"
    else:
        for group in shard.groups.values():
            yield f"{group.state} {name}"


def met_by_consumer(state: MemberState, event: member_events.Event) -> str:
    """State and event, as a consumer has it; timers by what they are for."""
    if isinstance(event, member_events.TimerFired):
        return f"{state} {event.key.title()}Timer"
    return f"{state} {type(event).__name__}"


def never_met(met: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Events, each with the states that it could have found a group in, and has not."""
    seen = set(met)
    missing = (
        (event, [state for state in states if f"{state} {event}" not in seen])
        for event, states in POSSIBLE.items()
    )
    return [(event, states) for event, states in missing if states]

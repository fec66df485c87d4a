"""Trials: the effect of an event, or of other settings, on a live group.

Each trial runs in a separate simulation (`GroupSimulation`), which starts with the live assignment.
The result has the time in which partitions were unread, the number of handovers, and the lag.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from partage.lab.clients.consumer import ConsumerProcess
from partage.lab.whatif.group_simulation import GroupSimulation
from partage.lab.whatif.handovers import measure_handovers
from partage.lab.whatif.lag_forecast import forecast_lag
from partage.lab.whatif.live_group import LiveGroup
from partage.model.topic_partition import TopicPartition

#: Time limit for a member's clean leave.
_LEAVE_TIMEOUT_MS: Final = 5_000
_POLL_INTERVAL_MS: Final = 100

#: Called with the progress of an event, from 0 to 1.
ProgressCallback = Callable[[float], None]


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One event of `TRIAL_EVENTS` under one assignor of `ASSIGNORS`.

    ``more`` is the number of members that join at once, ``away_ms`` the downtime of a restarted
    member.
    """

    group: LiveGroup
    event: str
    assignor: str
    more: int = 10
    away_ms: int = 5_000


#: Triggers an event and returns a description of the affected members.
TrialEventFunction = Callable[[GroupSimulation, Trial, ProgressCallback], str]


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one event under one assignor; lags are in records.

    Attributes:
        event: One of `TRIAL_EVENTS`.
        detail: The affected members.
        assignor: The assignor's name.
        session_timeout_ms: The members' session timeout.
        stood_still_s: Time in which a partition was read by no member, summed over all partitions.
        longest_still_s: Longest time in which one partition was read by no member.
        handed_over: How often a partition moved to another member.
        shuffled: Those handovers of which neither member was lost, restarted or new.
        moved: Partitions that another member owns at the end.
        unread: Partitions that no member reads at the end.
        settled_s: Time of the last change; null if the group did not become stable.
        rebalances: Number of new generations.
        lag_peak: The maximum lag.
        lag_added: The maximum excess over the lag without the event.
        caught_up_s: When the excess returned to zero; null if it did not within 10 minutes.
        lags: The lag by second.
        lags_undisturbed: The lag by second without the event.
        still: Number of unread partitions, averaged over each second.
    """

    event: str
    detail: str
    assignor: str
    session_timeout_ms: int
    stood_still_s: float
    longest_still_s: float
    handed_over: int
    shuffled: int
    moved: int
    unread: int
    settled_s: float | None
    rebalances: int
    lag_peak: int
    lag_added: int
    caught_up_s: float | None
    lags: tuple[int, ...]
    lags_undisturbed: tuple[int, ...]
    still: tuple[float, ...]


def _rebalance(rehearsal: GroupSimulation, trial: Trial, told: ProgressCallback) -> str:
    """Trigger a rebalance without any membership change."""
    rehearsal.mark_membership_change([])
    rehearsal.live_processes[0].request_rejoin()
    return "no member joins or leaves"


def _crash_largest(rehearsal: GroupSimulation, trial: Trial, told: ProgressCallback) -> str:
    """Crash the member with the most partitions."""
    lost = max(rehearsal.live_processes, key=lambda process: len(process.core.owned))
    owned = len(lost.core.owned)
    rehearsal.mark_membership_change([lost.name])
    lost.crash(silently=True)
    return f"{lost.name}, with {owned} partition{'s' * (owned != 1)}"


def _restart_all(rehearsal: GroupSimulation, trial: Trial, told: ProgressCallback) -> str:
    """Restart all members one after the other, each when the group is stable.

    A static member does not leave the group (KIP-345).
    """
    members = rehearsal.group.members
    there = {process.name: process for process in rehearsal.live_processes}
    for number, member in enumerate(members):
        told(number / len(members))
        name = rehearsal.new_member_name(member.client_id)
        rehearsal.mark_membership_change([member.member_id, name])
        process = there[member.member_id]
        _leave(rehearsal, process)
        process.crash(silently=False)
        rehearsal.run(trial.away_ms)
        rehearsal.start_process(member, name, place=member.member_id)
        rehearsal.wait_until_stable()
    return f"each member is down for {trial.away_ms / 1000:g} s"


def _leave(rehearsal: GroupSimulation, process: ConsumerProcess) -> None:
    process.leave()
    for _ in range(0, _LEAVE_TIMEOUT_MS, _POLL_INTERVAL_MS):
        if process.has_left:
            return
        rehearsal.run(_POLL_INTERVAL_MS)


def _add_members(rehearsal: GroupSimulation, trial: Trial, told: ProgressCallback) -> str:
    """Add members that subscribe to what most members subscribe to."""
    members = rehearsal.group.members
    topics, _ = Counter(frozenset(member.topics) for member in members).most_common(1)[0]
    first = next(member for member in members if frozenset(member.topics) == topics)
    like = msgspec.structs.replace(first, instance_id=None)
    names = [rehearsal.new_member_name(like.client_id) for _ in range(trial.more)]
    rehearsal.mark_membership_change(names)
    for name in names:
        rehearsal.start_process(like, name)
    return f"{trial.more} members that subscribe to {', '.join(sorted(topics)) or 'no topic'}"


#: The events that can be tried.
TRIAL_EVENTS: Final[Mapping[str, TrialEventFunction]] = {
    "rebalance": _rebalance,
    "lost": _crash_largest,
    "restart": _restart_all,
    "more": _add_members,
}


def run_trial(trial: Trial, told: ProgressCallback = lambda done: None) -> TrialResult:
    """Run one trial.

    Args:
        trial: The group, event and assignor.
        told: Called with the progress.

    Raises:
        KeyError: There is no such event or assignor.
    """
    group, assignor = trial.group, trial.assignor
    rehearsal = GroupSimulation(group, assignor)
    generation, begin_ms = rehearsal.generation, rehearsal.now_ms
    detail = TRIAL_EVENTS[trial.event](rehearsal, trial, told)
    is_settled = rehearsal.wait_until_stable()
    timeline = rehearsal.timeline
    changes = [change.at_ms for change in timeline if change.at_ms >= begin_ms]
    end_ms = max(changes, default=begin_ms)
    places = [TopicPartition(p.topic, p.index) for p in group.partitions]
    course = measure_handovers(
        timeline,
        places,
        rehearsal.member_by_process,
        rehearsal.membership_changes,
        begin_ms,
        end_ms,
    )
    behind = forecast_lag(timeline, group.partitions, group.speed, begin_ms, end_ms)
    return TrialResult(
        event=trial.event,
        detail=detail,
        assignor=assignor,
        session_timeout_ms=group.session_timeout_ms,
        stood_still_s=course.unread_ms / 1000,
        longest_still_s=course.longest_gap_ms / 1000,
        handed_over=course.handovers,
        shuffled=course.avoidable_handovers,
        moved=course.moved,
        unread=course.unread,
        settled_s=(end_ms - begin_ms) / 1000 if is_settled else None,
        rebalances=rehearsal.generation - generation,
        lag_peak=behind.peak,
        lag_added=behind.added,
        caught_up_s=None if behind.caught_up_ms is None else behind.caught_up_ms / 1000,
        lags=tuple(behind.by_second),
        lags_undisturbed=tuple(behind.undisturbed),
        still=tuple(ms / 1000 for ms in course.unread_ms_by_second),
    )

"""Trials: the effect of an event, or of other settings, on a live group.

Each trial runs in a separate simulation (`GroupSimulation`), which starts with the live assignment.
The result has the time in which partitions were unread, the number of handovers, and the lag.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from partage.lab.whatif.assignor_choice import CONSUMER_PROTOCOL_ASSIGNOR
from partage.lab.whatif.consumer_group_simulation import ConsumerGroupSimulation
from partage.lab.whatif.group_simulation import GroupSimulation
from partage.lab.whatif.handovers import measure_handovers, newest_readers
from partage.lab.whatif.lag_forecast import forecast_lag
from partage.lab.whatif.live_group import LiveGroup
from partage.lab.whatif.simulated_group import SimulatedGroup, TrialGroup, TrialProcess
from partage.model.topic_partition import TopicPartition

#: Time limit for a member's clean leave.
_LEAVE_TIMEOUT_MS: Final = 5_000
_POLL_INTERVAL_MS: Final = 100

#: Called with the progress of an event, from 0 to 1.
ProgressCallback = Callable[[float], None]


class SampleRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record of a live partition, of which copies are written in a simulation."""

    topic: str
    partition: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One event of `TRIAL_EVENTS` under one assignor: a name for `make_assignor`, or
    `CONSUMER_PROTOCOL_ASSIGNOR` for the group after its migration to the consumer protocol.

    ``joining_members`` is the number of members that join at once, ``away_ms`` the downtime of a
    restarted member.

    ``consumer`` is the import path of the members' code; without it, the members read no records.
    With code, the assignor "" is that of the code, ``consumer_options`` names the timeouts of the
    group that the code gets, and ``samples`` are records of its topics.
    """

    group: LiveGroup
    event: str
    assignor: str
    joining_members: int = 10
    away_ms: int = 5_000
    consumer: str | None = None
    consumer_options: tuple[str, ...] = ()
    samples: tuple[SampleRecord, ...] = ()


#: Triggers an event and returns a description of the affected members.
TrialEventFunction = Callable[[TrialGroup, Trial, ProgressCallback], str]


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one event under one assignor; lags are in records.

    Attributes:
        event: One of `TRIAL_EVENTS`.
        detail: The affected members.
        assignor: The assignor's name.
        session_timeout_ms: The members' session timeout.
        unread_s: Time in which a partition was read by no member, summed over all partitions.
        longest_unread_s: Longest time in which one partition was read by no member.
        handovers: How often a partition moved to another member.
        avoidable_handovers: Those handovers of which neither member crashed, restarted or joined.
        moved_partitions: Partitions that another member owns at the end.
        unread_partitions: Partitions that no member reads at the end.
        stable_after_s: Time until the last change; null if the group did not become stable.
        rebalances: Number of new generations.
        lag_max: The maximum lag.
        added_lag_max: The maximum excess over the lag without the event.
        caught_up_after_s: When the excess returned to zero; null if it did not within 10 minutes.
        lag_by_second: The lag by second.
        undisturbed_lag_by_second: The lag by second without the event.
        unread_by_second: Number of unread partitions, averaged over each second.
    """

    event: str
    detail: str
    assignor: str
    session_timeout_ms: int
    unread_s: float
    longest_unread_s: float
    handovers: int
    avoidable_handovers: int
    moved_partitions: int
    unread_partitions: int
    stable_after_s: float | None
    rebalances: int
    lag_max: int
    added_lag_max: int
    caught_up_after_s: float | None
    lag_by_second: tuple[int, ...]
    undisturbed_lag_by_second: tuple[int, ...]
    unread_by_second: tuple[float, ...]


def _rebalance(simulation: TrialGroup, trial: Trial, on_progress: ProgressCallback) -> str:
    """Trigger a rebalance without any membership change."""
    simulation.mark_membership_change([])
    simulation.request_rebalance()
    return "no member joins or leaves"


def _crash_largest(simulation: TrialGroup, trial: Trial, on_progress: ProgressCallback) -> str:
    """Crash the member with the most partitions."""
    processes = simulation.live_processes
    crashed = max(processes, key=lambda process: len(simulation.owned_by(process)))
    owned = len(simulation.owned_by(crashed))
    simulation.mark_membership_change([crashed.name])
    crashed.crash(silently=True)
    return f"{crashed.name}, with {owned} partition{'s' * (owned != 1)}"


def _restart_all(simulation: TrialGroup, trial: Trial, on_progress: ProgressCallback) -> str:
    """Restart all members one after the other, each when the group is stable.

    A static member does not leave the group (KIP-345).
    """
    members = simulation.group.members
    process_by_name = {process.name: process for process in simulation.live_processes}
    for number, member in enumerate(members):
        on_progress(number / len(members))
        name = simulation.new_member_name(member.client_id)
        simulation.mark_membership_change([member.member_id, name])
        process = process_by_name[member.member_id]
        _leave(simulation, process)
        process.crash(silently=False)
        simulation.run(trial.away_ms)
        simulation.start_process(member, name, place=member.member_id)
        simulation.wait_until_stable()
    return f"each member is down for {trial.away_ms / 1000:g} s"


def _leave(simulation: TrialGroup, process: TrialProcess) -> None:
    process.leave()
    for _ in range(0, _LEAVE_TIMEOUT_MS, _POLL_INTERVAL_MS):
        if process.has_left:
            return
        simulation.run(_POLL_INTERVAL_MS)


def _add_members(simulation: TrialGroup, trial: Trial, on_progress: ProgressCallback) -> str:
    """Add members that subscribe to what most members subscribe to."""
    members = simulation.group.members
    topics, _ = Counter(frozenset(member.topics) for member in members).most_common(1)[0]
    first = next(member for member in members if frozenset(member.topics) == topics)
    like = msgspec.structs.replace(first, instance_id=None)
    names = [simulation.new_member_name(like.client_id) for _ in range(trial.joining_members)]
    simulation.mark_membership_change(names)
    for name in names:
        simulation.start_process(like, name)
    subscribed = ", ".join(sorted(topics)) or "no topic"
    if trial.joining_members == 1:
        return f"1 member that subscribes to {subscribed}"
    return f"{trial.joining_members} members that subscribe to {subscribed}"


#: The events that can be tried.
TRIAL_EVENTS: Final[Mapping[str, TrialEventFunction]] = {
    "rebalance": _rebalance,
    "crash": _crash_largest,
    "restart": _restart_all,
    "join": _add_members,
}


def simulate_group(group: LiveGroup, assignor: str) -> SimulatedGroup:
    """Return a copy of a live group, with the protocol of an assignor.

    Raises:
        AssignorChoiceError: There is no such assignor.
    """
    if assignor == CONSUMER_PROTOCOL_ASSIGNOR:
        return ConsumerGroupSimulation(group)
    return GroupSimulation(group, assignor)


def run_trial(trial: Trial, on_progress: ProgressCallback = lambda share: None) -> TrialResult:
    """Run one trial.

    Args:
        trial: The group, event and assignor.
        on_progress: Called with the progress, from 0 to 1.

    Raises:
        AssignorChoiceError: There is no such assignor.
        AssignorFailureError: The assignor raised an exception.
        KeyError: There is no such event.
    """
    return measure_trial(simulate_group(trial.group, trial.assignor), trial, on_progress)


def measure_trial(
    simulation: TrialGroup, trial: Trial, on_progress: ProgressCallback
) -> TrialResult:
    """Trigger the event of a trial in a stable copy of its group, and measure the effects."""
    group = trial.group
    generation, begin_ms = simulation.generation, simulation.now_ms
    detail = TRIAL_EVENTS[trial.event](simulation, trial, on_progress)
    is_stable = simulation.wait_until_stable()
    timeline = simulation.timeline
    changes = [change.at_ms for change in timeline if change.at_ms >= begin_ms]
    end_ms = max(changes, default=begin_ms)
    places = [TopicPartition(p.topic, p.index) for p in group.partitions]
    handovers = measure_handovers(
        timeline,
        places,
        simulation.member_by_process,
        simulation.membership_changes,
        begin_ms,
        end_ms,
    )
    lag = forecast_lag(
        list(newest_readers(timeline)), group.partitions, group.speed, begin_ms, end_ms
    )
    return TrialResult(
        event=trial.event,
        detail=detail,
        assignor=trial.assignor,
        session_timeout_ms=group.session_timeout_ms,
        unread_s=handovers.unread_ms / 1000,
        longest_unread_s=handovers.longest_gap_ms / 1000,
        handovers=handovers.handovers,
        avoidable_handovers=handovers.avoidable_handovers,
        moved_partitions=handovers.moved,
        unread_partitions=handovers.unread,
        stable_after_s=(end_ms - begin_ms) / 1000 if is_stable else None,
        rebalances=simulation.generation - generation,
        lag_max=lag.peak,
        added_lag_max=lag.added,
        caught_up_after_s=None if lag.caught_up_ms is None else lag.caught_up_ms / 1000,
        lag_by_second=tuple(lag.by_second),
        undisturbed_lag_by_second=tuple(lag.undisturbed),
        unread_by_second=tuple(ms / 1000 for ms in handovers.unread_ms_by_second),
    )

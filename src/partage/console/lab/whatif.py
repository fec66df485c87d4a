"""``partage lab whatif``: the effect of events on a live group, simulated."""

from __future__ import annotations

import math
import os
import sys
from collections import Counter
from concurrent.futures.process import BrokenProcessPool
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from partage.console.common.cluster_client import ClusterClient
from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError, install_hint, usage_error
from partage.console.common.options import (
    GroupArgument,
    GroupOption,
    JsonOption,
    required_name,
    with_cluster,
)
from partage.console.common.output import (
    ProgressBar,
    ignore_closed_output,
    json_help,
    note,
    print_json,
)
from partage.console.lab.live_samples import read_samples
from partage.console.lab.live_view import (
    HEARTBEAT_INTERVAL_MS,
    SPEED_MIN,
    ObservedGroup,
    observe_group,
)
from partage.console.lab.whatif_chart import EVENT_TITLES, check_chart_path, draw_chart
from partage.console.lab.whatif_report import WhatIfReport, describe_basis, print_report
from partage.lab.whatif.assignor_choice import (
    ASSIGNORS,
    CONSUMER_PROTOCOL_ASSIGNOR,
    AssignorChoiceError,
    AssignorFailureError,
    make_assignor,
)
from partage.lab.whatif.live_group import LiveGroup, LiveMember
from partage.lab.whatif.trial import SampleRecord, Trial, TrialResult
from partage.lab.whatif.trial_pool import TrialProgressCallback, call_with_fixed_hashes, run_trials
from partage.model.topic_partition import TopicPartition

if TYPE_CHECKING:
    from partage.testing.whatif.consumer_function import ConsumerFunction
    from partage.testing.whatif.consumer_trial import ConsumerProbe

app = command_app()


class TrialEvent(StrEnum):
    """The events that can be tried."""

    REBALANCE = "rebalance"
    CRASH = "crash"
    RESTART = "restart"
    JOIN = "join"


@app.command("whatif", epilog=json_help(WhatIfReport))
@with_cluster()
def whatif(
    cluster: ClusterClient,
    name: GroupArgument = None,
    group: GroupOption = None,
    assignor: Annotated[
        list[str] | None,
        typer.Option(
            "--assignor",
            metavar="NAME",
            help="Assignor to simulate, or your own as module:Class; repeatable. uniform: the "
            "group after its migration to the consumer protocol. Default: the group's assignor and "
            "cooperative-sticky, or uniform for a group with the consumer protocol.",
        ),
    ] = None,
    consumer: Annotated[
        str | None,
        typer.Option(
            "--consumer",
            metavar="MODULE:FUNCTION",
            help="Your coroutine function that runs a consumer: each member runs it in a simulated "
            "world. It gets the bootstrap servers, and options if it has that parameter. "
            "Default: members that read no records.",
        ),
    ] = None,
    event: Annotated[
        list[TrialEvent] | None,
        typer.Option(
            "--event",
            metavar="EVENT",
            help="Event to simulate: rebalance, crash, restart or join; repeatable. Default: all.",
        ),
    ] = None,
    joining_members: Annotated[
        int,
        typer.Option(
            "--joining-members", metavar="N", min=1, help="Number of members that join at once."
        ),
    ] = 10,
    away_s: Annotated[
        float,
        typer.Option(
            "--away-s", metavar="S", min=0, help="Seconds for which a restarted member is down."
        ),
    ] = 5.0,
    rack: Annotated[
        list[str] | None,
        typer.Option(
            "--rack",
            metavar="MEMBER=RACK",
            help="client.rack of members, by member id, instance id or client id; repeatable. "
            "Default: their present one.",
        ),
    ] = None,
    session_timeout_ms: Annotated[
        list[int] | None,
        typer.Option(
            "--session-timeout-ms",
            metavar="MS",
            min=1_000,
            max=1_800_000,
            help="Session timeout of the members; repeatable. Default: their present one.",
        ),
    ] = None,
    max_poll_interval_ms: Annotated[
        int | None,
        typer.Option(
            "--max-poll-interval-ms",
            metavar="MS",
            min=1_000,
            help="max.poll.interval.ms of the members. Default: their present one.",
        ),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(
            "--speed",
            metavar="N",
            min=0.001,
            help="Records per second that a member can read. Default: twice the highest load.",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            metavar="N",
            min=0,
            help="Records per second written to the topics. Default: measured for --sample-s.",
        ),
    ] = None,
    sample_s: Annotated[
        float,
        typer.Option(
            "--sample-s", metavar="S", min=0.1, help="Seconds for which to measure the write rate."
        ),
    ] = 2.0,
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs",
            metavar="N",
            min=1,
            help="Number of processes for a large group.",
            show_default="number of CPUs",
        ),
    ] = os.cpu_count() or 1,
    picture: Annotated[
        Path | None,
        typer.Option(
            "--picture",
            metavar="FILE",
            help="Save a chart as PNG or SVG.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Simulate events on a copy of a live group and compare the effects.

    The simulation starts with the current assignment. The events are a rebalance, the loss of a
    member, a rolling restart, and joining members, under each assignor and session timeout. The
    live group is only read.

    \b
    Examples:
      partage lab whatif readers
      partage lab whatif readers --assignor range --assignor sticky --picture readers.png
      partage lab whatif readers --assignor range --assignor uniform --event join
      partage lab whatif readers --session-timeout-ms 10000 --session-timeout-ms 45000
      partage lab whatif readers --event restart --away-s 30 --rate 5000
      partage lab whatif readers --assignor sticky --assignor my_assignors:Closest
      partage lab whatif readers --assignor rack-aware --rack client-1=east --rack client-2=west
      partage lab whatif readers --consumer my_service:consume --event restart
    """
    wanted = required_name(name, group, "group")
    if picture is not None:
        check_chart_path(picture)
    _check_assignors(assignor or [])
    racks = _parse_racks(rack or [])
    function = None
    if consumer is not None:
        given = {
            "--assignor": assignor,
            "--rack": rack,
            "--session-timeout-ms": session_timeout_ms,
            "--max-poll-interval-ms": max_poll_interval_ms,
        }
        function = _load_consumer(consumer, [name for name, value in given.items() if value])
    with ProgressBar(f"reading group {wanted}", hidden=json):
        observed = observe_group(cluster, wanted, sample_s)
    names = [""] if consumer else _default_assignors(observed) if not assignor else []
    names = list(dict.fromkeys(assignor or names))
    live = _with_racks(observed.group, racks)
    live = _with_poll_interval(_with_load(live, rate, speed), max_poll_interval_ms)
    speed_source = "assumed"
    samples: tuple[SampleRecord, ...] = ()
    tried = {"session_timeout_ms": session_timeout_ms, "max_poll_interval_ms": max_poll_interval_ms}
    consumer_options = tuple(name for name, value in tried.items() if value)
    remarks = list(observed.remarks)
    if function is not None:
        _check_static_members(live, function)
        samples = read_samples(cluster, [TopicPartition(p.topic, p.index) for p in live.partitions])
        first = Trial(
            group=_with_session(live, (session_timeout_ms or [live.session_timeout_ms])[0]),
            event=TrialEvent.REBALANCE,
            assignor=names[0],
            consumer=function.path,
            consumer_options=consumer_options,
            samples=samples,
        )
        probe = _probe(first, remarks, hidden=json)
        if not assignor and probe.has_consumer_protocol != observed.has_consumer_protocol:
            remarks.append(_other_protocol_text(function.path, observed.has_consumer_protocol))
        if probe.speed is not None and probe.speed < live.speed:
            live, speed_source = msgspec.structs.replace(live, speed=probe.speed), "consumer"
    trials = [
        Trial(
            group=_with_session(live, timeout_ms),
            event=each.value,
            assignor=name,
            joining_members=joining_members,
            away_ms=round(1000 * away_s),
            consumer=consumer,
            consumer_options=consumer_options,
            samples=samples,
        )
        for each in event or TrialEvent
        for timeout_ms in session_timeout_ms or [live.session_timeout_ms]
        for name in names
    ]
    owned = Counter(live.owners.values())
    answer = WhatIfReport(
        group=wanted,
        generation=live.generation,
        assignor=live.assignor,
        members=len(live.members),
        idle_members=sum(not owned[member.member_id] for member in live.members),
        partitions=len(live.partitions),
        unowned_partitions=len(live.partitions) - owned.total(),
        uncommitted_partitions=observed.uncommitted,
        lag=sum(p.lag for p in live.partitions),
        records_per_second=sum(p.rate for p in live.partitions),
        measured_s=observed.measured_s,
        member_records_per_second=live.speed,
        session_timeout_ms=observed.group.session_timeout_ms,
        max_poll_interval_ms=observed.group.max_poll_interval_ms,
        timeout_source="members" if observed.has_timeouts else "kafka",
        consumer=consumer,
        speed_source=speed_source,
        remarks=remarks,
        results=_run_trials(trials, jobs, hidden=json),
    )
    basis = describe_basis(answer, is_rate_said=rate is not None)
    with ignore_closed_output():
        if json:
            print_json(answer)
        else:
            print_report(answer, basis)
    if picture is not None:
        draw_chart(picture, f"Forecast for group {wanted}", basis, answer.results)
        note(f"chart saved: {picture}")


# Trials


def _import_from_current_directory() -> None:
    """Let imports find modules in the current directory, as ``python -m`` does."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


def _check_assignors(names: list[str]) -> None:
    """Raise a usage error for an assignor that does not exist; import those of the user."""
    if any(":" in name for name in names):
        _import_from_current_directory()
    for name in names:
        if name != CONSUMER_PROTOCOL_ASSIGNOR:
            try:
                make_assignor(name)
            except AssignorChoiceError as error:
                raise usage_error(str(error)) from error


def _load_consumer(path: str, given: list[str]) -> ConsumerFunction:
    """Import the user's code.

    Args:
        path: Its import path.
        given: Options of the command that only code with a parameter for options can follow.

    Raises:
        CommandError: There is no such code, or it cannot follow an option.
    """
    if find_spec("greenlet") is None:
        raise CommandError(f"--consumer needs greenlet: {install_hint('greenlet')}")
    # Imported here: other trials need neither the broker nor the simulated world.
    from partage.testing.whatif.consumer_function import (
        OPTIONS_PARAMETER,
        ConsumerChoiceError,
        ConsumerFunction,
    )

    _import_from_current_directory()
    try:
        function = ConsumerFunction(path)
    except ConsumerChoiceError as error:
        raise usage_error(str(error)) from error
    if given and not function.has_options:
        raise usage_error(
            f"{given[0]} has no effect on {path}: give the function a parameter "
            f"{OPTIONS_PARAMETER}, and pass it on to its consumer (**{OPTIONS_PARAMETER})"
        )
    return function


def _check_static_members(live: LiveGroup, function: ConsumerFunction) -> None:
    static = [each.instance_id for each in live.members if each.instance_id is not None]
    if static and not function.has_options:
        raise CommandError(
            f"group {live.name} has static members, such as {static[0]}: give {function.path} a "
            "parameter options, and pass it on to its consumer (**options); it has the "
            "group_instance_id of the member"
        )


def _probe(trial: Trial, remarks: list[str], *, hidden: bool) -> ConsumerProbe:
    """Run the user's code in a copy of the group, and return its speed and its protocol.

    Args:
        trial: The group and the code.
        remarks: Gets a remark if the speed is not measurable.
        hidden: True to show no progress.
    """
    from partage.testing.whatif.consumer_function import ConsumerCodeError
    from partage.testing.whatif.consumer_trial import probe_consumer
    from partage.testing.whatif.record_writer import written_rate

    with ProgressBar(f"running {trial.consumer}", hidden=hidden):
        try:
            probe = call_with_fixed_hashes(probe_consumer, trial)
        except ConsumerCodeError as error:
            raise CommandError(str(error)) from error
        except BrokenProcessPool:
            raise CommandError(f"the process that ran {trial.consumer} was killed") from None
    rate = sum(p.rate for p in trial.group.partitions)
    written = written_rate(trial.group.partitions, trial.samples)
    if written < rate:
        remarks.append(
            f"{written:,.0f} of {rate:,.0f} records/s are written for {trial.consumer}; the lags "
            "are computed with all of them"
        )
    if not probe.has_committed:
        remarks.append(f"{trial.consumer} committed no offsets, so its speed was not measured")
    return probe


def _other_protocol_text(path: str, has_consumer_protocol: bool) -> str:
    if has_consumer_protocol:
        return (
            f"the group has the consumer protocol, but {path} joins with the classic protocol: "
            'try --assignor uniform, or group_protocol="consumer" in the code'
        )
    return f"the group has the classic protocol, but {path} joins with the consumer protocol"


def _parse_racks(given: list[str]) -> dict[str, str]:
    racks = {}
    for text in given:
        name, _, rack = text.rpartition("=")
        if not name or not rack:
            raise usage_error(f"--rack {text!r} is not MEMBER=RACK, such as client-1=east")
        racks[name] = rack
    return racks


def _with_racks(live: LiveGroup, racks: dict[str, str]) -> LiveGroup:
    """Return the group with other racks, by member id, instance id or client id."""
    found = set()

    def with_rack(member: LiveMember) -> LiveMember:
        for name in (member.member_id, member.instance_id, member.client_id):
            if name in racks:
                found.add(name)
                return msgspec.structs.replace(member, rack=racks[name])
        return member

    members = tuple(map(with_rack, live.members))
    missing = sorted(racks.keys() - found)
    if missing:
        raise CommandError(
            f"--rack: group {live.name} has no member {missing[0]!r}; partage groups members "
            f"{live.name} shows the ids of its members"
        )
    return msgspec.structs.replace(live, members=members)


def _default_assignors(observed: ObservedGroup) -> list[str]:
    if observed.has_consumer_protocol:
        return [CONSUMER_PROTOCOL_ASSIGNOR]
    live = observed.group
    if live.assignor not in ASSIGNORS:
        raise CommandError(
            f"group {live.name} uses the assignor {live.assignor or 'none'!r}, which is unknown "
            f"here: name its class with --assignor module:Class, or choose another one of "
            f"{', '.join((*ASSIGNORS, CONSUMER_PROTOCOL_ASSIGNOR))}"
        )
    return [live.assignor, "cooperative-sticky"]


def _with_load(live: LiveGroup, rate: float | None, speed: float | None) -> LiveGroup:
    """Return the group with the given or measured load and reading speed."""
    if rate is not None:
        seen = sum(p.rate for p in live.partitions)
        even = rate / max(1, len(live.partitions))
        live = msgspec.structs.replace(
            live,
            partitions=tuple(
                msgspec.structs.replace(p, rate=rate * p.rate / seen if seen else even)
                for p in live.partitions
            ),
        )
    rates = {(p.topic, p.index): p.rate for p in live.partitions}
    busiest = max(sum(rates[each] for each in member.assigned) for member in live.members)
    return msgspec.structs.replace(live, speed=speed or max(2.0 * math.ceil(busiest), SPEED_MIN))


def _with_poll_interval(live: LiveGroup, max_poll_interval_ms: int | None) -> LiveGroup:
    given = max_poll_interval_ms or live.max_poll_interval_ms
    return msgspec.structs.replace(live, max_poll_interval_ms=max(1_000, given))


def _with_session(live: LiveGroup, timeout_ms: int) -> LiveGroup:
    return msgspec.structs.replace(
        live,
        session_timeout_ms=timeout_ms,
        heartbeat_interval_ms=min(HEARTBEAT_INTERVAL_MS, timeout_ms // 3),
    )


def _run_trials(trials: list[Trial], jobs: int, *, hidden: bool) -> list[TrialResult]:
    done = [0.0] * len(trials)
    with ProgressBar("what if", len(trials), hidden=hidden) as progress:

        def on_progress(number: int, share: float) -> None:
            done[number] = share
            trial = trials[number]
            detail = f"{EVENT_TITLES[trial.event]}, {trial.assignor or trial.consumer}"
            progress.update(detail, sum(done), len(trials))

        try:
            if trials[0].consumer is None:
                return run_trials(trials, jobs, on_progress)
            return _run_consumer_trials(trials, jobs, on_progress)
        except AssignorFailureError as error:
            raise CommandError(str(error)) from error
        except BrokenProcessPool:
            raise CommandError(
                "a worker process was killed (out of memory?): try --jobs 1"
            ) from None


def _run_consumer_trials(
    trials: list[Trial], jobs: int, on_progress: TrialProgressCallback
) -> list[TrialResult]:
    from partage.testing.whatif.consumer_function import ConsumerCodeError
    from partage.testing.whatif.consumer_trial import run_consumer_trial

    try:
        return run_trials(trials, jobs, on_progress, run_consumer_trial, has_fixed_hashes=True)
    except ConsumerCodeError as error:
        raise CommandError(str(error)) from error

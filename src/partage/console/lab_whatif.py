"""``partage lab whatif``: what would become of a group if something happened to it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from partage.console.cluster import Cluster
from partage.console.failure import Failure, misused
from partage.console.group_states import CONSUMER, GroupState, OffsetState, described
from partage.console.options import Json, with_cluster
from partage.console.show import note, print_json, print_table
from partage.lab.whatif import (
    ASSIGNORS,
    LiveGroup,
    LiveMember,
    LivePartition,
    Outcome,
    events,
    moved_by_assignor,
    try_out,
)

_SPEED_LEAST: Final = 1_000.0


class Moves(msgspec.Struct, frozen=True):
    """How many partitions would have another owner than now under an assignor."""

    assignor: str
    moved: int


class Answer(msgspec.Struct, frozen=True):
    """``partage lab whatif --json``."""

    group: str
    members: int
    partitions: int
    lag: int
    records_per_second: float
    changes: list[Moves]
    outcomes: list[Outcome]


@with_cluster()
def whatif(
    cluster: Cluster,
    group: Annotated[str, typer.Option("--group", "-g", "-G", metavar="GROUP", help="The group.")],
    assignor: Annotated[
        list[str] | None,
        typer.Option(
            "--assignor",
            metavar="NAME",
            help="What its members would offer, one or several; else what they do and "
            "cooperative-sticky.",
        ),
    ] = None,
    more: Annotated[
        int, typer.Option("--more", min=1, help="How many more members would join.")
    ] = 10,
    session_timeout_ms: Annotated[
        list[int] | None,
        typer.Option("--session-timeout-ms", min=1_000, help="The members', one or several."),
    ] = None,
    max_poll_interval_ms: Annotated[
        int, typer.Option("--max-poll-interval-ms", min=1_000, help="The members'.")
    ] = 300_000,
    speed: Annotated[
        float | None,
        typer.Option("--speed", min=0.001, help="Records a second that one member can read."),
    ] = None,
    sample_s: Annotated[
        float, typer.Option("--sample-s", min=0.1, help="How long to look how fast topics grow.")
    ] = 2.0,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE", help="Draw the lags, as PNG or SVG.")
    ] = None,
    json: Json = False,
) -> None:
    """Read a live group, and try things on it in a simulated world instead of the real one.

    A member is lost, all are restarted one after the other, more members join; under each assignor
    and session timeout. The group itself is only read. A member's speed is taken to be twice what
    it has to read now, 1,000 records a second at least, unless --speed says otherwise.

    \b
    Examples:
      partage lab whatif --group readers
      partage lab whatif --group readers --assignor range --assignor sticky --picture readers.png
      partage lab whatif --group readers --session-timeout-ms 10000 --session-timeout-ms 45000
    """
    live = _live(cluster, group, sample_s, speed)
    names = list(dict.fromkeys(assignor or _default(live)))
    for name in names:
        if name not in ASSIGNORS:
            raise misused(f"there is no assignor {name!r} here; there are {', '.join(ASSIGNORS)}")
    outcomes = [
        _try(live, timeout_ms, max_poll_interval_ms, name, more, event)
        for timeout_ms in session_timeout_ms or [45_000]
        for event in events(more)
        for name in names
    ]
    answer = Answer(
        group=group,
        members=len(live.members),
        partitions=len(live.partitions),
        lag=sum(p.lag for p in live.partitions),
        records_per_second=sum(p.rate for p in live.partitions),
        changes=[Moves(name, moved_by_assignor(live, name)) for name in names],
        outcomes=outcomes,
    )
    if picture is not None:
        _draw(picture, answer)
    if json:
        print_json(answer)
    else:
        _print(answer, picture)


def _default(live: LiveGroup) -> list[str]:
    own = [live.assignor] if live.assignor in ASSIGNORS else []
    return [*own, "cooperative-sticky"]


def _try(
    live: LiveGroup, timeout_ms: int, max_poll_interval_ms: int, name: str, more: int, event: str
) -> Outcome:
    note(f"{event}, {name}, session timeout {timeout_ms} ms ...")
    timed = msgspec.structs.replace(
        live,
        session_timeout_ms=timeout_ms,
        heartbeat_interval_ms=min(3_000, timeout_ms // 3),
        max_poll_interval_ms=max_poll_interval_ms,
    )
    return try_out(timed, event, events(more)[event], name)


# The live group.


def _live(cluster: Cluster, group: str, sample_s: float, speed: float | None) -> LiveGroup:
    first = _stable(cluster, group)
    begin_s = time.monotonic()
    time.sleep(sample_s)
    second = _stable(cluster, group)
    counts = {
        name: len(topic.partitions)
        for name, topic in cluster.metadata().topics.items()
        if name in _topics(second)
    }
    ends, elapsed_s = _ends(first), time.monotonic() - begin_s
    states = {(o.topic, o.partition): o for o in second.offsets}
    partitions = tuple(
        _partition(name, index, states.get((name, index)), ends.get((name, index)), elapsed_s)
        for name, count in sorted(counts.items())
        for index in range(count)
    )
    share = sum(p.rate for p in partitions) / len(second.members)
    return LiveGroup(
        name=group,
        assignor=second.protocol or "",
        members=_members(second),
        partitions=partitions,
        speed=speed or max(2 * share, _SPEED_LEAST),
    )


def _stable(cluster: Cluster, group: str) -> GroupState:
    (found,) = described(cluster, [group])
    if found.protocol_type != CONSUMER or found.state != "Stable" or not found.members:
        raise Failure(
            f"group {group} is {found.state}, of type {found.protocol_type or 'unknown'}: "
            "there is something to try once it is a Stable group of consumers"
        )
    return found


def _topics(state: GroupState) -> set[str]:
    return {topic for member in state.members for topic in member.subscription or ()}


def _ends(state: GroupState) -> Mapping[tuple[str, int], int | None]:
    return {(o.topic, o.partition): o.log_end_offset for o in state.offsets}


def _members(state: GroupState) -> tuple[LiveMember, ...]:
    return tuple(
        LiveMember(
            name=member.member_id,
            topics=tuple(member.subscription or ()),
            instance_id=member.group_instance_id,
            assigned=tuple((t.topic, index) for t in member.partitions for index in t.partitions),
        )
        for member in state.members
    )


def _partition(
    topic: str, index: int, now: OffsetState | None, before: int | None, elapsed_s: float
) -> LivePartition:
    if now is None or now.log_end_offset is None:
        return LivePartition(topic=topic, index=index)
    grown = 0 if before is None else max(0, now.log_end_offset - before)
    return LivePartition(topic=topic, index=index, lag=now.lag or 0, rate=grown / elapsed_s)


# What is shown.


def _print(answer: Answer, picture: Path | None) -> None:
    print(
        f"group {answer.group}: {answer.members} members, {answer.partitions} partitions, "
        f"{answer.lag:,} records behind, {answer.records_per_second:,.1f} records a second"
    )
    for change in answer.changes:
        print(f"assigned anew by {change.assignor}: {change.moved} partitions would move")
    print()
    print_table(
        [
            "WHAT-IF",
            "ASSIGNOR",
            "SESSION-MS",
            "STOOD-STILL-S",
            "MOVED",
            "SETTLED-S",
            "REBALANCES",
            "LAG-PEAK",
        ],
        [
            (
                each.event,
                each.assignor,
                each.session_timeout_ms,
                round(each.stood_still_s, 1),
                each.moved,
                round(each.settled_s, 1),
                each.rebalances,
                each.lag_peak,
            )
            for each in answer.outcomes
        ],
    )
    print("stood still: seconds in which a partition was nobody's, of all partitions together")
    if picture is not None:
        print(f"drawn: {picture}")


def _draw(path: Path, answer: Answer) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise Failure("--picture needs matplotlib: pip install 'partage[demo]'") from None
    kinds = list(dict.fromkeys(outcome.event for outcome in answer.outcomes))
    figure = Figure(figsize=(4.5 * len(kinds), 3.6), layout="constrained")
    for axes, kind in zip(_axes(figure, len(kinds)), kinds, strict=True):
        for outcome in answer.outcomes:
            if outcome.event == kind:
                label = f"{outcome.assignor}, {outcome.session_timeout_ms / 1000:g} s"
                axes.plot(range(len(outcome.lags)), outcome.lags, label=label)
        axes.set_title(kind)
        axes.set_xlabel("seconds")
        axes.set_ylim(bottom=0)
    first = figure.axes[0]
    first.set_ylabel(f"records that {answer.group} is behind")
    first.legend()
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise Failure(f"{path} cannot be drawn: {error}") from None


def _axes(figure: Any, count: int) -> list[Any]:
    return [figure.add_subplot(1, count, at + 1) for at in range(count)]

"""The output of ``partage lab whatif``: as JSON, and as tables of the measures of each event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from partage.console.common.output import count
from partage.console.common.table import print_table
from partage.console.lab.whatif_chart import EVENT_TITLES
from partage.lab.whatif.trial import TrialResult


class WhatIfReport(msgspec.Struct, frozen=True, kw_only=True):
    """Output of ``partage lab whatif --json``: the group and the results of the trials.

    ``generation`` is null if unknown. ``idle_members`` own no partition; ``unowned_partitions``
    have no owner. ``lag`` is in records, without ``uncommitted_partitions``, for which the group
    has no committed offset. ``records_per_second`` was measured for ``measured_s``, or is given by
    ``--rate``. The timeouts are those that the members joined with (``timeout_source`` is
    ``members``), or Kafka's defaults (``kafka``), whatever is tried. ``consumer`` is the code of
    ``--consumer``. ``member_records_per_second`` was measured with it if ``speed_source`` is
    ``consumer``, and is assumed or set by ``--speed`` otherwise (``assumed``).
    """

    group: str
    generation: int | None
    assignor: str
    members: int
    idle_members: int
    partitions: int
    unowned_partitions: int
    uncommitted_partitions: int
    lag: int
    records_per_second: float
    measured_s: float
    member_records_per_second: float
    session_timeout_ms: int
    max_poll_interval_ms: int
    timeout_source: str
    consumer: str | None
    speed_source: str
    remarks: list[str]
    results: list[TrialResult]


def describe_basis(answer: WhatIfReport, *, is_rate_said: bool) -> str:
    """Return the assumptions for the lags."""
    rate = "set by --rate" if is_rate_said else f"measured for {answer.measured_s:.1f} s"
    speed = answer.member_records_per_second
    return (
        f"lag {count(answer.lag, 'record')} by committed offsets; "
        f"{answer.records_per_second:,.1f} records/s are written ({rate}); a member reads up to "
        f"{speed:,.{0 if speed >= 100 else 1}f} records/s"
    )


def print_report(answer: WhatIfReport, basis: str) -> None:
    """Print the group, the assumptions, and a table for each event."""
    idle = answer.idle_members
    without = f", of which {idle} own{'s' * (idle == 1)} none" if idle else ""
    generation = "" if answer.generation is None else f", generation {answer.generation}"
    print(
        f"group {answer.group}{generation}: {count(answer.partitions, 'partition')}, assigned by "
        f"{answer.assignor} to {count(answer.members, 'member')}{without}"
    )
    measured = f"measured with {answer.consumer}"
    print(f"{basis} ({'--speed' if answer.speed_source == 'assumed' else measured})")
    print(
        f"session timeout {answer.session_timeout_ms / 1000:g} s, max.poll.interval "
        f"{answer.max_poll_interval_ms / 1000:g} s, {_TIMEOUT_SOURCES[answer.timeout_source]}"
    )
    for remark in answer.remarks:
        print(f"note: {remark}")
    if not answer.records_per_second:
        print("note: nothing is written, so lags do not grow: increase --sample-s or set --rate")
    timeouts = {each.session_timeout_ms for each in answer.results}
    for event in dict.fromkeys(each.event for each in answer.results):
        here = [each for each in answer.results if each.event == event]
        _print_event(here, says_session=timeouts != {answer.session_timeout_ms})


def _print_event(results: list[TrialResult], *, says_session: bool) -> None:
    """Print a table with a column for each assignor and session timeout."""
    print(f"\n{EVENT_TITLES[results[0].event]}: {results[0].detail}")
    columns = [
        f"{each.assignor}, {each.session_timeout_ms / 1000:g} s" if says_session else each.assignor
        for each in results
    ]
    needless = set()
    if not any(each.unread_partitions for each in results):
        needless.add(_UNREAD)
    if all(each.lag_max == each.added_lag_max for each in results):
        needless.add(_LAG_MAX)
    rows = [
        [f"  {measure}", *map(format_value, results)]
        for measure, format_value in _MEASURES.items()
        if measure not in needless
    ]
    print_table(["", *columns], rows, right=columns)


def _seconds(amount: float | None) -> str:
    return "never" if amount is None else f"{amount:,.1f} s"


_UNREAD: Final = "partitions without a reader at the end"
_LAG_MAX: Final = "maximum total lag"
_MEASURES: Final[dict[str, Callable[[TrialResult], str]]] = {
    "unread time, sum of all partitions": lambda of: _seconds(of.unread_s),
    "longest unread time of a partition": lambda of: _seconds(of.longest_unread_s),
    "partition handovers": lambda of: f"{of.handovers:,}",
    "handovers between remaining members": lambda of: f"{of.avoidable_handovers:,}",
    "partitions with a new owner at the end": lambda of: f"{of.moved_partitions:,}",
    _UNREAD: lambda of: f"{of.unread_partitions:,}",
    "rebalances": lambda of: f"{of.rebalances:,}",
    "time until the last handover": lambda of: _seconds(of.stable_after_s),
    "maximum added lag": lambda of: count(of.added_lag_max, "record"),
    _LAG_MAX: lambda of: count(of.lag_max, "record"),
    "time until the added lag was read": lambda of: _seconds(of.caught_up_after_s),
}
_TIMEOUT_SOURCES: Final = {
    "members": "as its members requested",
    "kafka": "Kafka's defaults, because its members' timeouts cannot be read",
}

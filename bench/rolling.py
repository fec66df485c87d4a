"""Cost of a rolling restart of ten members, under the cooperative and the eager protocol.

A partition-second is lost while a partition has waiting records and no owner that delivers them.
Under the eager protocol, all members give up all partitions whenever a member leaves or joins.
Under the cooperative protocol only the partitions that move are interrupted. A member that is
drained before it is closed works until the other members are ready. The restarts are real:
`bench.rolling_restart`. `draw` draws the last ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench import brokers
from bench.figures import Figure
from bench.rolling_restart import (
    GRACE_S,
    Delivery,
    History,
    Plan,
    read_twice,
    rolling,
    share_lost,
    waits,
)

TITLE = "A rolling restart of ten members"

PICTURE = "rolling-restart.png"


class _Kind(NamedTuple):
    """A way to restart; ``wanted`` is the target of its ratio to the eager one."""

    name: str
    strategy: str
    drains: bool
    wanted: float | None = None


_KINDS = (
    _Kind("eager", "sticky", drains=False),
    _Kind("cooperative", "cooperative-sticky", drains=False),
    _Kind("drained", "cooperative-sticky", drains=True, wanted=5.0),
)
#: Average time for which a member works on the records of a poll.
_WORK_S = (0.2, 1.0)
_LAST: dict[str, History] = {}


def measure(*, is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    """Run the eager restart first: it is the reference of the others."""
    for work_s in _WORK_S[: 1 if is_quick else None]:
        plan = Plan(work_s=work_s)
        if is_quick:
            plan = plan._replace(members=3, partitions=9)
        with brokers.ours() as broker:
            for kind in _KINDS:
                kind_plan = plan._replace(drains=kind.drains)
                _LAST[kind.name] = rolling(broker.bootstrap, kind.name, kind.strategy, kind_plan)
        for kind in _KINDS[1:]:
            yield from _compared(kind, _LAST[kind.name], _LAST["eager"])


def _compared(kind: _Kind, ours: History, eager: History) -> Iterator[Figure]:
    plan = ours.plan
    closed = "drained and closed" if kind.drains else "closed"
    yield Figure(
        what=f"{plan.members} members, each working {plan.work_s:g} s after a poll, are {closed} "
        "and restarted: partition-seconds lost",
        unit="%",
        ours=share_lost(ours) * 100,
        peer_name="eager",
        peer=share_lost(eager) * 100,
        less_is_better=True,
        ratio_wanted=kind.wanted,
        note=f"of {plan.partitions * plan.lasts_s:,.0f}; {plan.partitions} partitions, "
        f"{plan.per_s:g} records a second each; heartbeats every {plan.heartbeat_ms} ms; "
        f"records read twice: {read_twice(ours.deliveries)}, eager {read_twice(eager.deliveries)}",
    )
    yield Figure(
        what="the same: longest wait for a partition whose owner stays",
        unit="s",
        ours=_longest(ours, stays=True),
        peer_name="eager",
        peer=_longest(eager, stays=True),
        less_is_better=True,
        wanted=GRACE_S,
        note="in addition to the owner's work",
    )
    yield Figure(
        what="the same: longest wait for a partition that moves",
        unit="s",
        ours=_longest(ours, stays=False),
        peer_name="eager",
        peer=_longest(eager, stays=False),
        less_is_better=True,
    )


def _longest(history: History, *, stays: bool) -> float:
    return max((one.lasts_s for one in waits(history) if one.stays is stays), default=0.0)


def draw(folder: Path) -> None:
    """Draw the owner of each partition over time, for each kind, in ``folder``."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panes = plt.subplots(len(_LAST), sharex=True, figsize=(9, 10), layout="constrained")
    for pane, (name, history) in zip(panes, _LAST.items(), strict=True):
        _draw_one(pane, history)
        pane.set_title(f"{name}: {share_lost(history):.1%} of partition-seconds lost", loc="left")
        pane.set_ylabel("partition")
        pane.set_ylim(history.plan.partitions - 0.5, -0.5)
        pane.set_xlim(0, history.ended_s - history.begun_s)
    panes[-1].set_xlabel(
        "seconds; one colour for each member; black: records wait and no member delivers them"
    )
    figure.savefig(folder / PICTURE, dpi=100, metadata={"Software": None})
    plt.close(figure)


def _draw_one(pane: Any, history: History) -> None:
    import matplotlib.pyplot as plt

    colours = plt.get_cmap("tab10").colors
    ownerships: dict[tuple[int, int], list[Delivery]] = {}
    for one in history.deliveries:
        ownerships.setdefault((one.partition, one.ownership), []).append(one)
    for (partition, ownership), polls in ownerships.items():
        begin = min(one.at_s for one in polls)
        end = history.given_up_s.get((partition, ownership), max(one.at_s for one in polls))
        span = [(begin - history.begun_s, end - begin)]
        colour = colours[polls[0].member % len(colours)]
        pane.broken_barh(span, (partition - 0.5, 1), color=colour, linewidth=0)
    for wait in (one for one in waits(history) if one.is_lost):
        span = [(wait.from_s - history.begun_s, wait.lasts_s)]
        pane.broken_barh(span, (wait.partition - 0.5, 1), color="black", linewidth=0)

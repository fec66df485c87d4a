"""Makes a failure small: fewer steps of the plan, a plainer world, the same rule broken.

Steps are left out, halves before quarters before single ones (delta debugging); options are set to
what is plainest; each if the failure survives it, and over again until nothing more can go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from operator import ne
from typing import Any, Final

from partage.lab.options import Scenario, Step
from partage.lab.running import draw, live

#: Of an option the values to try, the plainest first; the largest simplification stands first.
#: Timeouts and intervals of members are none the plainer for being others. ``safety_ms``, ``steps``
#: and the kinds of faults make another plan: leaving steps out does what they could.
_PLAIN: Final[dict[str, tuple[Any, ...]]] = {
    "brokers": (1, 2),
    "members": (1, 2),
    "shards": (1,),
    "has_second_group": (False,),
    "producers": (1,),
    "static_share": (0.0,),
    "splits": (0.0,),
    "delay_max_ms": (0,),
    "disk_delay_ms": (0,),
    "zookeeper_delay_max_ms": (1,),
    "merges_every": (64,),
    "deletions": (0,),
    "standstills": (0,),
    "version_cap": (0,),
    "partitions_t": (1,),
    "partitions_u": (1,),
    "initial_rebalance_delay_ms": (0,),
    "new_member_join_timeout_ms": (300_000,),
    "members_max": (1_000,),
    "offsets_retention_ms": (604_800_000,),
    "retention_check_ms": (600_000,),
    "segment_bytes": (1 << 20,),
    "produce_every_ms": (1_500,),
    "commits_at_revoke": (True,),
    "assignors": ("cooperative-sticky",),
}
#: What means nothing to a broker that is alone.
_OF_BROKERS: Final = ("shards", "zookeeper_delay_max_ms", "merges_every")


class NothingToShrink(ValueError):
    """The scenario breaks no rule."""


def shrink(
    seed: int,
    tell: Callable[[str], None] = lambda line: None,
    kept: tuple[int, ...] | None = None,
    changes: dict[str, Any] | None = None,
) -> Scenario:
    """The smallest scenario that breaks the rule that the one of a seed breaks.

    With ``kept`` and ``changes`` it begins with these steps and options: no other steps are tried,
    and what is set stays as it is.

    Raises:
        NothingToShrink: it breaks none.
    """
    scenario = draw(seed, kept, changes)
    rule = live(scenario)[1].rule
    if rule is None:
        raise NothingToShrink(f"seed {seed} breaks no rule")
    shrinking = _Shrinking(scenario, rule, tell)
    shrinking.run()
    return shrinking.small


class _Shrinking:
    """What is left of a scenario that breaks ``rule``, and what was tried of it."""

    def __init__(self, scenario: Scenario, rule: str, tell: Callable[[str], None]) -> None:
        self.small = scenario
        self._rule = rule
        self._tell = tell
        self._given = frozenset(scenario.changes)
        self._in_vain: set[str] = set()

    def run(self) -> None:
        """Until nothing makes it smaller; several brokers go first, and their steps with them."""
        self._make_plain("brokers")
        while True:
            before = self.small
            self._leave_out()
            for name in _PLAIN:
                self._make_plain(name)
            if self.small is before:
                return

    def _make_plain(self, name: str) -> None:
        is_alone = self.small.options.brokers == 1
        if name in self._given or (is_alone and name in _OF_BROKERS):
            return
        now = getattr(self.small.options, name)
        for value in takewhile(partial(ne, now), _PLAIN[name]):
            if self._survives(self.small.steps, {**self.small.changes, name: value}):
                self._tell(f"{name} = {value}")
                return

    def _leave_out(self) -> None:
        size = len(self.small.steps)
        while size:
            at = 0
            while at < len(steps := self.small.steps):
                if self._survives(steps[:at] + steps[at + size :], self.small.changes):
                    self._tell(f"{len(self.small.steps)} steps are left")
                else:
                    at += size
            size //= 2

    def _survives(self, steps: Sequence[Step], changes: dict[str, Any]) -> bool:
        """Whether the rule is broken with these alone, which are what is left then."""
        smaller = _of(self.small.seed, steps, changes)
        command = smaller.command()
        if command in self._in_vain or live(smaller)[1].rule != self._rule:
            self._in_vain.add(command)
            return False
        self.small = smaller
        return True


def _of(seed: int, steps: Sequence[Step], changes: dict[str, Any]) -> Scenario:
    """With one broker a plan has other numbers: steps are known by what they are. Those that it
    does not have are left out.
    """
    plan = draw(seed, None, changes).plan
    return draw(seed, tuple(at for at, step in enumerate(plan) if step in steps), changes)

"""Shrinker: reduce a failing scenario to fewer steps and simpler options that break the same rule.

It drops steps of the plan in halves, quarters and so on down to single steps (delta debugging), and
sets options to their simplest values. A reduction stays if the failure remains. It repeats this
until no reduction is possible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from operator import ne
from typing import Any, Final

from partage.lab.fault_plan import PlanStep
from partage.lab.reduction import reduce_steps
from partage.lab.runner import draw_scenario, run_scenario
from partage.lab.scenario import Scenario

#: Values to try for each option, the simplest first. Options that simplify most come first.
#
#: Timeouts and intervals of members are missing: no value is simpler than another. ``safety_ms``,
#: ``steps`` and the kinds of faults would draw another plan; dropping steps achieves the same.
_SIMPLEST_VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "brokers": (1, 2),
    "members": (1, 2),
    "shards": (1,),
    "transactional_producers": (0, 1),
    "consumer_members": (0, 1),
    "consumer_static_share": (0.0,),
    "consumer_regex_share": (0.0,),
    "action_delay_max_ms": (0,),
    "assignment_interval_ms": (0,),
    "has_second_group": (False,),
    "producers": (1,),
    "static_share": (0.0,),
    "frame_split_share": (0.0,),
    "delay_max_ms": (0,),
    "disk_delay_ms": (0,),
    "zookeeper_delay_max_ms": (1,),
    "entries_per_merge": (64,),
    "deletions": (0,),
    "machine_stalls": (0,),
    "versions_below_newest_max": (0,),
    "partitions_t": (1,),
    "partitions_u": (1,),
    "initial_rebalance_delay_ms": (0,),
    "new_member_join_timeout_ms": (300_000,),
    "members_max": (1_000,),
    "offsets_retention_ms": (604_800_000,),
    "retention_check_ms": (600_000,),
    "segment_bytes": (1 << 20,),
    "produce_every_ms": (1_500,),
    "transaction_every_ms": (1_000,),
    "marker_delay_max_ms": (0,),
    "first_epoch": (0,),
    "transaction_protocol": ("new", "old"),
    "late_markers": (0,),
    "compactions": (0,),
    "wrong_request_share": (0.0,),
    "repeated_request_share": (0.0,),
    "delete_retention_ms": (86_400_000,),
    "commits_at_revoke": (True,),
    "assignors": ("cooperative-sticky",),
}
#: Options without effect on a single broker.
_CLUSTER_ONLY_OPTIONS: Final = ("shards", "zookeeper_delay_max_ms", "entries_per_merge")


class NothingToShrinkError(ValueError):
    """Raised when the scenario breaks no rule."""


def shrink(
    seed: int,
    report: Callable[[str], None] = lambda line: None,
    kept: tuple[int, ...] | None = None,
    changes: dict[str, Any] | None = None,
) -> Scenario:
    """Return the smallest scenario found that breaks the same rule as the scenario of a seed.

    Args:
        seed: The seed.
        report: Called with a line of text after each successful reduction.
        kept: Indexes of the steps to start with; other steps are not tried.
        changes: Options to set; the shrinker leaves them unchanged.

    Raises:
        NothingToShrinkError: The scenario breaks no rule.
    """
    scenario = draw_scenario(seed, kept, changes)
    rule = run_scenario(scenario)[1].rule
    if rule is None:
        raise NothingToShrinkError(f"seed {seed} breaks no rule")
    shrinker = _Shrinker(scenario, rule, report)
    shrinker.run()
    return shrinker.smallest


class _Shrinker:
    """The smallest scenario so far that breaks ``rule``, and the reductions that failed."""

    def __init__(self, scenario: Scenario, rule: str, report: Callable[[str], None]) -> None:
        self.smallest = scenario
        self._rule = rule
        self._report = report
        self._given = frozenset(scenario.changes)
        self._passing_commands: set[str] = set()

    def run(self) -> None:
        """Reduce until no reduction works. Try fewer brokers first: their steps go with them."""
        self._simplify_option("brokers")
        while True:
            before = self.smallest
            self._drop_steps()
            for name in _SIMPLEST_VALUES:
                self._simplify_option(name)
            if self.smallest is before:
                return

    def _simplify_option(self, name: str) -> None:
        is_alone = self.smallest.options.brokers == 1
        if name in self._given or (is_alone and name in _CLUSTER_ONLY_OPTIONS):
            return
        now = getattr(self.smallest.options, name)
        for value in takewhile(partial(ne, now), _SIMPLEST_VALUES[name]):
            if self._still_fails(self.smallest.steps, {**self.smallest.changes, name: value}):
                self._report(f"{name} = {value}")
                return

    def _drop_steps(self) -> None:
        def still_fails(steps: Sequence[PlanStep]) -> bool:
            if not self._still_fails(steps, self.smallest.changes):
                return False
            self._report(f"{len(self.smallest.steps)} steps remain")
            return True

        reduce_steps(self.smallest.steps, still_fails)

    def _still_fails(self, steps: Sequence[PlanStep], changes: dict[str, Any]) -> bool:
        """Return True if these steps and changes still break the rule; they become the smallest
        scenario.
        """
        smaller = _scenario_with_steps(self.smallest.seed, steps, changes)
        command = smaller.rerun_command()
        if command in self._passing_commands or run_scenario(smaller)[1].rule != self._rule:
            self._passing_commands.add(command)
            return False
        self.smallest = smaller
        return True


def _scenario_with_steps(seed: int, steps: Sequence[PlanStep], changes: dict[str, Any]) -> Scenario:
    """Return the scenario with these steps.

    Steps are compared by value: with one broker, the plan has other step numbers. Steps that the
    plan does not have are ignored.
    """
    plan = draw_scenario(seed, None, changes).plan
    return draw_scenario(seed, tuple(at for at, step in enumerate(plan) if step in steps), changes)

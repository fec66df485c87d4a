"""The work that consumer groups ask of their broker, on the virtual clock.

It corresponds to `partage.broker.coordination.group_actions`. An assignor, or the matching of
regular expressions, can take time, fail, or hang until the time limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from partage.assignors.server_side import ServerSideRange, Uniform
from partage.bridge.target_computation import ComputedTarget, compute_target
from partage.bridge.topic_regex import matching_topics
from partage.coordinator.consumer_group.actions import Action, ComputeTarget
from partage.coordinator.consumer_group.events import RegexesResolved, TargetComputed
from partage.lab.brokers.shell import BrokerShell
from partage.lab.options import ACTION_TIMEOUT_MS

_ASSIGNORS: Final = {each.name: each for each in (Uniform(), ServerSideRange())}

ActionResult = TargetComputed | RegexesResolved


class SimGroupActions:
    """Performs the actions of consumer groups for the processes of one broker."""

    def __init__(self, broker: BrokerShell) -> None:
        self._broker = broker
        self._world = broker.world

    def run(self, action: Action, done: Callable[[ActionResult], None]) -> None:
        """Perform an action; ``done`` is called once, at once or later, unless the process ends."""
        world = self._world
        kind = "assignors" if isinstance(action, ComputeTarget) else "regexes"
        fails = world.now_ms < world.failing_until_ms.get(kind, 0)
        if world.now_ms < world.hanging_until_ms.get(kind, 0):
            fails, delay_ms = True, ACTION_TIMEOUT_MS
        else:
            delay_ms = world.action_rng.randrange(world.options.action_delay_max_ms + 1)
        if isinstance(action, ComputeTarget):
            finish = self._compute(action, fails=fails)
        else:
            finish = self._resolve(action.group_id, action.sequence, action.regexes, fails=fails)
        if delay_ms:
            self._broker.call_later(delay_ms, lambda: done(finish()))
        else:
            done(finish())

    def _compute(self, action: ComputeTarget, *, fails: bool) -> Callable[[], ActionResult]:
        computed = ComputedTarget(None, "injected")
        if not fails:
            computed = compute_target(action, _ASSIGNORS[action.assignor])
            assert computed.target is not None, computed.error
        return lambda: TargetComputed(
            at_ms=self._world.now_ms,
            group_id=action.group_id,
            sequence=action.sequence,
            group_epoch=action.group_epoch,
            target=computed.target,
            error=computed.error,
        )

    def _resolve(
        self, group_id: str, sequence: int, regexes: frozenset[str], *, fails: bool
    ) -> Callable[[], ActionResult]:
        topics = self._world.consumer_topics
        names, version = list(topics.images), topics.version
        found = None if fails else matching_topics(regexes, names)
        return lambda: RegexesResolved(
            at_ms=self._world.now_ms,
            group_id=group_id,
            sequence=sequence,
            topics=found,
            version=version,
        )

"""Worlds with random faults: one seed gives one plan, one history and one verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

import msgspec

from partage.lab.reduction import reduce_steps
from partage.proposals.simulation.design import Design, MemberTemplate
from partage.proposals.simulation.processes import DesignMemberProcess
from partage.proposals.simulation.world import DesignWorld, WorldOptions

_TOPICS: Final = {"t": 7, "u": 3}
_SUBSCRIPTIONS: Final = (frozenset({"t"}), frozenset({"t", "u"}), frozenset({"u"}))
#: The patterns of members, and the one that matches all topics.
_PATTERNS: Final = ("t.*", "u|v.*", "[tuv].*")
_EVERY_TOPIC: Final = "[tuv].*"
_NEW_TOPICS_MAX: Final = 4
#: A topic that is created when all faults are over.
_LAST_TOPIC: Final = "t9"
_STEPS_MAX: Final = 12
_GAP_MAX_MS: Final = 20_000
_DURATIONS_MS: Final = (1_000, 20_000, 100_000)
_HEAL_MS: Final = 300_000
_SHUTDOWN_MS: Final = 120_000
#: The longest time without a commit in a settled group: three intervals of commits. A member omits
#: one while another request is in flight. The coordinator of the first design commits less often,
#: because it gets offsets by pings.
_COMMIT_LAG_MAX_MS: Final = 15_000

#: The rules of `Readers` and of `FaultTrial`.
RULES: Final = (
    "one reader",
    "commits",
    "lost commits",
    "convergence",
    "duplicates",
    "shutdown",
    "invariant",
)

_SWITCH: Final = "rebalancing off"
_NEW_TOPIC: Final = "new topic"
#: The faults of every world, by name.
_COMMON_FAULTS: Final = (
    "join",
    "leave",
    "crash",
    "pause",
    "cut",
    "coordinator crash",
    "new partition",
)
#: The faults of a world, by name:
#:
#: - "coordinator pause": its process is stopped for a time, and remains the coordinator.
#: - "coordinator expiry": its lease, or its session in ZooKeeper, has ended. It may not act, but
#:   its connections stay open until it notices. Another one takes over meanwhile.
#: - "lost connection": the messages under way are lost, and both sides notice it.
#: - "new topic": the name of a new topic matches some patterns. Only worlds in which members
#:   subscribe by patterns have it.
#: - "rebalancing off": an operator switches the rebalancing of the group off for a time. Only
#:   worlds of designs with such a switch have it.
_RARE_FAULTS: Final = ("coordinator pause", "coordinator expiry", "lost connection")
FAULTS: Final = (*_COMMON_FAULTS, *_RARE_FAULTS, _NEW_TOPIC, _SWITCH)
#: Only every fourth world has the rare faults, and another one has the switch. Every seventh world
#: has patterns. The other seeds give the same steps as before these faults were added.
_RARE_EVERY: Final = 4
_ALL_FAULTS_AT: Final = 1
_SWITCH_AT: Final = 0
_PATTERNS_EVERY: Final = 7
_PATTERNS_AT: Final = 4
#: A group handles these without reading a record twice.
_HARMLESS: Final = frozenset({"join", "leave", "new partition", _NEW_TOPIC, _SWITCH})


class TrialStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a plan.

    Attributes:
        at_ms: When it happens, counted from the start of the world.
        kind: One of `FAULTS`.
        member: The member that it concerns, or the one that joins.
        topics: The topics of a member that joins, the topic that gets a partition, or a new topic.
        pattern: The pattern of a member that joins, instead of topics.
        for_ms: How long a pause, a cut or a switch lasts, or until an expired coordinator notices
            it.
        is_silent: True if a crash closes no connection.
    """

    at_ms: int
    kind: str
    member: str = ""
    topics: tuple[str, ...] = ()
    pattern: str = ""
    for_ms: int = 0
    is_silent: bool = False

    def __str__(self) -> str:
        words = [
            f"{self.at_ms / 1000:.3f}",
            self.kind,
            self.member,
            " ".join(self.topics),
            self.pattern,
        ]
        if self.for_ms:
            words.append(f"for {self.for_ms / 1000:g} s")
        if self.is_silent:
            words.append("silently")
        return " ".join(filter(None, words))


class FaultVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one world; ``rule`` is None if no rule was broken.

    ``faults`` are the kinds of the faults that were taken, in order, and of the topic that is
    created at the end of worlds with patterns. ``steps`` also has the first members. ``broken`` has
    the descriptions of the first violation of each broken rule, also of rules that the design
    breaks by construction.
    """

    seed: int
    rule: str | None
    description: str
    faults: tuple[str, ...]
    steps: tuple[TrialStep, ...] = ()
    broken: dict[str, str] = {}


class FaultTrial:
    """A world under faults that are drawn from a seed.

    The rules are those of `Readers`, and these:

    - "convergence": after all faults, the group becomes stable and stays so, and its members commit
      at intervals. They read no topics to which they do not subscribe. If they subscribe by
      patterns, a new topic that matches gets a reader.
    - "duplicates": members that join, leave or get new partitions cause no record to be read twice.
    - "shutdown": when all members leave, everything that was read is committed, and the coordinator
      has no members and no timers for them.
    - "invariant": the checks of the machines, for a `CheckedDesign`.

    Args:
        design: Creates the design.
        seed: The seed.
        has_mixed_subscriptions: True if members subscribe to different topics.
        reports_findings: True if the verdict has also rules that the design breaks by construction.
        steps: Steps to take instead of those that the seed gives.
    """

    def __init__(
        self,
        design: Callable[[], Design],
        seed: int,
        *,
        has_mixed_subscriptions: bool = True,
        reports_findings: bool = False,
        steps: Sequence[TrialStep] | None = None,
    ) -> None:
        self._rng = Random(f"trial {seed}")
        self._seed = seed
        self._has_mixed_subscriptions = has_mixed_subscriptions
        self._has_patterns = seed % _PATTERNS_EVERY == _PATTERNS_AT or any(
            step.pattern for step in steps or ()
        )
        self._reports_findings = reports_findings
        self._given = steps
        self._taken: list[TrialStep] = []
        options = WorldOptions(
            topics=dict(_TOPICS),
            delay_max_ms=self._rng.choice((2, 50, 400)),
            disk_delay_ms=self._rng.choice((1, 30)),
            failover_ms=self._rng.choice((10, 3_000, 60_000)),
            stale_metadata_ms=self._rng.choice((0, 20_000)),
        )
        self.world = DesignWorld(design(), options, seed)
        self._begin_ms = self.world.clock.now_ms
        self._has_last_topic = False
        self._first = 0  # steps that are not counted as faults

    def run(self) -> FaultVerdict:
        """Run the world, heal all faults, and check the rules."""
        rule, description = None, ""
        try:
            if self._given is None:
                self._take_random_steps()
            else:
                self._take_given_steps(self._given)
            rule, description = self._end()
        except AssertionError as error:
            rule, description = "invariant", str(error)
        faults = tuple(step.kind for step in self._taken[self._first :])
        if self._has_last_topic:
            faults = (*faults, _NEW_TOPIC)
        broken = {} if rule is None else {rule: description}
        for each in self.world.broken_rules:
            broken.setdefault(each.rule, each.description)
        known = {
            each
            for finding in self.world.design.findings
            if not finding.faults or not set(finding.faults).isdisjoint(faults)
            for each in finding.rules
            if not self._reports_findings
        }
        if rule in known:
            rule, description = None, ""
        for each in self.world.broken_rules:
            if each.rule not in known:
                rule, description = each.rule, each.description
                break
        return FaultVerdict(
            seed=self._seed,
            rule=rule,
            description=description,
            faults=faults,
            steps=tuple(self._taken),
            broken=broken,
        )

    # Steps

    def _take_random_steps(self) -> None:
        rng = self._rng
        for _ in range(rng.randint(1, 4)):
            self._take(self._draw("join"))
        self._first = len(self._taken)
        kinds: tuple[str, ...] = _COMMON_FAULTS
        if self._seed % _RARE_EVERY == _ALL_FAULTS_AT:
            kinds = (*_COMMON_FAULTS, *_RARE_FAULTS)
        elif self._seed % _RARE_EVERY == _SWITCH_AT and self.world.design.can_switch_rebalancing:
            kinds = (*_COMMON_FAULTS, _SWITCH)
        if self._has_patterns:
            kinds = (*kinds, _NEW_TOPIC)
        for _ in range(rng.randint(1, _STEPS_MAX)):
            self.world.run(rng.randrange(_GAP_MAX_MS))
            step = self._draw(rng.choice(kinds))
            if step is not None:
                self._take(step)

    def _take_given_steps(self, steps: Sequence[TrialStep]) -> None:
        for step in steps:
            self.world.run(self._begin_ms + step.at_ms - self.world.clock.now_ms)
            self._take(step)

    def _draw(self, kind: str) -> TrialStep | None:
        """Draw the details of a step; None if it is not possible now."""
        rng, at_ms = self._rng, self.world.clock.now_ms - self._begin_ms
        if kind == "join":
            name = f"m{sum(step.kind == 'join' for step in self._taken) + 1}"
            if self._has_patterns and (not self._has_mixed_subscriptions or rng.random() < 0.5):
                pattern = rng.choice(_PATTERNS) if self._has_mixed_subscriptions else _EVERY_TOPIC
                return TrialStep(at_ms=at_ms, kind=kind, member=name, pattern=pattern)
            choices = _SUBSCRIPTIONS if self._has_mixed_subscriptions else _SUBSCRIPTIONS[1:2]
            topics = tuple(sorted(rng.choice(choices)))
            return TrialStep(at_ms=at_ms, kind=kind, member=name, topics=topics)
        if kind.startswith("coordinator"):
            if self.world.coordinator is None:
                return None
            for_ms = 0 if kind == "coordinator crash" else rng.choice(_DURATIONS_MS)
            return TrialStep(at_ms=at_ms, kind=kind, for_ms=for_ms)
        if kind == _SWITCH:
            return TrialStep(at_ms=at_ms, kind=kind, for_ms=rng.choice(_DURATIONS_MS))
        if kind == _NEW_TOPIC:
            number = sum(step.kind == kind for step in self._taken) + 1
            if number > _NEW_TOPICS_MAX:
                return None
            return TrialStep(at_ms=at_ms, kind=kind, topics=(f"{rng.choice('tuv')}{number}",))
        if kind == "new partition":
            return TrialStep(at_ms=at_ms, kind=kind, topics=(rng.choice(list(_TOPICS)),))
        live = self.world.live_members
        if not live:
            return None
        name = rng.choice(live).name
        for_ms = rng.choice(_DURATIONS_MS) if kind in ("pause", "cut") else 0
        is_silent = kind == "crash" and rng.random() < 0.5
        return TrialStep(at_ms=at_ms, kind=kind, member=name, for_ms=for_ms, is_silent=is_silent)

    def _take(self, step: TrialStep | None) -> None:
        """Take a step. A step about a member that does not live has no effect."""
        assert step is not None, "a member can always join"
        self._taken.append(step)
        world = self.world
        found = [each for each in world.live_members if each.name == step.member]
        match step.kind:
            case "join":
                self._start(step.member, frozenset(step.topics), step.pattern)
            case "coordinator crash":
                world.crash_coordinator()
            case "coordinator expiry":
                world.crash_coordinator(close_after_ms=step.for_ms)
            case "coordinator pause":
                if world.coordinator is not None:
                    world.coordinator.pause(step.for_ms)
            case "rebalancing off":
                world.switch_rebalancing_off(step.for_ms)
            case "new partition" | "new topic":
                world.add_partitions(step.topics[0], 1)
            case _:
                for member in found:
                    self._disturb(member, step)

    def _disturb(self, member: DesignMemberProcess, step: TrialStep) -> None:
        match step.kind:
            case "leave":
                self.world.stop_member(member)
            case "crash":
                member.crash(silently=step.is_silent)
            case "pause":
                member.pause(step.for_ms)
            case "cut":
                self.world.network.cut(member.name, step.for_ms)
            case "lost connection":
                member.lose_connection()

    def _start(self, name: str, topics: frozenset[str], pattern: str = "") -> None:
        self.world.start_member(MemberTemplate(name=name, topics=topics, pattern=pattern))

    # The end

    def _end(self) -> tuple[str | None, str]:
        """End all faults, start a member that subscribes to every topic, and check the rules."""
        world = self.world
        world.network.heal()
        # Messages that were sent during a cut arrive at its end.
        ends_ms = [step.at_ms + step.for_ms for step in self._taken]
        world.run(max(0, self._begin_ms + max(ends_ms, default=0) - world.clock.now_ms))
        if self._has_patterns:
            self._start("last", frozenset(), _EVERY_TOPIC)
        else:
            self._start("last", _SUBSCRIPTIONS[1])
        is_settled = world.run_until_settled(_HEAL_MS)
        if is_settled and self._has_patterns:
            self._has_last_topic = True
            world.add_partitions(_LAST_TOPIC, 1)
            is_settled = world.run_until_settled(_HEAL_MS)
        if not is_settled:
            unread = ", ".join(map(str, world.readers.unread))
            return "convergence", f"the group is not stable; partitions without a reader: {unread}"
        for member in world.live_members:
            for partition in member.reading:
                if not member.template.is_subscribed(partition.topic):
                    return "convergence", f"{member.name} reads {partition}, but does not subscribe"
        kinds = {step.kind for step in self._taken}
        duplicates = world.readers.stats.duplicates
        if kinds <= _HARMLESS and duplicates:
            return "duplicates", f"{duplicates} records were read twice"
        for partition in world.readers.partitions:
            lag_ms = world.readers.commit_lag_ms(partition, world.clock.now_ms)
            if lag_ms > _COMMIT_LAG_MAX_MS and world.design.commits_at_intervals:
                return "convergence", f"{partition} was not committed for {lag_ms / 1000:.0f} s"
        for member in world.live_members:
            world.stop_member(member)
        world.run(_SHUTDOWN_MS)
        for member in world.live_members:
            if member.is_reading or not member.machine.is_stable:
                return "shutdown", f"{member.name} did not leave"
        for partition, history in world.readers.partitions.items():
            if history.committed != history.read_up_to:
                return "shutdown", (
                    f"{partition} was read up to {history.read_up_to}, "
                    f"and {history.committed} is committed"
                )
        if world.coordinator is not None:
            world.design.check_empty(world.coordinator.machine)
        return None, ""


class NoBrokenRuleError(ValueError):
    """Raised when a world breaks no rule."""


def shrink_trial(trial: Callable[[Sequence[TrialStep] | None], FaultTrial]) -> FaultVerdict:
    """Return the verdict of the world with the fewest steps that breaks the same rule.

    Args:
        trial: Creates the world, with given steps or those of its seed.

    Raises:
        NoBrokenRuleError: The world breaks no rule.
    """
    first = trial(None).run()
    if first.rule is None:
        raise NoBrokenRuleError(f"seed {first.seed} breaks no rule")
    return shrink_steps(first, trial, lambda verdict: verdict.rule == first.rule)


def shrink_steps(
    first: FaultVerdict,
    trial: Callable[[Sequence[TrialStep]], FaultTrial],
    is_same: Callable[[FaultVerdict], bool],
) -> FaultVerdict:
    """Drop single steps of a world until no step can be dropped.

    Dropping many steps at once would often find a smaller world that shows another fault.

    Args:
        first: The verdict of the world with all steps.
        trial: Creates the world with given steps.
        is_same: Returns True if a verdict shows what the smallest world must show.
    """
    smallest = first

    def still_shows(steps: Sequence[TrialStep]) -> bool:
        nonlocal smallest
        verdict = trial(steps).run()
        if not is_same(verdict):
            return False
        smallest = verdict
        return True

    reduce_steps(first.steps, still_shows, dropped_max=1)
    return smallest

"""The runner of the scenarios in ``scenarios/two_phase``: variants of the accepted design.

It has the commands of `member_scenario_runner`, except those about assignors and patterns.
``coordinator DESIGN [delay=MS]`` names the design, ``start NAME t,u`` has no options.
"""

from __future__ import annotations

from partage.proposals import machine
from partage.proposals.designs.catalog import find_design
from partage.proposals.designs.checked import CheckedCoordinator, CheckedMember
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.simulation.design import MemberTemplate
from partage.proposals.two_phase.resync import RESYNC_NEEDED
from partage.wire.apis.heartbeat import HeartbeatResponse
from partage.wire.apis.sync_group import SyncGroupRequest

from .member_scenario_runner import SESSION_MS, MemberScenarioRunner, ScenarioMember


class TwoPhaseScenarioRunner(MemberScenarioRunner):
    """A coordinator of the accepted design or a variant, and its members."""

    def do_coordinator(self, words: list[str]) -> None:
        delay_ms = int(dict(word.split("=") for word in words[1:]).get("delay", 0))
        self.design = find_design(words[0])(
            CoordinatorSettings(initial_rebalance_delay_ms=delay_ms),
            DesignMemberSettings(group_id="g", session_timeout_ms=SESSION_MS),
        )
        self._start_coordinator()

    def _start_coordinator(self) -> None:
        self.checked = CheckedCoordinator(self.design.coordinator())
        for record in self.records:
            self.checked.apply(record)
        self.is_reachable = True

    def do_start(self, words: list[str]) -> None:
        name, topics = words
        template = MemberTemplate(name=name, topics=frozenset(topics.split(",")))
        checked = CheckedMember(self.design.member(template))
        member = self.members[name] = ScenarioMember(name, checked)
        self._events.append((member, machine.Started(at_ms=0)))

    def _generation(self, member: ScenarioMember) -> int:
        generation: int = member.checked._core.membership.generation
        return generation

    def _handle_at_member(self, member: ScenarioMember, event: machine.Event) -> None:
        message = getattr(event, "message", None)
        if isinstance(message, HeartbeatResponse) and message.error_code == RESYNC_NEEDED:
            self.lines.append(f"{self.now_ms} ms {member.name}: hears of a resync")
        super()._handle_at_member(member, event)

    def _perform(self, member: ScenarioMember, action: machine.Action) -> str:
        text = super()._perform(member, action)
        match action:
            case machine.Send(message=SyncGroupRequest(assignments=[_, *_])):
                return f"{text} with all shares"
            case machine.StopReading(partitions=partitions) if partitions is not None:
                return f"{text} {' '.join(map(str, sorted(partitions)))}"
        return text

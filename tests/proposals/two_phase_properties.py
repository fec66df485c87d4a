"""State machines for Hypothesis: any order of changes, losses and stops in a group of a variant of
the accepted design.

The machines of the coordinator and of each member are checked after each event. In the end all
faults are healed, and the members read each partition once.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from partage.proposals import machine
from partage.proposals.two_phase.reported_counts import reported_counts
from partage.proposals.two_phase.resync import RESYNC_NEEDED
from partage.wire.apis.heartbeat import HeartbeatResponse
from partage.wire.apis.join_group import JoinGroupRequest
from partage.wire.apis.sync_group import SyncGroupRequest

from .member_scenario_runner import ScenarioMember
from .two_phase_scenario_runner import TwoPhaseScenarioRunner

MEMBERS = ("a", "b", "c")
#: Longer than a session and than the longest wait of a member for a coordinator.
HEAL_MS = 60_000

names = st.sampled_from(MEMBERS)
counts = st.integers(1, 5)


class ObservedRunner(TwoPhaseScenarioRunner):
    """A group whose requests are counted, and whose joins are checked."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: Counter[type] = Counter()
        self.resyncs: Counter[str] = Counter()
        self.views: dict[str, dict[str, int]] = {}  # by member, as of its last fetch or refresh

    def _handle_at_member(self, member: ScenarioMember, event: machine.Event) -> None:
        match event:
            case machine.MetadataFetched(topics=topics) | machine.MetadataChanged(topics=topics):
                self.views[member.name] = topics
            case machine.ResponseReceived(message=HeartbeatResponse(error_code=error)):
                self.resyncs[member.name] += error == RESYNC_NEEDED
        super()._handle_at_member(member, event)

    def _perform(self, member: ScenarioMember, action: machine.Action) -> str:
        if isinstance(action, machine.Send):
            self.requests[type(action.message)] += 1
        return super()._perform(member, action)


class TwoPhaseMachine(RuleBasedStateMachine):
    """A group of up to three members of a variant."""

    design: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.runner = ObservedRunner()
        self.live: set[str] = set()
        self.left: set[str] = set()
        self.run(f"coordinator {self.design}")
        self.run("topics all t=2 u=1")
        self.run("start a t,u")
        self.run("start b t,u")
        self.live |= {"a", "b"}
        self.run("tick 8000")

    def run(self, line: str) -> None:
        self.runner.run(line)

    @rule(name=names)
    def start(self, name: str) -> None:
        if name not in self.live | self.left:
            self.live.add(name)
            self.run(f"start {name} t,u")

    @rule(name=names)
    def leave(self, name: str) -> None:
        if name in self.live and len(self.live) > 1:
            self.live.discard(name)
            self.left.add(name)
            self.run(f"continue {name}")
            self.run(f"leave {name}")

    @rule(name=names, t=counts, u=counts, is_noticed=st.booleans())
    def view(self, name: str, t: int, u: int, is_noticed: bool) -> None:
        """The brokers of a member know other partitions."""
        self.run(f"topics {name} t={t} u={u}")
        if is_noticed:
            self.refresh(name)

    @rule(name=names)
    def refresh(self, name: str) -> None:
        if name in self.live:
            self.run(f"refresh {name}")

    @rule(name=names, verb=st.sampled_from(("lose", "stop", "continue")))
    def disturb(self, name: str, verb: str) -> None:
        if name in self.live:
            self.run(f"{verb} {name}")

    @rule(verb=st.sampled_from(("vanish", "restart")))
    def disturb_coordinator(self, verb: str) -> None:
        self.run(verb)

    @rule(ms=st.sampled_from((100, 1_000, 3_000, 3_000, 12_000)))
    def tick(self, ms: int) -> None:
        self.run(f"tick {ms}")

    def teardown(self) -> None:
        """Heal everything, and check that the members read each partition once."""
        self.run("restart")
        for name in sorted(self.live):
            self.run(f"continue {name}")
        for name in MEMBERS:
            self.run(f"topics {name} t=4 u=2")
        for _ in range(2):
            for name in sorted(self.live):
                self.refresh(name)
            self.run(f"tick {HEAL_MS}")
        owned = [each for name in self.live for each in self.member(name).owned]
        expected = [
            (topic, number) for topic, count in (("t", 4), ("u", 2)) for number in range(count)
        ]
        assert sorted(owned) == expected, f"the members own {sorted(owned)}"
        for name in self.live:
            assert self.member(name).is_stable, f"{name} is not stable"
        self.check_quiet()
        self.check_change()

    def member(self, name: str) -> Any:
        return self.runner.members[name].checked

    def check_quiet(self) -> None:
        """Check that a stable group sends heartbeats and commits only."""
        before = self.requests
        for name in sorted(self.live):
            self.refresh(name)
        self.run("tick 10000")
        assert self.requests == before, "a stable group rebalances"

    @property
    def requests(self) -> tuple[int, int]:
        """The JoinGroup and SyncGroup requests of all members so far."""
        return self.runner.requests[JoinGroupRequest], self.runner.requests[SyncGroupRequest]

    def check_change(self) -> None:
        """Check how the stable group takes a new partition."""


class ResyncMachine(TwoPhaseMachine):
    """New metadata changes the assignment, not the generation."""

    design = "two-phase-resync"

    def check_change(self) -> None:
        joins, syncs = self.requests
        resyncs = self.runner.resyncs.total()
        for name in MEMBERS:
            self.run(f"topics {name} t=5 u=2")
        for name in sorted(self.live):
            self.refresh(name)
        self.run("tick 8000")
        assert self.requests == (joins, syncs + len(self.live)), (
            "not each member sent SyncGroup once"
        )
        assert self.runner.resyncs.total() == resyncs + len(self.live) - 1, "the leader was told"
        assert sum(len(self.member(name).owned) for name in self.live) == 7


class LargestCountMachine(TwoPhaseMachine):
    """Members report their partition counts, and the leader uses the largest."""

    design = "two-phase-largest-count"

    def check_change(self) -> None:
        """The last member is the only one that notices two new partitions."""
        name = max(self.live)
        self.run(f"topics {name} t=6 u=2")
        self.refresh(name)
        self.run("tick 8000")
        assert sum(len(self.member(each).owned) for each in self.live) == 8
        reports = {
            each: reported_counts(self.member(each)._reporting.user_data((), {}, 0))
            for each in self.live
        }
        assert reports == {each: self.runner.views[each] for each in self.live}, "other counts"

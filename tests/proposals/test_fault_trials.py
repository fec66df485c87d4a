"""Worlds of all designs under random faults, and the guarantees that some designs cannot give."""

from __future__ import annotations

import pytest

from partage.model.topic_partition import TopicPartition
from partage.proposals.designs.catalog import DESIGNS, VARIANTS, find_design
from partage.proposals.designs.worlds import new_trial, run_world
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.simulation.design import Design, MemberTemplate
from partage.proposals.simulation.trial import FAULTS, RULES, TrialStep
from partage.proposals.simulation.world import DesignWorld, WorldOptions

SETTINGS = (CoordinatorSettings(), DesignMemberSettings(group_id="g"))
ALL = [*DESIGNS, *VARIANTS]


@pytest.mark.parametrize("name", ALL)
def test_group_converges_and_keeps_its_promises_under_faults(name: str) -> None:
    for seed in range(8):
        verdict = new_trial(name, seed).run()
        assert verdict.rule is None, verdict


@pytest.mark.parametrize("name", list(DESIGNS))
def test_same_seed_gives_the_same_history(name: str) -> None:
    counts = []
    for _ in range(2):
        trial = new_trial(name, 3)
        trial.run()
        counts.append((trial.world.clock.events, trial.world.traffic.bytes))
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    ("name", "seed", "rule", "fault"),
    [
        ("broker-side", 195, "one reader", "coordinator crash"),
        ("multi-assignor", 10, "one reader", "coordinator crash"),
        ("multi-assignor", 1611, "one reader", "cut"),
        ("multi-assignor", 113, "one reader", "coordinator expiry"),
        ("single-assignor", 28, "commits", "coordinator crash"),
        ("two-phase-cooperative", 10, "one reader", "cut"),
        ("two-phase-cooperative", 1279, "commits", "pause"),
        ("two-phase-resync", 28, "one reader", "new partition"),
        ("two-phase-resync", 28, "commits", "new partition"),
        ("two-phase-resync", 1220, "one reader", "new partition"),  # without another fault
        ("two-phase-largest-count", 43, "one reader", "pause"),
        ("two-phase-cooperative", 2362, "lost commits", "cut"),
        ("consumer-protocol", 206, "lost commits", "cut"),
    ],
)
def test_listed_finding_occurs(name: str, seed: int, rule: str, fault: str) -> None:
    trial = new_trial(name, seed)
    verdict = trial.run()
    assert fault in verdict.faults
    assert rule in {each.rule for each in trial.world.broken_rules}


@pytest.mark.parametrize(
    ("name", "seed", "kept"),
    [("broker-side-closing", 6714, (0, 1, 2, 3, 5)), ("two-phase-resync", 5698, (2, 3, 4, 5, 6))],
)
def test_smallest_world_of_a_variant_has_two_readers(
    name: str, seed: int, kept: tuple[int, ...]
) -> None:
    verdict = run_world(name, seed, kept, reports_findings=True)
    assert verdict.rule == "one reader", verdict
    assert "new partition" not in {step.kind for step in verdict.steps}


@pytest.mark.parametrize(
    ("name", "is_lost"),
    [
        ("broker-side", False),
        ("multi-assignor", False),
        ("single-assignor", False),
        ("two-phase-eager", True),
        ("two-phase-cooperative", True),
        ("consumer-protocol", True),
    ],
)
def test_commit_on_an_abandoned_connection_arrives_late(name: str, is_lost: bool) -> None:
    """The cut ends at the pause for new messages only, so the member commits meanwhile."""
    steps = [
        TrialStep(at_ms=0, kind="join", member="m1", topics=("t",)),
        TrialStep(at_ms=9_500, kind="cut", member="m1", for_ms=100_000),
        TrialStep(at_ms=35_000, kind="pause", member="m1", for_ms=1_000),
    ]
    trial = new_trial(name, 1, steps)
    assert trial.run().rule is None  # the design lists the finding
    broken = {each.rule for each in trial.world.broken_rules}
    assert broken == ({"lost commits"} if is_lost else set())


def test_commit_with_an_older_epoch_is_accepted_by_the_consumer_protocol_only() -> None:
    """The epoch or generation changes between the late commit and the one that it follows."""
    verdicts = {
        name: run_world(name, 206, (2, 7, 9), reports_findings=True)
        for name in ("consumer-protocol", "two-phase-eager")
    }
    assert verdicts["consumer-protocol"].rule == "lost commits"
    assert verdicts["two-phase-eager"].rule is None


def test_resync_reads_records_twice_without_another_fault() -> None:
    steps = [
        TrialStep(at_ms=at_ms, kind="join", member=member, topics=("t", "u"))
        for member, at_ms in (("m3", 100), ("m1", 1_700), ("m4", 1_800), ("m2", 3_400))
    ]
    steps.append(TrialStep(at_ms=43_400, kind="new partition", topics=("t",)))
    assert new_trial("two-phase-resync", 585, steps, reports_findings=True).run().rule is not None
    assert new_trial("two-phase-resync", 585, steps).run().rule is None


@pytest.mark.parametrize("name", ["multi-assignor", "single-assignor"])
@pytest.mark.parametrize("pause_ms", range(2_900, 3_700, 100))
def test_member_paused_while_it_joins_reads_no_partition_of_another(
    name: str, pause_ms: int
) -> None:
    """It continues after its session, with a response that arrived meanwhile."""
    steps = [
        TrialStep(at_ms=0, kind="join", member="m1", topics=("t",)),
        TrialStep(at_ms=0, kind="join", member="m2", topics=("t",)),
        TrialStep(at_ms=pause_ms, kind="pause", member="m1", for_ms=100_000),
        TrialStep(at_ms=110_000, kind="join", member="m3", topics=("u",)),
    ]
    trial = new_trial(name, 1, steps)
    assert trial.run().rule is None
    assert trial.world.broken_rules == []


@pytest.mark.parametrize("name", ALL)
def test_findings_name_existing_rules_and_faults(name: str) -> None:
    design: Design = find_design(name)(*SETTINGS)
    for finding in design.findings:
        assert set(finding.rules) <= set(RULES)
        assert set(finding.faults) <= set(FAULTS)


def test_every_fourth_world_has_all_faults() -> None:
    taken = {seed: set(new_trial("multi-assignor-hashes", seed).run().faults) for seed in range(10)}
    rare = {"coordinator pause", "coordinator expiry", "lost connection"}
    with_rare = {seed for seed, kinds in taken.items() if kinds & rare}
    assert with_rare == {1, 5, 9}
    assert set().union(*taken.values()) == set(FAULTS) - {"rebalancing off"}


def test_every_seventh_world_has_patterns() -> None:
    steps = {seed: new_trial("broker-side", seed).run().steps for seed in range(26)}
    with_patterns = {seed for seed in steps if any(step.pattern for step in steps[seed])}
    assert with_patterns == {4, 11, 18, 25}
    with_topics = {seed for seed in steps if any(step.kind == "new topic" for step in steps[seed])}
    assert with_topics
    assert with_topics <= with_patterns


@pytest.mark.parametrize("name", ALL)
def test_new_topic_is_read_by_the_members_whose_pattern_matches(name: str) -> None:
    world = DesignWorld(find_design(name)(*SETTINGS), WorldOptions(topics={"t": 4, "u": 2}), 1)
    pattern = "[tu].*" if "hashes" in name else "t.*"  # with hashes, only one sub-group is active
    world.start_member(MemberTemplate(name="a", topics=frozenset(), pattern=pattern))
    world.start_member(MemberTemplate(name="b", topics=frozenset(), pattern="[tu].*"))
    assert world.run_until_settled(60_000)
    world.add_partitions("t2", 6)
    world.add_partitions("u2", 1)
    world.run(60_000)  # each member refreshes its metadata
    assert world.run_until_settled(120_000)
    histories = world.readers.partitions.items()
    readers = {partition: set(history.readers) for partition, history in histories}
    assert set().union(*(readers[TopicPartition("t2", n)] for n in range(6))) == {"a", "b"}
    if pattern == "t.*":
        assert all(readers[each] == {"b"} for each in readers if each.topic.startswith("u"))
    assert world.broken_rules == []


@pytest.mark.parametrize("name", ["two-phase-eager", "two-phase-largest-count"])
def test_member_that_leaves_before_it_knows_the_topics_never_joins(name: str) -> None:
    world = DesignWorld(find_design(name)(*SETTINGS), WorldOptions(topics={"t": 4}), 1)
    member = world.start_member(MemberTemplate(name="m", topics=frozenset(), pattern="t.*"))
    world.stop_member(member)
    world.run(60_000)
    assert member.machine.is_stable
    assert not world.traffic.messages


@pytest.mark.parametrize("leave_ms", range(66_500, 70_000, 500))
def test_cooperative_member_that_leaves_while_it_joins_commits_first(leave_ms: int) -> None:
    """It reads until the other member has joined, too, which its next heartbeat tells it."""
    steps = [
        TrialStep(at_ms=0, kind="join", member="m1", topics=("t", "u")),
        TrialStep(at_ms=1_000, kind="join", member="m2", topics=("t", "u")),
        TrialStep(at_ms=40_000, kind="new partition", topics=("t",)),
        TrialStep(at_ms=leave_ms, kind="leave", member="m1"),
    ]
    verdict = new_trial("two-phase-cooperative", 3, steps).run()
    assert verdict.rule is None, verdict


@pytest.mark.parametrize("name", ["broker-side", "broker-side-closing"])
def test_group_is_frozen_in_worlds_of_the_first_design(name: str) -> None:
    """A coordinator that takes over meanwhile does not rebalance, either: the checkers see it."""
    taken = {seed: set(new_trial(name, seed).run().faults) for seed in range(0, 40, 4)}
    assert sum("rebalancing off" in faults for faults in taken.values()) >= 5
    steps = [
        TrialStep(at_ms=0, kind="join", member="m1", topics=("t",)),
        TrialStep(at_ms=10_000, kind="rebalancing off", for_ms=100_000),
        TrialStep(at_ms=11_000, kind="rebalancing off", for_ms=20_000),
        TrialStep(at_ms=12_000, kind="coordinator crash"),
        TrialStep(at_ms=90_000, kind="join", member="m2", topics=("t",)),
    ]
    trial = new_trial(name, 4, steps)
    verdict = trial.run()
    assert verdict.rule is None, verdict
    assert trial.world.is_rebalancing_on


def test_unknown_design_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'two-phase-eager'"):
        find_design("two-phase-eagre")

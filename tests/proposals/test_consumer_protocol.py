"""The consumer group protocol (KIP-848) as a design of the comparison."""

from __future__ import annotations

import pytest

from partage.proposals.comparison.cell import CellResult, Workload, run_cell
from partage.proposals.designs.worlds import new_trial
from partage.proposals.product.topic_ids import topic_id, topic_name
from partage.proposals.simulation.trial import TrialStep

NAME = "consumer-protocol"


def run(design: str = NAME, members: int = 20, **changes: object) -> CellResult:
    return run_cell(Workload(design=design, members=members, **changes))  # type: ignore[arg-type]


def test_topic_id_contains_the_name() -> None:
    assert topic_name(topic_id("events-0001")) == "events-0001"
    assert len(topic_id("t")) == 16
    with pytest.raises(AssertionError, match="does not fit"):
        topic_id("a name of 17 char")


def test_join_sends_fewer_messages_than_a_rebalance_of_all_members() -> None:
    """Only the new member and the members that lose a partition send more than heartbeats."""
    own, cooperative, eager = (
        run(design, phases=("join",)).phase("join").messages
        for design in (NAME, "two-phase-cooperative", "two-phase-eager")
    )
    assert own < cooperative / 1.5
    assert own < eager / 1.5


def test_slow_member_does_not_delay_the_partitions_of_others() -> None:
    """The classic protocol waits for the slow member before any partition moves."""
    own, eager = (
        run(design, slow_ms=5_000, phases=("slow",)).phase("slow").unread_partition_s
        for design in (NAME, "two-phase-eager")
    )
    assert own < eager / 5


def test_new_partitions_are_read_before_members_refresh_their_metadata() -> None:
    result = run(metadata_refresh_ms=300_000, phases=("new partitions",)).phase("new partitions")
    assert result.stable_after_s is not None
    assert result.stable_after_s < 10


def test_metadata_size_has_no_effect() -> None:
    small, large = (run(phases=("join",), metadata_kb=size) for size in (0, 100))
    assert small.phases == large.phases


def test_loss_of_the_coordinator_moves_no_partition() -> None:
    """Epochs and targets are stored, so the next coordinator continues."""
    loss = run(phases=("coordinator loss",)).phase("coordinator loss")
    assert (loss.moved_partitions, loss.unread_partition_s, loss.duplicate_records) == (0, 0, 0)


def test_partition_moves_when_its_owner_confirms_the_revocation() -> None:
    """The owner is cut off while it should give up partitions: the new member waits for it."""
    steps = [
        TrialStep(at_ms=0, kind="join", member="m1", topics=("t",)),
        TrialStep(at_ms=10_000, kind="join", member="m2", topics=("t",)),
        TrialStep(at_ms=10_500, kind="cut", member="m1", for_ms=20_000),
    ]
    trial = new_trial(NAME, 1, steps)
    assert trial.run().rule is None
    assert trial.world.broken_rules == []

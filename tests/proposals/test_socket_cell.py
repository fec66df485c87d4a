"""Cells of a comparison over sockets."""

from __future__ import annotations

from typing import Any

import pytest

from partage.model.topic_partition import TopicPartition
from partage.proposals.comparison.cell import Workload, run_cell
from partage.proposals.comparison.socket_cell import (
    SOCKET_PHASES,
    CellReader,
    now_ms,
    run_socket_cell,
    validate_socket_cell,
)
from partage.proposals.simulation.readers import Readers

#: The messages of a join, without heartbeats and commits, whose number depends on the time.
JOINING = ("JoinGroupRequest", "JoinGroupResponse", "OffsetFetchRequest", "OffsetFetchResponse")
#: The messages of a rebalance in the accepted design.
TWO_PHASES = ("JoinGroupRequest", "JoinGroupResponse", "SyncGroupRequest", "SyncGroupResponse")
REGISTRATION = ("RegisterConsumerRequest", "RegisterConsumerResponse")
#: The messages of a rebalance in the first design. A cell need not wait for the last response.
FETCHERS = ("StopFetcherRequest", "StopFetcherResponse", "StartFetcherRequest")


def workload(design: str, **changes: Any) -> Workload:
    values: dict[str, Any] = {
        "members": 4,
        "metadata_kb": 0.5,
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 200,
        "metadata_refresh_ms": 1_000,
        "phases": ("join", "leave", "new partitions"),
    }
    return Workload(design=design, **{**values, **changes})


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("design", "names_by_phase"),
    [
        ("multi-assignor", dict.fromkeys(("form", "join", "leave"), JOINING)),
        ("single-assignor", dict.fromkeys(("form", "join", "leave"), JOINING)),
        ("consumer-protocol", {}),  # the first member may get all partitions for a while
        # The member that leaves may own another number of partitions.
        ("two-phase-cooperative", dict.fromkeys(("form", "join"), TWO_PHASES)),
        # The first rebalance may begin before all members have registered.
        (
            "broker-side",
            {"form": REGISTRATION, "join": (*REGISTRATION, *FETCHERS), "leave": FETCHERS},
        ),
    ],
)
def test_socket_cell_has_the_figures_of_a_simulated_cell(
    design: str, names_by_phase: dict[str, tuple[str, ...]]
) -> None:
    cell = workload(design)
    real, simulated = run_socket_cell(cell), run_cell(cell)
    assert real.workload == cell
    assert real.broken_rules == []
    assert [each.phase for each in real.phases] == ["form", *cell.phases]
    for phase in real.phases:
        assert phase.is_stable
        expected = simulated.phase(phase.phase).bytes_by_message
        # Members notice new partitions at random times.
        for name in names_by_phase.get(phase.phase, ()):
            assert phase.bytes_by_message[name] == expected[name], (phase.phase, name)
    joined = real.phase("join")
    assert joined.moved_partitions > 0
    if design != "broker-side":  # it may move a partition within a millisecond
        assert joined.unread_partition_s > 0
    assert joined.coordinator_cpu_ms > 0
    assert joined.round_trips > 1


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"members": 201}, "a cell over sockets has 201 members; the limit is 200"),
        (
            {"members": 200, "metadata_kb": 100},
            "a cell over sockets has 20,000,000 bytes of metadata; the limit is 10,000,000",
        ),
        ({"phases": ("slow",)}, "the phase 'slow' does not run over sockets"),
    ],
)
def test_impossible_socket_cell_is_refused(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        run_socket_cell(workload("single-assignor", **changes))


def test_all_phases_but_slow_run_over_sockets() -> None:
    phases = Workload(design="single-assignor").phases
    assert set(SOCKET_PHASES) == set(phases) - {"slow"}
    validate_socket_cell(workload("single-assignor", phases=SOCKET_PHASES))


def test_suspended_reader_continues_with_what_was_not_stopped_meanwhile() -> None:
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    readers = Readers(records_per_s=1_000)
    readers.create([first, second], now_ms() - 5_000)
    reader = CellReader("m", readers)
    reader.start({first: 0, second: 0})
    reader.suspend()
    before = reader.positions(frozenset({first, second}))
    assert readers.partitions[first].readers == {}
    reader.stop(frozenset({first}))
    reader.wake()
    assert readers.partitions[first].readers == {}
    assert set(readers.partitions[second].readers) == {"m"}
    assert reader.positions(frozenset({first})) == {first: before[first]}
    assert reader.active == {second}


def test_unknown_design_is_refused() -> None:
    with pytest.raises(ValueError, match="no design 'single'"):
        run_socket_cell(workload("single"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_loss_of_the_coordinator_counts_the_requests_to_the_next_one() -> None:
    """Members of the accepted design keep their partitions, so the group is stable all the time."""
    result = run_socket_cell(workload("two-phase-eager", phases=("coordinator loss",)))
    loss = result.phase("coordinator loss")
    assert loss.is_stable
    assert loss.stable_after_s == 0
    assert loss.bytes_by_message["HeartbeatResponse"] > 0

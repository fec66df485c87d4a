"""The coordinator of the first design, event by event."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from partage.proposals import machine
from partage.proposals.broker_side.coordinator import PushCoordinator
from partage.proposals.broker_side.events import (
    CommitTimer,
    Outcome,
    PingTimer,
    Resigned,
)
from partage.proposals.broker_side.invariants import check
from partage.proposals.broker_side.messages import (
    ClusterMetadataRequest,
    ClusterMetadataResponse,
    PartitionOffset,
    PingRequest,
    PingResponse,
    PushError,
    RegisterConsumerResponse,
    StartFetcherResponse,
    StopFetcherResponse,
)
from partage.proposals.broker_side.purgatory import RequestKind, WatcherTimer
from partage.proposals.broker_side.records import ConsumedOffsetRecord
from partage.proposals.broker_side.registry import RebalancePhase
from partage.proposals.broker_side.settings import PushCoordinatorSettings
from partage.proposals.comparison.cell import Workload, run_cell
from partage.proposals.designs.broker_side import BrokerSide, BrokerSideClosing
from partage.proposals.designs.worlds import run_world
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.machine import ConnectionId
from partage.proposals.simulation.trial import FaultTrial
from partage.wire.types import Message
from proposals.push_harness import (
    BROKER,
    Harness,
    names,
    offset,
    parts,
    registration,
    settled,
)


class TestRegistration:
    def test_first_consumer_is_stopped_started_and_owns_all_partitions(self) -> None:
        harness = Harness()
        sends = harness.register(1)
        assert names(sends) == [(1, "RegisterConsumerResponse"), (1, "StopFetcherRequest")]
        assert sends[0][1].error_code == PushError.NONE
        sends = harness.send(1, StopFetcherResponse(consumer_id="c1"))
        assert parts(sends[0][1]) == {"c1-0": [("t", "0-0", -1), ("t", "0-1", -1)]}
        assert sends[0][1].brokers_info == [BROKER]
        assert harness.owners == {}  # recorded after the response (step 4.6)
        assert harness.send(1, StartFetcherResponse(consumer_id="c1")) == []
        assert harness.owners == {("t", 0): "c1-0", ("t", 1): "c1-0"}
        assert harness.records[0].path == "/consumers/g/owners/t/0"

    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ({"consumer_id": "c1"}, PushError.DUPLICATE_CONSUMER_ID),
            ({"session_timeout_ms": 5_999}, PushError.INVALID_SESSION_TIMEOUT),
            ({"topic_count": "{"}, PushError.INVALID_REGISTRATION),
            ({"topic_count": '{"t":0}'}, PushError.INVALID_REGISTRATION),
            ({"topic_count": "*1*("}, PushError.INVALID_REGISTRATION),
            ({"auto_offset_rest": "middle"}, PushError.INVALID_REGISTRATION),
            ({"group_id": ""}, PushError.INVALID_REGISTRATION),
            ({"consumer_id": ""}, PushError.INVALID_REGISTRATION),
            ({"consumer_id": "c" * 1_025}, PushError.INVALID_REGISTRATION),
            ({"consumer_id": "ü" * 513}, PushError.INVALID_REGISTRATION),
        ],
    )
    def test_refused_registration_disturbs_no_other_consumer(
        self, changes: dict[str, Any], error: PushError
    ) -> None:
        harness = settled(1)
        sends = harness.register(2, **changes)
        assert sends == [(2, RegisterConsumerResponse(error_code=error))]
        assert harness.closed == []  # the consumer closes the connection
        assert harness.phase is RebalancePhase.IDLE

    @pytest.mark.parametrize(
        "name", ["rebalance_threadpool_size", "ping_retries_max", "offset_commit_interval_ms"]
    )
    def test_invalid_settings_are_refused(self, name: str) -> None:
        with pytest.raises(ValueError, match=f"{name}=-1 is below"):
            PushCoordinatorSettings(**{name: -1})

    def test_second_registration_on_a_connection_is_refused(self) -> None:
        harness = settled(1)
        ((_, response),) = harness.send(1, registration(2))
        assert response.error_code == PushError.INVALID_REGISTRATION

    def test_broker_that_is_not_coordinator_refuses(self) -> None:
        harness = settled(1)
        harness.handle(Resigned(at_ms=5))
        assert harness.closed == [1]
        assert harness.timers == {}
        ((_, response),) = harness.register(1)
        assert response.error_code == PushError.COORDINATOR_NOT_AVAILABLE
        ((_, metadata),) = harness.send(2, ClusterMetadataRequest())
        assert metadata.error_code == PushError.COORDINATOR_NOT_AVAILABLE

    def test_cluster_metadata_names_the_coordinator(self) -> None:
        assert Harness().send(9, ClusterMetadataRequest()) == [
            (9, ClusterMetadataResponse(coordinator_id=0, brokers_info=[BROKER]))
        ]

    @pytest.mark.parametrize(
        "message", [PingResponse(consumer_id="c9"), RegisterConsumerResponse()]
    )
    def test_unexpected_message_of_a_stranger_closes_its_connection(self, message: Message) -> None:
        harness = settled(1)
        harness.send(9, message)
        assert harness.closed == [9]

    def test_response_without_a_request_removes_the_consumer(self) -> None:
        harness = settled(2)
        sends = harness.send(2, StopFetcherResponse(consumer_id="c2"))
        assert harness.closed == [2]
        assert parts(harness.settle(sends)[1])["c1-0"] == [("t", "0-0", -1), ("t", "0-1", -1)]

    def test_threads_and_consumers_share_consecutive_partitions(self) -> None:
        harness = Harness(topics={"t": 5})
        harness.settle(harness.register(1, topic_count='{"t":2}'))
        started = harness.settle(harness.register(2))
        assert parts(started[1]) == {
            "c1-0": [("t", "0-0", -1), ("t", "0-1", -1)],
            "c1-1": [("t", "0-2", -1), ("t", "0-3", -1)],
        }
        assert parts(started[2]) == {"c2-0": [("t", "0-4", -1)]}

    def test_consumer_without_partitions_gets_an_empty_start(self) -> None:
        harness = Harness(topics={"t": 1})
        harness.settle(harness.register(1))
        assert names(harness.register(2)) == [(2, "RegisterConsumerResponse")]  # no new assignment


class TestPings:
    def test_pings_come_every_third_of_the_session(self) -> None:
        harness = settled(1)
        for at_ms in (3_000, 6_000, 9_000):
            sends = harness.fire(PingTimer())
            assert harness.now_ms == at_ms
            assert sends == [(1, PingRequest(consumer_id="c1", num_retries=0))]
            (watcher,) = harness.watchers(RequestKind.PING)
            assert harness.timers[watcher] == at_ms + 6_000
            harness.settle(sends)
            assert harness.watchers(RequestKind.PING) == []

    def test_pings_follow_the_shortest_wait(self) -> None:
        harness = Harness()
        harness.settle(harness.register(1, session_timeout_ms=30_000))
        harness.settle(harness.register(2, session_timeout_ms=12_000))
        order = []
        for _ in range(5):
            ((connection, ping),) = harness.fire(PingTimer())
            order.append((harness.now_ms, connection))
            harness.send(connection, PingResponse(consumer_id=ping.consumer_id))
        assert order == [(4_000, 2), (8_000, 2), (10_000, 1), (12_000, 2), (16_000, 2)]

    def test_silent_consumer_fails_after_the_maximum_of_retries(self) -> None:
        harness = settled(2, ping_retries_max=1)
        retries, sends = [], []
        while not harness.closed:
            key = min(
                (each for each in harness.timers if isinstance(each, PingTimer | WatcherTimer)),
                key=lambda each: harness.timers[each],
            )
            sends = harness.fire(key)
            for connection, message in sends:
                if isinstance(message, PingRequest) and connection == 1:
                    harness.send(1, PingResponse(consumer_id="c1"))
                elif isinstance(message, PingRequest):
                    retries.append(message.num_retries)
        assert harness.closed == [2]
        assert harness.now_ms == 3_000 + 6_000 + 3_000  # the second ping expires
        assert retries[0] == 0
        assert retries[-1] == 1
        assert parts(harness.settle(sends)[1])["c1-0"] == [("t", "0-0", -1), ("t", "0-1", -1)]

    def test_response_resets_the_count_of_failed_pings(self) -> None:
        harness = settled(1, ping_retries_max=1)
        harness.fire(PingTimer())
        harness.fire(PingTimer())
        (first, _) = harness.watchers(RequestKind.PING)
        harness.fire(first)
        harness.send(1, PingResponse(consumer_id="c1"))  # the answer to the expired ping
        assert harness.coordinator.consumers[ConnectionId(1)].failed_pings == 0

    def test_next_ping_does_not_wait_for_the_response(self) -> None:
        """A consumer that shuts down cannot tell from the next ping that its offsets arrived."""
        harness = settled(1)
        harness.fire(PingTimer())
        assert harness.fire(PingTimer()) == [(1, PingRequest(consumer_id="c1", num_retries=0))]

    def test_stopped_coordinator_does_not_repeat_missed_pings(self) -> None:
        harness = settled(1)
        harness.timers[PingTimer()] = 100_000
        assert len(harness.fire(PingTimer())) == 1
        assert harness.timers[PingTimer()] > 100_000


class TestOffsets:
    def test_committer_writes_offsets_of_owned_partitions_only(self) -> None:
        harness = settled(2)
        harness.fire(PingTimer())
        harness.send(
            1,
            PingResponse(
                consumer_id="c1",
                offset_info=[
                    offset(0, 7),
                    offset(1, 8),
                    offset(0, -2),
                    PartitionOffset(topic="t", partition="x", offset=1),
                ],
            ),
        )
        assert harness.refused == [("c1", "t", "0-1"), ("c1", "t", "0-0"), ("c1", "t", "x")]
        del harness.records[:]
        harness.fire(CommitTimer())
        assert harness.records == [
            ConsumedOffsetRecord(group_id="g", topic="t", partition=0, offset=7)
        ]
        assert harness.records[0].path == "/consumers/g/offsets/t/0"
        harness.fire(CommitTimer())
        assert len(harness.records) == 1

    def test_rebalance_commits_before_it_starts_fetchers_from_the_offsets(self) -> None:
        harness = settled(1)
        harness.register(2)
        sends = harness.send(
            1, StopFetcherResponse(consumer_id="c1", offset_info=[offset(0, 5), offset(1, 6)])
        )
        assert sends == []
        del harness.records[:]
        sends = harness.send(2, StopFetcherResponse(consumer_id="c2"))
        assert [
            each.offset for each in harness.records if isinstance(each, ConsumedOffsetRecord)
        ] == [5, 6]
        assert parts(sends[0][1]) == {"c1-0": [("t", "0-0", 5)]}
        assert parts(sends[1][1]) == {"c2-0": [("t", "0-1", 6)]}


class _CheckedCoordinator(PushCoordinator):
    def handle(self, event: machine.Event) -> Outcome:
        outcome = super().handle(event)
        check(self)
        return outcome


@pytest.mark.parametrize("design", [BrokerSide, BrokerSideClosing])
def test_invariants_hold_in_worlds_with_faults(design: type[BrokerSide]) -> None:
    class Checked(design):  # type: ignore[misc, valid-type]
        def coordinator(self) -> PushCoordinator:
            return _CheckedCoordinator(self._coordinator_settings)

    for seed in range(1_000, 1_012):
        trial = FaultTrial(
            lambda: Checked(CoordinatorSettings(), DesignMemberSettings(group_id="g")), seed
        )
        assert trial.run().rule is None, seed


def test_failure_at_the_first_late_ping_leads_to_two_readers() -> None:
    """Without retries, a consumer fails a third of its session before it stops by itself."""

    class WithoutRetries(BrokerSide):
        def coordinator(self) -> PushCoordinator:
            settings = msgspec.structs.replace(self._coordinator_settings, ping_retries_max=0)
            return PushCoordinator(settings)

    trial = FaultTrial(
        lambda: WithoutRetries(CoordinatorSettings(), DesignMemberSettings(group_id="g")), 715
    )
    verdict = trial.run()
    assert verdict.rule == "one reader"
    assert "coordinator crash" not in verdict.faults


@pytest.mark.parametrize(
    ("design", "seed", "steps", "rule"),
    [
        ("broker-side", 195, (0, 1, 2, 3, 5), "one reader"),
        ("broker-side-closing", 51, (3,), "duplicates"),
        ("broker-side-closing", 66, (0, 3), "shutdown"),
    ],
)
def test_smallest_world_of_a_finding_breaks_its_rule(
    design: str, seed: int, steps: tuple[int, ...], rule: str
) -> None:
    assert run_world(design, seed, steps, reports_findings=True).rule == rule
    assert run_world(design, seed, steps).rule is None  # the design lists the finding


def test_consumer_that_shuts_down_loses_no_offsets() -> None:
    result = run_cell(Workload(design="broker-side", members=5, phases=("leave",)))
    assert result.phase("leave").duplicate_records == 0

"""The rebalances of the first design's coordinator, event by event."""

from __future__ import annotations

import pytest

from partage.proposals.broker_side.events import (
    BackoffTimer,
    PingTimer,
    RegistrationTimer,
    Resigned,
)
from partage.proposals.broker_side.handlers import RebalanceHandlers
from partage.proposals.broker_side.messages import (
    PingResponse,
    PushError,
    StartFetcherResponse,
    StopFetcherResponse,
)
from partage.proposals.broker_side.purgatory import RequestKind
from partage.proposals.broker_side.records import ConsumedOffsetRecord, OwnerRecord
from partage.proposals.broker_side.registry import PHASE_DESCRIPTIONS, RebalancePhase
from partage.proposals.broker_side.settings import RebalanceMethod
from partage.wire.types import Message
from proposals.push_harness import (
    SESSION_MS,
    Harness,
    names,
    offset,
    parts,
    registration,
    settled,
)


class TestRebalance:
    def test_changes_during_a_rebalance_cause_one_more(self) -> None:
        harness = settled(1)
        harness.register(2)
        assert names(harness.register(3)) == [(3, "RegisterConsumerResponse")]
        assert harness.change_topics({"t": 3}) == []
        assert harness.coordinator.groups["g"].is_pending
        harness.send(1, StopFetcherResponse(consumer_id="c1"))
        harness.send(2, StopFetcherResponse(consumer_id="c2"))
        harness.send(1, StartFetcherResponse(consumer_id="c1"))
        sends = harness.send(2, StartFetcherResponse(consumer_id="c2"))
        assert names(sends) == [(each, "StopFetcherRequest") for each in (1, 2, 3)]
        assert not harness.coordinator.groups["g"].is_pending
        harness.settle(sends)
        assert harness.owners == {("t", 0): "c1-0", ("t", 1): "c2-0", ("t", 2): "c3-0"}

    def test_unnecessary_rebalance_is_skipped(self) -> None:
        harness = settled(1)
        assert harness.change_topics({"t": 2, "u": 5}) == []
        assert harness.phase is RebalancePhase.IDLE

    def test_new_partitions_are_assigned(self) -> None:
        harness = settled(1)
        started = harness.settle(harness.change_topics({"t": 3}))
        assert len(parts(started[1])["c1-0"]) == 3

    def test_topic_created_after_the_registration_is_assigned(self) -> None:
        harness = Harness(topics={})
        assert names(harness.register(1)) == [(1, "RegisterConsumerResponse")]
        assert harness.settle(harness.change_topics({"t": 1})).keys() == {1}

    @pytest.mark.parametrize(
        ("topic_count", "topics"), [("*1*ev.*", ["events", "ev2"]), ("!1!ev.*", ["t", "users"])]
    )
    def test_wildcard_group_gets_new_topics_that_match(
        self, topic_count: str, topics: list[str]
    ) -> None:
        harness = Harness(topics={"t": 1, "events": 1})
        harness.settle(harness.register(1, topic_count=topic_count))
        started = harness.settle(harness.change_topics({"t": 1, "events": 1, "ev2": 1, "users": 1}))
        assert sorted(topic for topic, _, _ in parts(started[1])["c1-0"]) == sorted(topics)

    def test_late_response_backs_off_and_tries_again(self) -> None:
        harness = settled(1)
        harness.register(2)
        harness.send(1, StopFetcherResponse(consumer_id="c1"))
        (watcher,) = harness.watchers(RequestKind.STOP_FETCHER)
        assert harness.timers[watcher] == 6_000
        assert harness.fire(watcher) == []
        assert harness.phase is RebalancePhase.BACKING_OFF
        assert harness.timers[BackoffTimer("g")] == 8_000
        sends = harness.fire(BackoffTimer("g"))
        assert names(sends) == [(1, "StopFetcherRequest"), (2, "StopFetcherRequest")]
        # The response to the first request does not count for the second one.
        harness.send(1, StopFetcherResponse(consumer_id="c1"))
        assert harness.send(2, StopFetcherResponse(consumer_id="c2")) == []
        sends = harness.send(2, StopFetcherResponse(consumer_id="c2"))
        assert names(sends) == [(1, "StartFetcherRequest"), (2, "StartFetcherRequest")]

    def test_rebalance_fails_with_an_error_after_the_maximum_of_retries(self) -> None:
        harness = settled(1, rebalance_retries_max=2)
        harness.register(2)
        for attempt in range(3):
            assert harness.failed == []
            if attempt:
                harness.fire(BackoffTimer("g"))
            harness.fire(harness.watchers(RequestKind.STOP_FETCHER)[0])
            for watcher in harness.watchers(RequestKind.STOP_FETCHER):
                harness.timers.pop(watcher)
        assert harness.failed == ["g"]
        assert harness.phase is RebalancePhase.IDLE
        assert BackoffTimer("g") not in harness.timers

    def test_attempt_without_recorded_owners_is_repeated(self) -> None:
        """All consumers with partitions have started, and one without any has not."""
        harness = settled(1, topics={"t": 1})
        harness.register(0)
        for each in (0, 1):
            harness.send(each, StopFetcherResponse(consumer_id=f"c{each}"))
        harness.send(0, StartFetcherResponse(consumer_id="c0"))
        error = PushError.FETCHER_FAILED
        harness.send(1, StartFetcherResponse(consumer_id="c1", error_code=error))
        harness.settle(harness.fire(BackoffTimer("g")))
        assert harness.owners == {("t", 0): "c0-0"}

    def test_consumer_that_may_have_started_is_stopped(self) -> None:
        """Its partition was deleted meanwhile, so every consumer has its share."""
        harness = settled(2, topics={"t": 1})
        harness.change_topics({"t": 2})
        for each in (1, 2):
            harness.send(each, StopFetcherResponse(consumer_id=f"c{each}"))
        harness.send(1, StartFetcherResponse(consumer_id="c1"))
        late = harness.watchers(RequestKind.START_FETCHER)
        harness.change_topics({"t": 1})
        harness.fire(late[0])
        assert (2, "StopFetcherRequest") in names(harness.fire(BackoffTimer("g")))

    def test_rebalance_that_became_unnecessary_resets_the_attempts(self) -> None:
        harness = Harness(topics={"t": 1}, rebalance_retries_max=1)
        error = StopFetcherResponse(consumer_id="c1", error_code=PushError.FETCHER_FAILED)
        harness.register(1)
        harness.send(1, error)
        harness.change_topics({})
        assert (1, "StopFetcherRequest") not in names(harness.fire(BackoffTimer("g")))
        harness.change_topics({"t": 1})
        for attempt in (1, 2):
            harness.send(1, error)
            assert harness.failed == ["g"] * (attempt - 1)
            if attempt == 1:
                harness.fire(BackoffTimer("g"))

    def test_loss_of_a_consumer_resets_the_attempts(self) -> None:
        harness = settled(2, topics={"t": 3}, rebalance_retries_max=1)
        harness.register(3)
        harness.fire(harness.watchers(RequestKind.STOP_FETCHER)[0])
        harness.lose(3)
        harness.fire(BackoffTimer("g"))
        error = StopFetcherResponse(consumer_id="c1", error_code=PushError.FETCHER_FAILED)
        harness.send(1, StopFetcherResponse(consumer_id="c1"))
        harness.send(1, error)
        assert harness.phase is RebalancePhase.BACKING_OFF
        assert harness.failed == []

    @pytest.mark.parametrize("response", [StopFetcherResponse, StartFetcherResponse])
    def test_error_of_a_consumer_fails_the_attempt(self, response: type[Message]) -> None:
        harness = Harness()
        harness.register(1)
        if response is StartFetcherResponse:
            harness.send(1, StopFetcherResponse(consumer_id="c1"))
        harness.send(1, response(consumer_id="c1", error_code=PushError.FETCHER_FAILED))
        assert harness.phase is RebalancePhase.BACKING_OFF

    @pytest.mark.parametrize("is_late", [False, True])
    def test_consumer_that_did_not_start_gets_another_attempt(self, is_late: bool) -> None:
        """Its partitions have their owner in ZooKeeper already, as after a change of coordinators.

        So a comparison with ZooKeeper alone would leave the consumer without fetchers.
        """
        owner = OwnerRecord(
            group_id="g", topic="t", partition=0, thread="c1-0", session_timeout_ms=SESSION_MS
        )
        harness = Harness(topics={"t": 1}, records=(owner,))
        harness.register(1)
        harness.send(1, StopFetcherResponse(consumer_id="c1"))
        if is_late:
            harness.fire(harness.watchers(RequestKind.START_FETCHER)[0])
        else:
            harness.send(
                1, StartFetcherResponse(consumer_id="c1", error_code=PushError.FETCHER_FAILED)
            )
        assert harness.phase is RebalancePhase.BACKING_OFF
        sends = harness.fire(BackoffTimer("g"))
        assert (1, "StopFetcherRequest") in names(sends)

    @pytest.mark.parametrize("phase", list(RebalancePhase))
    def test_lost_consumer_ends_the_attempt_and_another_one_follows(
        self, phase: RebalancePhase
    ) -> None:
        harness = settled(2, topics={"t": 4})
        if phase is not RebalancePhase.IDLE:
            harness.register(3)
        if phase is RebalancePhase.STARTING:
            for number in (1, 2, 3):
                harness.send(number, StopFetcherResponse(consumer_id=f"c{number}"))
        elif phase is RebalancePhase.BACKING_OFF:
            harness.fire(harness.watchers(RequestKind.STOP_FETCHER)[0])
        assert harness.phase is phase
        sends = harness.lose(2)
        if phase is not RebalancePhase.IDLE:
            assert sends == []
            assert harness.phase is RebalancePhase.BACKING_OFF
            sends = harness.fire(BackoffTimer("g"))
        assert (1, "StopFetcherRequest") in names(sends)
        assert BackoffTimer("g") not in harness.timers
        if phase is not RebalancePhase.IDLE:
            harness.send(1, StopFetcherResponse(consumer_id="c1"))  # to the attempt that ended
            harness.send(3, StopFetcherResponse(consumer_id="c3"))
        if phase is RebalancePhase.STARTING:
            harness.send(1, StartFetcherResponse(consumer_id="c1"))
        harness.settle(sends)
        assert {each for each in harness.owners.values() if each} <= {"c1-0", "c3-0"}

    def test_loss_of_a_new_consumer_restores_the_shares_of_the_others(self) -> None:
        """The owners in ZooKeeper are right, but the consumers have smaller shares."""
        harness = settled(1)
        harness.register(2)
        for number in (1, 2):
            harness.send(number, StopFetcherResponse(consumer_id=f"c{number}"))
        harness.send(1, StartFetcherResponse(consumer_id="c1"))
        harness.lose(2)
        started = harness.settle(harness.fire(BackoffTimer("g")))
        assert len(parts(started[1])["c1-0"]) == 2

    def test_stopped_consumers_are_started_again_with_the_same_shares(self) -> None:
        harness = settled(1)
        harness.register(2)
        harness.send(1, StopFetcherResponse(consumer_id="c1"))
        harness.lose(2)
        started = harness.settle(harness.fire(BackoffTimer("g")))
        assert len(parts(started[1])["c1-0"]) == 2

    def test_loss_does_not_postpone_a_scheduled_attempt(self) -> None:
        harness = settled(3, topics={"t": 4})
        harness.lose(3)
        harness.lose(2)
        at_ms = harness.timers[BackoffTimer("g")]
        harness.register(4)
        harness.now_ms += 500
        harness.lose(4)
        assert harness.timers[BackoffTimer("g")] == at_ms

    def test_expiry_of_an_earlier_attempt_does_not_fail_the_current_one(self) -> None:
        """The StartFetcher request of the first attempt expires while the second one stops."""
        harness = settled(1)
        harness.register(2)
        for number in (1, 2):
            harness.send(number, StopFetcherResponse(consumer_id=f"c{number}"))
        earlier, _ = harness.watchers(RequestKind.START_FETCHER)
        assert earlier.connection == 1
        harness.lose(2)
        sends = harness.fire(BackoffTimer("g"))
        assert names(sends) == [(1, "StopFetcherRequest")]
        harness.fire(earlier)
        assert harness.phase is RebalancePhase.STOPPING
        harness.send(1, StartFetcherResponse(consumer_id="c1"))  # to the first attempt
        assert harness.phase is RebalancePhase.STOPPING
        assert harness.settle(sends).keys() == {1}

    def test_error_in_an_earlier_attempt_does_not_fail_the_current_one(self) -> None:
        harness = settled(1)
        harness.register(2)
        harness.lose(2)
        sends = harness.fire(BackoffTimer("g"))
        late = StopFetcherResponse(consumer_id="c1", error_code=PushError.FETCHER_FAILED)
        assert harness.send(1, late) == []
        assert harness.phase is RebalancePhase.STOPPING
        assert harness.settle(sends).keys() == {1}

    def test_share_that_does_not_fit_its_messages_fails_the_rebalance(self) -> None:
        harness = settled(1, topics={"t": 0x7FFF})
        assert harness.change_topics({"t": 0x8000}) == []
        assert harness.failed == ["g"]
        assert harness.phase is RebalancePhase.IDLE
        assert harness.settle(harness.register(2)).keys() == {1, 2}

    def test_consumer_that_registers_again_is_started_again(self) -> None:
        harness = settled(2)
        harness.lose(2)
        sends = harness.send(1, StopFetcherResponse(consumer_id="c1"))
        harness.register(2)  # before the rebalance without it ends
        started = harness.settle(sends)
        assert started.keys() == {1, 2}

    def test_last_consumer_leaves_no_owners(self) -> None:
        harness = settled(1)
        assert harness.lose(1) == []
        assert set(harness.owners.values()) == {None}
        assert harness.coordinator.topic_groups == {}

    def test_deleted_topic_is_taken_from_its_consumer(self) -> None:
        harness = Harness(topics={"t": 1, "u": 1})
        harness.settle(harness.register(1, topic_count='{"t":1,"u":1}'))
        started = harness.settle(harness.change_topics({"u": 1}))
        assert parts(started[1]) == {"c1-0": [("u", "0-0", -1)]}
        assert harness.owners[("t", 0)] is None

    def test_group_without_consumers_and_nodes_is_forgotten(self) -> None:
        harness = Harness(topics={})
        for number in range(1, 4):
            harness.register(number, group_id=f"g{number}", topic_count='{"missing":1}')
            harness.lose(number)
        assert harness.coordinator.groups == {}
        assert harness.coordinator.topic_groups == {}

    def test_group_with_offsets_is_kept_without_consumers(self) -> None:
        """Its next consumer starts from the offsets, which are read from ZooKeeper only once."""
        harness = settled(1)
        pings = harness.fire(PingTimer())
        assert names(pings) == [(1, "PingRequest")]
        harness.send(1, PingResponse(consumer_id="c1", offset_info=[offset(0, 7)]))
        harness.lose(1)
        started = harness.settle(harness.register(2))
        assert parts(started[2])["c2-0"][0] == ("t", "0-0", 7)

    def test_group_without_consumers_is_kept_while_it_is_frozen(self) -> None:
        harness = Harness()
        harness.switch(is_enabled=False)
        assert len(harness.register(1)) == 1
        harness.lose(1)
        assert len(harness.register(1)) == 1
        harness.lose(1)
        harness.switch(is_enabled=True)
        assert harness.coordinator.groups == {}

    @pytest.mark.parametrize("reason", ["handler", "frozen"])
    def test_waiting_task_of_a_group_ends_with_its_last_consumer(self, reason: str) -> None:
        harness = Harness(rebalance_threadpool_size=1)
        sends = harness.register(1)
        if reason == "frozen":
            harness.switch(is_enabled=False, group_id="h")
        assert names(harness.register(2, group_id="h")) == [(2, "RegisterConsumerResponse")]
        harness.lose(2)
        assert harness.settle(sends).keys() == {1}
        if reason == "frozen":
            assert harness.switch(is_enabled=True, group_id="h") == []
        assert harness.coordinator.groups.keys() == {"g"}

    def test_frozen_group_rebalances_when_it_is_switched_on(self) -> None:
        harness = settled(1)
        harness.switch(is_enabled=False)
        assert names(harness.register(2)) == [(2, "RegisterConsumerResponse")]
        assert harness.change_topics({"t": 4}) == []
        started = harness.settle(harness.switch(is_enabled=True))
        assert started.keys() == {1, 2}
        assert harness.switch(is_enabled=True) == []

    def test_rebalance_in_progress_is_completed_when_it_is_switched_off(self) -> None:
        harness = Harness()
        sends = harness.register(1)
        harness.switch(is_enabled=False)
        assert harness.settle(sends).keys() == {1}
        assert names(harness.register(2)) == [(2, "RegisterConsumerResponse")]

    def test_other_groups_rebalance_while_one_is_frozen(self) -> None:
        harness = Harness()
        harness.switch(is_enabled=False)
        assert names(harness.register(1)) == [(1, "RegisterConsumerResponse")]
        assert names(harness.register(1, group_id="h", consumer_id="x")) != []

    def test_one_handler_rebalances_one_group_at_a_time(self) -> None:
        harness = Harness(rebalance_threadpool_size=1, rebalance_queue_size=1)
        harness.register(1)
        for number, group_id in ((2, "h"), (3, "i"), (4, "j")):
            assert len(harness.register(number, group_id=group_id)) == 1
        sends = harness.send(1, StopFetcherResponse(consumer_id="c1"))
        for number in (1, 2, 3, 4):
            assert names(sends)[-1] == (number, "StartFetcherRequest")
            sends = harness.send(number, StartFetcherResponse(consumer_id=f"c{number}"))
            if number < 4:
                assert names(sends) == [(number + 1, "StopFetcherRequest")]
                sends = harness.send(number + 1, StopFetcherResponse(consumer_id="x"))

    def test_phases_are_described(self) -> None:
        assert PHASE_DESCRIPTIONS.keys() == set(RebalancePhase)


class TestHandlers:
    def test_group_stays_with_its_handler_while_it_has_a_task(self) -> None:
        handlers = RebalanceHandlers(2, 10)
        first = handlers.put("g", 0)
        assert handlers.next(first) == "g"
        assert handlers.put("g", 1) is first
        assert handlers.put("g", 1) is first  # at most one task waits
        assert list(first.queue) == ["g"]
        handlers.finish("g")
        assert handlers.next(first) == "g"
        handlers.finish("g")
        assert handlers.put("g", 1) is not first

    @pytest.mark.parametrize("queue_size", [1, 2, 10])
    def test_tasks_run_in_order_with_any_size_of_the_queue(self, queue_size: int) -> None:
        """Tasks for which the queue has no room wait behind those in it."""
        handlers = RebalanceHandlers(1, queue_size)
        groups = [f"g{number}" for number in range(6)]
        for each in groups:
            handler = handlers.put(each, 0)
        for each in groups:
            assert handlers.next(handler) == each
            handlers.finish(each)


class TestFailover:
    def owner(self, partition: int, thread: str) -> OwnerRecord:
        return OwnerRecord(
            group_id="g",
            topic="t",
            partition=partition,
            thread=thread,
            session_timeout_ms=SESSION_MS,
        )

    def new_coordinator(self) -> Harness:
        offsets = ConsumedOffsetRecord(group_id="g", topic="t", partition=1, offset=40)
        return Harness(records=(self.owner(0, "c1-0"), self.owner(1, "c2-0"), offsets))

    def test_owner_with_another_session_timeout_is_recorded_again(self) -> None:
        """The next coordinator waits for the recorded timeout: longer reads need a longer wait."""
        harness = Harness(records=(self.owner(0, "c1-0"), self.owner(1, "c1-0")))
        harness.settle(harness.register(1, session_timeout_ms=2 * SESSION_MS))
        written = [each for each in harness.records if isinstance(each, OwnerRecord)]
        assert [each.session_timeout_ms for each in written] == [2 * SESSION_MS] * 2
        following = Harness(records=tuple(harness.records))
        assert following.timers[RegistrationTimer("g")] == 2 * SESSION_MS * 4 // 3

    def test_new_coordinator_waits_for_all_owners(self) -> None:
        harness = self.new_coordinator()
        assert names(harness.register(3)) == [(3, "RegisterConsumerResponse")]
        assert names(harness.register(2)) == [(2, "RegisterConsumerResponse")]
        sends = harness.register(1)
        assert len(sends) == 4
        started = harness.settle(sends)
        assert parts(started[2]) == {"c2-0": [("t", "0-1", 40)]}
        assert RegistrationTimer("g") not in harness.timers

    def test_new_coordinator_stops_waiting_when_sessions_are_over(self) -> None:
        harness = self.new_coordinator()
        harness.register(2)
        assert harness.timers[RegistrationTimer("g")] == SESSION_MS * 4 // 3
        started = harness.settle(harness.fire(RegistrationTimer("g")))
        assert len(parts(started[2])["c2-0"]) == 2

    def test_owners_are_kept_until_the_wait_is_over(self) -> None:
        harness = self.new_coordinator()
        harness.register(2)
        harness.lose(2)
        assert harness.records == []
        harness.fire(RegistrationTimer("g"))
        assert set(harness.owners.values()) == {None}

    def test_reelected_coordinator_begins_without_its_memory(self) -> None:
        harness = settled(1)
        harness.handle(Resigned(at_ms=1))
        for record in harness.records:
            harness.coordinator.apply(record)
        harness.elect({"t": 2})
        assert harness.coordinator.groups["g"].awaited == {"c1": SESSION_MS}
        assert harness.settle(harness.register(1)).keys() == {1}


class TestCloseConnections:
    def settled(self) -> Harness:
        harness = Harness(rebalance_method=RebalanceMethod.CLOSE_CONNECTIONS)
        sends = harness.register(1)
        assert names(sends) == [(1, "RegisterConsumerResponse"), (1, "StartFetcherRequest")]
        harness.settle(sends)
        return harness

    def test_new_consumer_closes_the_others_and_all_are_started(self) -> None:
        harness = self.settled()
        assert names(harness.register(2)) == [(2, "RegisterConsumerResponse")]
        assert harness.closed == [1]
        sends = harness.send(11, registration(1))
        assert sorted(harness.settle(sends)) == [2, 11]
        assert harness.owners == {("t", 0): "c1-0", ("t", 1): "c2-0"}

    def test_frozen_group_is_started_if_its_connections_were_closed(self) -> None:
        harness = self.settled()
        harness.register(2)
        assert harness.closed == [1]
        harness.switch(is_enabled=False)
        sends = harness.send(11, registration(1))
        assert sorted(harness.settle(sends)) == [2, 11]
        assert harness.change_topics({"t": 4}) == []
        assert harness.closed == [1]
        harness.switch(is_enabled=True)
        assert harness.closed == [1, 2, 11]

    def test_consumer_that_does_not_return_loses_its_partitions(self) -> None:
        harness = self.settled()
        harness.register(2)
        started = harness.settle(harness.fire(RegistrationTimer("g")))
        assert len(parts(started[2])["c2-0"]) == 2

    def test_group_ends_if_no_closed_consumer_returns(self) -> None:
        harness = self.settled()
        harness.change_topics({"t": 3})
        assert harness.closed == [1]
        harness.fire(RegistrationTimer("g"))
        assert set(harness.owners.values()) == {None}
        assert harness.coordinator.topic_groups == {}
        assert harness.coordinator.groups == {}

    def test_task_that_waits_in_a_queue_does_not_shorten_the_wait(self) -> None:
        harness = Harness(rebalance_method=RebalanceMethod.CLOSE_CONNECTIONS)
        harness.register(1)
        harness.register(2)
        harness.fire(harness.watchers(RequestKind.START_FETCHER)[0])
        assert harness.fire(BackoffTimer("g")) == []
        assert harness.closed == [1]
        assert sorted(harness.settle(harness.send(11, registration(1)))) == [2, 11]

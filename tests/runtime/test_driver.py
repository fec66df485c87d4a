"""The driver's contract: when replies are sent, and what happens if the log fails."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partage.coordinator.consumer_group.actions import ComputeTarget, ResolveRegexes
from partage.coordinator.consumer_group.events import (
    ConsumerGroupHeartbeat,
    RepeatedHeartbeat,
    TargetComputed,
    TopicsChanged,
)
from partage.coordinator.consumer_group.replies import ConsumerGroupHeartbeatReply
from partage.coordinator.events import (
    Commit,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    Join,
    Leave,
    LeavingMember,
    ListGroups,
    OffsetToCommit,
    Protocol,
    Request,
    Sync,
    Ticket,
    TopicsDeleted,
)
from partage.coordinator.outcome import GroupEvent, GroupEventType, Outcome
from partage.coordinator.records import OffsetRecord, OffsetTombstone
from partage.coordinator.replies import (
    CommitReply,
    FetchOffsetsReply,
    HeartbeatReply,
    JoinReply,
    Reply,
)
from partage.coordinator.shard import Shard
from partage.coordinator.timers import SessionTimer
from partage.coordinator.unavailable_replies import error_reply
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings
from partage.runtime.driver import Driver

NOW_MS = 1_000


def shard() -> Shard:
    return Shard(GroupSettings(), lambda metadata: None)


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.activate(shard(), NOW_MS)
    return driver


def commit(ticket: int, offset: int = 1, topic: str = "t") -> Commit:
    wanted = OffsetToCommit(topic=topic, partition=0, offset=offset)
    return Commit(at_ms=NOW_MS, reply_to=Ticket(ticket), group_id="g", offsets=(wanted,))


def fetch(ticket: int) -> FetchOffsets:
    partitions = (("t", 0),)
    return FetchOffsets(at_ms=NOW_MS, reply_to=Ticket(ticket), group_id="g", partitions=partitions)


def describe(ticket: int) -> DescribeGroup:
    return DescribeGroup(at_ms=NOW_MS, reply_to=Ticket(ticket), group_id="nobody's")


def join(ticket: int) -> Join:
    return Join(
        at_ms=NOW_MS,
        reply_to=Ticket(ticket),
        group_id="h",
        member_id="",
        generated_member_id=f"m-{ticket}",
        client_id="c",
        client_host="/",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(Protocol("range", b""),),
        must_rejoin_with_id=False,
    )


EVERY_REQUEST: list[Request] = [
    commit(1),
    fetch(1),
    describe(1),
    Heartbeat(at_ms=NOW_MS, reply_to=Ticket(1), group_id="g", generation=1, member_id="m"),
    Sync(at_ms=NOW_MS, reply_to=Ticket(1), group_id="g", generation=1, member_id="m"),
    Leave(at_ms=NOW_MS, reply_to=Ticket(1), group_id="g", members=(LeavingMember(member_id="m"),)),
    ListGroups(at_ms=NOW_MS, reply_to=Ticket(1)),
    DeleteGroup(at_ms=NOW_MS, reply_to=Ticket(1), group_id="g"),
    DeleteOffsets(at_ms=NOW_MS, reply_to=Ticket(1), group_id="g", partitions=(("t", 0),)),
]


def ready(driver: Driver) -> list[object]:
    """Return the tickets of the replies that are ready now."""
    return [ticket for ticket, _ in driver.pop_ready(100)]


def replies(driver: Driver) -> dict[object, Reply]:
    return dict(driver.pop_ready(100))


def test_reply_without_records_is_ready_at_once(driver: Driver) -> None:
    driver.handle(describe(1))
    assert driver.ready
    assert not driver.unsent
    assert ready(driver) == [1]
    assert not driver.ready


def test_unsent_records_have_the_ends_of_their_events(driver: Driver) -> None:
    driver.handle(commit(1))
    driver.handle(describe(2))
    two = tuple(OffsetToCommit(topic="t", partition=number, offset=1) for number in range(2))
    driver.handle(Commit(at_ms=NOW_MS, reply_to=Ticket(3), group_id="g", offsets=two))
    assert driver.pop_unsent()[2] == [1, 3]
    driver.handle(commit(4))
    assert driver.pop_unsent()[2] == [1]
    driver.handle(commit(5))
    driver.fail()
    assert driver.pop_unsent()[2] == []


def test_unsent_records_are_limited_to_whole_events(driver: Driver) -> None:
    for ticket, count in ((1, 2), (2, 1), (3, 5), (4, 1)):
        offsets = tuple(
            OffsetToCommit(topic="t", partition=number, offset=1) for number in range(count)
        )
        driver.handle(Commit(at_ms=NOW_MS, reply_to=Ticket(ticket), group_id="g", offsets=offsets))
    popped = [driver.pop_unsent(3) for _ in range(3)]
    assert [(len(records), mark, ends) for records, mark, ends in popped] == [
        (3, 3, [2, 3]),
        (5, 8, [5]),
        (1, 9, [1]),
    ]
    assert not driver.unsent
    driver.on_durable(3)
    assert ready(driver) == [1, 2]
    driver.on_durable(8)
    assert ready(driver) == [3]


def test_replies_in_order_after_earlier_records_durable(
    driver: Driver,
) -> None:
    driver.handle(describe(1))
    driver.handle(commit(2))
    driver.handle(fetch(3))
    driver.handle(describe(4))
    records, first, _ = driver.pop_unsent()
    driver.handle(commit(5, offset=2))
    driver.handle(fetch(6))
    more, second, _ = driver.pop_unsent()
    assert [r.offset for r in records + more if isinstance(r, OffsetRecord)] == [1, 2]
    assert ready(driver) == [1]
    driver.on_durable(first)
    assert ready(driver) == [2, 3, 4]
    driver.on_durable(second)
    assert ready(driver) == [5, 6]


def test_later_mark_confirms_earlier_records(driver: Driver) -> None:
    driver.handle(commit(1))
    driver.pop_unsent()
    driver.handle(commit(2))
    _, mark, _ = driver.pop_unsent()
    driver.on_durable(mark)
    assert ready(driver) == [1, 2]
    driver.on_durable(mark)
    assert ready(driver) == []


def test_replies_wait_for_unsent_records(driver: Driver) -> None:
    driver.handle(commit(1))
    _, mark, _ = driver.pop_unsent()
    driver.handle(commit(2))
    driver.handle(fetch(3))
    driver.on_durable(mark)
    assert ready(driver) == [1]
    assert driver.unsent
    _, mark, _ = driver.pop_unsent()
    driver.on_durable(mark)
    assert replies(driver)[Ticket(3)] == FetchOffsetsReply(
        offsets=(OffsetRecord(group_id="g", topic="t", partition=0, offset=1, commit_ms=1000),)
    )


def test_ready_replies_popped_in_slices(driver: Driver) -> None:
    for ticket in range(5):
        driver.handle(describe(ticket))
    assert [ticket for ticket, _ in driver.pop_ready(2)] == [0, 1]
    driver.handle(describe(5))
    assert [ticket for ticket, _ in driver.pop_ready(2)] == [2, 3]
    assert [ticket for ticket, _ in driver.pop_ready(9)] == [4, 5]


def test_mark_beyond_sent_records_raises(driver: Driver) -> None:
    driver.handle(commit(1))
    with pytest.raises(AssertionError, match="not given"):
        driver.on_durable(1)


def test_failure_rejects_open_requests(driver: Driver) -> None:
    driver.handle(commit(0))
    _, mark, _ = driver.pop_unsent()
    driver.on_durable(mark)
    driver.handle(describe(1))
    driver.handle(join(2))  # parked
    driver.handle(commit(3))
    driver.pop_unsent()
    driver.handle(fetch(4))
    driver.handle(commit(5))  # never given to the log
    driver.fail()
    assert driver.shard is None
    assert not driver.unsent
    assert not driver.timers.armed
    leaving = driver.pop_ready(100)
    assert [ticket for ticket, _ in leaving] == [0, 1, 2, 3, 4, 5]
    answers = dict(leaving)
    assert answers[Ticket(0)] == CommitReply(errors=(ErrorCode.NONE,))
    unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert answers[Ticket(2)] == JoinReply(error=unavailable, member_id="")
    assert answers[Ticket(3)] == answers[Ticket(5)] == CommitReply(errors=(unavailable,))
    assert answers[Ticket(4)] == FetchOffsetsReply(error=ErrorCode.NOT_COORDINATOR)


def test_failure_rejects_request_that_raised(driver: Driver) -> None:
    driver.handle(join(1))
    again = msgspec.structs.replace(join(2), generated_member_id="m-1")
    with pytest.raises(AssertionError, match="already"):
        driver.handle(again)
    driver.fail()
    unavailable = JoinReply(error=ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id="")
    assert replies(driver) == {Ticket(1): unavailable, Ticket(2): unavailable}


def test_failure_then_reload_serves_again(driver: Driver) -> None:
    driver.handle(commit(1, offset=1))
    records, mark, _ = driver.pop_unsent()
    driver.on_durable(mark)
    driver.handle(commit(2, offset=2))
    driver.fail()
    ready(driver)
    again = shard()
    for record in records:
        again.apply(record)
    driver.activate(again, NOW_MS)
    driver.handle(fetch(3))
    (reply,) = replies(driver).values()
    assert isinstance(reply, FetchOffsetsReply)
    assert [o and o.offset for o in reply.offsets] == [1]
    driver.handle(commit(4, offset=3))
    _, mark, _ = driver.pop_unsent()
    assert ready(driver) == []
    driver.on_durable(mark)
    assert ready(driver) == [4]


def test_loading_rejects_requests_and_defers_events() -> None:
    driver = Driver()
    driver.handle(commit(1))
    driver.handle(Heartbeat(at_ms=1, reply_to=Ticket(2), group_id="g", generation=1, member_id=""))
    driver.handle(TopicsDeleted(at_ms=1, topics=frozenset({"t"})))
    assert replies(driver) == {
        Ticket(1): CommitReply(errors=(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,)),
        Ticket(2): HeartbeatReply(ErrorCode.NONE),
    }
    assert not driver.unsent
    loaded = shard()
    loaded.apply(OffsetRecord(group_id="g", topic="t", partition=0, offset=1, commit_ms=0))
    driver.activate(loaded, NOW_MS)
    records, mark, _ = driver.pop_unsent()
    assert records == [OffsetTombstone(group_id="g", topic="t", partition=0)]
    driver.handle(fetch(3))
    assert ready(driver) == []
    driver.on_durable(mark)
    assert replies(driver) == {Ticket(3): FetchOffsetsReply(offsets=(None,))}


def test_topics_deleted_repeated_until_durable() -> None:
    driver = Driver()
    loaded = shard()
    loaded.apply(OffsetRecord(group_id="g", topic="t", partition=0, offset=1, commit_ms=0))
    assert not driver.is_caught_up
    driver.activate(loaded, NOW_MS)
    assert driver.is_caught_up
    driver.handle(TopicsDeleted(at_ms=1, topics=frozenset({"t"})))
    driver.pop_unsent()
    assert not driver.is_caught_up
    driver.fail()
    assert not driver.is_caught_up
    again = shard()
    again.apply(OffsetRecord(group_id="g", topic="t", partition=0, offset=1, commit_ms=0))
    driver.activate(again, NOW_MS)
    records, mark, _ = driver.pop_unsent()
    assert records == [OffsetTombstone(group_id="g", topic="t", partition=0)]
    assert not driver.is_caught_up
    driver.on_durable(mark)
    assert driver.is_caught_up
    driver.resign()
    assert not driver.is_caught_up


def test_resign_rejects_all_requests(driver: Driver) -> None:
    """All open requests get NOT_COORDINATOR, even those with a reply that is ready. So do new ones,
    until `start_loading` is called.
    """
    driver.handle(commit(1))
    _, mark, _ = driver.pop_unsent()
    driver.handle(commit(2))
    driver.handle(join(3))
    driver.on_durable(mark)
    driver.handle(TopicsDeleted(at_ms=NOW_MS, topics=frozenset({"t"})))
    driver.resign()
    gone = ErrorCode.NOT_COORDINATOR
    told = replies(driver)
    joined = told.pop(Ticket(3))
    assert isinstance(joined, JoinReply)
    assert joined.error is gone
    assert told == {Ticket(1): CommitReply(errors=(gone,)), Ticket(2): CommitReply(errors=(gone,))}
    driver.handle(commit(4))
    # dropped: the next owner handles it
    driver.handle(TopicsDeleted(at_ms=NOW_MS, topics=frozenset({"t"})))
    assert replies(driver) == {Ticket(4): CommitReply(errors=(gone,))}
    driver.start_loading()
    driver.handle(commit(5))
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert replies(driver) == {Ticket(5): CommitReply(errors=(loading,))}
    driver.activate(shard(), NOW_MS)
    assert driver.pop_unsent()[0] == []
    driver.handle(fetch(6))
    assert replies(driver) == {Ticket(6): FetchOffsetsReply(offsets=(None,))}


@pytest.mark.parametrize("event", EVERY_REQUEST, ids=lambda event: type(event).__name__)
def test_resign_replaces_ready_replies(event: Request) -> None:
    """A reply may be outdated after it was decided; each type reports the error in a different
    field.
    """
    driver = Driver()
    driver.activate(shard(), NOW_MS)
    driver.handle(event)
    if isinstance(event, Commit):
        driver.on_durable(driver.pop_unsent()[1])
    driver.resign()
    (reply,) = replies(driver).values()
    gone = ErrorCode.NOT_COORDINATOR
    assert reply == error_reply(event, gone)


def test_second_activation_raises(driver: Driver) -> None:
    with pytest.raises(AssertionError, match="a shard already"):
        driver.activate(shard(), NOW_MS)


def test_fire_due_respects_count(driver: Driver) -> None:
    driver.handle(join(1))
    due_ms = NOW_MS + GroupSettings().initial_rebalance_delay_ms
    driver.fire_due(due_ms - 1)
    assert ready(driver) == []
    driver.fire_due(due_ms, 0)
    assert ready(driver) == []
    driver.fire_due(due_ms, 1)
    _, mark, _ = driver.pop_unsent()
    driver.on_durable(mark)
    assert ready(driver) == [1]


def test_fire_due_respects_until(driver: Driver) -> None:
    driver.handle(join(1))
    due_ms = NOW_MS + GroupSettings().initial_rebalance_delay_ms
    driver.fire_due(due_ms + 500, until_ms=due_ms - 1)
    assert not driver.unsent
    driver.fire_due(due_ms + 500, until_ms=due_ms)
    assert driver.unsent


def test_group_events_popped_once(driver: Driver) -> None:
    driver.handle(join(1))
    assert [notice.event_type for notice in driver.pop_group_events()] == [
        "joined",
        "rebalance started",
    ]
    assert driver.pop_group_events() == []


STEPS = st.one_of(
    st.tuples(st.just("commit"), st.integers(0, 2)),
    st.tuples(st.just("fetch"), st.just(0)),
    st.tuples(st.just("join"), st.booleans()),
    st.tuples(st.just("heartbeat"), st.booleans()),
    st.tuples(st.just("leave"), st.just(0)),
    st.tuples(st.just("consumer heartbeat"), st.integers(0, 3)),
    st.tuples(st.just("target"), st.just(0)),
    st.tuples(st.just("timers"), st.sampled_from([1_000, 20_000])),
    st.tuples(st.just("append"), st.just(0)),
    st.tuples(st.just("durable"), st.just(0)),
    st.tuples(st.just("send"), st.just(0)),
    st.tuples(st.just("fail"), st.just(0)),
    st.tuples(st.just("load"), st.just(0)),
)


STORE = (("append", 0), ("durable", 0), ("send", 0))
#: A member of a consumer group has reached its target assignment and repeats its heartbeat.
STABLE_CONSUMER = (
    ("consumer heartbeat", 0),
    *STORE,
    ("target", 0),
    *STORE,
    *(("consumer heartbeat", 2),) * 3,
)


class DriverHistory:
    """A driver to which the steps of a random history happen; it answers requests, or handles
    them.
    """

    def __init__(self, *, is_answering: bool) -> None:
        self._is_answering = is_answering
        self.driver = Driver()
        self._load()
        self._now_ms = NOW_MS
        self._ticket = 0
        self._marks = [0]
        self._computation: ComputeTarget | None = None
        self._originals: dict[int, ConsumerGroupHeartbeat] = {}
        self.seen: list[object] = []

    def _load(self) -> None:
        loaded = shard()
        loaded.handle(TopicsChanged(at_ms=NOW_MS, topics={}, version=1))
        self.driver.activate(loaded, NOW_MS)

    def step(self, name: str, argument: int) -> None:
        """Take a step, and record all that a shell sees."""
        driver = self.driver
        match name:
            case "append":
                self._marks.append(driver.pop_unsent()[1])
            case "durable":
                driver.on_durable(self._marks[-1])
            case "send":
                self.seen.append(driver.pop_ready(2))
            case "timers":
                self._now_ms += argument
                driver.fire_due(self._now_ms)
            case "fail":
                driver.fail()
                self._marks = [driver.applied_mark]
            case "load":
                if driver.shard is None:
                    self._load()
            case "target":
                if self._computation is not None:
                    self.driver.handle(self._target(self._computation))
            case _:
                self._ticket += 1
                self._request(self._event(name, argument))
        actions = driver.pop_actions()
        for action in actions:
            if isinstance(action, ComputeTarget):
                self._computation = action
        self.seen += [list(driver.ready), list(driver.unsent), dict(driver.timers.armed)]
        self.seen += [driver.pop_group_events(), actions, driver.is_caught_up]

    def _target(self, action: ComputeTarget) -> TargetComputed:
        return TargetComputed(
            at_ms=self._now_ms,
            group_id=action.group_id,
            sequence=action.sequence,
            group_epoch=action.group_epoch,
            target={"n": {}},
        )

    def _request(self, event: Request) -> None:
        if not self._is_answering:
            self.driver.handle(event)
            return
        reply = self.driver.answer(self._repeat(event))
        if reply is not None:
            assert not self.driver.unsent or self.driver.is_durable(self.driver.applied_mark)
            self.driver.ready.append((event.reply_to, reply))

    def _repeat(self, event: Request) -> Request:
        """Return a ConsumerGroupHeartbeat as an event of a connection that repeats it."""
        if not isinstance(event, ConsumerGroupHeartbeat):
            return event
        original = self._originals.setdefault(
            event.member_epoch, msgspec.structs.replace(event, reply_to=Ticket(None))
        )
        repeated = RepeatedHeartbeat(
            at_ms=event.at_ms, reply_to=event.reply_to, group_id="k", original=original
        )
        assert repeated.complete() == msgspec.structs.replace(event, original=original)
        return repeated

    def _event(self, name: str, argument: int) -> Request:
        ticket = self._ticket
        events: dict[str, Request] = {
            "commit": commit(ticket, argument),
            "fetch": fetch(ticket),
            "join": msgspec.structs.replace(join(ticket), must_rejoin_with_id=bool(argument)),
            "heartbeat": Heartbeat(
                at_ms=0,
                reply_to=Ticket(ticket),
                group_id="h",
                generation=1,
                member_id=f"c-m-{argument}",
            ),
            "leave": Leave(
                at_ms=0,
                reply_to=Ticket(ticket),
                group_id="h",
                members=(LeavingMember(member_id="c-m-1"),),
            ),
            "consumer heartbeat": ConsumerGroupHeartbeat(
                at_ms=0,
                reply_to=Ticket(ticket),
                group_id="k",
                member_id="n",
                generated_member_id="",
                member_epoch=argument,
                client_id="c",
                client_host="/",
                rebalance_timeout_ms=-1 if argument else 1_000,
                subscribed_topics=None if argument else ("t",),
                owned=None if argument else {},
            ),
        }
        return msgspec.structs.replace(events[name], at_ms=self._now_ms)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([(), STABLE_CONSUMER]), st.lists(STEPS, max_size=30))
def test_answered_request_has_the_effects_of_a_handled_one(
    first_steps: tuple[tuple[str, int], ...], steps: list[tuple[str, int]]
) -> None:
    answering, handling = (DriverHistory(is_answering=each) for each in (True, False))
    for name, argument in (*first_steps, *steps):
        answering.step(name, argument)
        handling.step(name, argument)
        assert answering.seen == handling.seen
        answering.seen.clear()
        handling.seen.clear()


def test_repeated_heartbeat_that_changes_nothing_does_not_reach_the_shard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history = DriverHistory(is_answering=True)
    for name, argument in STABLE_CONSUMER:
        history.step(name, argument)

    def handle(shard: Shard, event: object) -> Outcome:
        raise AssertionError(f"the shard gets {event}")

    history.step("commit", 1)
    monkeypatch.setattr(Shard, "handle", handle)
    with pytest.raises(AssertionError, match="the shard gets ConsumerGroupHeartbeat"):
        history.step("consumer heartbeat", 2)  # its reply must wait for the commit
    history.step("append", 0)
    history.step("durable", 0)
    history.driver.ready.clear()
    session = SessionTimer("k", "n")
    deadline_ms = history.driver.timers.armed[session]
    history.step("timers", 1_000)
    history.step("consumer heartbeat", 2)
    assert history.driver.timers.armed[session] == deadline_ms + 1_000
    ((_, reply),) = history.driver.ready
    assert isinstance(reply, ConsumerGroupHeartbeatReply)
    assert (reply.error, reply.member_id, reply.member_epoch) == (ErrorCode.NONE, "n", 2)


def test_request_of_a_heartbeat_that_failed_gets_an_error(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(shard: Shard, event: object) -> None:
        raise RuntimeError(f"no effects of {event}")

    monkeypatch.setattr(Shard, "heartbeat_effects", fail)
    original = ConsumerGroupHeartbeat(
        at_ms=NOW_MS,
        reply_to=Ticket(None),
        group_id="k",
        member_id="n",
        generated_member_id="",
        member_epoch=2,
        client_id="c",
        client_host="/",
    )
    requests: list[Request] = [
        Heartbeat(at_ms=NOW_MS, reply_to=Ticket(1), group_id="g", generation=1, member_id="m"),
        RepeatedHeartbeat(at_ms=NOW_MS, reply_to=Ticket(2), group_id="k", original=original),
    ]
    for request in requests:
        with pytest.raises(RuntimeError, match="no effects"):
            driver.answer(request)
    driver.fail()
    assert [(ticket, reply.error) for ticket, reply in driver.pop_ready(9)] == [
        (1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ]


REPLY = HeartbeatReply(ErrorCode.NONE)
RECORD = OffsetRecord(group_id="g", topic="t", partition=0, offset=1, commit_ms=NOW_MS)
GROUP_EVENT = GroupEvent(
    at_ms=NOW_MS, group_id="g", event_type=GroupEventType.REMOVED, generation=1
)
ACTION = ResolveRegexes(group_id="g", sequence=1, regexes=frozenset({"t.*"}))


@pytest.mark.parametrize(
    "effects",
    [
        {"replies": [(Ticket(1), REPLY), (Ticket(2), REPLY)]},
        {"replies": [(Ticket(2), REPLY)]},
        {"replies": []},
        {"records": [RECORD]},
        {"group_events": [GROUP_EVENT]},
        {"actions": [ACTION]},
    ],
    ids=repr,
)
def test_answer_keeps_every_effect_besides_the_reply(effects: dict[str, list[object]]) -> None:
    class Prepared:
        """A state machine with prepared effects."""

        def handle(self, event: object) -> Outcome:
            outcome = Outcome()
            outcome.replies.append((Ticket(1), REPLY))
            for name, values in effects.items():
                setattr(outcome, name, values)
            return outcome

        def resume(self, at_ms: int) -> Outcome:
            return Outcome()

    answering, handling = Driver(), Driver()
    for each in (answering, handling):
        each.activate(cast(Shard, Prepared()), NOW_MS)
    assert answering.answer(describe(1)) is None
    handling.handle(describe(1))
    for name in ("ready", "unsent", "group_events", "actions"):
        assert getattr(answering, name) == getattr(handling, name)
    for each in (answering, handling):
        each.fail()
    assert answering.ready == handling.ready


def test_answer_returns_a_reply_that_waits_for_nothing(driver: Driver) -> None:
    assert driver.answer(describe(1)) is not None
    assert driver.ready == []
    assert driver.answer(commit(2)) is None
    assert driver.answer(describe(3)) is None
    assert driver.ready == []
    driver.on_durable(driver.pop_unsent()[1])
    assert ready(driver) == [2, 3]

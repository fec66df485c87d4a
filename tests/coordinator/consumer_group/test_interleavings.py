"""Events that reach a group between an action and its result."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from partage.coordinator.consumer_group.actions import ComputeTarget, ResolveRegexes
from partage.coordinator.consumer_group.events import RegexesResolved
from partage.coordinator.consumer_group.member import STATIC_LEAVE_EPOCH
from partage.coordinator.consumer_group.partitions import PartitionSet
from partage.coordinator.consumer_group.replies import ConsumerGroupHeartbeatReply
from partage.coordinator.events import DeleteGroup, Ticket
from partage.model.errors import ErrorCode
from partage.model.settings import ConsumerGroupSettings

from .harness import ConsumerHarness, joining, parts, spread, topic


def waiting_harness() -> ConsumerHarness:
    """Return a harness whose actions the test completes."""
    harness = ConsumerHarness()
    harness.runs_actions = False
    return harness


def pop_computation(harness: ConsumerHarness) -> ComputeTarget:
    """Return the only pending action."""
    (action,) = harness.actions
    harness.actions.clear()
    assert isinstance(action, ComputeTarget)
    return action


def resolve(harness: ConsumerHarness, *names: str, fails: bool = False) -> None:
    """Complete the only pending action, a resolution."""
    (action,) = harness.actions
    harness.actions.clear()
    assert isinstance(action, ResolveRegexes)
    harness.handle(
        RegexesResolved(
            at_ms=harness.now_ms,
            group_id="g",
            sequence=action.sequence,
            topics=None if fails else {regex: frozenset(names) for regex in action.regexes},
            version=harness.version,
        )
    )


def static_pair() -> ConsumerHarness:
    """Return a stable group of the static member A and of B, with halves of topic t."""
    harness = ConsumerHarness()
    harness.join("A", "t", instance_id="i")
    harness.join("B", "t")
    harness.beat("A", owned=parts(t=(0, 1, 2)), instance_id="i")
    harness.beat("B")
    harness.runs_actions = False
    return harness


# Static members.


def test_static_member_that_returns_during_a_computation_gets_its_target() -> None:
    harness = static_pair()
    harness.change_topics(topic("t", 8))
    harness.send("B", 3)
    action = pop_computation(harness)
    harness.ask("A", STATIC_LEAVE_EPOCH, instance_id="i")
    harness.join("C", "t", instance_id="i")
    harness.complete(action, spread(action))
    assert harness.group.members["C"].target == parts(t=(0, 1, 2, 3))
    assert harness.epochs[1:] == (4, 4)


def test_static_member_that_returns_twice_during_a_computation_gets_its_target() -> None:
    harness = static_pair()
    harness.change_topics(topic("t", 8))
    harness.send("B", 3)
    action = pop_computation(harness)
    for member_id, following in (("A", "C"), ("C", "D")):
        harness.ask(member_id, STATIC_LEAVE_EPOCH, instance_id="i")
        harness.join(following, "t", instance_id="i")
    harness.join("A", "t")  # the first id again, as another member
    harness.complete(action, spread(action))
    targets = {member.id: member.target for member in harness.group.members.values()}
    assert targets == {"A": {}, "B": parts(t=(4, 5, 6, 7)), "D": parts(t=(0, 1, 2, 3))}
    assert harness.epochs == ("Assigning", 5, 4)


def test_temporary_leave_answers_the_heartbeat_that_waits() -> None:
    harness = static_pair()
    harness.change_topics(topic("t", 8))
    waiting = harness.send("A", 3, instance_id="i")
    action = pop_computation(harness)
    harness.ask("A", STATIC_LEAVE_EPOCH, instance_id="i")
    assert harness.replies[waiting].error is ErrorCode.UNKNOWN_MEMBER_ID
    harness.complete(action, spread(action))
    assert harness.group.members["A"].epoch == STATIC_LEAVE_EPOCH
    harness.advance(45_000)
    assert "A" not in harness.group.members


def test_absent_static_member_that_joins_as_an_existing_member_replaces_both() -> None:
    harness = static_pair()
    harness.ask("A", STATIC_LEAVE_EPOCH, instance_id="i")
    waiting = harness.send("B", 0, **joining("t"), instance_id="i")
    action = pop_computation(harness)
    harness.complete(action, spread(action))
    assert harness.replies[waiting].assignment == parts(t=range(6))
    assert list(harness.group.members) == ["B"]


# Sessions.


def test_session_does_not_run_while_a_heartbeat_waits() -> None:
    harness = waiting_harness()
    waiting = harness.send("A", 0, **joining("t"))
    action = pop_computation(harness)
    harness.advance(60_000)
    harness.complete(action, spread(action))
    assert harness.replies[waiting].assignment == parts(t=range(6))
    harness.advance(44_999)
    assert not harness.group.is_empty
    harness.advance(1)
    assert harness.group.is_empty


# Failures.


def test_failed_resolution_keeps_the_topics() -> None:
    harness = ConsumerHarness(topics={"ra": topic("ra", 2)})
    harness.ask("A", 0, **{**joining(), "subscribed_regex": "r.*"})
    assert harness.beat("A").assignment == parts(ra=(0, 1))
    harness.runs_actions = False
    harness.change_topics(topic("ra", 2), topic("rb", 1))
    harness.now_ms += 10_000
    for pause_ms in (1_000, 2_000, 4_000):
        harness.beat("A")
        resolve(harness, fails=True)
        assert harness.epochs == ("Stable", 2, 2)
        harness.now_ms += pause_ms - 1
        harness.beat("A")
        assert not harness.actions
        harness.now_ms += 1
    harness.beat("A")
    resolve(harness, "ra", "rb")
    assert harness.epochs == ("Assigning", 3, 2)


def test_repeated_failures_of_an_assignor_double_the_pause() -> None:
    harness = waiting_harness()
    harness.send("A", 0, **joining("t"))
    for pause_ms in (1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000):
        harness.complete(pop_computation(harness), None, "error")
        harness.now_ms += pause_ms - 1
        harness.send("A", 1)
        assert not harness.actions
        harness.now_ms += 1
        harness.send("A", 1)
    harness.complete(pop_computation(harness), None, "error")
    harness.send("A", 1, server_assignor="range")
    action = pop_computation(harness)
    assert action.assignor == "range"


# Results of other groups, and clocks that are set back.


def test_result_of_a_removed_group_with_the_same_members_is_ignored() -> None:
    harness = waiting_harness()
    harness.send("A", 0, **joining("t"))
    stale = pop_computation(harness)
    harness.leave("A")
    event = DeleteGroup(at_ms=harness.now_ms, reply_to=harness.ticket(), group_id="g")
    harness.handle(event)
    waiting = harness.send("A", 0, **joining("t"))
    harness.complete(stale, {"A": {}})
    assert waiting not in harness.replies
    harness.complete(action := pop_computation(harness), spread(action))
    assert harness.replies[waiting].assignment == parts(t=range(6))


def test_clock_that_is_set_back_delays_no_work() -> None:
    harness = ConsumerHarness(
        topics={"ra": topic("ra", 1)},
        settings=ConsumerGroupSettings(assignment_interval_ms=10_000),
    )
    harness.ask("A", 0, **{**joining(), "subscribed_regex": "r.*"})
    harness.beat("A")
    harness.change_topics(topic("ra", 1), topic("rb", 1))
    harness.now_ms -= 500_000
    harness.beat("A")
    assert harness.beat("A").assignment == parts(ra=(0,), rb=(0,))
    harness.assignor = lambda action: {}
    harness.runs_actions = False
    harness.send("B", 0, **joining("ra"))
    harness.now_ms += 10_000
    harness.send("B", 0, **joining("ra"))
    harness.complete(pop_computation(harness), None, "error")
    harness.now_ms -= 100_000
    harness.send("A", 3)
    assert any(isinstance(action, ComputeTarget) for action in harness.actions)


# Regular expressions.


def test_regex_that_matches_nothing_frees_the_partitions_of_its_member() -> None:
    harness = ConsumerHarness(topics={"ra": topic("ra", 2)})
    harness.ask("A", 0, **{**joining(), "subscribed_regex": "r.*"})
    harness.beat("A")
    harness.ask("B", 0, **{**joining(), "subscribed_regex": "r.*"})
    harness.beat("A", owned=parts(ra=(0,)))
    harness.beat("B")
    harness.beat("B", subscribed_regex="none.*", owned=parts(ra=(1,)))
    harness.beat("B", owned={})
    assert harness.beat("A").assignment == parts(ra=(0, 1))


# Any interleaving.

MEMBERS = ("A", "B", "C")
INSTANCES = {"A": "i", "B": None, "C": None}
STEPS = (
    "join",
    "join",
    "join regex",
    "beat",
    "beat",
    "beat",
    "silent beat",
    "subscribe",
    "regex",
    "leave",
    "leave for a while",
    "delete",
    "topics",
    "time",
    "clock",
    "restart",
    "complete",
    "complete",
    "complete",
    "fail",
)
steps = st.lists(st.tuples(st.sampled_from(MEMBERS), st.sampled_from(STEPS)), max_size=40)


class Client:
    """A member that follows the responses it gets, in their order."""

    def __init__(self, name: str) -> None:
        self.instance_id = INSTANCES[name]
        self.generation = 0
        self.name = name
        self.member_id = name
        self.epoch = 0
        self.is_member = False
        self.owned: PartitionSet = {}
        self.ticket: Ticket | None = None

    def restart(self) -> None:
        """Start again as another member."""
        self.generation += 1
        self.member_id = f"{self.name}{self.generation}"
        self.stop()

    def stop(self) -> None:
        """Forget the membership, and a response under way."""
        self.is_member, self.owned, self.epoch, self.ticket = False, {}, 0, None


class Clients:
    """A group with clients; the test decides when the actions of the group end."""

    def __init__(self) -> None:
        self.harness = ConsumerHarness(topics={"ta": topic("ta", 3), "tb": topic("tb", 1)})
        self.harness.runs_actions = False
        self.clients = {name: Client(name) for name in MEMBERS}
        self.size = 3

    def send(self, client: Client, epoch: int, **fields: object) -> None:
        """Send a heartbeat; its response may come later."""
        client.ticket = self.harness.send(
            client.member_id, epoch, instance_id=client.instance_id, **fields
        )
        self.receive()

    def receive(self) -> None:
        """Let the clients receive the responses that exist, and check what they own."""
        for client in self.clients.values():
            if client.ticket is None or client.ticket not in self.harness.replies:
                continue
            reply = self.harness.replies[client.ticket]
            client.ticket = None
            assert isinstance(reply, ConsumerGroupHeartbeatReply)
            if reply.error is not ErrorCode.NONE:
                assert reply.error in (
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    ErrorCode.GROUP_ID_NOT_FOUND,
                    ErrorCode.UNRELEASED_INSTANCE_ID,  # its earlier self has not expired
                ), reply
                client.stop()
                continue
            client.epoch = reply.member_epoch
            if reply.assignment is not None:
                client.owned = reply.assignment
        read = [
            (topic_id, partition)
            for client in self.clients.values()
            for topic_id, partitions in client.owned.items()
            for partition in partitions
        ]
        assert len(read) == len(set(read)), "two members read a partition"

    def step(self, client: Client, step: str) -> None:
        """Perform one step of a client, or of its environment."""
        harness = self.harness
        match step:
            case "join" | "join regex" if not client.is_member:
                client.is_member = True
                fields = joining(*(("ta", "tb") if step == "join" else ()))
                if step == "join regex":
                    fields["subscribed_regex"] = "t.*"
                self.send(client, 0, **fields)
            case "delete":
                harness.handle(
                    DeleteGroup(at_ms=harness.now_ms, reply_to=harness.ticket(), group_id="g")
                )
            case "topics":
                self.size += 1
                harness.change_topics(topic("ta", self.size), topic("tb", 1))
            case "time":
                harness.advance(5_000)
            case "clock":
                harness.now_ms -= 7_000
                for key in harness.armed:  # timers do not follow the wall clock
                    harness.armed[key] -= 7_000
            case "restart":
                harness.restart()
                for each in self.clients.values():
                    if each.ticket is not None:
                        each.restart()  # its response is lost
            case "complete" | "fail" if harness.actions:
                self.complete(fails=step == "fail")
            case "leave" | "leave for a while" if client.is_member:
                is_static = step != "leave" and client.instance_id is not None
                harness.send(
                    client.member_id,
                    STATIC_LEAVE_EPOCH if is_static else -1,
                    instance_id=client.instance_id,
                )
                client.restart()
            case _ if client.is_member and client.ticket is None and client.epoch >= 0:
                self.beat(client, step)
        self.receive()

    def beat(self, client: Client, step: str) -> None:
        """Send a heartbeat of a member, perhaps with another subscription."""
        fields: dict[str, object] = {}
        if step == "subscribe":
            fields = {"subscribed_topics": ("ta",), "subscribed_regex": ""}
        elif step == "regex":
            fields = {"subscribed_topics": (), "subscribed_regex": "none.*"}
        if step != "silent beat":
            fields["owned"] = client.owned
        self.send(client, client.epoch, **fields)

    def complete(self, *, fails: bool = False) -> None:
        """End the oldest action."""
        harness = self.harness
        action = harness.actions[0]
        if not fails:
            harness.run_action()
        elif isinstance(action, ComputeTarget):
            del harness.actions[0]
            harness.complete(action, None, "error")
        else:
            del harness.actions[0]
            harness.handle(
                RegexesResolved(
                    at_ms=harness.now_ms,
                    group_id="g",
                    sequence=action.sequence,
                    topics=None,
                    version=harness.version,
                )
            )
        self.receive()

    def settle(self) -> None:
        """Let all work end, while all members send heartbeats."""
        for _ in range(12):
            self.harness.advance(5_000)
            for client in self.clients.values():
                while self.harness.actions:
                    self.complete()
                if client.is_member:
                    self.beat(client, "beat")
            while self.harness.actions:
                self.complete()


@given(steps)
@settings(max_examples=100, deadline=None)
def test_any_interleaving_has_one_reader_and_ends_with_all_partitions_read(
    steps_: list[tuple[str, str]],
) -> None:
    group = Clients()
    for name, step in steps_:
        group.step(group.clients[name], step)
    group.settle()
    if any(client.is_member for client in group.clients.values()):
        assert group.harness.epochs[0] == "Stable"
        assert not group.harness.uncovered()

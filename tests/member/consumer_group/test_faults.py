"""Members and the real coordinator under lost, late and repeated messages."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from .group_with_members import GroupWithMembers, MemberNode, topic

MEMBERS = ("A", "B", "C")
STEPS = (
    "request",
    "request",
    "response",
    "response",
    "find",
    "resolve",
    "poll",
    "return",
    "callback",
    "callback",
    "exchange",
    "exchange",
    "lose connection",
    "late request",
    "repeat request",
    "one topic",
    "both topics",
    "leave",
    "drain",
    "topics",
    "recreate",
    "coordinator restarts",
    "a second",
    "ten seconds",
    "a minute",
)
Steps = list[tuple[str, str]]
steps = st.lists(st.tuples(st.sampled_from(MEMBERS), st.sampled_from(STEPS)), max_size=40)


class World(GroupWithMembers):
    """A group with one static and two dynamic members."""

    def __init__(self) -> None:
        super().__init__(A="i", B=None, C=None)
        self.size = 4
        self.version = 0
        for node in self.nodes.values():
            node.subscribe("ta", "tb")

    def step(self, node: MemberNode, step: str) -> None:
        """Perform one step of a member, or of its environment."""
        match step:
            case "request":
                node.deliver_request()
            case "response":
                node.deliver_response()
            case "find":
                node.find()
            case "resolve":
                node.resolve()
            case "poll":
                node.poll()
            case "return":
                node.poll(is_in_poll=False)
            case "callback" if node.is_polling:
                node.complete_callback()
            case "exchange":
                node.exchange()
            case "lose connection":
                node.lose_connection()
            case "late request" if node.late_requests:
                self.send(node.late_requests.pop(0))
            case "repeat request" if node.tickets and node.tickets[-1][0].member_epoch:
                node.late_requests.append(node.tickets[-1][0])
            case "one topic":
                node.subscribe("ta")
            case "both topics":
                node.subscribe("ta", "tb")
            case "leave":
                node.leave()
            case "drain":
                node.drain()
            case _:
                self.change_environment(step)

    def change_environment(self, step: str) -> None:
        """Change the topics, restart the coordinator, or let time pass."""
        match step:
            case "topics":
                self.size += 1
                self.change_topics()
            case "recreate":
                self.version += 1
                self.change_topics()
            case "coordinator restarts":
                self.harness.restart()
                for each in self.nodes.values():
                    each.lose_connection()
            case "a second":
                self.advance(1_000)
            case "ten seconds":
                self.advance(10_000)
            case "a minute":
                self.advance(60_000)

    def change_topics(self) -> None:
        """Replace the topics by those of the current size and version."""
        self.harness.change_topics(topic("ta", self.size), topic("tb", 1, version=self.version))


def run(steps_: Steps) -> World:
    """Return the world after the steps."""
    world = World()
    for name, step in steps_:
        world.step(world[name], step)
    return world


#: B gets a partition between a full heartbeat of A, which still looks up names, and its response.
MOVED_WHILE_ADDED: Steps = [
    *(("A", step) for step in ("poll", "find", "request", "response", "request", "response")),
    *(("A", step) for step in ("lose connection", "a second", "find")),
    ("B", "exchange"),
    ("A", "request"),
    *(("B", step) for step in ("ten seconds", "exchange", "ten seconds", "exchange")),
    ("A", "resolve"),
]


@given(steps)
@example([(name, "exchange") for name in "ABCABC"])
@example(MOVED_WHILE_ADDED)
@settings(max_examples=40, deadline=None)
def test_any_faults_end_with_each_partition_delivered_once(steps_: Steps) -> None:
    world = run(steps_)
    world.settle()
    assert world.is_settled


#: Two members that own their parts.
JOINED: Steps = [(name, "exchange") for name in "ABABAB"]


def test_late_leave_request_does_not_remove_the_new_membership() -> None:
    world = run([*JOINED, ("B", "leave"), ("B", "callback")])
    node = world["B"]
    node.complete_callback()
    assert node.requests[-1].member_epoch == -1
    node.lose_connection()
    node.subscribe("ta")
    node.exchange()
    world.send(node.late_requests.pop())
    world.settle()
    assert world.is_settled


def test_recreated_topic_is_revoked_and_assigned_again() -> None:
    world = run([*JOINED, ("A", "recreate")])
    for _ in range(6):
        world["A"].exchange()
        world["B"].exchange()
        world.advance(5_000)
    assert {each for name in "AB" for each in world[name].delivered} >= {
        (topic("tb", 1, version=1).topic_id, 0)
    }

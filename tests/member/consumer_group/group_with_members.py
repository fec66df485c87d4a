"""Members with the consumer group protocol, and the real coordinator, over a network with faults.

Time is virtual. The test decides when requests and responses arrive, and which of them are lost.
After each event the invariants of the member and of the coordinator hold, and no two members
hold the same partition.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from coordinator.consumer_group.harness import ConsumerHarness, topic, topic_id
from partage.coordinator.consumer_group.replies import ConsumerGroupHeartbeatReply
from partage.coordinator.events import Ticket
from partage.member import events, outcome
from partage.member.consumer_group.events import (
    ConsumerHeartbeatResponseReceived,
    TopicIdsResolved,
)
from partage.member.consumer_group.invariants import check_consumer_member
from partage.member.consumer_group.outcome import ResolveTopicIds, SendConsumerHeartbeat
from partage.member.consumer_group.settings import ConsumerMemberSettings
from partage.member.consumer_group.state_machine import ConsumerGroupMember
from partage.member.consumer_group.states import ConsumerMemberState
from partage.member.timers import MemberTimer
from partage.model.errors import ErrorCode
from partage.runtime.timers import TimerQueue


class MemberNode:
    """One member with its timers, its user and its connection."""

    def __init__(self, group: GroupWithMembers, name: str, instance_id: str | None) -> None:
        self.group = group
        self.instance_id = instance_id
        serials = count(1)
        self.member = ConsumerGroupMember(
            ConsumerMemberSettings(
                group_id="g",
                instance_id=instance_id,
                rebalance_timeout_ms=60_000,
                max_poll_interval_ms=60_000,
            ),
            lambda: f"{name}{next(serials)}",
        )
        self.timers: TimerQueue[MemberTimer] = TimerQueue()
        self.actions: list[outcome.Action] = []  # of all events
        self.lookups: list[int] = []
        self.requests: list[SendConsumerHeartbeat] = []  # not yet at the coordinator, in order
        self.tickets: list[tuple[SendConsumerHeartbeat, Ticket]] = []  # without a response yet
        self.late_requests: list[SendConsumerHeartbeat] = []  # of closed connections
        self.resolutions: list[ResolveTopicIds] = []
        self.is_polling = False

    def handle(self, event: events.Event) -> None:
        """Pass an event to the member."""
        result = self.member.handle(event)
        for key, deadline_ms in result.timers:
            self.timers.set(key, deadline_ms)
        check_consumer_member(self.member, self.timers.armed)
        self.actions += result.actions
        for action in result.actions:
            match action:
                case outcome.FindCoordinator(serial=serial):
                    self.lookups.append(serial)
                case outcome.Disconnect():
                    self.close_connection()
                case SendConsumerHeartbeat():
                    self.requests.append(action)
                case ResolveTopicIds():
                    self.resolutions = [action]
        self.group.check_owners()

    @property
    def now_ms(self) -> int:
        return self.group.now_ms

    @property
    def delivered(self) -> frozenset[tuple[bytes, int]]:
        """The partitions that the shell would deliver now."""
        deadline_ms = self.member.session_deadline_ms
        if deadline_ms is None or self.now_ms >= deadline_ms:
            return frozenset()
        ids = self.member.owned_ids
        return frozenset((ids[p], p[1]) for p in self.member.deliverable)

    @property
    def held(self) -> frozenset[tuple[bytes, int]]:
        """The partitions that the member may work on, also in a callback."""
        deadline_ms = self.member.session_deadline_ms
        if deadline_ms is None or self.now_ms >= deadline_ms or not self.member.is_in_group:
            return frozenset()
        return frozenset((each, p[1]) for p, each in self.member.owned_ids.items())

    # User

    def subscribe(self, *topics: str, regex: str | None = None) -> None:
        self.handle(
            events.SubscriptionChanged(at_ms=self.now_ms, topics=frozenset(topics), regex=regex)
        )

    def poll(self, *, is_in_poll: bool = True) -> None:
        self.is_polling = is_in_poll
        self.handle(events.Polled(at_ms=self.now_ms, is_in_poll=is_in_poll))

    def complete_callback(self) -> None:
        """Let the listener return, if it runs."""
        call = self.member.open_callback
        if call is not None:
            self.handle(events.CallbackCompleted(at_ms=self.now_ms, serial=call.serial))

    def leave(self) -> None:
        self.handle(events.LeaveRequested(at_ms=self.now_ms, reason="test"))

    def drain(self) -> None:
        self.handle(events.DrainRequested(at_ms=self.now_ms, reason="test"))

    # Network

    def find(self) -> None:
        """Let the coordinator lookup succeed."""
        if self.lookups:
            serial = self.lookups.pop()
            self.lookups.clear()
            self.handle(events.CoordinatorFound(at_ms=self.now_ms, serial=serial))

    def resolve(self, *, knows: Callable[[str], bool] = lambda name: True) -> None:
        """Answer the lookup of topic names from the coordinator's topics."""
        if not self.resolutions:
            return
        action = self.resolutions.pop()
        names = {each.topic_id: name for name, each in self.group.harness.topics.items()}
        found = {i: names[i] for i in action.topic_ids if i in names and knows(names[i])}
        self.handle(TopicIdsResolved(at_ms=self.now_ms, serial=action.serial, names=found))

    def deliver_request(self) -> None:
        """Let the next request arrive at the coordinator."""
        if self.requests:
            action = self.requests.pop(0)
            self.tickets.append((action, self.group.send(action)))

    def deliver_response(self, error: ErrorCode | None = None) -> None:
        """Let the next response arrive at the member, perhaps with another error."""
        if not self.tickets or self.tickets[0][1] not in self.group.harness.replies:
            return
        action, ticket = self.tickets.pop(0)
        reply = self.group.harness.replies[ticket]
        assert isinstance(reply, ConsumerGroupHeartbeatReply)
        self.handle(to_event(action, reply, self.now_ms, error))

    def close_connection(self) -> None:
        """Close the connection. Requests on the way may arrive later; responses are lost.

        A heartbeat that joins never arrives late: it would look like a new start of this member,
        for Kafka's coordinator as well.
        """
        self.late_requests += [each for each in self.requests if each.member_epoch != 0]
        self.requests.clear()
        self.tickets.clear()

    def lose_connection(self) -> None:
        """Close the connection without the member's doing."""
        serial = self.member.link.coordinator_serial
        if serial is not None:
            self.close_connection()
            self.handle(events.CoordinatorLost(at_ms=self.now_ms, serial=serial))

    def exchange(self) -> None:
        """Exchange all messages, and let the user poll and finish all callbacks."""
        self.poll()
        for _ in range(30):
            self.find()
            self.complete_callback()
            self.resolve()
            self.deliver_request()
            self.deliver_response()
            has_callback = self.member.open_callback is not None
            has_work = self.lookups or self.requests or self.tickets or self.resolutions
            if not has_callback and not has_work:
                return


def to_event(
    action: SendConsumerHeartbeat,
    reply: ConsumerGroupHeartbeatReply,
    at_ms: int,
    error: ErrorCode | None = None,
) -> ConsumerHeartbeatResponseReceived:
    """Return the coordinator's reply as the event of the member."""
    return ConsumerHeartbeatResponseReceived(
        at_ms=at_ms,
        serial=action.serial,
        error=reply.error if error is None else error,
        error_message=reply.error_message,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=reply.assignment,
    )


class GroupWithMembers:
    """The coordinator of group ``g`` and its members."""

    def __init__(self, **instances: str | None) -> None:
        self.harness = ConsumerHarness(topics={"ta": topic("ta", 4), "tb": topic("tb", 1)})
        self.nodes = {name: MemberNode(self, name, each) for name, each in instances.items()}

    def __getitem__(self, name: str) -> MemberNode:
        return self.nodes[name]

    @property
    def now_ms(self) -> int:
        return self.harness.now_ms

    def send(self, action: SendConsumerHeartbeat) -> Ticket:
        """Pass a request to the coordinator."""
        return self.harness.send(
            action.member_id,
            action.member_epoch,
            instance_id=action.instance_id,
            rebalance_timeout_ms=action.rebalance_timeout_ms,
            subscribed_topics=action.subscribed_topics,
            subscribed_regex=action.subscribed_regex,
            server_assignor=action.server_assignor,
            owned=action.owned,
        )

    def check_owners(self) -> None:
        """Raise `AssertionError` if two members hold the same partition."""
        held = [each for node in self.nodes.values() for each in node.held]
        assert len(held) == len(set(held)), "two members hold a partition"

    def advance(self, ms: int) -> None:
        """Let time pass, and fire the timers of the coordinator and of the members in order."""
        until_ms = self.now_ms + ms
        while True:
            due = [at for node in self.nodes.values() if (at := node.timers.wake_at_ms())]
            next_ms = min([*due, *self.harness.armed.values(), until_ms])
            self.harness.advance(max(0, next_ms - self.now_ms))
            for node in self.nodes.values():
                for key in node.timers.pop_due(self.now_ms):
                    node.handle(events.TimerFired(at_ms=self.now_ms, key=key))
            self.check_owners()
            if next_ms >= until_ms:
                return

    def settle(self) -> None:
        """Let everything work until the group is settled, at most for longer than each timeout."""
        for _ in range(30):
            for node in self.nodes.values():
                node.exchange()
            if self.is_settled:
                return
            self.advance(5_000)

    @property
    def is_settled(self) -> bool:
        """True if the members own all partitions of their topics."""
        active = [node for node in self.nodes.values() if node.member.is_membership_wanted]
        wanted = {name for node in active for name in node.member.topics}
        expected = {
            (each.topic_id, number)
            for name, each in self.harness.topics.items()
            if name in wanted
            for number in range(each.partition_count)
        }
        return (
            all(node.member.state is ConsumerMemberState.STABLE for node in active)
            and all(node.member.deliverable == node.member.owned for node in active)
            and {each for node in active for each in node.delivered} == expected
        )


__all__ = ["GroupWithMembers", "MemberNode", "to_event", "topic", "topic_id"]

"""A group whose clients use the classic or the consumer protocol, as state machines of a test."""

from __future__ import annotations

from typing import Any

from partage.coordinator.consumer_group.actions import ComputeTarget
from partage.coordinator.consumer_group.events import RegexesResolved
from partage.coordinator.consumer_group.group import ConsumerGroup
from partage.coordinator.events import (
    Heartbeat,
    Join,
    Leave,
    LeavingMember,
    Protocol,
    Sync,
    Ticket,
)
from partage.coordinator.replies import HeartbeatReply, JoinReply, SyncReply
from partage.model.errors import ErrorCode
from partage.wire.consumer_protocol import (
    Assignment,
    ConsumerTopicPartitions,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

from .harness import ConsumerHarness, joining, topic, topic_id

Partition = tuple[str, int]

SESSION_MS = 30_000
REBALANCE_MS = 60_000


def subscription(
    *topics: str, owned: frozenset[Partition] = frozenset(), generation: int = -1
) -> bytes:
    """Return the metadata of a member with the classic protocol."""
    return encode_subscription(
        Subscription(topics=list(topics), owned_partitions=listed(owned), generation_id=generation)
    )


def listed(partitions: frozenset[Partition]) -> list[ConsumerTopicPartitions]:
    """Return partitions by topic."""
    names = sorted({name for name, _ in partitions})
    return [
        ConsumerTopicPartitions(
            topic=name, partitions=sorted(p for t, p in partitions if t == name)
        )
        for name in names
    ]


def unlisted(topics: list[ConsumerTopicPartitions]) -> frozenset[Partition]:
    """Return the partitions of a list by topic."""
    return frozenset((each.topic, number) for each in topics for number in each.partitions)


class ClassicClient:
    """A consumer with the classic protocol, eager or cooperative.

    Its SyncGroup and its revocation are separate steps. ``joined`` is the JoinGroup response
    that awaits the SyncGroup, ``assigned`` the assignment that awaits the revocation.
    """

    def __init__(self, name: str, *, is_cooperative: bool, instance_id: str | None = None) -> None:
        self.name = name
        self.is_cooperative = is_cooperative
        self.instance_id = instance_id
        self.starts = 0
        self.stop()

    def stop(self) -> None:
        """End; a later start is another member."""
        self.is_running = False
        self.member_id = ""
        self.lose()

    def lose(self) -> None:
        """Forget the generation and the partitions."""
        self.generation = -1
        self.owned: frozenset[Partition] = frozenset()
        self.must_join = True
        self.ticket: Ticket | None = None
        self.joined: JoinReply | None = None
        self.assigned: frozenset[Partition] | None = None

    @property
    def protocol(self) -> str:
        """The name of the assignor."""
        return "cooperative" if self.is_cooperative else "eager"


class ConsumerClient:
    """A consumer with the consumer protocol."""

    def __init__(self, name: str, instance_id: str | None = None) -> None:
        self.name = name
        self.instance_id = instance_id
        self.starts = 0
        self.stop()

    def stop(self) -> None:
        """End; a later start is another member."""
        self.starts += 1
        self.member_id = f"{self.name}{self.starts}"
        self.is_running = False
        self.lose()

    def lose(self) -> None:
        """Forget the epoch and the partitions."""
        self.epoch = 0
        self.owned: frozenset[Partition] = frozenset()
        self.ticket: Ticket | None = None


class MixedGroup:
    """One group with clients of both protocols. The test decides when the actions end."""

    def __init__(self, *, is_cooperative: bool) -> None:
        self.harness = ConsumerHarness(topics={"ta": topic("ta", 3), "tb": topic("tb", 1)})
        self.harness.runs_actions = False
        self.size = 3
        self.classic = [
            ClassicClient("P", is_cooperative=is_cooperative),
            ClassicClient("Q", is_cooperative=is_cooperative),
            ClassicClient("S", is_cooperative=is_cooperative, instance_id="s"),
        ]
        self.consumers = [ConsumerClient("A"), ConsumerClient("B"), ConsumerClient("T", "s")]

    def start(self) -> None:
        """Let the first classic client read all partitions. Other clients wait for it."""
        for verb in ("act", "time", "act", "act"):
            self.step(0, verb)

    # One step.

    def step(self, index: int, verb: str) -> None:
        """Perform one step of a client, or of its environment."""
        harness = self.harness
        client: ClassicClient | ConsumerClient = (self.classic + self.consumers)[index]  # type: ignore[operator]
        match verb:
            case "topics":
                self.size += 1
                harness.change_topics(topic("ta", self.size), topic("tb", 1))
                for each in self.classic:
                    each.must_join = True
            case "time":
                self.pass_time(10_000)
            case "restart":
                harness.restart()
                for each in self.classic:
                    each.must_join |= each.ticket is not None
                    each.ticket = None
                for consumer in self.consumers:
                    if consumer.ticket is not None:
                        consumer.stop()
            case "complete" | "fail" if harness.actions:
                self.complete(fails=verb == "fail")
            case "leave" if client.is_running:
                self.leave(client)
            case "crash" if client.is_running:
                client.stop()
            case "act":
                self.act(client)
        self.receive()

    def act(self, client: ClassicClient | ConsumerClient) -> None:
        """Start the client, or let it send its next request."""
        if client.ticket is not None:
            return
        holder = [
            each
            for each in (*self.classic, *self.consumers)
            if each is not client and each.is_running and each.instance_id == client.instance_id
        ]
        if client.instance_id is not None and holder:
            holder[0].stop()  # the deployment replaces a process by the next one
        client.is_running = True
        if isinstance(client, ConsumerClient):
            self.send_heartbeat(client)
        elif client.joined is not None:
            self.send_sync(client, client.joined)
        elif client.assigned is not None:
            client.must_join = True
            client.owned, client.assigned = client.assigned, None
        elif client.must_join:
            self.send_join(client)
        else:
            self.send(client, Heartbeat, generation=client.generation, member_id=client.member_id)

    def send(self, client: ClassicClient, event_type: Any, **fields: object) -> None:
        """Send a request of the classic protocol."""
        client.ticket = self.harness.ticket()
        base = {"at_ms": self.harness.now_ms, "reply_to": client.ticket, "group_id": "g"}
        self.harness.handle(event_type(**base, instance_id=client.instance_id, **fields))
        self.receive()

    def send_join(self, client: ClassicClient) -> None:
        """Join again; an eager member first gives up all partitions."""
        if not client.is_cooperative:
            client.owned = frozenset()
        client.must_join = False
        client.starts += not client.member_id
        self.send(
            client,
            Join,
            member_id=client.member_id,
            generated_member_id=f"{client.name}{client.starts}",
            client_id=client.name,
            client_host="/host",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=(
                Protocol(
                    client.protocol,
                    subscription("ta", "tb", owned=client.owned, generation=client.generation),
                ),
            ),
        )

    def send_heartbeat(self, client: ConsumerClient) -> None:
        """Send a heartbeat with the owned partitions."""
        owned: dict[bytes, tuple[int, ...]] = {}
        for name, number in sorted(client.owned):
            owned[topic_id(name)] = (*owned.get(topic_id(name), ()), number)
        fields: dict[str, object] = {"owned": owned}
        if client.epoch == 0:
            fields = joining("ta", "tb")
        client.ticket = self.harness.send(
            client.member_id, client.epoch, instance_id=client.instance_id, **fields
        )
        self.receive()

    def leave(self, client: ClassicClient | ConsumerClient) -> None:
        """Let a client leave; a static consumer leaves for a while."""
        harness = self.harness
        if isinstance(client, ConsumerClient):
            epoch = -1 if client.instance_id is None else -2
            harness.send(client.member_id, epoch, instance_id=client.instance_id)
        elif client.instance_id is None:
            leaver = LeavingMember(member_id=client.member_id)
            harness.handle(
                Leave(
                    at_ms=harness.now_ms, reply_to=harness.ticket(), group_id="g", members=(leaver,)
                )
            )
        client.stop()

    def pass_time(self, ms: int) -> None:
        """Let time pass. A client whose member expired knows it: its own session is over, too."""
        self.harness.advance(ms)
        self.drop_expired()
        self.receive()

    def drop_expired(self) -> None:
        """Stop the reading of clients that are no longer members."""
        group = self.harness.shard.groups.get("g")
        members = {} if group is None else group.members_by_id
        for client in (*self.classic, *self.consumers):
            if client.ticket is None and client.owned and client.member_id not in members:
                client.lose()

    # Responses.

    def receive(self) -> None:
        """Let the clients receive the responses that exist, and check what they own."""
        for client in self.classic:
            while client.ticket in self.harness.replies:
                self.receive_classic(client, self.harness.replies[client.ticket])
        for consumer in self.consumers:
            if consumer.ticket in self.harness.replies:
                self.receive_heartbeat(consumer, self.harness.replies[consumer.ticket])
        read = [p for each in (*self.classic, *self.consumers) for p in each.owned]
        assert len(read) == len(set(read)), f"two members read a partition: {sorted(read)}"

    def receive_heartbeat(self, client: ConsumerClient, reply: Any) -> None:
        """Follow the response to a heartbeat."""
        client.ticket = None
        if reply.error:
            assert reply.error in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.FENCED_INSTANCE_ID,
                ErrorCode.GROUP_ID_NOT_FOUND,
                ErrorCode.UNRELEASED_INSTANCE_ID,
            ), reply
            client.stop()
            return
        client.epoch = reply.member_epoch
        if reply.assignment is not None:
            names = {each.topic_id: name for name, each in self.harness.topics.items()}
            client.owned = frozenset(
                (names[each], number)
                for each, numbers in reply.assignment.items()
                for number in numbers
            )

    def receive_classic(self, client: ClassicClient, reply: Any) -> None:
        """Follow the response to a request of the classic protocol."""
        client.ticket = None
        match reply:
            case _ if reply.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                client.lose()
                client.member_id = ""
                client.is_running = reply.error is ErrorCode.UNKNOWN_MEMBER_ID
            case _ if reply.error is ErrorCode.ILLEGAL_GENERATION:
                client.lose()
            case JoinReply(error=ErrorCode.MEMBER_ID_REQUIRED):
                client.member_id = reply.member_id
                self.send_join(client)
            case _ if reply.error is ErrorCode.REBALANCE_IN_PROGRESS:
                client.must_join = True
            case JoinReply(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
                raise AssertionError(reply)
            case HeartbeatReply():
                assert not reply.error, reply
            case JoinReply():
                assert not reply.error, reply
                client.member_id, client.generation = reply.member_id, reply.generation
                client.joined = reply
            case SyncReply():
                assert not reply.error, reply
                decoded = decode_assignment(reply.assignment) if reply.assignment else None
                assigned = unlisted(decoded.assigned_partitions) if decoded else frozenset()
                if client.owned - assigned:
                    client.assigned = assigned
                else:
                    client.owned = assigned

    def send_sync(self, client: ClassicClient, reply: JoinReply) -> None:
        """Send SyncGroup, with the assignment of a leader."""
        client.joined = None
        assignments = {}
        if reply.leader == client.member_id and not reply.skip_assignment:
            assignments = self.assign(reply, is_cooperative=client.is_cooperative)
        self.send(
            client,
            Sync,
            generation=client.generation,
            member_id=client.member_id,
            protocol_type="consumer",
            protocol=client.protocol,
            assignments=assignments,
        )

    def assign(self, reply: JoinReply, *, is_cooperative: bool) -> dict[str, bytes]:
        """Assign all partitions; a cooperative leader leaves out those that must move first."""
        owners: dict[Partition, str] = {}
        if is_cooperative:
            newest: dict[Partition, int] = {}
            for member in reply.members:
                said = decode_subscription(member.metadata)
                for partition in unlisted(said.owned_partitions):
                    if newest.get(partition, -2) < said.generation_id:
                        newest[partition] = said.generation_id
                        owners[partition] = member.member_id
        partitions = sorted(
            (name, number)
            for name, each in self.harness.topics.items()
            for number in range(each.partition_count)
        )
        shares: dict[str, set[Partition]] = {member.member_id: set() for member in reply.members}
        for index, partition in enumerate(partitions):
            to = sorted(shares)[index % len(shares)]
            if owners.get(partition, to) == to:
                shares[to].add(partition)
        return {
            member_id: encode_assignment(Assignment(assigned_partitions=listed(frozenset(share))))
            for member_id, share in shares.items()
        }

    # The end.

    def complete(self, *, fails: bool = False) -> None:
        """End the oldest action."""
        action = self.harness.actions[0]
        assert not isinstance(action, RegexesResolved)
        if fails and isinstance(action, ComputeTarget):
            del self.harness.actions[0]
            self.harness.complete(action, None, "error")
        else:
            self.harness.run_action()
        self.receive()

    def settle(self) -> None:
        """Let all running clients act, and all work end."""
        self.harness.checks_replay = False  # it takes most of the time of a long run
        for _ in range(30):
            self.pass_time(5_000)
            for client in (*self.classic, *self.consumers):
                if client.is_running:
                    self.act(client)
                while self.harness.actions:
                    self.complete()

    def unread(self) -> set[Partition]:
        """Return the partitions that no client reads."""
        every = {
            (name, number)
            for name, each in self.harness.topics.items()
            for number in range(each.partition_count)
        }
        return every - {p for each in (*self.classic, *self.consumers) for p in each.owned}

    @property
    def is_consumer_group(self) -> bool:
        """True if the group has the consumer protocol."""
        return isinstance(self.harness.shard.groups.get("g"), ConsumerGroup)

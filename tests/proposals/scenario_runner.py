"""Runners of the scenarios in ``scenarios``: commands for the machines, and their effects as text.

Each machine is checked after each event (`CheckedCoordinator`, `CheckedMember`). Clients are named
by one word. ``pytest --rewrite-scenarios`` writes the actual effects into the files.

JoinGroup (``scenarios/join_group``): ``coordinator multi|single [choice=] [reaction=next]
[delay=MS]``, ``join NAME [id=] [session=] [protocols=] [type=] [timeout=] [version=]``, ``assign
NAME a:0,b:1 [error=]``, ``heartbeat NAME [generation=]``, ``leave NAME``, ``commit NAME t-0=5
[generation=]``, ``fetch NAME t-0``, ``lose NAME``, ``tick MS``.

First design (``scenarios/broker_side``): ``coordinator [setting=]``, ``elect t=2``, ``register NAME
t=1 [session=] [group=]``, ``answer NAME [t-0=5] [error=]`` (the oldest request), ``settle`` (all
answer), ``lose NAME``, ``topics t=3``, ``freeze``, ``thaw``, ``resign``, ``crash``, ``tick MS``.

Its consumer (``scenarios/consumer``): ``consumer [setting=]``, ``start``, ``broker``,
``no-broker``, ``metadata [coordinator=ID]``, ``connected``, ``lost``, ``registered [ERROR]``,
``ping``, ``stop``, ``fetch t-0=10``, ``read t-0=20`` (the positions), ``out-of-range t-0``,
``leave``, ``tick MS``, ``stall MS`` (no timers fire).
"""

from __future__ import annotations

from typing import Any

from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.proposals import machine
from partage.proposals.broker_side import events
from partage.proposals.broker_side import messages as push
from partage.proposals.broker_side.consumer import PushConsumer
from partage.proposals.broker_side.coordinator import PushCoordinator
from partage.proposals.broker_side.records import ConsumedOffsetRecord, OwnerRecord
from partage.proposals.broker_side.settings import PushConsumerSettings, PushCoordinatorSettings
from partage.proposals.broker_side.topic_count import static_topic_count
from partage.proposals.designs.checked import CheckedCoordinator, CheckedMember
from partage.proposals.join_group.checker import Dialect
from partage.proposals.join_group.records import GroupRemovedRecord
from partage.proposals.join_group.settings import CoordinatorSettings
from partage.proposals.machine import ConnectionId
from partage.proposals.multi_assignor import messages as multi
from partage.proposals.multi_assignor.coordinator import MultiAssignorCoordinator
from partage.proposals.multi_assignor.invariants import MultiAssignorDialect
from partage.proposals.single_assignor import messages as single
from partage.proposals.single_assignor.coordinator import (
    SingleAssignorCoordinator,
    SynchronizerChoice,
    TimeoutReaction,
)
from partage.proposals.single_assignor.invariants import SingleAssignorDialect
from partage.wire.apis.heartbeat import HeartbeatRequest
from partage.wire.apis.leave_group import LeaveGroupRequest
from partage.wire.apis.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from partage.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchTopic
from partage.wire.types import Message

SESSION_MS = 9_000
BROKERS = tuple(push.BrokerAddress(id=n, host=f"h{n}", port=9092) for n in range(2))


def split_options(words: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words if "=" in word)


def partition(word: str) -> TopicPartition:
    topic, _, number = word.rpartition("-")
    return TopicPartition(topic, int(number))


def offsets_of(words: list[str]) -> dict[TopicPartition, int]:
    """Return the offsets in words such as ``t-0=5``."""
    return {
        partition(name): int(value)
        for name, value in split_options(words).items()
        if name.rpartition("-")[2].isdigit()
    }


class ScenarioRunner:
    """A machine with its clock and timers."""

    checked: CheckedCoordinator | CheckedMember

    def __init__(self) -> None:
        self.now_ms = 0
        self.lines: list[str] = []

    def run(self, line: str) -> list[str]:
        """Run a command and return its effects."""
        verb, *words = line.split()
        getattr(self, f"do_{verb.replace('-', '_')}")(words)
        lines, self.lines = self.lines, []
        return lines

    def handle(self, event: machine.Event) -> None:
        raise NotImplementedError

    def do_tick(self, words: list[str]) -> None:
        until_ms = self.now_ms + int(words[0])
        while self.checked.armed:
            key, at_ms = min(self.checked.armed.items(), key=lambda item: (item[1], str(item[0])))
            if at_ms > until_ms:
                break
            self.now_ms = max(self.now_ms, at_ms)
            self.handle(machine.TimerFired(at_ms=self.now_ms, key=key))
        self.now_ms = until_ms


class CoordinatorRunner(ScenarioRunner):
    """A coordinator and the connections of named clients."""

    checked: CheckedCoordinator

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[int, str] = {}
        self.connections: dict[str, int] = {}

    def connect(self, name: str) -> None:
        connection = len(self.names) + 1
        self.names[connection], self.connections[name] = name, connection

    def send(self, name: str, message: Message, draw: int = 0) -> None:
        self.handle(
            machine.MessageReceived(
                at_ms=self.now_ms,
                connection=ConnectionId(self.connections[name]),
                message=message,
                draw=draw,
            )
        )

    def handle(self, event: machine.Event) -> None:
        outcome = self.checked.handle(event)
        for record in outcome.records:
            self.lines.append(self.show_record(record))
        for connection, message in outcome.sends:
            name = self.names[connection]
            self.lines.append(f"{self.now_ms} ms {name}: {self.show(name, message)}")
        for connection in outcome.closes:
            self.lines.append(f"{self.now_ms} ms {self.names[connection]}: closed")
        if isinstance(outcome, events.Outcome):
            self.lines += [f"refuses {t}-{p} of {who}" for who, t, p in outcome.refused_offsets]
            self.lines += [f"rebalance of {group} fails" for group in outcome.failed_rebalances]

    def show_record(self, record: Any) -> str:
        raise NotImplementedError

    def show(self, name: str, message: Any) -> str:
        raise NotImplementedError

    def do_lose(self, words: list[str]) -> None:
        connection = ConnectionId(self.connections.pop(words[0]))
        self.handle(machine.ConnectionLost(at_ms=self.now_ms, connection=connection))


class JoinGroupRunner(CoordinatorRunner):
    """The coordinator of a design with JoinGroup."""

    dialect: Dialect

    def __init__(self) -> None:
        super().__init__()
        self.ids: dict[str, str] = {}  # member ids of clients
        self.generations: dict[str, int] = {}
        self.draws: list[str] = []

    def do_coordinator(self, words: list[str]) -> None:
        options = split_options(words)
        settings = CoordinatorSettings(initial_rebalance_delay_ms=int(options.get("delay", 0)))
        if words[0] == "multi":
            self.dialect = MultiAssignorDialect()
            self.checked = CheckedCoordinator(MultiAssignorCoordinator(settings))
            return
        self.dialect = SingleAssignorDialect()
        choice = SynchronizerChoice(options.get("choice", "random"))
        is_next = options.get("reaction") == "next"
        reaction = TimeoutReaction.NEXT_SYNCHRONIZER if is_next else TimeoutReaction.FAIL_GENERATION
        self.checked = CheckedCoordinator(
            SingleAssignorCoordinator(settings, choice=choice, reaction=reaction)
        )

    def ask(self, name: str, message: Message) -> None:
        if name not in self.connections:
            self.connect(name)
        self.draws.append(name)
        self.send(name, message, draw=len(self.draws))

    def client_of(self, member_id: str) -> str:
        """Return the name of the client that got a member id."""
        return self.draws[int(member_id.removeprefix("member-"), 16) - 1] if member_id else "-"

    def show_record(self, record: Any) -> str:
        if isinstance(record, ConsumedOffsetRecord) or hasattr(record, "offset"):
            return f"stores {record.topic}-{record.partition}={record.offset}"
        if isinstance(record, GroupRemovedRecord):
            return f"removes group {record.group_id}"
        return f"stores generation {record.generation}"

    def show(self, name: str, message: Any) -> str:
        kind = type(message).__name__.removesuffix("Response")
        if kind == "JoinGroup":
            return self.show_join(name, self.dialect.response(message))
        if kind == "OffsetFetch":
            found = [f"{t.name}-{p.partition_index}={p.committed_offset}" for t in message.topics for p in t.partitions]  # fmt: skip  # noqa: E501
            return f"OffsetFetch {' '.join(found)}"
        if kind == "OffsetCommit":
            codes = {p.error_code for t in message.topics for p in t.partitions}
            return f"OffsetCommit {' '.join(ErrorCode(code).name for code in codes)}"
        return f"{kind} {ErrorCode(message.error_code).name}"

    def show_join(self, name: str, response: Any) -> str:
        if response.error:
            if response.error == ErrorCode.REQUEST_TIMED_OUT:
                self.ids[name] = response.member_id
            return f"JoinGroup {ErrorCode(response.error).name}"
        self.ids[name], self.generations[name] = response.member_id, response.generation
        text = f"JoinGroup generation {response.generation}"
        if response.members is not None:
            text += f", all: {' '.join(sorted(map(self.client_of, response.members)))}"
            text += f", {response.protocol}" if response.protocol else ", assign"
        if response.state is not None:
            text += f", assigned {response.state.decode() or 'nothing'}"
        if response.ids is not None:
            text += f", with {' '.join(sorted(map(self.client_of, response.ids)))}"
        return text

    def do_join(self, words: list[str]) -> None:
        name, options = words[0], split_options(words)
        member_id = options.get("id", self.ids.get(name, ""))
        session_ms = int(options.get("session", SESSION_MS))
        kind = options.get("type", "consumer")
        message: Message
        if isinstance(self.dialect, MultiAssignorDialect):
            protocols = [
                multi.JoinGroupProtocol(name=each, metadata=name.encode())
                for each in options.get("protocols", "range").split(",")
            ]
            message = multi.JoinGroupRequest(
                group_id="g", session_timeout=session_ms, member_id=member_id,
                protocol_type=kind, protocols=protocols,
            )  # fmt: skip
        else:
            join = single.JoinPhase(
                session_timeout=session_ms, synchronize_timeout=int(options.get("timeout", 0)),
                metadata_version=int(options.get("version", 0)), member_id=member_id,
                member_metadata=name.encode(),
            )  # fmt: skip
            message = single.JoinGroupRequest(group_id="g", protocol_type=kind, join=join)
        self.ask(name, message)

    def do_assign(self, words: list[str]) -> None:
        name, options = words[0], split_options(words)
        states = dict(word.split(":") for word in words[1:] if ":" in word)
        synchronized = single.Synchronized(
            error_code=ErrorCode[options.get("error", "NONE")],
            generation_id=int(options.get("generation", self.generations[name])),
            member_id=self.ids[name],
            members=[
                single.SyncedMember(
                    member_id=f"member-{self.draws.index(each) + 1:016x}",
                    synced_member_state=state.encode(),
                )
                for each, state in states.items()
            ],
        )
        self.ask(
            name,
            single.JoinGroupRequest(
                group_id="g", protocol_type="consumer", synchronized=synchronized
            ),
        )

    def generation(self, words: list[str]) -> int:
        known = self.generations.get(words[0], -1)
        return int(split_options(words).get("generation", known))

    def do_heartbeat(self, words: list[str]) -> None:
        member_id = split_options(words).get("id", self.ids.get(words[0], ""))
        self.ask(
            words[0],
            HeartbeatRequest(
                group_id="g", generation_id=self.generation(words), member_id=member_id
            ),
        )

    def do_leave(self, words: list[str]) -> None:
        self.ask(words[0], LeaveGroupRequest(group_id="g", member_id=self.ids.pop(words[0], "")))

    def do_commit(self, words: list[str]) -> None:
        topics = [
            OffsetCommitTopic(
                name=each.topic,
                partitions=[
                    OffsetCommitPartition(
                        partition_index=each.partition,
                        committed_offset=offset,
                        committed_metadata=None,
                    )
                ],
            )
            for each, offset in offsets_of(words).items()
        ]
        self.ask(
            words[0],
            OffsetCommitRequest(
                group_id="g",
                generation_id_or_member_epoch=self.generation(words),
                member_id=self.ids.get(words[0], ""),
                topics=topics,
            ),
        )

    def do_fetch(self, words: list[str]) -> None:
        topics = [
            OffsetFetchTopic(name=each.topic, partition_indexes=[each.partition])
            for each in map(partition, words[1:])
        ]
        self.ask(words[0], OffsetFetchRequest(group_id="g", topics=topics))


class PushRunner(CoordinatorRunner):
    """The coordinator of the first design."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: dict[str, list[Message]] = {}
        self.records: list[Any] = []
        self.settings = PushCoordinatorSettings(brokers=BROKERS)
        self.checked = CheckedCoordinator(PushCoordinator(self.settings))

    def do_coordinator(self, words: list[str]) -> None:
        values = {name: int(value) for name, value in split_options(words).items()}
        self.settings = PushCoordinatorSettings(brokers=BROKERS, **values)
        self.checked = CheckedCoordinator(PushCoordinator(self.settings))

    def show_record(self, record: Any) -> str:
        self.records.append(record)
        name = f"{record.topic}-{record.partition}"
        if isinstance(record, OwnerRecord):
            return f"owner of {name}: {record.thread or 'deleted'}"
        return f"stores {name}={record.offset}"

    def show(self, name: str, message: Any) -> str:
        match message:
            case push.RegisterConsumerResponse(error_code=error):
                return f"RegisterConsumer {push.PushError(error).name}"
            case push.PingRequest(num_retries=retries):
                self.waiting.setdefault(name, []).append(message)
                return f"Ping {retries}"
            case push.StopFetcherRequest():
                self.waiting.setdefault(name, []).append(message)
                return "StopFetcher"
            case push.StartFetcherRequest(ownership_info=threads):
                self.waiting.setdefault(name, []).append(message)
                parts = [f"{p.topic}-{p.partition}={p.offset}" for t in threads for p in t.assigned_parts]  # fmt: skip  # noqa: E501
                return f"StartFetcher {' '.join(parts) or 'nothing'}"
        return type(message).__name__

    def topics(self, words: list[str]) -> dict[str, int]:
        return {name: int(count) for name, count in split_options(words).items()}

    def do_elect(self, words: list[str]) -> None:
        self.handle(machine.Elected(at_ms=self.now_ms, topics=self.topics(words)))

    def do_topics(self, words: list[str]) -> None:
        self.handle(machine.ClusterTopicsChanged(at_ms=self.now_ms, topics=self.topics(words)))

    def do_register(self, words: list[str]) -> None:
        name, options = words[0], split_options(words)
        session_ms = int(options.pop("session", SESSION_MS))
        group_id, wildcard = options.pop("group", "g"), options.pop("wildcard", None)
        threads = {topic: int(count) for topic, count in options.items()}
        count = static_topic_count(threads, max(threads.values(), default=1))
        self.connect(name)
        self.waiting[name] = []
        self.send(
            name,
            push.RegisterConsumerRequest(
                group_id=group_id,
                consumer_id=name.rstrip("'"),
                topic_count=count if wildcard is None else f"*1*{wildcard}",
                auto_commit=True,
                auto_offset_rest="smallest",
                session_timeout_ms=session_ms,
            ),
        )

    def do_answer(self, words: list[str]) -> None:
        name, options = words[0], split_options(words)
        request = self.waiting[name].pop(0)
        error = int(options.get("error", 0))
        offsets = [
            push.PartitionOffset(topic=each.topic, partition=f"0-{each.partition}", offset=offset)
            for each, offset in offsets_of(words).items()
        ]
        match request:
            case push.PingRequest():
                response: Message = push.PingResponse(consumer_id=name, offset_info=offsets)
            case push.StopFetcherRequest():
                response = push.StopFetcherResponse(
                    consumer_id=name, error_code=error, offset_info=offsets
                )
            case _:
                response = push.StartFetcherResponse(consumer_id=name, error_code=error)
        self.send(name, response)

    def do_settle(self, words: list[str]) -> None:
        while any(self.waiting.values()):
            for name in sorted(self.waiting):
                if self.waiting[name]:
                    self.do_answer([name])

    def do_lose(self, words: list[str]) -> None:
        self.waiting.pop(words[0], None)
        super().do_lose(words)

    def do_freeze(self, words: list[str]) -> None:
        self.switch(is_enabled=False)

    def do_thaw(self, words: list[str]) -> None:
        self.switch(is_enabled=True)

    def switch(self, *, is_enabled: bool) -> None:
        event = events.RebalancingSwitched(at_ms=self.now_ms, group_id="g", is_enabled=is_enabled)
        self.handle(event)

    def do_resign(self, words: list[str]) -> None:
        self.handle(events.Resigned(at_ms=self.now_ms))

    def do_crash(self, words: list[str]) -> None:
        """Start another coordinator with the records; ``elect`` must follow."""
        self.checked = CheckedCoordinator(PushCoordinator(self.settings))
        self.waiting.clear()
        for record in self.records:
            self.checked.apply(record)


class ConsumerRunner(ScenarioRunner):
    """The consumer of the first design."""

    checked: CheckedMember

    def __init__(self) -> None:
        super().__init__()
        self.positions: dict[TopicPartition, int] = {}

    def do_consumer(self, words: list[str]) -> None:
        options = split_options(words)
        self.checked = CheckedMember(
            PushConsumer(
                PushConsumerSettings(
                    bootstrap_brokers=BROKERS,
                    group_id="g",
                    consumer_id="c",
                    topic_count='{"t":1}',
                    session_timeout_ms=SESSION_MS,
                    auto_commit=options.get("commits", "yes") == "yes",
                    auto_offset_reset=options.get("reset", "smallest"),
                )
            )
        )

    def handle(self, event: machine.Event) -> None:
        outcome = self.checked.handle(event)
        for action in outcome.actions:
            text = self.show(action)
            if text:
                self.lines.append(f"{self.now_ms} ms {text}")
        for action in outcome.actions:
            if isinstance(action, machine.CommitDue):
                taken = {p: self.positions[p] for p in action.partitions if p in self.positions}
                self.handle(machine.PositionsTaken(at_ms=self.now_ms, positions=taken))

    def show(self, action: machine.Action) -> str:
        match action:
            case machine.CommitDue():
                return ""
            case machine.Send(message=message) | events.SendToBroker(message=message):
                return self.show_message(message)
            case events.ConnectBroker(broker=broker):
                return f"connects to broker {broker.id}"
            case events.ConnectCoordinator(broker=broker):
                return f"connects to coordinator {broker.id}"
            case machine.StartReading(offsets=offsets):
                shown = " ".join(f"{t}-{p}={at}" for (t, p), at in offsets.items())
                return f"reads {shown or 'nothing from known offsets'}"
            case machine.StopReading():
                return "stops reading"
            case events.ResetPositions(partitions=partitions, to=to):
                return f"reads {' '.join(f'{t}-{p}' for t, p in partitions)} from the {to} offset"
            case machine.ReportError(reason=reason):
                return f"fails: {reason}"
        return {"Disconnect": "disconnects", "DisconnectBroker": "leaves the broker"}[
            type(action).__name__
        ]

    def show_message(self, message: Any) -> str:
        kind = type(message).__name__
        offsets = getattr(message, "offset_info", None)
        if offsets is not None:
            kind += "".join(f" {each.topic}-{each.partition}={each.offset}" for each in offsets)
        return f"sends {kind}"

    def hear(self, message: Message) -> None:
        self.handle(machine.ResponseReceived(at_ms=self.now_ms, message=message))

    def do_start(self, words: list[str]) -> None:
        self.handle(machine.Started(at_ms=self.now_ms))

    def do_broker(self, words: list[str]) -> None:
        self.handle(events.BrokerConnected(at_ms=self.now_ms))

    def do_no_broker(self, words: list[str]) -> None:
        self.handle(events.BrokerDisconnected(at_ms=self.now_ms))

    def do_metadata(self, words: list[str]) -> None:
        coordinator = int(split_options(words).get("coordinator", 0))
        response = push.ClusterMetadataResponse(
            error_code=0 if coordinator >= 0 else push.PushError.COORDINATOR_NOT_AVAILABLE,
            coordinator_id=coordinator,
            brokers_info=list(BROKERS),
        )
        self.handle(events.BrokerResponseReceived(at_ms=self.now_ms, message=response))

    def do_connected(self, words: list[str]) -> None:
        self.handle(machine.Connected(at_ms=self.now_ms))

    def do_lost(self, words: list[str]) -> None:
        self.handle(machine.Disconnected(at_ms=self.now_ms))

    def do_registered(self, words: list[str]) -> None:
        error = push.PushError[words[0]] if words else push.PushError.NONE
        self.hear(push.RegisterConsumerResponse(error_code=error))

    def do_ping(self, words: list[str]) -> None:
        self.hear(push.PingRequest(consumer_id="c", num_retries=0))

    def do_stop(self, words: list[str]) -> None:
        self.hear(push.StopFetcherRequest(consumer_id="c"))

    def do_fetch(self, words: list[str]) -> None:
        parts = [
            push.PartitionOffset(topic=each.topic, partition=f"0-{each.partition}", offset=offset)
            for each, offset in offsets_of(words).items()
        ]
        threads = [push.ThreadOwnership(consumer_thread_id="c-0", assigned_parts=parts)]
        self.positions |= offsets_of(words)
        self.hear(
            push.StartFetcherRequest(
                consumer_id="c", ownership_info=threads if parts else [], brokers_info=list(BROKERS)
            )
        )

    def do_read(self, words: list[str]) -> None:
        self.positions |= offsets_of(words)

    def do_out_of_range(self, words: list[str]) -> None:
        found = frozenset(map(partition, words))
        self.handle(events.OffsetsOutOfRange(at_ms=self.now_ms, partitions=found))

    def do_leave(self, words: list[str]) -> None:
        self.handle(machine.LeaveRequested(at_ms=self.now_ms))

    def do_stall(self, words: list[str]) -> None:
        self.now_ms += int(words[0])

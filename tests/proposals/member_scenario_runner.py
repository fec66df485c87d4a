"""The runner of the scenarios in ``scenarios/members``: members of a design with JoinGroup.

It runs a coordinator and named members over connections without delay. Each machine is checked
after each event. Each member has its own view of the topics, which is stale until it changes.

Commands: ``coordinator multi|single [choice=] [delay=MS]``; ``topics NAME|all t=2 u=1`` (what the
brokers of a member tell it from now on); ``coordinator-topics t=2``; ``start NAME t,u [hashes=yes]
[pattern=] [coordinator-after=N] [session=MS] [join-timeout=MS]
[assignors=range,roundrobin]``; ``refresh NAME`` (the periodic
metadata refresh); ``subscribe NAME t,u``; ``read NAME t-0=5`` (the positions); ``compute NAME``
(the assignor ends), ``late NAME`` (a former one ends), ``fail NAME``; ``lose NAME`` (its connection
is closed), ``vanish`` (the coordinator's machine is lost), ``restart`` (another coordinator with
the records); ``stop NAME``, ``continue NAME`` (its process); ``leave NAME``; ``tick MS``.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from partage.assignors import Range, RoundRobin
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.proposals import machine
from partage.proposals.assignment import assign_partitions
from partage.proposals.designs.checked import CheckedCoordinator, CheckedMember
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.machine import ConnectionId
from partage.proposals.multi_assignor.coordinator import MultiAssignorCoordinator
from partage.proposals.multi_assignor.member import MultiAssignorMember, MultiAssignorOptions
from partage.proposals.single_assignor.coordinator import (
    SingleAssignorCoordinator,
    SynchronizerChoice,
)
from partage.proposals.single_assignor.member import (
    ComputeShares,
    ShareComputationFailed,
    SharesComputed,
    SingleAssignorMember,
    SingleAssignorOptions,
)
from partage.proposals.topic_pattern import TopicPattern
from partage.wire.types import Message

SESSION_MS = 9_000
_ASSIGNORS = {"roundrobin": RoundRobin(), "range": Range()}
_RETRY_MS = 1_000


class ScenarioMember:
    """A member, its connection, and the events that wait while its process is stopped."""

    def __init__(self, name: str, checked: CheckedMember) -> None:
        self.name = name
        self.checked = checked
        self.connection: ConnectionId | None = None
        self.positions: dict[TopicPartition, int] = {}
        self.computations: deque[ComputeShares] = deque()
        self.is_stopped = False
        self.waiting: deque[machine.Event] = deque()


class MemberScenarioRunner:
    """A coordinator and its members."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.lines: list[str] = []
        self.members: dict[str, ScenarioMember] = {}
        self.topics: dict[str, dict[str, int]] = {}
        self.coordinator_topics: dict[str, int] = {}
        self.records: list[Any] = []
        self.is_reachable = True
        self._events: deque[tuple[ScenarioMember | None, machine.Event]] = deque()
        self._connections = 0
        self._draws = 0

    def run(self, line: str) -> list[str]:
        """Run a command and return its effects."""
        verb, *words = line.split()
        getattr(self, f"do_{verb.replace('-', '_')}")(words)
        self._settle()
        lines, self.lines = self.lines, []
        return lines

    # The coordinator

    def do_coordinator(self, words: list[str]) -> None:
        options = _options(words)
        self.settings = CoordinatorSettings(initial_rebalance_delay_ms=int(options.get("delay", 0)))
        self.is_multi = words[0] == "multi"
        self.choice = SynchronizerChoice(options.get("choice", "newest"))
        self._start_coordinator()

    def _start_coordinator(self) -> None:
        self.checked = CheckedCoordinator(
            MultiAssignorCoordinator(self.settings)
            if self.is_multi
            else SingleAssignorCoordinator(self.settings, choice=self.choice)
        )
        for record in self.records:
            self.checked.apply(record)
        self.is_reachable = True

    def do_vanish(self, words: list[str]) -> None:
        self.is_reachable = False

    def do_restart(self, words: list[str]) -> None:
        self._start_coordinator()
        for member in self.members.values():
            if member.connection is not None:
                member.connection = None
                self._events.append((member, machine.Disconnected(at_ms=0)))

    def do_coordinator_topics(self, words: list[str]) -> None:
        self.coordinator_topics = _counts(words)

    # The members

    def do_topics(self, words: list[str]) -> None:
        self.topics[words[0]] = _counts(words[1:])

    def _topics_of(self, name: str) -> dict[str, int]:
        return dict(self.topics.get(name, self.topics["all"]))

    def do_start(self, words: list[str]) -> None:
        name, options = words[0], _options(words)
        topics = frozenset() if "pattern" in options else frozenset(words[1].split(","))
        pattern = TopicPattern(options["pattern"]) if "pattern" in options else None
        settings = DesignMemberSettings(
            group_id="g",
            session_timeout_ms=int(options.get("session", SESSION_MS)),
            retry_backoff_ms=_RETRY_MS,
            join_timeout_ms=int(options.get("join-timeout", 60_000)),
        )
        after = options.get("coordinator-after")
        created = (
            MultiAssignorMember(
                settings,
                topics,
                MultiAssignorOptions(
                    assignors=tuple(
                        _ASSIGNORS[each]
                        for each in options.get("assignors", "roundrobin").split(",")
                    ),
                    pattern=pattern,
                    hashes_subscription=options.get("hashes") == "yes",
                    coordinator_metadata_after=None if after is None else int(after),
                ),
            )
            if self.is_multi
            else SingleAssignorMember(
                settings, topics, SingleAssignorOptions(assignor=RoundRobin(), pattern=pattern)
            )
        )
        member = self.members[name] = ScenarioMember(name, CheckedMember(created))
        self._events.append((member, machine.Started(at_ms=0)))

    def do_refresh(self, words: list[str]) -> None:
        self._to_member(
            words, machine.PartitionCountsChanged(at_ms=0, topics=self._topics_of(words[0]))
        )

    def do_subscribe(self, words: list[str]) -> None:
        topics = frozenset(words[1].split(","))
        self._to_member(words, machine.SubscriptionChanged(at_ms=0, topics=topics))

    def do_read(self, words: list[str]) -> None:
        for word in words[1:]:
            name, offset = word.split("=")
            topic, number = name.rsplit("-", 1)
            self.members[words[0]].positions[TopicPartition(topic, int(number))] = int(offset)

    def do_leave(self, words: list[str]) -> None:
        self._to_member(words, machine.LeaveRequested(at_ms=0))

    def do_compute(self, words: list[str]) -> None:
        self._compute(words, self.members[words[0]].computations.pop())

    def do_late(self, words: list[str]) -> None:
        self._compute(words, self.members[words[0]].computations.popleft())

    def _compute(self, words: list[str], action: ComputeShares) -> None:
        shares = assign_partitions(action.assignor, action.members, action.topics)
        self._to_member(words, SharesComputed(at_ms=0, number=action.number, shares=shares))

    def do_fail(self, words: list[str]) -> None:
        action = self.members[words[0]].computations.pop()
        self._to_member(words, ShareComputationFailed(at_ms=0, number=action.number))

    def do_lose(self, words: list[str]) -> None:
        member = self.members[words[0]]
        self._close(member)
        self._events.append((member, machine.Disconnected(at_ms=0)))

    def do_stop(self, words: list[str]) -> None:
        self.members[words[0]].is_stopped = True

    def do_continue(self, words: list[str]) -> None:
        """The timers that became due meanwhile fire first, then what has arrived is handled."""
        member = self.members[words[0]]
        member.is_stopped = False
        for key, at_ms in sorted(member.checked.armed.items(), key=lambda item: item[1]):
            if at_ms <= self.now_ms:
                self._events.append((member, machine.TimerFired(at_ms=0, key=key)))
        self._events += [(member, event) for event in member.waiting]
        member.waiting.clear()

    def _to_member(self, words: list[str], event: machine.Event) -> None:
        self._events.append((self.members[words[0]], event))

    # Time

    def do_tick(self, words: list[str]) -> None:
        until_ms = self.now_ms + int(words[0])
        while True:
            self._settle()
            due = [
                (at_ms, str(key), index, key, member)
                for index, (member, checked) in enumerate(self._running)
                for key, at_ms in checked.armed.items()
                if at_ms <= until_ms
            ]
            if not due:
                break
            at_ms, _, _, key, member = min(due, key=lambda each: each[:3])
            self.now_ms = max(self.now_ms, at_ms)
            self._events.append((member, machine.TimerFired(at_ms=0, key=key)))
        self.now_ms = until_ms

    @property
    def _running(self) -> list[tuple[ScenarioMember | None, CheckedCoordinator | CheckedMember]]:
        """The machines whose timers fire; the coordinator has no member."""
        found: list[tuple[ScenarioMember | None, CheckedCoordinator | CheckedMember]] = []
        if self.is_reachable:
            found.append((None, self.checked))
        found += [(m, m.checked) for m in self.members.values() if not m.is_stopped]
        return found

    def _settle(self) -> None:
        """Handle all events, and those that follow from them."""
        while self._events:
            member, event = self._events.popleft()
            if member is None:
                self._handle_at_coordinator(event)
            elif member.is_stopped:
                member.waiting.append(event)
            else:
                self._handle_at_member(member, event)

    def _handle_at_coordinator(self, event: machine.Event) -> None:
        self._draws += 1
        event = _at(event, self.now_ms, draw=self._draws)
        outcome = self.checked.handle(event)
        self.records += outcome.records
        for connection, message in outcome.sends:
            for member in self.members.values():
                if member.connection == connection:
                    received = machine.ResponseReceived(at_ms=0, message=message)
                    self._events.append((member, received))

    def _handle_at_member(self, member: ScenarioMember, event: machine.Event) -> None:
        outcome = member.checked.handle(_at(event, self.now_ms))
        for action in outcome.actions:
            text = self._perform(member, action)
            if text:
                self.lines.append(f"{self.now_ms} ms {member.name}: {text}")

    # Actions

    def _perform(self, member: ScenarioMember, action: machine.Action) -> str:
        match action:
            case machine.Connect():
                self._close(member)
                self._connections += 1
                if not self.is_reachable:
                    self._events.append((member, machine.Disconnected(at_ms=0)))
                    return "finds no coordinator"
                member.connection = ConnectionId(self._connections)
                self._events.append((member, machine.Connected(at_ms=0)))
                return "connects"
            case machine.Disconnect():
                self._close(member)
                return "disconnects"
            case machine.Send(message=message):
                if self.is_reachable and member.connection is not None:
                    received = machine.MessageReceived(
                        at_ms=0, connection=member.connection, message=message, draw=0
                    )
                    self._events.append((None, received))
                return _request_text(message)
            case machine.FetchMetadata(is_from_coordinator=is_from_coordinator):
                topics = (
                    dict(self.coordinator_topics)
                    if is_from_coordinator
                    else self._topics_of(member.name)
                )
                self._events.append((member, machine.MetadataFetched(at_ms=0, topics=topics)))
                shown = " ".join(f"{name}={count}" for name, count in topics.items())
                source = "the coordinator" if is_from_coordinator else "a broker"
                return f"fetches {shown} from {source}"
            case machine.CommitDue(partitions=partitions):
                positions = {p: member.positions[p] for p in partitions if p in member.positions}
                taken = machine.PositionsTaken(at_ms=0, positions=positions)
                self._events.appendleft((member, taken))
                return ""
            case machine.StartReading(offsets=offsets):
                shown = " ".join(f"{t}-{p}={at}" for (t, p), at in sorted(offsets.items()))
                return f"reads {shown} in generation {self._generation(member)}"
            case machine.StopReading():
                return "stops reading"
            case machine.ResumeReading(partitions=partitions):
                return f"resumes {' '.join(map(str, sorted(partitions)))}"
            case machine.ReportError(reason=reason):
                return f"fails: {reason}"
            case ComputeShares():
                member.computations.append(action)
                return "runs the assignor"
        raise AssertionError(f"unexpected action {action}")

    def _generation(self, member: ScenarioMember) -> int:
        generation: int = member.checked.generation
        return generation

    def _close(self, member: ScenarioMember) -> None:
        if member.connection is not None and self.is_reachable:
            lost = machine.ConnectionLost(at_ms=0, connection=member.connection)
            self._events.append((None, lost))
        member.connection = None


def _at(event: Any, at_ms: int, **changes: Any) -> machine.Event:
    known = {name: value for name, value in changes.items() if hasattr(event, name)}
    values = {name: getattr(event, name) for name in event.__struct_fields__}
    changed: machine.Event = type(event)(**{**values, "at_ms": at_ms, **known})
    return changed


def _request_text(message: Message) -> str:
    """Return the text of a request; heartbeats and look-ups of offsets are left out."""
    name = type(message).__name__.removesuffix("Request")
    if name in ("Heartbeat", "OffsetFetch"):
        return ""
    if name == "OffsetCommit":
        topics: Any = getattr(message, "topics", ())
        shown = [
            f"{t.name}-{p.partition_index}={p.committed_offset}"
            for t in topics
            for p in t.partitions
        ]
        return f"commits {' '.join(shown)}"
    synchronized: Any = getattr(message, "synchronized", None)
    if synchronized is not None:
        error = synchronized.error_code
        return f"sends {ErrorCode(error).name if error else 'all shares'}"
    return f"sends {name}"


def _options(words: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words if "=" in word)


def _counts(words: list[str]) -> dict[str, int]:
    return {name: int(count) for name, count in _options(words).items()}

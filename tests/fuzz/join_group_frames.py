"""The frames of the designs with JoinGroup, at a coordinator and at a member."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from fuzz.corruption import damaged, reframed
from fuzz.targets import WAYS
from partage.assignors import RoundRobin
from partage.proposals import machine
from partage.proposals.assignment import assign_partitions
from partage.proposals.join_group.coordinator import JoinGroupCoordinator
from partage.proposals.join_group.frames import CoordinatorFrames, MemberFrames, ProtocolVersions
from partage.proposals.join_group.member import DesignMember
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.machine import ConnectionId
from partage.proposals.multi_assignor import messages as multi
from partage.proposals.multi_assignor.coordinator import MultiAssignorCoordinator
from partage.proposals.multi_assignor.member import MultiAssignorMember, MultiAssignorOptions
from partage.proposals.simulation.message_sizes import SHARED_APIS
from partage.proposals.single_assignor import messages as single
from partage.proposals.single_assignor.coordinator import SingleAssignorCoordinator
from partage.proposals.single_assignor.member import (
    ComputeShares,
    SharesComputed,
    SingleAssignorMember,
    SingleAssignorOptions,
)
from partage.wire.primitives import MalformedError
from partage.wire.types import Message

_PARTITIONS: Final = 3
_QUIET: Final = ConnectionId(1)
_SETTINGS: Final = CoordinatorSettings(initial_rebalance_delay_ms=0)
_TOPICS: Final = {"t": _PARTITIONS}


class _Side:
    """A member with its connection. ``requests`` are the requests that it has sent."""

    def __init__(self, design: _Group, connection: ConnectionId, group_id: str) -> None:
        self.connection = connection
        self.frames = MemberFrames(design.versions)
        self.at_coordinator = CoordinatorFrames(design.versions)
        self.machine = design.member(group_id)
        self.requests: list[Message] = []
        self.responses: list[Message] = []
        self._design = design

    def run(self, *events: machine.Event) -> None:
        """Handle events and what follows from them, until the member waits."""
        waiting = list(events)
        while waiting:
            for action in self.machine.handle(waiting.pop(0)).actions:
                match action:
                    case machine.Connect():
                        waiting.append(machine.Connected(at_ms=0))
                    case machine.FetchMetadata():
                        waiting.append(machine.MetadataFetched(at_ms=0, topics=_TOPICS))
                    case ComputeShares(members=members):
                        shares = assign_partitions(action.assignor, members, action.topics)
                        waiting.append(SharesComputed(at_ms=0, number=action.number, shares=shares))
                    case machine.Send(message=message):
                        waiting += self._exchange(message)

    def _exchange(self, request: Message) -> list[machine.Event]:
        self.requests.append(request)
        frame = b"".join(self.frames.encode(request))
        outcome = self._design.deliver(self.connection, self.at_coordinator.decode(frame))
        events: list[machine.Event] = []
        for to, response in outcome.sends:
            assert to == self.connection
            message = self.frames.decode(b"".join(self.at_coordinator.encode(response)))
            self.responses.append(message)
            events.append(machine.ResponseReceived(at_ms=0, message=message))
        return events


class _Group:
    """A coordinator of one of the two designs."""

    coordinator: JoinGroupCoordinator

    def __init__(self, rng: Random) -> None:
        self._is_single = rng.random() < 0.5
        if self._is_single:
            self.versions = ProtocolVersions((*SHARED_APIS, (single.JOIN_GROUP, 0)))
            self.coordinator = SingleAssignorCoordinator(_SETTINGS)
        else:
            self.versions = ProtocolVersions((*SHARED_APIS, (multi.JOIN_GROUP, 0)))
            self.coordinator = MultiAssignorCoordinator(_SETTINGS)
        self._draw = 0

    def member(self, group_id: str) -> DesignMember:
        """Return a new member of the design."""
        settings, topics = DesignMemberSettings(group_id=group_id), frozenset(_TOPICS)
        if self._is_single:
            options = SingleAssignorOptions(assignor=RoundRobin())
            return SingleAssignorMember(settings, topics, options)
        options = MultiAssignorOptions(assignors=(RoundRobin(),))
        return MultiAssignorMember(settings, topics, options)

    def deliver(
        self, connection: ConnectionId, message: Message
    ) -> machine.CoordinatorOutcome[Any, Any]:
        """Hand a message to the coordinator."""
        self._draw += 1
        event = machine.MessageReceived(
            at_ms=0, connection=connection, message=message, draw=self._draw
        )
        return self.coordinator.handle(event)


class JoinGroupFrames:
    """Damaged frames of one client: a member of another group must not notice them."""

    def try_one(self, rng: Random) -> list[str]:
        group = _Group(rng)
        quiet = _Side(group, _QUIET, "quiet")
        quiet.run(machine.Started(at_ms=0))
        assert len(quiet.machine.owned) == _PARTITIONS
        noisy = _Side(group, ConnectionId(2), "noisy")
        noisy.run(machine.Started(at_ms=0))
        outcomes = [self._try(rng, group, noisy, ConnectionId(3 + n)) for n in range(WAYS)]
        quiet.run(machine.TimerFired(at_ms=0, key="heartbeat"))
        assert quiet.machine.is_stable
        assert len(quiet.machine.owned) == _PARTITIONS
        return outcomes

    def _try(self, rng: Random, group: _Group, noisy: _Side, connection: ConnectionId) -> str:
        if rng.random() < 0.4:
            return _respond(rng, group, noisy)
        frames = CoordinatorFrames(group.versions)
        sender = MemberFrames(group.versions)
        frame = _damage(rng, sender.encode(rng.choice(noisy.requests)))
        try:
            message = frames.decode(frame)
        except MalformedError:
            return "malformed"
        outcome = group.deliver(connection, message)
        for to, response in outcome.sends:
            if to == connection:
                frames.encode(response)
        group.coordinator.handle(machine.ConnectionLost(at_ms=0, connection=connection))
        return "answered" if outcome.sends else "parked"


def _respond(rng: Random, group: _Group, noisy: _Side) -> str:
    """Send a damaged response to a member that waits for it."""
    number = rng.randrange(len(noisy.requests))
    sender, receiver = MemberFrames(group.versions), CoordinatorFrames(group.versions)
    receiver.decode(b"".join(sender.encode(noisy.requests[number])))
    frame = _damage(rng, receiver.encode(noisy.responses[number]))
    try:
        message = sender.decode(frame)
    except MalformedError:
        return "malformed response"
    member = group.member("noisy")
    for event in (
        machine.Started(at_ms=0),
        machine.Connected(at_ms=0),
        machine.MetadataFetched(at_ms=0, topics=_TOPICS),
    ):
        member.handle(event)
    member.handle(machine.ResponseReceived(at_ms=0, message=message))
    return "response"


def _damage(rng: Random, frame: list[bytes | bytearray | memoryview]) -> bytes:
    return reframed(rng, damaged(rng, b"".join(frame)[4:]))

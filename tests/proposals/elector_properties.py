"""A state machine for Hypothesis: any order of sessions, answers and deletions at three electors of
the first design.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from partage.proposals.broker_side.elector import (
    CreateNode,
    Elector,
    ElectorState,
    NodeCreated,
    NodeDeleted,
    NodeExists,
    SessionExpired,
    SessionStarted,
    StartCoordinator,
    StopCoordinator,
    WatchNode,
)
from partage.proposals.machine import Action, Event

from .coordinator_properties import walk_lengths, walk_seeds

numbers = st.integers(0, 5)


def choose(brokers: Iterable[int], number: int) -> Iterable[int]:
    """Yield one of the brokers, if there is one."""
    known = sorted(brokers)
    if known:
        yield known[number % len(known)]


class ElectorMachine(RuleBasedStateMachine):
    """Three electors, and the node in ZooKeeper. Its answers wait until they are delivered."""

    def __init__(self) -> None:
        super().__init__()
        self.electors = [Elector(number) for number in range(3)]
        self.answers: list[list[type[Event]]] = [[], [], []]
        self.sessions: set[int] = set()
        self.connected: set[int] = set()  # the brokers that believe that they have a session
        self.coordinators: set[int] = set()
        self.owner: int | None = None
        self.watchers: set[int] = set()

    @initialize(seed=walk_seeds, length=walk_lengths)
    def walk(self, seed: int, length: int) -> None:
        """Begin with random steps. Hypothesis leaves out some rules in most examples."""
        random = Random(seed)
        for _ in range(length):
            number = random.randrange(6)
            match random.randrange(8):
                case 0 | 1:
                    self.start_session(number)
                case 2 | 3:
                    is_noticed_first, is_noticed = random.random() < 0.5, random.random() < 0.7
                    self.expire(number, is_noticed_first, is_noticed)
                case 4:
                    self.delete_node()
                case _:
                    self.deliver(number)

    @rule(number=numbers)
    def start_session(self, number: int) -> None:
        """Start a session. A client drops the answers of an earlier one."""
        for each in choose({0, 1, 2} - self.sessions, number):
            self.sessions.add(each)
            self.answers[each].clear()
            self.handle(each, SessionStarted)

    @rule(number=numbers, is_noticed_first=st.booleans(), is_noticed=st.booleans())
    def expire(self, number: int, is_noticed_first: bool, is_noticed: bool) -> None:
        """Expire a session. Its broker may notice it before or after the last answers, or never."""
        for each in choose(self.sessions, number):
            self.sessions.discard(each)
            self.watchers.discard(each)
            if self.owner == each:
                self.delete_node()
            if is_noticed:
                place = 0 if is_noticed_first else len(self.answers[each])
                self.answers[each].insert(place, SessionExpired)

    @rule()
    def delete_node(self) -> None:
        """The session of the owner has expired, or an administrator deletes the node."""
        self.owner = None
        notified, self.watchers = self.watchers, set()
        for each in notified:
            self.answers[each].append(NodeDeleted)

    @rule(number=numbers)
    def deliver(self, number: int) -> None:
        for each in choose((n for n in range(3) if self.answers[n]), number):
            self.handle(each, self.answers[each].pop(0))

    def handle(self, number: int, kind: type[Event]) -> None:
        if kind is SessionStarted:
            self.connected.add(number)
        if kind is SessionExpired:
            self.connected.discard(number)
        for action in self.electors[number].handle(kind(at_ms=0)):
            self.perform(number, action)

    def perform(self, number: int, action: Action) -> None:
        match action:
            case StartCoordinator():
                assert number not in self.coordinators, "it coordinates already"
                assert number in self.connected, "its session has expired"
                self.coordinators.add(number)
            case StopCoordinator():
                self.coordinators.remove(number)
            case CreateNode(data=data) if number in self.sessions:  # else its end is to be noticed
                assert data == str(number)
                is_free = self.owner is None
                self.owner = number if is_free else self.owner
                self.answers[number].append(NodeCreated if is_free else NodeExists)
            case WatchNode() if number in self.sessions:
                is_coordinator = self.electors[number].state is ElectorState.COORDINATOR
                # The shell reports the node of another session to a coordinator as deleted.
                if self.owner is None or (is_coordinator and self.owner != number):
                    self.answers[number].append(NodeDeleted)
                else:
                    self.watchers.add(number)

    def teardown(self) -> None:
        """Deliver everything: the owner of the node coordinates, and so does no other broker."""
        self.deliver_all()
        assert self.owner is not None or not self.sessions, "no broker tries to create the node"
        for number in range(3):
            self.start_session(number)
        self.deliver_all()
        assert self.coordinators == {self.owner}, f"{self.coordinators} coordinate"

    def deliver_all(self) -> None:
        while any(self.answers):
            for number in range(3):
                self.deliver(number)

"""The election of the first design's coordinator, with a model of ZooKeeper's node."""

from __future__ import annotations

from random import Random

import pytest

from partage.proposals.broker_side.elector import (
    ELECTOR_STATE_DESCRIPTIONS,
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

PATH = "/consumers/coordinator"
CREATE = CreateNode(path=PATH, data="7")
WATCH = WatchNode(path=PATH)


def handle(elector: Elector, kind: type[Event]) -> list[Action]:
    return elector.handle(kind(at_ms=0))


def elected() -> Elector:
    elector = Elector(7)
    assert handle(elector, SessionStarted) == [CREATE]
    assert handle(elector, NodeCreated) == [StartCoordinator(), WATCH]
    return elector


def test_loser_watches_the_node_and_tries_again_when_it_is_deleted() -> None:
    elector = Elector(7)
    handle(elector, SessionStarted)
    assert handle(elector, NodeExists) == [WATCH]
    assert elector.state is ElectorState.FOLLOWING
    assert handle(elector, NodeDeleted) == [CREATE]


def test_expired_session_stops_the_coordinator_until_the_next_session() -> None:
    elector = elected()
    assert handle(elector, SessionExpired) == [StopCoordinator()]
    assert handle(elector, NodeDeleted) == []  # the watch of the old session
    assert handle(elector, SessionStarted) == [CREATE]


def test_deleted_node_of_a_live_session_stops_the_coordinator() -> None:
    assert handle(elected(), NodeDeleted) == [StopCoordinator(), CREATE]


def test_new_session_without_notice_of_the_old_one_stops_the_coordinator() -> None:
    assert handle(elected(), SessionStarted) == [StopCoordinator(), CREATE]


@pytest.mark.parametrize("kind", [NodeCreated, NodeExists, NodeDeleted])
def test_late_answer_of_an_earlier_session_is_ignored(kind: type[Event]) -> None:
    elector = Elector(7)
    assert handle(elector, kind) == []
    assert elector.state is ElectorState.DISCONNECTED


@pytest.mark.parametrize("seed", range(20))
def test_one_of_several_brokers_is_the_coordinator(seed: int) -> None:
    """Sessions of brokers expire at random; each broker then starts another one."""
    rng = Random(seed)
    electors = [Elector(number) for number in range(3)]
    coordinators: set[int] = set()
    owner: int | None = None
    watchers: set[int] = set()

    def run(number: int, kind: type[Event]) -> None:
        nonlocal owner
        for action in handle(electors[number], kind):
            match action:
                case CreateNode(data=data):
                    assert data == str(number)
                    is_free = owner is None
                    owner = number if is_free else owner
                    run(number, NodeCreated if is_free else NodeExists)
                case WatchNode():
                    watchers.add(number)
                case StartCoordinator():
                    coordinators.add(number)
                case StopCoordinator():
                    coordinators.remove(number)

    for number in range(3):
        run(number, SessionStarted)
    for _ in range(10):
        assert owner is not None
        assert coordinators == {owner}
        number = rng.randrange(3)
        run(number, SessionExpired)
        watchers.discard(number)
        if owner == number:
            owner = None
            notified, watchers = sorted(watchers), set()
            rng.shuffle(notified)
            for each in notified:
                run(each, NodeDeleted)
        run(number, SessionStarted)


def test_states_are_described() -> None:
    assert ELECTOR_STATE_DESCRIPTIONS.keys() == set(ElectorState)

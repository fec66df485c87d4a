"""The election of the coordinator: the broker that creates the ephemeral node (section 5)."""

from __future__ import annotations

from enum import StrEnum

from partage.proposals.broker_side.records import COORDINATOR_PATH
from partage.proposals.machine import Action, Event


class ElectorState(StrEnum):
    """The states of an elector."""

    DISCONNECTED = "Disconnected"
    ELECTING = "Electing"
    COORDINATOR = "Coordinator"
    FOLLOWING = "Following"


#: The meaning of each state, for the documentation.
ELECTOR_STATE_DESCRIPTIONS: dict[ElectorState, str] = {
    ElectorState.DISCONNECTED: "The broker has no ZooKeeper session.",
    ElectorState.ELECTING: "The broker tries to create the node of the coordinator.",
    ElectorState.COORDINATOR: "The node belongs to the session of the broker.",
    ElectorState.FOLLOWING: "Another broker is the coordinator. The node is watched.",
}


class SessionStarted(Event, frozen=True, gc=False, kw_only=True):
    """The broker has a new ZooKeeper session."""


class SessionExpired(Event, frozen=True, gc=False, kw_only=True):
    """The ZooKeeper session ended, and its ephemeral nodes are deleted."""


class NodeCreated(Event, frozen=True, gc=False, kw_only=True):
    """The answer to `CreateNode`: the node belongs to this session."""


class NodeExists(Event, frozen=True, gc=False, kw_only=True):
    """The answer to `CreateNode`: the node belongs to another session."""


class NodeDeleted(Event, frozen=True, gc=False, kw_only=True):
    """The watched node was deleted, or did not exist when the watch was set."""


class CreateNode(Action, frozen=True, gc=False, kw_only=True):
    """Create an ephemeral node; then `NodeCreated` or `NodeExists`."""

    path: str
    data: str


class WatchNode(Action, frozen=True, gc=False, kw_only=True):
    """Watch a node; `NodeDeleted` follows when it does not exist any longer."""

    path: str


class StartCoordinator(Action, frozen=True, gc=False, kw_only=True):
    """Apply the nodes of ZooKeeper to the coordinator, watch the topics, and deliver `Elected`."""


class StopCoordinator(Action, frozen=True, gc=False, kw_only=True):
    """Deliver `Resigned` to the coordinator."""


class Elector:
    """The elector of one broker.

    Args:
        broker_id: The id of the broker, which is the data of the node.
    """

    def __init__(self, broker_id: int) -> None:
        self.state = ElectorState.DISCONNECTED
        self._node = CreateNode(path=COORDINATOR_PATH, data=str(broker_id))

    def handle(self, event: Event) -> list[Action]:
        """Handle an event and return the actions for the shell, in order."""
        match event:
            case SessionStarted():
                return [*self._resign(), *self._elect()]
            case SessionExpired():
                actions = self._resign()
                self.state = ElectorState.DISCONNECTED
                return actions
            case NodeCreated() if self.state is ElectorState.ELECTING:
                self.state = ElectorState.COORDINATOR
                # An administrator may delete the node of a live session.
                return [StartCoordinator(), WatchNode(path=COORDINATOR_PATH)]
            case NodeExists() if self.state is ElectorState.ELECTING:
                self.state = ElectorState.FOLLOWING
                return [WatchNode(path=COORDINATOR_PATH)]
            case NodeDeleted() if self.state in (
                ElectorState.COORDINATOR,
                ElectorState.FOLLOWING,
            ):
                return [*self._resign(), *self._elect()]
            case _:
                return []  # an answer to a request of an earlier session

    def _elect(self) -> list[Action]:
        self.state = ElectorState.ELECTING
        return [self._node]

    def _resign(self) -> list[Action]:
        return [StopCoordinator()] if self.state is ElectorState.COORDINATOR else []

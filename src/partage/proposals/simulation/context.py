"""The part of a world that its processes use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from partage.lab.environment.clock import Clock
from partage.proposals.simulation.design import Design
from partage.proposals.simulation.network import DesignNetwork
from partage.proposals.simulation.observer import WorldObserver
from partage.proposals.simulation.readers import Readers
from partage.proposals.simulation.traffic import Traffic
from partage.wire.types import Message


class Coordinator(ABC):
    """The coordinator's process, as members see it."""

    is_alive: bool

    @abstractmethod
    def accept(self, link: Any) -> None:
        """Serve a new connection."""


class DesignWorldContext(ABC):
    """The clock, network and counts of a world.

    ``unsettled`` has the members that may have become unstable since `World.is_stable` checked.
    """

    design: Design
    clock: Clock
    network: DesignNetwork
    readers: Readers
    traffic: Traffic
    cpu_clock_ns: Callable[[], int]
    disk_delay_ms: int
    is_rebalancing_on: bool
    observer: WorldObserver
    coordinator: Coordinator | None
    unsettled: dict[Any, None]

    @abstractmethod
    def new_rng(self, purpose: str) -> Random:
        """Return a random generator for one purpose."""

    @abstractmethod
    def metadata(self, rng: Random, *, is_from_coordinator: bool) -> dict[str, int]:
        """Return the topics as a broker knows them. Every other broker may be stale."""

    @abstractmethod
    def count_message(self, message: Message) -> None:
        """Count a message of the coordinator."""

    @abstractmethod
    def on_durable(self, records: Sequence[Any]) -> None:
        """Note the offsets among records that are durable."""

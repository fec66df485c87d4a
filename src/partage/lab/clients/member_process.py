"""The shell of a consumer process in a world: its member state machine, time and connections.

The process can crash or pause at any moment. `ConsumerProcess` performs the actions of the member.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import Final

from partage.bridge.consumer_protocol import PROTOCOL_TYPE
from partage.lab import history
from partage.lab.clients.client_connection import ClientConnection
from partage.lab.context import WorldContext
from partage.lab.coverage import consumer_coverage_key
from partage.lab.options import PARKED_LAPSE_MS, REQUEST_TIMEOUT_MS
from partage.member import events, invariants, outcome
from partage.member.ownership import Ownership
from partage.member.settings import MemberSettings
from partage.member.states import MemberState
from partage.member.timers import MemberTimer
from partage.model.rebalance_protocol import RebalanceProtocol
from partage.model.topic_partition import TopicPartition
from partage.runtime.timers import TimerQueue

_NOT_MEMBER_STATES: Final = frozenset({MemberState.UNSUBSCRIBED, MemberState.FATAL})


class MemberProcess(ABC):
    """A process with one member of a group."""

    def __init__(
        self,
        world: WorldContext,
        name: str,
        group_id: str,
        topics: frozenset[str],
        rebalance_protocol: RebalanceProtocol,
        instance_id: str | None,
    ) -> None:
        self.world = world
        self.name = name
        self.group_id = group_id
        self.topics = topics
        self.instance_id = instance_id
        self.rng = Random(f"{world.scenario.seed} {name}")
        self.is_alive = True
        self.is_paused = False
        self.coordinator_id = 1  # the last coordinator found
        #: The listener callback that is not yet called.
        self.pending_callback: outcome.CallListener | None = None
        self._deferred_calls: list[Callable[[], None]] = []
        self._timers: TimerQueue[MemberTimer] = TimerQueue()
        self._wake_ms: int | None = None
        self._generation = -1  # the last generation in which it was Stable
        self._owned: frozenset[TopicPartition] = frozenset()
        self._recorded: frozenset[TopicPartition] = frozenset()  # as recorded in the history
        options = world.options
        # a static member needs API versions that have instance ids
        below_max = options.versions_below_newest_max
        self._versions_below_newest = min(below_max, 1) if instance_id else below_max
        self.core = Ownership(
            MemberSettings(
                group_id=group_id,
                protocol_type=PROTOCOL_TYPE,
                instance_id=instance_id,
                session_timeout_ms=options.session_timeout_ms,
                heartbeat_interval_ms=options.heartbeat_interval_ms,
                rebalance_timeout_ms=options.rebalance_timeout_ms,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                max_poll_interval_ms=options.max_poll_interval_ms,
                parked_request_grace_ms=PARKED_LAPSE_MS,
            ),
            rebalance_protocol,
        )

    # Time

    def when_awake(self, call: Callable[[], None]) -> None:
        """Call now, or after the pause if the process is paused. A dead process drops the call."""
        if self.is_paused:
            self._deferred_calls.append(call)
        elif self.is_alive:
            call()

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call after a delay, or later if the process is paused then."""
        self.world.clock.call_later(delay_ms, lambda: self.when_awake(call))

    def pause(self, for_ms: int) -> None:
        """Pause the process for a time."""
        if not self.is_paused:
            self.is_paused = True
            self.world.clock.call_later(for_ms, self.resume)

    def resume(self) -> None:
        """End the pause. The member gets the current time before any deferred call runs."""
        if not self.is_paused:
            return
        self.is_paused = False
        deferred, self._deferred_calls = self._deferred_calls, []
        if self.is_alive:
            is_in_poll = self.core.membership.is_in_poll
            self.handle(events.Polled(at_ms=self.world.now_ms, is_in_poll=is_in_poll))
        for call in deferred:
            self.when_awake(call)

    # Events

    def handle(self, event: events.Event) -> None:
        """Let the member handle an event, and perform the resulting actions."""
        if not self.is_alive:
            return
        core = self.core
        self.world.consumer_coverage[consumer_coverage_key(core.membership.state, event)] += 1
        result = core.handle(event)
        for action in result.actions:
            self._perform_action(action)
        for key, deadline_ms in result.timers:
            self._arm(key, deadline_ms)
        if self.world.has_invariant_checks:
            invariants.check_ownership(core, self._timers.armed)
        if core.owned != self._owned:
            self._owned = core.owned
            self._on_owned_changed(core.owned)
        membership = core.membership
        owned = core.owned if membership.is_in_generation else frozenset()
        if membership.state is MemberState.STABLE and membership.generation != self._generation:
            self._generation, self._recorded = membership.generation, owned
            self._record_ownership()
        elif owned != self._recorded:
            self._recorded = owned
            self._record_ownership()

    @abstractmethod
    def _perform_action(self, action: outcome.Action) -> None:
        """Perform an action of the member."""

    @abstractmethod
    def _on_owned_changed(self, owned: frozenset[TopicPartition]) -> None:
        """Handle a change of the owned partitions."""

    def _record_ownership(self) -> None:
        """Append the partitions that the process owns, as far as it knows, to the history."""
        membership = self.core.membership
        self.world.append_history(
            history.OwnershipChanged(
                at_ms=self.world.now_ms,
                process=self.name,
                group_id=self.group_id,
                member_id=membership.member_id,
                generation=membership.generation,
                partitions=tuple(sorted(self._recorded)) if self.is_alive else (),
            )
        )

    def _arm(self, key: MemberTimer, deadline_ms: int | None) -> None:
        # jittered, as in the production driver
        if deadline_ms is not None and key is MemberTimer.RETRY:
            wait_ms = max(0, deadline_ms - self.world.now_ms)
            deadline_ms = self.world.now_ms + int(wait_ms * self.rng.uniform(0.8, 1.2))
        self._timers.set(key, deadline_ms)
        self._wake()

    def _wake(self) -> None:
        """Schedule a wake-up for the next timer. It replaces a later one."""
        wake_ms = self._timers.wake_at_ms()
        if wake_ms is not None and (self._wake_ms is None or wake_ms < self._wake_ms):
            self._wake_ms = wake_ms
            self.call_later(max(0, wake_ms - self.world.now_ms), lambda: self._fire(wake_ms))

    def _fire(self, wake_ms: int) -> None:
        if wake_ms != self._wake_ms:
            return
        self._wake_ms = None
        now_ms = self.world.now_ms
        for key in self._timers.pop_due(now_ms):
            self.handle(events.TimerFired(at_ms=now_ms, key=key))
        self._wake()

    # Connections

    def connect(
        self,
        broker_id: int,
        on_lost: Callable[[], None],
        on_opened: Callable[[ClientConnection | None], None],
    ) -> ClientConnection:
        """Open a new connection to a broker.

        Args:
            broker_id: The broker.
            on_lost: Called when the connection is lost later.
            on_opened: Called with the open connection, or with None if it failed.

        Returns:
            The connection, which is not open yet.
        """
        connection = ClientConnection(
            self.world.network,
            self.name,
            broker_id,
            self._versions_below_newest,
            on_lost,
            self.when_awake,
        )
        connection.open(lambda is_open: on_opened(connection if is_open else None))
        return connection

    # State

    @property
    def is_member(self) -> bool:
        """True if the process is a member of its group or wants to be."""
        return self.is_alive and self.core.membership.state not in _NOT_MEMBER_STATES

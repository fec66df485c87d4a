"""A consumer process of a world: a shell on the virtual clock around the member state machine.

It corresponds to the group driver and the consumer's group subscription in `partage.client` on
asyncio. It finds the coordinator, performs the actions of the member, runs listener callbacks, and
publishes the partitions that may be delivered. Fetching and committing are in `poll_loop`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final

from partage.bridge.consumer_protocol import PROTOCOL_TYPE, ConsumerProtocol
from partage.bridge.member_requests import MemberRequest, to_error_code, to_event, to_request
from partage.lab import history
from partage.lab.clients.assignor_runner import AssignorRunner
from partage.lab.clients.client_connection import ClientConnection
from partage.lab.clients.poll_loop import PollLoop
from partage.lab.coverage import consumer_coverage_key
from partage.lab.options import PARKED_LAPSE_MS, REQUEST_TIMEOUT_MS
from partage.member import events, invariants, outcome
from partage.member.ownership import Ownership
from partage.member.settings import MemberSettings
from partage.member.states import MemberState
from partage.member.timers import MemberTimer
from partage.model.topic_partition import TopicPartition
from partage.runtime.timers import TimerQueue
from partage.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest

if TYPE_CHECKING:
    from partage.lab.world import World

_NOT_MEMBER_STATES: Final = frozenset({MemberState.UNSUBSCRIBED, MemberState.FATAL})


class ConsumerProcess:
    """A process with one consumer that subscribes to ``topics``."""

    #: The class that reads the owned partitions.
    poll_loop_class: ClassVar[type[PollLoop]] = PollLoop

    def __init__(
        self,
        world: World,
        name: str,
        group_id: str,
        topics: frozenset[str],
        embedding: ConsumerProtocol,
        instance_id: str | None = None,
    ) -> None:
        self.world = world
        self.name = name
        self.group_id = group_id
        self.instance_id = instance_id
        self.rng = Random(f"{world.scenario.seed} {name}")
        self.is_alive = True
        self.is_paused = False
        self.is_listener_slow = False  # its listener exceeds the rebalance timeout
        self.is_assignor_hung = False  # its assignor does not return
        self.assign_failures_left = 0
        self.failure: str | None = None
        self.has_left = False
        self.connection: ClientConnection | None = None
        self.coordinator_id = 1  # the last coordinator found
        self.pending_callback: outcome.CallListener | None = (
            None  # the listener callback that is not yet called
        )
        self.topics = topics
        self.assignor_runner = AssignorRunner(self, embedding)
        self._found: int | None = None
        self._deferred_calls: list[Callable[[], None]] = []
        self._timers: TimerQueue[MemberTimer] = TimerQueue()
        self._wake_ms: int | None = None
        self._holds: frozenset[TopicPartition] = frozenset()
        self._generation = -1  # the last generation in which it was Stable
        self.is_subscribed = True  # its user wants it to be a member
        self._owned: frozenset[TopicPartition] = frozenset()
        options = world.options
        self.version_cap = min(options.version_cap, 1) if instance_id else options.version_cap
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
            embedding.rebalance_protocol,
        )
        self.poll_loop = self.poll_loop_class(self)
        self.handle(events.SubscriptionChanged(at_ms=world.now_ms, topics=topics))
        self.poll_loop.poll()

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
        postponed, self._deferred_calls = self._deferred_calls, []
        if self.is_alive:
            is_waiting = self.core.membership.is_in_poll
            self.handle(events.Polled(at_ms=self.world.now_ms, is_in_poll=is_waiting))
        for call in postponed:
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
            self.poll_loop.on_owned_changed(core.owned)
        membership = core.membership
        holds = core.owned if membership.is_in_generation else frozenset()
        if membership.state is MemberState.STABLE and membership.generation != self._generation:
            self._generation, self._holds = membership.generation, holds
            self.record_ownership()
        elif holds != self._holds:
            self._holds = holds
            self.record_ownership()

    def release_assignor(self) -> None:
        """Let a hung assignor return."""
        self.is_assignor_hung = False
        self.when_awake(self.assignor_runner.resume_assignor)

    def record_ownership(self) -> None:
        """Append the partitions that the process owns, as far as it knows, to the history."""
        membership = self.core.membership
        self.world.append_history(
            history.OwnershipChanged(
                at_ms=self.world.now_ms,
                process=self.name,
                group_id=self.group_id,
                member_id=membership.member_id,
                generation=membership.generation,
                partitions=tuple(sorted(self._holds)) if self.is_alive else (),
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

    # Actions

    def _perform_action(self, action: outcome.Action) -> None:
        match action:
            case outcome.FindCoordinator(serial=serial):
                self._find_coordinator(serial)
            case outcome.Disconnect():
                self._disconnect()
            case outcome.SendLeave(is_parked=True):
                self._disconnect()
                self._leave_on_new_connection(action)
            case (
                outcome.SendJoin()
                | outcome.SendSync()
                | outcome.SendHeartbeat()
                | outcome.SendLeave()
            ):
                self._send(action)
            case outcome.EncodeSubscription():
                self.assignor_runner.describe(action)
            case outcome.ComputeAssignment():
                self.assignor_runner.assign(action)
            case outcome.DecodeAssignment():
                self.assignor_runner.decode(action)
            case outcome.CallListener():
                self.pending_callback = action
                self.world.append_history(
                    history.CallbackDue(
                        at_ms=self.world.now_ms,
                        process=self.name,
                        call=str(action.callback),
                        partitions=action.partitions,
                    )
                )
            case outcome.ReportFatalError(error=error):
                self.failure = error.name
                self.world.record_incident("a member failed", f"{self.name}: {error.name}")
            case outcome.LeftGroup():
                self.has_left = True
            case outcome.WatchTopics():
                if self.assignor_runner.is_outdated:  # topics changed while the group had no leader
                    self.call_later(0, self.on_metadata_changed)

    def _disconnect(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def connect(
        self,
        broker_id: int,
        on_lost: Callable[[], None],
        done: Callable[[ClientConnection | None], None],
    ) -> ClientConnection:
        """Open a new connection to a broker."""
        network = self.world.network
        link = ClientConnection(
            network, self.name, broker_id, self.version_cap, on_lost, self.when_awake
        )
        link.open(lambda is_open: done(link if is_open else None))
        return link

    def _find_coordinator(self, serial: int) -> None:
        self._disconnect()

        def lost() -> None:
            now_ms = self.world.now_ms
            if self._found == serial:
                self.handle(events.CoordinatorLost(at_ms=now_ms, serial=serial))
            else:
                self.handle(events.CoordinatorNotFound(at_ms=now_ms, serial=serial))

        brokers = self.world.shuffled_broker_ids(self.rng)

        def ask_next(link: ClientConnection | None) -> None:
            if link is None and brokers:
                self.connection = self.connect(brokers.pop(0), lost, ask_next)
                return
            if link is None:
                self.handle(events.CoordinatorNotFound(at_ms=self.world.now_ms, serial=serial))
                return
            asked = FindCoordinatorRequest(key=self.group_id, coordinator_keys=[self.group_id])
            link.send(FIND_COORDINATOR, asked, found, REQUEST_TIMEOUT_MS)

        def found(answer: Any) -> None:
            coordinator = answer.coordinators[0] if answer.coordinators else answer
            at_ms = self.world.now_ms
            if coordinator.error_code:
                error = to_error_code(coordinator.error_code)
                self.handle(events.CoordinatorNotFound(at_ms=at_ms, serial=serial, error=error))
                return
            self.coordinator_id = coordinator.node_id
            if self.connection is not None and self.connection.broker_id == coordinator.node_id:
                arrived(self.connection)
            else:
                self._disconnect()
                self.connection = self.connect(coordinator.node_id, lost, arrived)

        def arrived(link: ClientConnection | None) -> None:
            if link is None:
                self.handle(events.CoordinatorNotFound(at_ms=self.world.now_ms, serial=serial))
                return
            self._found = serial
            self.handle(events.CoordinatorFound(at_ms=self.world.now_ms, serial=serial))

        ask_next(None)

    def _send(self, action: MemberRequest) -> None:
        assert self.connection is not None, "a member sends only to a known coordinator"
        api, message = to_request(action, self.group_id)
        self.connection.send(
            api, message, self._response_handler(action), self._request_timeout_ms(action)
        )

    def _response_handler(self, action: MemberRequest) -> Callable[[Any], None]:
        return lambda answer: self.handle(to_event(action, answer, self.world.now_ms))

    def _request_timeout_ms(self, action: MemberRequest) -> int:
        """Return the request timeout. Parked requests have a longer one, because the member times
        them itself.
        """
        settings = self.core.membership.settings
        if isinstance(action, outcome.SendJoin | outcome.SendSync):
            longest = max(
                settings.rebalance_timeout_ms,
                settings.session_timeout_ms,
                settings.request_timeout_ms,
            )
            return longest + 2 * settings.parked_request_grace_ms
        return settings.request_timeout_ms

    def _leave_on_new_connection(self, action: outcome.SendLeave) -> None:
        def connected(link: ClientConnection | None) -> None:
            if link is not None:
                api, message = to_request(action, self.group_id)
                link.send(api, message, self._response_handler(action), REQUEST_TIMEOUT_MS)

        self.connection = self.connect(self.coordinator_id, lambda: None, connected)

    # Actions of the user and faults

    @property
    def is_member(self) -> bool:
        """True if the process is a member of its group or wants to be."""
        return self.is_alive and self.core.membership.state not in _NOT_MEMBER_STATES

    def crash(self, *, silently: bool) -> None:
        """Kill the process.

        Args:
            silently: The machine dies too, so that brokers do not see closed connections.
        """
        for link in (self.connection, *self.poll_loop.connections):
            if link is not None:
                if silently:
                    link.drop_silently()
                else:
                    link.close()
        self.is_alive = False
        self._holds = frozenset()
        self.record_ownership()

    def leave(self) -> None:
        """Leave the group."""
        self.is_subscribed = False
        self.handle(events.LeaveRequested(at_ms=self.world.now_ms, reason="enough"))

    def drain(self) -> None:
        """Leave the group after handing over the owned partitions."""
        self.is_subscribed = False
        self.handle(events.DrainRequested(at_ms=self.world.now_ms, reason="going"))

    def subscribe(self, topics: frozenset[str]) -> None:
        """Subscribe to other topics. A process that left or failed joins again."""
        self.topics = topics
        self.is_subscribed = True
        self.failure = None
        self.has_left = False
        self.handle(events.SubscriptionChanged(at_ms=self.world.now_ms, topics=topics))

    def on_metadata_changed(self) -> None:
        """Notify the member that topics have changed."""
        self.handle(events.MetadataChanged(at_ms=self.world.now_ms, reason="partitions"))

    def request_rejoin(self) -> None:
        """Request a rebalance."""
        self.handle(events.RejoinRequested(at_ms=self.world.now_ms, reason="asked to"))

    def restart_arguments(self, name: str) -> dict[str, Any]:
        """Return the arguments of a new process that replaces this one."""
        return {
            "name": name,
            "group_id": self.group_id,
            "topics": self.topics,
            "embedding": self.assignor_runner.protocol,
            "instance_id": self.instance_id,
        }

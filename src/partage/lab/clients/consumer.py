"""A consumer process of a world: performs the actions of its member state machine.

It corresponds to the group driver and the consumer's group subscription in `partage.client` on
asyncio. It finds the coordinator, sends the member's requests, runs listener callbacks, and
publishes the partitions that may be delivered. Fetching and committing are in `poll_loop`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from partage.bridge.consumer_protocol import ConsumerProtocol
from partage.bridge.member_requests import MemberRequest, to_request
from partage.lab import history
from partage.lab.clients.assignor_runner import AssignorRunner
from partage.lab.clients.client_connection import ClientConnection
from partage.lab.clients.member_process import MemberProcess
from partage.lab.clients.poll_loop import PollLoop
from partage.lab.context import WorldContext
from partage.lab.options import REQUEST_TIMEOUT_MS
from partage.member import events, outcome
from partage.model.topic_partition import TopicPartition


class ConsumerProcess(MemberProcess):
    """A process with one consumer that subscribes to ``topics``."""

    #: The class that reads the owned partitions.
    poll_loop_class: ClassVar[type[PollLoop]] = PollLoop

    def __init__(
        self,
        world: WorldContext,
        name: str,
        group_id: str,
        topics: frozenset[str],
        protocol: ConsumerProtocol,
        instance_id: str | None = None,
    ) -> None:
        super().__init__(world, name, group_id, topics, protocol.rebalance_protocol, instance_id)
        self.failure: str | None = None
        self.has_left = False
        self.is_subscribed = True  # its user wants it to be a member
        self.assignor_runner = AssignorRunner(self, protocol)
        self.poll_loop = self.poll_loop_class(self)
        self.handle(events.SubscriptionChanged(at_ms=world.now_ms, topics=topics))
        self.poll_loop.poll()

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

    def _on_owned_changed(self, owned: frozenset[TopicPartition]) -> None:
        self.poll_loop.on_owned_changed(owned)

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
        def on_connected(connection: ClientConnection | None) -> None:
            if connection is not None:
                api, message = to_request(action, self.group_id)
                connection.send(api, message, self._response_handler(action), REQUEST_TIMEOUT_MS)

        self.connection = self.connect(self.coordinator_id, lambda: None, on_connected)

    # Actions of the user and faults

    def crash(self, *, silently: bool) -> None:
        """Kill the process.

        Args:
            silently: The machine dies too, so that brokers do not see closed connections.
        """
        self._close_connections((self.connection, *self.poll_loop.connections), silently=silently)
        self.is_alive = False
        self._recorded = frozenset()
        self._record_ownership()

    def heal(self) -> None:
        """End all faults of the process."""
        self.poll_loop.end_slowness()
        self.assignor_runner.failures_left = 0
        self.resume()
        self.release_assignor()
        self.poll_loop.poll_now()

    def release_assignor(self) -> None:
        """Let a hung assignor return."""
        self.assignor_runner.is_hung = False
        self.when_awake(self.assignor_runner.resume)

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
            "protocol": self.assignor_runner.protocol,
            "instance_id": self.instance_id,
        }

"""A process with the product's member of the consumer protocol (KIP-848), and simulated processing.

`partage.member.consumer_group` decides; this shell performs its actions. The user polls, runs the
callbacks of the listener, and commits before it gives up partitions. As in `partage.client`,
commits and heartbeats share the connection to the coordinator.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Final, NamedTuple

from partage.lab import history
from partage.lab.clients.member_shell import MemberShell
from partage.lab.context import WorldContext
from partage.lab.environment.coroutines import SimFuture, SimTaskSet
from partage.lab.names import CONSUMER_GROUP
from partage.lab.options import REQUEST_TIMEOUT_MS
from partage.member import events, outcome
from partage.member.consumer_group.events import (
    ConsumerHeartbeatResponseReceived,
    TopicIdsResolved,
)
from partage.member.consumer_group.invariants import check_consumer_member
from partage.member.consumer_group.outcome import (
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ResolveTopicIds,
    SendConsumerHeartbeat,
)
from partage.member.consumer_group.settings import ConsumerMemberSettings
from partage.member.consumer_group.state_machine import ConsumerGroupMember
from partage.member.consumer_group.states import ConsumerMemberState
from partage.member.member import CommitIdentity
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from partage.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)

#: The API versions of members: commits with topic names and member epochs.
VERSIONS: Final = {OFFSET_COMMIT.key: 9, CONSUMER_GROUP_HEARTBEAT.key: 1}
_REFUSED_BACK_OFF_MS: Final = 1_000
_COMMIT_BACK_OFF_MS: Final = 100
#: After this time without a response the coordinator probably waits for a target.
_LONG_WAIT_MS: Final = 100
#: The errors after which the user starts the process again.
_REFUSALS: Final = frozenset(
    {
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    }
)
#: The error of a group with the classic protocol that its policy does not allow to be upgraded.
_CLASSIC_GROUP: Final = (ErrorCode.GROUP_ID_NOT_FOUND,)
#: The errors of commits that the member gets to know; after the second kind a commit is repeated.
_REPORTED: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
_REPEATED: Final = (
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)

#: Partitions with the id of their topic.
IdPartitions = frozenset[tuple[bytes, int]]


class SimSubscription(NamedTuple):
    """A subscription: topic names, and a regular expression or None."""

    names: tuple[str, ...]
    regex: str | None = None


class HeartbeatMember(MemberShell):
    """A process with one member of the group that speaks the consumer protocol."""

    def __init__(
        self,
        world: WorldContext,
        name: str,
        selection: SimSubscription,
        instance_id: str | None = None,
        assignor: str | None = None,
    ) -> None:
        super().__init__(world, name, CONSUMER_GROUP, 0, VERSIONS)
        self.selection = selection
        self.instance_id = instance_id
        self.assignor = assignor
        #: The fatal error of the member; None if the member is in the group.
        self.failure: str | None = None
        #: Until when giving up a partition takes long.
        self.slow_until_ms = 0
        #: The user does not poll before this time.
        self.no_poll_until_ms = 0
        #: How long the first response after a reconnection is late. The member reconnects when the
        #: next callback becomes due. None without this fault.
        self.reconnects_at_callback_ms: int | None = None
        #: True if the member reconnects when a heartbeat has waited for its response for a while.
        self.reconnects_when_waiting = False
        self._late_answer_ms = 0  # how late the response to the next heartbeat is
        self._is_leaving = False
        self._late_poll: SimFuture[None] | None = None
        self._tasks = SimTaskSet()
        self._recorded: IdPartitions = frozenset()  # as recorded in the history
        self._deliverable: IdPartitions = frozenset()  # as recorded in the history
        self._positions: dict[TopicPartition, int] = {}
        # incremented each time the process gets the partition
        self._ownership_counts: dict[TopicPartition, int] = {}
        options = world.options
        self.core = ConsumerGroupMember(
            ConsumerMemberSettings(
                group_id=CONSUMER_GROUP,
                instance_id=instance_id,
                server_assignor=assignor,
                session_timeout_ms=options.consumer_session_timeout_ms,
                rebalance_timeout_ms=options.consumer_rebalance_timeout_ms,
                max_poll_interval_ms=options.consumer_rebalance_timeout_ms,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
            ),
            lambda: f"{name}-{self.rng.getrandbits(32):08x}",
        )
        self.subscribe(selection)
        self._spawn(self._poll_often())

    # State

    @property
    def is_in_poll(self) -> bool:
        """True if the user waits in poll, as far as the member knows."""
        return self.core.is_in_poll

    @property
    def member_id(self) -> str:
        """The current member id."""
        return self.core.member_id

    @property
    def epoch(self) -> int:
        """The member epoch; 0 outside the group."""
        return self.core.epoch

    @property
    def owned(self) -> IdPartitions:
        """The partitions that the member owns as a member of the group."""
        return self._with_ids(self.core.owned_ids) if self.core.is_in_group else frozenset()

    @property
    def assigned(self) -> IdPartitions:
        """The partitions of the last assignment that the coordinator sent."""
        return self.core.assignment or frozenset()

    @property
    def is_converged(self) -> bool:
        """True if the member is Stable: the coordinator knows that it owns its assignment."""
        return self.core.state is ConsumerMemberState.STABLE and self.owned == self.assigned

    def _with_ids(self, partitions: Iterable[TopicPartition]) -> IdPartitions:
        return frozenset((self.core.owned_ids[each], each.partition) for each in partitions)

    # Events and actions

    def handle(self, event: events.Event) -> None:
        """Let the member handle an event, and perform the resulting actions."""
        if not self.is_alive:
            return
        is_answer = isinstance(event, ConsumerHeartbeatResponseReceived)
        if isinstance(event, ConsumerHeartbeatResponseReceived):
            self._record_answer(event)
        elif isinstance(event, events.CoordinatorLost):
            self._record_disconnect()
        core, before = self.core, frozenset(self.core.owned_ids)
        result = core.handle(event)
        for partition in sorted(frozenset(core.owned_ids) - before):
            self._ownership_counts[partition] = self._ownership_counts.get(partition, 0) + 1
        if core.is_in_group:
            self.failure = None
        self._record_ownership()
        for action in result.actions:
            self._perform_action(action)
        for key, deadline_ms in result.timers:
            self._arm(key, deadline_ms)
        self._record_deliverable(is_repeated=is_answer)
        if self.world.has_invariant_checks:
            check_consumer_member(core, self._timers.armed)

    def _perform_action(self, action: outcome.Action) -> None:
        match action:
            case outcome.FindCoordinator(serial=serial):
                self._find_coordinator(serial)
            case outcome.Disconnect():
                self._record_disconnect()
                self._disconnect()
            case SendConsumerHeartbeat():
                self._record_heartbeat(action)
                self._send(action)
                self._disturb(action)
            case ResolveTopicIds():
                self.call_later(self.rng.choice((0, 5, 300)), lambda: self._resolve(action))
            case outcome.CallListener():
                self.pending_callback = action
                if self.reconnects_at_callback_ms is not None and action.partitions:
                    self._late_answer_ms = self.reconnects_at_callback_ms
                    self.reconnects_at_callback_ms = None
                    self.call_later(0, self.reconnect)
            case outcome.ReportProblem(problem=problem, reason=reason):
                self.world.record_incident(f"{self.name}: {problem}", reason)
            case outcome.ReportFatalError(error=error, reason=reason):
                self._on_fatal_error(error, reason)
            case outcome.LeftGroup():
                has_coordinator = self.core.link.coordinator_serial is not None
                self.world.append_history(
                    history.MemberLeft(
                        at_ms=self.world.now_ms, process=self.name, has_coordinator=has_coordinator
                    )
                )
                if self._is_leaving:
                    self._close_connections((self.connection,), silently=False)
                    self.is_alive = False

    def _resolve(self, action: ResolveTopicIds) -> None:
        """Answer with the topics that exist now; metadata of a new topic may be late."""
        names = {each.topic_id: name for name, each in self.world.consumer_topics.images.items()}
        if self.rng.random() < 0.1 and not self.world.is_healed:
            names.clear()
        found = {each: names[each] for each in action.topic_ids if each in names}
        self.handle(TopicIdsResolved(at_ms=self.world.now_ms, serial=action.serial, names=found))

    def _on_fatal_error(self, error: ErrorCode, reason: str) -> None:
        """Start the member again later, as the user of a refused member does."""
        is_migrating = self.world.options.classic_members > 0
        if error not in _REFUSALS and not (is_migrating and error in _CLASSIC_GROUP):
            raise history.RuleViolationError(
                "consumer-fence", f"{self.name} got {error.name}: {reason}"
            )
        self.failure = error.name
        self.call_later(_REFUSED_BACK_OFF_MS, self._start_again)

    def _start_again(self) -> None:
        if not self._is_leaving:
            self.handle(events.StartRequested(at_ms=self.world.now_ms))

    def _record_answer(self, event: ConsumerHeartbeatResponseReceived) -> None:
        self.world.append_history(
            history.MemberHeartbeatAnswered(
                at_ms=self.world.now_ms,
                process=self.name,
                member_id=self.member_id,
                serial=event.serial,
                error_code=event.error,
                topics=tuple(sorted(self.core.topics)),
                regex=self.core.regex,
            )
        )
        if event.assignment is not None:
            self._record_assignment(event.assignment)

    def _record_disconnect(self) -> None:
        self.world.append_history(
            history.MemberDisconnected(at_ms=self.world.now_ms, process=self.name)
        )

    def _record_deliverable(self, *, is_repeated: bool = False) -> None:
        """Append the partitions that the user may deliver, if they changed or ``is_repeated``."""
        core = self.core
        deliverable: IdPartitions = frozenset()
        if self.is_alive and not self.is_paused:
            deliverable = self._with_ids(core.deliverable)
        if deliverable == self._deliverable and not is_repeated:
            return
        self._deliverable = deliverable
        self.world.append_history(
            history.MemberMayDeliver(
                at_ms=self.world.now_ms,
                process=self.name,
                member_id=self.member_id,
                partitions=tuple(sorted(deliverable)),
                is_paused=self.is_paused,
            )
        )

    def _record_assignment(self, assignment: Mapping[bytes, tuple[int, ...]]) -> None:
        received = _flatten(assignment)
        self.world.append_history(
            history.MemberAssignmentReceived(
                at_ms=self.world.now_ms, process=self.name, partitions=tuple(sorted(received))
            )
        )

    def _record_heartbeat(self, action: SendConsumerHeartbeat) -> None:
        changes = (action.owned, action.subscribed_topics, action.subscribed_regex)
        is_routine = action.member_epoch > 0 and changes == (None, None, None)
        self.world.append_history(
            history.MemberHeartbeatSent(
                at_ms=self.world.now_ms,
                process=self.name,
                reports_change=not is_routine,
                serial=action.serial,
                epoch=action.member_epoch,
                owned=None if action.owned is None else tuple(sorted(_flatten(action.owned))),
                topics=tuple(sorted(self.core.topics)),
                regex=self.core.regex,
            )
        )

    def _record_ownership(self) -> None:
        if self.owned == self._recorded:
            return
        self._recorded = self.owned
        self.world.append_history(
            history.MemberOwnershipChanged(
                at_ms=self.world.now_ms,
                process=self.name,
                group_id=CONSUMER_GROUP,
                member_id=self.member_id,
                epoch=self.epoch,
                partitions=tuple(sorted(self._recorded)),
            )
        )

    # User requests and faults

    def subscribe(self, selection: SimSubscription) -> None:
        """Change the subscription. A member that left joins again, unless its process ends."""
        if self._is_leaving:
            return
        self.selection = selection
        self.handle(
            events.SubscriptionChanged(
                at_ms=self.world.now_ms,
                topics=frozenset(selection.names),
                regex=selection.regex,
            )
        )

    def leave(self, *, is_final: bool = True) -> None:
        """Leave the group and end the process.

        Args:
            is_final: False if a static member leaves for a while, and keeps its partitions.
        """
        self._is_leaving = True
        self.unsubscribe(is_final=is_final)

    def unsubscribe(self, *, is_final: bool = False) -> None:
        """Leave the group; the process continues."""
        self._record_leave_request(is_final=is_final)
        self.handle(
            events.LeaveRequested(
                at_ms=self.world.now_ms,
                reason="enough",
                sends_leave_group=True if is_final else None,
            )
        )

    def drain(self) -> None:
        """Leave the group for good with the request of a rolling restart, and end the process."""
        self._is_leaving = True
        self._record_leave_request(is_final=True)
        self.handle(events.DrainRequested(at_ms=self.world.now_ms, reason="going"))

    def _record_leave_request(self, *, is_final: bool) -> None:
        is_kept = self.instance_id is not None and not is_final
        epoch = STATIC_LEAVE_EPOCH if is_kept else LEAVE_EPOCH
        self.world.append_history(
            history.MemberLeaveRequested(at_ms=self.world.now_ms, process=self.name, epoch=epoch)
        )

    def pause(self, for_ms: int) -> None:
        """Pause the process for a time."""
        super().pause(for_ms)
        self._record_deliverable(is_repeated=True)

    def crash(self, *, silently: bool) -> None:
        """Kill the process; its connections are closed, or not."""
        self._close_connections((self.connection,), silently=silently)
        self.is_alive = False
        self._record_deliverable()
        self.world.append_history(
            history.MemberOwnershipChanged(
                at_ms=self.world.now_ms,
                process=self.name,
                group_id=CONSUMER_GROUP,
                member_id=self.member_id,
                epoch=self.epoch,
                partitions=(),
            )
        )

    def reconnect(self) -> None:
        """Lose the connection to the coordinator: the next heartbeat has all fields."""
        serial = self.core.link.coordinator_serial
        if serial is not None:
            self._disconnect()
            self.handle(events.CoordinatorLost(at_ms=self.world.now_ms, serial=serial))

    def _disturb(self, action: SendConsumerHeartbeat) -> None:
        """Let the response be late, or lose the connection while the heartbeat waits for it."""
        if self._late_answer_ms:
            self.world.network.cut(self.name, "down", self._late_answer_ms)
            self._late_answer_ms = 0

        def reconnect() -> None:
            sent = self.core.in_flight
            if self.reconnects_when_waiting and sent is not None and sent.serial == action.serial:
                self.reconnects_when_waiting = False
                self.reconnect()

        if self.reconnects_when_waiting:
            self.call_later(_LONG_WAIT_MS, reconnect)

    def heal(self) -> None:
        """End all faults of the process."""
        self.slow_until_ms = self.no_poll_until_ms = self._late_answer_ms = 0
        self.reconnects_at_callback_ms, self.reconnects_when_waiting = None, False
        self.resume()
        if self._late_poll is not None:
            self._late_poll.set_result(None)

    # Poll loop

    def _spawn(self, work: Coroutine[SimFuture[Any], None, None]) -> None:
        self._tasks.spawn(work, self.when_awake)

    async def _sleep(self, for_ms: int) -> None:
        moment: SimFuture[None] = SimFuture()
        self.world.clock.call_later(for_ms, lambda: moment.set_result(None))
        await moment

    def _poll(self, *, is_in_poll: bool) -> None:
        self.handle(events.Polled(at_ms=self.world.now_ms, is_in_poll=is_in_poll))

    async def _poll_often(self) -> None:
        """Poll, process the records, and commit them, until the process ends."""
        while True:
            self._poll(is_in_poll=True)
            due, self.pending_callback = self.pending_callback, None
            if due is not None:
                await self._run_listener(due)
                continue
            await self._sleep(self.rng.choice((5, 50)))
            if self.pending_callback is None:
                self._poll(is_in_poll=False)
                self._deliver()
                if self.rng.random() < 0.2:
                    self._spawn(self._commit(tuple(self.core.owned_ids), REQUEST_TIMEOUT_MS))
                await self._process_records()

    async def _process_records(self) -> None:
        late_ms = self.no_poll_until_ms - self.world.now_ms
        if late_ms <= 0:
            await self._sleep(self.rng.choice((5, 100, 400)))
            return
        self._late_poll = late_poll = SimFuture[None]()
        self.world.clock.call_later(late_ms, lambda: late_poll.set_result(None))
        await late_poll
        self._late_poll = None

    def _deliver(self) -> None:
        """Deliver one record of each partition that may be delivered."""
        deliverable = self.core.deliverable
        if not deliverable:
            return
        for partition in deliverable:
            self._positions[partition] = self._positions.get(partition, 0) + 1
        self.world.append_history(
            history.MemberDelivered(
                at_ms=self.world.now_ms,
                process=self.name,
                member_id=self.member_id,
                epoch=self.epoch,
                partitions=tuple(sorted(self._with_ids(deliverable))),
            )
        )

    async def _run_listener(self, due: outcome.CallListener) -> None:
        """Run a callback, which takes time. Partitions to give up are committed first."""
        options = self.world.options
        is_lost = self.core.has_lost_partitions or self.core.is_release_lost
        if due.callback is not outcome.ListenerCallback.LOST and due.partitions:
            await self._sleep(
                options.consumer_rebalance_timeout_ms + 1_000
                if self.world.now_ms < self.slow_until_ms
                else self.rng.choice((0, 5, 300, 700))
            )
            if due.callback is outcome.ListenerCallback.REVOKED and not is_lost:
                await self._commit(due.partitions, options.consumer_rebalance_timeout_ms // 4)
        self.handle(events.CallbackCompleted(at_ms=self.world.now_ms, serial=due.serial))

    # Commits

    async def _commit(self, partitions: Iterable[TopicPartition], for_ms: int) -> None:
        """Commit; repeat it with the newest epoch while the member has kept the partitions.

        Args:
            partitions: The partitions.
            for_ms: The time limit.
        """
        until_ms = self.world.now_ms + for_ms
        counts = {each: self._ownership_counts[each] for each in partitions}
        while self.world.now_ms < until_ms:
            identity = self.core.commit_identity
            offsets: dict[str, dict[int, int]] = {}
            for each in sorted(self.core.owned & counts.keys()):
                if self._ownership_counts[each] == counts[each] and each in self._positions:
                    offsets.setdefault(each.topic, {})[each.partition] = self._positions[each]
            if identity is None or not offsets:
                return
            error = await self._send_commit(identity, offsets, until_ms)
            if error not in _REPEATED:
                return
            await self._sleep(_COMMIT_BACK_OFF_MS)

    async def _send_commit(
        self, identity: CommitIdentity, offsets: Mapping[str, Mapping[int, int]], until_ms: int
    ) -> ErrorCode:
        """Send a commit. Return its first error; NONE also without a response in time."""
        if not self.core.has_coordinator or self.connection is None:
            return ErrorCode.NOT_COORDINATOR
        request = commit_request(identity.member_id, identity.generation, self.instance_id, offsets)
        moment = SimFuture[Any]()
        self.connection.send(OFFSET_COMMIT, request, moment.set_result, REQUEST_TIMEOUT_MS)
        wait_ms = until_ms - self.world.now_ms
        self.world.clock.call_later(wait_ms, lambda: moment.set_result(None))
        error = _commit_error(await moment)
        if error in _REPEATED + _REPORTED:
            self.handle(
                events.CommitRejected(
                    at_ms=self.world.now_ms,
                    generation=identity.generation,
                    member_id=identity.member_id,
                    error=error,
                )
            )
        return error


def _flatten(partitions: Mapping[bytes, tuple[int, ...]]) -> IdPartitions:
    return frozenset((topic_id, each) for topic_id, all_ in partitions.items() for each in all_)


def _commit_error(response: Any) -> ErrorCode:
    """Return the first error of a response; NONE without a response, too."""
    if response is None:
        return ErrorCode.NONE
    codes = [each.error_code for topic in response.topics for each in topic.partitions]
    return ErrorCode(next(filter(None, codes), ErrorCode.NONE))


def commit_request(
    member_id: str,
    epoch: int,
    instance_id: str | None,
    offsets: Mapping[str, Mapping[int, int]],
) -> OffsetCommitRequest:
    """Return an OffsetCommit of a member; ``offsets`` are by topic and partition."""
    return OffsetCommitRequest(
        group_id=CONSUMER_GROUP,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[
            OffsetCommitTopic(
                name=name,
                partitions=[
                    OffsetCommitPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_metadata=member_id,
                    )
                    for index, offset in of_topic.items()
                ],
            )
            for name, of_topic in offsets.items()
        ],
    )

"""Runner of scenario files: events to one member, and its reactions.

A line is a command or a comment. The indented lines below a command are its expected effects.
Commands:

    member [eager] [static INSTANCE] [polled] [healthy] [gathers MS]    create a member; by default
                                                it is cooperative, dynamic, not polled, and has no
                                                metadata delay; heartbeats of a healthy member
                                                succeed and are not shown
    match TOPIC...                              the topics that the pattern matches now
    subscribe TOPIC...                          poll, polled: poll is called, poll returned
    found, not-found [ERROR], lost              results of the coordinator lookup
    join [ERROR] [id=] [generation=] [leader=] [protocol=] [skip]     the JoinGroup response
    sync [ERROR] [PARTITION...] [error=WHY]     the SyncGroup response; a partition is written t0
    beat [ERROR], goodbye, commit ERROR         responses to Heartbeat, LeaveGroup, OffsetCommit
    assigned PARTITION..., cannot-assign WHY    the result of the leader's assignor
    unfit, nonsense WHY                         the result of decoding the next assignment
    outdated PARTITION...                       its leader reads only an older version
    told                                        the listener callback returned
    rejoin WHY, metadata [WHY], leave [aloud], drain    requests of the user or the shell
    tick MS                                     time passes; timers fire at their deadlines
    stall MS                                    the process is stopped for this time

A response is to the last request of its kind. The subscription is encoded, and an assignment
decoded, as soon as it is requested. The expected lines are: requests and other actions, state
transitions, fired timers, and the deliverable partitions whenever they change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from partage.member import events, invariants, outcome
from partage.member.handler_context import HandlerContext
from partage.member.ownership import Ownership
from partage.member.settings import MemberSettings
from partage.member.states import MemberState
from partage.member.timers import MemberTimer
from partage.model.errors import ErrorCode
from partage.model.rebalance_protocol import RebalanceProtocol
from partage.model.topic_partition import TopicPartition
from partage.runtime.timers import TimerQueue

Edge = tuple[MemberState, MemberState]


def partition(word: str) -> TopicPartition:
    return word[0], int(word[1:])


def words(partitions: Iterable[TopicPartition]) -> str:
    return " ".join(f"{topic}{number}" for topic, number in sorted(partitions)) or "nothing"


def error_of(said: list[str]) -> ErrorCode:
    """Remove and return the leading error name, if there is one."""
    if said and said[0] in ErrorCode.__members__:
        return ErrorCode[said.pop(0)]
    return ErrorCode.NONE


class ScenarioRunner:
    """One member of one group."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.lines: list[str] = []
        self.edges: set[Edge] = set()
        self.timers: TimerQueue[MemberTimer] = TimerQueue()
        self.serials: dict[type[outcome.Action], int] = {}
        self.deliverable: frozenset[TopicPartition] = frozenset()
        self.unreadable: Callable[[int], events.Event] | None = None
        self.core = self.new(["eager"])

    def play(self, command: str) -> list[str]:
        verb, *said = command.split()
        self.lines = []
        getattr(self, f"do_{verb.replace('-', '_')}")(said)
        return self.lines

    # Member

    def new(self, said: list[str]) -> Ownership:
        self.is_healthy = "healthy" in said
        self.timers = TimerQueue()
        rebalance_protocol = RebalanceProtocol.COOPERATIVE
        if "eager" in said:
            rebalance_protocol = RebalanceProtocol.EAGER
        core = Ownership(
            MemberSettings(
                group_id="g",
                protocol_type="consumer",
                instance_id=said[said.index("static") + 1] if "static" in said else None,
                session_timeout_ms=10_000,
                max_poll_interval_ms=60_000 if "polled" in said else None,
                metadata_rebalance_delay_ms=(
                    int(said[said.index("gathers") + 1]) if "gathers" in said else 0
                ),
            ),
            rebalance_protocol,
        )
        become = core.membership.transition_to

        def watched(context: HandlerContext, state: MemberState) -> None:
            edge = core.membership.state, state
            self.edges.add(edge)
            self.lines.append(f"{edge[0]} -> {edge[1]}")
            become(context, state)

        core.membership.transition_to = watched  # Record every transition
        return core

    def handle(self, event: events.Event) -> None:
        result = self.core.handle(event)
        for key, deadline_ms in result.timers:
            self.timers.set(key, deadline_ms)
        invariants.check_ownership(self.core, self.timers.armed)
        self.show_deliverable()
        for action in result.actions:
            self.serials[type(action)] = getattr(action, "serial", 0)
            line = self.shown(action)
            if line and not (self.is_healthy and isinstance(action, outcome.SendHeartbeat)):
                self.lines.append(line)
        for action in result.actions:
            self.embedded(action)

    def show_deliverable(self) -> None:
        if self.core.deliverable != self.deliverable:
            self.deliverable = self.core.deliverable
            self.lines.append(f"delivers {words(self.deliverable)}")

    def embedded(self, action: outcome.Action) -> None:
        """Answer requests to the embedded protocol at once."""
        match action:
            case outcome.EncodeSubscription(serial=serial):
                protocols = (
                    events.SupportedProtocol("range", b""),
                    events.SupportedProtocol("old", b""),
                )
                self.handle(
                    events.JoinPrepared(at_ms=self.now_ms, serial=serial, protocols=protocols)
                )
            case outcome.SendHeartbeat() if self.is_healthy:
                self.do_beat([])
            case outcome.DecodeAssignment(serial=serial) if self.unreadable is not None:
                unreadable, self.unreadable = self.unreadable, None
                self.handle(unreadable(serial))
            case outcome.DecodeAssignment(serial=serial, assignment=assignment):
                given = tuple(partition(word) for word in assignment.decode().split())
                self.handle(
                    events.AssignmentDecoded(at_ms=self.now_ms, serial=serial, partitions=given)
                )

    def shown(self, action: outcome.Action) -> str:
        match action:
            case outcome.SendJoin():
                return f"JoinGroup id={action.member_id or '-'} ({action.reason or 'new'})"
            case outcome.SendSync(assignment_error=str() as why):
                return f"SyncGroup generation={action.generation}, cannot assign: {why}"
            case outcome.SendSync():
                shares = " ".join(f"{k}:{v.decode()}" for k, v in action.assignments.items())
                return f"SyncGroup generation={action.generation} {shares}".rstrip()
            case outcome.SendHeartbeat():
                return f"Heartbeat generation={action.generation}"
            case outcome.SendLeave():
                where = " over another connection" if action.is_parked else ""
                return f"LeaveGroup id={action.member_id}{where} ({action.reason})"
            case outcome.EncodeSubscription():
                return f"describes itself: owns {words(action.owned)}, {action.generation}"
            case outcome.ComputeAssignment(protocol=protocol, members=members):
                return f"assigns by {protocol} for {' '.join(m.member_id for m in members)}"
            case outcome.WatchTopics():
                return "leads, and need not assign"
            case outcome.CallListener(callback=call, partitions=partitions):
                return f"{call}: {words(partitions)}"
            case outcome.ReportProblem(problem=problem, reason=reason):
                return f"problem: {problem} ({reason})"
            case outcome.ReportFatalError(error=error, reason=reason):
                return f"fails: {error.name} ({reason})"
            case outcome.DecodeAssignment():
                return ""
        return {
            "FindCoordinator": "FindCoordinator",
            "Disconnect": "disconnects",
            "LeftGroup": "left",
        }[type(action).__name__]

    # Commands

    def do_member(self, said: list[str]) -> None:
        self.core = self.new(said)

    def do_subscribe(self, said: list[str]) -> None:
        self.handle(events.SubscriptionChanged(at_ms=self.now_ms, topics=frozenset(said)))

    def do_match(self, said: list[str]) -> None:
        topics = frozenset(said)
        self.handle(
            events.SubscriptionChanged(at_ms=self.now_ms, topics=topics, is_by_pattern=True)
        )

    def do_poll(self, said: list[str]) -> None:
        self.handle(events.Polled(at_ms=self.now_ms, is_in_poll=True))

    def do_polled(self, said: list[str]) -> None:
        self.handle(events.Polled(at_ms=self.now_ms, is_in_poll=False))

    def do_found(self, said: list[str]) -> None:
        serial = self.serials[outcome.FindCoordinator]
        self.handle(events.CoordinatorFound(at_ms=self.now_ms, serial=serial))

    def do_not_found(self, said: list[str]) -> None:
        serial = self.serials[outcome.FindCoordinator]
        error = error_of(said) or None
        self.handle(events.CoordinatorNotFound(at_ms=self.now_ms, serial=serial, error=error))

    def do_lost(self, said: list[str]) -> None:
        serial = self.serials[outcome.FindCoordinator]
        self.handle(events.CoordinatorLost(at_ms=self.now_ms, serial=serial))

    def do_join(self, said: list[str]) -> None:
        error = error_of(said)
        fields = dict(word.split("=") for word in said if "=" in word)
        own_id = fields.get("id", self.core.membership.member_id or "a")
        leader = fields.get("leader", "-")
        members = (own_id, "b") if leader == own_id else ()
        self.handle(
            events.JoinResponseReceived(
                at_ms=self.now_ms,
                serial=self.serials[outcome.SendJoin],
                error=error,
                member_id=own_id,
                generation=int(fields.get("generation", "1")),
                protocol_type=fields.get("type", "consumer"),
                protocol=fields.get("protocol", "range"),
                leader=leader,
                skip_assignment="skip" in said,
                members=tuple(events.GroupMemberMetadata(member_id=m) for m in members),
            )
        )

    def do_sync(self, said: list[str]) -> None:
        error = error_of(said)
        fields = dict(word.split("=") for word in said if "=" in word)
        self.handle(
            events.SyncResponseReceived(
                at_ms=self.now_ms,
                serial=self.serials[outcome.SendSync],
                error=error,
                protocol=fields.get("protocol"),
                assignment=" ".join(word for word in said if "=" not in word).encode(),
                assignment_error=fields.get("error"),
            )
        )

    def do_beat(self, said: list[str]) -> None:
        serial = self.serials[outcome.SendHeartbeat]
        error = error_of(said)
        self.handle(events.HeartbeatResponseReceived(at_ms=self.now_ms, serial=serial, error=error))

    def do_goodbye(self, said: list[str]) -> None:
        serial = self.serials[outcome.SendLeave]
        error = error_of(said)
        self.handle(events.LeaveResponseReceived(at_ms=self.now_ms, serial=serial, error=error))

    def do_commit(self, said: list[str]) -> None:
        identity = self.core.commit_identity
        if identity is None:
            self.lines.append("cannot commit")
            return
        self.lines.append(f"OffsetCommit generation={identity.generation} id={identity.member_id}")
        self.handle(
            events.CommitRejected(
                at_ms=self.now_ms,
                generation=identity.generation,
                member_id=identity.member_id,
                error=error_of(said),
            )
        )

    def do_assigned(self, said: list[str]) -> None:
        shares = {"a": " ".join(said).encode()}
        serial = self.serials[outcome.ComputeAssignment]
        self.handle(events.AssignmentComputed(at_ms=self.now_ms, serial=serial, assignments=shares))

    def do_cannot_assign(self, said: list[str]) -> None:
        serial = self.serials[outcome.ComputeAssignment]
        self.handle(events.AssignorFailed(at_ms=self.now_ms, serial=serial, reason=" ".join(said)))

    def do_unfit(self, said: list[str]) -> None:
        given = tuple(partition(word) for word in said)
        self.unreadable = lambda serial: events.AssignmentDecoded(
            at_ms=self.now_ms, serial=serial, partitions=given, is_subscribed=False
        )

    def do_outdated(self, said: list[str]) -> None:
        given = tuple(partition(word) for word in said)
        self.unreadable = lambda serial: events.AssignmentDecoded(
            at_ms=self.now_ms, serial=serial, partitions=given, rejoin_reason="the leader is older"
        )

    def do_nonsense(self, said: list[str]) -> None:
        self.unreadable = lambda serial: events.AssignmentDecodeFailed(
            at_ms=self.now_ms, serial=serial, reason=" ".join(said)
        )

    def do_told(self, said: list[str]) -> None:
        serial = self.serials[outcome.CallListener]
        self.handle(events.CallbackCompleted(at_ms=self.now_ms, serial=serial))

    def do_rejoin(self, said: list[str]) -> None:
        self.handle(events.RejoinRequested(at_ms=self.now_ms, reason=" ".join(said)))

    def do_metadata(self, said: list[str]) -> None:
        reason = " ".join(said) or "metadata changed"
        self.handle(events.MetadataChanged(at_ms=self.now_ms, reason=reason))

    def do_drain(self, said: list[str]) -> None:
        self.handle(events.DrainRequested(at_ms=self.now_ms, reason="going"))

    def do_leave(self, said: list[str]) -> None:
        tells = True if "aloud" in said else None
        self.handle(
            events.LeaveRequested(at_ms=self.now_ms, reason="enough", sends_leave_group=tells)
        )

    # Time

    def do_tick(self, said: list[str]) -> None:
        until_ms = self.now_ms + int(said[0])
        while True:
            wake_ms = self.timers.wake_at_ms()
            if wake_ms is None or wake_ms > until_ms:
                break
            self.now_ms = max(self.now_ms, wake_ms)
            self.fire()
        self.now_ms = until_ms

    def do_stall(self, said: list[str]) -> None:
        self.now_ms += int(said[0])

    def fire(self) -> None:
        for key in self.timers.pop_due(self.now_ms):
            if not (self.is_healthy and key is MemberTimer.HEARTBEAT):
                self.lines.append(f"{self.now_ms} ms: {key} timer")
            self.handle(events.TimerFired(at_ms=self.now_ms, key=key))

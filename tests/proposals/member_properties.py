"""State machines for Hypothesis: any order of responses, timers, losses and stops at a member.

A member handles events of a shell that keeps its promises: a connection opens or not, each request
gets at most one response, and positions follow `CommitDue` at once. The contents are arbitrary.

Hypothesis leaves some rules out of each example. So one rule, `proceed`, does any next step of the
protocol: otherwise few examples would get beyond the first connection. Each example begins with a
random walk, as those of coordinators do.
"""

from __future__ import annotations

from collections import Counter, deque
from random import Random
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from partage.assignors import RoundRobin
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.proposals import machine
from partage.proposals.broker_side import events
from partage.proposals.designs.checked import CheckedMember
from partage.proposals.join_group.member import DesignMember, DesignMemberState
from partage.proposals.join_group.settings import DesignMemberSettings
from partage.proposals.single_assignor import messages as single
from partage.proposals.single_assignor.member import (
    ComputeShares,
    ShareComputationFailed,
    SharesComputed,
    SingleAssignorMember,
    SingleAssignorOptions,
)
from partage.wire import codec
from partage.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from partage.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from partage.wire.apis.offset_commit import (
    OffsetCommitPartitionResult,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopicResult,
)
from partage.wire.apis.offset_fetch import (
    OffsetFetchPartitionResult,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopicResult,
)
from partage.wire.types import Message

from .coordinator_properties import walk_lengths, walk_seeds

SESSION_MS = 9_000
HEARTBEAT_MS = 1_000
COMMIT_MS = 1_500
subscriptions = st.sampled_from((frozenset({"t"}), frozenset({"u"}), frozenset({"t", "u"})))
#: How long the process was stopped before an event of the user.
stalls_ms = st.sampled_from((0, 0, 0, 5_000, 20_000))
#: Most attempts succeed.
successes = st.sampled_from((True, True, True, False))


class MemberMachine(RuleBasedStateMachine):
    """A checked member, its clock, its readers and its connection to the coordinator."""

    member: CheckedMember

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.topics = {"t": 2, "u": 1}
        self.connection = "none"  # or "opening", "open"
        self.is_leaving = False
        self.reading: dict[TopicPartition, tuple[int, int]] = {}  # offset and time of the start
        self.positions: dict[TopicPartition, int] = {}  # of partitions that are no longer read
        self.sent: list[Any] = []

    # The shell

    def handle(self, event: machine.Event) -> None:
        following = deque([event])
        while following:
            outcome = self.member.handle(following.popleft())
            for action in outcome.actions:
                if isinstance(action, machine.CommitDue):
                    positions = self.take(action.partitions)
                    following.append(machine.PositionsTaken(at_ms=self.now_ms, positions=positions))
                else:
                    self.perform(action)

    def perform(self, action: machine.Action) -> None:
        match action:
            case machine.Connect():
                self.connection = "opening"
            case machine.Disconnect():
                self.connection = "none"
            case machine.Send(message=message):
                assert self.connection == "open", f"{message} is sent without a connection"
                self.sent.append(message)
            case machine.StartReading(offsets=offsets):
                for partition, offset in offsets.items():
                    self.reading[partition] = max(0, offset), self.now_ms
            case events.ResetPositions(partitions=partitions):
                for partition in partitions:
                    self.reading[partition] = 0, self.now_ms
            case machine.StopReading():
                self.positions |= self.take(frozenset(self.reading))
                self.reading.clear()
            case machine.ReportError():
                self.is_leaving = True

    def take(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        taken = {each: self.positions[each] for each in partitions if each in self.positions}
        for each in partitions & self.reading.keys():
            offset, since_ms = self.reading[each]
            taken[each] = offset + (self.now_ms - since_ms) // 10
        return taken

    def hear(self, message: Message) -> None:
        self.handle(machine.ResponseReceived(at_ms=self.now_ms, message=message))

    # Events of any member

    @rule(for_ms=st.sampled_from((1, 99, 500, 1_000, 3_000, 8_000)))
    def tick(self, for_ms: int) -> None:
        end_ms = self.now_ms + for_ms
        while True:
            due = [(at_ms, str(key), key) for key, at_ms in self.member.armed.items()]
            at_ms, _, key = min(due, default=(end_ms + 1, "", None), key=lambda each: each[:2])
            if at_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, at_ms)
            self.handle(machine.TimerFired(at_ms=self.now_ms, key=key))
        self.now_ms = end_ms

    def walk(self, seed: int, steps: int) -> None:
        """Take random steps before those of Hypothesis."""
        rng = Random(seed)
        for _ in range(steps):
            self.take_step(rng)

    def take_step(self, rng: Random) -> None:
        """Take one random step that does not end the member."""
        choice = rng.choice((0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8))
        match rng.choices(range(5), (8, 4, 3, 1, 1))[0]:
            case 0:
                self.proceed(choice, rng.choice((1, 1, 2, 5)))
            case 1:
                self.tick(rng.choice((99, 500, 1_000, 3_000)))
            case 2:
                self.work(choice, rng.randrange(3))
            case 3:
                self.lose()
            case 4:
                topics = rng.choice((frozenset({"t"}), frozenset({"u"}), frozenset({"t", "u"})))
                self.subscribe(topics, rng.choice((0, 0, 0, 20_000)), None)

    @rule(for_ms=st.sampled_from((2_000, 5_000, 20_000)))
    def stall(self, for_ms: int) -> None:
        """Stop the process: the next event comes late, before or after the timers."""
        self.now_ms += for_ms

    @rule(choice=st.integers(0, 9), steps=st.sampled_from((1, 1, 2, 5)))
    def proceed(self, choice: int, steps: int) -> None:
        """Do the next steps of a cluster without faults, and the last one with this choice."""
        for _ in range(steps - 1):
            self.do_step(0)
        self.do_step(choice)

    @rule(choice=st.integers(0, 9), responses=st.integers(0, 2))
    def work(self, choice: int, responses: int) -> None:
        """Answer the next requests of the member, and then one with this choice."""
        for _ in range(30):
            self.tick(100)
            if self.do_step(0 if responses else choice):
                responses -= 1
                if responses < 0:
                    return

    def do_step(self, choice: int) -> bool:
        """Do the next step; return False if there is none.

        Args:
            choice: What happens: success if it is 0, and otherwise the machine's choice.
        """
        raise NotImplementedError  # no ABC: the metaclass of Hypothesis

    def connect(self, is_open: bool) -> None:
        self.connection = "open" if is_open else "none"
        event = machine.Connected if is_open else machine.Disconnected
        self.handle(event(at_ms=self.now_ms))

    @rule()
    def lose(self) -> None:
        if self.connection != "open":
            return
        self.connection = "none"
        self.handle(machine.Disconnected(at_ms=self.now_ms))

    @rule(topics=subscriptions, stall_ms=stalls_ms, choice=st.sampled_from((None, None, 7, 8)))
    def subscribe(self, topics: frozenset[str], stall_ms: int, choice: int | None) -> None:
        """Subscribe to topics; the member may get an error in the next step."""
        self.stall(stall_ms)
        self.handle(machine.SubscriptionChanged(at_ms=self.now_ms, topics=topics))
        if choice is not None:
            self.do_step(choice)

    @rule(is_wanted=st.sampled_from((True, False, False, False)), stall_ms=stalls_ms)
    def leave(self, is_wanted: bool, stall_ms: int) -> None:
        if is_wanted and not self.is_leaving:
            self.stall(stall_ms)
            self.is_leaving = True
            self.handle(machine.LeaveRequested(at_ms=self.now_ms))

    def cooperate(self) -> None:
        """Do all steps of a cluster without faults that are possible now."""
        for _ in range(30):
            if not self.do_step(0):
                return

    def cooperate_for(self, for_ms: int) -> None:
        for _ in range(0, for_ms, 100):
            self.tick(100)
            self.cooperate()


def offset_errors(request: OffsetCommitRequest, error: int) -> list[OffsetCommitTopicResult]:
    """Return the results of a commit, with an error in the last partition."""
    topics = [
        OffsetCommitTopicResult(
            name=topic.name,
            partitions=[
                OffsetCommitPartitionResult(partition_index=each.partition_index, error_code=0)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    topics[-1].partitions[-1].error_code = error
    return topics


class JoinGroupMemberMachine(MemberMachine):
    """A member of a design with JoinGroup."""

    inner: DesignMember

    def __init__(self) -> None:
        super().__init__()
        self.request: Any = None  # without a response
        self.fetches = 0  # of metadata, without an answer
        self.has_other_reader = False  # another member reads some partitions
        self.generation = 0
        self.subscription = frozenset({"t"})
        self.known_topics: dict[str, int] = {}
        self.last_join: Message | None = None
        self.committed: dict[TopicPartition, int] = {}
        self.settings = DesignMemberSettings(
            group_id="g",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            commit_interval_ms=COMMIT_MS,
            join_timeout_ms=60_000,
        )

    def begin(self, inner: DesignMember) -> None:
        self.inner, self.member = inner, CheckedMember(inner)
        self.handle(machine.Started(at_ms=self.now_ms))

    def perform(self, action: machine.Action) -> None:
        super().perform(action)
        match action:
            case machine.Connect() | machine.Disconnect():
                self.request = None
            case machine.FetchMetadata():
                self.fetches += 1
            case machine.Send(message=message):
                assert self.request is None, f"{message} follows {self.request}"
                self.request = message
                if isinstance(message, self.join_request):
                    self.last_join = message

    join_request: type[Message]

    def lose(self) -> None:
        self.request = None
        super().lose()

    def subscribe(self, topics: frozenset[str], stall_ms: int, choice: int | None) -> None:
        self.subscription = topics
        super().subscribe(topics, stall_ms, choice)

    def take_step(self, rng: Random) -> None:
        if rng.random() < 0.2:
            self.add_partition(rng.choice(("t", "u", "other")))
        else:
            super().take_step(rng)

    def fetch(self) -> None:
        self.fetches -= 1
        self.known_topics = dict(self.topics)
        self.handle(machine.MetadataFetched(at_ms=self.now_ms, topics=dict(self.topics)))

    @rule(topic=st.sampled_from(("t", "u", "other")))
    def add_partition(self, topic: str) -> None:
        """Let the periodic refresh find a new partition."""
        self.topics[topic] = self.topics.get(topic, 0) + 1
        self.known_topics = dict(self.topics)
        state, count = self.inner.state, len(self.sent)
        is_over = self.inner.is_session_over(self.now_ms)
        self.handle(machine.PartitionCountsChanged(at_ms=self.now_ms, topics=dict(self.topics)))
        if topic not in self.subscription and not is_over:
            assert len(self.sent) == count, f"{self.sent[count:]} follow a change of {topic}"
            assert self.inner.state is state, f"{self.inner.state} follows a change of {topic}"

    def respond(self, choice: int) -> None:
        """Answer the request: with success, an error of the session, or another one."""
        request, self.request = self.request, None
        errors = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
        others = (*errors, ErrorCode.NOT_COORDINATOR)
        error = others[choice - 7] if choice >= 7 else ErrorCode.NONE
        match request:
            case HeartbeatRequest():
                if choice == 6:
                    error = ErrorCode.REBALANCE_IN_PROGRESS
                self.hear(HeartbeatResponse(error_code=error))
            case OffsetCommitRequest():
                if not error:
                    for topic in request.topics:
                        for each in topic.partitions:
                            partition = TopicPartition(topic.name, each.partition_index)
                            self.committed[partition] = each.committed_offset
                self.hear(OffsetCommitResponse(topics=offset_errors(request, error)))
            case OffsetFetchRequest():
                self.hear(self.fetched_offsets(request))
            case LeaveGroupRequest():
                self.hear(LeaveGroupResponse(error_code=error))
            case _:
                self.answer_join(request, choice)

    def fetched_offsets(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        return OffsetFetchResponse(
            topics=[
                OffsetFetchTopicResult(
                    name=topic.name,
                    partitions=[
                        OffsetFetchPartitionResult(
                            partition_index=index,
                            committed_offset=self.committed.get(
                                TopicPartition(topic.name, index), -1
                            ),
                            metadata=None,
                            error_code=0,
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics or []
            ]
        )

    def answer_join(self, request: Any, choice: int) -> None:
        """Answer a JoinGroup request; 0 is success without other members."""
        raise NotImplementedError  # no ABC: the metaclass of Hypothesis

    def do_step(self, choice: int) -> bool:
        if self.connection == "opening":
            self.connect(choice < 8)
        elif self.fetches and (choice % 2 == 0 or self.request is None):
            self.fetch()
        elif self.request is not None:
            self.respond(choice)
        else:
            return False
        return True

    def teardown(self) -> None:
        """Check that without faults the member reads all, tells it is alive, and can leave."""
        if not hasattr(self, "inner"):
            return
        self.cooperate_for(SESSION_MS * 2)
        if self.has_other_reader and not self.is_leaving:
            self.rebalance()
        if not self.is_leaving:
            self.check_stable()
            self.is_leaving = True
            self.handle(machine.LeaveRequested(at_ms=self.now_ms))
            self.cooperate_for(1_000)
            assert isinstance(self.sent[-1], LeaveGroupRequest), f"{self.sent[-1]} is the last"
            if self.positions:
                assert isinstance(self.sent[-2], OffsetCommitRequest), f"{self.sent[-2]}"
        assert self.inner.state is DesignMemberState.STOPPED, f"{self.inner.state} after the leave"
        assert self.connection == "none", "the connection stays open"

    def rebalance(self) -> None:
        """Let the other member leave: the next Heartbeat tells of a rebalance."""
        while not isinstance(self.request, HeartbeatRequest):
            self.cooperate()
            self.tick(100)
        self.respond(6)
        self.cooperate_for(1_000)

    def check_stable(self) -> None:
        assert self.member.is_stable, f"{self.inner.state} without faults"
        expected = {
            TopicPartition(topic, number)
            for topic in self.subscription
            for number in range(self.topics[topic])
        }
        assert self.reading.keys() == expected, f"{self.reading.keys()} are read, not {expected}"
        assert self.joined_topics() == self.subscription, f"joined for {self.joined_topics()}"
        before = Counter(map(type, self.sent))
        self.cooperate_for(6_000)
        counts = Counter(map(type, self.sent)) - before
        assert 5 <= counts[HeartbeatRequest] <= 7, f"6 s have {counts[HeartbeatRequest]} Heartbeats"
        assert 3 <= counts[OffsetCommitRequest] <= 5, f"6 s have {counts[OffsetCommitRequest]}"
        rest = set(counts) - {HeartbeatRequest, OffsetCommitRequest}
        assert not rest, f"a stable member sends {rest}"

    def joined_topics(self) -> frozenset[str]:
        """Return the topics of the last JoinGroup request."""
        raise NotImplementedError  # no ABC: the metaclass of Hypothesis


class SingleMemberMachine(JoinGroupMemberMachine):
    """The member of the design with a single assignor."""

    join_request = single.JoinGroupRequest

    def __init__(self) -> None:
        super().__init__()
        self.computation: ComputeShares | None = None
        self.computed: set[int] = set()

    @initialize(
        choice=st.integers(0, 9),
        steps=st.sampled_from((1, 3, 4, 5, 7)),
        seed=walk_seeds,
        length=walk_lengths,
    )
    def start(self, choice: int, steps: int, seed: int, length: int) -> None:
        options = SingleAssignorOptions(assignor=RoundRobin(), user_data=b"rack")
        self.begin(SingleAssignorMember(self.settings, self.subscription, options))
        self.walk(seed, length)
        self.proceed(choice, steps)

    def perform(self, action: machine.Action) -> None:
        super().perform(action)
        if isinstance(action, ComputeShares):
            assert action.number not in self.computed, "the shares are computed twice"
            self.computed.add(action.number)
            self.computation = action
        if isinstance(action, machine.Send) and isinstance(action.message, self.join_request):
            join: Any = action.message.join
            if join is None:
                self.last_join = self.last_phase
            else:
                self.last_phase = action.message

    last_phase: Message | None = None

    def joined_topics(self) -> frozenset[str]:
        join: Any = self.last_phase
        metadata: Any
        metadata, _ = codec.decoder(single.DefaultMetadata, 0, False)(join.join.member_metadata, 0)
        assert metadata.user_data == b"rack", "the user data is missing"
        return frozenset(metadata.topics)

    @rule(succeeds=successes, loses_connection=st.booleans())
    def compute(self, succeeds: bool, loses_connection: bool = False) -> None:
        """End a computation, even if its connection was lost."""
        if loses_connection:
            self.lose()
        computation, self.computation = self.computation, None
        if computation is None:
            return
        number = computation.number
        if not succeeds:
            self.handle(ShareComputationFailed(at_ms=self.now_ms, number=number))
            return
        members = sorted(computation.members, key=lambda each: each.member_id == "other")
        partitions = frozenset(
            TopicPartition(topic, index)
            for topic in members[0].topics
            for index in range(computation.topics.get(topic, 0))
        )
        shares = {members[0].member_id: partitions}
        self.handle(SharesComputed(at_ms=self.now_ms, number=number, shares=shares))

    def answer_join(self, request: single.JoinGroupRequest, choice: int) -> None:
        """Answer a join by a choice of this member or an assignment, and an assignment as sent."""
        error = {
            6: ErrorCode.REQUEST_TIMED_OUT,
            7: ErrorCode.UNKNOWN_MEMBER_ID,
            8: ErrorCode.NOT_COORDINATOR,
            9: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        }.get(choice, ErrorCode.NONE)
        join, synchronized = request.join, request.synchronized
        if join is not None:
            self.generation += not error
            if not error:
                self.has_other_reader = choice == 4
            member_id = join.member_id or f"member-{len(self.sent)}"
            own = single.MemberWithMetadata(
                member_id=member_id, member_metadata=bytes(join.member_metadata)
            )
            other = single.MemberWithMetadata(
                member_id="other", member_metadata=own.member_metadata
            )
            synchronize = single.Synchronize(members=[own, other] if choice == 5 else [own])
            known = (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
            response = single.JoinGroupResponse(
                error_code=error,
                group_generation_id=-1 if error else self.generation,
                member_id=member_id if error in known else join.member_id,
                synchronize=None if error or choice == 4 else synchronize,
                joined=(
                    single.Joined(synced_member_state=b"", group_members=[member_id])
                    if choice == 4
                    else None
                ),
            )
        else:
            assert synchronized is not None
            error = ErrorCode(synchronized.error_code) or error
            if choice == 5:
                error = ErrorCode.ILLEGAL_GENERATION
            states = {each.member_id: each.synced_member_state for each in synchronized.members}
            member_id = synchronized.member_id
            response = single.JoinGroupResponse(
                error_code=error,
                group_generation_id=-1 if error else self.generation,
                member_id=member_id,
                joined=(
                    None
                    if error
                    else single.Joined(
                        synced_member_state=states.get(member_id, b""), group_members=[member_id]
                    )
                ),
            )
        self.hear(response)

    def do_step(self, choice: int) -> bool:
        if super().do_step(choice):
            return True
        if self.computation is None:
            return False
        self.compute(choice < 8)
        return True

"""The requests that the brokers of a world get: commits, and counts and times by process."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from partage.broker.broker import Broker
from partage.broker.net.inbound_request import Handler, InboundRequest
from partage.coordinator.consumer_group.group import ConsumerGroup
from partage.coordinator.group import Group
from partage.lab.brokers.observed_response import (
    ObservedResponse,
    observe_response,
    original_connection,
)
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.testing.shell_worlds.coordinator_history import CoordinatorHistory
from partage.testing.world.request_recorder import RequestRecorder
from partage.testing.world.virtual_loop import VirtualLoop
from partage.wire.apis.api_versions import API_VERSIONS
from partage.wire.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from partage.wire.apis.fetch import FETCH, FetchRequest
from partage.wire.apis.heartbeat import HEARTBEAT
from partage.wire.apis.join_group import JOIN_GROUP
from partage.wire.apis.leave_group import LEAVE_GROUP
from partage.wire.apis.offset_commit import OFFSET_COMMIT
from partage.wire.apis.sync_group import SYNC_GROUP
from partage.wire.frames import encode_response_frame
from partage.wire.records.batch import whole_batches

#: Errors of commits that may be stored nevertheless, for example because a sync has failed.
_UNCERTAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
#: Longer than the time in which a coordinator answers a commit, and reads the next one.
_ANSWER_S: Final = 0.05
#: Waits end at whole milliseconds.
_ROUNDING_S: Final = 0.002
#: Requests that a coordinator counts as a sign of life.
_SIGNS_OF_LIFE: Final = frozenset(
    {
        CONSUMER_GROUP_HEARTBEAT.key,
        HEARTBEAT.key,
        JOIN_GROUP.key,
        OFFSET_COMMIT.key,
        SYNC_GROUP.key,
    }
)
#: Of these, the ones that the coordinator holds back: the session begins with the response.
_PARKED: Final = frozenset({JOIN_GROUP.key, SYNC_GROUP.key})


@dataclass
class _Commit:
    """A commit of one offset; ``is_stored`` is None while the broker has not answered."""

    at_s: float
    offset: int
    is_stored: bool | None = None


def _ignore_fetch(process: str, bytes_max: int, partitions: list[TopicPartition]) -> None:
    """Ignore a Fetch request."""


class FetchedPart(NamedTuple):
    """Data of a Fetch response: its end offset, its bytes, and the times of both."""

    end: int
    size: int
    asked_s: float
    answered_s: float


@dataclass
class CommitHold:
    """A time in which the coordinator holds commits back, one after another; it may not be over.

    Meanwhile it reads no later request on the connection.
    """

    since_s: float
    until_s: float


class CommitTimeline:
    """The offsets that were committed, over time.

    Attributes:
        committed: The last acknowledged offset of each group and partition.
        holds: The last time in which the coordinator holds commits of each process back.
    """

    def __init__(self) -> None:
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        self.holds: dict[str, CommitHold] = {}
        self._commits: dict[tuple[str, TopicPartition], list[_Commit]] = defaultdict(list)

    def add(
        self, group: str, partition: TopicPartition, offset: int, at_s: float
    ) -> Callable[[bool], None]:
        """Note a commit; the function that is returned notes whether it was stored."""
        commit = _Commit(at_s, offset)
        self._commits[group, partition].append(commit)

        def answer(is_stored: bool) -> None:
            commit.is_stored = is_stored
            if is_stored:
                self.committed[group, partition] = offset

        return answer

    def hold(self, process: str, at_s: float, delay_s: float) -> None:
        """Note that the coordinator holds a commit of a process back for some time."""
        hold = self.holds.setdefault(process, CommitHold(at_s, at_s))
        if at_s > hold.until_s + _ANSWER_S:
            hold.since_s = at_s
        hold.until_s = max(hold.until_s, at_s + delay_s)

    def offsets_since(self, group: str, partition: TopicPartition, since_s: float) -> set[int]:
        """Return the offsets that may have been the committed one at a time or later; 0 stands for
        none.
        """
        found = {0}
        for commit in self._commits.get((group, partition), ()):
            if commit.is_stored and commit.at_s < since_s:
                found = {commit.offset}
            elif commit.is_stored is not False:
                found.add(commit.offset)
        return found


class WireWatch(RequestRecorder):
    """Sees all requests to the brokers.

    Rules that it checks, all of them of every world:

    - ``regress``: without seeks, a commit does not lower the committed offset of a partition. A
      request that a member has replaced by one on a newer connection is exempt.
    - ``fetch_limits``: a Fetch request asks for no more than the options of its consumer allow.

    Attributes:
        commits: The acknowledged commits.
        requests_by: The number of requests of each process and API since `reset_counts`.
        refused_fetches: The number of fetches of each process that were answered early, but without
            records, for each partition with an error; for all of them if none has one.
        beats_s: The times of the heartbeats of each process since `reset_counts`.
        alive_s: The last time at which each process renewed its session; see `last_alive_s`.
        fetched: What each process has fetched, by partition, oldest first.
        limits: The fetch limits of each process: of a request, and of a partition.
        on_fetch: Called with the process, ``max_bytes`` and the partitions of each Fetch request.
        on_join: Called with the process of each JoinGroup request.
        on_rebalance: Called with the group when a member leaves, or joins or gets an assignment by
            a ConsumerGroupHeartbeat.
        on_request: Called with the process of each request, the request, and a function that
            returns the names of topics, when the request arrives.
        on_end: Called with the name of each process that has ended.
        delay_s: Returns the time for which a request of a process waits before it is handled.
        hidden_apis: The keys of APIs that brokers do not offer on new connections of a process.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        on_end: Callable[[str], None],
        report: Callable[[str, str], None],
        may_rewind: Collection[str],
        coordinators: CoordinatorHistory,
    ) -> None:
        super().__init__(loop)
        self.broker_class = coordinators.broker_class
        self._coordinators = coordinators
        self.commits = CommitTimeline()
        self.requests_by: Counter[tuple[str, str]] = Counter()
        self.refused_fetches: Counter[tuple[str, TopicPartition]] = Counter()
        self.beats_s: dict[str, list[float]] = defaultdict(list)
        self.alive_s: dict[str, float] = {}
        #: The number of partitions of the fetch that waits on a connection.
        self._waiting: dict[object, int] = {}
        self._parked: dict[str, InboundRequest] = {}
        self.fetched: dict[tuple[str, TopicPartition], list[FetchedPart]] = defaultdict(list)
        self.limits: dict[str, tuple[int, int]] = {}
        self.on_fetch: Callable[[str, int, list[TopicPartition]], None] = _ignore_fetch
        self.on_join: Callable[[str], None] = lambda process: None
        self.on_rebalance: Callable[[str], None] = lambda group: None
        self.on_request: Callable[[str, InboundRequest, Callable[[bytes], str]], None] = (
            lambda process, inbound, topic_name: None
        )
        self.delay_s: Callable[[str, InboundRequest], float] = lambda process, inbound: 0.0
        self.hidden_apis: dict[str, int] = {}
        self._on_end = on_end
        self._report = report
        self._may_rewind = may_rewind
        self._brokers: dict[str, Broker] = {}
        #: Connections with requests of members, in the order of their first one.
        self._connections: dict[str, list[object]] = defaultdict(list)

    def reset_counts(self) -> None:
        """Begin to count again."""
        self.requests_by.clear()
        self.beats_s.clear()

    def on_process_end(self, process: str) -> None:
        """Note that a process was killed, failed or ended."""
        super().on_process_end(process)
        self.alive_s.pop(process, None)
        self._parked.pop(process, None)
        self._coordinators.on_process_end(process)
        for key in [key for key in self.fetched if key[0] == process]:
            del self.fetched[key]
        self._on_end(process)

    def topics(self, names: Iterable[str]) -> Iterator[tuple[str, bytes, int]]:
        """Yield the names, ids and numbers of partitions of topics."""
        log_manager = next(iter(self._brokers.values())).log_manager
        for name in names:
            found = log_manager.topic(name)
            assert found is not None, f"the topic {name} was created"
            yield name, found.topic.topic_id, found.partition_count

    def member_count(self, group_id: str, broker: str) -> int:
        """Return the number of members of a group, as its coordinator has it."""
        shard = self._brokers[broker].coordinator.host_of(group_id).shard
        group = None if shard is None else shard.groups.get(group_id)
        return len(group.members) if isinstance(group, Group | ConsumerGroup) else 0

    def has_lost_fetches(self, broker_name: str) -> bool:
        """True if fetches wait at a broker although their connections were lost."""
        broker = self._brokers[broker_name]
        count = sum(
            partition.listener_count
            for topic in broker.log_manager.topics()
            for partition in topic.partitions.values()
        )
        return count > sum(self._waiting.get(each, 0) for each in broker.server.connections)

    def observe(self, broker: Broker) -> None:
        """Watch the requests to a broker that has started."""
        super().observe(broker)
        self._brokers[broker.address.host] = broker

        def topic_name(topic_id: bytes) -> str:
            return broker.log_manager.topic_name(topic_id) or topic_id.hex()

        def wrap(handler: Handler) -> Handler:
            def receive(inbound: InboundRequest) -> None:
                process = inbound.client_host.removeprefix("/")
                self.on_request(process, inbound, topic_name)
                delay_s = self.delay_s(process, inbound)
                if delay_s:
                    if inbound.api.key == OFFSET_COMMIT.key:
                        self.commits.hold(process, self._loop.elapsed_s, delay_s)
                    inbound.at_ms += round(1000 * delay_s)  # it is read late
                    self._loop.call_later(delay_s, handle_late, inbound)
                else:
                    handle(inbound)

            def handle_late(inbound: InboundRequest) -> None:
                # A commit of a lost connection could overwrite a later one of its member.
                is_lost = original_connection(inbound) not in broker.server.connections
                if not is_lost or inbound.api.key != OFFSET_COMMIT.key:
                    handle(inbound)

            def handle(inbound: InboundRequest) -> None:
                process, key = inbound.client_host.removeprefix("/"), inbound.api.key
                self.requests_by[process, inbound.api.name] += 1
                if key in (HEARTBEAT.key, CONSUMER_GROUP_HEARTBEAT.key):
                    self.beats_s[process].append(self._loop.elapsed_s)
                if key in _SIGNS_OF_LIFE:
                    is_newest = self._is_newest_connection(process, original_connection(inbound))
                    if key == OFFSET_COMMIT.key:
                        self._watch_commit(process, inbound, topic_name, is_newest=is_newest)
                    else:
                        self._watch_session(process, inbound)
                elif key == FETCH.key:
                    self._watch_fetch(process, inbound, topic_name)
                elif key == LEAVE_GROUP.key:
                    self.on_rebalance(inbound.message.group_id)
                elif key == API_VERSIONS.key and process in self.hidden_apis:
                    _hide_api(inbound, self.hidden_apis[process])
                self._coordinators.on_request(broker, process, inbound, topic_name)
                handler(inbound)

            return receive

        broker.server.intercept(wrap)

    def _is_newest_connection(self, process: str, connection: object) -> bool:
        known = self._connections[process]
        if connection not in known:
            known.append(connection)
        return known[-1] is connection

    def _watch_session(self, process: str, inbound: InboundRequest) -> None:
        at_s = self._loop.elapsed_s
        is_consumer = inbound.api.key == CONSUMER_GROUP_HEARTBEAT.key
        if is_consumer and inbound.message.member_epoch <= 0:
            self.on_rebalance(inbound.message.group_id)
        if is_consumer and inbound.message.member_epoch < 0:
            return
        if inbound.api.key == JOIN_GROUP.key:
            self.on_join(process)
        self._parked.pop(process, None)
        if inbound.api.key in _PARKED:
            self._parked[process] = inbound

        def answered(response: ObservedResponse) -> None:
            if self._parked.get(process) is inbound:
                del self._parked[process]
            error = response.message.error_code
            if is_consumer and response.message.assignment is not None:
                self.on_rebalance(inbound.message.group_id)
            is_heartbeat = inbound.api.key == HEARTBEAT.key
            # A Heartbeat that learns of a rebalance renews the session, too.
            if not error or (is_heartbeat and error == ErrorCode.REBALANCE_IN_PROGRESS):
                is_parked = inbound.api.key in _PARKED
                self._renew_session(process, self._loop.elapsed_s if is_parked else at_s)

        observe_response(inbound, answered)

    def last_alive_s(self, process: str) -> float | None:
        """Return the last time at which the coordinator knew that a process was alive.

        No session ends while the coordinator holds a JoinGroup or SyncGroup back.
        """
        is_parked = process in self._parked
        return self._loop.elapsed_s if is_parked else self.alive_s.get(process)

    def _renew_session(self, process: str, at_s: float) -> None:
        self.alive_s[process] = max(at_s, self.alive_s.get(process, 0.0))

    def _watch_commit(
        self,
        process: str,
        inbound: InboundRequest,
        topic_name: Callable[[bytes], str],
        *,
        is_newest: bool,
    ) -> None:
        request = inbound.message
        group, at_s = request.group_id, self._loop.elapsed_s
        offsets = {
            (topic.name, topic.topic_id, each.partition_index): (
                TopicPartition(topic.name or topic_name(topic.topic_id), each.partition_index),
                each.committed_offset,
            )
            for topic in request.topics
            for each in topic.partitions
        }
        answers = {
            key: self.commits.add(group, partition, offset, at_s)
            for key, (partition, offset) in offsets.items()
        }

        def answered(response: ObservedResponse) -> None:
            for topic in response.message.topics:
                for each in topic.partitions:
                    key = topic.name, topic.topic_id, each.partition_index
                    partition, offset = offsets[key]
                    before = self.commits.committed.get((group, partition), 0)
                    if each.error_code not in _UNCERTAIN:
                        answers[key](not each.error_code)
                    if each.error_code:
                        continue
                    self._renew_session(process, at_s)
                    if offset < before and is_newest and group not in self._may_rewind:
                        self._report(
                            "regress",
                            f"{process} commits {offset} of {partition}, but {before} was stored",
                        )

        observe_response(inbound, answered)

    def _check_limits(self, process: str, request: FetchRequest) -> None:
        if process not in self.limits:
            return
        bytes_max, partition_max = self.limits[process]
        largest = max(
            (each.partition_max_bytes for topic in request.topics for each in topic.partitions),
            default=0,
        )
        if request.max_bytes > bytes_max or largest > partition_max:
            self._report(
                "fetch_limits",
                f"{process} asks for {request.max_bytes} bytes, and for {largest} of a partition; "
                f"its limits are {bytes_max} and {partition_max}",
            )

    def _watch_fetch(
        self, process: str, inbound: InboundRequest, topic_name: Callable[[bytes], str]
    ) -> None:
        request = inbound.message
        self._check_limits(process, request)
        partitions = []
        for topic in request.topics:
            for each in topic.partitions:
                name = topic.topic or topic_name(topic.topic_id)
                partition = TopicPartition(name, each.partition)
                partitions.append(partition)
                parts = self.fetched[process, partition]
                while parts and parts[-1].end > each.fetch_offset:
                    parts.pop()
        if process in self.limits:
            self.on_fetch(process, request.max_bytes, partitions)
        connection, asked_s = original_connection(inbound), self._loop.elapsed_s
        self._waiting[connection] = len(partitions)

        def answered(response: ObservedResponse) -> None:
            self._waiting.pop(connection, None)
            if not response.has_records:
                if self._loop.elapsed_s - asked_s < request.max_wait_ms / 1000 - _ROUNDING_S:
                    failed = [
                        TopicPartition(
                            topic.topic or topic_name(topic.topic_id), each.partition_index
                        )
                        for topic in response.message.responses
                        for each in topic.partitions
                        if each.error_code
                    ]
                    self.refused_fetches.update((process, each) for each in failed or partitions)
                return
            for topic in response.message.responses:
                name = topic.topic or topic_name(topic.topic_id)
                for each in topic.partitions:
                    content = b"".join(each.records or ())
                    batches = [header for _, header in whole_batches(content)]
                    if batches:
                        partition = TopicPartition(name, each.partition_index)
                        size = sum(header.size for header in batches)
                        end = batches[-1].last_offset + 1
                        part = FetchedPart(end, size, asked_s, self._loop.elapsed_s)
                        self.fetched[process, partition].append(part)

        observe_response(inbound, answered)


def _hide_api(inbound: InboundRequest, key: int) -> None:
    """Remove an API from the response to an ApiVersions request."""

    def answered(response: ObservedResponse) -> None:
        api, version = inbound.api, inbound.version
        left = [each for each in response.message.api_keys if each.api_key != key]
        message = msgspec.structs.replace(response.message, api_keys=left)
        inbound.response_buffers = encode_response_frame(
            api.response_header_version(version),
            inbound.correlation_id,
            api.encode_response(version, message),
        )

    observe_response(inbound, answered)

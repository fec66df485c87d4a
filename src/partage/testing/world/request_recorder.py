"""Records the requests to the broker of a world, and what members own according to them.

It only observes: a world with a recorder has the same story as one without. A member owns a
partition from the response that assigns it until the member gives it up, learns that it was
removed, or its process ends. So two processes may own a partition at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from partage.broker.broker import Broker
from partage.broker.net.inbound_request import Handler, InboundRequest
from partage.lab.brokers.observed_response import ObservedResponse, observe_response
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.testing.world.virtual_loop import VirtualLoop
from partage.wire.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from partage.wire.apis.fetch import FETCH
from partage.wire.apis.heartbeat import HEARTBEAT
from partage.wire.apis.join_group import JOIN_GROUP
from partage.wire.apis.leave_group import LEAVE_GROUP
from partage.wire.apis.offset_commit import OFFSET_COMMIT
from partage.wire.apis.produce import PRODUCE
from partage.wire.apis.sync_group import SYNC_GROUP
from partage.wire.apis.txn_offset_commit import TXN_OFFSET_COMMIT
from partage.wire.consumer_protocol import decode_assignment, decode_subscription
from partage.wire.primitives import MalformedError
from partage.wire.records.batch import whole_batches

RequestKind = Literal["produce", "fetch", "commit", "group", "other"]

_KINDS: Final[dict[int, RequestKind]] = {
    PRODUCE.key: "produce",
    FETCH.key: "fetch",
    OFFSET_COMMIT.key: "commit",
    TXN_OFFSET_COMMIT.key: "commit",
    JOIN_GROUP.key: "group",
    SYNC_GROUP.key: "group",
    LEAVE_GROUP.key: "group",
    HEARTBEAT.key: "group",
    CONSUMER_GROUP_HEARTBEAT.key: "group",
}
#: Requests that are recorded only if their response has an error or other news.
_ROUTINE: Final = frozenset({FETCH.key, HEARTBEAT.key, CONSUMER_GROUP_HEARTBEAT.key})
#: Errors after which a member knows that it owns nothing.
_REMOVED: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)


@dataclass
class RecordedRequest:
    """A request of a process to the broker.

    Attributes:
        at_s: the virtual time at which the broker received it, in seconds.
        process: the name of the process.
        api: the name of the API.
        kind: a group of APIs.
        text: what it concerns, such as partitions with offsets.
        offsets: the offset of each partition: the first one produced, the last one fetched, or the
            committed one.
        done_s: the time of the response; None if there was none.
        error: the name of the first error in the response, or "".
        has_assignment: True if the response assigns partitions to a member of a group.
    """

    at_s: float
    process: str
    api: str
    kind: RequestKind
    text: str
    offsets: dict[TopicPartition, int]
    done_s: float | None = None
    error: str = ""
    has_assignment: bool = False


@dataclass(frozen=True)
class OwnedPartition:
    """A time in which a process owned a partition.

    Attributes:
        process: the name of the process.
        group: the consumer group.
        partition: the partition.
        from_s: the beginning in virtual seconds.
        to_s: the end.
    """

    process: str
    group: str
    partition: TopicPartition
    from_s: float
    to_s: float


_Member = tuple[str, str, str]  # process, group and member id


class RequestRecorder:
    """Collects the requests and the ownership of a world.

    Attributes:
        requests: the requests, without heartbeats and fetches that brought nothing, and without
            commits that repeat the last one of their process.
        broker_class: the class of the brokers that it observes.
    """

    broker_class: type[Broker] = Broker

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.requests: list[RecordedRequest] = []
        self._ended: list[OwnedPartition] = []
        self._owned: dict[_Member, dict[TopicPartition, float]] = {}
        self._unreported: dict[_Member, set[TopicPartition]] = {}  # of the last assignment
        self._last_commits: dict[tuple[str, str], dict[TopicPartition, int]] = {}

    def observe(self, broker: Broker) -> None:
        """Record the requests to a broker that has started."""

        def topic_name(topic_id: bytes) -> str:
            return broker.log_manager.topic_name(topic_id) or topic_id.hex()

        def wrap(handler: Handler) -> Handler:
            def handle(inbound: InboundRequest) -> None:
                self._record(inbound, topic_name)
                handler(inbound)

            return handle

        broker.server.intercept(wrap)

    def on_process_end(self, process: str) -> None:
        """End the ownership of a process that was killed, failed or ended."""
        for member in [member for member in self._owned if member[0] == process]:
            self._release(member)
            del self._owned[member]

    def owned_partitions(self) -> list[OwnedPartition]:
        """Return all ownership; what members own now ends now."""
        now_s = self._loop.elapsed_s
        current = [
            OwnedPartition(process, group, partition, from_s, now_s)
            for (process, group, _), owned in self._owned.items()
            for partition, from_s in owned.items()
        ]
        return sorted([*self._ended, *current], key=lambda owned: owned.from_s)

    # Requests

    def _record(self, inbound: InboundRequest, topic_name: Callable[[bytes], str]) -> None:
        api = inbound.api
        request = RecordedRequest(
            at_s=self._loop.elapsed_s,
            process=inbound.client_host.removeprefix("/"),
            api=api.name,
            kind=_KINDS.get(api.key, "other"),
            text=_group_text(api.key, inbound.message),
            offsets={},
        )
        is_routine = api.key in _ROUTINE
        if request.kind == "commit":
            request.offsets.update(_committed(inbound.message, topic_name))
            committer = (request.process, inbound.message.group_id)
            is_routine = self._last_commits.get(committer) == request.offsets
            self._last_commits[committer] = request.offsets
        if not is_routine:
            self.requests.append(request)
        self._on_group_request(api.key, request.process, inbound.message, topic_name)

        def answered(response: ObservedResponse) -> None:
            request.done_s = self._loop.elapsed_s
            if not response.is_empty:
                self._on_response(request, inbound, response, topic_name)
            is_news = request.error or (request.offsets and request.kind != "commit")
            if is_routine and (is_news or request.has_assignment):
                self.requests.append(request)

        observe_response(inbound, answered)

    def _on_response(
        self,
        request: RecordedRequest,
        inbound: InboundRequest,
        response: ObservedResponse,
        topic_name: Callable[[bytes], str],
    ) -> None:
        request.error = response.first_error
        if request.error == ErrorCode.MEMBER_ID_REQUIRED.name:
            request.text, request.error = f"{request.text} got a member id", ""
        key = inbound.api.key
        if key == PRODUCE.key:
            request.offsets.update(_produced(response.message))
        elif key == FETCH.key and response.has_records:
            request.offsets.update(_fetched(response.message, topic_name))
        self._on_group_response(request, inbound, response.message, topic_name)

    # Ownership

    def _on_group_request(
        self, key: int, process: str, message: Any, topic_name: Callable[[bytes], str]
    ) -> None:
        if key == JOIN_GROUP.key and message.member_id:
            kept = _still_owned(message)
            self._release((process, message.group_id, message.member_id), kept)
        elif key == LEAVE_GROUP.key:
            for member_id in (message.member_id, *(each.member_id for each in message.members)):
                self._release((process, message.group_id, member_id))
        elif key == CONSUMER_GROUP_HEARTBEAT.key:
            member = (process, message.group_id, message.member_id)
            if message.member_epoch < 0:
                self._release(member)
            elif message.topic_partitions is not None:
                reported = _partitions_by_id(message.topic_partitions, topic_name)
                unreported = self._unreported.setdefault(member, set())
                unreported.difference_update(reported)
                self._release(member, [*reported, *unreported])
                self._own(member, reported)

    def _on_group_response(
        self,
        request: RecordedRequest,
        inbound: InboundRequest,
        response: Any,
        topic_name: Callable[[bytes], str],
    ) -> None:
        key, message = inbound.api.key, inbound.message
        if request.kind != "group" or key == LEAVE_GROUP.key:
            return
        member_id = message.member_id or getattr(response, "member_id", None) or ""
        member = (request.process, message.group_id, member_id)
        if response.error_code in _REMOVED:
            self._release(member)
        elif key == SYNC_GROUP.key and not response.error_code:
            assigned = _assigned(response.assignment)
            request.text += f" got {_describe(assigned)}"
            request.has_assignment = True
            self._release(member, assigned)
            self._own(member, assigned)
        elif key == CONSUMER_GROUP_HEARTBEAT.key and response.assignment is not None:
            partitions = _partitions_by_id(response.assignment.topic_partitions, topic_name)
            request.text += f" got {_describe(partitions)}"
            request.has_assignment = True
            # A member may repeat what it owned before it reports these.
            reported = set(self._owned.get(member, ())) - self._unreported.get(member, set())
            self._unreported[member] = set(partitions) - reported
            self._own(member, partitions)

    def _own(self, member: _Member, partitions: Iterable[TopicPartition]) -> None:
        owned = self._owned.setdefault(member, {})
        for partition in partitions:
            owned.setdefault(partition, self._loop.elapsed_s)

    def _release(self, member: _Member, kept: Iterable[TopicPartition] = ()) -> None:
        """End the ownership of all partitions that are not kept."""
        owned = self._owned.get(member, {})
        process, group, _ = member
        for partition in sorted(set(owned).difference(kept)):
            span = OwnedPartition(
                process, group, partition, owned.pop(partition), self._loop.elapsed_s
            )
            self._ended.append(span)


def _group_text(key: int, message: Any) -> str:
    if key in (LEAVE_GROUP.key, *_KINDS) and hasattr(message, "group_id"):
        return f"group {message.group_id}"
    return ""


def _describe(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{each.topic}-{each.partition}" for each in partitions) or "nothing"


def _still_owned(message: Any) -> list[TopicPartition]:
    """Return the partitions that a member still owns when it joins."""
    for protocol in message.protocols:
        try:
            subscription = decode_subscription(protocol.metadata)
        except MalformedError:
            continue
        return _partitions(subscription.owned_partitions)
    return []


def _assigned(assignment: bytes) -> list[TopicPartition]:
    try:
        return _partitions(decode_assignment(assignment).assigned_partitions)
    except MalformedError:
        return []


def _partitions(topics: Iterable[Any]) -> list[TopicPartition]:
    return [TopicPartition(each.topic, number) for each in topics for number in each.partitions]


def _partitions_by_id(
    topics: Iterable[Any], topic_name: Callable[[bytes], str]
) -> list[TopicPartition]:
    return [
        TopicPartition(topic_name(each.topic_id), number)
        for each in topics
        for number in each.partitions
    ]


def _committed(
    message: Any, topic_name: Callable[[bytes], str]
) -> Iterator[tuple[TopicPartition, int]]:
    for topic in message.topics:
        name = topic.name or topic_name(topic.topic_id)
        for each in topic.partitions:
            yield TopicPartition(name, each.partition_index), each.committed_offset


def _produced(response: Any) -> Iterator[tuple[TopicPartition, int]]:
    for topic in response.responses:
        for each in topic.partition_responses:
            if not each.error_code:
                yield TopicPartition(topic.name, each.index), each.base_offset


def _fetched(
    response: Any, topic_name: Callable[[bytes], str]
) -> Iterator[tuple[TopicPartition, int]]:
    for topic in response.responses:
        for each in topic.partitions:
            content = b"".join(each.records or ())
            last = [header.last_offset for _, header in whole_batches(content)]
            if last:
                name = topic.topic or topic_name(topic.topic_id)
                yield TopicPartition(name, each.partition_index), last[-1]

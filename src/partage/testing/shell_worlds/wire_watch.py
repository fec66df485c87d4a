"""The requests that the broker of a world gets: acknowledged commits, and counts by process."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from partage.broker.broker import Broker
from partage.broker.net.inbound_request import Handler, InboundRequest, RequestConnection
from partage.coordinator.consumer_group.group import ConsumerGroup
from partage.coordinator.group import Group
from partage.model.topic_partition import TopicPartition
from partage.testing.world.request_recorder import ObservedConnection, RequestRecorder
from partage.testing.world.virtual_loop import VirtualLoop
from partage.wire.apis.offset_commit import OFFSET_COMMIT
from partage.wire.frames import FRAME_LENGTH, parse_response_header


@dataclass
class _Commit:
    """A commit of one offset; ``is_stored`` is None while the broker has not answered."""

    at_s: float
    offset: int
    is_stored: bool | None = None


class CommitTimeline:
    """The offsets that were committed, over time.

    Attributes:
        committed: The last acknowledged offset of each group and partition.
    """

    def __init__(self) -> None:
        self.committed: dict[tuple[str, TopicPartition], int] = {}
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
    """Sees all requests to the broker.

    Attributes:
        commits: The acknowledged commits.
        requests_by: The number of requests of each process and API since `reset_counts`.
    """

    def __init__(self, loop: VirtualLoop, on_end: Callable[[str], None]) -> None:
        super().__init__(loop)
        self.commits = CommitTimeline()
        self.requests_by: Counter[tuple[str, str]] = Counter()
        self._on_end = on_end
        self._broker: Broker | None = None

    def reset_counts(self) -> None:
        """Begin to count again."""
        self.requests_by.clear()

    def on_process_end(self, process: str) -> None:
        """Note that a process was killed, failed or ended."""
        super().on_process_end(process)
        self._on_end(process)

    def member_count(self, group_id: str) -> int:
        """Return the number of members of a group, as the coordinator has it."""
        assert self._broker is not None, "no broker has started"
        shard = self._broker.coordinator.host_of(group_id).shard
        group = None if shard is None else shard.groups.get(group_id)
        return len(group.members) if isinstance(group, Group | ConsumerGroup) else 0

    def observe(self, broker: Broker) -> None:
        """Watch the requests to a broker that has started."""
        super().observe(broker)
        self._broker = broker

        def topic_name(topic_id: bytes) -> str:
            return broker.log_manager.topic_name(topic_id) or topic_id.hex()

        def wrap(handler: Handler) -> Handler:
            def handle(inbound: InboundRequest) -> None:
                process = inbound.client_host.removeprefix("/")
                self.requests_by[process, inbound.api.name] += 1
                if inbound.api.key == OFFSET_COMMIT.key:
                    self._watch_commit(inbound, topic_name)
                handler(inbound)

            return handle

        broker.server.intercept(wrap)

    def _watch_commit(self, inbound: InboundRequest, topic_name: Callable[[bytes], str]) -> None:
        connection, request = inbound.connection, inbound.message
        answers = {
            (topic.name, topic.topic_id, each.partition_index): self.commits.add(
                request.group_id,
                TopicPartition(topic.name or topic_name(topic.topic_id), each.partition_index),
                each.committed_offset,
                self._loop.elapsed_s,
            )
            for topic in request.topics
            for each in topic.partitions
        }

        def answered() -> None:
            inbound.connection = connection
            frame = b"".join(inbound.response_buffers)[FRAME_LENGTH.size :]
            _, pos = parse_response_header(inbound.api, inbound.version, frame)
            response: Any = inbound.api.decode_response(inbound.version, frame, pos)
            for topic in response.topics:
                for each in topic.partitions:
                    answer = answers[topic.name, topic.topic_id, each.partition_index]
                    answer(not each.error_code)

        inbound.connection = cast(RequestConnection, ObservedConnection(connection, answered))
